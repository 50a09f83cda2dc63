"""A first prediction of a model from a file: what it says must be numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from mcdensity._codec.archive import ModelFileError

__all__ = ["try_out"]

# More than any table has.
_MOST_FEATURES = 1_000_000
# Rows near the middle of the training data, in standard deviations.
_STEPS = np.array([[0.0], [1.0], [-1.0]])


def try_out(estimator: Any) -> None:
    """Predict a few rows; an error, or a prediction that is no number, says that parts misfit."""
    parts = vars(estimator)
    if "estimator_" in parts:  # behind the preparation of a table or a pipeline
        return try_out(parts["estimator_"])
    if "links_" in parts:  # several targets, one after the other
        for link in parts["links_"]:
            try_out(link)
        return None
    width = estimator.n_features_in_
    if not isinstance(width, int | np.integer) or not 1 <= width <= _MOST_FEATURES:
        raise ModelFileError(f"it has {width} features.")
    center, spread = (
        np.broadcast_to(value, np.shape(value) or (int(width),))
        for value in (estimator.x_mean_, estimator.x_scale_)
    )
    if center.shape != (width,) or spread.shape != (width,):
        raise ModelFileError("it has other features than it says.")
    rows = np.asarray(center + _STEPS * spread, dtype=np.float64)
    estimator._validate_params()
    found = estimator._in_blocks(
        estimator._scale_x(rows), lambda law, _: (law.mean(), law.ppf_grid([0.05, 0.5, 0.95]))
    )
    for said in found[0]:
        if len(said) != len(rows) or np.isnan(said).any():
            raise ModelFileError("its predictions are not numbers.")
    return None
