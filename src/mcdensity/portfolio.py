"""`auto`: several experts, weighted by the likelihood of rows that they have not seen."""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mcdensity._mixing import mixture_weights
from mcdensity.data import Folds, OutOfTimeError, TrainingData, assign_folds
from mcdensity.experts.base import (
    Conditioned,
    ConditionedAverage,
    DensityExpert,
    Expert,
    FitReport,
    mixture_log_density,
)
from mcdensity.experts.crossfit import CrossFitted
from mcdensity.experts.registry import get_expert, list_experts, portfolio_names, register

__all__ = ["Portfolio"]

Array = NDArray[np.float64]

# Boosting libraries are asked only where trees help: where those of scikit-learn have this weight.
_BOOSTING = ("catboost", "xgboost", "lightgbm")
_TREES_HELP = 0.05
# One thread, as all else here: catboost alone would take all cores.
_PARAMETERS = {"catboost": {"thread_count": 1}}
# Observations up to which there are so many folds, each of a fifth of the observations: as many
# as an expert by itself has members, so that a part of the portfolio is not weaker than alone.
_FOLDS = ((5000, 5), (20_000, 2))
_PARTS = 5
# Observations up to which networks divide them in so many ways: small networks are cheap, and the
# mean of several is better than one.
_WAYS = ((200, 3), (500, 2))
# With fewer observations weights cannot be learned: the simplest expert shares with the marginal.
_LEAST_OBSERVATIONS = 20
# Rows that experts are judged by: a standard error of about 0.02 nats.
_MOST_SCORED = 2000
# Experts of less weight are dropped: they cost time at every prediction.
_LEAST_WEIGHT = 0.05
# Experts that need all pairs in memory are not asked beyond 2 million pairs, about 300 MB.
_MOST_PAIRS = 2_000_000
# Seconds that importing torch takes, which a time budget must allow for, and the least that is
# worth beginning an expert with.
_IMPORT_SECONDS, _LEAST_SECONDS = 2.0, 0.2


