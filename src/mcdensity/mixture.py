"""Gaussian mixtures: a conditional distribution in closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from mcdensity._validation import as_generator
from mcdensity.distribution import ConditionalDistribution, GridDistribution

__all__ = ["GaussianMixtureDistribution"]

Array = NDArray[np.float64]

_BISECTIONS = 60


class GaussianMixtureDistribution(ConditionalDistribution):
    r"""Each row a mixture of normals.

    .. math:: p(y) = \sum_k w_k \, \varphi\left(\frac{y - \mu_k}{\sigma_k}\right) / \sigma_k

    Density, distribution function, mean, variance and samples are exact; quantiles are found by
    bisection to the precision of the machine.

    Parameters
    ----------
    weights, means, scales : ndarray of shape (n, K)
        Weights are scaled to sum to one in each row.
    """

    def __init__(self, weights: Array, means: Array, scales: Array) -> None:
        weights, means, scales = np.broadcast_arrays(weights, means, scales)
        if not np.isfinite(means).all() or not (scales > 0).all():
            raise ValueError("means must be finite, and scales must be positive.")
        if not (weights >= 0).all() or not (weights.sum(axis=1) > 0).all():
            raise ValueError("weights must not be negative, nor all zero in a row.")
        self.weights = weights / weights.sum(axis=1, keepdims=True)
        self.means, self.scales = means, scales

    def __len__(self) -> int:
        return len(self.weights)

    def _take(self, rows: NDArray[np.intp]) -> GaussianMixtureDistribution:
        return GaussianMixtureDistribution(self.weights[rows], self.means[rows], self.scales[rows])

    def _rescaled(self, loc: float, scale: float) -> GaussianMixtureDistribution:
        return GaussianMixtureDistribution(
            self.weights, loc + scale * self.means, scale * self.scales
        )

    def _joined(self, others: Sequence[Any]) -> GaussianMixtureDistribution:
        parts = [self, *others]
        return GaussianMixtureDistribution(
            *(np.concatenate([getattr(p, name) for p in parts]) for name in
              ("weights", "means", "scales"))
        )  # fmt: skip

    def _log_sum(self, y: Array, log_term: Callable[[Array, Array], Array]) -> Array:
        """Log of the weighted sum over components of exp(log_term(z, scale))."""
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)

        def term(k: int) -> Array:
            column = slice(k, k + 1)
            scale = self.scales[:, column]
            return log_weights[:, column] + log_term((y - self.means[:, column]) / scale, scale)

        # One component after the other, twice: no array is larger than the result.
        components = range(self.weights.shape[1])
        top = np.full(y.shape, -np.inf)
        for k in components:
            np.maximum(top, term(k), out=top)
        if len(components) == 1:
            return top
        shift = np.where(np.isfinite(top), top, 0.0)
        total = np.zeros(y.shape)
        for k in components:
            total += np.exp(term(k) - shift)
        with np.errstate(divide="ignore"):
            return shift + np.log(total)

    def _logpdf(self, y: Array) -> Array:
        constant = 0.5 * np.log(2 * np.pi)
        return self._log_sum(y, lambda z, scale: -0.5 * z**2 - constant - np.log(scale))

    def _cdf(self, y: Array) -> Array:
        return np.minimum(np.exp(self._log_sum(y, lambda z, scale: log_ndtr(z))), 1)

    def _sf(self, y: Array) -> Array:
        return np.minimum(np.exp(self._log_sum(y, lambda z, scale: log_ndtr(-z))), 1)

    def _ppf(self, q: Array) -> Array:
        reach = 40 * self.scales
        low = np.broadcast_to((self.means - reach).min(axis=1, keepdims=True), q.shape)
        high = np.broadcast_to((self.means + reach).max(axis=1, keepdims=True), q.shape)
        for _ in range(_BISECTIONS):
            middle = low / 2 + high / 2
            # ndtr is cheaper than its logarithm, and quantiles need no more.
            below = self._fast_cdf(middle) < q
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        result = low / 2 + high / 2
        return np.where(q == 0, -np.inf, np.where(q == 1, np.inf, result))

    def _fast_cdf(self, y: Array) -> Array:
        out = np.zeros(y.shape)
        for k in range(self.weights.shape[1]):
            column = slice(k, k + 1)
            z = (y - self.means[:, column]) / self.scales[:, column]
            out += self.weights[:, column] * ndtr(z)
        return out

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw `n_samples` values from each row's distribution, shape (n, n_samples)."""
        rng = as_generator(random_state)
        cumulated = np.cumsum(self.weights, axis=1)
        uniform = rng.random((len(self), n_samples))
        chosen = (uniform[:, :, None] > cumulated[:, None, :-1]).sum(axis=2)
        mean, scale = (np.take_along_axis(a, chosen, axis=1) for a in (self.means, self.scales))
        return mean + scale * rng.normal(size=chosen.shape)

    def mean(self) -> Array:
        """Expectation of each row."""
        return (self.weights * self.means).sum(axis=1)

    def var(self) -> Array:
        """Variance of each row."""
        spread = self.means - self.mean()[:, None]
        return (self.weights * (self.scales**2 + spread**2)).sum(axis=1)

    def as_grid(self) -> GridDistribution:
        """Return the same distributions on a grid, for what has no closed form."""
        return on_grid(self)


def on_grid(distribution: ConditionalDistribution) -> GridDistribution:
    """Put any distribution on a grid that starts from quantiles of all its rows."""
    if len(distribution) == 0:
        return GridDistribution(np.empty((0, 2)), np.empty((0, 2)))
    levels = np.concatenate([[1e-9, 1e-6, 1e-4], np.linspace(0.002, 0.998, 125)])
    levels = np.concatenate([levels, 1 - levels[:3]])
    # Rows may lie far apart: each is brought to its own median and spread first.
    middle = distribution.ppf(0.5)[:, None]
    spread = np.ptp(distribution.ppf_grid([0.25, 0.75]), axis=1)[:, None]
    knots = np.unique(((distribution.ppf_grid(levels) - middle) / spread).mean(axis=0))
    reach = np.abs(knots).max() * np.array([1.5, 3.0, 10.0])
    knots = np.concatenate([-reach[::-1], knots, reach])

    def rowwise(rows: NDArray[np.intp], y: Array) -> Array:
        return distribution[rows]._logpdf(middle[rows] + spread[rows] * y)

    law = GridDistribution.from_log_density(rowwise, knots, len(distribution))._law
    return GridDistribution(middle + spread * law.knots, law.value)
