"""Models of catboost from a file: its own JSON, of which only what is known is kept.

Its binary format cannot be checked. Files of earlier versions hold it: a child process with limits
turns it into JSON, so that whatever it does to catboost happens there.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mcdensity._codec.archive import ModelFileError, expect
from mcdensity._codec.trees import require_that

__all__ = ["checked_catboost", "dump_catboost", "load_catboost"]

_DEEPEST = 16  # as catboost itself
_NAN = ("AsIs", "AsFalse", "AsTrue")
# What the child may take: honest models of 10 MB were converted in 2 seconds with 350 MB.
_SECONDS, _MEMORY = 8, 1 << 30
_CONVERT = """
import sys
try:
    import resource
    seconds, memory = int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
except ImportError:
    pass
import catboost
model = catboost.CatBoost()
model.load_model(sys.argv[1] + "/model.cbm")
model.save_model(sys.argv[1] + "/model.json", format="json")
"""


def dump_catboost(learner: Any) -> bytes:
    """Return the JSON of a fitted learner, or say why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.json"
        learner.save_model(str(file), format="json")
        return json.dumps(checked_catboost(file.read_bytes())).encode()


def load_catboost(learner: Any, data: bytes, old: bool) -> None:
    """Let a learner take over a model; `old`: it is in catboost's binary format."""
    model = checked_catboost(_converted(data) if old else data)
    parameters = learner.get_params()
    # catboost reads decimal numbers only nearly right, and orders leaves in its own way: it is
    # given their numbers, and then, where it put these, their values.
    values: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.json"
        file.write_text(json.dumps(_numbered(model, values)))
        learner.load_model(str(file), format="json")
    order = np.asarray(learner.get_leaf_values()).round().astype(np.intp)
    learner.set_leaf_values(np.array(values)[order])
    scale, bias = model["scale_and_bias"]
    learner.set_scale_and_bias(scale, bias)
    learner._init_params = parameters
    learner._n_features_in = len(model["features_info"]["float_features"])


def checked_catboost(data: bytes) -> dict[str, Any]:
    """Return a model that catboost can read without harm, or refuse it."""
    given = expect(json.loads(data), dict)
    features = [
        _feature(feature, i)
        for i, feature in enumerate(expect(given["features_info"]["float_features"], list))
    ]
    if len(given["features_info"]) != 1 or given.get("ctr_data"):
        raise ModelFileError("a booster has features that are no numbers.")
    places = {
        (i, border): (i, k)
        for i, feature in enumerate(features)
        for k, border in enumerate(feature["borders"])
    }
    numbers = {place: number for number, place in enumerate(places.values())}
    scale, bias = expect(given["scale_and_bias"], list)
    out: dict[str, Any] = {"features_info": {"float_features": features}}
    out["scale_and_bias"] = [_finite(scale), [_finite(value) for value in expect(bias, list)]]
    if len(bias) != 1:
        raise ModelFileError("a booster has several outputs.")

    def split(value: Any) -> dict[str, Any]:
        index, border = expect(value, dict).get("float_feature_index"), value.get("border")
        require_that(value.get("split_type") == "FloatFeature", "splits by an unknown feature")
        require_that(type(index) is int and (index, border) in places, "has an unknown split")
        number = numbers[places[index, border]]
        require_that(value.get("split_index") == number, "has a split out of order")
        return {
            "border": border, "float_feature_index": index, "split_index": number,
            "split_type": "FloatFeature",
        }  # fmt: skip

    def nested(tree: Any, depth: int) -> dict[str, Any]:
        require_that(depth <= 100, "is deeper than any")
        if "split" not in expect(tree, dict):
            return {"value": _finite(tree["value"]), "weight": _finite(tree.get("weight", 0))}
        sides = {side: nested(tree[side], depth + 1) for side in ("left", "right")}
        return {**sides, "split": split(tree["split"])}

    if "trees" in given:
        out["trees"] = [nested(tree, 0) for tree in expect(given["trees"], list)]
    else:
        trees = expect(given["oblivious_trees"], list)
        out["oblivious_trees"] = [_oblivious(tree, split) for tree in trees]
    out["model_info"] = _info(expect(given.get("model_info", {}), dict))
    return out


