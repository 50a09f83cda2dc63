"""Learners of scikit-learn as `.skops` members.

skops writes them. They are read here: each part is checked before it is built, which a list of
trusted classes, all that skops asks for, cannot do.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import scipy.special
from sklearn.base import BaseEstimator
from sklearn.utils import Bunch

from mcdensity._codec.archive import ModelFileError, check_archive, expect, read_member
from mcdensity._codec.arrays import read_array
from mcdensity._codec.kinds import unknown
from mcdensity._codec.states import generator_of, random_state_of, read_sparse
from mcdensity._codec.structure import check_learner, make_search_tree, make_tree, metric_of
from mcdensity._known import find
from mcdensity._validation import require

__all__ = ["dump_learner", "load_learner"]

# Versions of skops's format that are read.
_PROTOCOLS = (0, 1, 2)
# Packages whose learners predict by numpy alone, or by compiled code whose inputs are checked. Not
# among them: those that hand unchecked arrays to compiled code, such as clusterings.
_PACKAGES = (
    "calibration", "compose", "covariance", "cross_decomposition", "decomposition",
    "discriminant_analysis", "dummy", "ensemble", "feature_extraction", "feature_selection",
    "frozen", "gaussian_process", "impute", "isotonic", "kernel_approximation", "kernel_ridge",
    "linear_model", "mixture", "model_selection", "multiclass", "multioutput", "naive_bayes",
    "neighbors", "neural_network", "pipeline", "preprocessing", "random_projection", "svm", "tree",
)  # fmt: skip
_REFUSED = ("sklearn.ensemble._iforest", "sklearn.neighbors._lof")
# Parts of learners that are no estimators themselves.
_PARTS = {
    "sklearn._loss.link": (
        "HalfLogitLink", "IdentityLink", "Interval", "LogLink", "LogitLink", "MultinomialLogit",
    ),
    "sklearn._loss.loss": (
        "AbsoluteError", "ExponentialLoss", "HalfBinomialLoss", "HalfGammaLoss",
        "HalfMultinomialLoss", "HalfPoissonLoss", "HalfSquaredError", "HuberLoss", "PinballLoss",
    ),
    "sklearn.calibration": ("_CalibratedClassifier", "_SigmoidCalibration"),
    "sklearn.compose._column_transformer": ("_RemainderColsList",),
    "sklearn.ensemble._hist_gradient_boosting.binning": ("_BinMapper",),
    "sklearn.ensemble._hist_gradient_boosting.predictor": ("TreePredictor",),
    "sklearn.neighbors._ball_tree": ("BallTree",),
    "sklearn.neighbors._kd_tree": ("KDTree",),
    "sklearn.neural_network._stochastic_optimizers": ("AdamOptimizer", "SGDOptimizer"),
}  # fmt: skip
_LOSSES = {
    "sklearn._loss._loss": (
        "CyAbsoluteError", "CyExponentialLoss", "CyHalfBinomialLoss", "CyHalfGammaLoss",
        "CyHalfMultinomialLoss", "CyHalfPoissonLoss", "CyHalfSquaredError", "CyHalfTweedieLoss",
        "CyHalfTweedieLossIdentity", "CyHuberLoss", "CyPinballLoss",
    ),
    "sklearn.linear_model._sgd_fast": (
        "EpsilonInsensitive", "Hinge", "ModifiedHuber", "SquaredEpsilonInsensitive", "SquaredHinge",
    ),
}  # fmt: skip
_PLAIN_TYPES = {kind.__name__: kind for kind in (bool, dict, float, int, list, set, str, tuple)}
_MAPPINGS: dict[str, Any] = {"dict": dict, "OrderedDict": OrderedDict, "Bunch": Bunch}


def dump_learner(value: Any, where: str) -> bytes:
    skops = require("skops.io", "io")
    try:
        data = skops.dumps(value)
    except Exception as error:  # skops raises many kinds
        raise TypeError(f"{where} cannot be saved: {error}") from error
    try:
        load_learner(data)  # what could not be read again is not written
    except _UnknownError as error:
        raise unknown(where, f"the class {error.name}") from error
    except ModelFileError as error:
        raise TypeError(f"{where} cannot be saved: {error}") from error
    return bytes(data)


def load_learner(data: bytes) -> Any:
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise ModelFileError(f"a learner is damaged ({error}).") from error
    with archive:
        check_archive(archive, len(data))
        if "schema.json" not in archive.namelist():
            raise ModelFileError("a learner has no schema.json.")
        schema = expect(json.loads(read_member(archive, "schema.json")), dict)
        if schema.get("protocol") not in _PROTOCOLS:
            raise ModelFileError("a learner is written in a version of skops that is not known.")
        return _LearnerReader(archive).build(schema)


class _UnknownError(ModelFileError):
    """A learner holds a class that is not among those that may be built."""

    def __init__(self, name: str) -> None:
        self.name = name[:100]
        super().__init__(f"a learner holds {self.name!r}, which is not allowed.")


class _LearnerReader:
    """Builds what a schema of skops describes."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive, self._names = archive, set(archive.namelist())
        # What two nodes share is built once; so are members, lest a small one be read very often.
        self._built: dict[Any, Any] = {}
        self._members: dict[str, Any] = {}
        self._kinds: dict[str, Callable[[dict[str, Any]], Any]] = {
            "JsonNode": self._json,
            "ListNode": lambda node: self._items(node),
            "TupleNode": lambda node: tuple(self._items(node)),
            "SetNode": lambda node: set(self._items(node)),
            "DictNode": self._dict,
            "NdArrayNode": self._array,
            "MaskedArrayNode": lambda node: np.ma.MaskedArray(
                self.build(node["content"]["data"]), self.build(node["content"]["mask"])
            ),
            "DTypeNode": lambda node: expect(self.build(node["content"]), np.ndarray).dtype,
            "TypeNode": self._type,
            "FunctionNode": self._function,
            "SliceNode": self._slice,
            "RandomStateNode": lambda node: random_state_of(self.build(node["content"])),
            "RandomGeneratorNode": lambda node: generator_of(
                self.build(node["content"]["bit_generator"])
            ),
            "SparseMatrixNode": lambda node: self._member(node["file"], read_sparse),
            "TreeNode": self._tree,
            "LossNode": self._loss,
            "ObjectNode": self._object,
        }

    def build(self, node: Any) -> Any:
        """Return the object that a node of the schema stands for."""
        kind, number = expect(node, dict).get("__loader__"), node.get("__id__")
        if kind not in self._kinds:
            raise _UnknownError(_name(node))
        if type(number) is not int or kind == "JsonNode":
            return self._kinds[kind](node)
        if number not in self._built:
            self._built[number] = self._kinds[kind](node)
        return self._built[number]

    def _member(self, name: Any, read: Callable[[bytes], Any]) -> Any:
        if name not in self._members:
            if name not in self._names:
                raise ModelFileError("a learner names a member that is not.")
            self._members[name] = read(read_member(self._archive, name))
        return self._members[name]

    def _json(self, node: dict[str, Any]) -> Any:
        value = json.loads(node["content"])
        if isinstance(value, dict | list):
            raise ModelFileError("a learner has a list where a number belongs.")
        return value

    def _items(self, node: dict[str, Any]) -> list[Any]:
        if node["__class__"] not in _PLAIN_TYPES:
            raise _UnknownError(_name(node))
        return [self.build(item) for item in expect(node["content"], list)]

    def _dict(self, node: dict[str, Any]) -> Any:
        if node["__class__"] not in _MAPPINGS:
            raise _UnknownError(_name(node))
        kinds = expect(self.build(node["key_types"]), list)
        items = expect(node["content"], dict).items()
        pairs = zip(kinds, items, strict=True)
        out = _MAPPINGS[node["__class__"]]()
        out.update({kind(key): self.build(value) for kind, (key, value) in pairs})
        return out

    def _array(self, node: dict[str, Any]) -> Any:
        if node["type"] == "numpy":
            value = self._member(node["file"], lambda data: read_array(data, structured=True))
            if node["__class__"] == "ndarray":
                return value
            if value.shape != ():
                raise ModelFileError("a learner has an array where a number belongs.")
            return self._type(node)(value)
        shape = self.build(node["shape"])
        items: list[Any] = [self.build(item) for item in expect(node["content"], list)]
        for _ in shape[1:]:
            items = [inner for item in items for inner in expect(item, list)]
        if len(items) != math.prod(shape):
            raise ModelFileError("an array of a learner has another size than it says.")
        out = np.empty(len(items), dtype=object)
        for i, item in enumerate(items):
            out[i] = item
        return out.reshape(shape)

    def _type(self, node: dict[str, Any]) -> Any:
        name = node["__class__"]
        if node["__module__"] == "builtins" and name in _PLAIN_TYPES:
            return _PLAIN_TYPES[name]
        kind = getattr(np, str(name), None) if node["__module__"] == "numpy" else None
        if not isinstance(kind, type) or not issubclass(kind, np.generic):
            raise _UnknownError(_name(node))
        return kind

    def _function(self, node: dict[str, Any]) -> Any:
        library = scipy.special if str(node["__module__"]).startswith("scipy.special") else np
        function = getattr(library, str(node["__class__"]), None)
        if not isinstance(function, np.ufunc):
            raise _UnknownError(_name(node))
        return function

    def _slice(self, node: dict[str, Any]) -> slice:
        parts = [node["content"][name] for name in ("start", "stop", "step")]
        if not all(part is None or isinstance(part, int | str) for part in parts):
            raise ModelFileError("a learner has an impossible slice.")
        return slice(*parts)

    def _tree(self, node: dict[str, Any]) -> Any:
        return make_tree(self.build(node["__reduce__"]["args"]), self.build(node["content"]))

    def _loss(self, node: dict[str, Any]) -> Any:
        name, module = str(node["__class__"]), str(node["__module__"])
        module = "sklearn._loss._loss" if module == "_loss" else module
        if name not in _LOSSES.get(module, ()):
            raise _UnknownError(_name(node))
        arguments = self.build(node["__reduce__"]["args"]) or ()
        if not all(isinstance(value, int | float) for value in arguments):
            raise ModelFileError("a loss has parameters that are no numbers.")
        return getattr(import_module(module), name)(*arguments)

    def _object(self, node: dict[str, Any]) -> Any:
        module, name = str(node["__module__"]), str(node["__class__"])
        if module == "sklearn.metrics._dist_metrics":
            return metric_of(name, self.build(node["content"]))
        cls = _class_of(module, name)
        content = node.get("content")
        state = (None if content is None else self.build(content)) or {}
        if cls.__name__ in ("KDTree", "BallTree"):
            return make_search_tree(cls, expect(state, tuple))
        if any(not str(key).isidentifier() or key.startswith("__") for key in expect(state, dict)):
            raise ModelFileError("a learner has an attribute with an impossible name.")
        out: Any = cls.__new__(cls)
        if hasattr(out, "__setstate__"):
            out.__setstate__(dict(state))
        else:
            vars(out).update(state)
        check_learner(out)
        return out


def _class_of(module: str, name: str) -> Any:
    """Return a class of scikit-learn that may be built, or one that the user registered."""
    if name in _PARTS.get(module, ()):
        return getattr(import_module(module), name)
    parts = module.split(".")
    allowed = parts[0] == "sklearn" and len(parts) > 1 and parts[1] in _PACKAGES
    allowed = allowed and module not in _REFUSED and not {"tests", "conftest"} & set(parts)
    if allowed:
        try:
            cls = getattr(import_module(module), name, None)
        except ImportError:
            cls = None
        if isinstance(cls, type) and issubclass(cls, BaseEstimator) and cls.__module__ == module:
            return cls
    try:
        cls = find(f"{module}:{name}")
    except KeyError:
        raise _UnknownError(f"{module}.{name}") from None
    if not isinstance(cls, type):
        raise _UnknownError(f"{module}.{name}")
    return cls


def _name(node: dict[str, Any]) -> str:
    return f"{node.get('__module__')}.{node.get('__class__')}"
