"""Two toy sets whose y given x has several modes: inverse sinusoid, ring."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from mcdensity._validation import as_generator
from mcdensity.distribution import ConditionalDistribution, GridDistribution
from mcdensity.simulators.base import Simulator, check_size

__all__ = ["InverseSinusoid", "Ring"]

Array = NDArray[np.float64]

_EDGE = 10.5


class InverseSinusoid(Simulator):
    """y ~ U(-10.5, 10.5), x = 7 sin(0.75 y) + 0.5 y + N(0, 1): up to five modes of y given x."""

    def sample(self, n: int, random_state: Any = None) -> tuple[Array, Array]:
        """Draw n rows."""
        rng = as_generator(random_state)
        y = rng.uniform(-_EDGE, _EDGE, size=check_size(n))
        return (_sinusoid(y) + rng.normal(size=n))[:, None], y

    def _sample_x(self, n: int, rng: np.random.Generator) -> Array:
        return self.sample(n, rng)[0]

    def distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """Return the true distribution of y given each row of X."""
        x = self._check(X)
        return GridDistribution.from_log_density(
            lambda rows, y: -0.5 * (x[rows] - _sinusoid(y)) ** 2,
            np.linspace(-_EDGE, _EDGE, 401),
            len(x),
            reference=stats.uniform(-_EDGE, 2 * _EDGE),
        )


def _sinusoid(y: Array) -> Array:
    return 7 * np.sin(0.75 * y) + 0.5 * y


class Ring(Simulator):
    """x = r cos(a), y = r sin(a) with r ~ N(4, 1) and a ~ U(-pi, pi): two modes of y given x."""

    def sample(self, n: int, random_state: Any = None) -> tuple[Array, Array]:
        """Draw n rows."""
        rng = as_generator(random_state)
        radius, angle = rng.normal(4, 1, size=check_size(n)), rng.uniform(-np.pi, np.pi, size=n)
        return (radius * np.cos(angle))[:, None], radius * np.sin(angle)

    def _sample_x(self, n: int, rng: np.random.Generator) -> Array:
        return self.sample(n, rng)[0]

    def distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """Return the true distribution of y given each row of X."""
        x = self._check(X)

        def log_density(rows: NDArray[np.intp], y: Array) -> Array:
            # The density of (x, y) at distance d from the origin, from r = d and from r = -d.
            d = np.maximum(np.hypot(x[rows], y), 1e-9)
            return np.logaddexp(-0.5 * (d - 4) ** 2, -0.5 * (d + 4) ** 2) - np.log(d)

        return GridDistribution.from_log_density(log_density, np.linspace(-14, 14, 401), len(x))
