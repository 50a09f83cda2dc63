"""What the page says of a model: which features matter, how close the network is, what is far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity.explorer._controls import Control
from mcdensity.explorer._networks import Net

__all__ = ["LIMIT", "closeness", "importance", "neighbourhood"]

Array = NDArray[np.float64]

# Nats that the network may lose before the page warns.
LIMIT = 0.1
# Rows by which the importance of features is measured: at least and at most, and so many in all.
_LEAST_ROWS, _MOST_ROWS, _ALL_ROWS = 32, 300, 60_000
# Rows of the data, and points of each, by which the network is compared with the model; of several
# targets, draws of fewer rows.
_COMPARED, _LEVELS, _JOINT_ROWS, _DRAWS = 200, 64, 60, 16
# A log-density that the network puts this far below the model's counts no more than this.
_MOST_LOST = 50.0
# Training rows that the page holds, and others by which it is known how near rows usually are.
_STORED, _OTHERS = 300, 1000
# As far as the outermost hundredth of training rows is from those stored, and a little more.
_SHARE, _SLACK = 0.99, 1.1


def importance(nets: Sequence[Net], controls: Sequence[Control], seed: int = 0) -> Array:
    """Return how far the law moves when a feature is shuffled, for each feature.

    It is the mean total variation distance between the laws before and after, by the distilled
    networks, added up over the networks of a model.
    """
    rng = np.random.default_rng(seed)
    out = np.zeros(len(controls))
    count = int(np.clip(_ALL_ROWS // len(controls), _LEAST_ROWS, _MOST_ROWS))
    for net in nets:
        kept = net.kept()
        if kept is None:
            continue
        rows = kept[rng.permutation(len(kept))[:count]]
        usual = net.masses(rows)
        for j in range(len(controls)):
            own = [k for k, c in enumerate(net.columns) if c.source == j and c.kind != "before"]
            moved = rows.copy()
            moved[:, own] = moved[rng.permutation(len(rows))][:, own]
            out[j] += np.abs(net.masses(moved) - usual).sum(axis=1).mean() / 2
    return out


def closeness(full: Any, small: Any, X: Any, seed: int = 0) -> tuple[float, int]:
    """Mean Kullback-Leibler divergence of the network's laws from the model's, and number of rows.

    It is what the network loses in log-likelihood on such rows where the model is right.
    """
    several = hasattr(full, "links_")
    rows = np.unique(np.linspace(0, len(X) - 1, _JOINT_ROWS if several else _COMPARED).astype(int))
    some = X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows]
    one, other = full.predict_distribution(some), small.predict_distribution(some)
    if several:
        points = one.sample(_DRAWS, np.random.default_rng(seed))
        lost = one.logpdf(points) - other.logpdf(points)
    elif one.is_discrete:
        masses = np.maximum(one.masses, 1e-300)
        lost = np.log(masses) - np.log(np.maximum(other.masses, 1e-300))
        return float((masses * np.minimum(lost, _MOST_LOST)).sum(axis=1).mean()), len(rows)
    else:
        points = one.ppf_grid((np.arange(_LEVELS) + 0.5) / _LEVELS)
        lost = one.logpdf(points) - other.logpdf(points)
    return float(np.minimum(lost, _MOST_LOST).mean()), len(rows)


def neighbourhood(values: Array, controls: Sequence[Control], seed: int = 0) -> dict[str, Any]:
    """Return some training rows, scales of their features, and when a row is far from all of them.

    Distances are Euclidean, in standard deviations; another text counts as the root of two, and so
    does a number that is missing in one of both rows.
    """
    order = np.random.default_rng(seed).permutation(len(values))
    stored, others = values[order[:_STORED]], values[order[_STORED : _STORED + _OTHERS]]
    if len(others) < _STORED:
        others = values
    is_text = np.array([bool(c.options) for c in controls])
    with np.errstate(all="ignore"):
        scale = np.array([np.nanstd(column) if len(column) else 1.0 for column in values.T])
    scale = np.where(np.isfinite(scale) & (scale > 0) & ~is_text, scale, 1.0)
    squared = np.zeros((len(others), len(stored)))
    for j, text in enumerate(is_text):
        a, b = others[:, j, None], stored[None, :, j]
        if text:
            squared += 2.0 * (a != b)
            continue
        apart = ((a - b) / scale[j]) ** 2
        missing = np.isnan(apart)
        both = np.isnan(a) & np.isnan(b)
        squared += np.where(missing, np.where(both, 0.0, 2.0), apart)
    # A row that is stored itself has a neighbour other than itself.
    squared[squared == 0] = np.inf
    near = np.sqrt(squared.min(axis=1))
    near = near[np.isfinite(near)]
    limit = _SLACK * float(np.quantile(near, _SHARE)) if len(near) else 1.0
    return {"stored": stored, "scale": scale, "limit": limit}
