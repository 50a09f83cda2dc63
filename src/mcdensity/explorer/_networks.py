"""Distilled models as the page computes them: weights, knots and laws of y alone."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity.distribution.against import inner_probabilities
from mcdensity.distribution.loglinear import LogLinear
from mcdensity.experts.distilled import Distilled
from mcdensity.explorer._controls import Column, scaled
from mcdensity.target import DiscreteSpace, TargetSpace

__all__ = ["Net", "export_model", "layers_of", "nets_of", "packed"]

Array = NDArray[np.float64]

# A law of y alone that is not on knots is put on so many of its quantiles.
_LEVELS = 4000
# Knots of the law of y alone whose omission changes its logarithm by no more than this are left
# out: densities are to be those of Python within 1e-4.
_EXACT = 2e-6


def packed(values: ArrayLike, single: bool = False) -> str:
    """Return numbers as base64, in double or in single precision."""
    kind = "<f4" if single else "<f8"
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


@dataclass
class Net:
    """A distilled network and the columns that it sees.

    Parameters
    ----------
    model : MCD
        Of one target, with one network.
    columns : list of Column
    """

    model: Any
    columns: list[Column]

    @property
    def expert(self) -> Distilled:
        """The network."""
        return self.model.discriminator_

    def kept(self) -> Array | None:
        """Rows that the model kept from training, as the network sees them."""
        rows = getattr(self.model, "_kept_rows", None)
        return None if rows is None else rows.astype(np.float64)

    def masses(self, rows: Array) -> Array:
        """Probabilities of the values, or of the cells around the knots, of rows."""
        ratio = self.expert.at_knots(rows).astype(np.float64)
        if isinstance(self.model.target_space_, DiscreteSpace):
            mass = self.model.marginal_.masses_
        else:
            mass = np.gradient(self.expert._u)
        part = np.exp(ratio - ratio.max(axis=1, keepdims=True)) * mass
        return part / part.sum(axis=1, keepdims=True)


def nets_of(model: Any, columns: Sequence[Column], place: int = 0) -> list[Net]:
    """Networks of a distilled model of one target, at a place in the chain."""
    before = [Column(k, "before") for k in range(place)]
    own = scaled(model, [*columns, *before])
    if hasattr(model, "parts_"):
        return [Net(part, scaled(part, own)) for part in model.parts_]
    return [Net(model, own)]


def export_model(model: Any, nets: Sequence[Net], fixed: Callable[[Column], float | None]) -> dict:
    """Describe a model of one target.

    Parameters
    ----------
    model : MCD
    nets : sequence of Net
        From `nets_of`.
    fixed : callable
        From a column to what the network sees there if the page cannot move it, else None.
    """
    if hasattr(model, "parts_"):
        labels, rest = (
            export_model(part, [net], fixed) for part, net in zip(model.parts_, nets, strict=True)
        )
        return {
            "kind": "mixed",
            "labels": labels,
            "rest": rest,
            "atoms": np.asarray(model.atoms_).tolist(),
            "no_atom": int(model.parts_[0]._no_atom),
        }
    network = _network(nets[0], fixed)
    if isinstance(model.target_space_, DiscreteSpace):
        masses = model.target_space_.masses
        return {
            "kind": "discrete",
            "network": network,
            "values": packed(masses.values_),
            "masses": packed(masses.masses_),
        }
    reference = _reference(model.marginal_, model.target_space_)
    return {"kind": "continuous", "network": network, "reference": reference}


def _network(net: Net, fixed: Callable[[Column], float | None]) -> dict[str, Any]:
    """Weights of a network, with batch norm folded in, and what its columns are."""
    expert, module = net.expert, net.expert.module_
    weights, biases = _folded(module.body)
    skip, skip_bias = _arrays(module.skip)
    head, head_bias = _arrays(module.head)
    first = np.hstack([weights[0], skip])
    bias = np.concatenate([biases[0], skip_bias + head_bias])
    low, high = (np.broadcast_to(end, len(net.columns)) for end in expert._x_limits)
    bins = len(net.columns)
    kept: list[int] = []
    columns = []
    for j, (column, edges) in enumerate(zip(net.columns, expert._edges, strict=True)):
        own = [j, *range(bins, bins + (len(edges) - 1 if len(edges) > 2 else 0))]
        bins += len(own) - 1
        at = fixed(column)
        if at is not None:
            row = np.full((1, len(net.columns)), np.nan)
            row[0, j] = np.clip(at, low[j], high[j])
            bias = bias + expert._inputs(row)[0][own] @ first[own]
            continue
        columns.append(
            {
                "source": column.source,
                "kind": column.kind,
                "code": column.code,
                "fill": None if np.isnan(column.fill) else column.fill,
                "mean": column.mean,
                "scale": column.scale,
                "low": float(low[j]),
                "high": float(high[j]),
                "input": len(kept),
                "bins": len(kept) + 1,
                "edges": edges.tolist() if len(own) > 1 else [],
            }
        )
        kept += own
    return {
        "columns": columns,
        "knots": packed(expert._u),
        "width": expert.width,
        "first": packed(first[kept], single=True),
        "bias": packed(bias, single=True),
        "layers": [
            {"weight": packed(w, single=True), "bias": packed(b, single=True)}
            for w, b in zip(weights[1:], biases[1:], strict=True)
        ],
        "head": packed(head, single=True),
    }


def layers_of(module: Any) -> tuple[list[tuple[Array, Array]], Any, Any]:
    """Weights, shape (inputs, outputs), and biases of the hidden layers, the head and the skip."""
    hidden = list(zip(*_folded(module.body), strict=True))
    return hidden, _arrays(module.head), _arrays(module.skip)


def _arrays(layer: Any) -> tuple[Array, Array]:
    weight, bias = (p.detach().double().numpy() for p in (layer.weight, layer.bias))
    return weight[0], bias[0, 0]


def _folded(body: Any) -> tuple[list[Array], list[Array]]:
    """Weights and biases of the hidden layers, each with the batch norm that follows it."""
    weights: list[Array] = []
    biases: list[Array] = []
    for layer in body:
        if hasattr(layer, "affine"):
            factor, constant = (
                part.detach().double().numpy()[0, 0] for part in layer.affine(layer.mean, layer.var)
            )
            weights[-1], biases[-1] = weights[-1] * factor, biases[-1] * factor + constant
        elif hasattr(layer, "weight"):
            weight, bias = _arrays(layer)
            weights.append(weight)
            biases.append(bias)
    return weights, biases


def _reference(marginal: Any, space: TargetSpace) -> dict[str, Any]:
    """The law of y alone, log-linear between knots, and the map from its units to those of y."""
    law = getattr(marginal, "_law", None)
    if isinstance(law, LogLinear):
        knots, value = law.knots[0], law.value[0]
    else:
        knots = np.unique(marginal.ppf(inner_probabilities(np.linspace(0, 1, _LEVELS))))
        value = marginal.logpdf(knots)
    kept = _needed(knots, value)
    bounds = None
    if space.bounds is not None:
        names = ("low", "high", "scale", "nearest", "knee")
        found = {name: float(getattr(space.bounds, name)) for name in names}
        bounds = {name: v if np.isfinite(v) else None for name, v in found.items()}
    return {
        "knots": packed(knots[kept]),
        "value": packed(value[kept]),
        "location": float(space.location),
        "scale": float(space.scale),
        "bounds": bounds,
    }


def _needed(knots: Array, value: Array) -> NDArray[np.intp]:
    """Knots without which the line through the others would be off."""
    kept = np.arange(len(knots))
    for _ in range(12):
        # Every other knot, if it lies on the line through its neighbours.
        inner = np.arange(1, len(kept) - 1, 2)
        if len(inner) == 0:
            break
        left, middle, right = knots[kept[inner - 1]], knots[kept[inner]], knots[kept[inner + 1]]
        part = (middle - left) / (right - left)
        line = value[kept[inner - 1]] * (1 - part) + value[kept[inner + 1]] * part
        drop = inner[np.abs(line - value[kept[inner]]) < _EXACT]
        if len(drop) == 0:
            break
        kept = np.delete(kept, drop)
    return kept
