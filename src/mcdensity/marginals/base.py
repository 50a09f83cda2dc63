"""The interface of a marginal density."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone

from mcdensity._folds import assign_folds
from mcdensity._validation import as_generator

__all__ = ["Marginal", "fit_held_out"]

# Parts in which targets are held out, where there are this many of them. With twenty parts a
# marginal without one part is hardly worse than with it. With very many targets one hardly matters.
_PARTS = 20
_LEAST_HELD_OUT, _MOST_HELD_OUT = 10, 5000


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


def fit_held_out(
    marginal: Any, y: NDArray[np.float64], sample_weight: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Fit a marginal; return the log-density of each target under one that has not seen it.

    A marginal that learns from held-out targets anyway, such as `AdaptiveDensity`, has a method
    `fit_held_out` of its own; any other is fitted again without each part of the targets.
    """
    if hasattr(marginal, "fit_held_out"):
        return marginal.fit_held_out(y, sample_weight=sample_weight)
    marginal.fit(y, sample_weight=sample_weight)
    out = np.array(marginal.logpdf(y), dtype=np.float64)
    if not _LEAST_HELD_OUT <= len(y) < _MOST_HELD_OUT:
        return out
    part = assign_folds(len(y), _PARTS, 0)[0]
    for k in range(_PARTS):
        seen = part != k
        if np.ptp(y[seen]) > 0:
            share = None if sample_weight is None else sample_weight[seen]
            other = clone(marginal, safe=False).fit(y[seen], sample_weight=share)
            out[~seen] = other.logpdf(y[~seen])
    return out
