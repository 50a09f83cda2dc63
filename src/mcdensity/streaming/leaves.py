"""The models of one target that a model is made of, and what each sees of a row.

A model of one target is its own leaf; one of several targets has a leaf for each; a target with
atoms has two: which atom it is, or none, and the law of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._mixed import labels_of
from mcdensity.data import TrainingData
from mcdensity.target import DiscreteSpace, InnerMarginal, tied_values

__all__ = ["Leaf", "leaves_of"]

Array = NDArray[np.float64]
# From features and targets, (n, p) and (n, k), to those of a leaf, and which rows these are.
View = Callable[[Array, Array], tuple[Array, Array, Any]]


@dataclass
class Leaf:
    """A fitted `MCD` of one target, and its view of rows.

    Parameters
    ----------
    model : MCD
    view : callable
        From the features and targets of rows to those of the model, in the caller's units, and
        the rows that it sees.
    name : str
        For messages.
    """

    model: Any
    view: View
    name: str

    def see(self, X: Array, Y: Array, weight: Array | None) -> tuple[Array, Array, Array | None]:
        """Standardised features, inner targets and weights of the rows that the model sees."""
        inputs, y, rows = self.view(X, Y)
        space = self.model.target_space_
        inner = space.inner(space.standardize(y))
        return self.model._scale_x(inputs), inner, None if weight is None else weight[rows]

    def law_of_y(self, X: Array, Y: Array) -> InnerMarginal:
        """Return the law of the target alone; the rows tell whether it has few values."""
        space = self.model.target_space_
        tied = None
        if not isinstance(space, DiscreteSpace):
            tied = tied_values(self.see(X, Y, None)[1])
        return InnerMarginal(space, self.model.marginal_, tied=tied)

    def data(
        self, X: Array, Y: Array, weight: Array | None, marginal: InnerMarginal, **options: Any
    ) -> TrainingData:
        """Return rows as training data."""
        scaled, inner, seen = self.see(X, Y, weight)
        if seen is not None:
            seen = seen / seen.mean()
        return TrainingData(scaled, inner[:, None], seen, marginal=marginal, **options)

    def batches(
        self, rows: Iterator[Any], to_features: Callable[[Any], Array], marginal: InnerMarginal,
        rng: np.random.Generator,
    ) -> Iterator[tuple[Array, Array, Array]]:  # fmt: skip
        """Turn prepared rows into what a network learns from."""
        for part in rows:
            x, t, weight = self.see(to_features(part.X), part.Y, part.weight)
            if len(t) == 0:
                continue
            spread = marginal.spread_ties(t, rng, len(t))
            yield x, t if spread is None else spread[0], weight  # type: ignore[misc]


def leaves_of(model: Any) -> list[Leaf]:
    """Return the leaves of a fitted `MCD`."""
    if not hasattr(model, "links_"):
        return _parts(model, lambda X, Y: (X, Y[:, 0], slice(None)), "y")
    found: list[Leaf] = []
    for place, (j, link) in enumerate(zip(model.order_, model.links_, strict=True)):
        before = list(model.order_[:place])

        def view(X: Array, Y: Array, j: int = j, before: list[int] = before) -> Any:
            return np.hstack([model._link_inputs(X), Y[:, before]]), Y[:, j], slice(None)

        found += _parts(link, view, model.target_names_[j])
    return found


def _parts(model: Any, view: View, name: str) -> list[Leaf]:
    if not hasattr(model, "parts_"):
        return [Leaf(model, view, name)]
    labels, rest = model.parts_

    def of_labels(X: Array, Y: Array) -> tuple[Array, Array, Any]:
        inputs, y, rows = view(X, Y)
        label = labels_of(y, model.atoms_, labels._no_atom)
        return model._scale_x(inputs), label, rows

    def of_rest(X: Array, Y: Array) -> tuple[Array, Array, Any]:
        inputs, y, _ = view(X, Y)
        chosen = ~np.isin(y, model.atoms_)
        return model._scale_x(inputs)[chosen], y[chosen], chosen

    return [Leaf(labels, of_labels, f"{name}, atoms"), Leaf(rest, of_rest, f"{name}, rest")]
