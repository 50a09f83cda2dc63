"""How good a conditional density is, measured against outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from mcdensity._validation import as_generator, check_weights
from mcdensity.distribution import (
    ConditionalDistribution,
    DiscreteDistribution,
    JointDistribution,
    check_coverage,
)
from mcdensity.metrics._inputs import Array, Density, average, check_floor, prepare

__all__ = [
    "cde_loss",
    "coverage",
    "crps",
    "hpd_coverage",
    "interval_score",
    "log_likelihood",
    "pinball_loss",
    "pit",
    "pit_chi2",
    "pit_ks",
    "rps",
]


def log_likelihood(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    floor: float | None = None,
    grid: ArrayLike | None = None,
) -> float:
    """Mean log-density of the outcomes. Higher is better.

    Parameters
    ----------
    distribution : ConditionalDistribution, or densities of shape (n, G) with `grid`
        Or a JointDistribution of k targets.
    y : array-like of shape (n,) or (n, k)
    sample_weight : array-like of shape (n,), optional
    floor : float, optional
        Densities are clipped from below at this; the paper's tables use 1e-6.
    grid : array-like of shape (G,), optional
    """
    d, y = prepare(distribution, y, grid, joint=True)
    value = d.logpdf(y)
    if floor is not None:
        value = np.maximum(value, np.log(check_floor(floor)))
    return average(value, sample_weight)


def cde_loss(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    grid: ArrayLike | None = None,
) -> float:
    r"""Loss of a conditional density estimate g. Lower is better; it can be negative.

    .. math:: \frac1n \sum_i \int g(y \mid x_i)^2 \, dy - \frac2n \sum_i g(y_i \mid x_i)

    Examples
    --------
    >>> from mcdensity.distribution import GaussianMixtureDistribution
    >>> from mcdensity.metrics import cde_loss
    >>> normal = GaussianMixtureDistribution([[1.0]], [[0.0]], [[1.0]])
    >>> round(cde_loss(normal, [0.0]), 2)
    -0.52
    """
    d, y = prepare(distribution, y, grid)
    return average(d._mean_density() - 2 * d.pdf(y), sample_weight)


def crps(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    grid: ArrayLike | None = None,
) -> float:
    r"""Continuous ranked probability score, in units of y. Lower is better.

    .. math:: \int (F(t) - 1\{t \ge y\})^2 \, dt

    For laws of single values it is the exact sum; on integers that is `rps`.
    """
    d, y = prepare(distribution, y, grid)
    return average(crps_by_row(d, y), sample_weight)


def crps_by_row(d: ConditionalDistribution, y: Array) -> Array:
    """Return the continuous ranked probability score of each row."""
    if isinstance(d, DiscreteDistribution):
        return d._crps(y)
    # Quantiles as edges, denser in the tails, so that no panel spans scales that differ much: with
    # 16 nodes each, the score of a normal distribution is exact to 1e-6 (see the tests).
    tail = np.array([1e-9, 1e-7, 1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2])
    edges = d.ppf_grid(np.concatenate([tail, [0.5], 1 - tail[::-1]]))
    # Between the edges, and on both sides of the outcome and of atoms, the integrand is smooth.
    atoms = np.broadcast_to(d.atoms, (len(y), len(d.atoms)))
    edges = np.sort(np.concatenate([edges, y[:, None], atoms], axis=1), axis=1)
    node, weight = np.polynomial.legendre.leggauss(16)
    total = np.zeros(len(y))
    for left, right in zip(edges.T[:-1], edges.T[1:], strict=True):
        half = (right - left)[:, None] / 2
        t = (left + right)[:, None] / 2 + half * node
        step = (left >= y)[:, None]
        total += (half * weight * (d.cdf(t) - step) ** 2).sum(axis=1)
    return total


def rps(
    distribution: DiscreteDistribution, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    r"""Ranked probability score of laws of single values. Lower is better.

    .. math:: \sum_k (F(v_k) - 1\{v_k \ge y\})^2

    The sum is over the values in their order, whatever lies between them; on integers it equals
    `crps`.

    Parameters
    ----------
    distribution : DiscreteDistribution
    y : array-like of shape (n,)
    sample_weight : array-like of shape (n,), optional
    """
    if not isinstance(distribution, DiscreteDistribution):
        raise TypeError(
            "rps is for laws of single values (counts, grades), as MCD(target='discrete') "
            f"predicts, got {type(distribution).__name__}. Use crps."
        )
    outcomes = prepare(distribution, y, None)[1]
    return average(distribution._rps(outcomes), sample_weight)


def pinball_loss(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    quantiles: ArrayLike = (0.05, 0.25, 0.5, 0.75, 0.95),
    grid: ArrayLike | None = None,
) -> float:
    """Mean pinball loss of some quantiles. Lower is better."""
    d, y = prepare(distribution, y, grid)
    q = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    if not ((q > 0) & (q < 1)).all():
        raise ValueError(f"quantiles must lie strictly between 0 and 1, got {quantiles!r}.")
    gap = y[:, None] - d.ppf_grid(q)
    return average(np.maximum(q * gap, (q - 1) * gap).mean(axis=1), sample_weight)


def interval_score(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    level: float = 0.9,
    grid: ArrayLike | None = None,
) -> float:
    """Winkler's score of central intervals: their width, and a penalty for misses. Lower is better.

    Parameters
    ----------
    distribution : ConditionalDistribution, or densities of shape (n, G) with `grid`
    y : array-like of shape (n,)
    sample_weight : array-like of shape (n,), optional
    level : float, default 0.9
        The nominal coverage of the intervals.
    grid : array-like of shape (G,), optional

    Examples
    --------
    >>> from mcdensity.distribution import GaussianMixtureDistribution
    >>> from mcdensity.metrics import interval_score
    >>> normal = GaussianMixtureDistribution([[1.0]], [[0.0]], [[1.0]])
    >>> round(interval_score(normal, [0.0], level=0.9), 2)  # the width: 2 * 1.645
    3.29
    """
    d, y = prepare(distribution, y, grid)
    low, high = d.interval(level).T
    miss = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    return average(high - low + 2 / (1 - level) * miss, sample_weight)


def coverage(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    level: float = 0.9,
    grid: ArrayLike | None = None,
) -> float:
    """Share of outcomes inside the central interval of the given level. Nearer to it is better."""
    d, y = prepare(distribution, y, grid)
    low, high = d.interval(level).T
    return average(((y >= low) & (y <= high)).astype(float), sample_weight)


def hpd_coverage(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    level: float = 0.9,
    grid: ArrayLike | None = None,
) -> float:
    """Share of outcomes inside the highest-density region of that level. Nearer to it is better."""
    check_coverage(level)
    d, y = prepare(distribution, y, grid, joint=True)
    # A region holds an atom as soon as those before it are not enough.
    mass = 0.0 if isinstance(d, JointDistribution) else d.pmf(y)
    return average((d.hpd_level(y) - mass <= level).astype(float), sample_weight)


def pit(
    distribution: Density,
    y: ArrayLike,
    *,
    grid: ArrayLike | None = None,
    random_state: Any = 0,
) -> Array:
    """Probability integral transform of each outcome, F(y[i] | x[i]): uniform if F is right.

    Where the law has an atom, the value is drawn evenly from the jump of F there: only this
    randomised transform is uniform.

    Parameters
    ----------
    distribution : ConditionalDistribution, or densities of shape (n, G) with `grid`
    y : array-like of shape (n,)
    grid : array-like of shape (G,), optional
    random_state : int, Generator, RandomState or None, default 0
        For laws with atoms.
    """
    d, y = prepare(distribution, y, grid)
    value = d.cdf(y)
    if len(d.atoms):
        value = value - as_generator(random_state).random(len(y)) * d.pmf(y)
    return value


def pit_ks(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    grid: ArrayLike | None = None,
) -> float:
    """Kolmogorov-Smirnov distance of the PIT from uniform. Lower is better.

    Without weights, ``scipy.stats.kstest(pit(...), "uniform")`` gives its p-value.

    Examples
    --------
    >>> from mcdensity.distribution import GaussianMixtureDistribution
    >>> from mcdensity.metrics import pit_ks
    >>> normal = GaussianMixtureDistribution([[1.0]] * 4, [[0.0]], [[1.0]])
    >>> round(pit_ks(normal, [-1.15, -0.32, 0.32, 1.15]), 2)  # levels 1/8, 3/8, 5/8, 7/8
    0.13
    """
    value = pit(distribution, y, grid=grid)
    kept, weight = check_weights(sample_weight, len(value))
    value = value if kept is None else value[kept]
    order = np.argsort(value)
    weight = np.ones(len(value)) if weight is None else weight
    above = np.cumsum(weight[order]) / weight.sum()
    below = above - weight[order] / weight.sum()
    return float(np.maximum(above - value[order], value[order] - below).max())


def pit_chi2(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    bins: int = 10,
    grid: ArrayLike | None = None,
) -> float:
    """p-value of a chi-square test that the PIT is uniform. Higher is better; small is evidence.

    With weights the counts are those of the effective number of rows.
    """
    if bins < 2:
        raise ValueError(f"bins must be at least 2, got {bins!r}.")
    value = pit(distribution, y, grid=grid)
    kept, weight = check_weights(sample_weight, len(value))
    value = value if kept is None else value[kept]
    weight = np.ones(len(value)) if weight is None else weight
    effective = weight.sum() ** 2 / (weight**2).sum()
    share = np.histogram(value, bins=bins, range=(0, 1), weights=weight)[0] / weight.sum()
    return float(stats.chi2.sf(effective * bins * ((share - 1 / bins) ** 2).sum(), bins - 1))
