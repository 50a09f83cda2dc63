"""`auto`: several discriminators, weighed by how well they serve rows they have not seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit, logsumexp

from mcdensity._validation import check_number
from mcdensity.contrast import ContrastSet
from mcdensity.discriminators._mixing import mixture_weights
from mcdensity.discriminators.adapters import Discriminator

__all__ = ["AutoDiscriminator"]

Array = NDArray[np.float64]

_NETWORKS = ("two-tower", "mixture", "mlp")
_FIRST = ("quadratic", *_NETWORKS, "hist-gradient-boosting")
# Asked only where trees help: the weight that those of scikit-learn must have.
_BOOSTING = ("catboost", "xgboost", "lightgbm")
_TREES_HELP = 0.05
# Observations up to which there are so many folds, each of a fifth of the observations.
_FOLDS = ((500, 5), (5000, 3), (20_000, 2))
_PARTS = 5
_LEAST_OBSERVATIONS = 20
_MOST_HELD_OUT = 1500
# Points of y over which a density is normalised.
_POINTS = 256
_LEAST_WEIGHT = 0.02
_CACHE_ROWS = 100_000


class AutoDiscriminator(Discriminator):
    r"""A mixture of the densities that several discriminators give.

    Each is fitted to all but a fold of the observations, and judged by the normalised likelihood of
    that fold. The weights :math:`w_j` of the mixture :math:`\sum_j w_j f_j(y \mid x)`, with the
    marginal as one of its parts, maximise the likelihood of the held-out rows (a concave problem,
    solved by expectation and maximisation). The models of the folds are the ensemble: nothing is
    fitted again. Boosting libraries, where they are installed, are asked only if trees help.

    Parameters
    ----------
    portfolio : sequence of str, optional
        Names of discriminators; by default "quadratic", "two-tower", "mixture", "mlp" and
        "hist-gradient-boosting", and "catboost" where trees help and it is installed.
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

    def use_marginal(self, quantile: Callable[[Array], Array]) -> None:
        """Take note of the marginal's quantiles."""
        self._quantile = quantile

    def fit(self, contrast: ContrastSet, random_state: np.random.Generator) -> Self:
        """Fit the portfolio and weigh it."""
        names = self._names()
        if self.time_budget is not None:
            check_number("time_budget", self.time_budget, closed=True)
        origin = contrast.origin
        if origin is None or not hasattr(self, "_quantile"):
            raise ValueError("auto needs the marginal and the rows: fit it through MCD.")
        rng, start = random_state, time.monotonic()
        level = (np.arange(_POINTS) + 0.5) / _POINTS
        self._points = self._quantile(level)
        self._normalisers: dict[str, dict[bytes, float]] = {}
        unit = np.arange(origin.n_labeled) if origin.groups is None else origin.groups
        units = contrast.n_observations
        self.ratio_ = 0.5
        experts: dict[str, Any] = {}
        if units < _LEAST_OBSERVATIONS:  # too few to judge by
            experts["quadratic"] = _FoldExpert("quadratic")
            experts["quadratic"].fit(contrast, None, self._points, rng)
            self.weights_, self.scores_ = {"quadratic": 0.5, "marginal": 0.5}, {}
            return self._finish(experts)
        count = next((k for n, k in _FOLDS if units < n), 1)
        part = rng.permutation(units) % _PARTS
        folds = np.where(part < count, part, -1)
        row_fold = folds[unit]
        gains: dict[str, Array] = {}

        def enough() -> bool:
            spent = time.monotonic() - start
            return bool(experts) and self.time_budget is not None and spent > self.time_budget

        def consider(name: str) -> None:
            expert = _NetworkExpert(name, self.verbose) if name in _NETWORKS else _FoldExpert(name)
            expert.fit(contrast, folds, self._points, rng, self._quantile)
            experts[name], gains[name] = expert.model, expert.gains

        for name in names:
            if not enough():
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

    def _finish(self, experts: dict[str, Any]) -> Self:
        self.experts_ = experts
        self.__dict__.pop("_quantile", None)
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
        return self._log_ratio(X, lambda expert: expert.logit_rows(X, Y), Y.shape)

    def logit_grid(self, X: Array, grid: Array) -> Array:
        """Log-ratio of the mixture at (X[i], grid[j])."""
        return self._log_ratio(X, lambda expert: expert.logit_grid(X, grid), (len(X), len(grid)))

    def _log_ratio(self, X: Array, ratio: Callable[[Any], Array], shape: tuple[int, ...]) -> Array:
        with np.errstate(divide="ignore"):
            out = np.full(shape, np.log(self.weights_["marginal"]))
        for name, expert in self.experts_.items():
            value = ratio(expert) - logit(expert.ratio_)
            value -= self._log_normaliser(name, expert, X)[:, None]
            np.logaddexp(out, np.log(self.weights_[name]) + value, out=out)
        return out

    def _log_normaliser(self, name: str, expert: Any, X: Array) -> Array:
        """Return log Z of rows; those asked for lately are remembered."""
        if getattr(expert, "normalised_", False):
            return np.zeros(len(X))
        known = self._normalisers.setdefault(name, {})
        keys = [row.tobytes() for row in np.ascontiguousarray(X)]
        new = [i for i, key in enumerate(keys) if key not in known]
        if new:
            if len(known) > _CACHE_ROWS:
                known.clear()
                new = list(range(len(keys)))
            value = expert.logit_grid(X[new], self._points) - logit(expert.ratio_)
            found = logsumexp(value, axis=1) - np.log(_POINTS)
            known.update((keys[i], float(v)) for i, v in zip(new, found, strict=True))
        return np.array([known[key] for key in keys])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_normalisers": {}}

    def allows_nan(self) -> bool:
        """Whether X may have missing values."""
        from mcdensity.discriminators import get_discriminator

        if self.portfolio is None:
            return False
        return all(get_discriminator(name).allows_nan() for name in self._names())

    def describe(self) -> str:
        """Name for messages."""
        return "auto"


