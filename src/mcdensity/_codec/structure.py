"""Learners of scikit-learn from a file: the structure that native code relies on.

scikit-learn's compiled code follows indices and trusts widths without looking. What it relies on
is checked here before any of it runs: trees, histogram boosting, neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from mcdensity._codec.archive import ModelFileError, expect
from mcdensity._codec.trees import check_children, check_depth, check_range, require_that

__all__ = ["check_learner", "check_workers", "make_search_tree", "make_tree"]

# More levels than any tree has that learned something.
_DEEPEST = 5000
# Workers that a file may ask for.
_MOST_WORKERS = 1024
_METRICS = {"EuclideanDistance64": "euclidean", "ManhattanDistance64": "manhattan"}


def make_tree(arguments: Any, state: Any) -> Any:
    """Return scikit-learn's `Tree` of what its `__reduce__` gives."""
    from sklearn.tree._tree import Tree

    n_features, n_classes, n_outputs = arguments
    n_classes = np.atleast_1d(np.asarray(n_classes))
    sizes = (n_features, n_outputs, state["node_count"], state["max_depth"])
    require_that(all(type(size) is int for size in sizes), "has sizes that are no integers")
    kind = n_classes.dtype.kind in "iu" and n_classes.shape == (n_outputs,) and n_outputs > 0
    require_that(kind and n_classes.min() > 0 and n_features > 0, "has impossible sizes")
    expected = Tree(1, np.ones(1, dtype=np.intp), 1).__getstate__()["nodes"].dtype
    nodes, values = expect(state["nodes"], np.ndarray), expect(state["values"], np.ndarray)
    require_that(nodes.dtype.names == expected.names, "has nodes with other parts than it should")
    nodes = np.ascontiguousarray(nodes.astype(expected, casting="same_kind", copy=False))
    n = len(nodes) if nodes.ndim == 1 else 0
    shape = (n, n_outputs, int(n_classes.max()))
    require_that(n > 0 and state["node_count"] == n, "has another number of nodes than it says")
    fits = values.shape == shape and values.dtype.kind == "f"
    require_that(fits and np.isfinite(values).all(), "has values that are missing or not finite")
    left, right = nodes["left_child"], nodes["right_child"]
    inner = left != -1
    require_that(np.array_equal(inner, right != -1), "has a node with one child")
    check_children(np.concatenate([left[inner], right[inner]]), n)
    check_range(nodes["feature"][inner], 0, n_features, "features")
    require_that(0 <= state["max_depth"] <= _DEEPEST, "claims an impossible depth")
    check_depth(left, right, state["max_depth"])
    tree = Tree(n_features, n_classes.astype(np.intp), n_outputs)
    tree.__setstate__({**state, "nodes": nodes, "values": np.ascontiguousarray(values)})
    return tree


def make_search_tree(cls: Any, state: Any) -> Any:
    """Return a `KDTree` or `BallTree`, built anew from its rows: nothing else of it is read."""
    data, leaf_size, metric = state[0], state[4], state[11]
    weight = state[12] if len(state) > 12 else None
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.dtype.kind != "f":
        raise ModelFileError("a search tree has no rows.")
    if weight is not None and (np.shape(weight) != (len(data),) or not np.all(weight > 0)):
        raise ModelFileError("a search tree has impossible weights.")
    # With more rows in a leaf than there are, the tree is one leaf.
    leaf_size = min(max(1, int(leaf_size)), len(data) + 1)
    return cls(data, leaf_size=leaf_size, metric=metric[0], sample_weight=weight, **metric[1])


