"""Mixtures of laws: what is known of y if something else that tells of it is not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import qmc

from mcdensity.distribution.base import Array
from mcdensity.distribution.discrete import DiscreteDistribution
from mcdensity.distribution.grid import GridDistribution, resolved
from mcdensity.distribution.mixed import MixedDistribution
from mcdensity.distribution.mixture import GaussianMixtureDistribution
from mcdensity.distribution.univariate import ConditionalDistribution

__all__ = ["PooledDistribution", "fixed_points", "of_draws", "pooled", "resampled", "within"]

# Levels of quantiles of the laws that a grid of their mixture starts from, and how many of them.
_LEVELS = (1e-6, 1e-3, 0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.98, 1 - 1e-3, 1 - 1e-6)
_KNOTS = 200
# The least weight of a law of which atoms take all.
_LEAST_SHARE = 1e-12
# Bandwidth of kernels on weighted draws, in units of n^(-1/5) standard deviations.
_SILVERMAN = 0.9
_LEAST_LEVEL = 1e-12
# Kernels of a row, at most.
_KERNELS = 256


class PooledDistribution(ConditionalDistribution):
    r"""Mixtures :math:`\sum_m w_{im} f_{im}(y)` of laws that another distribution holds.

    Parameters
    ----------
    laws : ConditionalDistribution
        Of n times m rows, with densities: m after each other belong to one row of this one.
    weights : ndarray of shape (n, m)
        They sum to one.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from mcdensity.distribution import PooledDistribution, ScipyDistribution
    >>> two = ScipyDistribution(stats.norm, loc=np.array([[-3.0], [3.0]]), scale=np.ones((2, 1)))
    >>> law = PooledDistribution(two, np.array([[0.25, 0.75]]))
    >>> law.mean(), law.cdf(0).round(3)
    (array([1.5]), array([0.251]))
    """

    def __init__(self, laws: ConditionalDistribution, weights: Array) -> None:
        self._laws, self._weights = laws, np.asarray(weights, dtype=np.float64)
        if self._weights.ndim != 2 or self._weights.size != len(laws):
            raise ValueError(
                f"weights must be of shape (n, m) with n times m = {len(laws)}, the number of "
                f"laws, got shape {self._weights.shape}."
            )

    def __len__(self) -> int:
        return len(self._weights)

    def _take(self, rows: NDArray[np.intp]) -> PooledDistribution:
        m = self._weights.shape[1]
        chosen = (rows[:, None] * m + np.arange(m)).ravel()
        return PooledDistribution(self._laws[chosen], self._weights[rows])

    def _joined(self, others: Sequence[Any]) -> PooledDistribution:
        laws = self._laws._joined([other._laws for other in others])
        return PooledDistribution(
            laws, np.concatenate([self._weights, *(other._weights for other in others)])
        )

    def _rescaled(self, loc: float, scale: float) -> PooledDistribution:
        return PooledDistribution(self._laws._rescaled(loc, scale), self._weights)

    def _each(self, y: Array) -> Array:
        """Points of rows, (n, p), for each of their laws, (n m, p)."""
        return np.repeat(y, self._weights.shape[1], axis=0)

    def _mean_over(self, value: Array) -> Array:
        """Weighted mean over the laws of a row; (n m, p) to (n, p)."""
        shape = (*self._weights.shape, value.shape[-1])
        return np.einsum("nm,nmp->np", self._weights, value.reshape(shape))

    def _logpdf(self, y: Array) -> Array:
        value = self._laws._logpdf(self._each(y)).reshape(*self._weights.shape, -1)
        with np.errstate(divide="ignore"):
            return logsumexp(value, b=self._weights[..., None], axis=1)

    def _cdf(self, y: Array) -> Array:
        return self._mean_over(self._laws._cdf(self._each(y)))

    def _sf(self, y: Array) -> Array:
        return self._mean_over(self._laws._sf(self._each(y)))

    def _ppf(self, q: Array) -> Array:
        # The grid goes on beyond its last points, and may leave the support.
        ends = self._laws.ppf_grid([0.0, 1.0]).reshape(*self._weights.shape, 2)
        low, high = ends[..., 0].min(axis=1), ends[..., 1].max(axis=1)
        return np.clip(self._grid._ppf(q), low[:, None], high[:, None])

    def mean(self) -> Array:
        """Expectation of each row."""
        return self._mean_over(self._laws.mean()[:, None])[:, 0]

    def std(self) -> Array:
        """Standard deviation of each row."""
        away = self._laws.mean() - self._each(self.mean()[:, None])[:, 0]
        return np.sqrt(self._mean_over((self._laws.std() ** 2 + away**2)[:, None])[:, 0])

    def as_grid(self) -> GridDistribution:
        """Return the same distributions on a grid."""
        return self._grid

    @cached_property
    def _grid(self) -> GridDistribution:
        """A grid that starts from quantiles of the laws."""
        n = len(self)
        if n == 0:
            return GridDistribution(np.empty((0, 2)), np.empty((0, 2)))
        each = np.sort(self._laws.ppf_grid(_LEVELS).reshape(n, -1), axis=1)
        chosen = np.linspace(0, each.shape[1] - 1, _KNOTS).astype(np.intp)
        quarters = each[:, chosen[[_KNOTS // 4, _KNOTS // 2, -(_KNOTS // 4)]]]
        return resolved(self, each[:, chosen], quarters, np.empty(0))


def pooled(laws: ConditionalDistribution, weights: Array) -> ConditionalDistribution:
    """Return the mixtures of laws of any kind; see `PooledDistribution`."""
    shape = weights.shape

    def mean(masses: Array) -> Array:
        return np.einsum("nm,nma->na", weights, masses.reshape(*shape, -1))

    if laws.is_discrete:
        return DiscreteDistribution(laws.atoms, mean(laws.masses))
    if isinstance(laws, MixedDistribution):
        of_rest = weights * np.maximum(1 - laws.masses.sum(axis=1), _LEAST_SHARE).reshape(shape)
        of_rest = of_rest / of_rest.sum(axis=1, keepdims=True)
        rest = PooledDistribution(laws.rest, of_rest)
        return MixedDistribution(laws.atoms, mean(laws.masses), rest)
    return PooledDistribution(laws, weights)


def of_draws(draws: Array, weights: Array, atoms: Array, discrete: bool) -> ConditionalDistribution:
    """Return laws of weighted draws: masses at the atoms, normal kernels at the others.

    Parameters
    ----------
    draws, weights : ndarray of shape (n, m)
        The weights of a row sum to one.
    atoms : ndarray of shape (a,)
        Values with a mass of their own.
    discrete : bool
        Whether there are no others.
    """
    at = draws[:, None, :] == atoms[:, None]
    masses = np.einsum("nm,nam->na", weights, at)
    if discrete:
        return DiscreteDistribution(atoms, masses)
    rest = np.where(at.any(axis=1), _LEAST_SHARE, weights)
    rest = rest / rest.sum(axis=1, keepdims=True)
    mean = (rest * draws).sum(axis=1, keepdims=True)
    spread = np.sqrt((rest * (draws - mean) ** 2).sum(axis=1, keepdims=True))
    effective = 1 / (rest**2).sum(axis=1, keepdims=True)
    width = np.maximum(_SILVERMAN * spread * effective**-0.2, 1e-9 * (1 + np.abs(mean)))
    # Kernels add to the spread; draws move towards the mean, so that it stays as it is.
    kept = np.sqrt(np.maximum(1 - (width / np.maximum(spread, width)) ** 2, 0))
    rest, draws = _fewer(rest, mean + kept * (draws - mean))
    kernels = GaussianMixtureDistribution(rest, draws, np.broadcast_to(width, draws.shape))
    return MixedDistribution(atoms, masses, kernels) if len(atoms) else kernels


def _fewer(weights: Array, draws: Array) -> tuple[Array, Array]:
    """Join draws that lie side by side, so that each row has at most `_KERNELS` of them."""
    if draws.shape[1] <= _KERNELS:
        return weights, draws
    order = np.argsort(draws, axis=1)
    weights, draws = (np.take_along_axis(part, order, axis=1) for part in (weights, draws))
    middle = weights.cumsum(axis=1) - weights / 2
    place = np.minimum((middle * _KERNELS).astype(np.intp), _KERNELS - 1)
    place += _KERNELS * np.arange(len(draws))[:, None]
    total, moment = np.zeros((2, len(draws) * _KERNELS))
    np.add.at(total, place, weights)
    np.add.at(moment, place, weights * draws)
    total, moment = total.reshape(-1, _KERNELS), moment.reshape(-1, _KERNELS)
    centre = np.divide(moment, total, out=np.repeat(draws[:, :1], _KERNELS, 1), where=total > 0)
    return total, centre


def resampled(draws: Array, log_weight: Array, n_samples: int, rng: np.random.Generator) -> Array:
    """Choose of each row's draws, (n, m, k), by their weights, (n, m); shape (n, n_samples, k)."""
    share = np.exp(log_weight - log_weight.max(axis=1, keepdims=True)).cumsum(axis=1)
    place = np.sort(rng.random((len(draws), n_samples)), axis=1) * share[:, -1:]
    chosen = [np.searchsorted(s, p) for s, p in zip(share, place, strict=True)]
    return np.stack([row[rng.permutation(c)] for row, c in zip(draws, chosen, strict=True)])


def fixed_points(count: int, dimension: int) -> Array:
    """Points of Sobol's sequence, always the same ones, (count, dimension)."""
    found = qmc.Sobol(dimension, scramble=True, seed=0).random(count)
    return within(found)


def within(uniform: Array) -> Array:
    """Keep uniform numbers away from 0 and 1, where quantiles may be infinite."""
    return np.clip(uniform, _LEAST_LEVEL, 1 - _LEAST_LEVEL)
