"""Pictures of the joint law of several targets: contours of two, and all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import gaussian_kde

from mcdensity._validation import check_integer, column_number, require
from mcdensity.distribution import JointDistribution, check_coverage
from mcdensity.plotting._drawing import BLUE, GREY, ORANGE, Array, add_legend, new_axes, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_contours", "plot_pairs"]

# Points of a grid in each direction, draws that choose its ends and levels, and draws of those
# shown as points.
_POINTS, _DRAWS, _SHOWN = 80, 2000, 400
# Shades of regions, the widest first.
_SHADES = (0.25, 0.45, 0.65, 0.8)
MOST_PAIRS = 8


def plot_contours(
    distribution: JointDistribution,
    y: ArrayLike | None = None,
    *,
    row: int = 0,
    columns: Sequence[int | str] = (0, 1),
    coverages: Sequence[float] = (0.5, 0.9),
    background: ArrayLike | None = None,
    geographic: bool = False,
    random_state: Any = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw the joint law of two targets of a row: its highest-density regions, and the outcome.

    Targets with atoms, such as counts, have no such regions; draws are shown as points instead.

    Parameters
    ----------
    distribution : JointDistribution
    y : array-like of shape (k,), optional
        The row's outcome.
    row : int, default 0
    columns : pair of str or int, default (0, 1)
        The targets along the axes.
    coverages : sequence of float, default (0.5, 0.9)
        Of the regions.
    background : array-like of shape (m, 2), optional
        Points to draw behind it, such as all outcomes: the streets of a map.
    geographic : bool, default False
        Whether the targets are longitude and latitude, in degrees: a kilometre is then as long in
        both directions.
    random_state : int, Generator, RandomState or None, default 0
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    one, draws = _row(distribution, row, random_state)
    levels = sorted({check_coverage(c) for c in coverages}, reverse=True)
    first, second = (column_number(column, one.names) for column in columns)
    if first == second:
        raise ValueError(f"columns must be two different targets, got {tuple(columns)!r}.")
    ax = new_axes(ax)
    if background is not None:
        cloud = np.asarray(background, dtype=np.float64)
        if cloud.ndim != 2 or cloud.shape[1] != 2:
            raise ValueError(f"background must be of shape (m, 2), got shape {cloud.shape}.")
        ax.scatter(
            cloud[:, 0],
            cloud[:, 1],
            s=1.5,
            color=GREY,
            alpha=0.25,
            lw=0,
            rasterized=True,
            zorder=0.5,
        )
    _draw_pair(ax, one, draws, first, second, levels)
    if y is not None:
        outcome = _outcome(y, one)
        ax.plot(
            outcome[first], outcome[second], "o", color=ORANGE, ms=7, mec="white", label="outcome"
        )
    ax.set(xlabel=one.names[first], ylabel=one.names[second])
    if geographic:
        middle = float(np.median(draws[:, second]))
        if not -90 < middle < 90:
            raise ValueError(f"geographic=True: {middle:.5g} is no latitude of the second target.")
        ax.set_aspect(1 / np.cos(np.radians(middle)))
    add_legend(ax)
    return ax


def plot_pairs(
    distribution: JointDistribution,
    y: ArrayLike | None = None,
    *,
    row: int = 0,
    coverages: Sequence[float] = (0.5, 0.9),
    random_state: Any = 0,
    figure: Any = None,
) -> Any:
    """Draw a row's law of every target, and of every pair of them.

    Parameters
    ----------
    distribution : JointDistribution
        Of at most 8 targets.
    y : array-like of shape (k,), optional
        The row's outcome.
    row : int, default 0
    coverages : sequence of float, default (0.5, 0.9)
        Of the regions of pairs.
    random_state : int, Generator, RandomState or None, default 0
    figure : matplotlib Figure or SubFigure, optional

    Returns
    -------
    ndarray of Axes, shape (k, k)
        Those above the diagonal are hidden.
    """
    one, draws = _row(distribution, row, random_state)
    k = one.n_targets
    if k > MOST_PAIRS:
        raise ValueError(
            f"{k} targets make {k * k} pictures; at most {MOST_PAIRS} can be read. Draw two of "
            "them with plot_contours."
        )
    levels = sorted({check_coverage(c) for c in coverages}, reverse=True)
    outcome = None if y is None else _outcome(y, one)
    if figure is None:
        size = 2.2 * k + 0.8
        figure = require("matplotlib.pyplot", "plot").figure(
            figsize=(size, size), layout="constrained"
        )
    axes = figure.subplots(k, k, sharex="col", squeeze=False)
    for i in range(k):
        for j in range(k):
            ax = axes[i, j]
            if j > i:
                ax.set_visible(False)
                continue
            if i == j:
                _draw_marginal(ax, one, draws, i)
            else:
                _draw_pair(ax, one, draws, j, i, levels)
            if outcome is not None:
                if i == j:
                    ax.axvline(outcome[i], color=ORANGE, lw=1.5)
                else:
                    ax.plot(outcome[j], outcome[i], "o", color=ORANGE, ms=5, mec="white")
            if i == k - 1:
                ax.set_xlabel(one.names[j])
            if j == 0 and i > 0:
                ax.set_ylabel(one.names[i])
    return axes


def _row(distribution: Any, row: int, random_state: Any) -> tuple[JointDistribution, Array]:
    if not isinstance(distribution, JointDistribution):
        raise TypeError(
            "distribution must be a JointDistribution, of several targets; of one target use "
            f"plot_densities. Got {type(distribution).__name__}."
        )
    check_integer("row", row, 0)
    if row >= len(distribution):
        raise ValueError(f"row={row}, but the distribution has {len(distribution)} rows.")
    one = distribution[row : row + 1]
    return one, one.sample(_DRAWS, random_state)[0]


def _outcome(y: ArrayLike, one: JointDistribution) -> Array:
    outcome = np.asarray(y, dtype=np.float64)
    if outcome.shape != (one.n_targets,):
        raise ValueError(
            f"y must be the outcome of the row, {one.n_targets} numbers, got shape {outcome.shape}."
        )
    return outcome


def _ends(values: Array) -> tuple[float, float]:
    low, high = np.quantile(values, [0.005, 0.995])
    margin = 0.15 * (high - low) or 0.5
    return float(low - margin), float(high + margin)


def _has_atoms(one: JointDistribution, j: int) -> bool:
    return bool(len(one._law_of(one._free[j]).atoms))


def _draw_marginal(ax: Any, one: JointDistribution, draws: Array, j: int) -> None:
    values = draws[:, j]
    if _has_atoms(one, j):
        found, count = np.unique(values, return_counts=True)
        step = np.diff(found).min() if len(found) > 1 else 1.0
        ax.bar(found, count / len(values), 0.8 * step, color=BLUE, alpha=0.6)
    else:
        grid = np.linspace(*_ends(values), 200)
        density = one.marginal(j).pdf_grid(grid)[0]
        ax.plot(grid, density, color=BLUE, lw=1.5)
        ax.fill_between(grid, density, color=BLUE, alpha=0.2, lw=0)
    ax.set(yticks=[], ylim=(0, None))
    for side in ("left", "top", "right"):
        ax.spines[side].set_visible(False)


def _draw_pair(
    ax: Any, one: JointDistribution, draws: Array, first: int, second: int, levels: list[float]
) -> None:
    pair = draws[:, [first, second]]
    if _has_atoms(one, first) or _has_atoms(one, second):
        points, count = np.unique(pair[:_SHOWN], axis=0, return_counts=True)
        ax.scatter(
            points[:, 0], points[:, 1], s=6 * count, color=BLUE, alpha=0.4, lw=0, label="draws"
        )
        return
    x, z = (np.linspace(*_ends(values), _POINTS) for values in pair.T)
    points = np.stack(np.meshgrid(x, z), axis=-1).reshape(-1, 2)
    if one.n_targets == 2:
        back = [0, 1] if first == 0 else [1, 0]
        value = one.pdf(points[None][..., back])[0]
        own = one.pdf(pair[None][..., back])[0]
    else:  # the others are integrated out by draws
        kernels = gaussian_kde(pair.T)
        value, own = kernels(points.T), kernels(pair.T)
    heights = np.quantile(own, [1 - level for level in levels])
    value = value.reshape(_POINTS, _POINTS)
    for level, height, shade in zip(levels, heights, _SHADES, strict=False):
        if value.max() <= height:
            continue
        ax.contourf(x, z, value, [height, value.max()], colors=[BLUE], alpha=shade)
        ax.plot([], [], "s", color=BLUE, alpha=shade, label=f"{percent(level)} region")
