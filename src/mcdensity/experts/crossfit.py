"""An expert fitted once without each fold: the folds score it, the models form an ensemble."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._known import storable
from mcdensity.data import OutOfTimeError, TrainingData
from mcdensity.experts.base import (
    Conditioned,
    ConditionedPool,
    Expert,
    FitReport,
    RatioExpert,
)
from mcdensity.experts.ratio.learner import unfitted_copy

__all__ = ["CrossFitted"]

Array = NDArray[np.float64]

# From this many observations on, two folds are enough: trees are slow, and rows are many.
_MANY_OBSERVATIONS, _FEW_FOLDS = 1000, 2
# And one fold is enough to see that an expert is this far behind the best, in nats, beyond two
# standard errors: it would get next to no weight, and is given up.
_FAR_BEHIND = 0.03


@storable
class CrossFitted(Expert):
    """Copies of an expert, each fitted without a fold; their log-densities are averaged.

    Parameters
    ----------
    expert : Expert
        It is copied, never changed.
    rival : ndarray of shape (n,), optional
        Held-out log-densities of the best expert so far, NaN where there is none. With many rows
        this one is given up after its first fold if it is far behind.

    Attributes
    ----------
    models_ : list of Expert
    given_up_ : bool
        Whether it was far behind, and not fitted without the other folds.
    """

    holds_out = True

    def __init__(self, expert: Any, rival: Array | None = None) -> None:
        self.expert = expert
        self.rival = rival

    def fit(self, data: TrainingData) -> FitReport:
        """Fit one copy for each fold, or a single one where the data have no folds."""
        self.models_: list[Any] = []
        self.given_up_ = False
        if data.folds is None:
            self._fit_copy(data)
            return FitReport.empty()
        fold, scored = data.folds.fold[0, data.unit], data.folds.scored[data.unit]
        many = data.n_observations >= _MANY_OBSERVATIONS and not self.expert.quick
        count = min(data.folds.count, _FEW_FOLDS) if many else data.folds.count
        if isinstance(self.expert, RatioExpert):
            data.contrast()  # the pairs of a part follow those of the whole
        found: list[FitReport] = []
        for k in range(count):
            part = data.part(fold != k)
            part.report = data.report.within(k / count, (k + 1) / count)
            if data.deadline is not None:
                part.deadline = time.monotonic() + data.seconds_left() / (count - k)
            try:
                model = self._fit_copy(part)
            except OutOfTimeError:
                if not found:
                    raise
                break  # the earlier folds have scores, and are kept
            held = np.flatnonzero((fold == k) & scored)
            found.append(FitReport.of(model.condition(data.X[held]), data, held))
            if many and k == 0 and self._is_far_behind(held, found[0].log_density):
                self.given_up_ = True
                break
        return FitReport(
            np.concatenate([report.rows for report in found]),
            np.concatenate([report.log_density for report in found]),
            np.concatenate([report.log_ratio for report in found]),
        )

    def _fit_copy(self, data: TrainingData) -> Any:
        model = unfitted_copy(self.expert)
        model.fit(data)
        self.models_.append(model)
        return model

    def _is_far_behind(self, rows: NDArray[np.intp], log_density: Array) -> bool:
        if self.rival is None:
            return False
        behind = self.rival[rows] - log_density
        behind = behind[np.isfinite(behind)]
        if len(behind) == 0:
            return False
        error = behind.std() / np.sqrt(len(behind))
        return bool(behind.mean() > _FAR_BEHIND + 2 * error)

    def condition(self, X: Array) -> Conditioned:
        """Condition all copies."""
        share = 1 / len(self.models_)
        parts = [model.condition(X) for model in self.models_]
        return ConditionedPool(len(X), parts, [share] * len(parts))

    def allows_nan(self) -> bool:
        """Whether X may have missing values."""
        return self.expert.allows_nan()

    def describe(self) -> str:
        """Name for messages."""
        return self.expert.describe()
