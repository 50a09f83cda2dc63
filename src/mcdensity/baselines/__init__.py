"""Other estimators of conditional densities, behind the same contract."""

from __future__ import annotations

from typing import Any

from mcdensity.baselines.marginal import MarginalBaseline
from mcdensity.estimator import ConditionalEstimator

__all__ = ["MarginalBaseline", "get_estimator", "list_estimators"]

_REGISTRY: dict[str, type[ConditionalEstimator]] = {"marginal": MarginalBaseline}


def list_estimators() -> list[str]:
    """Return the names that `get_estimator` understands."""
    return sorted(_REGISTRY)


def get_estimator(name: str, **parameters: Any) -> ConditionalEstimator:
    """Return a new estimator by name.

    Examples
    --------
    >>> from mcdensity.baselines import get_estimator
    >>> get_estimator("marginal")
    MarginalBaseline()
    """
    if name not in _REGISTRY:
        raise ValueError(f"Estimator {name!r} is not known; choose from {list_estimators()}.")
    return _REGISTRY[name](**parameters)
