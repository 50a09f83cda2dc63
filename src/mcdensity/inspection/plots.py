"""Pictures of what inspection finds. Each function draws on `ax` and returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mcdensity._numbers import readable
from mcdensity.plotting._drawing import BLUE, GREEN, GREY, LINES, ORANGE, add_legend, new_axes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["plot_contributions", "plot_effects", "plot_importance", "plot_nearest"]

# Two standard errors: what 19 of 20 samples would show.
_BAND = 2.0


def plot_effects(table: pd.DataFrame, feature: Any = None, *, ax: Axes | None = None) -> Axes:
    """Draw partial dependence or accumulated local effects of one feature.

    A line for each functional, with a band of two standard errors; points for texts. The ticks at
    the bottom are values of the feature, each with the same number of rows between them.

    Parameters
    ----------
    table : DataFrame
        From `partial_dependence` or `accumulated_local_effects`.
    feature : str or int, optional
        Which of the table's; by default the first.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    _check_columns(table, ("feature", "functional", "value", "effect", "std_error"))
    names = list(dict.fromkeys(table["feature"]))
    if feature is None:
        feature = names[0]
    if feature not in names:
        raise ValueError(f"The table has no feature {feature!r}; choose from {names}.")
    own = table[table["feature"] == feature]
    ax = new_axes(ax)
    functionals = list(dict.fromkeys(own["functional"]))
    numeric = np.asarray(own["value"].tolist()).dtype.kind in "biufM"
    for k, name in enumerate(functionals):
        part = own[own["functional"] == name]
        color, style = LINES[k % len(LINES)]
        effect, error = part["effect"].to_numpy(), _BAND * part["std_error"].to_numpy()
        label = name if len(functionals) > 1 else None
        if numeric:
            at: Any = part["value"].tolist()
            ax.fill_between(at, effect - error, effect + error, color=color, alpha=0.2, lw=0)
            ax.plot(at, effect, color=color, ls=style, lw=2, label=label)
            if k == 0:
                ax.plot(at, np.zeros(len(at)), "|", color=GREY, ms=8, clip_on=False,
                        transform=ax.get_xaxis_transform())  # fmt: skip
        else:
            at = np.arange(len(part)) + 0.12 * (k - (len(functionals) - 1) / 2)
            ax.errorbar(at, effect, error, fmt="o", color=color, capsize=3, ms=6, label=label)
            texts = [_plain(str(v)) for v in part["value"]]
            ax.set_xticks(np.arange(len(part)), texts, rotation=30, ha="right")
    if own["effect"].min() < 0 < own["effect"].max():
        ax.axhline(0, color=GREY, lw=0.8, ls="--")
    what = f"the {functionals[0]}" if len(functionals) == 1 else "y"
    ax.set(xlabel=_label(feature), ylabel=f"effect on {what}")
    ax.spines[["top", "right"]].set_visible(False)
    if len(functionals) > 1:
        add_legend(ax)
    return ax


