"""`auto`: several discriminators, weighed by how well they serve rows they have not seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit, logsumexp

from mcdensity._mixing import mixture_weights
from mcdensity._validation import check_number
from mcdensity.contrast import ContrastSet
from mcdensity.discriminators.adapters import Discriminator, TargetMarginal

__all__ = ["AutoDiscriminator"]

Array = NDArray[np.float64]

_NETWORKS = ("flow", "mixture", "mlp", "two-tower")
_FIRST = (*_NETWORKS, "quadratic", "hist-gradient-boosting")
# Asked only where trees help: the weight that those of scikit-learn must have.
_BOOSTING = ("catboost", "xgboost", "lightgbm")
_TREES_HELP = 0.05
# Observations up to which there are so many folds, each of a fifth of the observations.
_FOLDS = ((500, 5), (5000, 3), (20_000, 2))
_PARTS = 5
# Observations up to which networks divide them in so many ways: small networks are cheap, and the
# mean of several is better than one.
_WAYS = ((200, 3), (500, 2))
_LEAST_OBSERVATIONS = 20
_MOST_HELD_OUT = 2000
_MANY_OBSERVATIONS = 1000
# Points of y over which a density is normalised.
_POINTS = 256
_LEAST_WEIGHT = 0.05
# With many rows a fold is enough to see that something is this far behind the best: it is given up.
_FAR_BEHIND = 0.03
_MOST_PAIRS = 2_000_000
# A target with no more values than this, or a twentieth of the rows, is discrete.
_FEW_VALUES = 15


class AutoDiscriminator(Discriminator):
    r"""A mixture of the densities that several discriminators give.

    Each is fitted to all but a fold of the observations, and judged by the normalised likelihood of
    that fold. The weights :math:`w_j` of the mixture :math:`\sum_j w_j f_j(y \mid x)`, with the
    marginal as one of its parts, maximise the likelihood of the held-out rows (a concave problem,
    solved by expectation and maximisation). The models of the folds are the ensemble: nothing is
    fitted again. A target with few different values is spread evenly over the cells between them
    for those that learn a density of their own.
    Boosting libraries, where they are installed, are asked only if trees help.

    Parameters
    ----------
    portfolio : sequence of str, optional
        Names of discriminators; by default "flow", "mixture", "mlp", "two-tower", "quadratic" and
        "hist-gradient-boosting", and where trees help "catboost" (or "xgboost", or "lightgbm", the
        first that is installed). With more than two million pairs only the networks.
    time_budget : float, optional
        Seconds after which no further discriminator is begun. Without one the result depends on
        the data and the seed alone.
    verbose : bool, default False

    Attributes
    ----------
    weights_ : dict
        Weight of each discriminator, and of the marginal.
    scores_ : dict
        Held-out log-likelihood of each above that of the marginal, and of the mixture ("auto").
    experts_ : dict
        The fitted discriminators that have a weight.
    """

    def __init__(
        self,
        portfolio: Any = None,
        time_budget: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.portfolio = portfolio
        self.time_budget = time_budget
        self.verbose = verbose

    extrapolates = True

    def use_marginal(self, marginal: TargetMarginal) -> None:
        """Take note of the marginal."""
        self._marginal = marginal

    def fit(self, contrast: ContrastSet, random_state: np.random.Generator) -> Self:
        """Fit the portfolio and weigh it."""
        names = self._names()
        if self.time_budget is not None:
            check_number("time_budget", self.time_budget, closed=True)
        origin = contrast.origin
        if origin is None or not hasattr(self, "_marginal"):
            raise ValueError("auto needs the marginal and the rows: fit it through MCD.")
        rng, start = random_state, time.monotonic()
        spread = self._without_ties(contrast, rng)
        level = (np.arange(_POINTS) + 0.5) / _POINTS
        self._points = self._marginal.quantile(level)
        self._y_limits = self._marginal.limits
        unit = np.arange(origin.n_labeled) if origin.groups is None else origin.groups
        units = contrast.n_observations
        self.ratio_ = 0.5
        experts: dict[str, Any] = {}
        if units < _LEAST_OBSERVATIONS:  # too few to judge by
            experts["quadratic"] = _FoldExpert("quadratic", self._points).fit(contrast, rng)
            trust = units / (2 * _LEAST_OBSERVATIONS)
            self.weights_, self.scores_ = {"quadratic": trust, "marginal": 1 - trust}, {}
            return self._finish(experts)
        count = next((k for n, k in _FOLDS if units < n), 1)
        ways = next((k for n, k in _WAYS if units < n), 1)
        part = np.stack([rng.permutation(units) % _PARTS for _ in range(ways)])
        folds = np.where(part < count, part, -1)
        # All are judged by the same observations.
        judged = np.zeros(units, dtype=bool)
        judged[rng.permutation(np.flatnonzero(folds[0] >= 0))[:_MOST_HELD_OUT]] = True
        row_fold = folds[0, unit]
        gains: dict[str, Array] = {}

        def enough() -> bool:
            spent = time.monotonic() - start
            return bool(experts) and self.time_budget is not None and spent > self.time_budget

        def consider(name: str) -> None:
            if name in _NETWORKS:
                # A classifier is content with targets that come again and again; a density is not.
                data = contrast if name == "mlp" else spread
                experts[name], gains[name] = _fit_network(
                    name, data, folds, judged, self._marginal, rng, self.verbose
                )
            else:
                best = max(gains.values(), key=np.nanmean) if gains else None
                expert = _FoldExpert(name, self._points)
                found = expert.fit_folds(contrast, folds[0], judged, rng, best)
                if found is not None:
                    experts[name], gains[name] = expert, found

        for name in names:
            # Linear models and trees see all pairs at once; networks draw them.
            large = name not in _NETWORKS and len(contrast) > _MOST_PAIRS
            if not enough() and not (large and self.portfolio is None):
                consider(name)
        weight = np.ones(len(unit)) if origin.row_weight is None else origin.row_weight
        weights = _weigh(gains, weight)
        if self.portfolio is None and weights.get("hist-gradient-boosting", 0) > _TREES_HELP:
            for name in _BOOSTING:
                if find_spec(name) is not None and not enough():
                    consider(name)
                    break  # they are much alike: the first that is installed
            weights = _weigh(gains, weight)
        self.weights_ = weights
        common = np.all([np.isfinite(g) for g in gains.values()], axis=0) & (row_fold >= 0)
        self.scores_ = {
            name: float(np.average(g[common], weights=weight[common])) for name, g in gains.items()
        }
        together = logsumexp(
            [np.log(weights.get(n, 0) + 1e-300) + g[common] for n, g in gains.items()]
            + [np.full(common.sum(), np.log(weights["marginal"] + 1e-300))],
            axis=0,
        )
        self.scores_["auto"] = float(np.average(together, weights=weight[common]))
        return self._finish({n: e for n, e in experts.items() if weights.get(n, 0) > 0})

    def _without_ties(self, contrast: ContrastSet, rng: np.random.Generator) -> ContrastSet:
        """Spread the targets of a discrete y over the cells between its values.

        Peaks at the values would make the likelihood of held-out rows as large as one likes, and
        the sharpest network the best; spread, the likelihood is that of the values' probabilities.
        The marginal is compared with as if it were even in each cell, too.
        """
        y = contrast.y_pool[:, 0]
        values = np.unique(y)
        if not 2 < len(values) <= max(_FEW_VALUES, len(y) / 20):
            return contrast
        middle = (values[1:] + values[:-1]) / 2
        first, last = 2 * values[0] - middle[0], 2 * values[-1] - middle[-1]
        edges = np.concatenate([[first], middle, [last]])
        cell = np.searchsorted(values, y)
        low, high = edges[cell], edges[cell + 1]
        spread = low + (high - low) * rng.random(len(y))
        mass = np.maximum(np.diff(self._marginal.cdf(edges)), 1e-12)[cell]
        peaked = self._marginal.logpdf(spread) - np.log(mass / (high - low))
        assert contrast.origin is not None
        peaked = peaked[: contrast.origin.n_labeled]
        self._marginal = replace(self._marginal, optimism=peaked)
        return replace(contrast, y_pool=spread[:, None])

    def _finish(self, experts: dict[str, Any]) -> Self:
        self.experts_ = experts
        self.__dict__.pop("_marginal", None)
        return self

    def _names(self) -> list[str]:
        from mcdensity.discriminators import list_discriminators

        if self.portfolio is None:
            return list(_FIRST)
        names = [self.portfolio] if isinstance(self.portfolio, str) else list(self.portfolio)
        known = [n for n in list_discriminators() if n != "auto"]
        wrong = [n for n in names if n not in known]
        if wrong or not names:
            raise ValueError(f"portfolio must name some of {known}, got {self.portfolio!r}.")
        return list(dict.fromkeys(names))

    def logit_rows(self, X: Array, Y: Array) -> Array:
        """Log-ratio of the mixture at (X[i], Y[i, j])."""
        return self._log_ratio(X, Y, "logit_rows", Y.shape)

    def logit_grid(self, X: Array, grid: Array) -> Array:
        """Log-ratio of the mixture at (X[i], grid[j])."""
        return self._log_ratio(X, grid, "logit_grid", (len(X), len(grid)))

    def _log_ratio(self, X: Array, y: Array, method: str, shape: tuple[int, ...]) -> Array:
        with np.errstate(divide="ignore"):
            out = np.full(shape, np.log(self.weights_["marginal"]))
        for name, expert in self.experts_.items():
            at = y if expert.extrapolates else np.clip(y, *self._y_limits)
            value = getattr(expert, method)(X, at) - logit(expert.ratio_)
            if not getattr(expert, "normalised_", False):
                value -= _log_normaliser(expert, X, self._points)[:, None]
            np.logaddexp(out, np.log(self.weights_[name]) + value, out=out)
        return out

    def allows_nan(self) -> bool:
        """Whether X may have missing values."""
        from mcdensity.discriminators import get_discriminator

        if self.portfolio is None:
            return False
        return all(get_discriminator(name).allows_nan() for name in self._names())

    def describe(self) -> str:
        """Name for messages."""
        return "auto"


def _fit_network(
    name: str,
    contrast: ContrastSet,
    folds: NDArray[np.intp],
    judged: NDArray[np.bool_],
    marginal: TargetMarginal,
    rng: np.random.Generator,
    verbose: bool,
) -> tuple[Any, Array]:
    """Fit a network whose members hold out the folds; return it and the gains of held-out rows."""
    from mcdensity.discriminators import get_discriminator

    model: Any = get_discriminator(name, verbose=verbose)
    model.use_marginal(marginal)
    model.use_folds(folds, judged)
    model.fit(contrast, rng)
    return model, model.held_gains_


class _FoldExpert(Discriminator):
    """A discriminator fitted without each fold in turn; the densities are averaged."""

    def __init__(self, name: str, points: Array) -> None:
        self.name = name
        self.points = points

    ratio_ = 0.5
    normalised_ = True

    def fit(self, contrast: ContrastSet, random_state: np.random.Generator) -> Self:
        """Fit one model to all rows."""
        self.models_ = [self._new().fit(contrast, random_state)]
        return self

    def fit_folds(
        self,
        contrast: ContrastSet,
        folds: NDArray[np.intp],
        judged: NDArray[np.bool_],
        rng: np.random.Generator,
        best: Array | None = None,
    ) -> Array | None:
        """Fit a model without each fold; return the gains of the rows held out, NaN for others.

        With many rows None is returned after the first fold if it is far behind the best so far.
        """
        assert contrast.origin is not None
        n, groups = contrast.origin.n_labeled, contrast.origin.groups
        row_fold = folds if groups is None else folds[groups]
        row_judged = judged if groups is None else judged[groups]
        gains = np.full(n, np.nan)
        self.models_ = []
        count = int(folds.max()) + 1
        if len(folds) >= _MANY_OBSERVATIONS:  # they take long, and have rows enough to be judged by
            count = min(count, 2)
        for fold in range(count):
            model = self._new().fit(contrast.part(row_fold != fold, rng), rng)
            held = np.flatnonzero((row_fold == fold) & row_judged)
            X, y = contrast.x_pool[held], contrast.y_pool[held]
            own = _ratio(model, model.logit_rows(X, y))[:, 0]
            # Trees have peaks narrower than any grid: with the row's own y among the points, none
            # that it fell into is missed.
            m = len(self.points)
            rest = _log_normaliser(model, X, self.points) + np.log(m / (m + 1))
            gains[held] = own - np.logaddexp(rest, own - np.log(m + 1))
            self.models_.append(model)
            if fold == 0 and best is not None and len(folds) >= _MANY_OBSERVATIONS:
                behind = (best - gains)[np.isfinite(best - gains)]
                error = behind.std() / np.sqrt(max(len(behind), 1))
                if len(behind) and behind.mean() > _FAR_BEHIND + 2 * error:
                    return None
        return gains

    def _new(self) -> Any:
        from mcdensity.discriminators import get_discriminator

        model: Any = get_discriminator(self.name)
        if self.name == "catboost":
            model.learner.set_params(thread_count=1)
        return model

    def _average(self, X: Array, value: Callable[[Any], Array]) -> Array:
        parts = [
            _ratio(model, value(model)) - _log_normaliser(model, X, self.points)[:, None]
            for model in self.models_
        ]
        return logsumexp(parts, axis=0) - np.log(len(parts))

    def logit_rows(self, X: Array, Y: Array) -> Array:
        """Log-ratio of the averaged densities at (X[i], Y[i, j])."""
        return self._average(X, lambda model: model.logit_rows(X, Y))

    def logit_grid(self, X: Array, grid: Array) -> Array:
        """Log-ratio of the averaged densities at (X[i], grid[j])."""
        return self._average(X, lambda model: model.logit_grid(X, grid))


def _log_normaliser(model: Any, X: Array, points: Array) -> Array:
    """Log of the mean of exp T over quantiles of the marginal."""
    value = _ratio(model, model.logit_grid(X, points))
    return logsumexp(value, axis=1) - np.log(len(points))


def _ratio(model: Any, logits: Array) -> Array:
    """Log-ratios, kept finite: a forest may be sure of itself."""
    return np.clip(logits, -30, 30) - logit(model.ratio_)


def _weigh(gains: dict[str, Array], weight: Array) -> dict[str, float]:
    """Weights by name, those of nothing left out."""
    value = np.column_stack(list(gains.values()))
    rows = np.isfinite(value).all(axis=1)
    found = mixture_weights(value[rows], weight[rows], _LEAST_WEIGHT)
    return {n: float(v) for n, v in zip([*gains, "marginal"], found, strict=True) if v > 0}
