"""`Simulator`: data whose conditional density is known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from mcdensity._validation import as_generator
from mcdensity.distribution import ConditionalDistribution, ScipyDistribution
from mcdensity.estimator import ConditionalEstimator
from mcdensity.target import TargetSpace

__all__ = ["Oracle", "ScipyDistribution", "Simulator"]

Array = NDArray[np.float64]

_MARGINAL_DRAWS = 100_000


class Simulator(ABC):
    """A model that can be sampled, and whose density of y given x is known.

    A subclass sets `n_features` and implements `_sample_x` and `distribution`.
    """

    n_features: int = 1

    @abstractmethod
    def _sample_x(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n rows of X."""

    @abstractmethod
    def distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """Return the true distribution of y given each row of X."""

    def sample(self, n: int, random_state: Any = None) -> tuple[Array, Array]:
        """Draw n rows: X of shape (n, p) and y of shape (n,)."""
        rng = as_generator(random_state)
        X = self._sample_x(check_size(n), rng)
        return X, self.sample_y(X, 1, rng)[:, 0]

    def sample_x(self, n: int, random_state: Any = None) -> Array:
        """Draw n rows of X alone."""
        return self._sample_x(check_size(n), as_generator(random_state))

    def sample_y(self, X: ArrayLike, m: int = 1, random_state: Any = None) -> Array:
        """Draw m targets for each row of X, shape (n, m)."""
        return self.distribution(X).sample(check_size(m), random_state)

    def pdf_grid(self, X: ArrayLike, grid: ArrayLike) -> Array:
        """Density of y given each row of X on a grid that the rows share, shape (n, G)."""
        return self.distribution(X).pdf_grid(grid)

    def pdf(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Density of y[i] given row i of X."""
        return self.distribution(X).pdf(y)

    def cdf(self, X: ArrayLike, y: ArrayLike) -> Array:
        """P(Y <= y[i]) given row i of X."""
        return self.distribution(X).cdf(y)

    def mean(self, X: ArrayLike) -> Array:
        """Expectation of y given each row of X."""
        return self.distribution(X).mean()

    def var(self, X: ArrayLike) -> Array:
        """Variance of y given each row of X."""
        return self.distribution(X).var()

    def marginal_grid(self, size: int = 10_000) -> Array:
        """Return the grid of the protocol, the same for every method.

        Evenly spaced from the 0.0005 to the 0.9995 quantile of 10^5 draws of y, widened by a
        twentieth on each side.
        """
        low, high = self._marginal_range
        margin = 0.05 * (high - low)
        return np.linspace(low - margin, high + margin, check_size(size))

    @cached_property
    def _marginal_range(self) -> tuple[float, float]:
        y = self._marginal_draws(np.random.default_rng(0))
        low, high = np.quantile(y, [0.0005, 0.9995])
        return float(low), float(high)

    def _marginal_draws(self, rng: np.random.Generator) -> Array:
        return self.sample(_MARGINAL_DRAWS, rng)[1]

    def oracle(self) -> Oracle:
        """Return the truth as an estimator: the best possible method."""
        return Oracle(self)

    def _check(self, X: ArrayLike) -> Array:
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(
                f"X must be of shape (n, {self.n_features}) for {type(self).__name__}, got shape "
                f"{X.shape}."
            )
        if not np.isfinite(X).all():
            raise ValueError("X contains NaN or infinity.")
        return X

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def check_size(n: int) -> int:
    """Check a number of rows, draws or points."""
    if int(n) != n or n < 1:
        raise ValueError(f"A size must be a positive integer, got {n!r}.")
    return int(n)


class Oracle(ConditionalEstimator):
    """The truth as an estimator: `fit` learns nothing, predictions are exact.

    Parameters
    ----------
    simulator : Simulator

    Examples
    --------
    >>> from mcdensity.simulators import get_simulator
    >>> simulator = get_simulator("LinearGauss")
    >>> X, y = simulator.sample(100, random_state=0)
    >>> simulator.oracle().fit(X, y).predict_interval(X[:2], 0.9).shape
    (2, 2)
    """

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Check the data, and learn nothing."""
        X, y = validate_data(self, X, y)
        self.x_mean_, self.x_scale_, self.target_space_ = 0.0, 1.0, TargetSpace(0.0, 1.0)
        self._knots = np.empty(256)  # only their number matters, for the size of blocks
        return self

    def _distribution(self, X: Array) -> ConditionalDistribution:
        return self.simulator.distribution(X)