def plot_importance(table: pd.DataFrame, *, most: int = 15, ax: Axes | None = None) -> Axes:
    """Draw how much the features matter, with two standard errors.

    Parameters
    ----------
    table : DataFrame
        From `permutation_importance`.
    most : int, default 15
        At most so many features, the most important ones.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    _check_columns(table, ("feature", "importance", "std_error"))
    part = table.head(most)
    ax = new_axes(ax)
    place = -np.arange(len(part))
    ax.barh(place, part["importance"], height=0.7, color=BLUE, alpha=0.85)
    ax.errorbar(part["importance"], place, xerr=_BAND * part["std_error"], fmt="none",
                ecolor="black", capsize=3, lw=1)  # fmt: skip
    ax.set(yticks=place, yticklabels=[_label(f) for f in part["feature"]],
           xlabel="what is lost when it is shuffled")  # fmt: skip
    ax.axvline(0, color=GREY, lw=0.8)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax


def plot_contributions(
    table: pd.DataFrame, row: int = 0, *, most: int = 10, ax: Axes | None = None
) -> Axes:
    """Draw how features lead from the average answer to a row's own, one after the other.

    Parameters
    ----------
    table : DataFrame
        From `shapley`.
    row : int, default 0
        Which of the rows that were explained.
    most : int, default 10
        At most so many features, the largest contributions; the others are drawn together.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    _check_columns(table, ("row", "feature", "value", "contribution", "baseline", "prediction"))
    own = table[table["row"] == row]
    if len(own) == 0:
        raise ValueError(f"The table has no row {row!r}; choose from {sorted(set(table['row']))}.")
    own = own.iloc[np.argsort(-own["contribution"].abs().to_numpy(), kind="stable")]
    shown, rest = own.head(most), own.iloc[most:]
    labels = [
        f"{_label(f)} = {_value(v)}" for f, v in zip(shown["feature"], shown["value"], strict=True)
    ]
    step, error = shown["contribution"].to_numpy(), shown["std_error"].to_numpy()
    if len(rest):
        labels.append(f"{len(rest)} others")
        step, error = np.append(step, rest["contribution"].sum()), np.append(error, 0.0)
    start = own["baseline"].iloc[0] + np.concatenate([[0.0], np.cumsum(step)[:-1]])
    ax = new_axes(ax)
    place = -np.arange(len(step))
    colors = [BLUE if s >= 0 else ORANGE for s in step]
    ax.barh(place, step, left=start, height=0.6, color=colors, alpha=0.85)
    if error.any():
        ax.errorbar(start + step, place, xerr=_BAND * error, fmt="none", ecolor="black", capsize=2)
    for at, begin, change in zip(place, start, step, strict=True):
        text = f"{'+' if change >= 0 else '-'}{readable(abs(change), 3)}"
        ax.annotate(text, (max(begin, begin + change), at), (6, 0), textcoords="offset points",
                    va="center", fontsize=8)  # fmt: skip
    for name, color in (("baseline", GREY), ("prediction", GREEN)):
        end = float(own[name].iloc[0])
        ax.axvline(end, color=color, lw=1.2, ls="--", zorder=0.5, label=f"{name} {readable(end)}")
    ax.set(yticks=place, yticklabels=labels)
    ax.margins(x=0.15)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    # Below the axes, where no bar can be.
    ax.legend(
        frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2
    )
    return ax


def plot_nearest(
    table: pd.DataFrame,
    row: int = 0,
    *,
    distribution: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the nearest rows of a row: their distance, and their outcome where it is known.

    Parameters
    ----------
    table : DataFrame
        From `nearest_rows`.
    row : int, default 0
        Which of the rows in question.
    distribution : ConditionalDistribution, optional
        The predictions of the rows in question, whose 50 and 90 % intervals are drawn behind the
        outcomes; the table needs y.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    _check_columns(table, ("row", "rank", "neighbor", "distance"))
    own = table[table["row"] == row]
    if len(own) == 0:
        raise ValueError(f"The table has no row {row!r}; choose from {sorted(set(table['row']))}.")
    ax = new_axes(ax)
    if "y" not in own.columns:
        if distribution is not None:
            raise ValueError("The table has no outcomes to compare; give y to nearest_rows.")
        place = -np.arange(len(own))
        ax.barh(place, own["distance"], height=0.7, color=BLUE, alpha=0.85)
        ax.set(yticks=place, yticklabels=[f"row {i}" for i in own["neighbor"]], xlabel="distance")
    else:
        if distribution is not None:
            for coverage, alpha in ((0.9, 0.15), (0.5, 0.3)):
                low, high = distribution[[row]].interval(coverage)[0]
                ax.axvspan(low, high, color=BLUE, alpha=alpha, lw=0,
                           label=f"{coverage:.0%} interval".replace("%", " %"))  # fmt: skip
        ax.plot(own["y"], own["distance"], "o", color=ORANGE, mec="white", ms=8,
                label="outcomes of the nearest rows")  # fmt: skip
        for _, one in own.iterrows():
            ax.annotate(f"row {one['neighbor']}", (one["y"], one["distance"]), (7, 3),
                        textcoords="offset points", fontsize=8)  # fmt: skip
        ax.set(xlabel="y", ylabel="distance", ylim=(0, 1.15 * own["distance"].max() or 1.0))
        add_legend(ax)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _check_columns(table: Any, columns: tuple[str, ...]) -> None:
    known = list(getattr(table, "columns", []))
    absent = [name for name in columns if name not in known]
    if absent or len(table) == 0:
        raise ValueError(
            f"table must be one that mcdensity.inspection made, with the columns "
            f"{', '.join(columns)}, and not empty."
        )


def _label(feature: Any) -> str:
    return _plain(feature) if isinstance(feature, str) else f"feature {feature}"


def _plain(text: str) -> str:
    """Return text in which dollars do not begin a formula."""
    return text.replace("$", r"\$")


def _value(value: Any) -> str:
    if value is None or value != value:
        return "missing"
    number = isinstance(value, float | np.floating)
    return readable(float(value), 3) if number else _plain(str(value))
