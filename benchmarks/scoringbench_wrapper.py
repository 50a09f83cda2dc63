"""MCD in ScoringBench: a wrapper for its registry.

See https://github.com/jonaslandsgesell/ScoringBench; written for its interface of 2026.

Put this file beside a checkout of ScoringBench, and add to `MODELS` in its
`scoringbench/univariate/models.py`:

    from scoringbench_wrapper import MCDWrapper

    "mcdensity": lambda: MCDWrapper(),
    "mcdensity_fast": lambda: MCDWrapper(MCD(effort="fast", random_state=0)),
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scoringbench.univariate.wrappers.base import DistributionPrediction, ProbabilisticWrapper
from sklearn.base import clone

from mcdensity import MCD, TableEstimator

# Probability beyond the first and the last bin, which these bins get as well.
_TAIL = 1e-4


class MCDWrapper(ProbabilisticWrapper):
    """The law of each row as a histogram with bins of equal width, whose masses are exact.

    Each row has bins of its own, from its quantile 0.0001 to 0.9999: a sharp law is shown as sharp
    as it is. The scores need no further smoothing, since there is a density to begin with.

    Parameters
    ----------
    estimator : ConditionalEstimator, optional
        By default ``MCD(random_state=0)``. Tables with text go through `TableEstimator`.
    n_bins : int, default 400
    """

    def __init__(self, estimator: Any = None, n_bins: int = 400) -> None:
        self.estimator, self.n_bins = estimator, n_bins

    def fit(self, X: Any, y: Any) -> MCDWrapper:
        target = np.asarray(y, dtype=float).reshape(-1)
        known = np.isfinite(target)
        self._set_train_range(target[known])
        estimator = MCD(random_state=0) if self.estimator is None else clone(self.estimator)
        self._is_table = hasattr(X, "dtypes") and hasattr(X, "columns")
        if self._is_table:
            X = X.reset_index(drop=True)
            if not all(pd.api.types.is_numeric_dtype(kind) for kind in X.dtypes):
                estimator = TableEstimator(estimator)
        self.model_ = estimator.fit(self._plain(X)[known], target[known])
        return self

    def _plain(self, X: Any) -> Any:
        """Return rows without what is infinite."""
        if self._is_table:
            return X.replace([np.inf, -np.inf], np.nan)
        return np.where(np.isfinite(X := np.asarray(X, dtype=float)), X, np.nan)

    def predict(self, X: Any) -> np.ndarray:
        return self.model_.predict(self._plain(X))

    def predict_distribution(self, X: Any) -> DistributionPrediction:
        law = self.model_.predict_distribution(self._plain(X))
        low, high = law.ppf_grid([_TAIL, 1 - _TAIL]).T
        low_end, high_end = self._y_train_range
        least = 1e-9 * (high_end - low_end)
        high = np.maximum(high, low + least)
        edges = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, self.n_bins + 1)
        level = law.cdf(edges)
        level[:, 0], level[:, -1] = 0.0, 1.0
        masses = np.maximum(np.diff(level, axis=1), 0.0)
        masses /= masses.sum(axis=1, keepdims=True)
        return DistributionPrediction.from_histogram(
            edges, masses, mean=law.mean(), train_range=self._y_train_range, is_grid_native=True
        )
