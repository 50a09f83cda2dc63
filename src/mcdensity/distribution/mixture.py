"""Gaussian mixtures: a conditional distribution in closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, ndtr, ndtri

from mcdensity._validation import as_generator
from mcdensity.distribution.base import Array
from mcdensity.distribution.grid import GridDistribution, on_grid
from mcdensity.distribution.loglinear import is_shared, search
from mcdensity.distribution.univariate import ConditionalDistribution

__all__ = ["GaussianMixtureDistribution"]

# Mixtures of 20 to 30 normals, smooth or with scales of 1e-10 of their distances, took up to 60.
_ITERATIONS = 150
# Means and scales from 2^-250 to 2^250 are used as they are: their fourth powers do not overflow.
_LARGEST = 2.0**250
# Below this a density is computed in logarithms: some of its terms may have underflowed.
_TINY = 1e-290
# Numbers processed at once: component by component, in the cache; and as a matrix. Of 2^12 to 2^18
# and of 2^17 to 2^23, with 1000 rows of 20 components and 500 rows that share 1000 components, all
# took 129 to 147 ms and 107 to 123 ms; the larger ones need more memory.
_CACHE = 1 << 14
_MATRIX = 1 << 21
# Up to so many numbers form one array of all components: the quantiles of one row with 520
# of them, at 131 levels, take 0.05 s instead of 2.4 s.
_FEW = 1 << 18


class GaussianMixtureDistribution(ConditionalDistribution):
    r"""Each row a mixture of normals.

    .. math:: p(y) = \sum_k w_k \, \varphi\left(\frac{y - \mu_k}{\sigma_k}\right) / \sigma_k

    Density, distribution function, mean, variance and samples are exact; quantiles are found to a
    relative precision of 1e-12. Where all rows share their means and scales, and differ in the
    weights alone, densities on a grid are one matrix product.

    Parameters
    ----------
    weights, means, scales : ndarray of shape (n, K)
        Or of shapes that broadcast to it: means and scales that the rows share are best given with
        shape (1, K). Weights are scaled to sum to one in each row.

    Examples
    --------
    >>> from mcdensity.distribution import GaussianMixtureDistribution
    >>> law = GaussianMixtureDistribution([[0.5, 0.5]], [[-2, 2]], [[1, 1]])
    >>> law.mean(), law.std().round(2)
    (array([0.]), array([2.24]))
    """

    def __init__(self, weights: Array, means: Array, scales: Array) -> None:
        if not np.isfinite(means).all() or not (np.asarray(scales) > 0).all():
            raise ValueError("means must be finite, and scales must be positive.")
        weights, means, scales = np.broadcast_arrays(weights, means, scales)
        if not (weights >= 0).all() or not (weights.sum(axis=1) > 0).all():
            raise ValueError("weights must not be negative, nor all zero in a row.")
        self.weights = weights / weights.sum(axis=1, keepdims=True)
        self.means, self.scales = means, scales
        # Whether all rows have the same means and scales.
        self._common = is_shared(means) and is_shared(scales)

    def __len__(self) -> int:
        return len(self.weights)

    def _like(self, weights: Array, means: Array, scales: Array) -> GaussianMixtureDistribution:
        """Build rows that are computed in the same way, even if only one is left."""
        new = GaussianMixtureDistribution(weights, means, scales)
        new._common = self._common
        return new

    def _take(self, rows: NDArray[np.intp]) -> GaussianMixtureDistribution:
        if self._common:
            return self._like(self.weights[rows], self.means[:1], self.scales[:1])
        return self._like(self.weights[rows], self.means[rows], self.scales[rows])

    def _rescaled(self, loc: float, scale: float) -> GaussianMixtureDistribution:
        rows = slice(1) if self._common else slice(None)
        return self._like(self.weights, loc + scale * self.means[rows], scale * self.scales[rows])

    def _joined(self, others: Sequence[Any]) -> GaussianMixtureDistribution:
        parts = [self, *others]
        same = all(
            np.array_equal(part.means[:1], self.means[:1])
            and np.array_equal(part.scales[:1], self.scales[:1])
            for part in parts
            if part._common or len(part) == 1
        )
        weights = [part.weights for part in parts]
        if self._common and same and all(part._common or len(part) == 1 for part in parts):
            return GaussianMixtureDistribution(
                np.concatenate(weights), self.means[:1], self.scales[:1]
            )
        size = max(w.shape[1] for w in weights)
        return GaussianMixtureDistribution(
            *(
                np.concatenate([_padded(getattr(part, name), size, fill) for part in parts])
                for name, fill in (("weights", 0.0), ("means", 0.0), ("scales", 1.0))
            )
        )

    def _sum(
        self, y: Array, function: Callable[[Array], object], coefficient: Array | None = None
    ) -> Array:
        """Sum over components of coefficient * function(z); `function` works in place."""
        weights = self.weights if coefficient is None else self.weights * coefficient
        out = np.empty(y.shape)
        if out.size == 0:
            return out
        with np.errstate(over="ignore"):  # an infinite distance is as good as a large one
            return self._summed(y, function, weights, out)

    def _summed(
        self, y: Array, function: Callable[[Array], object], weights: Array, out: Array
    ) -> Array:
        if self._common and is_shared(y):
            # All rows have the same kernels at the same points: the rest is a product.
            step = max(1, _MATRIX // weights.shape[1])
            for j in range(0, y.shape[1], step):
                part = slice(j, j + step)
                z = (y[0, part] - self.means[0][:, None]) / self.scales[0][:, None]
                function(z)
                out[:, part] = weights @ z
            return out
        if y.size * weights.shape[1] <= _FEW:
            # For a few rows one array is faster than a loop over the components.
            z = (y - self.means.T[..., None]) / self.scales.T[..., None]  # (components, rows, m)
            function(z)
            z *= weights.T[..., None]
            # In the order of the loop: a row is the same, however many there are.
            return np.add.reduce(z, axis=0, out=out)
        step = max(1, _CACHE // y.shape[1])
        for i in range(0, len(y), step):
            part = slice(i, i + step)
            total = np.zeros(y[part].shape)
            for k in range(weights.shape[1]):
                column = (part, slice(k, k + 1))
                if not weights[column].any():
                    continue
                z = y[part] - self.means[column]
                z /= self.scales[column]
                function(z)
                z *= weights[column]
                total += z
            out[part] = total
        return out

    def _log_sum(self, y: Array, log_term: Callable[[Array, Array], Array]) -> Array:
        """Log of the weighted sum over components of exp(log_term(z, scale)), at points (n, 1)."""
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)
        return logsumexp(
            log_weights + log_term((y - self.means) / self.scales, self.scales),
            axis=1,
            keepdims=True,
        )

    def _logpdf(self, y: Array) -> Array:
        density = self._density(y)
        with np.errstate(divide="ignore"):
            out = np.log(density)
        # Far out, where exponentials underflow, in logarithms.
        rows, columns = np.nonzero(density < _TINY)
        constant = 0.5 * np.log(2 * np.pi)
        step = max(1, _MATRIX // self.weights.shape[1])
        for i in range(0, len(rows), step):
            at = rows[i : i + step], columns[i : i + step]
            far = self._take(at[0])._log_sum(
                y[at][:, None], lambda z, scale: -0.5 * z**2 - constant - np.log(scale)
            )
            out[at] = far[:, 0]
        return out

    def pdf(self, y: ArrayLike) -> Array:
        """Density at y: a scalar, (n,) for one point per row, or (n, m) for m points per row."""
        return self._by_row(self._density, y, "y")

    def pdf_grid(self, grid: ArrayLike) -> Array:
        """Densities of all rows, shape (n, m), at m points that the rows share."""
        return self._density(self._shared(grid, "grid"))

    def _density(self, y: Array) -> Array:
        return self._sum(y, _exp_half_square, 1 / (np.sqrt(2 * np.pi) * self.scales))

    def _cdf(self, y: Array) -> Array:
        return np.minimum(self._sum(y, lambda z: ndtr(z, out=z)), 1)

    def _sf(self, y: Array) -> Array:
        return np.minimum(self._sum(y, lambda z: ndtr(np.negative(z, out=z), out=z)), 1)

    def _ppf(self, q: Array) -> Array:
        law, unit = self._in_units()
        with np.errstate(over="ignore"):
            return law._quantiles(q) * unit

    def _quantiles(self, q: Array) -> Array:
        """Newton's method, kept within a bracket, with bisection where a step would leave it."""
        reach = 40 * self.scales
        shape = q.shape
        low = np.broadcast_to((self.means - reach).min(axis=1, keepdims=True), shape).copy()
        high = np.broadcast_to((self.means + reach).max(axis=1, keepdims=True), shape).copy()
        center, spread = self.mean()[:, None], self.std()[:, None]
        y = np.clip(center + spread * ndtri(np.clip(q, 1e-12, 1 - 1e-12)), low, high)
        if self._common:
            # The rows share their kernels: a coarse grid brackets the quantiles of all at once.
            y, low, high = self._bracket(q, low[0, 0], high[0, 0])
        rows = np.arange(len(q))
        widest = np.maximum(np.abs(low), np.abs(high)).max(axis=1, keepdims=True)
        least = 1e-12 * self.scales.min(axis=1, keepdims=True) + 4 * np.spacing(widest)
        ends = (q == 0) | (q == 1)
        for iteration in range(_ITERATIONS):
            law = self if len(rows) == len(self) else self._take(rows)
            at, target = y[rows], q[rows]
            error = law._cdf(at) - target
            low[rows] = np.where(error < 0, at, low[rows])
            high[rows] = np.where(error < 0, high[rows], at)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                density = law._density(at)
                step = error / density
                new = at - step
            middle = low[rows] / 2 + high[rows] / 2
            # Between far modes the distribution is flat: bisection finds the smallest inverse.
            flat = density * spread[rows] < 1e-12
            near = (np.abs(step) <= least[rows]) & ~flat
            # Every third step bisects, so that Newton steps cannot stall on a flat stretch.
            inside = (new > low[rows]) & (new < high[rows]) & (iteration % 3 != 2) & ~flat
            y[rows] = np.where(near | inside, new, middle)
            done = near | (high[rows] - low[rows] <= least[rows]) | ends[rows]
            rows = rows[~done.all(axis=1)]
            if len(rows) == 0:
                break
        return np.where(q == 0, -np.inf, np.where(q == 1, np.inf, y))

    def _bracket(self, q: Array, first: float, last: float) -> tuple[Array, Array, Array]:
        """Start, and limits below and above, of quantiles, from the distribution on a grid."""
        inner = np.quantile(self.means[0], np.linspace(0, 1, 192))
        reach = self.scales[0].max() * np.array([0.5, 1, 2, 4, 8])
        outer = np.concatenate([[first, last], inner[0] - reach, inner[-1] + reach])
        grid = np.unique(np.concatenate([outer, inner, np.linspace(inner[0], inner[-1], 192)]))
        cdf = np.maximum.accumulate(self._cdf(self._shared(grid, "grid")), axis=1)
        index = np.clip(search(cdf, q) + 1, 1, len(grid) - 1)
        low, high = grid[index - 1], grid[index]
        below, above = (np.take_along_axis(cdf, index - i, axis=1) for i in (1, 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.nan_to_num((q - below) / (above - below), nan=0.5)
        return low + np.clip(part, 0, 1) * (high - low), low.copy(), high.copy()

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw `n_samples` values from each row's distribution, shape (n, n_samples)."""
        rng = as_generator(random_state)
        cumulated = np.cumsum(self.weights, axis=1)
        uniform = rng.random((len(self), n_samples)) * cumulated[:, -1:]
        chosen = np.minimum(search(cumulated, uniform) + 1, self.weights.shape[1] - 1)
        mean, scale = (np.take_along_axis(a, chosen, axis=1) for a in (self.means, self.scales))
        return mean + scale * rng.normal(size=chosen.shape)

    def mean(self) -> Array:
        """Expectation of each row."""
        return (self.weights * self.means).sum(axis=1)

    def std(self) -> Array:
        """Standard deviation of each row."""
        law, unit = self._in_units()
        with np.errstate(over="ignore"):
            return np.sqrt(law._central_moment(2)) * unit[:, 0]

    def _standardised_moment(self, order: int) -> Array:
        law, _ = self._in_units()
        return law._central_moment(order) / law._central_moment(2) ** (order / 2)

    def _central_moment(self, order: int) -> Array:
        shift = self.means - self.mean()[:, None]
        total = sum(
            comb(order, k) * factor * shift ** (order - k) * self.scales**k
            for k, factor in ((0, 1), (2, 1), (4, 3))  # the even moments of a normal variable
            if k <= order
        )
        return (self.weights * total).sum(axis=1)

    def _in_units(self) -> tuple[GaussianMixtureDistribution, Array]:
        """Return the rows in units, shape (n, 1), in which nothing overflows.

        Units are powers of two, which change no digit, and 1 for numbers of usual size.
        """
        rows = slice(1) if self._common else slice(None)
        means, scales = self.means[rows], self.scales[rows]
        largest = np.maximum(np.abs(means), scales).max(axis=1, keepdims=True, initial=0.0)
        unusual = (largest > _LARGEST) | (largest < 1 / _LARGEST)
        if not unusual.any():
            return self, np.ones((len(self), 1))
        unit = np.where(unusual, 2.0 ** np.floor(np.log2(largest)), 1.0)
        law = self._like(self.weights, means / unit, scales / unit)
        return law, np.broadcast_to(unit, (len(self), 1))

    def as_grid(self) -> GridDistribution:
        """Return the same distributions on a grid, for what has no closed form."""
        return self._on_grid

    @cached_property
    def _on_grid(self) -> GridDistribution:
        return on_grid(self)


def _exp_half_square(z: Array) -> None:
    """Replace z by exp(-z² / 2)."""
    np.multiply(z, z, out=z)
    z *= -0.5
    np.exp(z, out=z)


def _padded(array: Array, size: int, fill: float) -> Array:
    return np.pad(array, ((0, 0), (0, size - array.shape[1])), constant_values=fill)
