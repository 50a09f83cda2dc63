"""What kind of thing a value is, for both directions."""

from __future__ import annotations

import sys
from typing import Any

from sklearn.base import BaseEstimator

__all__ = ["BOOSTING", "is_function", "is_module", "is_module_class", "is_sklearn", "unknown"]

BOOSTING = {
    "xgboost": ("XGBClassifier", "XGBRegressor"),
    "lightgbm": ("LGBMClassifier", "LGBMRegressor"),
    "catboost": ("CatBoostClassifier", "CatBoostRegressor"),
}


def unknown(where: str, what: str) -> TypeError:
    return TypeError(
        f"{where} is of {what}, which is not among those that a model file may hold. Register it "
        "with mcdensity.persistence.storable, or use pickle or joblib.dump, where you trust who "
        "reads and writes the file."
    )


def is_function(value: Any) -> bool:
    return callable(value) and hasattr(value, "__code__")


def is_module_class(cls: Any) -> bool:
    torch = sys.modules.get("torch")  # nobody has a module without having imported torch
    return torch is not None and isinstance(cls, type) and issubclass(cls, torch.nn.Module)


def is_module(value: Any) -> bool:
    return is_module_class(type(value))


def is_sklearn(value: Any) -> bool:
    return isinstance(value, BaseEstimator) and type(value).__module__.startswith("sklearn.")
