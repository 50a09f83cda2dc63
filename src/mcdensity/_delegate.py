"""Estimators that delegate to another one, after a preparation of X."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from mcdensity.distribution import ConditionalDistribution
from mcdensity.estimator import ConditionalEstimator
from mcdensity.target import TargetSpace

__all__ = ["DelegatingEstimator"]

Array = NDArray[np.float64]


class DelegatingEstimator(ConditionalEstimator):
    """Base of estimators whose distributions are those of an inner one.

    A subclass implements `fit`, which ends in `_adopt`, and `_prepare`. Units of y may differ from
    those of the inner estimator by a location and a scale.
    """

    estimator_: ConditionalEstimator

    def _prepare(self, X: Any) -> ArrayLike:
        """Turn what the user gives into what the inner estimator takes."""
        raise TypeError(f"{type(self).__name__} must implement _prepare.")

    def _adopt(
        self, estimator: ConditionalEstimator, location: float = 0.0, scale: float = 1.0
    ) -> None:
        """Take over a fitted estimator of (y - location) / scale."""
        self.estimator_ = estimator
        self.target_space_ = TargetSpace(
            location + scale * estimator.y_mean_, scale * estimator.y_scale_
        )
        # Probabilities of the tails do not depend on units.
        self.__dict__.pop("conformal_levels_", None)
        if hasattr(estimator, "conformal_levels_"):
            self.conformal_levels_ = estimator.conformal_levels_

    def _check_predict(self, X: Any) -> Array:
        check_is_fitted(self)
        return self.estimator_._check_predict(self._prepare(X))

    def _distribution(self, X: Array) -> ConditionalDistribution:
        return self.estimator_._distribution(X)

    def _log_density_grid(self, X: Array, grid: Array) -> Array:
        return self.estimator_._log_density_grid(X, grid)

    def _log_density_rows(self, X: Array, Y: Array) -> Array:
        return self.estimator_._log_density_rows(X, Y)

    def _row_size(self) -> int:
        return self.estimator_._row_size()

    def _threads(self) -> int | None:
        return self.estimator_._threads()

    @property
    def _normalized(self) -> bool:
        return self.estimator_._normalized

    def _allows_nan(self) -> bool:
        return True
