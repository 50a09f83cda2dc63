"""Other estimators of conditional densities, behind the same contract.

`get_estimator` knows them by name; the classes are loaded when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mcdensity.estimator import ConditionalEstimator

# Name: module, class, parameters.
_REGISTRY: dict[str, tuple[str, str, dict[str, Any]]] = {
    "deepcde": ("deepcde", "DeepCDE", {}),
    "f-rfcde": ("rfcde", "FunctionalRFCDE", {}),
    "flexcode-mlp": ("flexcode", "FlexCode", {"regressor": "mlp"}),
    "flexcode-nn": ("flexcode", "FlexCode", {"regressor": "nn"}),
    "flexcode-xgboost": ("flexcode", "FlexCode", {"regressor": "xgboost"}),
    "kmn": ("kmn", "KMN", {}),
    "lscde": ("lscde", "LSCDE", {}),
    "marginal": ("marginal", "MarginalBaseline", {}),
    "mdn": ("mdn", "MDN", {}),
    "nf": ("flow", "NormalizingFlow", {}),
    "nnkcde": ("nnkcde", "NNKCDE", {}),
    "rfcde": ("rfcde", "RFCDE", {}),
}
_CLASSES = {name: module for module, name, _ in _REGISTRY.values()}

__all__ = [*sorted(_CLASSES), "get_estimator", "list_estimators"]


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(import_module(f"mcdensity.baselines.{_CLASSES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


def list_estimators() -> list[str]:
    """Return the names that `get_estimator` understands."""
    return sorted(_REGISTRY)


def get_estimator(name: str, **parameters: Any) -> ConditionalEstimator:
    """Return a new estimator by name.

    Examples
    --------
    >>> from mcdensity.baselines import get_estimator
    >>> get_estimator("nnkcde", n_neighbors=20)
    NNKCDE(n_neighbors=20)
    """
    if name not in _REGISTRY:
        raise ValueError(f"Estimator {name!r} is not known; choose from {list_estimators()}.")
    module, cls, defaults = _REGISTRY[name]
    estimator = getattr(import_module(f"mcdensity.baselines.{module}"), cls)
    return estimator(**defaults | parameters)
