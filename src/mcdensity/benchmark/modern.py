"""Methods that people use today, behind what the experiments ask for. Never imported elsewhere.

NGBoost, quantile-forest, Treeffuser and CatBoost predict a normal distribution, quantiles or
samples. Quantiles and samples become a density by normal kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._validation import require
from mcdensity.distribution import GaussianMixtureDistribution
from mcdensity.estimator import ConditionalEstimator

__all__ = ["MODERN"]

Array = NDArray[np.float64]

# Distributions that are known by quantiles, or by draws, become mixtures of so many kernels. Draws
# are what Treeffuser spends its time on, so there are fewer of them.
_QUANTILES = np.linspace(0.01, 0.99, 99)
_SAMPLES = 50


class _Modern(ConditionalEstimator):
    """Base: `_make` gives a new learner, `_predicted` a mixture for standardised rows."""

    def __init__(self, random_state: int = 0, quick: bool = False) -> None:
        self.random_state = random_state
        self.quick = quick

    def _fit(self, X: Array, y: Array, sample_weight: Array | None, **extra: Any) -> None:
        if sample_weight is not None:
            raise ValueError(f"{type(self).__name__} takes no weights here.")
        self._train(X, y)

    def _train(self, X: Array, y: Array) -> None:
        raise NotImplementedError

    def _row_size(self) -> int:
        return 100


def _normal(mean: Array, scale: Array) -> GaussianMixtureDistribution:
    mean = np.asarray(mean, dtype=np.float64)[:, None]
    scale = np.maximum(np.asarray(scale, dtype=np.float64)[:, None], 1e-6)
    return GaussianMixtureDistribution(np.ones_like(mean), mean, scale)


def _kernels(points: Array) -> GaussianMixtureDistribution:
    """Normal kernels at points, with Silverman's bandwidth for each row."""
    spread = np.minimum(
        points.std(axis=1), np.subtract(*np.quantile(points, [0.75, 0.25], axis=1)) / 1.349
    )
    spread = np.where(spread > 0, spread, np.maximum(points.std(axis=1), 1e-3))
    width = 0.9 * spread * points.shape[1] ** -0.2
    scales = np.broadcast_to(width[:, None], points.shape)
    return GaussianMixtureDistribution(np.ones_like(points), points, scales)


class NGBoost(_Modern):
    """Natural gradient boosting of a normal distribution (Duan et al., 2020)."""

    def _train(self, X: Array, y: Array) -> None:
        rounds = 50 if self.quick else 500
        self.learner_ = require("ngboost", "bench").NGBRegressor(
            n_estimators=rounds, verbose=False, random_state=self.random_state
        )
        order = np.random.default_rng(self.random_state).permutation(len(y))
        held, rest = order[: len(y) // 5], order[len(y) // 5 :]
        # The number of rounds is chosen on a fifth of the rows, and all rows then learn as many.
        self.learner_.fit(X[rest], y[rest], X_val=X[held], Y_val=y[held], early_stopping_rounds=20)
        rounds = int(self.learner_.best_val_loss_itr or rounds - 1) + 1
        self.learner_ = self.learner_.set_params(n_estimators=rounds).fit(X, y)

    def _distribution(self, X: Array) -> GaussianMixtureDistribution:
        found = self.learner_.pred_dist(X).params
        return _normal(found["loc"], found["scale"])


class QuantileForest(_Modern):
    """Quantile regression forest (Meinshausen, 2006; the package quantile-forest)."""

    def _train(self, X: Array, y: Array) -> None:
        self.learner_ = (
            require("quantile_forest", "bench")
            .RandomForestQuantileRegressor(
                n_estimators=20 if self.quick else 200,
                min_samples_leaf=5,
                random_state=self.random_state,
            )
            .fit(X, y)
        )

    def _distribution(self, X: Array) -> GaussianMixtureDistribution:
        return _kernels(np.asarray(self.learner_.predict(X, quantiles=_QUANTILES.tolist())))


class Treeffuser(_Modern):
    """Diffusion with gradient boosted trees (Beltran-Velez et al., 2024)."""

    def _train(self, X: Array, y: Array) -> None:
        try:
            from treeffuser import Treeffuser as Learner
        except ImportError as error:
            raise ImportError(
                "treeffuser is not installed. It asks for versions of scikit-learn and numpy that "
                "this package does not work with; without its requirements it does work: "
                "pip install --no-deps treeffuser einops jaxtyping ml-collections"
            ) from error
        self.learner_ = Learner(seed=self.random_state)
        self.learner_.fit(X, y[:, None])

    def _distribution(self, X: Array) -> GaussianMixtureDistribution:
        samples = self.learner_.sample(
            X, n_samples=10 if self.quick else _SAMPLES, seed=self.random_state, n_steps=50
        )
        return _kernels(np.asarray(samples)[..., 0].T)


class CatBoostUncertainty(_Modern):
    """CatBoost with the loss RMSEWithUncertainty: a normal distribution."""

    def _train(self, X: Array, y: Array) -> None:
        catboost = require("catboost", "bench")
        options = {
            "loss_function": "RMSEWithUncertainty", "thread_count": 1, "verbose": False,
            "random_seed": self.random_state, "allow_writing_files": False,
            "iterations": 50 if self.quick else 1000,
        }  # fmt: skip
        order = np.random.default_rng(self.random_state).permutation(len(y))
        held, rest = order[: len(y) // 5], order[len(y) // 5 :]
        first = catboost.CatBoostRegressor(**options, early_stopping_rounds=30)
        first.fit(X[rest], y[rest], eval_set=(X[held], y[held]))
        options["iterations"] = max(1, (first.get_best_iteration() or 0) + 1)
        self.learner_ = catboost.CatBoostRegressor(**options).fit(X, y)

    def _distribution(self, X: Array) -> GaussianMixtureDistribution:
        mean, variance = self.learner_.predict(X).T
        return _normal(mean, np.sqrt(variance))


MODERN: dict[str, Any] = {
    "NGBoost": NGBoost,
    "QuantileForest": QuantileForest,
    "Treeffuser": Treeffuser,
    "CatBoostUncertainty": CatBoostUncertainty,
}
