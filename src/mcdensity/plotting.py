"""Pictures of conditional distributions. Each function draws on `ax` and returns it.

The colours are those of Okabe and Ito, which colour-blind readers tell apart; lines differ in
style too, so that they can be told apart in print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from mcdensity import metrics
from mcdensity._validation import check_integer, require
from mcdensity.distribution import ConditionalDistribution, check_coverage
from mcdensity.estimator import ConditionalEstimator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "plot_calibration",
    "plot_comparison",
    "plot_densities",
    "plot_fan",
    "plot_heatmap",
    "plot_hpd",
    "plot_pit",
    "sweep",
]

Array = NDArray[np.float64]

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
_LINES = (
    (BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), ("#CC79A7", ":"), ("#000000", (0, (5, 1))),
    ("#E69F00", (0, (3, 1, 1, 1))), ("#56B4E9", (0, (1, 1))),
)  # fmt: skip
_MOST_ROWS = 25
_POINTS = 500


def plot_densities(
    distribution: ConditionalDistribution,
    y: ArrayLike | None = None,
    *,
    coverage: float = 0.9,
    truth: ConditionalDistribution | None = None,
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the densities of a few rows, one below the other, with interval and outcome.

    Parameters
    ----------
    distribution : ConditionalDistribution
        At most 25 rows; choose them by slicing, such as ``distribution[:5]``.
    y : array-like of shape (n,), optional
        Outcomes.
    coverage : float, default 0.9
        Of the central interval.
    truth : ConditionalDistribution, optional
        The true distributions, where they are known.
    labels : sequence of str, optional
        One a row.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    named = {"estimate": distribution} | ({} if truth is None else {"truth": truth})
    ax = plot_comparison(named, y, labels=labels, ax=ax, _fill=True)
    interval = distribution.interval(check_coverage(coverage))
    for i, (base, ends) in enumerate(zip(_bases(ax), interval, strict=True)):
        ax.plot(
            ends, [base, base], color=GREEN, lw=4, solid_capstyle="butt", zorder=1.5,
            label=f"{_percent(coverage)} interval" if i == 0 else None,
        )  # fmt: skip
    _legend(ax)
    return ax


def plot_comparison(
    distributions: Mapping[str, ConditionalDistribution],
    y: ArrayLike | None = None,
    *,
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
    _fill: bool = False,
) -> Axes:
    """Draw what several estimators say of the same rows.

    Parameters
    ----------
    distributions : mapping of str to ConditionalDistribution
        By the name of the estimator; the rows are the same in each.
    y : array-like of shape (n,), optional
        Outcomes.
    labels : sequence of str, optional
        One a row.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    if not distributions:
        raise ValueError("distributions is empty; give at least one.")
    n = _check_rows(distributions)
    outcomes = None if y is None else _outcomes(y, n)
    if labels is not None and len(labels) != n:
        raise ValueError(f"labels must have one entry a row ({n}), got {len(labels)}.")
    every = list(distributions.values())
    low = min(float(d.ppf(0.002).min()) for d in every)
    high = max(float(d.ppf(0.998).max()) for d in every)
    if outcomes is not None:
        low, high = min(low, float(outcomes.min())), max(high, float(outcomes.max()))
    grid = np.linspace(low, high, _POINTS)
    densities = [d.pdf_grid(grid) for d in every]
    # Each row has a scale of its own: a narrow density would flatten all others.
    top = np.max([d.max(axis=1) for d in densities], axis=0)
    ax = _axes(ax)
    for k, (name, density) in enumerate(zip(distributions, densities, strict=True)):
        color, style = _LINES[k % len(_LINES)]
        if _fill and k:
            color, style = GREY, "--"
        for i in range(n):
            curve = -i + 0.85 * density[i] / top[i]
            ax.plot(grid, curve, color=color, ls=style, lw=1.5, label=name if i == 0 else None)
            if _fill and k == 0:
                ax.fill_between(grid, -i, curve, color=color, alpha=0.2, lw=0)
    for i in range(n):
        ax.axhline(-i, color=GREY, lw=0.5, zorder=0.5)
        if outcomes is not None:
            ax.plot(outcomes[i], -i, "v", color=ORANGE, ms=8, mec="white", mew=0.6, zorder=3,
                    label="outcome" if i == 0 else None)  # fmt: skip
    ax.set(
        yticks=-np.arange(n),
        yticklabels=[f"row {i}" for i in range(n)] if labels is None else list(labels),
        ylim=(-n + 0.85, 1.0),
        xlim=(low, high),
        xlabel="y",
    )
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    _legend(ax)
    return ax


