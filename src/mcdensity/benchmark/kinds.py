"""Cells of the protocol about kinds of targets: counts, grades, zeros, caps, prices, shares."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from mcdensity._validation import require
from mcdensity.benchmark.methods import COUNTS, make_method
from mcdensity.distribution import (
    ConditionalDistribution,
    DiscreteDistribution,
    MixedDistribution,
    ScipyDistribution,
)

__all__ = ["KINDS", "PEERS", "NotForThisTargetError", "run_kind", "simulated_kind"]

Array = NDArray[np.float64]

# What each problem is, so that others than MCD know what to fit.
_REAL = {
    "DoctorVisits": "counts",
    "Biochemists": "counts",
    "WineRed": "counts",
    "WineWhite": "counts",
    "MrozHours": "mixed",
    "Ames": "positive",
    "Wage": "positive",
    "BostonHousing": "mixed",
    "Protein": "mixed",
}
_SIMULATED = {
    "Poisson": "counts",
    "NegativeBinomial": "counts",
    "ZeroInflated": "counts",
    "Grades": "counts",
    "HurdleLognormal": "mixed",
    "CappedNormal": "mixed",
    "Beta": "positive",
}
KINDS = (*_REAL, *_SIMULATED)
PEERS = (*COUNTS, "NGBoost", "QuantileForest")
# Rows of the largest set that are used, and of simulated ones.
_MOST_ROWS, _ROWS, _NEW_ROWS = 6000, 2000, 2000
_FOLDS = 10
# Counts beyond the largest seen that parametric laws are tabulated to.
_BEYOND = 60
_FLOOR = 1e-10


class NotForThisTargetError(ValueError):
    """A method has no law for this kind of target."""


def run_kind(problem: str, method: str, seed: int, quick: bool) -> dict[str, Any]:
    """Measure a method on a fold of a real set, or against the truth of a simulated one."""
    from mcdensity import metrics

    simulated = problem in _SIMULATED
    kind = (_SIMULATED | _REAL)[problem]
    if simulated:
        X, y, _ = simulated_kind(problem, 300 if quick else _ROWS, seed)
        X_new, y_new, truth = simulated_kind(problem, _NEW_ROWS, 10_000 + seed)
    else:
        X, y, X_new, y_new = _fold(problem, seed, quick)
    start = time.perf_counter()
    law = _laws(method, kind, seed, quick, X, y, X_new)
    seconds = time.perf_counter() - start
    score = np.maximum(law.logpdf(y_new), np.log(_FLOOR))
    values = {
        "log_likelihood": float(score.mean()),
        "crps": metrics.crps(law, y_new),
        "coverage_90": metrics.coverage(law, y_new),
        "below": float(law.cdf(np.nextafter(min(0.0, float(y.min())), -np.inf)).mean()),
    }
    if simulated:
        values |= _against_truth(truth, law, y_new)
    return {
        "metrics": values,
        "fit_seconds": seconds,
        "predict_seconds": 0.0,
        "parameters": method,
    }


def _against_truth(truth: Any, law: ConditionalDistribution, y: Array) -> dict[str, float]:
    """Return the divergence, by draws of the truth, and the error of the masses of the atoms."""
    out = {"kl": 0.0}
    draws = truth.sample(50, np.random.default_rng(1))
    gap = truth.logpdf(draws) - np.maximum(law.logpdf(draws), np.log(_FLOOR))
    out["kl"] = float(gap.mean())
    if len(truth.atoms):
        atoms = truth.atoms[truth.masses.mean(axis=0) > 0.01]
        points = np.broadcast_to(atoms, (len(y), len(atoms)))
        out["mass_error"] = float(np.abs(law.pmf(points) - truth.pmf(points)).mean())
    return out


def _fold(problem: str, seed: int, quick: bool) -> tuple[Array, Array, Array, Array]:
    """One of ten folds of a real set; text becomes columns of 0 and 1."""
    from mcdensity.datasets import load_dataset
    from mcdensity.tables import TablePreparation

    data = load_dataset(problem)
    order = np.random.RandomState(0).permutation(len(data.y))[:_MOST_ROWS]
    test = np.arange(len(order)) % _FOLDS == seed % _FOLDS
    train, new = order[~test], order[test]
    if quick:
        train, new = train[:200], new[:100]
    preparation = TablePreparation().fit(data.X.iloc[train])
    X, X_new = (preparation.transform(data.X.iloc[rows]) for rows in (train, new))
    return X, data.y[train], X_new, data.y[new]


def simulated_kind(problem: str, n: int, seed: int) -> tuple[Array, Array, ConditionalDistribution]:
    """Rows, targets and true laws of a simulated problem."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    rate = np.exp(0.6 + 0.5 * X[:, :1] - 0.3 * X[:, 1:2])
    share = 1 / (1 + np.exp(-0.3 - X[:, 2:3]))
    zero, count = np.zeros((n, 1)), np.arange(80.0)
    truth: ConditionalDistribution
    if problem == "Poisson":
        truth = DiscreteDistribution(count, stats.poisson.pmf(count, rate))
    elif problem == "NegativeBinomial":
        truth = DiscreteDistribution(count, stats.nbinom.pmf(count, 2, 2 / (2 + rate)))
    elif problem == "ZeroInflated":
        masses = share * stats.poisson.pmf(count, 1.5 * rate) + (1 - share) * (count == 0)
        truth = DiscreteDistribution(count, masses)
    elif problem == "Grades":
        edges = np.array([-np.inf, -1.5, -0.5, 0.6, 1.6, np.inf])
        below = stats.norm.cdf(edges, X[:, :1] + 0.5 * X[:, 1:2])
        truth = DiscreteDistribution(np.arange(1.0, 6.0), np.diff(below, axis=1))
    elif problem == "HurdleLognormal":
        rest = ScipyDistribution(stats.lognorm, zero, rate, s=np.full((n, 1), 0.6))
        truth = MixedDistribution([0.0], share, rest)
    elif problem == "CappedNormal":
        truth = _capped(X[:, :1] + 0.5 * X[:, 1:2], 1.0)
    elif problem == "Beta":
        a, b = 1 + rate, 1 + 3 * share
        truth = ScipyDistribution(stats.beta, zero, np.ones((n, 1)), a=a, b=b)
    else:
        raise ValueError(f"{problem!r} is not simulated; choose from {', '.join(_SIMULATED)}.")
    return X, truth.sample(1, rng)[:, 0], truth


