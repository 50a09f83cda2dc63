"""How far a conditional density is from a known truth."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mcdensity.distribution import ConditionalDistribution
from mcdensity.metrics._inputs import Density, average, both_on_points, check_floor, check_values

__all__ = ["hellinger", "jensen_shannon", "kl", "kl_grid", "total_variation"]


def kl(
    truth: Density,
    estimate: Density,
    grid: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    floor: float | None = None,
) -> float:
    r"""Kullback-Leibler divergence, averaged over the rows. Lower is better; 0 is a perfect match.

    .. math:: \frac1n \sum_i \int f(y \mid x_i) \log \frac{f(y \mid x_i)}{g(y \mid x_i)} \, dy

    Parameters
    ----------
    truth, estimate : ConditionalDistribution, or densities of shape (n, G) on the grid
    grid : array-like of shape (G,), optional
        Where to integrate, by the trapezoidal rule. Without it, each row has points of its own,
        between the quantiles of both distributions.
    sample_weight : array-like of shape (n,), optional
    floor : float, optional
        The estimate is clipped from below at this; by default it is not clipped.
    """
    log_f, log_g, weights = both_on_points(truth, estimate, grid)
    if floor is not None:
        log_g = np.maximum(log_g, np.log(check_floor(floor)))
    f = np.exp(log_f)
    with np.errstate(invalid="ignore"):
        integrand = np.where(f > 0, f * (log_f - log_g), 0.0)
    return average((weights * integrand).sum(axis=1), sample_weight)


def kl_grid(
    truth: ArrayLike,
    estimate: ArrayLike,
    *,
    floor: float = 1e-6,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Return the paper's KL: the mean of f ln(f / g) over rows and grid points. Lower is better.

    Both are matrices of densities on the grid of the protocol, clipped from below at `floor`. The
    value depends on the width of the grid, and an estimate that integrates to more than one can
    benefit from it: see `kl` for the divergence itself.
    """
    if isinstance(truth, ConditionalDistribution) or isinstance(estimate, ConditionalDistribution):
        raise TypeError("kl_grid takes matrices of densities: use distribution.pdf_grid(grid).")
    check_floor(floor)
    f, g = (np.asarray(a, dtype=np.float64) for a in (truth, estimate))
    if f.shape != g.shape or f.ndim != 2:
        raise ValueError(
            f"kl_grid needs two matrices of the same shape (n, G), got {f.shape} and {g.shape}."
        )
    for name, value in (("truth", f), ("estimate", g)):
        check_values(name, value)
    f, g = np.maximum(f, floor), np.maximum(g, floor)
    return average((f * np.log(f / g)).mean(axis=1), sample_weight)


def jensen_shannon(
    truth: Density,
    estimate: Density,
    grid: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Jensen-Shannon divergence in nats, averaged over the rows: 0 to log 2. Lower is better.

    Examples
    --------
    >>> from mcdensity.distribution import GaussianMixtureDistribution
    >>> from mcdensity.metrics import jensen_shannon
    >>> near, far = (GaussianMixtureDistribution([[1.0]], [[m]], [[1.0]]) for m in (0, 99))
    >>> round(jensen_shannon(near, far), 3)  # log 2
    0.693
    """
    log_f, log_g, weights = both_on_points(truth, estimate, grid)
    log_m = np.logaddexp(log_f, log_g) - np.log(2)
    f, g = np.exp(log_f), np.exp(log_g)
    with np.errstate(invalid="ignore"):
        integrand = np.where(f > 0, f * (log_f - log_m), 0.0)
        integrand = integrand + np.where(g > 0, g * (log_g - log_m), 0.0)
    return average((weights * integrand).sum(axis=1) / 2, sample_weight)


def hellinger(
    truth: Density,
    estimate: Density,
    grid: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Hellinger distance, averaged over the rows: 0 to 1. Lower is better.

    Examples
    --------
    >>> from mcdensity.distribution import GaussianMixtureDistribution
    >>> from mcdensity.metrics import hellinger
    >>> near, far = (GaussianMixtureDistribution([[1.0]], [[m]], [[1.0]]) for m in (0, 9))
    >>> round(hellinger(near, near), 3), round(hellinger(near, far), 3)
    (0.0, 1.0)
    """
    log_f, log_g, weights = both_on_points(truth, estimate, grid)
    gap = (np.exp(log_f / 2) - np.exp(log_g / 2)) ** 2
    return average(np.sqrt((weights * gap).sum(axis=1) / 2), sample_weight)


def total_variation(
    truth: Density,
    estimate: Density,
    grid: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Total variation distance, averaged over the rows: 0 to 1. Lower is better.

    Examples
    --------
    >>> from mcdensity.distribution import GaussianMixtureDistribution
    >>> from mcdensity.metrics import total_variation
    >>> a, b = (GaussianMixtureDistribution([[1.0]], [[m]], [[1.0]]) for m in (0, 1))
    >>> round(total_variation(a, b), 3)  # 2 Phi(1/2) - 1
    0.383
    """
    log_f, log_g, weights = both_on_points(truth, estimate, grid)
    gap = np.abs(np.exp(log_f) - np.exp(log_g))
    return average((weights * gap).sum(axis=1) / 2, sample_weight)
