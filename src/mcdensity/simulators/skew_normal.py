"""SkewNormal."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from mcdensity.distribution import ConditionalDistribution
from mcdensity.simulators.base import ScipyDistribution, Simulator

__all__ = ["SkewNormal"]

Array = NDArray[np.float64]


class SkewNormal(Simulator):
    r"""x ~ N(0, 0.5²); y given x is skew-normal.

    Location 0.1 x, scale 0.05 + 0.1 x², shape -4 + 4 / (1 + exp(-x)).
    """

    def _sample_x(self, n: int, rng: np.random.Generator) -> Array:
        return 0.5 * rng.normal(size=(n, 1))

    def distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """Return the true distribution of y given each row of X."""
        x = self._check(X)
        shape = -4 + 4 / (1 + np.exp(-x))
        return ScipyDistribution(stats.skewnorm, 0.1 * x, 0.05 + 0.1 * x**2, a=shape)
