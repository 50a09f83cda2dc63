"""Discriminators by name or from any learner: what ``MCD(discriminator=...)`` understands.

A discriminator is a ratio expert; the density experts of `mcdensity.experts` go by the same names.
"""

from __future__ import annotations

import sys
from typing import Any

from sklearn.base import clone

from mcdensity.experts.base import Expert
from mcdensity.experts.base import RatioExpert as Discriminator
from mcdensity.experts.ratio.learner import LearnerDiscriminator
from mcdensity.experts.registry import get_expert as get_discriminator
from mcdensity.experts.registry import list_experts as list_discriminators

__all__ = [
    "Discriminator",
    "LearnerDiscriminator",
    "get_discriminator",
    "list_discriminators",
    "make_discriminator",
]


def make_discriminator(discriminator: Any, parameters: dict[str, Any] | None = None) -> Expert:
    """Return a new, unfitted expert from whatever ``MCD(discriminator=...)`` was given."""
    if isinstance(discriminator, str):
        return get_discriminator(discriminator, **(parameters or {}))
    if _is_torch(discriminator):
        from mcdensity.experts.ratio.neural import NeuralDiscriminator

        return NeuralDiscriminator(discriminator, **(parameters or {}))
    if parameters:
        raise ValueError(
            "discriminator_params go with the name of a discriminator or with a torch module; set "
            f"the parameters of {type(discriminator).__name__} on the object itself."
        )
    if isinstance(discriminator, Expert):
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
