"""Checks of input that several modules share."""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "as_generator",
    "as_numbers",
    "check_integer",
    "check_number",
    "check_probability",
    "check_weights",
    "column_number",
    "refuse_kinds",
    "refuse_masked",
    "require",
    "weighted_quantile",
]

# Values that numpy silently turns into floats, or that fail without saying where: the kind
# of their dtype, what they are called, and what to do about them.
_KINDS: dict[str, tuple[type[Exception], str]] = {
    "M": (
        TypeError,
        "holds dates; turn them into numbers first, for example days since a start, or the month "
        "and the hour.",
    ),
    "m": (
        TypeError,
        "holds durations (timedelta); turn them into numbers first, for example hours: divide by "
        'np.timedelta64(1, "h").',
    ),
    "c": (
        ValueError,
        "holds complex numbers. Complex data not supported: give the real part, or the size and "
        "the angle as two columns.",
    ),
    "S": (TypeError, "holds bytes; decode them and turn them into numbers first."),
    "V": (TypeError, "holds records (a structured array); give each field as a column of numbers."),
}


def as_generator(random_state: Any) -> np.random.Generator:
    """Turn what scikit-learn calls a random state into a `numpy.random.Generator`."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, size=4))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise type(error)(
            "random_state must be None, a non-negative integer, a numpy Generator or a "
            f"RandomState, got {random_state!r}."
        ) from error


def refuse_masked(name: str, value: Any) -> None:
    """Refuse a masked array with masked entries: its mask would be lost silently."""
    if not isinstance(value, np.ma.MaskedArray):
        return
    number = int(np.ma.count_masked(value))
    if number:
        advice = (
            "give missing values as NaN, with .filled(np.nan)"
            if name.startswith("X")
            else "leave these rows out"
        )
        raise ValueError(
            f"{name} is a masked array with {number} masked entries, which would be taken for "
            f"values; {advice}."
        )


def refuse_kinds(name: str, array: NDArray[Any], column: Any = None) -> None:
    """Refuse dates, durations, complex numbers, bytes and records, in objects too."""
    kind: str = array.dtype.kind
    if kind == "O":
        kind = next((k for k in map(_kind, array.ravel()) if k), "")
    if kind in _KINDS:
        error, message = _KINDS[kind]
        where = "" if column is None else f" It is the column {column!r}."
        raise error(f"{name} {message}{where}")


def _kind(value: Any) -> str:
    if isinstance(value, datetime.date | datetime.time | np.datetime64):
        return "M"
    if isinstance(value, datetime.timedelta | np.timedelta64):
        return "m"
    if isinstance(value, bytes):
        return "S"
    return "c" if isinstance(value, complex | np.complexfloating) else ""


def as_numbers(name: str, value: Any) -> NDArray[np.float64]:
    """Return an argument as an array of floats, or say what it holds instead and what to do.

    What is missing (None, or pandas' NA) is NaN.
    """
    refuse_masked(name, value)
    try:
        if hasattr(value, "isna") and hasattr(value, "to_numpy"):
            array = np.asarray(value)
            if array.dtype == object:
                array = value.to_numpy(dtype=object, na_value=np.nan)
        else:
            array = np.asarray(value)
        refuse_kinds(name, array)
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        message = str(error)
        if message.startswith(f"{name} holds"):
            raise
        what = "holds text" if "could not convert string" in message else "holds other values"
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"{name} {what} ({message}). {name} must hold numbers; turn it into numbers first."
        ) from error


def check_probability(name: str, value: Any) -> float:
    """Return a number strictly between 0 and 1, or say what the argument must be."""
    number = np.asarray(value) if np.isscalar(value) or isinstance(value, np.ndarray) else None
    if number is not None and number.ndim == 0 and number.dtype.kind in "fiu" and 0 < number < 1:
        return float(number)
    raise ValueError(
        f"{name} must lie strictly between 0 and 1, got {value!r}. Give one number, such as 0.9."
    )


def check_weights(
    sample_weight: ArrayLike | None, n: int
) -> tuple[NDArray[np.bool_] | None, NDArray[np.float64] | None]:
    """Return which rows are kept (None: all) and their weights scaled to mean 1 (None: equal)."""
    if sample_weight is None:
        return None, None
    weight = as_numbers("sample_weight", sample_weight)
    if weight.ndim == 0:
        weight = np.full(n, weight)
    if weight.shape != (n,):
        raise ValueError(
            f"sample_weight.shape == {weight.shape}, expected {(n,)}: one weight per row of X."
        )
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError(
            "sample_weight must be finite and not negative. To exclude a row, give it the weight 0."
        )
    if not weight.any():
        raise ValueError(
            "sample_weight is zero for all rows; at least some weights must be positive."
        )
    # Divided by the largest first: a sum of huge weights would overflow; and weights that are
    # negligible beside the largest become zero.
    weight = weight / weight.max()
    kept = weight > 0
    weight = weight[kept]
    if (weight == weight[0]).all():
        return (None if kept.all() else kept), None
    return (None if kept.all() else kept), weight / weight.mean()


def check_integer(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return a parameter as an int, or say what it must be."""
    whole = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    whole = whole and bool(np.isfinite(value)) and int(value) == value
    if whole and value >= least and (most is None or value <= most):
        return int(value)
    limit = f"from {least} to {most}" if most is not None else f"of at least {least}"
    raise ValueError(f"{name} must be an integer {limit}, got {value!r}.")


def check_number(
    name: str,
    value: Any,
    low: float = 0.0,
    high: float = np.inf,
    *,
    closed: bool = False,
    word: str | None = None,
) -> float:
    """Return a parameter as a float between limits, or say what it must be.

    `closed` tells whether the lower limit itself is allowed; a parameter that may also be `word`
    must be compared with it first.
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    if number and (low <= value if closed else low < value) and value < high:
        return float(value)
    if high < np.inf:
        limit = f"lie in {'[' if closed else '('}{low:g}, {high:g})"
    elif closed:
        limit = f"be a number that is not less than {low:g}"
    else:
        limit = f"be a number larger than {low:g}"
    other = f' or be "{word}"' if word else ""
    raise ValueError(f"{name} must {limit}{other}, got {value!r}.")


def weighted_quantile(
    values: NDArray[np.float64], q: ArrayLike, weight: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return quantiles; with weights those of the weighted empirical distribution."""
    level = np.asarray(q, dtype=np.float64)
    if weight is None:
        return np.asarray(np.quantile(values, level))
    return np.asarray(np.quantile(values, level, weights=weight, method="inverted_cdf"))


def require(module: str, extra: str) -> Any:
    """Import an optional library, or say which extra provides it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module.split('.')[0]} is not installed; "
            f"get it with: pip install 'mcdensity[{extra}]'"
        ) from error


def column_number(column: int | str, names: Sequence[str]) -> int:
    """Return the number of a target that is named, or numbered."""
    if isinstance(column, str):
        if column in names:
            return list(names).index(column)
        raise ValueError(f"There is no target {column!r}; choose from {', '.join(names)}.")
    if isinstance(column, bool) or not isinstance(column, int | np.integer):
        raise TypeError(f"A target is given by its name or its number, got {column!r}.")
    if not -len(names) <= column < len(names):
        raise ValueError(f"There is no target {column}; there are {len(names)}, numbered from 0.")
    return int(column) % len(names)
