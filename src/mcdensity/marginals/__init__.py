"""Densities of y alone: the easy, one-dimensional half of the method."""

from __future__ import annotations

from sklearn.base import clone

from mcdensity.marginals.adaptive import AdaptiveDensity
from mcdensity.marginals.base import Marginal, fit_held_out
from mcdensity.marginals.kde import KernelDensity
from mcdensity.marginals.masses import Masses
from mcdensity.marginals.tailed import TailedDensity

__all__ = [
    "AdaptiveDensity", "KernelDensity", "Marginal", "Masses", "TailedDensity", "fit_held_out",
    "get_marginal", "list_marginals",
]  # fmt: skip

_REGISTRY: dict[str, type[Marginal]] = {
    "adaptive": AdaptiveDensity,
    "kde": KernelDensity,
    "tailed": TailedDensity,
}


def list_marginals() -> list[str]:
    """Return the names that ``MCD(marginal=...)`` understands.

    Examples
    --------
    >>> from mcdensity.marginals import list_marginals
    >>> list_marginals()
    ['adaptive', 'kde', 'tailed']
    """
    return sorted(_REGISTRY)


def get_marginal(marginal: str | Marginal) -> Marginal:
    """Return a new, unfitted marginal: by name, or a copy of the one that is given."""
    if isinstance(marginal, str):
        if marginal not in _REGISTRY:
            raise ValueError(f"marginal={marginal!r} is not known; choose from {list_marginals()}.")
        return _REGISTRY[marginal]()
    missing = [m for m in ("fit", "logpdf", "cdf", "ppf") if not hasattr(marginal, m)]
    if missing or isinstance(marginal, type):
        raise TypeError(
            f"marginal must be a name from {list_marginals()} or an object with the methods fit, "
            f"logpdf, cdf and ppf, got {marginal!r}."
        )
    return clone(marginal, safe=False)