def plot_heatmap(
    estimator: ConditionalEstimator,
    X: Any,
    feature: str | int,
    *,
    y: ArrayLike | None = None,
    n_points: int = 100,
    ax: Axes | None = None,
) -> Axes:
    """Draw the density of y along one feature, all others held at a typical value.

    Parameters
    ----------
    estimator : ConditionalEstimator
        Fitted.
    X : DataFrame or array of shape (n, p)
        Rows that say which values the features have; see `sweep`.
    feature : str or int
        Its name, or the number of its column.
    y : array-like of shape (n,), optional
        Outcomes of the rows, drawn as points.
    n_points : int, default 100
        Values of the feature.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    values, rows = sweep(X, feature, n_points)
    distribution = estimator.predict_distribution(rows)
    low, high = float(distribution.ppf(0.005).min()), float(distribution.ppf(0.995).max())
    grid = np.linspace(low, high, 300)
    density = distribution.pdf_grid(grid).T
    ax = _axes(ax)
    numeric = values.dtype.kind == "f"
    across = values if numeric else np.arange(len(values))
    # The brightest percent share a colour: one sharp peak would hide all else.
    mesh = ax.pcolormesh(
        across, grid, density, cmap="Blues", vmin=0, vmax=np.quantile(density, 0.99),
        shading="nearest", rasterized=True,
    )  # fmt: skip
    ax.figure.colorbar(mesh, ax=ax, label="density", extend="max")
    for level, style in ((0.05, ":"), (0.5, "-"), (0.95, ":")):
        line = distribution.ppf(level)
        if numeric:
            ax.plot(across, line, color=ORANGE, ls=style, lw=1.3)
        else:
            ax.plot(across, line, "_", color=ORANGE, ms=18, mew=2 if level == 0.5 else 1)
    if y is not None:
        at = _column(X, feature)
        if numeric:
            ax.plot(np.asarray(at, dtype=np.float64), _outcomes(y, len(at)), ".", color="black",
                    ms=2, alpha=0.35)  # fmt: skip
            ax.set_xlim(float(across[0]), float(across[-1]))
        ax.set_ylim(low, high)
    if not numeric:
        ax.set_xticks(across, [str(v) for v in values], rotation=30, ha="right")
    name = feature if isinstance(feature, str) else f"feature {feature}"
    ax.set(xlabel=name, ylabel="y", title="density; lines: 5 %, 50 %, 95 %")
    return ax


def plot_fan(
    distribution: ConditionalDistribution,
    y: ArrayLike | None = None,
    *,
    x: ArrayLike | None = None,
    coverages: Sequence[float] = (0.5, 0.8, 0.95),
    ax: Axes | None = None,
) -> Axes:
    """Draw median and central intervals of many rows as a fan.

    Parameters
    ----------
    distribution : ConditionalDistribution
    y : array-like of shape (n,), optional
        Outcomes.
    x : array-like of shape (n,), optional
        Where each row stands, such as a time; by default rows are ordered by their median.
    coverages : sequence of float
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    n = len(distribution)
    median = distribution.median()
    place = None if x is None else _outcomes(x, n, "x")
    order = np.argsort(median if place is None else place, kind="stable")
    at = np.arange(n) if place is None else place[order]
    ax = _axes(ax)
    widest_first = sorted((check_coverage(c) for c in coverages), reverse=True)
    for k, coverage in enumerate(widest_first):
        low, high = distribution.interval(coverage)[order].T
        alpha = 0.15 + 0.35 * (k + 1) / len(widest_first)
        ax.fill_between(at, low, high, color=BLUE, alpha=alpha, lw=0, label=_percent(coverage))
    ax.plot(at, median[order], color="black", lw=1.2, label="median")
    if y is not None:
        ax.plot(at, _outcomes(y, n)[order], ".", color=ORANGE, ms=3, alpha=0.7, label="outcome")
    ax.set(xlabel="rows, by their median" if place is None else "x", ylabel="y")
    ax.margins(x=0)
    _legend(ax)
    return ax


