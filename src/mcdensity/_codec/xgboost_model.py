"""Models of xgboost from a file: xgboost follows their indices without looking.

What xgboost reads is written here, of parts that were checked: an entry that is not known does not
reach it.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from mcdensity._codec.archive import ModelFileError, expect
from mcdensity._codec.trees import check_children, check_range, require_that
from mcdensity._codec.ubjson import read_ubjson, write_ubjson

__all__ = ["checked_xgboost"]

_OBJECTIVES = re.compile(r"(reg|binary|count|multi|rank|survival):[a-z0-9_]{1,30}")
_COUNT = re.compile(r"[0-9]{1,9}")
_INTEGERS = ("left_children", "right_children", "parents", "split_indices")
_FLOATS = ("loss_changes", "split_conditions", "sum_hessian")
_FLAGS = ("default_left", "split_type")
_EMPTY = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
# How xgboost marks nodes that were pruned, and the parent of the root.
_NONE = 2**31 - 1


def checked_xgboost(data: bytes) -> bytes:
    """Return a model that xgboost can read without harm, or refuse it."""
    model = expect(read_ubjson(data), dict)
    learner = expect(model["learner"], dict)
    said = {k: _text(v) for k, v in expect(learner["learner_model_param"], dict).items()}
    width, classes = _count(said["num_feature"]), _count(said.get("num_class", "0"))
    groups = max(1, classes, _count(said.get("num_target", "1")))
    scores = [float(part) for part in said["base_score"].strip("[]").split(",")]
    if not all(math.isfinite(score) for score in scores) or len(scores) not in (1, groups):
        raise ModelFileError("a booster has base scores that are missing or not finite.")
    objective = expect(learner["objective"], dict)
    if not _OBJECTIVES.fullmatch(_text(objective["name"])):
        raise ModelFileError("a booster has an unknown objective.")
    names = expect(learner.get("feature_names", []), list)
    kinds = expect(learner.get("feature_types", []), list)
    if len(names) not in (0, width) or len(kinds) not in (0, width):
        raise ModelFileError("a booster has another number of names than of features.")
    version = [int(part) for part in model["version"]]
    out = {
        "attributes": {k: _text(v) for k, v in expect(learner["attributes"], dict).items()},
        "feature_names": [_text(name) for name in names],
        "feature_types": [_text(kind) for kind in kinds],
        "gradient_booster": _booster(learner["gradient_booster"], width, groups),
        "learner_model_param": said,
        "objective": {k: _flat(v) for k, v in objective.items()},
    }
    return write_ubjson({"learner": out, "version": version})


def _booster(booster: Any, width: int, groups: int) -> dict[str, Any]:
    name = expect(booster, dict)["name"]
    if name == "gblinear":
        model = expect(booster["model"], dict)
        weights = _numbers(model["weights"], (width + 1) * groups, ">f4")
        if not np.isfinite(weights).all():
            raise ModelFileError("a booster has weights that are not finite.")
        rounds = int(model.get("boosted_rounds", 0))
        return {"name": name, "model": {"boosted_rounds": rounds, "weights": weights.tolist()}}
    if name == "dart":
        inner = _booster(booster["gbtree"], width, groups)
        drop = _numbers(booster["weight_drop"], len(inner["model"]["trees"]), ">f4")
        if inner["name"] != "gbtree" or not np.isfinite(drop).all():
            raise ModelFileError("a booster has weights that are not finite.")
        return {"gbtree": inner, "name": name, "weight_drop": drop.tolist()}
    if name != "gbtree":
        raise ModelFileError("a booster is of an unknown kind.")
    model = expect(booster["model"], dict)
    trees = [_tree(tree, i, width, groups) for i, tree in enumerate(expect(model["trees"], list))]
    if len({tree["tree_param"].get("size_leaf_vector") for tree in trees}) > 1:
        raise ModelFileError("a booster has trees with and without several outputs.")
    if trees and "leaf_weights" in trees[0]:
        groups = 1  # each of the trees is for all outputs
    said = {k: _text(v) for k, v in expect(model["gbtree_model_param"], dict).items()}
    if not trees or _count(said["num_trees"]) != len(trees):
        raise ModelFileError("a booster has another number of trees than it says.")
    # The number of trees in each round; 0 in files of earlier versions.
    parallel = _count(said.get("num_parallel_tree", "1"))
    if parallel * groups > len(trees):
        raise ModelFileError("a booster claims more trees in a round than it has.")
    group = _numbers(model["tree_info"], len(trees), ">i4")
    check_range(group, 0, groups, "a class")
    out: dict[str, Any] = {"gbtree_model_param": said, "tree_info": group.tolist(), "trees": trees}
    if "iteration_indptr" in model:
        starts = np.asarray(model["iteration_indptr"])
        ordered = starts.dtype.kind in "iu" and starts.ndim == 1 and len(starts) > 1
        if not ordered or starts[0] != 0 or starts[-1] != len(trees) or (np.diff(starts) < 0).any():
            raise ModelFileError("a booster has rounds that do not fit to its trees.")
        out["iteration_indptr"] = starts.tolist()
    if "cats" in model:
        empty = np.empty(0, ">i4")
        if any(len(part) for part in expect(model["cats"], dict).values()):
            raise ModelFileError("a booster has categories.")
        out["cats"] = {"enc": [], "feature_segments": empty, "sorted_idx": empty}
    return {"model": dict(sorted(out.items())), "name": name}


def _tree(tree: Any, number: int, width: int, groups: int) -> dict[str, Any]:
    said = {k: _text(v) for k, v in expect(expect(tree, dict)["tree_param"], dict).items()}
    n = _count(said["num_nodes"])
    require_that(n > 0 and _count(said["num_feature"]) == width, "has impossible sizes")
    outputs = max(1, _count(said.get("size_leaf_vector", "1")))
    require_that(outputs in (1, groups), "has another number of outputs than its learner")
    out: dict[str, Any] = {name: _numbers(tree[name], n, ">i4") for name in _INTEGERS}
    out |= {name: _numbers(tree[name], n, ">f4") for name in _FLOATS if name in tree}
    out["base_weights"] = _numbers(tree["base_weights"], n * outputs, ">f4")
    out |= {name: _numbers(tree[name], n, "u1") for name in _FLAGS if name in tree}
    left, right, parent = out["left_children"], out["right_children"], out["parents"]
    inner = left != -1
    if outputs == 1:
        require_that(np.array_equal(inner, right != -1), "has a node with one child")
    else:  # the right child of a leaf says where its values are
        leaves = int((~inner).sum())
        check_range(right[~inner], 0, leaves, "leaves")
        out["leaf_weights"] = _numbers(tree["leaf_weights"], leaves * outputs, ">f4")
        require_that(np.isfinite(out["leaf_weights"]).all(), "has values that are not finite")
    check_children(np.concatenate([left[inner], right[inner]]).astype(np.intp), n)
    nodes = np.flatnonzero(inner)
    ordered = (parent[left[inner]] == nodes).all() and (parent[right[inner]] == nodes).all()
    require_that(ordered and parent[0] in (_NONE, -1), "has a child with another parent")
    split = out["split_indices"]
    check_range(split[inner], 0, width, "features")
    pruned = (split == _NONE) & ~inner
    require_that(((split >= 0) & (split < max(width, 1)) | pruned).all(), "has unknown features")
    require_that(_count(said["num_deleted"]) == pruned.sum(), "has other nodes than it says")
    values = out["split_conditions"]
    require_that(np.isfinite(values[~inner & ~pruned]).all(), "has values that are not finite")
    require_that(not np.isnan(values[inner]).any(), "has thresholds that are no numbers")
    require_that((out["default_left"] <= 1).all(), "has an impossible default")
    require_that(not out.get("split_type", np.zeros(1)).any(), "splits by categories")
    for name in _EMPTY:
        if name in tree:
            require_that(len(tree[name]) == 0, "splits by categories")
            out[name] = np.empty(0, ">i8" if name in _EMPTY[2:] else ">i4")
    out["id"], out["tree_param"] = number, said
    return dict(sorted(out.items()))


def _numbers(values: Any, length: int, kind: str) -> Any:
    given = np.asarray(values)
    if given.shape != (length,) or (length and given.dtype.kind not in "iuf"):
        raise ModelFileError("a booster has arrays of other lengths than it says.")
    wanted = np.dtype(kind)
    if wanted.kind != "f" and length:
        limits = np.iinfo(wanted)
        whole = given.dtype.kind in "iu" and given.min() >= limits.min and given.max() <= limits.max
        if not whole:
            raise ModelFileError("a booster has indices that are none.")
    return given.astype(wanted)


def _count(text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise ModelFileError("a booster has a count that is none.")
    return int(text)


def _text(value: Any) -> str:
    return str(expect(value, str))


def _flat(value: Any) -> Any:
    """Return text, or a dict of text."""
    if isinstance(value, dict):
        return {k: _text(v) for k, v in value.items()}
    return _text(value)