def _capped(mean: Array, cap: float) -> MixedDistribution:
    """Normal laws with all that lies above a cap at the cap."""
    rest = ScipyDistribution(
        stats.truncnorm, mean, np.ones_like(mean), a=np.full_like(mean, -30.0), b=cap - mean
    )
    return MixedDistribution([cap], stats.norm.sf(cap, mean), rest)


# Methods.


def _laws(
    method: str, kind: str, seed: int, quick: bool, X: Array, y: Array, X_new: Array
) -> ConditionalDistribution:
    if method in COUNTS:
        if kind != "counts":
            raise NotForThisTargetError(f"{method} is a law of counts.")
        return _statsmodels(method, X, y, X_new)
    if method == "NGBoost":
        return _ngboost(kind, seed, quick, X, y, X_new)
    options = {"target": "auto", "support": None} if method.startswith("MCD") else {}
    law = make_method(method, seed, quick, **options).fit(X, y).predict_distribution(X_new)
    return _as_counts(law, y) if kind == "counts" and not law.is_discrete else law


def _as_counts(law: ConditionalDistribution, y: Array) -> DiscreteDistribution:
    """Masses of cells of a density, for methods that know nothing of counts."""
    values = np.arange(y.min(), y.max() + 1)
    below = law.cdf_grid(values[:-1] + 0.5)
    masses = np.diff(below, axis=1, prepend=0, append=1)
    return DiscreteDistribution(values, np.maximum(masses, 1e-6))


def _statsmodels(method: str, X: Array, y: Array, X_new: Array) -> DiscreteDistribution:
    api = require("statsmodels.api", "bench")
    mean, spread = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-12)
    X, X_new = ((part - mean) / spread for part in (X, X_new))
    X, X_new = (np.column_stack([np.ones(len(part)), part]) for part in (X, X_new))
    # Columns that others determine make a singular problem.
    kept = np.abs(np.diag(np.linalg.qr(X, mode="r"))) > 1e-8 * len(X) ** 0.5
    X, X_new = X[:, kept], X_new[:, kept]
    values = np.arange(0.0, y.max() + _BEYOND)
    model = {
        "Poisson": lambda: api.Poisson(y, X),
        "NegativeBinomial": lambda: api.NegativeBinomial(y, X),
        "ZeroInflatedPoisson": lambda: api.ZeroInflatedPoisson(y, X, exog_infl=X),
    }[method]()
    found = model.fit(method="bfgs", disp=0, maxiter=1000)
    more = {"exog_infl": X_new} if method == "ZeroInflatedPoisson" else {}
    masses = found.predict(X_new, which="prob", y_values=values, **more)
    return DiscreteDistribution(values, np.maximum(np.nan_to_num(masses), 1e-12))


def _ngboost(
    kind: str, seed: int, quick: bool, X: Array, y: Array, X_new: Array
) -> ConditionalDistribution:
    """Poisson for counts, LogNormal for positive targets; a hurdle before it where there are zeros.

    A cap has no law here.
    """
    ngboost, laws = require("ngboost", "bench"), require("ngboost.distns", "bench")

    def fitted(law: Any, rows: NDArray[np.bool_]) -> Any:
        options = {"n_estimators": 50 if quick else 500, "verbose": False, "random_state": seed}
        held = np.random.default_rng(seed).random(rows.sum()) < 0.2
        own, target = X[rows], y[rows]
        first = ngboost.NGBRegressor(Dist=law, **options)
        first.fit(
            own[~held], target[~held], X_val=own[held], Y_val=target[held], early_stopping_rounds=20
        )
        options["n_estimators"] = int(first.best_val_loss_itr or 0) + 1
        return ngboost.NGBRegressor(Dist=law, **options).fit(own, target).pred_dist(X_new)

    if kind == "counts":
        rate = fitted(laws.Poisson, np.ones(len(y), dtype=bool)).params["mu"]
        values = np.arange(0.0, y.max() + _BEYOND)
        masses = stats.poisson.pmf(values, np.asarray(rate)[:, None])
        return DiscreteDistribution(values, np.maximum(masses, 1e-12))
    positive = y > 0
    found = fitted(laws.LogNormal, positive).params
    scale, s = (np.asarray(found[name])[:, None] for name in ("scale", "s"))
    law = ScipyDistribution(stats.lognorm, np.zeros_like(scale), scale, s=s)
    if positive.all():
        return law
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    hurdle = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(X, ~positive)
    return MixedDistribution([0.0], hurdle.predict_proba(X_new)[:, 1:], law)
