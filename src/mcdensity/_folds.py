"""Dividing observations into parts, for all that hold some of them out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._validation import as_generator

__all__ = ["assign_folds"]


def assign_folds(n: int, parts: int, random_state: Any, ways: int = 1) -> NDArray[np.intp]:
    """Divide n observations into parts of equal size, in one or several ways.

    Returns
    -------
    ndarray of shape (ways, n)
        The part of each observation, 0 to parts - 1.
    """
    rng = as_generator(random_state)
    return np.stack([rng.permutation(n) % parts for _ in range(ways)])
