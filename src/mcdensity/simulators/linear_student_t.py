"""LinearStudentT."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from mcdensity.distribution import ConditionalDistribution
from mcdensity.simulators.base import ScipyDistribution, Simulator

__all__ = ["LinearStudentT"]

Array = NDArray[np.float64]


class LinearStudentT(Simulator):
    r"""x ~ N(0, I) in 10 dimensions; y given x is a scaled Student t.

    Degrees of freedom 2 + 8 / (1 + exp(2 m)), location 0.005 m, scale 0.01 + 0.002 mean(abs(x)),
    with m the mean of x's components.
    """

    n_features = 10

    def _sample_x(self, n: int, rng: np.random.Generator) -> Array:
        return rng.normal(size=(n, self.n_features))

    def distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """Return the true distribution of y given each row of X."""
        X = self._check(X)
        m = X.mean(axis=1, keepdims=True)
        scale = 0.01 + 0.002 * np.abs(X).mean(axis=1, keepdims=True)
        return ScipyDistribution(stats.t, 0.005 * m, scale, df=2 + 8 / (1 + np.exp(2 * m)))
