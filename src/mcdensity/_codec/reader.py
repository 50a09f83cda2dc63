"""JSON and members to objects; nothing that is read is ever run."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np

from mcdensity._codec.archive import ModelFileError, expect
from mcdensity._codec.arrays import read_array
from mcdensity._codec.boosters import load_booster
from mcdensity._codec.kinds import is_function, is_module_class
from mcdensity._codec.learners import load_learner
from mcdensity._codec.states import generator_of, matrix_of, random_state_of
from mcdensity._codec.structure import check_learner, check_workers
from mcdensity._known import find
from mcdensity._validation import require

__all__ = ["Reader"]

# The models of the tests are at most 6 levels deep; Python itself ends at 1000.
_DEEPEST = 100


class Reader:
    """Builds objects from JSON and members."""

    def __init__(self, members: dict[str, bytes]) -> None:
        self.members = dict(members)
        self._build: dict[str, Callable[[Any], Any]] = {
            "float": self._float,
            "tuple": lambda v: tuple(self.decode(expect(v, list))),
            "dict": self._dict,
            "scalar": lambda v: self._array(v)[()],
            "strings": self._strings,
            "array": self._array,
            "generator": lambda v: generator_of(self.decode(v)),
            "random_state": lambda v: random_state_of(self.decode(v)),
            "csr": lambda v: matrix_of("csr", expect(self.decode(v), dict)),
            "function": _known_function,
            "network": self._network,
            "object": self._object,
            "booster": lambda v: load_booster(v, self.decode, self._member),
            "skops": lambda v: load_learner(self._member(v)),
        }
        self._depth = 0

    def decode(self, value: Any) -> Any:
        """Return the object that JSON stands for."""
        if isinstance(value, list):
            return [self.decode(v) for v in value]
        if not isinstance(value, dict):
            return value
        if set(value) != {"$", "value"} or value["$"] not in self._build:
            raise ModelFileError(f"its content has an unknown entry {str(value)[:60]!r}.")
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ModelFileError("its content is nested deeper than any model.")
        try:
            return self._build[value["$"]](value["value"])
        finally:
            self._depth -= 1

    def _member(self, name: Any) -> bytes:
        if not isinstance(name, str) or name not in self.members:
            raise ModelFileError(
                f"its content names the member {str(name)[:60]!r}, which is not there or was used."
            )
        # Each is used once: a small file cannot ask for the same array again and again.
        return self.members.pop(name)

    def _float(self, value: Any) -> float:
        if value not in ("nan", "inf", "-inf"):
            raise ModelFileError("its content has a number that is none.")
        return float(value)

    def _dict(self, items: Any) -> dict[Any, Any]:
        return {self.decode(k): self.decode(v) for k, v in expect(items, list)}

    def _strings(self, value: Any) -> Any:
        values = expect(value["values"], list)
        if not all(isinstance(v, str) for v in values):
            raise ModelFileError("its content has an array of text with something else in it.")
        return np.array(values, dtype=object).reshape(value["shape"])

    def _array(self, name: Any) -> Any:
        return read_array(self._member(name))

    def _object(self, value: Any) -> Any:
        cls = _known(value["class"])
        if not isinstance(cls, type) or is_module_class(cls):
            raise ModelFileError(f"its content names {value['class']!r} where a class belongs.")
        out: Any = object.__new__(cls)
        if hasattr(cls, "_get_param_names"):
            # Parameters that the version that wrote the file did not have.
            parameters = signature(cls).parameters
            vars(out).update({n: parameters[n].default for n in cls._get_param_names()})
        vars(out).update(self._state(value["state"]))
        if not cls.__module__.startswith("mcdensity."):
            check_learner(out)  # a class that the user registered may be a kind of forest
        return out

    def _state(self, state: Any) -> dict[str, Any]:
        for key in expect(state, dict):
            if not key.isidentifier() or key.startswith("__"):
                raise ModelFileError(f"its content sets the attribute {key[:60]!r}.")
        out = {key: self.decode(v) for key, v in state.items()}
        for key, value in out.items():
            check_workers(key, value)
        return out

    def _network(self, value: Any) -> Any:
        load_tensors = require("safetensors.torch", "io").load
        tensors = load_tensors(self._member(value["tensors"]))
        return self._layer(value["tree"], "", tensors, 0)

    def _layer(self, tree: Any, prefix: str, tensors: dict[str, Any], depth: int) -> Any:
        from torch import nn

        if depth > _DEEPEST:
            raise ModelFileError("its network is nested deeper than any model's.")
        cls = _known(tree["class"])
        if not is_module_class(cls):
            raise ModelFileError(f"its content names {tree['class']!r} where a layer belongs.")
        module = cls.__new__(cls)
        nn.Module.__init__(module)
        for key, value in self._state(tree["state"]).items():
            if key.startswith("_"):
                raise ModelFileError(f"its content sets the attribute {key[:60]!r}.")
            vars(module)[key] = value
        for key, there in expect(tree["parameters"], dict).items():
            tensor = nn.Parameter(tensors[prefix + key], requires_grad=False) if there else None
            module.register_parameter(key, tensor)
        for key, there in expect(tree["buffers"], dict).items():
            module.register_buffer(key, tensors[prefix + key] if there else None)
        for key, child in expect(tree["layers"], dict).items():
            module.add_module(key, self._layer(child, f"{prefix}{key}.", tensors, depth + 1))
        return module


def _known(text: Any) -> Any:
    try:
        return find(str(text))
    except KeyError:
        raise ModelFileError(
            f"it holds {str(text)[:80]!r}, which this version does not know. If it is your own, "
            "register it with mcdensity.persistence.storable before loading."
        ) from None


def _known_function(text: Any) -> Any:
    out = _known(text)
    if not is_function(out):
        raise ModelFileError(f"its content names {text!r} where a function belongs.")
    return out
