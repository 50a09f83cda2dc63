"""Objects as JSON and binary members, and back: what model files are made of.

Only objects of the classes listed here are written and built; nothing that is read is ever run.
"""

from __future__ import annotations

import io
import math
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from mcdensity._validation import require

__all__ = ["ModelFileError", "Reader", "Writer", "check_archive", "read_member"]

# Limits for files that claim to be more than they are.
_MOST_MEMBERS = 10_000
_DEEPEST = 100

# The classes and functions of this package that a file may name.
_KNOWN = {
    "mcdensity.distribution.loglinear": ("LogLinear",),
    "mcdensity.baselines.deepcde": ("DeepCDE",),
    "mcdensity.baselines.flexcode": ("FlexCode",),
    "mcdensity.baselines.flow": ("NormalizingFlow",),
    "mcdensity.baselines.kmn": ("KMN", "_KernelNetwork"),
    "mcdensity.baselines.lscde": ("LSCDE",),
    "mcdensity.baselines.marginal": ("MarginalBaseline",),
    "mcdensity.baselines.mdn": ("MDN",),
    "mcdensity.baselines.nnkcde": ("NNKCDE",),
    "mcdensity.baselines.rfcde": ("RFCDE", "FunctionalRFCDE"),
    "mcdensity.discriminators.adapters": (
        "LearnerDiscriminator", "_catboost_logit", "_decision_logit", "_lightgbm_logit",
        "_probability_logit", "_regression_logit", "_xgboost_logit",
    ),
    "mcdensity.discriminators.auto": ("AutoDiscriminator", "_FoldExpert"),
    "mcdensity.discriminators.exact": ("ExactDiscriminator",),
    "mcdensity.discriminators.linear": ("QuadraticDiscriminator",),
    "mcdensity.discriminators.neural": ("NeuralDiscriminator",),
    "mcdensity.discriminators.trees": ("BoostingDiscriminator",),
    "mcdensity.marginals.adaptive": ("AdaptiveDensity",),
    "mcdensity.marginals.kde": ("KernelDensity",),
    "mcdensity.marginals.tailed": ("TailedDensity",),
    "mcdensity.mcd": ("MCD", "_TargetMap"),
    "mcdensity.networks.glu": ("glu",),
    "mcdensity.networks.layers": (
        "StackedBatchNorm", "StackedDropout", "StackedLinear", "StackedNetwork",
    ),
    "mcdensity.networks.mlp": ("mlp", "mlp_plain"),
    "mcdensity.networks.parameters": ("ParameterNetwork",),
    "mcdensity.networks.resnet": ("ResidualBlock", "resnet"),
    "mcdensity.networks.snn": ("snn",),
    "mcdensity.networks.towers": ("FlowTower", "MixtureTower", "NormalScores", "TwoTower"),
    "mcdensity.tables": ("TableEstimator", "TablePreparation"),
}  # fmt: skip
# Layers of torch that a network may be built of.
_LAYERS = (
    "AlphaDropout", "BatchNorm1d", "Dropout", "ELU", "Flatten", "GELU", "GLU", "Identity",
    "LayerNorm", "LeakyReLU", "Linear", "ReLU", "SELU", "Sequential", "SiLU", "Sigmoid",
    "Softplus", "Tanh",
)  # fmt: skip
# Parts of scikit-learn's learners that skops does not know to be harmless.
_TRUSTED = (
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.compose._column_transformer._RemainderColsList",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.metrics._dist_metrics.ManhattanDistance64",
    "sklearn.metrics._dist_metrics.MinkowskiDistance64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
)
_BOOSTING = {
    "xgboost": ("XGBClassifier", "XGBRegressor"),
    "lightgbm": ("LGBMClassifier", "LGBMRegressor"),
    "catboost": ("CatBoostClassifier", "CatBoostRegressor"),
}
_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


class ModelFileError(ValueError):
    """A file is no model file, is damaged, or holds what must not be loaded."""


def check_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse what could unpack to more than its size, or would name files elsewhere.

    Members are never compressed, so that a file never unpacks to more than its own size.
    """
    names = archive.namelist()
    if len(names) > _MOST_MEMBERS:
        raise ModelFileError(f"it has {len(names)} members, more than any model.")
    if len(set(names)) != len(names):
        raise ModelFileError("it has two members of the same name.")
    for info in archive.infolist():
        name = info.filename
        if not name or name.startswith(("/", "\\")) or ".." in name or ":" in name:
            raise ModelFileError(f"its member {name!r} points outside the file.")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ModelFileError(
                f"its member {name!r} is compressed; members of model files are not."
            )
    if sum(info.file_size for info in archive.infolist()) > size:
        raise ModelFileError("its members claim to be larger than the file is.")


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the bytes of a member, or say that it is damaged."""
    try:
        return archive.read(name)
    except (zipfile.BadZipFile, EOFError, ValueError, RuntimeError, OSError) as error:
        raise ModelFileError(f"its member {name!r} is damaged ({error}).") from error


