"""Estimators of this package as regressors of skpro. Needs the extra `skpro`."""

from __future__ import annotations

from typing import Any, Self

from mcdensity._validation import require

require("skpro", "skpro")

import pandas as pd  # noqa: E402
from sklearn.base import clone  # noqa: E402
from skpro.regression.base import BaseProbaRegressor  # noqa: E402

from mcdensity.distribution.to_skpro import LawDistribution  # noqa: E402
from mcdensity.estimator import ConditionalEstimator  # noqa: E402
from mcdensity.tables import TableEstimator  # noqa: E402

__all__ = ["LawDistribution", "MCDRegressor"]


class MCDRegressor(BaseProbaRegressor):
    """The distribution of y given x, as a probabilistic regressor of skpro.

    Parameters
    ----------
    estimator : ConditionalEstimator, optional
        An estimator of this package; by default `MCD()`. Tables with text go through
        `TableEstimator`.

    Attributes
    ----------
    estimator_ : ConditionalEstimator
        Fitted.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from mcdensity import MCD
    >>> from mcdensity.skpro import MCDRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"x": rng.normal(size=200)})
    >>> y = pd.DataFrame({"y": X["x"] + rng.normal(size=200)})
    >>> regressor = MCDRegressor(MCD("quadratic", random_state=0)).fit(X, y)
    >>> regressor.predict_proba(X[:2]).cdf(0.0).shape
    (2, 1)
    """

    _tags = {  # noqa: RUF012
        "capability:multioutput": False,
        "capability:missing": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: ConditionalEstimator | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> Self:
        from mcdensity.mcd import MCD

        table = _named(X)
        estimator: Any = MCD() if self.estimator is None else clone(self.estimator)
        numeric = all(pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes)
        if not numeric and not isinstance(estimator, TableEstimator):
            estimator = TableEstimator(estimator)
        self.estimator_ = estimator.fit(table, y.iloc[:, 0].to_numpy())
        self._columns = y.columns
        return self

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        mean = self.estimator_.predict(_named(X))
        return pd.DataFrame(mean, index=X.index, columns=self._columns)

    def _predict_proba(self, X: pd.DataFrame) -> LawDistribution:
        law = self.estimator_.predict_distribution(_named(X))
        return law.to_skpro(index=X.index, columns=self._columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return parameters for skpro's tests."""
        from mcdensity.baselines import get_estimator
        from mcdensity.mcd import MCD

        quick = MCD("quadratic", random_state=0)
        return [{"estimator": quick}, {"estimator": get_estimator("marginal")}]


def _named(X: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose columns have texts as names, as scikit-learn wants it."""
    return X.set_axis([str(name) for name in X.columns], axis=1)