def plot_hpd(
    distribution: ConditionalDistribution,
    y: ArrayLike | None = None,
    *,
    coverages: Sequence[float] = (0.5, 0.9),
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw highest-density regions: the smallest sets that hold y with given probabilities.

    Where a density has several modes a region is several intervals.

    Parameters
    ----------
    distribution : ConditionalDistribution
        At most 25 rows.
    y : array-like of shape (n,), optional
        Outcomes.
    coverages : sequence of float
    labels : sequence of str, optional
        One a row.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    n = _check_rows({"distribution": distribution})
    ax = _axes(ax)
    widest_first = sorted((check_coverage(c) for c in coverages), reverse=True)
    for k, coverage in enumerate(widest_first):
        for i, region in enumerate(distribution.hpd(coverage)):
            for j, (low, high) in enumerate(region):
                ax.barh(
                    -i, high - low, left=low, height=0.35 + 0.3 * k / len(widest_first),
                    color=BLUE, alpha=0.35 + 0.55 * k / len(widest_first), lw=0,
                    label=_percent(coverage) if i == j == 0 else None,
                )  # fmt: skip
    ax.plot(distribution.mode(), -np.arange(n), "|", color="black", ms=12, label="mode")
    if y is not None:
        ax.plot(_outcomes(y, n), -np.arange(n), "v", color=ORANGE, mec="white", label="outcome")
    names = [f"row {i}" for i in range(n)] if labels is None else list(labels)
    ax.set(yticks=-np.arange(n), yticklabels=names, xlabel="y")
    ax.spines[["top", "right", "left"]].set_visible(False)
    _legend(ax)
    return ax


def plot_pit(
    distribution: ConditionalDistribution,
    y: ArrayLike,
    *,
    bins: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Draw the histogram of F(y|x), which is flat where the distributions are right.

    The band holds a bar with probability 0.95 if they are. A hump: the distributions are too wide;
    a bowl: too narrow; a slope: they lie too low or too high.

    Parameters
    ----------
    distribution : ConditionalDistribution
    y : array-like of shape (n,)
        Outcomes.
    bins : int, default 10
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    bins = check_integer("bins", bins, 2)
    value = metrics.pit(distribution, y)
    n = len(value)
    ax = _axes(ax)
    low, high = (stats.binom.ppf(q, n, 1 / bins) * bins / n for q in (0.025, 0.975))
    ax.axhspan(low, high, color=GREY, alpha=0.2, lw=0, label="95 % band of chance")
    ax.axhline(1, color=GREY, lw=1, ls="--")
    count, edges = np.histogram(value, bins=bins, range=(0, 1))
    ax.bar(edges[:-1], count * bins / n, width=0.95 / bins, align="edge", color=BLUE, alpha=0.85)
    ax.set(xlabel="F(y|x) of the outcomes", ylabel="relative frequency", xlim=(0, 1))
    _legend(ax)
    return ax


def plot_calibration(
    distribution: ConditionalDistribution, y: ArrayLike, *, ax: Axes | None = None
) -> Axes:
    """Draw how often the outcome lies below each predicted quantile.

    The diagonal is perfect; the band holds the whole curve with probability 0.95 if the
    distributions are right (Kolmogorov and Smirnov).

    Parameters
    ----------
    distribution : ConditionalDistribution
    y : array-like of shape (n,)
        Outcomes.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    level = np.sort(metrics.pit(distribution, y))
    n = len(level)
    band = stats.kstwo.ppf(0.95, n)
    ax = _axes(ax)
    ax.fill_between([0, 1], [-band, 1 - band], [band, 1 + band], color=GREY, alpha=0.15, lw=0,
                    label="95 % band of chance")  # fmt: skip
    ax.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--")
    ax.plot(np.r_[0, level, 1], np.r_[0, (np.arange(n) + 0.5) / n, 1], color=BLUE, lw=2,
            label="outcomes")  # fmt: skip
    ax.set(xlabel="predicted probability", ylabel="observed share", xlim=(0, 1), ylim=(0, 1),
           aspect="equal")  # fmt: skip
    _legend(ax)
    return ax


def sweep(X: Any, feature: str | int, n_points: int = 100) -> tuple[NDArray[Any], Any]:
    """Return values of one feature, and rows that have them and are typical in all else.

    Typical is the median of a column of numbers, and the most frequent value of other columns. The
    values go from the 1 % to the 99 % quantile; of text, they are its most frequent values.

    Parameters
    ----------
    X : DataFrame or array of shape (n, p)
    feature : str or int
    n_points : int

    Returns
    -------
    values : ndarray of shape (k,)
    rows : DataFrame or array of shape (k, p)
    """
    n_points = check_integer("n_points", n_points, 2)
    column = _column(X, feature)
    numeric = _is_numeric(column)
    if numeric:
        known = np.asarray(column, dtype=np.float64)
        known = known[np.isfinite(known)]
        if len(known) == 0:
            raise ValueError(f"The feature {feature!r} has no values.")
        different = np.unique(known)
        values: NDArray[Any] = (
            different
            if len(different) <= 10
            else np.linspace(np.quantile(known, 0.01), np.quantile(known, 0.99), n_points)
        )
    else:
        frequent = column.dropna().astype(str).value_counts().index[:12]
        values = np.sort(np.array(list(frequent), dtype=object))
    if hasattr(X, "iloc"):
        typical = {}
        for name in X.columns:
            own = X[name]
            typical[name] = (
                float(own.median()) if _is_numeric(own) else next(iter(own.mode()), None)
            )
        rows = X.iloc[[0] * len(values)].reset_index(drop=True).astype(object)
        for name, value in typical.items():
            rows[name] = value
        rows[feature if isinstance(feature, str) else X.columns[feature]] = values
        return values, rows.infer_objects()
    rows = np.tile(np.nanmedian(np.asarray(X, dtype=np.float64), axis=0), (len(values), 1))
    rows[:, int(feature)] = values
    return values, rows


def _is_numeric(column: Any) -> bool:
    return np.asarray(column).dtype.kind in "biuf"


def _column(X: Any, feature: str | int) -> Any:
    if hasattr(X, "iloc"):
        from mcdensity.tables import nearest

        if isinstance(feature, str):
            if feature not in X.columns:
                raise ValueError(
                    f"There is no feature {feature!r}{nearest(feature, X.columns)}; choose from "
                    f"{', '.join(map(str, X.columns))}."
                )
            return X[feature]
        return X.iloc[:, feature]
    values = np.asarray(X, dtype=np.float64)
    if not isinstance(feature, int | np.integer) or not 0 <= feature < values.shape[1]:
        raise ValueError(
            f"feature must be a column number from 0 to {values.shape[1] - 1} where X is an array, "
            f"got {feature!r}."
        )
    return values[:, feature]


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    return require("matplotlib.pyplot", "plot").subplots(layout="constrained")[1]


def _legend(ax: Axes) -> None:
    ax.legend(frameon=False, fontsize="small", loc="best")


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _bases(ax: Axes) -> Any:
    return ax.get_yticks()


def _check_rows(distributions: Mapping[str, ConditionalDistribution]) -> int:
    sizes = {name: len(d) for name, d in distributions.items()}
    n = next(iter(sizes.values()))
    if len(set(sizes.values())) > 1:
        raise ValueError(f"The distributions have different numbers of rows: {sizes}.")
    if not 1 <= n <= _MOST_ROWS:
        raise ValueError(
            f"{n} rows cannot be told apart in one picture; choose 1 to {_MOST_ROWS}, such as "
            "distribution[:5], or use plot_fan."
        )
    return n


def _outcomes(y: ArrayLike, n: int, name: str = "y") -> Array:
    values = np.asarray(y, dtype=np.float64).ravel()
    if len(values) != n:
        raise ValueError(f"{name} must have one value a row ({n}), got {len(values)}.")
    return values
