"""Objects to JSON and members.

A JSON object with the two keys "$", a kind, and "value" stands for what JSON has no word for.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from scipy import sparse

from mcdensity._codec.boosters import dump_booster
from mcdensity._codec.kinds import BOOSTING, is_function, is_module, is_sklearn, unknown
from mcdensity._codec.learners import dump_learner
from mcdensity._known import name_of
from mcdensity._validation import require

__all__ = ["Writer"]


class Writer:
    """Turns objects into JSON, and arrays and learners into members."""

    def __init__(self) -> None:
        self.members: dict[str, bytes] = {}
        self._inside: set[int] = set()

    def _member(self, suffix: str, data: bytes) -> str:
        name = f"{len(self.members)}.{suffix}"
        self.members[name] = data
        return name

    def encode(self, value: Any, where: str) -> Any:
        """Return what stands for `value` in the JSON; `where` is for messages."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else _tag("float", str(value))
        if type(value) is list and value and all(is_sklearn(v) for v in value):
            return _tag("skops", self._member("skops", dump_learner(value, where)))
        if id(value) in self._inside:
            raise TypeError(f"{where} refers to itself; it cannot be saved.")
        self._inside.add(id(value))
        try:
            return self._encode(value, where)
        finally:
            self._inside.discard(id(value))

    def _encode(self, value: Any, where: str) -> Any:
        kind = type(value)
        if kind is list:
            return [self.encode(v, f"{where}[{i}]") for i, v in enumerate(value)]
        if kind is tuple:
            return _tag("tuple", self.encode(list(value), where))
        if kind is dict:
            items = [
                [self.encode(k, where), self.encode(v, f"{where}[{k!r}]")] for k, v in value.items()
            ]
            return _tag("dict", items)
        if isinstance(value, np.generic):
            return _tag("scalar", self._array(np.asarray(value), where))
        if kind is np.ndarray:
            if value.dtype == object:
                if not all(type(v) is str for v in value.ravel()):
                    raise TypeError(f"{where} is an array of objects; it cannot be saved.")
                return _tag("strings", {"shape": list(value.shape), "values": list(value.ravel())})
            return _tag("array", self._array(value, where))
        if isinstance(value, np.random.Generator):
            return _tag("generator", self.encode(value.bit_generator.state, where))
        if isinstance(value, np.random.RandomState):
            return _tag("random_state", self.encode(value.get_state(legacy=False), where))
        if isinstance(value, sparse.csr_matrix):
            parts = {"data": value.data, "indices": value.indices, "indptr": value.indptr}
            return _tag("csr", self.encode(parts | {"shape": list(value.shape)}, where))
        name = name_of(value if is_function(value) else kind)
        if is_function(value):
            if name is None:
                raise unknown(where, f"the function {value.__module__}.{value.__qualname__}")
            return _tag("function", name)
        if is_module(value):
            return self._network(value, where)
        if name is not None:
            # What an object leaves out of its own state, such as a cache, is not saved either.
            own = value.__getstate__() if "__getstate__" in vars(kind) else vars(value)
            state = {k: self.encode(v, f"{where}.{k}") for k, v in own.items()}
            return _tag("object", {"class": name, "state": state})
        family = kind.__module__.split(".")[0]
        if kind.__name__ in BOOSTING.get(family, ()):
            return self._booster(value, family, where)
        if is_sklearn(value):
            return _tag("skops", self._member("skops", dump_learner(value, where)))
        raise unknown(where, f"the class {kind.__module__}.{kind.__qualname__}")

    def _array(self, value: Any, where: str) -> str:
        if value.dtype.kind not in "biufcSU":
            raise TypeError(f"{where} is an array of {value.dtype}; it cannot be saved.")
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.asarray(value), allow_pickle=False)
        return self._member("npy", buffer.getvalue())

    def _network(self, module: Any, where: str) -> Any:
        tensors: dict[str, Any] = {}
        tree = self._layer(module, where, "", tensors)
        save_tensors = require("safetensors.torch", "io").save
        data = save_tensors({k: v.detach().cpu().contiguous() for k, v in tensors.items()})
        return _tag("network", {"tensors": self._member("safetensors", data), "tree": tree})

    def _layer(self, module: Any, where: str, prefix: str, tensors: dict[str, Any]) -> Any:
        name = name_of(type(module))
        if name is None:
            cls = type(module)
            raise unknown(where, f"the torch module {cls.__module__}.{cls.__qualname__}")
        own = {"parameters": module._parameters, "buffers": module._buffers}
        for group in own.values():
            tensors |= {prefix + key: value for key, value in group.items() if value is not None}
        plain = {k: v for k, v in vars(module).items() if not k.startswith("_")}
        return {
            "class": name,
            "state": {k: self.encode(v, f"{where}.{k}") for k, v in plain.items()},
            **{
                kind: {key: value is not None for key, value in group.items()}
                for kind, group in own.items()
            },
            "layers": {
                key: self._layer(child, f"{where}.{key}", f"{prefix}{key}.", tensors)
                for key, child in module._modules.items()
                if child is not None
            },
        }

    def _booster(self, learner: Any, family: str, where: str) -> Any:
        parameters = {
            k: v for k, v in learner.get_params().items() if v is not None or family == "lightgbm"
        }
        out: dict[str, Any] = {"class": f"{family}:{type(learner).__name__}"}
        out["parameters"] = self.encode(parameters, where)
        member = dump_booster(learner, family, where)
        out["model"] = None if member is None else self._member(*member)
        return _tag("booster", out)


def _tag(kind: str, value: Any) -> dict[str, Any]:
    return {"$": kind, "value": value}
