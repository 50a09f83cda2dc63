"""Estimators that delegate to another one, after a preparation of X."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from mcdensity._calibration import forget
from mcdensity._several import SeveralTargets
from mcdensity.distribution import ConditionalDistribution, JointDistribution
from mcdensity.estimator import ConditionalEstimator
from mcdensity.target import TargetSpace

__all__ = ["DelegatingEstimator"]

Array = NDArray[np.float64]


class DelegatingEstimator(SeveralTargets):
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
        if not self._several:
            self.target_space_ = TargetSpace(
                location + scale * estimator.y_mean_, scale * estimator.y_scale_
            )
        # Probabilities of the tails do not depend on units.
        forget(self)
        for name in ("conformal_levels_", "conformal_"):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))

    def __getattr__(self, name: str) -> Any:
        # What the inner estimator learned, such as its weights; called for missing names only.
        inner = self.__dict__.get("estimator_")
        if inner is None or name.startswith("_") or not name.endswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(inner, name)

    @property
    def _several(self) -> bool:
        return getattr(self.__dict__.get("estimator_"), "_several", False)

    def _joint_inputs(self, X: Any) -> Array:
        check_is_fitted(self)
        inner: Any = self.estimator_
        return inner._joint_inputs(self._prepare(X))

    def _joint_law(self, X: Array) -> JointDistribution:
        inner: Any = self.estimator_
        return inner._joint_law(X)

    def distill(self, X: Any = None, random_state: Any = None) -> Self:
        """Return this model with one small network inside, see `MCD.distill`.

        Parameters
        ----------
        X : array-like or DataFrame, optional
            Further rows of the same distribution; no targets are needed.
        random_state : int, Generator, RandomState or None

        Returns
        -------
        A model of this kind, with a further attribute, `distill_loss_`.
        """
        return self._distill(X, random_state)

    def _distill(self, X: Any, random_state: Any, thorough: bool = True) -> Self:
        check_is_fitted(self)
        inner: Any = self.estimator_
        if not hasattr(inner, "distill"):
            raise TypeError(f"{type(inner).__name__} cannot be distilled; only MCD can.")
        rows = None if X is None else self._prepare(X)
        small = copy.copy(self)
        small._replace_inner(inner._distill(rows, random_state, thorough))
        return small

    def recalibrate(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Correct the distributions by rows that were not used by `fit`, see `MCD.recalibrate`.

        Parameters
        ----------
        X : array-like or DataFrame
        y : array-like of shape (n,) or (n, k)
        groups : array-like of shape (n,), optional

        Returns
        -------
        self
        """
        check_is_fitted(self)
        if not self._several:
            location, scale = self._units()
            y = (self._check_points(y, "y") - location) / scale
        self.estimator_.recalibrate(self._prepare(X), y, groups)
        forget(self)
        return self

    def _replace_inner(self, estimator: ConditionalEstimator) -> None:
        """Take over another model of the same target."""
        space = self.__dict__.get("target_space_")
        self._adopt(estimator)
        if space is not None:
            self.target_space_ = space

    def _check_predict(self, X: Any) -> Array:
        check_is_fitted(self)
        return self.estimator_._check_predict(self._prepare(X))

    def _distribution(self, X: Array) -> ConditionalDistribution:
        return self.estimator_._distribution(X)

    def _units(self) -> tuple[float, float]:
        """Location and scale of y in units of the inner estimator's."""
        inner = self.estimator_.target_space_
        scale = self.target_space_.scale / inner.scale
        return self.target_space_.location - scale * inner.location, scale

    def _in_caller_units(
        self, X: Array, codes: NDArray[np.intp] | None = None
    ) -> ConditionalDistribution:
        own = () if codes is None else (codes,)
        return self.estimator_._in_caller_units(X, *own)._rescaled(*self._units())

    def _standardized(self, y: Array) -> tuple[Array, Array]:
        location, scale = self._units()
        at, slope = self.estimator_._standardized((y - location) / scale)
        return at, slope - np.log(scale)

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
