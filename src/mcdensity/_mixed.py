"""Laws with atoms: of single values, and of a density and atoms, which two models make up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mcdensity.distribution import DiscreteDistribution, MixedDistribution
from mcdensity.experts.distilled import Distilled
from mcdensity.target_kind import Measure

__all__ = ["discrete_law", "fit_parts", "labels_of", "mixed_law"]

Array = NDArray[np.float64]

# Fewer targets beside the atoms have no law that could be learned.
_LEAST_REST = 5


def fit_parts(
    model: Any,
    X: Array,
    y: Array,
    sample_weight: Array | None,
    rng: np.random.Generator,
    **extra: Any,
) -> None:
    """Fit a model of which atom y is, or none, and one of y where it is none.

    Parameters
    ----------
    model : MCD
        Its parameters are those of both models, which become its `parts_`.
    X, y, sample_weight, **extra
        As for `MCD.fit`.
    rng : Generator
    """
    atoms = model.atoms_
    rest = ~np.isin(y, atoms)
    if not model.normalize:
        raise ValueError(
            "normalize=False, the formula as it stands, needs one measure, a density or masses; y "
            f"has both (atoms at {atoms.tolist()}). Use normalize=True, or target='continuous'."
        )
    if rest.sum() < _LEAST_REST or np.ptp(y[rest]) == 0:
        raise ValueError(
            f"y has {int(rest.sum())} targets beside the atoms {atoms.tolist()}, too few for a "
            "density. Use target='discrete', or give more rows."
        )
    seeds = rng.integers(2**31 - 1, size=2).tolist()
    labels, of_rest = (clone(model, safe=False).set_params(random_state=s) for s in seeds)
    if model.time_budget is not None:
        for part in (labels, of_rest):
            part.set_params(time_budget=model.time_budget / 2)
    unlabeled, more, groups = (extra.get(n) for n in ("X_unlabeled", "y_marginal", "groups"))
    # "No atom" is numbered where most of the rest lies, so that labels are in the order of y.
    labels._no_atom = int(np.searchsorted(atoms, np.median(y[rest])))
    labels._measure = Measure("discrete")
    labels.fit(
        X,
        labels_of(y, atoms, labels._no_atom),
        sample_weight,
        X_unlabeled=unlabeled,
        y_marginal=None if more is None else labels_of(more, atoms, labels._no_atom),
        groups=groups,
    )
    of_rest._measure = Measure("continuous", model.support_)
    if more is not None:
        more = more[~np.isin(more, atoms)]
    of_rest.fit(
        X[rest],
        y[rest],
        None if sample_weight is None else sample_weight[rest],
        y_marginal=more if more is not None and len(more) else None,
        groups=None if groups is None else groups[rest],
    )
    for part in (labels, of_rest):
        del part._measure
    model.parts_ = [labels, of_rest]
    model._share_of_rest = float(np.average(rest, weights=sample_weight))
    model._kept_rows = labels._kept_rows
    for name in ("weights_", "ratio_", "contrast_size_", "construction_"):
        if hasattr(of_rest, name):
            setattr(model, name, getattr(of_rest, name))


def labels_of(y: Array, atoms: Array, no_atom: int) -> Array:
    """Number the atoms and "no atom"."""
    number = np.searchsorted(atoms, y)
    label = number + (number >= no_atom)
    return np.where(np.isin(y, atoms), label, no_atom).astype(np.float64)


def discrete_law(model: Any, X: Array) -> DiscreteDistribution:
    """Integrate the ratios of a model of single values over their cells."""
    space, expert = model.target_space_, model.discriminator_
    if isinstance(expert, Distilled):
        return space.of_ratios(expert.at_knots(X).astype(np.float64), by_value=True)
    nodes = space.masses.nodes_
    value = expert.condition(X).relative(nodes, model.marginal_.logpdf(nodes))
    return space.of_ratios(value, floor=model.epsilon)


def mixed_law(parts: list[Any], atoms: Array, X: Array) -> MixedDistribution:
    """Put the laws of both models together."""
    labels, rest = (part._in_caller_units(part._check_predict(X)) for part in parts)
    return MixedDistribution(atoms, np.delete(labels.masses, parts[0]._no_atom, axis=1), rest)
