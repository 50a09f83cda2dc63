"""Models of lightgbm from a file: their text is checked, and only what is known of it is kept."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from mcdensity._codec.archive import ModelFileError
from mcdensity._codec.trees import check_children, check_range, require_that

__all__ = ["checked_lightgbm"]

_NUMBER = r"[+-]?[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,3})?"
_NUMBERS = re.compile(rf"{_NUMBER}(?: {_NUMBER})*")
_OBJECTIVE = re.compile(rf"([a-z_0-9]{{1,30}})(?: [a-z_]{{1,30}}:{_NUMBER})*(?: sqrt)?")
_INFO = re.compile(rf"none|\[(?:{_NUMBER}|-?inf):(?:{_NUMBER}|-?inf)\]|[0-9:-]{{1,10000}}")
_NAME = re.compile(r"\S{1,1000}")
_VERSIONS = ("v3", "v4")
# Entries of a tree that have a number for each split, and for each leaf.
_OF_SPLITS = (
    "split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child",
    "internal_value", "internal_weight", "internal_count",
)  # fmt: skip
_OF_LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
_INTEGERS = ("split_feature", "decision_type", "left_child", "right_child")
_NEEDED = ("split_feature", "threshold", "decision_type", "left_child", "right_child")


def checked_lightgbm(data: bytes) -> str:
    """Return the text of a model that lightgbm can read without harm, or refuse it."""
    try:
        text = data.decode("ascii").replace("\r", "")
    except UnicodeDecodeError:
        text = data.decode().replace("\r", "")
    head, *blocks = re.split(r"^Tree=", text.split("\nend of trees")[0], flags=re.MULTILINE)
    entries = _entries(head)
    width = _integer(entries, "max_feature_idx") + 1
    groups = _integer(entries, "num_class")
    if width < 1 or groups < 1 or _integer(entries, "num_tree_per_iteration") != groups:
        raise ModelFileError("a booster has impossible sizes.")
    if not blocks or len(blocks) % groups:
        raise ModelFileError("a booster has another number of trees than it says.")
    lines = ["tree", f"version={_one_of(entries, 'version', _VERSIONS)}", f"num_class={groups}"]
    lines += [f"num_tree_per_iteration={groups}", "label_index=0", f"max_feature_idx={width - 1}"]
    if "objective" in entries:
        lines.append(f"objective={_objective(entries['objective'], groups)}")
    if "average_output" in entries:
        lines.append("average_output")
    for name, pattern in (("feature_names", _NAME), ("feature_infos", _INFO)):
        words = entries.get(name, "").split(" ")
        if len(words) != width or not all(pattern.fullmatch(word) for word in words):
            raise ModelFileError(f"a booster has wrong {name}.")
        lines.append(f"{name}={' '.join(words)}")
    trees = [f"Tree={i}\n{_tree(block, width)}\n\n" for i, block in enumerate(blocks)]
    lines.append("tree_sizes=" + " ".join(str(len(tree)) for tree in trees))
    return "\n".join(lines) + "\n\n" + "".join(trees) + "end of trees\n\n"


def _entries(text: str) -> dict[str, str]:
    out: dict[str, str] = {}
    for line in text.split("\n"):
        name, _, value = line.partition("=")
        if name and name in out:
            raise ModelFileError("a booster has two entries of the same name.")
        out[name] = value
    return out


def _integer(entries: dict[str, str], name: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", entries.get(name, "")):
        raise ModelFileError(f"a booster has no proper {name}.")
    return int(entries[name])


def _one_of(entries: dict[str, str], name: str, values: tuple[str, ...]) -> str:
    if entries.get(name) not in values:
        raise ModelFileError(f"a booster has an unknown {name}.")
    return entries[name]


def _objective(text: str, groups: int) -> str:
    found = _OBJECTIVE.fullmatch(text)
    classes = re.search(r" num_class:(\S+)", text)
    several = found is not None and found[1].startswith("multiclass")
    # lightgbm writes as many numbers for each row as the objective has classes.
    if found is None or several != (classes is not None) or text.count("num_class") > 1:
        raise ModelFileError("a booster has an unknown objective.")
    if classes is not None and classes[1] != str(groups):
        raise ModelFileError("a booster has an objective with other classes.")
    return text


def _tree(block: str, width: int) -> str:
    entries = _entries("number=" + block)
    n = _integer(entries, "num_leaves")
    require_that(n >= 1 and _integer(entries, "num_cat") == 0, "splits by categories, or is none")
    out = {"num_leaves": str(n), "num_cat": "0"}
    numbers: dict[str, Any] = {}
    for name in _OF_SPLITS + _OF_LEAVES:
        if name in entries and (n > 1 or name in _OF_LEAVES):
            kept = _values(entries[name], n - (name in _OF_SPLITS), name)
            if kept is not None:
                numbers[name], out[name] = kept, entries[name]
    require_that("leaf_value" in numbers, "has no values")
    require_that(np.abs(numbers["leaf_value"]).max() < 1e100, "has values that are not finite")
    if n > 1:
        require_that(all(name in numbers for name in _NEEDED), "lacks parts")
        _check_splits(numbers, n, width)
    if entries.get("is_linear", "0") != "0":
        out |= _linear(entries, n, width)
    else:
        out["is_linear"] = "0"
    shrinkage = entries.get("shrinkage", "1")
    require_that(_values(shrinkage, 1, "shrinkage") is not None, "has no proper shrinkage")
    out["shrinkage"] = shrinkage
    return "\n".join(f"{name}={value}" for name, value in out.items()) + "\n"


def _check_splits(numbers: dict[str, Any], n: int, width: int) -> None:
    """Refuse splits that point elsewhere; -1, -2, ... are the leaves 0, 1, ..."""
    integers = {name: numbers[name].astype(np.int64) for name in _INTEGERS}
    whole = all(np.array_equal(integers[name], numbers[name]) for name in _INTEGERS)
    require_that(whole, "has indices that are no integers")
    check_range(integers["split_feature"], 0, width, "features")
    children = np.concatenate([integers["left_child"], integers["right_child"]])
    check_children(children[children >= 0], n - 1)
    leaves = -1 - children[children < 0]
    check_range(leaves, 0, n, "leaves")
    require_that(np.bincount(leaves).max() == 1, "has a leaf with two parents")
    kinds = integers["decision_type"]
    # One bit says that a split is by categories, two what is done where a value is missing.
    possible = ((kinds >= 0) & (kinds < 12) & (kinds % 2 == 0)).all()
    require_that(possible, "has splits of an unknown kind")


def _linear(entries: dict[str, str], n: int, width: int) -> dict[str, str]:
    """Linear models in the leaves: how many features each has, which, and their coefficients."""
    constants = _values(entries.get("leaf_const", ""), n, "leaf_const")
    counts = _values(entries.get("num_features", ""), n, "num_features")
    require_that(constants is not None and counts is not None, "lacks parts")
    assert counts is not None
    whole = np.array_equal(counts, counts.astype(np.int64)) and counts.min() >= 0
    require_that(whole and counts.max() <= width, "has impossible linear models")
    out = {"is_linear": "1", "leaf_const": entries["leaf_const"]}
    out["num_features"] = entries["num_features"]
    for name in ("leaf_features", "leaf_coeff"):
        words = " ".join(entries.get(name, "").split())
        values = _values(words, int(counts.sum()), name) if counts.sum() else np.empty(0)
        require_that(values is not None, "has impossible linear models")
        assert values is not None
        if name == "leaf_features":
            require_that(np.array_equal(values, values.astype(np.int64)), "has unknown features")
            check_range(values.astype(np.int64), 0, width, "features")
        out[name] = words
    return out


def _values(text: str, length: int, name: str) -> Any:
    """Return the numbers of an entry, None if there is one too many or too few."""
    if not _NUMBERS.fullmatch(text):
        require_that(name not in (*_NEEDED, "leaf_value"), f"has a wrong {name}")
        return None
    values = np.array(text.split(" "), dtype=np.float64)
    return values if values.shape == (length,) and np.isfinite(values).all() else None
