"""Distributions of scipy's families, one per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._validation import as_generator
from mcdensity.distribution.base import Array
from mcdensity.distribution.grid import GridDistribution, on_grid
from mcdensity.distribution.univariate import ConditionalDistribution

__all__ = ["ScipyDistribution"]


class ScipyDistribution(ConditionalDistribution):
    """Distributions of a family of scipy's, with parameters of shape (n, 1).

    Parameters
    ----------
    family : scipy.stats.rv_continuous
    loc, scale : ndarray of shape (n, 1)
    **shape : ndarray of shape (n, 1)
        The family's other parameters.
    """

    def __init__(self, family: Any, loc: Array, scale: Array, **shape: Array) -> None:
        self.family = family
        self.parameters = {"loc": loc, "scale": np.broadcast_to(scale, loc.shape), **shape}
        self._law = family(**self.parameters)

    def __len__(self) -> int:
        return len(self.parameters["loc"])

    def _changed(self, **change: Array) -> ScipyDistribution:
        return ScipyDistribution(self.family, **(self.parameters | change))

    def _take(self, rows: NDArray[np.intp]) -> ScipyDistribution:
        return self._changed(**{name: value[rows] for name, value in self.parameters.items()})

    def _rescaled(self, loc: float, scale: float) -> ScipyDistribution:
        own = self.parameters
        return self._changed(loc=loc + scale * own["loc"], scale=scale * own["scale"])

    def _joined(self, others: Sequence[Any]) -> ScipyDistribution:
        parts = [self, *others]
        return self._changed(
            **{k: np.concatenate([p.parameters[k] for p in parts]) for k in self.parameters}
        )

    def _logpdf(self, y: Array) -> Array:
        return self._law.logpdf(y)

    def _cdf(self, y: Array) -> Array:
        return self._law.cdf(y)

    def _sf(self, y: Array) -> Array:
        return self._law.sf(y)

    def _ppf(self, q: Array) -> Array:
        return self._law.ppf(q)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw `n_samples` values from each row's distribution, shape (n, n_samples)."""
        rng = as_generator(random_state)
        return self._law.rvs(size=(len(self), n_samples), random_state=rng)

    def mean(self) -> Array:
        """Expectation of each row."""
        return self._law.mean()[:, 0]

    def var(self) -> Array:
        """Variance of each row."""
        with np.errstate(over="ignore"):
            return self._law.var()[:, 0]

    def std(self) -> Array:
        """Standard deviation of each row."""
        # scipy squares the scale, which overflows early.
        shape = {k: v for k, v in self.parameters.items() if k not in ("loc", "scale")}
        own = np.broadcast_to(self.family(**shape).std(), (len(self), 1))
        return (own * self.parameters["scale"])[:, 0]

    def entropy(self) -> Array:
        """Differential entropy of each row, in nats."""
        return np.broadcast_to(self._law.entropy(), (len(self), 1))[:, 0]

    def as_grid(self) -> GridDistribution:
        """Return the same distributions on a grid."""
        return on_grid(self)