class _NetworkExpert:
    """A neural discriminator whose members hold out the folds."""

    def __init__(self, name: str, verbose: bool) -> None:
        self.name, self.verbose = name, verbose

    def fit(
        self,
        contrast: ContrastSet,
        folds: NDArray[np.intp],
        points: Array,
        rng: np.random.Generator,
        quantile: Callable[[Array], Array],
    ) -> None:
        from mcdensity.discriminators import get_discriminator

        self.model: Any = get_discriminator(self.name, verbose=self.verbose)
        self.model.use_marginal(quantile)
        self.model.use_folds(folds)
        self.model.fit(contrast, rng)
        self.gains = self.model.held_gains_


class _FoldExpert(Discriminator):
    """A discriminator fitted without each fold in turn; the densities are averaged."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fit(  # type: ignore[override]
        self,
        contrast: ContrastSet,
        folds: NDArray[np.intp] | None,
        points: Array,
        rng: np.random.Generator,
        quantile: Any = None,
    ) -> Self:
        from mcdensity.discriminators import get_discriminator

        self.ratio_, self.normalised_, self._points = 0.5, True, points
        self.models_: list[Any] = []
        self.model = self
        if folds is None:
            self.models_.append(get_discriminator(self.name).fit(contrast, rng))
            return self
        assert contrast.origin is not None
        n, groups = contrast.origin.n_labeled, contrast.origin.groups
        row_fold = folds if groups is None else folds[groups]
        gains = np.full(n, np.nan)
        for fold in range(int(folds.max()) + 1):
            held = np.flatnonzero(row_fold == fold)
            model = get_discriminator(self.name)
            if self.name == "catboost":
                model.learner.set_params(thread_count=1)
            model.fit(contrast.part(row_fold != fold, rng), rng)
            self.models_.append(model)
            held = np.sort(rng.permutation(held)[:_MOST_HELD_OUT])
            X, y = contrast.x_pool[held], contrast.y_pool[held]
            own = _ratio(model, model.logit_rows(X, y))[:, 0]
            gains[held] = own - self._log_normaliser(model, X)
        self.gains = gains
        return self

    def _log_normaliser(self, model: Any, X: Array) -> Array:
        value = _ratio(model, model.logit_grid(X, self._points))
        return logsumexp(value, axis=1) - np.log(len(self._points))

    def _average(self, X: Array, value: Callable[[Any], Array]) -> Array:
        parts = [
            _ratio(model, value(model)) - self._log_normaliser(model, X)[:, None]
            for model in self.models_
        ]
        return logsumexp(parts, axis=0) - np.log(len(parts))

    def logit_rows(self, X: Array, Y: Array) -> Array:
        return self._average(X, lambda model: model.logit_rows(X, Y))

    def logit_grid(self, X: Array, grid: Array) -> Array:
        return self._average(X, lambda model: model.logit_grid(X, grid))


def _ratio(model: Any, logits: Array) -> Array:
    """Log-ratios, kept finite: a forest may be sure of itself."""
    return np.clip(logits, -30, 30) - logit(model.ratio_)


def _weigh(gains: dict[str, Array], weight: Array) -> dict[str, float]:
    """Weights by name, those of nothing left out."""
    value = np.column_stack(list(gains.values()))
    rows = np.isfinite(value).all(axis=1)
    found = mixture_weights(value[rows], weight[rows], _LEAST_WEIGHT)
    return {n: float(v) for n, v in zip([*gains, "marginal"], found, strict=True) if v > 0}
