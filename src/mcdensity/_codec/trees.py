"""Decision trees from a file: native code follows their indices without looking."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._codec.archive import ModelFileError

__all__ = ["check_children", "check_depth", "check_range", "require_that"]

Integers = NDArray[np.integer[Any]]


def require_that(condition: Any, problem: str) -> None:
    """Refuse a file whose trees are not as they must be."""
    if not condition:
        raise ModelFileError(f"a tree {problem}.")


def check_range(values: Integers, low: int, high: int, what: str) -> None:
    """Refuse values outside of low, ..., high - 1."""
    if values.size:
        require_that(low <= values.min() and values.max() < high, f"has {what} out of range")


def check_children(children: Integers, n_nodes: int) -> None:
    """Refuse children that are no nodes, or make a cycle.

    The root, node 0, is nobody's child, and no node has two parents: then no walk that starts at
    the root comes back to where it was.
    """
    check_range(children, 1, n_nodes, "children")
    if children.size:
        require_that(np.bincount(children).max() == 1, "has a node with two parents")


def check_depth(left: Integers, right: Integers, claimed: int) -> None:
    """Refuse a tree that is deeper than it claims; leaves have negative children."""
    level = np.zeros(1, dtype=np.intp)
    for _ in range(claimed + 1):
        level = level[left[level] >= 0]
        if not level.size:
            return
        level = np.concatenate([left[level], right[level]])
    require_that(False, "is deeper than it claims")
