"""The interface of a marginal density."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from mcdensity._validation import as_generator

__all__ = ["Marginal"]


class Marginal(BaseEstimator, ABC):
    """A density of one variable, learned from a sample.

    A subclass implements `fit`, `logpdf`, `cdf` and `ppf`, each for arrays of any shape. `logpdf`
    must be finite wherever targets can occur.
    """

    @abstractmethod
    def fit(self, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the density of y."""

    @abstractmethod
    def logpdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Log-density at y."""

    @abstractmethod
    def cdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """P(Y <= y)."""

    @abstractmethod
    def ppf(self, q: ArrayLike) -> NDArray[np.float64]:
        """Inverse of `cdf`."""

    def sample(self, n_samples: int = 1, random_state: Any = None) -> NDArray[np.float64]:
        """Draw values, shape (n_samples,)."""
        uniform = as_generator(random_state).random(n_samples)
        return self.ppf(np.maximum(uniform, np.finfo(float).tiny))
