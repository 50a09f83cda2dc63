"""Checks of input that several modules share."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "as_generator",
    "check_integer",
    "check_number",
    "check_weights",
    "require",
    "weighted_quantile",
]


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


def check_weights(
    sample_weight: ArrayLike | None, n: int
) -> tuple[NDArray[np.bool_] | None, NDArray[np.float64] | None]:
    """Return which rows are kept (None: all) and their weights scaled to mean 1 (None: equal)."""
    if sample_weight is None:
        return None, None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.ndim == 0:
        weight = np.full(n, weight)
    if weight.shape != (n,):
        raise ValueError(
            f"sample_weight.shape == {weight.shape}, expected {(n,)}: one weight a row of X."
        )
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight must be finite and not negative.")
    if not weight.any():
        raise ValueError(
            "sample_weight is zero for all rows; at least some weights must be positive."
        )
    # Divided by the largest first: a sum of huge weights would overflow; and what is nothing beside
    # the largest is zero.
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
    must be compared with it before.
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
    """Import an optional library, or say which extra brings it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module.split('.')[0]} is not installed; "
            f"get it with: pip install 'mcdensity[{extra}]'"
        ) from error
