"""Discriminators: what tells joint pairs from broken ones, by name or from any learner."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from sklearn.base import clone

from mcdensity.discriminators.adapters import Discriminator, LearnerDiscriminator

__all__ = [
    "Discriminator",
    "LearnerDiscriminator",
    "get_discriminator",
    "list_discriminators",
    "make_discriminator",
]

# Name -> module and function or class in it; imported when asked for.
_REGISTRY = {
    "auto": "auto:AutoDiscriminator",
    "catboost": "trees:catboost",
    "elastic-net": "linear:elastic_net",
    "extra-trees": "trees:extra_trees",
    "glu": "neural:glu",
    "hist-gradient-boosting": "trees:hist_gradient_boosting",
    "lightgbm": "trees:lightgbm",
    "mlp": "neural:mlp",
    "mixture": "exact:mixture",
    "mlp-plain": "neural:mlp_plain",
    "quadratic": "linear:QuadraticDiscriminator",
    "random-forest": "trees:random_forest",
    "resnet": "neural:resnet",
    "snn": "neural:snn",
    "two-tower": "exact:two_tower",
    "flow": "exact:flow",
    "xgboost": "trees:xgboost",
}


def list_discriminators() -> list[str]:
    """Return the names that ``MCD(discriminator=...)`` understands."""
    return sorted(_REGISTRY)


def get_discriminator(name: str, **parameters: Any) -> Discriminator:
    """Return a new discriminator by name, with parameters of its own.

    Examples
    --------
    >>> from mcdensity.discriminators import get_discriminator
    >>> get_discriminator("quadratic", C=0.1)
    QuadraticDiscriminator(C=0.1)
    """
    if name not in _REGISTRY:
        raise ValueError(
            f"discriminator={name!r} is not known; choose from {list_discriminators()}, or give a "
            "scikit-learn learner or a torch module."
        )
    module, attribute = _REGISTRY[name].split(":")
    factory: Callable[..., Discriminator] = getattr(
        import_module(f"mcdensity.discriminators.{module}"), attribute
    )
    try:
        return factory(**parameters)
    except TypeError as error:
        raise TypeError(f"discriminator_params do not fit {name!r}: {error}") from error


def make_discriminator(
    discriminator: Any, parameters: dict[str, Any] | None = None
) -> Discriminator:
    """Return a new, unfitted discriminator from whatever ``MCD(discriminator=...)`` was given."""
    if isinstance(discriminator, str):
        return get_discriminator(discriminator, **(parameters or {}))
    if _is_torch(discriminator):
        from mcdensity.discriminators.neural import NeuralDiscriminator

        return NeuralDiscriminator(discriminator, **(parameters or {}))
    if parameters:
        raise ValueError(
            "discriminator_params go with the name of a discriminator or with a torch module; set "
            f"the parameters of {type(discriminator).__name__} on the object itself."
        )
    if isinstance(discriminator, Discriminator):
        return clone(discriminator)
    if isinstance(discriminator, type):
        raise TypeError(f"discriminator is a class; give an instance: {discriminator.__name__}().")
    if not hasattr(discriminator, "fit") or not any(
        hasattr(discriminator, name) for name in ("predict_proba", "decision_function", "predict")
    ):
        raise TypeError(
            f"discriminator must be a name from {list_discriminators()}, an object with fit and "
            f"predict_proba (or predict), or a torch module, got {discriminator!r}."
        )
    return LearnerDiscriminator(discriminator)


def _is_torch(discriminator: Any) -> bool:
    """Whether this is a torch module, its class, or a function that makes one."""
    torch = sys.modules.get("torch")  # nobody has a module without having imported torch
    if torch is not None:
        if isinstance(discriminator, torch.nn.Module):
            return True
        if isinstance(discriminator, type):
            return issubclass(discriminator, torch.nn.Module)
    return (
        callable(discriminator)
        and not isinstance(discriminator, type)
        and not hasattr(discriminator, "fit")
    )
