"""`MCD(ratio="auto")`: the share of joint pairs, by cross-validated log-likelihood."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mcdensity._folds import assign_folds
from mcdensity._pairs import group_codes
from mcdensity.data import OutOfTimeError

__all__ = ["score_ratios"]

Array = NDArray[np.float64]

# What `ratio="auto"` chooses from, spread over the range that the paper studies.
_RATIOS = (0.02, 0.05, 0.15, 0.5)
_FOLDS = 3
# A fit needs a positive time budget; with this one nothing is trained.
_LEAST_SECONDS = 1e-3


def score_ratios(
    estimator: Any,
    X: Array,
    y: Array,
    sample_weight: Array | None,
    groups: NDArray[Any] | None,
    seed: int,
    deadline: float | None,
    **extra: Array | None,
) -> dict[float, float]:
    """Return the mean held-out log-likelihood for each ratio; a group stays on one side.

    It is empty where there are too few observations to choose by. With a time budget all fits get
    the same share of it, and the one to all rows that follows gets two; ratios for which no time is
    left have no score.

    Parameters
    ----------
    estimator : MCD
        It is copied, never changed.
    X, y, sample_weight, groups, **extra
        As for its `fit`.
    seed : int
    deadline : float, optional
        Value of ``time.monotonic()`` by which all fits should end.
    """
    unit = np.arange(len(y)) if groups is None else group_codes(groups, X)
    units = int(unit.max()) + 1
    if units < 3 * _FOLDS:
        return {}
    fold = assign_folds(units, _FOLDS, seed)[0, unit]
    folds = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(_FOLDS)]
    if any(np.ptp(y[train]) == 0 for train, _ in folds):
        return {}
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    # Others need more broken pairs than there are.
    ratios = [r for r in _RATIOS if r > _FOLDS / ((_FOLDS - 1) * units)]
    left, scores = len(ratios) * _FOLDS + 2, {}
    for ratio in ratios:
        model = clone(estimator).set_params(
            ratio=ratio,
            normalize=True,
            random_state=seed,
            verbose=False,
            target="continuous",
            support=(None, None),
        )
        total = 0.0
        try:
            for train, test in folds:
                if deadline is not None:
                    share = (deadline - time.monotonic()) / left
                    model.set_params(time_budget=max(share, _LEAST_SECONDS))
                left -= 1
                part = None if groups is None else groups[train]
                model.fit(X[train], y[train], weight[train], groups=part, **extra)
                total += float(model.logpdf(X[test], y[test]) @ weight[test])
        except OutOfTimeError:
            break
        scores[ratio] = total / weight.sum()
    return scores
