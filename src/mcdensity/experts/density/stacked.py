"""A network that sees what trees and neighbours say of a row, beside the row itself."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mcdensity.data import TrainingData
from mcdensity.experts.base import ConditionedDensity, DensityExpert, FitReport
from mcdensity.experts.density.columns import Boosted, Neighbours
from mcdensity.experts.density.forest import ForestDensity
from mcdensity.experts.density.network import NetworkDensity
from mcdensity.experts.registry import register

__all__ = ["StackedDensity", "forest_of", "neighbours_of"]

Array = NDArray[np.float64]

# On 15,000 rows of Protein 0.04, 0.02, 0.01 and 0.005 had -1.91, -1.72, -1.70 and -1.72.
_LEARNING_RATE = 0.01
# Wider and deeper networks had -1.69 instead of -1.67 there.
_SHAPE = {"width": 64, "depth": 2, "dropout": 0.05}
# With this rate 512 and 1024 rows in a step had the same likelihood, and took longer.
_MOST_BATCH = 256


@register("stacked", portfolio=17)
class StackedDensity(DensityExpert):
    r"""A mixture density network with further inputs c(x): what simpler learners say of x.

    These are the mean, the spread and quantiles of what the trees of a forest predict; the targets
    of the nearest rows, and their distances (up to 30 features); and from 2000 rows on the mean
    that gradient boosting predicts. While the network learns, c(x) of a row comes from
    learners that have not seen the row (stacking). Trees and neighbours find near copies and sharp
    edges, which networks learn slowly; the network finds how far they are to be trusted, and what
    is smooth.

    Parameters
    ----------
    n_trees : int, default 200
        Of the forest, if it does not come with the data.
    network_params : dict, optional
        Parameters of the network, see `NetworkDensity`.

    Attributes
    ----------
    forest_ : ForestDensity or None
        None where the portfolio has the forest.
    network_ : NetworkDensity

    References
    ----------
    Wolpert: Stacked generalization, 1992.
    """

    holds_out: ClassVar[bool] = True
    learns_from: ClassVar[str | None] = "forest"
    least_observations: ClassVar[int] = 500
    least_effort: ClassVar[str] = "normal"

    def __init__(self, n_trees: int = 200, network_params: dict[str, Any] | None = None) -> None:
        self.n_trees = n_trees
        self.network_params = network_params

    def fit(self, data: TrainingData) -> FitReport:
        """Learn from rows and from what a forest says of them."""
        self.forest_, columns = None, data.columns
        if columns is None:
            self.forest_ = ForestDensity(self.n_trees)
            columns = self.forest_.fit(data.but(report=data.report.within(0, 0.3))).columns
        assert columns is not None
        found = [learner.learn(data) for learner in (Neighbours, Boosted)]
        self._informants = [pair[0] for pair in found if pair is not None]
        inputs = np.hstack([data.X, columns, *(pair[1] for pair in found if pair is not None)])
        params: dict[str, Any] = {"learning_rate": _LEARNING_RATE} | _SHAPE
        if len(data) > 10 * _MOST_BATCH:
            params["batch_size"] = _MOST_BATCH
        params |= self.network_params or {}
        self.network_ = NetworkDensity("mixture", **params)
        report = data.report.within(0.3, 1)
        report(0)
        return self.network_.fit(data.but(X=inputs, X_unlabeled=None, report=report))

    def condition(self, X: Array, columns: Array | None = None) -> ConditionedDensity:
        """Compute the parameters of the densities of these rows.

        Parameters
        ----------
        X : ndarray of shape (n, p)
        columns : ndarray of shape (n, c), optional
            What the forest of the portfolio says of the rows.
        """
        if columns is None or self.forest_ is not None:
            if self.forest_ is None:
                raise ValueError(
                    "stacked was fitted in a portfolio, and needs the forest's columns."
                )
            columns = self.forest_.condition(X).columns
            assert columns is not None
        told = [informant(X) for informant in self._informants]
        return self.network_.condition(np.hstack([X, columns, *told]))

    def describe(self) -> str:
        """Name for messages."""
        return "stacked"


def forest_of(expert: Any) -> ForestDensity | None:
    """Return a forest that an expert is, or uses, if there is one."""
    if isinstance(expert, ForestDensity):
        return expert
    if isinstance(expert, StackedDensity):
        return expert.forest_
    parts = getattr(expert, "experts_", {}) | getattr(expert, "_teachers", {})
    return next((found for part in parts.values() if (found := forest_of(part))), None)


def neighbours_of(expert: Any) -> Neighbours | None:
    """Return the neighbours that an expert asks, or one of its parts, if there are any."""
    if isinstance(expert, StackedDensity):
        return next((one for one in expert._informants if isinstance(one, Neighbours)), None)
    parts = getattr(expert, "experts_", {}).values()
    return next((found for part in parts if (found := neighbours_of(part))), None)
