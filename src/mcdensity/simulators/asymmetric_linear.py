"""AsymmetricLinear."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from mcdensity.distribution import ConditionalDistribution
from mcdensity.simulators.base import ScipyDistribution
from mcdensity.simulators.basic_linear import BasicLinear

__all__ = ["AsymmetricLinear"]

Array = NDArray[np.float64]


class AsymmetricLinear(BasicLinear):
    r"""x ~ N(0, I); y = x'b + sigma abs(e), e ~ N(0, 1): half a normal, with a sharp edge at x'b.

    Parameters
    ----------
    n_features : int, default 10
    sigma : float, default 0.5
        The paper does not give it.
    """

    def distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """Return the true distribution of y given each row of X."""
        location = (self._check(X) @ self.slope)[:, None]
        return ScipyDistribution(stats.halfnorm, location, np.full_like(location, self.sigma))
