"""ARMAJump."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.signal import lfilter

from mcdensity._validation import as_generator
from mcdensity.distribution import ConditionalDistribution, GaussianMixtureDistribution
from mcdensity.simulators.base import Simulator, check_size

__all__ = ["ARMAJump"]

Array = NDArray[np.float64]


_C, _A = 0.1, 0.9
_JUMP = 0.05
_BURN_IN = 100


class ARMAJump(Simulator):
    r"""An autoregressive series with occasional jumps down; x is the previous value.

    With m = c (1 - a) + a x, c = 0.1, a = 0.9: y given x is N(m, 0.05²) with probability 0.95, and
    N(m - 3 c, 0.1²) with probability 0.05. `sample` draws one path, after 100 steps of burn-in.
    """

    def sample(self, n: int, random_state: Any = None) -> tuple[Array, Array]:
        """Draw a path of n steps: X holds the value before each step, y the value after it."""
        path = self._path(check_size(n) + 1, as_generator(random_state))
        return path[:-1, None], path[1:]

    def _sample_x(self, n: int, rng: np.random.Generator) -> Array:
        return self._path(n, rng)[:, None]

    def _path(self, n: int, rng: np.random.Generator) -> Array:
        size = n + _BURN_IN
        jump = rng.random(size) < _JUMP
        noise = rng.normal(size=size) * np.where(jump, 0.1, 0.05) - np.where(jump, 3 * _C, 0)
        # y_t - a y_(t-1) = c (1 - a) + noise, from y_0 = c.
        path, _ = lfilter([1.0], [1.0, -_A], _C * (1 - _A) + noise, zi=[_A * _C])
        return path[_BURN_IN:]

    def distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """Return the true distribution of y given each row of X."""
        m = _C * (1 - _A) + _A * self._check(X)
        return GaussianMixtureDistribution(
            np.array([[1 - _JUMP, _JUMP]]),
            np.concatenate([m, m - 3 * _C], axis=1),
            np.array([[0.05, 0.1]]),
        )
