"""Several densities, averaged: for what held-out rows cannot tell."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from mcdensity._known import storable
from mcdensity.data import OutOfTimeError, TrainingData
from mcdensity.experts.base import ConditionedDensity, DensityExpert, FitReport

__all__ = ["AveragedDensities"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Nats of held-out likelihood by which the odds of the families rise e-fold, and their largest
# weight. KL over that of a fit to all outcomes, geometric mean of twelve kinds of data of which a
# quarter to three quarters are censored, one to five seeds each: 1.95 without families; 1.35, 1.34
# and 1.36 with 5, 10 and 20; 1.43 with the weights of the best likelihood of the mixture, which
# gave families a part of a law with two peaks that they do not fit (1.44 became 2.22).
_NATS, _MOST = 10.0, 0.95
# What families take of the time of a network.
_COST = 0.5


@storable
class AveragedDensities(DensityExpert):
    r"""The mean of the densities of several experts, and laws of known families beside it.

    .. math:: f(y \mid x) = \frac{1 - w}{J} \sum_j f_j(y \mid x) + w \, g(y \mid x)

    It stands in for a portfolio where targets are lower bounds: where nearly all outcomes are
    censored, held-out rows say nothing about whose tail is right, and the mean of the densities is
    never far behind the best. Families do know how a tail goes on, if one of them is right: their
    weight w rises with their likelihood of held-out rows, and is 1/2 where these cannot tell.

    Parameters
    ----------
    experts : dict of str to DensityExpert
        Not fitted; each must take censored targets.
    families : DensityExpert, optional
        Laws of known families, not fitted; see `DurationFamilies`.

    Attributes
    ----------
    weights_ : dict
        Equal weights of the experts, that of the families, and none for the marginal.
    """

    holds_out: ClassVar[bool] = True
    takes_censored: ClassVar[bool] = True

    families: Any = None  # of a model file that has none

    def __init__(self, experts: dict[str, Any], families: DensityExpert | None = None) -> None:
        self.experts = experts
        self.families = families

    def _all(self) -> dict[str, Any]:
        more = {} if self.families is None else {self.families.describe(): self.families}
        return self.experts | more

    def fit(self, data: TrainingData) -> FitReport:
        """Fit the experts, one after the other, and weigh the families.

        Those that a time budget is too short for are left out.
        """
        experts = self._all()
        costs = np.array([1.0 if name in self.experts else _COST for name in experts])
        ends, shares = np.cumsum(costs) / costs.sum(), costs / costs.sum()
        reports: dict[str, FitReport] = {}
        late: OutOfTimeError | None = None
        for (name, expert), end, share in zip(experts.items(), ends, shares, strict=True):
            start = end - share
            own = data.but(report=data.report.within(float(start), float(end)))
            if data.deadline is not None:
                seconds = data.seconds_left() * share / (1 - start)
                own = own.but(deadline=time.monotonic() + seconds)
            try:
                reports[name] = expert.fit(own)
            except OutOfTimeError as error:
                late = error
        free = [report for name, report in reports.items() if name in self.experts]
        if late is not None and not reports:
            raise late
        last = [name for name in reports if name not in self.experts]
        share = _share(free, reports[last[0]], data.row_weight) if last else 0.0
        each = {name: (1 - share) / len(free) for name in reports if name in self.experts}
        self.weights_ = each | dict.fromkeys(last, share) | {"marginal": 0.0}
        return FitReport.empty()

    def condition(self, X: Array) -> ConditionedDensity:
        """Condition all experts."""
        experts = {name: one for name, one in self._all().items() if name in self.weights_}
        parts = [expert.condition(X) for expert in experts.values()]
        weights = np.array([self.weights_[name] for name in experts])[:, None, None]

        def log_density(y: Array, rows: Rows | None, log_marginal: Array | None) -> Array:
            if log_marginal is None:
                found = [part.log_density(y, rows) for part in parts]
            else:  # which is more exact than what an expert knows of the marginal
                found = [log_marginal + part.log_ratio(y, log_marginal, rows) for part in parts]
            return np.asarray(logsumexp(found, axis=0, b=weights))

        return ConditionedDensity(len(X), log_density, lambda: np.zeros(len(X)))

    def describe(self) -> str:
        """Name for messages."""
        return " and ".join(self._all())


def _share(reports: list[FitReport], families: FitReport, row_weight: Array) -> float:
    """Return the weight of the families beside the mean of the others, by held-out rows."""
    if not reports:
        return 1.0
    found = np.full((len(reports), len(row_weight)), -np.inf)
    for own, report in zip(found, reports, strict=True):
        own[report.rows] = report.log_density
    count = np.isfinite(found).sum(axis=0)
    both = count > 0
    both[np.setdiff1d(np.arange(len(both)), families.rows)] = False
    if not both.any():
        return 0.5
    mean = logsumexp(found[:, both], axis=0) - np.log(count[both])
    other = np.zeros(len(both))
    other[families.rows] = families.log_density
    gain = float(row_weight[both] @ (other[both] - mean))
    return min(float(expit(gain / _NATS)), _MOST)
