"""Pictures of the distributions of rows: densities, regions, fans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity.distribution import (
    ConditionalDistribution,
    MixedDistribution,
    check_coverage,
)
from mcdensity.plotting._drawing import (
    BLUE,
    GREEN,
    GREY,
    LINES,
    ORANGE,
    add_legend,
    check_rows,
    new_axes,
    one_per_row,
    percent,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_comparison", "plot_densities", "plot_fan", "plot_hpd"]

Array = NDArray[np.float64]

# Points of a curve: about one for each pixel of a column's width in print.
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

    Counts and grades are drawn as bars; the atoms of a mixed law as stems, with their probability.

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
        One per row.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    named = {"estimate": distribution} | ({} if truth is None else {"truth": truth})
    ax = plot_comparison(named, y, labels=labels, ax=ax, _fill=True)
    interval = distribution.interval(check_coverage(coverage))
    for i, (base, ends) in enumerate(zip(ax.get_yticks(), interval, strict=True)):
        ax.plot(
            ends, [base, base], color=GREEN, lw=4, solid_capstyle="butt", zorder=1.5,
            label=f"{percent(coverage)} interval" if i == 0 else None,
        )  # fmt: skip
    add_legend(ax)
    return ax


def plot_comparison(
    distributions: Mapping[str, ConditionalDistribution],
    y: ArrayLike | None = None,
    *,
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
    _fill: bool = False,
) -> Axes:
    """Draw what several estimators predict for the same rows.

    Parameters
    ----------
    distributions : mapping of str to ConditionalDistribution
        By the name of the estimator; the rows are the same in each.
    y : array-like of shape (n,), optional
        Outcomes.
    labels : sequence of str, optional
        One per row.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    if not distributions:
        raise ValueError("distributions is empty; give at least one.")
    n = check_rows(distributions)
    outcomes = None if y is None else one_per_row(y, n)
    if labels is not None and len(labels) != n:
        raise ValueError(f"labels must have one entry per row ({n}), got {len(labels)}.")
    every = list(distributions.values())
    low = min(float(d.ppf(0.002).min()) for d in every)
    high = max(float(d.ppf(0.998).max()) for d in every)
    if outcomes is not None:
        low, high = min(low, float(outcomes.min())), max(high, float(outcomes.max()))
    grid = np.linspace(low, high, _POINTS)
    curves = {name: _curve(d, grid) for name, d in distributions.items()}
    # Each row has its own scale: otherwise a narrow density would flatten all others.
    top = np.max([c.max(axis=1) for c in curves.values() if c is not None] or [np.ones(n)], axis=0)
    most = np.max([d.masses.max(axis=1) for d in every if d.is_discrete] or [np.ones(n)], axis=0)
    if any(len(d.atoms) for d in every):
        # Half a step for bars, and room for stems at the ends.
        steps = [np.diff(d.atoms).min() * 0.6 for d in every if d.is_discrete and len(d.atoms) > 1]
        margin = max([0.02 * (high - low), *steps])
        low, high = low - margin, high + margin
    ax = new_axes(ax)
    for k, (name, curve) in enumerate(curves.items()):
        color, style = LINES[k % len(LINES)]
        if _fill and k:
            color, style = GREY, "--"
        d = distributions[name]
        for i in range(n):
            label = name if i == 0 else None
            if curve is not None:
                # Beside stems, whose full height is 1, the curve is as high as its probability.
                line = -i + 0.85 * curve[i] / top[i] * (1 - d.masses[i].sum())
                ax.plot(grid, line, color=color, ls=style, lw=1.5, label=label)
                if _fill and k == 0:
                    ax.fill_between(grid, -i, line, color=color, alpha=0.2, lw=0)
            if len(d.atoms):
                shift = 0.15 * (k - (len(every) - 1) / 2)
                own = None if curve is not None else label
                _stems(ax, d[i], -i, 0.85 / most[i], shift, color, own)
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
    add_legend(ax)
    return ax


def _curve(distribution: ConditionalDistribution, grid: Array) -> Array | None:
    """Densities on a grid, without atoms; None where there are only atoms."""
    if distribution.is_discrete:
        return None
    if isinstance(distribution, MixedDistribution):
        return distribution.rest.pdf_grid(grid)
    return distribution.pdf_grid(grid)


def _stems(
    ax: Axes,
    row: Any,
    base: float,
    scale: float,
    shift: float,
    color: str,
    label: str | None,
) -> None:
    """Draw the masses of one row: bars for counts, a stem with a dot for a few atoms."""
    height = scale * row.masses[0]
    if row.is_discrete:
        step = float(np.diff(row.atoms).min()) if len(row.atoms) > 1 else 1.0
        ax.bar(
            row.atoms + shift * step, height, bottom=base, width=0.7 * step, color=color,
            alpha=0.45, lw=0, label=label,
        )  # fmt: skip
        return
    ax.vlines(row.atoms, base, base + height, color=color, lw=3, zorder=2.5)
    ax.plot(row.atoms, base + height, "o", color=color, ms=6, zorder=2.6, label=label)
    for at, top, mass in zip(row.atoms, base + height, row.masses[0], strict=True):
        ax.annotate(
            f"{mass:.0%}", (at, top), (6, -3), textcoords="offset points", fontsize=8, color=color
        )


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
        Position of each row, such as a time; by default rows are ordered by their median.
    coverages : sequence of float
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    n = len(distribution)
    median = distribution.median()
    place = None if x is None else one_per_row(x, n, "x")
    order = np.argsort(median if place is None else place, kind="stable")
    at = np.arange(n) if place is None else place[order]
    ax = new_axes(ax)
    widest_first = sorted((check_coverage(c) for c in coverages), reverse=True)
    for k, coverage in enumerate(widest_first):
        low, high = distribution.interval(coverage)[order].T
        alpha = 0.15 + 0.35 * (k + 1) / len(widest_first)
        ax.fill_between(at, low, high, color=BLUE, alpha=alpha, lw=0, label=percent(coverage))
    ax.plot(at, median[order], color="black", lw=1.2, label="median")
    if y is not None:
        ax.plot(at, one_per_row(y, n)[order], ".", color=ORANGE, ms=3, alpha=0.7, label="outcome")
    ax.set(xlabel="rows, by their median" if place is None else "x", ylabel="y")
    ax.margins(x=0)
    add_legend(ax)
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
        One per row.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    n = check_rows({"distribution": distribution})
    ax = new_axes(ax)
    widest_first = sorted((check_coverage(c) for c in coverages), reverse=True)
    for k, coverage in enumerate(widest_first):
        for i, region in enumerate(distribution.hpd(coverage)):
            for j, (low, high) in enumerate(region):
                ax.barh(
                    -i, high - low, left=low, height=0.35 + 0.3 * k / len(widest_first),
                    color=BLUE, alpha=0.35 + 0.55 * k / len(widest_first), lw=0,
                    label=percent(coverage) if i == j == 0 else None,
                )  # fmt: skip
    ax.plot(distribution.mode(), -np.arange(n), "|", color="black", ms=12, label="mode")
    if y is not None:
        ax.plot(one_per_row(y, n), -np.arange(n), "v", color=ORANGE, mec="white", label="outcome")
    names = [f"row {i}" for i in range(n)] if labels is None else list(labels)
    ax.set(yticks=-np.arange(n), yticklabels=names, xlabel="y")
    ax.spines[["top", "right", "left"]].set_visible(False)
    add_legend(ax)
    return ax
