"""BasicLinear."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity.distribution import ConditionalDistribution, GaussianMixtureDistribution
from mcdensity.simulators.base import Simulator

__all__ = ["BasicLinear"]

Array = NDArray[np.float64]


class BasicLinear(Simulator):
    r"""x ~ N(0, I); y given x ~ N(x'b, sigma²), with b uniform on (0, 1), drawn once.

    Parameters
    ----------
    n_features : int, default 10
    sigma : float, default 0.5
        The paper does not give it.
    """

    def __init__(self, n_features: int = 10, sigma: float = 0.5) -> None:
        if n_features < 1 or not sigma > 0:
            raise ValueError(
                f"n_features must be at least 1 and sigma positive, got {n_features}, {sigma}."
            )
        self.n_features, self.sigma = n_features, sigma
        self.slope = np.random.RandomState(0).uniform(size=n_features)

    def _sample_x(self, n: int, rng: np.random.Generator) -> Array:
        return rng.normal(size=(n, self.n_features))

    def distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """Return the true distribution of y given each row of X."""
        location = (self._check(X) @ self.slope)[:, None]
        return GaussianMixtureDistribution(
            np.ones_like(location), location, np.full_like(location, self.sigma)
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_features={self.n_features}, sigma={self.sigma:g})"
