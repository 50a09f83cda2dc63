"""`auto`: several experts, weighted by the likelihood of rows that they have not seen."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mcdensity._mixing import (
    best_weights,
    is_level,
    mixture_weights,
    pool_gains,
    pool_levels,
    pooling_exponents,
)
from mcdensity._parallel import in_parallel, worker_count
from mcdensity._progress import showing
from mcdensity._suited import is_suited, marginal_levels
from mcdensity._validation import check_number
from mcdensity.data import Folds, OutOfTimeError, TrainingData, reweighing_rng
from mcdensity.experts.base import (
    Conditioned,
    ConditionedPool,
    ConditionedPortfolio,
    DensityExpert,
    Expert,
    FitReport,
    condition_all,
)
from mcdensity.experts.crossfit import CrossFitted
from mcdensity.experts.registry import get_expert, list_experts, portfolio_names, register
from mcdensity.experts.tables import LIMIT, Fade

__all__ = ["Portfolio"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# With so many observations experts are fitted in processes: two threads wait for each other's
# Python code. On two cores 1000 and 5000 rows took 7.0 and 18.8 s in threads, 4.4 and 11.1 in
# processes, and 7.3 and 21.3 on one core. To start them takes 2.5 s, once.
_MANY_OBSERVATIONS = 1000
# With so many, experts that learn from others take longer than the others, and start first.
_LONG_PUPILS = 2000
# With so many they are fitted one after the other, each on all cores: forests of millions of nodes
# are slow to send from one process to another, and one network takes half of the time.
_LARGE_FORESTS = 10_000
# With fewer observations weights cannot be learned: the simplest expert is pooled
# with the marginal.
_LEAST_OBSERVATIONS = 20
# Experts of less weight are dropped: they cost time at every prediction. The mean log-likelihood of
# 21 real and simulated tables was the same to 0.0004 nats with 0.02, 0.05 and 0.1.
_LEAST_WEIGHT = 0.1
# With so many observations experts are dropped, one by one, as long as the pool of those left is
# at most this many nats of held-out rows, and this share of what is gained, behind the pool of all:
# predictions take a third less time, and a smooth law with 1000 rows had the same likelihood. With
# 100 rows, where the gain of an expert is hardly known, it cost 0.014 nats on SkewNormal and 0.006
# on GaussianMixture. Counts, of which little can be known (Biochemists), gained 0.002 by the share;
# probabilities of two or three labels are closer to the truth without it (a hurdle: 0.020, 0.023).
_ENOUGH_OBSERVATIONS, _NEGLIGIBLE_SHARE, _FEW_LABELS = 500, 0.02, 3
# Prior count, in rows, of the marginal when its weight is learned: where held-out rows show no
# outliers, next to nothing is left for it. A whole row would be a thousandth of the law for a
# thousand rows, and move the quantiles of 0.001 and 0.999 where x is far out.
_MARGINAL_ROWS = 0.1
# Seconds that importing torch takes, which a time budget must allow for, and the least with
# which it is worth starting an expert.
_IMPORT_SECONDS, _LEAST_SECONDS = 2.0, 0.2


@register("auto")
class Portfolio(Expert):
    r"""A log-linear pool of several experts, with a little of the marginal.

    .. math:: f(y \mid x) = (1 - w_0) f_Y(y) \prod_j \Bigl( \frac{f_j(y \mid x)}{f_Y(y)}
        \Bigr)^{e_j} / Z(x) + w_0 f_Y(y)

    Each fold of the observations is left out in turn; an expert learns from the rest, and is judged
    by that fold. The exponents maximise the likelihood of the held-out rows, which is a
    concave problem. Their sum is free: a mixture :math:`\sum_j w_j f_j` of densities that are each
    about right is too wide, and its intervals cover too much. The models of the folds
    are the ensemble: nothing is fitted again. A target with few different values is spread evenly
    over the cells between them for experts that learn a density of their own.

    Parameters
    ----------
    portfolio : str, sequence of str or dict, optional
        Names of experts; a dict has their parameters too, such as ``{"quadratic": {"C": 1.0},
        "mixture": {"steps": 500}}``. By default those that are registered for it: "quadratic",
        up to 2000 observations, "mixture", "forest" from 200 on, "stacked" from 500 on, "flow" up
        to 500 and "mlp" up to 10,000. What ``MCD(effort=...)`` asks for may add or leave out some.
        With more than two million pairs only those that do not need all pairs at once.
    verbose : bool, default False
    negligible : float, default 0.01
        Nats of held-out rows that a pool of fewer experts may be behind.
    steps : float, default 1
        Factor of the steps that networks train.

    Attributes
    ----------
    weights_ : dict
        Share of each expert in the sum of the exponents, and :math:`w_0`, the marginal's; they sum
        to one.
    sharpness_ : float
        The sum of the exponents.
    scores_ : dict
        Held-out log-likelihood of each expert above that of the marginal, and of the pool ("auto").
    experts_ : dict
        The fitted experts that have a weight.
    """

    holds_out: ClassVar[bool] = True
    _fade: Fade | None = None  # files of earlier versions have none

    def __init__(
        self,
        portfolio: Any = None,
        verbose: bool = False,
        negligible: float = 0.01,
        steps: float = 1.0,
    ) -> None:
        self.portfolio = portfolio
        self.verbose = verbose
        self.negligible = negligible
        self.steps = steps

    def fit(self, data: TrainingData) -> FitReport:
        """Fit the experts and weight them."""
        names = self._names()
        check_number("negligible", self.negligible, closed=True)
        check_number("steps", self.steps)
        data = data.but(effort=replace(data.effort, steps=self.steps * data.effort.steps))
        if data.marginal is None:
            raise ValueError("auto needs the marginal: fit it through MCD.")
        self._experts: dict[str, Any] = {}
        # Of each expert: log-ratios of held-out rows (NaN elsewhere), where a row stands among
        # these, and log-ratios at points.
        self._found: dict[str, tuple[Array, Rows, NDArray[np.float32]]] = {}
        self._columns: dict[str, Array] = {}
        units = data.n_observations
        if units < _LEAST_OBSERVATIONS:
            self._fit_too_few(names, data)
            return FitReport.empty()
        data = data.but(folds=Folds.chosen(units, data.effort, data.random_state))
        self._untied = data.without_ties()
        names = self._teachers_first([n for n in names if self._is_suited(n, data)])
        # Each has random numbers of its own, whoever is fitted before it.
        seeds = data.random_state.integers(2**63, size=len(names))
        self._seeds = dict(zip(names, seeds.tolist(), strict=True))
        with showing(self.verbose, "Fitting", data.report) as report:
            report.expect({name: 0.1 if get_expert(name).quick else 1.0 for name in names})
            self._consider_all(names, data.but(report=report))
        self._found = {name: self._found[name] for name in names if name in self._found}
        self._finish(data)
        return FitReport.empty()

    def _consider_all(self, names: list[str], data: TrainingData) -> None:
        """Fit the experts, side by side where that is possible."""
        self._untied = self._untied.but(report=data.report)
        few = data.n_observations < _LARGE_FORESTS
        several = few and data.deadline is None and worker_count(data.n_jobs) > 1
        if not several or not self._are_independent(names):
            for i, name in enumerate(names):
                self._consider(name, data, len(names) - i)
            return
        processes = data.n_observations >= _MANY_OBSERVATIONS
        if not processes:
            import_module("torch")  # before threads are limited in what they use
        teacher = {name: self._new(name).learns_from for name in names}
        # Those that others wait for first, quick ones last, so that no thread waits; of the others
        # `mlp`, the last of the names, takes longest up to 6000 rows.

        def place(name: str) -> tuple[int, ...]:
            late = (teacher[name] in names) is (data.n_observations < _LONG_PUPILS)
            return name not in teacher.values(), get_expert(name).quick, late, -names.index(name)

        order = sorted(names, key=place)
        after = [order.index(t) if (t := teacher[name]) in names else None for name in order]
        worker = copy.copy(self)
        worker._untied = self._untied.but(n_jobs=1)
        fit_one = partial(_fit_one, worker, data.but(n_jobs=1))
        results = in_parallel(
            fit_one, order, data.n_jobs, processes=processes, after=after, told=itemgetter(2)
        )
        for found in results:
            for mine, theirs in zip(self._parts(), found, strict=True):
                mine.update(theirs)

    def _parts(self) -> tuple[dict[str, Any], ...]:
        """What `_consider` learns."""
        return self._experts, self._found, self._columns

    def _are_independent(self, names: list[str]) -> bool:
        """Whether experts may be fitted side by side.

        Not if one is given up when others are better, or if the portfolio is not the usual one: a
        learner of the user's may not be made for threads.
        """
        experts = [self._new(name) for name in names]
        usual = all(type(e).__module__.startswith("mcdensity.") for e in experts)
        return usual and all(e.holds_out or e.quick for e in experts)

    def _teachers_first(self, names: list[str]) -> list[str]:
        """Put experts behind those that they learn from."""

        def depth(name: str) -> int:
            teacher = self._new(name).learns_from
            return 1 + depth(teacher) if teacher in names else 0

        return sorted(names, key=depth)

    def _fit_too_few(self, names: list[str], data: TrainingData) -> None:
        """Fit one expert, and trust it more with more observations."""
        name = "quadratic" if "quadratic" in names else names[0]
        expert = CrossFitted(self._new(name))
        expert.fit(data)
        self.experts_: dict[str, Any] = {name: expert}
        self._teachers: dict[str, Any] = {}
        self.scores_: dict[str, float] = {}
        self.sharpness_ = data.n_observations / (2 * _LEAST_OBSERVATIONS)
        rest = _MARGINAL_ROWS / data.n_observations
        self._set_weights({name: self.sharpness_}, rest, data)

    def _is_suited(self, name: str, data: TrainingData) -> bool:
        """Whether an expert is asked for by name, or worth trying on these data."""
        return self.portfolio is not None or is_suited(get_expert(name), data)

    def _consider(self, name: str, data: TrainingData, remaining: int) -> None:
        """Fit an expert, if time allows, and keep its predictions for held-out rows."""
        left = data.seconds_left()
        if "torch" not in sys.modules and left < np.inf:
            left -= _IMPORT_SECONDS
        if self._experts and left < _LEAST_SECONDS:
            return
        expert = self._new(name)
        if isinstance(expert, DensityExpert):
            data = self._untied
        data = data.but(
            random_state=np.random.default_rng(self._seeds[name]), report=data.report.part(name)
        )
        if expert.learns_from in self._columns:
            data = data.but(columns=self._columns[expert.learns_from])
        if self._experts and left < np.inf:
            # What one expert does not use is left for those after it.
            data = data.but(deadline=time.monotonic() + left / remaining)
        if not expert.holds_out:
            expert = CrossFitted(expert, self._best(data))
        data.report(0)
        try:
            report = expert.fit(data)
        except OutOfTimeError:
            return
        finally:
            data.report(1)
        if getattr(expert, "given_up_", False):
            return
        self._keep(name, report, data)
        self._experts[name] = expert
        if report.columns is not None:
            self._columns[name] = report.columns

    def _keep(self, name: str, report: FitReport, data: TrainingData) -> None:
        """Keep what an expert says of held-out rows."""
        own = np.full(len(data), np.nan)
        # Relative to the marginal of the same data: one with ties and one without may be compared.
        own[report.rows] = report.log_density - data.held_out_marginal()[report.rows]
        place = np.zeros(len(data), dtype=np.intp)
        place[report.rows] = np.arange(len(report.rows))
        self._found[name] = own, place, report.log_ratio.astype(np.float32)

    def reweigh(
        self, data: TrainingData, more: Mapping[str, tuple[DensityExpert, FitReport]]
    ) -> None:
        """Weight the experts anew, with further ones, by rows that none has learned from.

        Parameters
        ----------
        data : TrainingData
            The rows.
        more : mapping
            Names of the further ones to these and what they say of rows (see `reweighing_rng`).
        """
        known = self.experts_ | self._teachers
        self._found, self._untied, self._seeds = {}, data.without_ties(reweighing_rng()), {}
        found, rows = condition_all(known, data.X), np.arange(len(data))
        for name, expert in known.items():
            density = isinstance(getattr(expert, "expert", expert), DensityExpert)
            own = self._untied if density else data
            self._keep(name, FitReport.of(found[name], own, rows), own)
        for name, (_, report) in more.items():
            self._keep(name, report, self._untied)
        self._experts = known | {name: expert for name, (expert, _) in more.items()}
        self._columns = {name: np.empty(0) for name in known}  # only whose they are matters now
        self._finish(data)

    def _best(self, data: TrainingData) -> Array | None:
        """Held-out log-densities of the best expert so far."""
        if not self._found:
            return None
        return max((own for own, *_ in list(self._found.values())), key=np.nanmean) + (
            data.held_out_marginal()
        )

    def _common(self, names: list[str]) -> tuple[NDArray[np.bool_], Array, Array]:
        """Rows that all have been judged by; log-ratios (n, experts), and (n, experts, points)."""
        own = np.column_stack([self._found[name][0] for name in names])
        rows = np.asarray(np.isfinite(own).all(axis=1))
        found = (self._found[name] for name in names)
        grid = np.stack([at_points[place[rows]] for _, place, at_points in found], axis=1)
        return rows, own[rows], np.clip(grid, -LIMIT, LIMIT).astype(np.float64)

    def _linear_weights(self, data: TrainingData, names: list[str]) -> dict[str, float]:
        """Weights of the best mixture, where the exponents start; small ones are left out."""
        rows, own, _ = self._common(names)
        found = mixture_weights(own, data.row_weight[rows], _LEAST_WEIGHT)
        return {n: float(v) for n, v in zip(names, found[:-1], strict=True) if v > 0}

    def _finish(self, data: TrainingData) -> None:
        """Choose the exponents, keep the experts that have one, and record the scores."""
        names = list(self._found)
        kept, exponents, gained = self._pooled(names, data)
        while len(kept) > 1 and data.n_observations >= _ENOUGH_OBSERVATIONS:
            others = [self._pooled([n for n in kept if n != name], data) for name in kept]
            least = gained.mean() - self._negligible(data, gained.mean())
            enough = [found for found in others if found[2].mean() > least]
            if not enough:
                break
            # The simplest of those that may be as good as the best.
            best = max(enough, key=lambda found: found[2].mean())
            level = [found for found in enough if is_level(found[2], best[2])]
            kept, exponents, _ = min(
                level, key=lambda found: (self._size(found[0]), -found[2].mean())
            )
        rows, own, grid = self._common(names)
        weight = data.row_weight[rows]
        self.scores_ = {
            name: float(np.average(own[:, j], weights=weight)) for j, name in enumerate(names)
        }
        chosen = [names.index(n) for n in kept]
        gains = pool_gains(own[:, chosen], grid[:, chosen], exponents) if kept else 0 * weight
        both, prior = np.column_stack([gains, 0 * gains]), np.array([1.0, _MARGINAL_ROWS])
        rest = float(best_weights(both, weight, prior)[1])
        self._set_weights(dict(zip(kept, exponents.tolist(), strict=True)), rest, data)
        if data.keep_levels and kept:
            levels = marginal_levels(data, rows)
            self.held_out_levels_ = pool_levels(*levels, weight, grid[:, chosen], exponents, rest)
        gains = np.logaddexp(np.log1p(-rest) + gains, np.log(rest))
        self.scores_["auto"] = float(np.average(gains, weights=weight))
        self.experts_ = {n: self._experts[n] for n in kept}
        wanted = {expert.learns_from for expert in self.experts_.values()} & set(self._columns)
        self._teachers = {n: self._experts[n] for n in wanted - set(kept)}
        for expert in self.experts_.values():
            if isinstance(expert, CrossFitted):
                expert.rival = None  # one number per row, not needed after fitting
        del self._experts, self._found, self._untied, self._columns, self._seeds

    def _negligible(self, data: TrainingData, gained: float) -> float:
        """Nats of held-out rows that a simpler pool may be behind."""
        assert data.marginal is not None
        cells = data.marginal.cells
        few = cells is not None and len(cells.masses_) <= _FEW_LABELS
        return self.negligible if few else min(self.negligible, _NEGLIGIBLE_SHARE * gained)

    def _size(self, names: list[str]) -> int:
        """How many experts are not simple ones."""
        own = (self._experts[name] for name in names)
        return sum(not getattr(expert, "expert", expert).quick for expert in own)

    def _pooled(self, names: list[str], data: TrainingData) -> tuple[list[str], Array, Array]:
        """Choose exponents; return the experts that have enough, these, and the rows' gains."""
        start, kept = self._linear_weights(data, names), list(names)
        while kept:
            rows, own, grid = self._common(kept)
            weight = data.row_weight[rows]
            begin = np.array([start.get(n, 0.0) for n in kept])
            exponents = pooling_exponents(own, grid, weight, begin)
            enough = exponents >= _LEAST_WEIGHT
            if enough.all():
                # Pools are compared by the rows that all experts have been judged by.
                judged = self._common(list(self._found))[0][rows]
                gains = pool_gains(own[judged], grid[judged], exponents)
                return kept, exponents, gains * weight[judged] / weight[judged].mean()
            kept = [n for n, e in zip(kept, enough, strict=True) if e]
        return [], np.empty(0), np.zeros(1)

    def _set_weights(self, exponents: dict[str, float], rest: float, data: TrainingData) -> None:
        """Store the exponents and the marginal's weight, and normalise over its knots."""
        assert data.marginal is not None
        self.sharpness_ = float(sum(exponents.values()))
        share = (1 - rest) / self.sharpness_ if self.sharpness_ > 0 else 0.0
        self.weights_ = {name: e * share for name, e in exponents.items()}
        self.weights_["marginal"] = 1 - sum(self.weights_.values())
        self._exponents = exponents
        self._fade = Fade.of(data.marginal, data.n_observations)
        self._points, self._mass = data.marginal.knots()
        self._log_marginal = data.marginal.logpdf(self._points)

    def _names(self) -> list[str]:
        if self.portfolio is None:
            return portfolio_names()
        names = [self.portfolio] if isinstance(self.portfolio, str) else list(self.portfolio)
        known = [n for n in list_experts() if n != "auto"]
        if not names or any(n not in known for n in names):
            raise ValueError(f"portfolio must name some of {known}, got {self.portfolio!r}.")
        return list(dict.fromkeys(names))

    def _new(self, name: str) -> Any:
        own = self.portfolio[name] if isinstance(self.portfolio, Mapping) else {}
        return get_expert(name, **own)

    def condition(self, X: Array) -> Conditioned:
        """Condition all experts."""
        # Files of earlier versions have no teachers.
        found = condition_all(self.experts_ | getattr(self, "_teachers", {}), X)
        parts = [found[name] for name in self.experts_]
        pool = ConditionedPool(len(X), parts, list(self._exponents.values()), self._fade)
        rest = self.weights_["marginal"]
        return ConditionedPortfolio(pool, rest, self._points, self._log_marginal, self._mass)

    def allows_nan(self) -> bool:
        """Whether X may have missing values."""
        if self.portfolio is None:
            return False
        return all(self._new(name).allows_nan() for name in self._names())

    def describe(self) -> str:
        """Name for messages."""
        return "auto"


def _fit_one(
    portfolio: Portfolio,
    data: TrainingData,
    name: str,
    columns: dict[str, Array] | None = None,
) -> tuple[dict[str, Any], ...]:
    """Fit an expert, in a thread or a process of its own, with what its teacher says of rows."""
    mine = copy.copy(portfolio)
    mine._experts, mine._found, mine._columns = {}, {}, dict(columns or {})
    mine._consider(name, data, 1)
    return tuple({n: part[n] for n in (name,) if n in part} for part in mine._parts())
