"""Distributions of single values: counts, grades."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity.distribution.base import Array
from mcdensity.distribution.grid import GridDistribution
from mcdensity.distribution.univariate import ConditionalDistribution

__all__ = ["DiscreteDistribution"]

# Sums of masses up to 1 - 1e-12 count as 1, and quantiles allow for as much: a probability such as
# 0.3 is hardly ever met to the last digit.
_SLACK = 1e-12


class DiscreteDistribution(ConditionalDistribution):
    """Masses at values that all rows share.

    `pdf` and `logpdf` are those with respect to the counting measure: masses at the values, 0
    elsewhere.

    Parameters
    ----------
    values : array-like of shape (K,)
        Ascending.
    masses : array-like of shape (n, K)
        Probabilities, not negative; each row is divided by its sum.

    Examples
    --------
    >>> from mcdensity.distribution import DiscreteDistribution
    >>> law = DiscreteDistribution([0, 1, 2], [[0.5, 0.3, 0.2]])
    >>> law.sf(0), law.ppf(0.5), law.mean()
    (array([0.5]), array([0.]), array([0.7]))
    """

    def __init__(self, values: ArrayLike, masses: ArrayLike) -> None:
        self._values = np.asarray(values, dtype=np.float64)
        masses = np.asarray(masses, dtype=np.float64)
        if self._values.ndim != 1 or not (np.diff(self._values) > 0).all():
            raise ValueError("values must be one-dimensional and strictly ascending.")
        if masses.ndim != 2 or masses.shape[1] != len(self._values):
            raise ValueError(
                f"masses must be of shape (n, {len(self._values)}), one column per value, got "
                f"shape {masses.shape}."
            )
        total = masses.sum(axis=1, keepdims=True)
        if not (masses >= 0).all() or not (total > 0).all() or not np.isfinite(total).all():
            raise ValueError("masses must not be negative, and each row needs a positive sum.")
        self._masses = masses / total
        self._below = np.cumsum(self._masses, axis=1)
        self._below[:, -1] = 1.0

    def __len__(self) -> int:
        return len(self._masses)

    def _take(self, rows: NDArray[np.intp]) -> DiscreteDistribution:
        return DiscreteDistribution(self._values, self._masses[rows])

    def _joined(self, others: Sequence[Any]) -> DiscreteDistribution:
        masses = np.concatenate([self._masses, *(other._masses for other in others)])
        return DiscreteDistribution(self._values, masses)

    def _rescaled(self, loc: float, scale: float) -> DiscreteDistribution:
        return DiscreteDistribution(loc + scale * self._values, self._masses)

    def as_grid(self) -> GridDistribution:
        """Refuse: single values have no density."""
        raise TypeError("A discrete distribution has masses and no density: use pmf.")

    @property
    def is_discrete(self) -> bool:
        """Whether y takes single values only: True."""
        return True

    @property
    def atoms(self) -> Array:
        """The values that y may take."""
        return self._values

    @property
    def masses(self) -> Array:
        """Probability of each value, shape (n, K)."""
        return self._masses

    def _at(self, table: Array, y: Array) -> Array:
        """Entries of a table with a first column for points below all values."""
        return np.take_along_axis(table, np.searchsorted(self._values, y, side="right"), axis=1)

    def _pmf(self, y: Array) -> Array:
        padded = np.concatenate([self._masses[:, :1], self._masses], axis=1)
        value = np.concatenate([[np.nan], self._values])
        same = value[np.searchsorted(self._values, y, side="right")] == y
        return np.where(same, self._at(padded, y), 0.0)

    def _logpdf(self, y: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self._pmf(y))

    def _cdf(self, y: Array) -> Array:
        return self._at(np.pad(self._below, ((0, 0), (1, 0))), y)

    def _sf(self, y: Array) -> Array:
        # Sums from above, so that small probabilities keep their digits.
        above = np.cumsum(self._masses[:, ::-1], axis=1)[:, ::-1]
        table = np.pad(above[:, 1:], ((0, 0), (0, 1)))
        return self._at(np.concatenate([np.ones((len(self), 1)), table], axis=1), y)

    def _ppf(self, q: Array) -> Array:
        # The least value whose cdf reaches q; at 0 the least that is possible at all.
        q = np.maximum(q, np.finfo(float).tiny)
        place = (self._below[:, None, :] < (q - _SLACK)[:, :, None]).sum(axis=2)
        first = (self._masses > 0).argmax(axis=1)[:, None]
        return self._values[np.clip(np.maximum(place, first), 0, len(self._values) - 1)]

    def mean(self) -> Array:
        """Expectation of each row."""
        return self._masses @ self._values

    def std(self) -> Array:
        """Return the standard deviation of each row."""
        return np.sqrt(self._central(2))

    def _central(self, order: int) -> Array:
        return (self._masses * (self._values - self.mean()[:, None]) ** order).sum(axis=1)

    def _standardised_moment(self, order: int) -> Array:
        spread = self.std()
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(spread > 0, self._central(order) / spread**order, 0.0)

    def entropy(self) -> Array:
        """Entropy of each row, in nats."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return -np.where(self._masses > 0, self._masses * np.log(self._masses), 0).sum(axis=1)

    def _mean_density(self) -> Array:
        return (self._masses**2).sum(axis=1)

    def mode(self) -> Array:
        """Return the most likely value of each row; of several the least."""
        return self._values[self._masses.argmax(axis=1)]

    def _hpd_level(self, y: Array) -> Array:
        own = self._pmf(y)
        as_likely = self._masses[:, None, :] >= own[:, :, None]
        return np.where(own > 0, (as_likely * self._masses[:, None, :]).sum(axis=2), 1.0)

    def _hpd(self, coverage: float) -> list[Array]:
        order = np.argsort(-self._masses, axis=1, kind="stable")
        sums = np.cumsum(np.take_along_axis(self._masses, order, axis=1), axis=1)
        count = (sums < coverage - _SLACK).sum(axis=1) + 1
        regions = []
        for row, k in zip(order, count, strict=True):
            chosen = np.zeros(len(self._values) + 2, dtype=bool)
            chosen[1:-1][row[:k]] = True
            # Values next to each other make one interval.
            first = np.flatnonzero(chosen[1:] & ~chosen[:-1])
            last = np.flatnonzero(chosen[:-1] & ~chosen[1:]) - 1
            regions.append(np.column_stack([self._values[first], self._values[last]]))
        return regions

    def _crps(self, y: Array) -> Array:
        """Sum over the gaps between the values and the outcome."""
        inside = np.clip(y, self._values[0], self._values[-1])
        step = np.diff(self._values)
        # Where the outcome splits a gap, it is the part above it that counts as reached.
        reached = np.clip((self._values[1:] - inside[:, None]) / step, 0, 1)
        below = self._below[:, :-1]
        total = (step * (reached * (below - 1) ** 2 + (1 - reached) * below**2)).sum(axis=1)
        return total + np.abs(y - inside)

    def _rps(self, y: Array) -> Array:
        return ((self._below - (y[:, None] <= self._values)) ** 2).sum(axis=1)
