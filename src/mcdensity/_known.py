"""The classes and functions that a model file may name. Nothing else is ever built.

This module imports nothing heavy, so that any module can register what it defines.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

__all__ = ["find", "name_of", "storable"]

T = TypeVar("T")

# Of this package. What is listed here is imported when a file names it.
_KNOWN = {
    "mcdensity._bounds": ("Bounds",),
    "mcdensity.distribution.loglinear": ("LogLinear",),
    "mcdensity.baselines.deepcde": ("DeepCDE",),
    "mcdensity.baselines.flexcode": ("FlexCode",),
    "mcdensity.baselines.flow": ("NormalizingFlow",),
    "mcdensity.baselines.kmn": ("KMN", "_KernelNetwork"),
    "mcdensity.baselines.lscde": ("LSCDE",),
    "mcdensity.baselines.marginal": ("MarginalBaseline",),
    "mcdensity.baselines.mdn": ("MDN",),
    "mcdensity.baselines.nnkcde": ("NNKCDE",),
    "mcdensity.baselines.rfcde": ("RFCDE", "FunctionalRFCDE"),
    "mcdensity.contrasted": ("JointContrast",),
    "mcdensity.likelihood": ("JointLikelihood",),
    "mcdensity.marginals.adaptive": ("AdaptiveDensity",),
    "mcdensity.marginals.kde": ("KernelDensity",),
    "mcdensity.marginals.masses": ("Masses",),
    "mcdensity.marginals.tailed": ("TailedDensity",),
    "mcdensity.mcd": ("MCD",),
    "mcdensity.networks.glu": ("glu",),
    "mcdensity.networks.layers": (
        "StackedAlphaDropout", "StackedBatchNorm", "StackedDropout", "StackedLinear",
        "StackedNetwork",
    ),
    "mcdensity.networks.mlp": ("mlp", "mlp_plain"),
    "mcdensity.networks.parameters": ("ParameterNetwork",),
    "mcdensity.networks.resnet": ("ResidualBlock", "resnet"),
    "mcdensity.networks.scores": ("NormalScores",),
    "mcdensity.networks.snn": ("snn",),
    "mcdensity.networks.towers": ("FlowTower", "MixtureTower", "TwoTower"),
    "mcdensity.pipelines": ("PreparedEstimator",),
    "mcdensity.tables": ("TableEstimator", "TablePreparation"),
    "mcdensity.target": ("DiscreteSpace", "MixedSpace", "TargetSpace"),
}  # fmt: skip
# Layers of torch that a network may be built of.
_LAYERS = (
    "AlphaDropout", "BatchNorm1d", "Dropout", "ELU", "Flatten", "GELU", "GLU", "Identity",
    "LayerNorm", "LeakyReLU", "Linear", "ReLU", "SELU", "Sequential", "SiLU", "Sigmoid",
    "Softplus", "Tanh",
)  # fmt: skip
# What `storable` added in this process.
_registered: dict[str, Any] = {}


def storable(thing: T) -> T:
    """Let model files hold a class or a function; use it as a decorator or call it.

    A file can be read only where the same class or function, of the same module and name, has
    been registered before: reading never imports a module that is not part of this package.

    Parameters
    ----------
    thing : class or function
        The attributes of an object of the class must be what a model file can hold: numbers, text,
        arrays, containers of these, and other objects of known classes. A torch module is written
        as its parameters, its buffers, its layers, and its attributes without a leading
        underscore.

    Returns
    -------
    class or function
        The same.

    Examples
    --------
    >>> from mcdensity._known import storable
    >>> @storable
    ... def identity(x):
    ...     return x
    """
    if not callable(thing) or not hasattr(thing, "__qualname__"):
        raise TypeError(f"storable takes a class or a function, got {thing!r}.")
    _registered[_full_name(thing)] = thing
    return thing


def name_of(thing: Any) -> str | None:
    """Return the name of a class or a function in a file, None if it is not known."""
    module, name = thing.__module__, thing.__qualname__
    if name in _KNOWN.get(module, ()) or _registered.get(_full_name(thing)) is thing:
        return f"{module}:{name}"
    if name in _LAYERS and module.startswith("torch.nn."):
        return f"torch.nn:{name}"
    return None


def find(text: str) -> Any:
    """Return the class or function of a name in a file; a `KeyError` if it is not known."""
    module, _, name = text.partition(":")
    if module == "mcdensity.portfolio" or module.startswith("mcdensity.experts."):
        import_module("mcdensity.experts.registry").discover()  # they register themselves
    if text in _registered:
        return _registered[text]
    if name not in (_LAYERS if module == "torch.nn" else _KNOWN.get(module, ())):
        raise KeyError(text)
    return getattr(import_module(module), name)


def _full_name(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"
