"""LinearGauss."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity.distribution import ConditionalDistribution, GaussianMixtureDistribution
from mcdensity.simulators.base import Simulator

__all__ = ["LinearGauss"]

Array = NDArray[np.float64]


class LinearGauss(Simulator):
    r"""x ~ U(-1, 1); y given x ~ N(0.005 m, (0.01 + 0.002 m)²), m the mean of x's components."""

    def _sample_x(self, n: int, rng: np.random.Generator) -> Array:
        return rng.uniform(-1, 1, size=(n, 1))

    def distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """Return the true distribution of y given each row of X."""
        m = self._check(X).mean(axis=1, keepdims=True)
        if (m <= -5).any():
            raise ValueError(
                "X must be larger than -5 for LinearGauss: the scale is 0.01 + 0.002 x."
            )
        return GaussianMixtureDistribution(np.ones_like(m), 0.005 * m, 0.01 + 0.002 * m)
