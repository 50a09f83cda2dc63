"""Several targets at once: taxi trips, colours of galaxies, and laws that are known."""

from __future__ import annotations

import time
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.linear_model import LinearRegression

from mcdensity._several import SeveralTargets
from mcdensity.benchmark.methods import make_method
from mcdensity.chain import EstimatorLink
from mcdensity.distribution import GaussianMixtureDistribution, JointDistribution

__all__ = ["JOINT_DATA", "JOINT_METHODS", "Independent", "LinearGaussian", "run_joint", "true_law"]

Array = NDArray[np.float64]

_SIMULATED = ("Normal3", "Banana")
JOINT_DATA = ("NYCTaxi", "SDSSColours", *_SIMULATED)
JOINT_METHODS = ("MCD", "Independent", "LinearGaussian", "MDN", "NF", "NNKCDE", "Marginal")
_ROWS, _NEW_ROWS, _ROWS_TO_DRAW_FOR, _DRAWS = 5000, 2000, 200, 200
_FLOOR = 1e-12
_COVARIANCE = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 1.0]])
_FACTOR = np.linalg.cholesky(_COVARIANCE)


class Independent:
    """A model of each target that does not know of the others: their product."""

    def __init__(self, models: list[Any]) -> None:
        self.models = models

    def fit(self, X: Array, Y: Array) -> Self:
        """Fit each model to its own target."""
        for model, y in zip(self.models, Y.T, strict=True):
            model.fit(X, y)
        return self

    def predict_distribution(self, X: Array) -> JointDistribution:
        """Laws in which the targets are independent given x."""
        k, p = len(self.models), X.shape[1]
        links = [_Alone(model, p) for model in self.models]
        return JointDistribution(links, X, range(k), [f"y{j}" for j in range(k)])


class _Alone(EstimatorLink):
    """A link that looks at x alone."""

    def __init__(self, estimator: Any, n_features: int) -> None:
        super().__init__(estimator)
        self.n_features = n_features

    def _inputs(self, X: Array) -> Array:
        return X[:, : self.n_features]


class LinearGaussian(SeveralTargets):
    """Least squares with one normal law of the residuals; a chain of them is a normal in R^k."""

    def _fit(self, X: Array, y: Array, sample_weight: Array | None, **extra: Any) -> None:
        self.line_ = LinearRegression().fit(X, y, sample_weight)
        away = y - self.line_.predict(X)
        self.spread_ = float(np.sqrt(np.average(away**2, weights=sample_weight)))

    def _distribution(self, X: Array) -> GaussianMixtureDistribution:
        mean = self.line_.predict(X)[:, None]
        return GaussianMixtureDistribution(
            np.ones_like(mean), mean, np.full_like(mean, self.spread_)
        )


def run_joint(problem: str, method: str, seed: int, quick: bool) -> dict[str, Any]:
    """Measure a method on new rows of a set, or against the truth of a simulated one."""
    from mcdensity.metrics import energy_score

    rows, new = (300, 200) if quick else (_ROWS, _NEW_ROWS)
    rng = np.random.default_rng([seed, JOINT_DATA.index(problem)])
    X, Y = _table(problem, rows + new, rng)
    model = _make(method, seed, quick, Y.shape[1])
    start = time.perf_counter()
    model.fit(X[:rows], Y[:rows])
    fitted = time.perf_counter()
    law = model.predict_distribution(X[rows:])
    score = np.maximum(law.logpdf(Y[rows:]), np.log(_FLOOR))
    few = min(new, 50 if quick else _ROWS_TO_DRAW_FOR)
    # Columns in units of their spread: the score is a distance.
    middle, spread = Y[:rows].mean(axis=0), Y[:rows].std(axis=0)
    draws = (law[:few].sample(_DRAWS, seed) - middle) / spread
    values = {
        "log_likelihood": float(score.mean()),
        "standard_error": float(score.std() / np.sqrt(new)),
        "energy": energy_score(draws, (Y[rows : rows + few] - middle) / spread),
    }
    if problem in _SIMULATED:
        values["kl"] = float((true_law(problem, X[rows:], Y[rows:]) - score).mean())
    return {
        "metrics": values,
        "fit_seconds": fitted - start,
        "predict_seconds": time.perf_counter() - fitted,
        "parameters": method,
    }


def _make(method: str, seed: int, quick: bool, k: int) -> Any:
    if method == "Independent":
        return Independent([make_method("MCD", seed, quick) for _ in range(k)])
    return LinearGaussian() if method == "LinearGaussian" else make_method(method, seed, quick)


def _table(problem: str, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows of a real set in a random order, or new ones of a simulated one."""
    from mcdensity.datasets import load_dataset

    if problem in _SIMULATED:
        return _simulate(problem, n, rng)
    if problem == "NYCTaxi":
        table, Y, _ = load_dataset("NYCTaxi")
        X = table.to_numpy(np.float64)
    else:  # colours of a galaxy given its magnitude and its redshift
        table, z, _ = load_dataset("SDSSBoss")
        X = np.column_stack([table["mag_r"], z])
        Y = table.drop(columns="mag_r").to_numpy(np.float64)
    chosen = rng.permutation(len(X))[:n]
    return X[chosen], Y[chosen]


def _simulate(problem: str, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    X = rng.normal(size=(n, 4))
    noise = rng.normal(size=(n, 3))
    if problem == "Normal3":
        mean, spread = _normal(X)
        return X, mean + spread * (noise @ _FACTOR.T)
    first = _bend(X)[0] + noise[:, 0]
    return X, np.column_stack([first, _bend(X, first)[1] + 0.4 * noise[:, 1]])


def _normal(X: Array) -> tuple[Array, Array]:
    """Means and scale of a normal law with correlations in R^3."""
    mean = np.column_stack([X[:, 0], 0.5 * X[:, 1] - 0.5 * X[:, 0], np.sin(X[:, 2])])
    return mean, np.exp(0.2 * X[:, [3]])


def _bend(X: Array, first: Array | None = None) -> tuple[Array, Array]:
    """Centre of the first target of a banana, and of the second given the first."""
    centre = 0.7 * X[:, 0] + 0.3 * X[:, 1]
    away = np.zeros(len(X)) if first is None else first - centre
    return centre, (0.5 + 0.5 / (1 + np.exp(-2 * X[:, 2]))) * (away**2 - 1)


def true_law(problem: str, X: Array, Y: Array) -> Array:
    """Log-density of a simulated problem, (n,)."""
    if problem == "Normal3":
        mean, spread = _normal(X)
        white = np.linalg.solve(_FACTOR, ((Y - mean) / spread).T).T
        return stats.norm.logpdf(white).sum(axis=1) - np.log(
            spread[:, 0] ** 3 * np.diag(_FACTOR).prod()
        )
    first, second = _bend(X, Y[:, 0])
    return stats.norm.logpdf(Y[:, 0], first) + stats.norm.logpdf(Y[:, 1], second, 0.4)
