"""What estimators accept: checks of X and y, missing values, and standardising."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from mcdensity._scaling import location_and_scale
from mcdensity._validation import as_numbers, refuse_kinds, refuse_masked, require
from mcdensity.target import TargetSpace

__all__ = [
    "InputChecks",
    "all_or_nothing",
    "as_pandas",
    "check_flag",
    "check_grid",
    "check_quantiles",
    "is_foreign_frame",
]

Array = NDArray[np.float64]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Self_ = TypeVar("Self_")

# Squares of targets, and of their standard deviations, stay within what a float can hold.
_LARGEST_TARGET, _LEAST_SPREAD = 1e150, 1e-150
# Targets that differ in less than this share of their size differ by rounding.
_LEAST_SHARE = 16 * np.finfo(float).eps


class InputChecks(BaseEstimator):
    """The part of `ConditionalEstimator` that checks user input.

    Missing numbers in X are passed on to a method that takes them. For others a missing entry
    becomes the mean of its column, and each column that had missing values in training gets a
    second one, 1 where the value is missing and 0 elsewhere.
    """

    x_mean_: Array | float
    x_scale_: Array | float
    target_space_: TargetSpace
    # Columns whose missing values are marked; None where NaN is passed on.
    missing_columns_: list[int] | None

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "target_space_")

    def _allows_nan(self) -> bool:
        """Whether the method itself takes missing values."""
        return False

    def _describe(self) -> str:
        """Name the part that looks at X, for messages."""
        return type(self).__name__

    def _check_training(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None."
            )
        target = as_numbers("y", y)
        if target.ndim == 2 and target.shape[1] > 1:
            raise ValueError(
                f"y has {target.shape[1]} columns; {type(self).__name__} learns one target. Use "
                "MCD or one of the methods mdn, nf and nnkcde, which learn several, or fit one "
                "estimator for each column. (Several draws of one target for the same x go "
                "through stack_targets and groups.)"
            )
        if not np.isfinite(target).all():
            bad = np.flatnonzero(~np.isfinite(target.ravel()))
            raise ValueError(
                f"y contains NaN or infinity in {len(bad)} of {target.size} rows (the first is row "
                f"{bad[0]}). Drop these rows before fitting; their x may still be given as "
                "X_unlabeled where the method takes it."
            )
        X_checked, y_checked = self._check_x(X, "X", target)
        return X_checked, np.asarray(y_checked, dtype=np.float64)

    def _check_x(self, X: Any, name: str, y: Any = "no_validation") -> Any:
        """Validate X, and y with it where it is given (that is, in `fit`)."""
        fitting = not isinstance(y, str)
        X = _table_to_pandas(X)
        _refuse_values(X, name)
        takes_nan = fitting or hasattr(self, "missing_columns_") or self._allows_nan()
        options: dict[str, Any] = {"ensure_min_samples": 0, "y_numeric": True} if fitting else {}
        try:
            return validate_data(
                self,
                X,
                y,
                reset=fitting,
                dtype=np.float64,
                order="C",  # sums depend on it: a table and its array give the same numbers
                ensure_all_finite="allow-nan" if takes_nan else True,
                **options,
            )
        except TypeError as error:
            if "argument must be" not in str(error):
                raise
            raise TypeError(
                f"{name} holds values that are not numbers ({error}). Turn them into numbers, or "
                "drop their columns."
            ) from error
        except ValueError as error:
            message = str(error)
            if "could not convert string" in message:
                raise ValueError(
                    f"{name} holds text ({message}). mcdensity.TableEstimator takes text and "
                    "categories as they are; or encode such columns as numbers first, for example "
                    "with sklearn.preprocessing.OrdinalEncoder."
                ) from error
            if "X contains NaN" in message:
                raise ValueError(
                    f"Input {name} contains NaN, which {self._describe()} cannot take. Impute the "
                    "missing values first (sklearn.impute)."
                ) from error
            if name != "X":
                raise ValueError(f"{name} does not fit X: {message}") from error
            raise

    def _check_points(self, y: ArrayLike, name: str) -> Array:
        values = as_numbers(name, y)
        if not np.isfinite(values).all():
            raise ValueError(f"{name} contains NaN or infinity; give only finite numbers.")
        return values

    def _check_more(self, y_marginal: ArrayLike) -> Array:
        """Return targets without x, of shape (n_y,)."""
        more = self._check_points(y_marginal, "y_marginal")
        if more.ndim == 2 and more.shape[1] == 1:
            more = more[:, 0]
        if more.ndim != 1 or len(more) == 0:
            raise ValueError(
                f"y_marginal must be of shape (n_y,) with n_y > 0, got shape {more.shape}."
            )
        return more

    def _check_outcomes(self, y: ArrayLike, n: int) -> Array:
        """Return outcomes, one per row of an X with `n` rows."""
        values = self._check_points(y, "y")
        if values.shape == (n, 1):
            values = values[:, 0]
        if values.shape != (n,):
            raise ValueError(
                f"y must have one value per row of X, shape ({n},), got shape {values.shape}. "
                "For values that all rows share use pdf_from_X."
            )
        return values

    def _check_predict(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        return self._scale_x(self._check_x(X, "X"))

    def _learn_scales(
        self, X: Array, y: Array, weight: Array | None, more: Array | None = None
    ) -> None:
        """Learn how X and y are standardised, and which columns have missing values."""
        self.x_mean_, self.x_scale_ = location_and_scale(X, weight)
        missing = np.isnan(X)
        self.missing_columns_ = None
        if not self._allows_nan():
            # A column without any value carries no information, nor does its indicator.
            some = missing.any(axis=0) & ~missing.all(axis=0)
            self.missing_columns_ = [int(column) for column in np.flatnonzero(some)]
        _check_target_range(y)
        self.target_space_ = self._learn_space(y, weight, more)

    def _learn_space(self, y: Array, weight: Array | None, more: Array | None) -> TargetSpace:
        """Learn the coordinate of the target, from y and from targets without x."""
        return TargetSpace.learn(y, weight)

    def _scale_x(self, X: Array) -> Array:
        """Standardise X, and complete it where the method takes no missing values."""
        # What is finite stays so in single precision, and its square in double precision.
        scaled = np.clip((X - self.x_mean_) / self.x_scale_, -1e30, 1e30)
        columns = getattr(self, "missing_columns_", None)
        if columns is None:
            return scaled
        missing = np.isnan(X)
        if missing.any():
            scaled[missing] = 0.0  # the mean of the column
        return np.column_stack([scaled, missing[:, columns]]) if columns else scaled


def all_or_nothing(
    fit: Callable[Concatenate[Self_, Arguments], Result],
) -> Callable[Concatenate[Self_, Arguments], Result]:
    """Restore the estimator to its earlier state, fitted or not, if a fit fails."""

    @functools.wraps(fit)
    def fit_or_restore(self: Self_, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        before = dict(vars(self))
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return fit_or_restore


def _check_target_range(y: Array) -> None:
    """Refuse targets whose squares, or whose differences, a float cannot hold."""
    low, high = float(y.min()), float(y.max())
    largest = max(abs(low), abs(high))
    if largest > _LARGEST_TARGET:
        raise ValueError(
            f"y has absolute values up to {largest:.3g}; they must not exceed "
            f"{_LARGEST_TARGET:g}. Divide y by a constant before fitting."
        )
    if high - low < _LEAST_SPREAD:
        raise ValueError(
            f"y has a spread (largest minus smallest value) of {high - low:.3g}; it must be at "
            f"least {_LEAST_SPREAD:g}. Multiply y by a constant before fitting."
        )
    if high - low < _LEAST_SHARE * largest:
        raise ValueError(
            f"y has a spread (largest minus smallest value) of {high - low:.3g} at values of "
            f"{largest:.3g}, which is rounding error. Subtract a constant from y before it is "
            "rounded, or check that the target is the right column."
        )


# Frames of other libraries.


def is_foreign_frame(X: Any) -> bool:
    """Whether X is a table of a library other than pandas, such as polars or pyarrow."""
    pandas = sys.modules.get("pandas")  # nobody has a frame without having imported it
    if isinstance(X, type) or (pandas is not None and isinstance(X, pandas.DataFrame)):
        return False
    if hasattr(X, "__dataframe__"):
        return True
    named = hasattr(X, "columns") or hasattr(X, "column_names")
    return named and (hasattr(X, "to_pandas") or hasattr(X, "__arrow_c_stream__"))


def as_pandas(X: Any) -> Any:
    """Turn a table of another library into a pandas DataFrame."""
    pandas = require("pandas", "cli")
    if hasattr(X, "to_pandas"):
        return X.to_pandas()
    if hasattr(X, "__arrow_c_stream__"):
        return require("pyarrow", "cli").table(X).to_pandas()
    return pandas.api.interchange.from_dataframe(X)


def _table_to_pandas(X: Any) -> Any:
    if not is_foreign_frame(X):
        return X
    try:
        return as_pandas(X)
    except ImportError:
        return X  # scikit-learn knows some of them by itself


def _refuse_values(X: Any, name: str) -> None:
    """Refuse values that X must not hold, with its name and that of the column."""
    refuse_masked(name, X)
    if hasattr(X, "dtypes") and hasattr(X, "columns"):
        for number, (column, kind) in enumerate(zip(X.columns, X.dtypes, strict=True)):
            if getattr(kind, "kind", "O") in "MmcSVO" and str(kind) != "category":
                refuse_kinds(name, np.asarray(X.iloc[:, number]), column)
        return
    try:
        array = X if hasattr(X, "dtype") else np.asarray(X)
    except ValueError:
        return  # rows of different lengths, which scikit-learn reports
    if isinstance(array, np.ndarray):
        refuse_kinds(name, array)


# Arguments of the public methods.


def check_quantiles(quantiles: Any) -> Array:
    """Return probabilities as an array of shape (m,), or say what they must be."""
    try:
        levels = np.atleast_1d(as_numbers("quantiles", quantiles))
    except (TypeError, ValueError):
        levels = np.full(1, np.nan)
    if levels.size == 0:
        raise ValueError("quantiles is empty; give at least one number between 0 and 1.")
    if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(
            f"quantiles must lie strictly between 0 and 1, got {quantiles!r}. Give one number, or "
            "a list such as (0.05, 0.5, 0.95)."
        )
    return levels


def check_grid(grid: Array, name: str) -> Array:
    """Return a grid that is not empty, or say what it must be."""
    if grid.ndim != 1:
        raise ValueError(
            f"{name} must be one-dimensional, got shape {grid.shape}. For one value per row of X "
            "use logpdf."
        )
    if len(grid) == 0:
        raise ValueError(f"{name} is empty; give at least one value of y.")
    return grid


def check_flag(name: str, value: Any) -> bool:
    """Return True or False, or say that the argument must be one of them."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {value!r}.")