def _feature(feature: Any, number: int) -> dict[str, Any]:
    borders = [_finite(border) for border in expect(expect(feature, dict)["borders"], list)]
    ordered = all(a < b for a, b in pairwise(borders))
    placed = feature["feature_index"] == feature["flat_feature_index"] == number
    if not ordered or not placed or feature["nan_value_treatment"] not in _NAN:
        raise ModelFileError("a booster has features out of order.")
    if len(borders) > 65535:
        raise ModelFileError("a booster has more borders than catboost knows.")
    return {
        "borders": borders,
        "feature_id": str(expect(feature.get("feature_id", ""), str)),
        "feature_index": number,
        "flat_feature_index": number,
        "has_nans": bool(feature["has_nans"]),
        "nan_value_treatment": feature["nan_value_treatment"],
    }


def _oblivious(tree: Any, split: Any) -> dict[str, Any]:
    splits = [split(value) for value in expect(expect(tree, dict)["splits"] or [], list)]
    values = [_finite(value) for value in expect(tree["leaf_values"], list)]
    require_that(len(splits) <= _DEEPEST, "is deeper than catboost's")
    require_that(len(values) == 2 ** len(splits), "has another number of leaves than its splits")
    out = {"leaf_values": values, "splits": splits}
    weights = tree.get("leaf_weights")
    if weights:
        require_that(len(weights) == len(values), "has another number of weights than leaves")
        out["leaf_weights"] = [_finite(weight) for weight in weights]
    return out


def _info(info: dict[str, Any]) -> dict[str, Any]:
    """Keep the classes, which are the numbers 0 and 1 here, and the name of the loss."""
    loss = info.get("params", {}).get("loss_function", {})
    name = loss.get("type", "RMSE")
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z]{1,40}", name):
        raise ModelFileError("a booster has an unknown loss.")
    out: dict[str, Any] = {
        "params": {"loss_function": {"type": name, "params": {}}, "flat_params": {}}
    }
    if "class_params" in info:
        given = expect(info["class_params"], dict)
        names = given.get("class_names")
        if names not in ([], [0, 1]) or given.get("class_to_label") != [0, 1]:
            raise ModelFileError("a booster has other classes than 0 and 1.")
        out["class_params"] = {
            "class_label_type": "Integer", "class_names": names, "class_to_label": [0, 1],
            "classes_count": 0,
        }  # fmt: skip
    return out


def _numbered(model: dict[str, Any], values: list[float]) -> dict[str, Any]:
    """Return the model with the numbers of its leaves in the place of their values."""

    def number(value: float) -> int:
        values.append(value)
        return len(values) - 1

    def nested(tree: dict[str, Any]) -> dict[str, Any]:
        if "split" not in tree:
            return {**tree, "value": number(tree["value"])}
        return {**tree, "left": nested(tree["left"]), "right": nested(tree["right"])}

    if "trees" in model:
        return {**model, "trees": [nested(tree) for tree in model["trees"]]}
    trees = [
        {**tree, "leaf_values": [number(value) for value in tree["leaf_values"]]}
        for tree in model["oblivious_trees"]
    ]
    return {**model, "oblivious_trees": trees}


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ModelFileError("a booster has numbers that are not finite.")
    if abs(value) > 1e100:
        raise ModelFileError("a booster has numbers beyond all measure.")
    return value


def _converted(data: bytes) -> bytes:
    """Return the JSON of catboost's binary format, made by a child process with limits."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.cbm").write_bytes(data)
        seconds = _SECONDS + len(data) // 2_000_000
        limits = [str(seconds), str(_MEMORY + 40 * len(data))]
        path = os.pathsep.join(part for part in sys.path if part)
        try:
            done = subprocess.run(
                [sys.executable, "-c", _CONVERT, folder, *limits],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ModelFileError("a model of catboost could not be read in time.") from None
        file = Path(folder) / "model.json"
        if done.returncode != 0 or not file.exists():
            raise ModelFileError("a model of catboost is damaged.")
        return file.read_bytes()
