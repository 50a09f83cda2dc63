"""EconDensity."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity.distribution import ConditionalDistribution, GaussianMixtureDistribution
from mcdensity.simulators.base import Simulator

__all__ = ["EconDensity"]

Array = NDArray[np.float64]


class EconDensity(Simulator):
    r"""x ~ abs(N(0, 1)); y given x ~ N(x², (1 + x)²)."""

    def _sample_x(self, n: int, rng: np.random.Generator) -> Array:
        return np.abs(rng.normal(size=(n, 1)))

    def distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """Return the true distribution of y given each row of X."""
        x = self._check(X)
        if (x <= -1).any():
            raise ValueError("X must be larger than -1 for EconDensity: the scale is 1 + x.")
        return GaussianMixtureDistribution(np.ones_like(x), x**2, 1 + x)
