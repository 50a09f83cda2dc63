"""The density of y alone: what a method must beat to have learned anything from x."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._several import SeveralTargets
from mcdensity.distribution import Reference
from mcdensity.marginals import get_marginal

__all__ = ["MarginalBaseline"]

Array = NDArray[np.float64]


class MarginalBaseline(SeveralTargets):
    """Predict the marginal density of y for every x.

    Parameters
    ----------
    marginal : str or object, default "kde"
        As in `mcdensity.MCD`.

    Attributes
    ----------
    marginal_ : Marginal
        The fitted marginal, of the standardised target.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.baselines import MarginalBaseline
    >>> y = np.random.default_rng(0).normal(size=1000)
    >>> MarginalBaseline().fit(np.zeros((1000, 1)), y).predict_quantiles([[0.0]], 0.5).round(1)
    array([[-0.1]])
    """

    def __init__(self, marginal: Any = "kde") -> None:
        self.marginal = marginal

    def _fit(self, X: Array, y: Array, sample_weight: Array | None, **extra: Any) -> None:
        self.marginal_ = get_marginal(self.marginal).fit(y, sample_weight=sample_weight)

    # Of several targets: a chain without x.

    def _link_model(self) -> Any:
        from mcdensity.mcd import MCD

        return MCD(
            marginal=self.marginal, random_state=0, target="continuous", support=(None, None)
        )

    def _link_inputs(self, X: Array) -> Array:
        return np.zeros((len(X), 1))

    def _log_density_rows(self, X: Array, Y: Array) -> Array:
        return self.marginal_.logpdf(Y)

    def _reference(self) -> Reference:
        return self.marginal_
