"""Several densities, averaged: for what held-out rows cannot tell."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from mcdensity._known import storable
from mcdensity.data import TrainingData
from mcdensity.experts.base import ConditionedDensity, DensityExpert, FitReport

__all__ = ["AveragedDensities"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


@storable
class AveragedDensities(DensityExpert):
    r"""The mean of the densities of several experts.

    .. math:: f(y \mid x) = \frac{1}{J} \sum_j f_j(y \mid x)

    It stands in for a portfolio where targets are lower bounds: where nearly all outcomes are
    censored, held-out rows say nothing about whose tail is right, and the mean of the densities is
    never far behind the best.

    Parameters
    ----------
    experts : dict of str to DensityExpert
        Not fitted; each must take censored targets.

    Attributes
    ----------
    weights_ : dict
        Equal weights, and none for the marginal.
    """

    holds_out: ClassVar[bool] = True
    takes_censored: ClassVar[bool] = True

    def __init__(self, experts: dict[str, Any]) -> None:
        self.experts = experts

    def fit(self, data: TrainingData) -> FitReport:
        """Fit the experts, one after the other."""
        count = len(self.experts)
        for k, expert in enumerate(self.experts.values()):
            own = data.but(report=data.report.within(k / count, (k + 1) / count))
            if data.deadline is not None:
                own = own.but(deadline=time.monotonic() + data.seconds_left() / (count - k))
            expert.fit(own)
        self.weights_ = dict.fromkeys(self.experts, 1 / count) | {"marginal": 0.0}
        return FitReport.empty()

    def condition(self, X: Array) -> ConditionedDensity:
        """Condition all experts."""
        parts = [expert.condition(X) for expert in self.experts.values()]

        def log_density(y: Array, rows: Rows | None, log_marginal: Array | None) -> Array:
            if log_marginal is None:
                found = [part.log_density(y, rows) for part in parts]
            else:  # which is more exact than what an expert knows of the marginal
                found = [log_marginal + part.log_ratio(y, log_marginal, rows) for part in parts]
            return logsumexp(found, axis=0) - np.log(len(parts))

        return ConditionedDensity(len(X), log_density, lambda: np.zeros(len(X)))

    def describe(self) -> str:
        """Name for messages."""
        return " and ".join(self.experts)