@register("auto")
class Portfolio(Expert):
    r"""A mixture of the densities that several experts give.

    .. math:: f(y \mid x) = \sum_j w_j f_j(y \mid x) + w_0 f_Y(y)

    Each expert is fitted without each fold of the observations in turn, and judged by the
    likelihood of that fold. The weights maximise the likelihood of the held-out rows (a concave
    problem, solved by expectation and maximisation). The models of the folds are the ensemble:
    nothing is fitted again. A target with few different values is spread evenly over the cells
    between them for experts that learn a density of their own.

    Parameters
    ----------
    portfolio : str or sequence of str, optional
        Names of experts; by default those that are registered for it: "quadratic", "mixture",
        "flow", "mlp", "two-tower" and "hist-gradient-boosting", and where trees help "catboost"
        (or "xgboost", or "lightgbm", the first that is installed). With more than two million pairs
        only those that do not need all pairs at once.
    verbose : bool, default False

    Attributes
    ----------
    weights_ : dict
        Weight of each expert, and of the marginal.
    scores_ : dict
        Held-out log-likelihood of each expert above that of the marginal, and of the mixture
        ("auto").
    experts_ : dict
        The fitted experts that have a weight.
    """

    holds_out: ClassVar[bool] = True

    def __init__(self, portfolio: Any = None, verbose: bool = False) -> None:
        self.portfolio = portfolio
        self.verbose = verbose

    def fit(self, data: TrainingData) -> FitReport:
        """Fit the experts and weight them."""
        names = self._names()
        if data.marginal is None:
            raise ValueError("auto needs the marginal: fit it through MCD.")
        self._experts: dict[str, Any] = {}
        self._found: dict[str, Array] = {}
        units = data.n_observations
        if units < _LEAST_OBSERVATIONS:
            self._fit_too_few(names, data)
            return FitReport.empty()
        data = data.but(
            folds=_folds(units, data.random_state), verbose=self.verbose or data.verbose
        )
        self._untied = data.without_ties()
        for i, name in enumerate(names):
            if not self._is_too_large(name, data):
                self._consider(name, data, len(names) - i)
        helps = self._weights(data).get("hist-gradient-boosting", 0) > _TREES_HELP
        if self.portfolio is None and helps:
            # They are much alike: the first that is installed.
            for name in [n for n in _BOOSTING if find_spec(n) is not None][:1]:
                self._consider(name, data, 1)
        self._finish(data)
        return FitReport.empty()

    def _fit_too_few(self, names: list[str], data: TrainingData) -> None:
        """Fit one expert, and trust it the more the more observations there are."""
        name = "quadratic" if "quadratic" in names else names[0]
        expert = CrossFitted(get_expert(name))
        expert.fit(data)
        trust = data.n_observations / (2 * _LEAST_OBSERVATIONS)
        self.experts_ = {name: expert}
        self.weights_ = {name: trust, "marginal": 1 - trust}
        self.scores_: dict[str, float] = {}

    def _is_too_large(self, name: str, data: TrainingData) -> bool:
        """Whether an expert that nobody asked for by name needs more memory than it is worth."""
        if self.portfolio is not None or not get_expert(name).sees_all_pairs:
            return False
        return len(data) / data.ratio > _MOST_PAIRS

    def _consider(self, name: str, data: TrainingData, remaining: int) -> None:
        """Fit an expert, if the time allows for it, and keep what it says of held-out rows."""
        left = data.seconds_left()
        if "torch" not in sys.modules and left < np.inf:
            left -= _IMPORT_SECONDS
        if self._experts and left < _LEAST_SECONDS:
            return
        expert = get_expert(name, **_PARAMETERS.get(name, {}))
        if isinstance(expert, DensityExpert):
            data = self._untied
        if self._experts and left < np.inf:
            # What one expert does not use is left for those after it.
            data = data.but(deadline=time.monotonic() + left / remaining)
        if not expert.holds_out:
            expert = CrossFitted(expert, self._best(data))
        try:
            report = expert.fit(data)
        except OutOfTimeError:
            return
        if getattr(expert, "given_up_", False):
            return
        found = np.full(len(data), np.nan)
        found[report.rows] = report.log_density
        # Relative to the marginal of the same data: one with ties and one without may be compared.
        self._found[name] = found - data.held_out_marginal()
        self._experts[name] = expert

    def _best(self, data: TrainingData) -> Array | None:
        """Held-out log-densities of the best expert so far."""
        if not self._found:
            return None
        return max(self._found.values(), key=np.nanmean) + data.held_out_marginal()

    def _common(self) -> tuple[Array, NDArray[np.bool_]]:
        """Gains of the experts over the marginal, (n, experts), and the rows that all have."""
        gains = np.column_stack(list(self._found.values()))
        return gains, np.asarray(np.isfinite(gains).all(axis=1))

    def _weights(self, data: TrainingData) -> dict[str, float]:
        """Weights by name; those without one are left out."""
        gains, rows = self._common()
        found = mixture_weights(gains[rows], data.row_weight[rows], _LEAST_WEIGHT)
        names = [*self._found, "marginal"]
        return {n: float(v) for n, v in zip(names, found, strict=True) if v > 0}

    def _finish(self, data: TrainingData) -> None:
        """Keep the experts with a weight, and say how they did."""
        self.weights_ = self._weights(data)
        gains, rows = self._common()
        weight, gains = data.row_weight[rows], gains[rows]
        self.scores_ = {
            name: float(np.average(g, weights=weight))
            for name, g in zip(self._found, gains.T, strict=True)
        }
        all_weights = np.array([self.weights_.get(n, 0.0) for n in [*self._found, "marginal"]])
        together = mixture_log_density([*gains.T, np.zeros(len(gains))], all_weights)
        self.scores_["auto"] = float(np.average(together, weights=weight))
        self.experts_ = {n: e for n, e in self._experts.items() if n in self.weights_}
        for expert in self.experts_.values():
            if isinstance(expert, CrossFitted):
                expert.rival = None  # a number for every row, which a fitted model has no use for
        del self._experts, self._found, self._untied

    def _names(self) -> list[str]:
        if self.portfolio is None:
            return portfolio_names()
        names = [self.portfolio] if isinstance(self.portfolio, str) else list(self.portfolio)
        known = [n for n in list_experts() if n != "auto"]
        if not names or any(n not in known for n in names):
            raise ValueError(f"portfolio must name some of {known}, got {self.portfolio!r}.")
        return list(dict.fromkeys(names))

    def condition(self, X: Array) -> Conditioned:
        """Condition all experts."""
        parts = [expert.condition(X) for expert in self.experts_.values()]
        return ConditionedAverage(len(X), parts, [self.weights_[n] for n in self.experts_])

    def allows_nan(self) -> bool:
        """Whether X may have missing values."""
        if self.portfolio is None:
            return False
        return all(get_expert(name).allows_nan() for name in self._names())

    def describe(self) -> str:
        """Name for messages."""
        return "auto"


def _folds(units: int, rng: np.random.Generator) -> Folds:
    """Divide the observations, and choose those by which all experts are compared."""
    count = next((k for n, k in _FOLDS if units < n), 1)
    ways = next((k for n, k in _WAYS if units < n), 1)
    part = assign_folds(units, _PARTS, rng, ways)
    fold = np.where(part < count, part, -1)
    scored = np.zeros(units, dtype=bool)
    scored[rng.permutation(np.flatnonzero(fold[0] >= 0))[:_MOST_SCORED]] = True
    return Folds(fold, scored)
