"""Distilled models as ONNX files, for programs without Python. Needs the extra `onnx`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from mcdensity._distilling import network_only
from mcdensity._files import write_file
from mcdensity._validation import require
from mcdensity.distribution.against import inner_probabilities
from mcdensity.explorer._controls import Column, Control, controls_of, scaled
from mcdensity.explorer._networks import layers_of
from mcdensity.tables import TableEstimator
from mcdensity.target import DiscreteSpace

__all__ = ["export_onnx"]

Array = NDArray[np.float64]

_OPSET, _IR = 17, 8
# Where neighbouring log-ratios differ by less than this, the mean of their exponential is a series.
_FLAT = 0.1


def export_onnx(model: Any, path: str | Path) -> dict[str, Any]:
    r"""Write a distilled model of one target as an ONNX file.

    The network takes standardised features, ``x`` of shape (n, columns). Of a continuous target it
    gives ``log_ratio``, :math:`\log f(y \mid x) / f_Y(y)` at knots of y: with ``log_marginal`` of
    the description, the density there is ``exp(log_ratio + log_marginal)``. Of a discrete target it
    gives ``masses``, the probabilities of the values; of a mixed one ``masses`` of the atoms and,
    last, of all other values, and ``log_ratio`` for these.

    Parameters
    ----------
    model : MCD or TableEstimator
        From `distill`. Where it uses trees, what is written is its network that needs none, with
        the larger loss in the description.
    path : str or Path
        The file to write, such as "model.onnx".

    Returns
    -------
    dict
        The description, which is also in the metadata of the file, as JSON under "mcdensity":
        `inputs` says what each column of ``x`` is: (value - mean) / scale of a feature, whether it
        is missing, or whether it is a certain text; `y`, `u` and `log_marginal` describe the knots,
        `values` those of ``masses``. Numbers that are infinite are null.
    """
    onnx = require("onnx", "onnx")
    path = Path(path)
    core = model.estimator_ if isinstance(model, TableEstimator) else model
    if not hasattr(core, "distill") or hasattr(core, "estimator_"):
        raise TypeError(f"model must be a distilled MCD, got {type(core).__name__}.")
    check_is_fitted(model)
    if not hasattr(core, "distill_loss_"):
        raise ValueError("model must be distilled first: export_onnx(model.distill(), path).")
    if hasattr(core, "links_"):
        raise ValueError(
            f"model has {len(core.links_)} targets; only models of one can be exported."
        )
    core = network_only(core)
    controls, columns = controls_of(model)
    inputs = scaled(core, columns)
    graph = _Graph(len(inputs))
    about: dict[str, Any] = {
        "target": getattr(model, "target_", None) or "y",
        "kind": core.target_kind_,
        "distill_loss": core.distill_loss_,
        "inputs": [_described(column, controls) for column in inputs],
    }
    if hasattr(core, "parts_"):
        labels = core.parts_[0]
        for part in core.parts_:
            about |= _add(graph, part, graph.standardized(part))
        order = [*np.delete(np.arange(len(core.atoms_) + 1), labels._no_atom), labels._no_atom]
        graph.reorder("masses", order)
        about["values"] = [*_plain(core.atoms_), None]
    else:
        about |= _add(graph, core, "x")
    proto = graph.model(onnx, about)
    write_file(path, proto.SerializeToString())
    return about


def _described(column: Column, controls: list[Control]) -> dict[str, Any]:
    control = controls[column.source]
    out = {"feature": control.name, "kind": column.kind, "mean": column.mean, "scale": column.scale}
    if column.kind == "is":
        out["text"] = control.options[column.code]
    elif column.kind == "value":
        out["fill"] = None if np.isnan(column.fill) else column.fill
    return out


def _plain(values: ArrayLike) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in np.asarray(values, dtype=float)]


def _add(graph: _Graph, model: Any, inputs: str) -> dict[str, Any]:
    """Add the network of a model of one kind, and describe what comes out."""
    expert = model.discriminator_
    ratio = graph.network(expert, inputs)
    space = model.target_space_
    if isinstance(space, DiscreteSpace):
        graph.masses(ratio, space.masses.masses_)
        return {"values": _plain(space.masses.values_)}
    graph.normalized(ratio, expert._u)
    z = model.marginal_.ppf(inner_probabilities(expert._u))
    w = space.location + space.scale * z
    y = w if space.bounds is None else space.bounds.backward(w)
    log_marginal = model.marginal_.logpdf(z) + space.log_jacobian(y)
    return {"u": _plain(expert._u), "y": _plain(y), "log_marginal": _plain(log_marginal)}


class _Graph:
    """The nodes and constants of an ONNX graph; each method adds some and names the result."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.outputs: dict[str, int] = {}

    def node(self, kind: str, *inputs: Any, name: str | None = None, **attributes: Any) -> str:
        """Add a node; inputs are names, or numbers that become constants."""
        given = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append((kind, given, name, attributes))
        return name

    def _constant(self, value: ArrayLike) -> str:
        array = np.asarray(value)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = array.astype(np.int64 if array.dtype.kind in "iu" else np.float32)
        return name

    def standardized(self, part: Any) -> str:
        """Standardise the inputs once more, as a part of a mixed model does."""
        mean, scale = (np.broadcast_to(v, self.width) for v in (part.x_mean_, part.x_scale_))
        return self.node("Div", self.node("Sub", "x", mean), scale)

    def network(self, expert: Any, x: str) -> str:
        """Add the network: log-ratios at the knots, up to a constant of the row."""
        low, high = (np.broadcast_to(end, self.width) for end in expert._x_limits)
        x = self.node("Min", self.node("Max", x, low), high)
        binned = [(j, edges) for j, edges in enumerate(expert._edges) if len(edges) > 2]
        if binned:
            source = np.concatenate([np.full(len(edges) - 1, j) for j, edges in binned])
            start = np.concatenate([edges[:-1] for _, edges in binned])
            width = np.concatenate([np.diff(edges) for _, edges in binned])
            part = self.node("Gather", x, source, axis=1)
            part = self.node("Div", self.node("Sub", part, start), width)
            part = self.node("Clip", part, 0.0, 1.0)
            x = self.node("Concat", x, part, axis=1)
        hidden, head, skip = layers_of(expert.module_)
        value = x
        for weight, bias in hidden:
            value = self._linear(value, weight, bias)
            value = self.node("Mul", value, self.node("Sigmoid", value))
        return self.node("Add", self._linear(value, *head), self._linear(x, *skip))

    def _linear(self, x: str, weight: Array, bias: Array) -> str:
        return self.node("Add", self.node("MatMul", x, weight), bias)

    def masses(self, ratio: str, mass: Array) -> None:
        """Add the probabilities of single values."""
        self.node("Softmax", self.node("Add", ratio, np.log(mass)), name="masses", axis=1)
        self.outputs["masses"] = len(mass)

    def reorder(self, output: str, order: list[Any]) -> None:
        """Put the columns of an output into another order."""
        kind, inputs, _, attributes = next(n for n in self.nodes if n[2] == output)
        place = next(i for i, n in enumerate(self.nodes) if n[2] == output)
        self.nodes[place] = (kind, inputs, f"{output}_before", attributes)
        self.node("Gather", f"{output}_before", np.asarray(order), name=output, axis=1)

    def normalized(self, ratio: str, u: Array) -> None:
        """Add log-ratios whose exponential, log-linear in u, has the integral 1."""
        count = len(u)
        top = self.node("ReduceMax", ratio, axes=[1], keepdims=1)
        value = self.node("Sub", ratio, top)
        size = self.node("Exp", value)
        left, right = np.arange(count - 1), np.arange(1, count)
        step = self.node(
            "Sub",
            self.node("Gather", value, right, axis=1),
            self.node("Gather", value, left, axis=1),
        )
        low = self.node("Gather", size, left, axis=1)
        high = self.node("Gather", size, right, axis=1)
        flat = self.node("Less", self.node("Abs", step), _FLAT)
        # The mean of exp over a cell: (exp(b) - exp(a)) / (b - a), or its series.
        divisor = self.node("Where", flat, 1.0, step)
        steep = self.node("Div", self.node("Sub", high, low), divisor)
        series: Any = 1 / 720
        for term in (1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0):
            series = self.node("Add", self.node("Mul", step, series), term)
        mean = self.node("Where", flat, self.node("Mul", low, series), steep)
        total = self.node("MatMul", mean, np.diff(u)[:, None])
        self.node("Sub", value, self.node("Log", total), name="log_ratio")
        self.outputs["log_ratio"] = count

    def model(self, onnx: Any, about: dict[str, Any]) -> Any:
        """Return the ONNX model, checked."""
        helper, numbers = onnx.helper, onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            [helper.make_node(kind, i, [name], **more) for kind, i, name, more in self.nodes],
            "mcdensity",
            [helper.make_tensor_value_info("x", numbers, ["rows", self.width])],
            [
                helper.make_tensor_value_info(name, numbers, ["rows", count])
                for name, count in self.outputs.items()
            ],
            [onnx.numpy_helper.from_array(v, name) for name, v in self.constants.items()],
        )
        opset = [helper.make_opsetid("", _OPSET)]
        out = helper.make_model(
            graph, producer_name="mcdensity", opset_imports=opset, ir_version=_IR
        )
        helper.set_model_props(out, {"mcdensity": json.dumps(about, allow_nan=False)})
        onnx.checker.check_model(out)
        return out
