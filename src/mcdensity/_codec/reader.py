"""JSON and members to objects; nothing that is read is ever run."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
from scipy import sparse

from mcdensity._codec.archive import ModelFileError
from mcdensity._codec.arrays import read_array
from mcdensity._codec.kinds import BOOSTING, is_function, is_module_class
from mcdensity._codec.learners import load_learner
from mcdensity._known import find
from mcdensity._validation import require

__all__ = ["Reader"]

# The models of the tests are at most 6 levels deep; Python itself ends at 1000.
_DEEPEST = 100
_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


class Reader:
    """Builds objects from JSON and members."""

    def __init__(self, members: dict[str, bytes]) -> None:
        self.members = members
        self._build: dict[str, Callable[[Any], Any]] = {
            "float": self._float,
            "tuple": lambda v: tuple(self.decode(_expect(v, list))),
            "dict": self._dict,
            "scalar": lambda v: self._array(v)[()],
            "strings": self._strings,
            "array": self._array,
            "generator": self._generator,
            "random_state": self._random_state,
            "csr": self._csr,
            "function": _known_function,
            "network": self._network,
            "object": self._object,
            "booster": self._booster,
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
            raise ModelFileError(f"its content names the member {str(name)[:60]!r}, which is not.")
        return self.members[name]

    def _float(self, value: Any) -> float:
        if value not in ("nan", "inf", "-inf"):
            raise ModelFileError("its content has a number that is none.")
        return float(value)

    def _dict(self, items: Any) -> dict[Any, Any]:
        return {self.decode(k): self.decode(v) for k, v in _expect(items, list)}

    def _strings(self, value: Any) -> Any:
        values = _expect(value["values"], list)
        if not all(isinstance(v, str) for v in values):
            raise ModelFileError("its content has an array of text with something else in it.")
        return np.array(values, dtype=object).reshape(value["shape"])

    def _array(self, name: Any) -> Any:
        return read_array(self._member(name))

    def _generator(self, value: Any) -> np.random.Generator:
        state = _expect(self.decode(value), dict)
        if state.get("bit_generator") not in _GENERATORS:
            raise ModelFileError("its content has an unknown random number generator.")
        bits = getattr(np.random, state["bit_generator"])(0)
        bits.state = state
        return np.random.Generator(bits)

    def _random_state(self, value: Any) -> np.random.RandomState:
        out = np.random.RandomState(0)
        out.set_state(_expect(self.decode(value), dict))
        return out

    def _csr(self, value: Any) -> Any:
        parts = _expect(self.decode(value), dict)
        matrix = sparse.csr_matrix(
            (parts["data"], parts["indices"], parts["indptr"]), shape=tuple(parts["shape"])
        )
        matrix.check_format(full_check=True)
        return matrix

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
        return out

    def _state(self, state: Any) -> dict[str, Any]:
        for key in _expect(state, dict):
            if not key.isidentifier() or key.startswith("__"):
                raise ModelFileError(f"its content sets the attribute {key[:60]!r}.")
        return {key: self.decode(v) for key, v in state.items()}

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
        for key, there in _expect(tree["parameters"], dict).items():
            tensor = nn.Parameter(tensors[prefix + key], requires_grad=False) if there else None
            module.register_parameter(key, tensor)
        for key, there in _expect(tree["buffers"], dict).items():
            module.register_buffer(key, tensors[prefix + key] if there else None)
        for key, child in _expect(tree["layers"], dict).items():
            module.add_module(key, self._layer(child, f"{prefix}{key}.", tensors, depth + 1))
        return module

    def _booster(self, value: Any) -> Any:
        family, _, name = str(value["class"]).partition(":")
        if name not in BOOSTING.get(family, ()):
            raise ModelFileError(f"its content names the learner {value['class']!r}.")
        library = require(family, "boosting")
        learner = getattr(library, name)(**_expect(self.decode(value["parameters"]), dict))
        if value["model"] is None:
            return learner
        data = self._member(value["model"])
        if family == "xgboost":
            learner.load_model(bytearray(data))
        elif family == "catboost":
            learner.load_model(blob=data)
        else:
            booster = library.Booster(model_str=data.decode())
            learner._Booster = booster
            learner.fitted_ = True
            learner._n_features = learner._n_features_in = booster.num_feature()
            if name == "LGBMClassifier":
                learner._classes, learner._n_classes = np.array([0, 1]), 2
        return learner


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ModelFileError(f"its content has a {type(value).__name__} for a {kind.__name__}.")
    return value


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
