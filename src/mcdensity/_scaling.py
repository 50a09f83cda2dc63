"""Means and standard deviations that survive huge values, missing values and weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["location_and_scale"]

Array = NDArray[np.float64]


def location_and_scale(X: Array, weight: Array | None) -> tuple[Array, Array]:
    """Weighted mean and standard deviation of each column.

    A constant column has scale 1. One without any value has an infinite scale: whatever comes
    later is 0, and tells nothing.
    """
    known = ~np.isnan(X)
    some = known.any(axis=0)
    low = np.fmin.reduce(X, axis=0, initial=np.inf)  # NaN is passed over
    high = np.fmax.reduce(X, axis=0, initial=-np.inf)
    center = np.zeros(X.shape[1])
    np.add(low / 2, high / 2, out=center, where=some)
    # Columns are centred and brought to size 1 first: squares of huge values overflow, and those
    # of large values that differ little lose what they differ in.
    size = np.where(some & (high > low), high / 2 - low / 2, 1.0)
    X = (X - center) / np.where(size > 0, size, 1.0)
    share = known * (1.0 if weight is None else weight[:, None])
    total = np.maximum(share.sum(axis=0), np.finfo(float).tiny)
    X = np.where(known, X, 0.0)
    mean = (share * X).sum(axis=0) / total
    scale = np.sqrt((share * (X - mean) ** 2).sum(axis=0) / total)
    scale = np.where(scale > 0, scale, 1.0)
    scale = np.where(scale * size > 0, scale * size, 1.0)
    return center + mean * size, np.where(some, scale, np.inf)