# Objects to JSON and members, and back. A JSON object with the one key "$" is a tagged value.


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
        if type(value) is list and value and all(_is_sklearn(v) for v in value):
            return _tag("skops", self._member("skops", _skops_dumps(value, where)))
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
        name = _known_name(value if _is_function(value) else kind)
        if _is_function(value):
            if name is None:
                raise _unknown(where, f"the function {value.__module__}.{value.__qualname__}")
            return _tag("function", name)
        if _is_module(value):
            return self._network(value, where)
        if name is not None:
            # What an object leaves out of its own state, such as a cache, is not saved either.
            own = value.__getstate__() if "__getstate__" in vars(kind) else vars(value)
            state = {k: self.encode(v, f"{where}.{k}") for k, v in own.items()}
            return _tag("object", {"class": name, "state": state})
        family = kind.__module__.split(".")[0]
        if kind.__name__ in _BOOSTING.get(family, ()):
            return self._booster(value, family, where)
        if _is_sklearn(value):
            return _tag("skops", self._member("skops", _skops_dumps(value, where)))
        raise _unknown(where, f"the class {kind.__module__}.{kind.__qualname__}")

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
        name = _known_name(type(module))
        if name is None:
            cls = type(module)
            raise _unknown(where, f"the torch module {cls.__module__}.{cls.__qualname__}")
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
        data: bytes | None = None
        if family == "xgboost" and learner.__sklearn_is_fitted__():
            data = bytes(learner.get_booster().save_raw("ubj"))
        elif family == "lightgbm" and learner.__sklearn_is_fitted__():
            data = learner.booster_.model_to_string(num_iteration=-1).encode()
        elif family == "catboost" and learner.is_fitted():
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "model.cbm"
                learner.save_model(str(file))
                data = file.read_bytes()
        suffix = {"xgboost": "ubj", "lightgbm": "txt", "catboost": "cbm"}[family]
        out["model"] = None if data is None else self._member(suffix, data)
        return _tag("booster", out)


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
            "skops": lambda v: _skops_loads(self._member(v)),
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
        return _read_array(self._member(name))

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
        if not isinstance(cls, type) or _is_module_class(cls):
            raise ModelFileError(f"its content names {value['class']!r} where a class belongs.")
        out: Any = object.__new__(cls)
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
        if not _is_module_class(cls):
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
        if name not in _BOOSTING.get(family, ()):
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


def _tag(kind: str, value: Any) -> dict[str, Any]:
    return {"$": kind, "value": value}


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ModelFileError(f"its content has a {type(value).__name__} for a {kind.__name__}.")
    return value


def _unknown(where: str, what: str) -> TypeError:
    return TypeError(
        f"{where} is of {what}, which is not among those that a model file may hold. Use pickle or "
        "joblib.dump, where you trust who reads and writes the file."
    )


def _is_function(value: Any) -> bool:
    return callable(value) and hasattr(value, "__code__")


def _is_module_class(cls: Any) -> bool:
    torch = sys.modules.get("torch")  # nobody has a module without having imported torch
    return torch is not None and isinstance(cls, type) and issubclass(cls, torch.nn.Module)


def _is_module(value: Any) -> bool:
    return _is_module_class(type(value))


def _is_sklearn(value: Any) -> bool:
    return isinstance(value, BaseEstimator) and type(value).__module__.startswith("sklearn.")


def _known_name(value: Any) -> str | None:
    """Return the name of a class or function in a file, None for what is not known."""
    module, name = value.__module__, value.__qualname__
    if name in _KNOWN.get(module, ()):
        return f"{module}:{name}"
    if name in _LAYERS and module.startswith("torch.nn."):
        return f"torch.nn:{name}"
    return None


def _known(text: Any) -> Any:
    module, _, name = str(text).partition(":")
    known = _LAYERS if module == "torch.nn" else _KNOWN.get(module, ())
    if name not in known:
        raise ModelFileError(f"it holds {str(text)[:80]!r}, which this version does not know.")
    return getattr(import_module(module), name)


def _known_function(text: Any) -> Any:
    out = _known(text)
    if not _is_function(out):
        raise ModelFileError(f"its content names {text!r} where a function belongs.")
    return out


def _read_array(data: bytes) -> Any:
    """Read an .npy member; its header may not claim more than there is."""
    stream = io.BytesIO(data)
    shape, fortran, dtype = _array_header(stream)
    body = data[stream.tell() :]
    if dtype.kind == "V" or dtype.itemsize * math.prod(shape) != len(body):
        raise ModelFileError("an array has another size than its header says.")
    flat = np.frombuffer(body, dtype=dtype)
    return flat.reshape(shape, order="F" if fortran else "C").copy(order="K")


def _array_header(stream: io.BytesIO) -> tuple[tuple[int, ...], bool, Any]:
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(stream)
    except (ValueError, KeyError, SyntaxError) as error:
        raise ModelFileError(f"an array has a damaged header ({error}).") from error
    if dtype.hasobject or dtype.kind not in "biufcSUV":
        raise ModelFileError(f"an array holds {dtype}, not numbers or text.")
    return shape, fortran, dtype


def _skops_dumps(value: Any, where: str) -> bytes:
    skops = require("skops.io", "io")
    try:
        data = skops.dumps(value)
    except Exception as error:  # skops raises many kinds
        raise TypeError(f"{where} cannot be saved: {error}") from error
    unknown = [name for name in skops.get_untrusted_types(data=data) if name not in _TRUSTED]
    if unknown:
        raise _unknown(where, f"the class {', '.join(unknown)}")
    return data


def _skops_loads(data: bytes) -> Any:
    skops = require("skops.io", "io")
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError) as error:
        raise ModelFileError(f"a learner is damaged ({error}).") from error
    with archive:
        check_archive(archive, len(data))
        for name in archive.namelist():
            if name.endswith(".npy"):
                content = read_member(archive, name)
                stream = io.BytesIO(content)
                shape, _, dtype = _array_header(stream)
                if dtype.itemsize * math.prod(shape) > len(content):
                    raise ModelFileError("an array claims to be larger than it is.")
    unknown = [name for name in skops.get_untrusted_types(data=data) if name not in _TRUSTED]
    if unknown:
        raise ModelFileError(f"a learner holds {unknown[0]!r}, which is not allowed.")
    return skops.loads(data, trusted=list(_TRUSTED))
