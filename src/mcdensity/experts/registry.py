"""Experts by name: registered in one line of the file that defines them, found on demand."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from mcdensity._known import storable
from mcdensity.experts.base import Expert

__all__ = ["discover", "get_expert", "list_experts", "portfolio_names", "register", "unregister"]

Factory = TypeVar("Factory", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Entry:
    factory: Callable[..., Expert]
    portfolio: int | None


_ENTRIES: dict[str, _Entry] = {}
# Folders whose modules register experts; `auto` lives above them.
_PACKAGES = ("mcdensity.experts.ratio", "mcdensity.experts.density")
_found = False


def register(name: str, *, portfolio: int | None = None) -> Callable[[Factory], Factory]:
    """Register an expert's class, or a function that makes one, under a name.

    A registered class may be stored in model files; one that a function makes must be marked by
    `mcdensity.persistence.storable`.

    Parameters
    ----------
    name : str
        What ``MCD(discriminator=name)`` understands.
    portfolio : int, optional
        Its rank in the automatic portfolio: smaller numbers come first. None: only when named.

    Examples
    --------
    >>> from mcdensity.experts import list_experts, register, unregister
    >>> from mcdensity.experts.ratio.linear import QuadraticDiscriminator
    >>> @register("my-quadratic")
    ... def my_quadratic(C=1.0):
    ...     return QuadraticDiscriminator(C=C)
    >>> "my-quadratic" in list_experts()
    True
    >>> unregister("my-quadratic")
    """

    def decorate(factory: Factory) -> Factory:
        _ENTRIES[name] = _Entry(factory, portfolio)
        if isinstance(factory, type):
            storable(factory)
        return factory

    return decorate


def unregister(name: str) -> None:
    """Forget an expert that was registered by `register`."""
    del _ENTRIES[name]


def discover() -> None:
    """Import the files of the experts of this package, which register themselves, once."""
    global _found
    if not _found:
        for package in _PACKAGES:
            for module in pkgutil.iter_modules(import_module(package).__path__):
                import_module(f"{package}.{module.name}")
        import_module("mcdensity.portfolio")
        _found = True


def _entries() -> dict[str, _Entry]:
    discover()
    return _ENTRIES


def list_experts() -> list[str]:
    """Return the names that ``MCD(discriminator=...)`` understands.

    Examples
    --------
    >>> from mcdensity.experts import list_experts
    >>> "quadratic" in list_experts()
    True
    """
    return sorted(_entries())


def portfolio_names() -> list[str]:
    """Return the names that the automatic portfolio tries, in their order.

    Examples
    --------
    >>> from mcdensity.experts import portfolio_names
    >>> "mixture" in portfolio_names()
    True
    """
    ranked = [(e.portfolio, name) for name, e in _entries().items() if e.portfolio is not None]
    return [name for _, name in sorted(ranked)]


def get_expert(name: str, **parameters: Any) -> Expert:
    """Return a new expert by name, with parameters of its own.

    Examples
    --------
    >>> from mcdensity.experts import get_expert
    >>> get_expert("quadratic", C=0.1)
    QuadraticDiscriminator(C=0.1)
    """
    entries = _entries()
    if name not in entries:
        raise ValueError(
            f"discriminator={name!r} is not known; choose from {list_experts()}, or give a "
            "scikit-learn learner or a torch module."
        )
    try:
        return entries[name].factory(**parameters)
    except TypeError as error:
        raise TypeError(f"discriminator_params do not fit {name!r}: {error}") from error