def metric_of(name: str, state: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters of a distance."""
    if name in _METRICS:
        return _METRICS[name], {}
    if name != "MinkowskiDistance64":
        raise ModelFileError(f"a search tree has the distance {name[:40]!r}.")
    power = float(state[0])
    if not 1 <= power <= 1000:
        raise ModelFileError("a search tree has an impossible distance.")
    return "minkowski", {"p": power}


def check_workers(name: str, value: Any) -> None:
    """Refuse more threads than a machine starts without harm."""
    counts = ("job" in name or "thread" in name) and isinstance(value, int | float | np.integer)
    if counts and not abs(int(value)) <= _MOST_WORKERS:
        raise ModelFileError(f"a learner asks for {value} workers ({name[:40]}).")


def check_learner(learner: Any) -> None:
    """Refuse a learner whose parts do not fit to each other."""
    state = vars(learner)
    for name, value in state.items():
        check_workers(name, value)
    kind = type(learner).__name__
    if kind == "KernelDensity" and "tree_" in state:
        width = np.shape(state["tree_"].data)[1]
        require_that(state.get("n_features_in_") == width, "has rows of another width than it says")
    elif "tree_" in state:
        _check_width(state, state["tree_"], "Tree")
    if "_predictors" in state:
        _check_histogram_boosting(state)
    elif kind.startswith("GradientBoosting") and "estimators_" in state:
        _check_gradient_boosting(state)
    elif "estimators_" in state and hasattr(type(learner), "_validate_X_predict"):
        # A forest asks its trees without a look at the width of the rows.
        for tree in expect(state["estimators_"], list):
            require_that("tree_" in vars(tree), "of a forest is none")
            _check_width(state, tree.tree_, "Tree")
    if "_fit_X" in state:
        _check_neighbours(state)
    if "_dual_coef_" in state:
        _check_kernel_machine(state)


def _check_width(state: dict[str, Any], tree: Any, kind: str) -> None:
    same = type(tree).__name__ == kind and state.get("n_features_in_") == tree.n_features
    require_that(same, "has another number of features than its learner")


def _check_gradient_boosting(state: dict[str, Any]) -> None:
    trees = expect(state["estimators_"], np.ndarray)
    columns = state.get("n_trees_per_iteration_", state.get("_n_trees_per_iteration", 1))
    require_that(trees.ndim == 2 and trees.shape[1] == columns, "is missing in a boosted model")
    for tree in trees.ravel():
        require_that("tree_" in vars(tree), "of a boosted model is none")
        _check_width(state, tree.tree_, "Tree")
        one = tree.tree_.n_outputs == 1 and tree.tree_.max_n_classes == 1
        require_that(one, "of a boosted model has several outputs")


def _check_histogram_boosting(state: dict[str, Any]) -> None:
    """Refuse predictors whose nodes point elsewhere, and categories that no bit stands for."""
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

    bins = vars(state["_bin_mapper"])
    width, categorical = state["n_features_in_"], np.asarray(bins["is_categorical_"])
    require_that(type(width) is int and categorical.shape == (width,), "has no list of features")
    if state.get("_preprocessor") is not None:
        raise ModelFileError("a histogram-based learner has a preprocessor of categories.")
    if categorical.dtype.kind not in "bu" or categorical.any():
        raise ModelFileError("a histogram-based learner has categorical features.")
    per_round = state["n_trees_per_iteration_"]
    baseline = expect(state["_baseline_prediction"], np.ndarray)
    require_that(baseline.shape == (1, per_round), "has no baseline")
    require_that(np.isfinite(baseline).all(), "has a baseline that is not finite")
    for trees in expect(state["_predictors"], list):
        require_that(len(expect(trees, list)) == per_round, "is missing in a boosted model")
        for tree in trees:
            require_that(type(tree).__name__ == "TreePredictor", "of a boosted model is none")
            nodes = expect(tree.nodes, np.ndarray)
            same = nodes.dtype == PREDICTOR_RECORD_DTYPE and nodes.ndim == 1 and len(nodes)
            require_that(same, "has no nodes")
            leaf = nodes["is_leaf"] != 0
            inner = nodes[~leaf]
            check_children(
                np.concatenate([inner["left"], inner["right"]]).astype(np.intp), len(nodes)
            )
            check_range(inner["feature_idx"], 0, width, "features")
            require_that(not nodes["is_categorical"].any(), "splits by categories")
            require_that(np.isfinite(nodes["value"][leaf]).all(), "has values that are not finite")


def _check_kernel_machine(state: dict[str, Any]) -> None:
    """Refuse kernel SVMs whose arrays do not have the sizes that libsvm takes them to have."""
    classes = len(state["classes_"]) if "classes_" in state else 2
    pairs = classes * (classes - 1) // 2
    vectors = expect(state["support_vectors_"], np.ndarray)
    n = len(vectors)
    shapes = {
        "support_vectors_": (n, state.get("n_features_in_")),
        "_dual_coef_": (classes - 1, n),
        "_intercept_": (pairs,),
        "_n_support": (classes,),
        "support_": (n,),
    }
    fits = all(np.shape(state[name]) == shape for name, shape in shapes.items())
    fits = fits and np.shape(state["_probA"]) == np.shape(state["_probB"]) in ((0,), (pairs,))
    counts = np.asarray(state["_n_support"])
    fits = fits and counts.dtype == np.int32 and counts.min() >= 0
    fits = fits and (counts.sum() == n if "classes_" in state else counts.max() <= n)
    plain = state.get("kernel") in ("linear", "poly", "rbf", "sigmoid") and not state["_sparse"]
    if not fits or not plain or "_impl" in state:
        raise ModelFileError("a support vector machine has parts that do not fit together.")


def _check_neighbours(state: dict[str, Any]) -> None:
    rows, tree = state["_fit_X"], state.get("_tree")
    fits = sparse.issparse(rows) or isinstance(rows, np.ndarray)
    if not fits or rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise ModelFileError("a learner of neighbours has no rows.")
    if rows.shape[1] != state.get("n_features_in_"):
        raise ModelFileError("a learner of neighbours has rows of another width than it says.")
    if tree is not None and np.shape(tree.data) != rows.shape:
        raise ModelFileError("a learner of neighbours has a search tree of other rows.")
    labels = state.get("_y")
    if labels is not None and "classes_" in state:
        labels = expect(labels, np.ndarray)
        most = len(state["classes_"])
        if labels.dtype.kind not in "iu" or labels.ndim != 1 or len(labels) != rows.shape[0]:
            raise ModelFileError("a learner of neighbours has no labels.")
        if not (labels.min() >= 0 and labels.max() < most):
            raise ModelFileError("a learner of neighbours has labels of unknown classes.")
