"""Checks of input that several modules share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["as_generator", "check_weights", "require", "weighted_quantile"]


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
    kept = weight > 0
    if not kept.any():
        raise ValueError(
            "sample_weight is zero for all rows; at least some weights must be positive."
        )
    weight = weight[kept]
    if (weight == weight[0]).all():
        return (None if kept.all() else kept), None
    # Divided by the largest first: a sum of huge weights would overflow.
    weight = weight / weight.max()
    return (None if kept.all() else kept), weight / weight.mean()


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
