"""Pictures of the distributions of rows: densities, regions, fans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mcdensity.distribution import ConditionalDistribution, check_coverage
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
    densities = [d.pdf_grid(grid) for d in every]
    # Each row has its own scale: otherwise a narrow density would flatten all others.
    top = np.max([d.max(axis=1) for d in densities], axis=0)
    ax = new_axes(ax)
    for k, (name, density) in enumerate(zip(distributions, densities, strict=True)):
        color, style = LINES[k % len(LINES)]
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
    add_legend(ax)
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
