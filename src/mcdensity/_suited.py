"""What a portfolio asks of its data: which experts to try, and where held-out rows lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._effort import EFFORTS
from mcdensity.data import TrainingData

__all__ = ["is_suited", "marginal_levels"]

Array = NDArray[np.float64]

# Experts that need all pairs in memory are not tried beyond 2 million pairs, about 300 MB.
_MOST_PAIRS = 2_000_000


def is_suited(expert: Any, data: TrainingData) -> bool:
    """Whether an expert that nobody asked for by name is worth trying on these data."""
    if expert.sees_all_pairs and len(data) / data.ratio > _MOST_PAIRS:
        return False
    if EFFORTS[expert.least_effort].rank > data.effort.rank:
        return False
    if data.deadline is not None and expert.quick:
        return True  # something comes first, whatever the time
    if data.effort.name == "best" and expert.most_observations < np.inf:
        return True
    return bool(expert.least_observations <= data.n_observations <= expert.most_observations)


def marginal_levels(
    data: TrainingData, rows: NDArray[np.bool_]
) -> tuple[Array, Array, NDArray[np.intp]]:
    """P(Y < y) and P(Y <= y) under the marginal, and the fold, of the targets of some rows."""
    assert data.marginal is not None
    assert data.folds is not None
    fold = data.folds.fold[0, data.unit][rows]
    cells, own = data.marginal.cells, data.Y[rows, 0]
    if cells is None:
        at = data.marginal.cdf(own)
        return at, at, fold
    below = np.pad(np.cumsum(cells.masses_), (1, 0))
    place = cells.cell_of_score(own)
    return below[place], below[place + 1], fold
