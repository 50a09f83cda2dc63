"""What simple learners tell about a row, as inputs of a network: neighbours and boosted trees."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from sklearn.ensemble import HistGradientBoostingRegressor

from mcdensity._folds import assign_folds
from mcdensity._known import storable
from mcdensity._parallel import in_parallel, worker_count
from mcdensity.data import TrainingData
from mcdensity.experts.density.axes import along, principal_axes

__all__ = ["Boosted", "Neighbours"]

Array = NDArray[np.float64]

# Neighbours, of which the nearest three are columns of their own: near copies have the same target.
_NEIGHBOURS, _NEAREST = 8, 3
# Columns of x, and products of rows, rows to search and columns, at the most: a search among 50,000
# rows of ten columns takes a third of a millisecond, and all rows are searched for.
_MOST_FEATURES, _MOST_WORK = 30, 2e10
# Rows in a leaf of the tree that is searched.
_LEAF = 40
# Added before logarithms are taken: to distances and to the spread of the neighbours' targets.
_LEAST_DISTANCE, _LEAST_SPREAD = 0.01, 0.05
# As everywhere in the package.
_PARTS = 5
# On 15,000 rows of Protein 400 rounds had the same error.
_BOOSTING: dict[str, Any] = {"max_iter": 200, "min_samples_leaf": 5}
# Leaves of a tree, the second from so many rows on. With 31 instead of 63 boosting takes half of
# the time; on 4000 rows its error is 2 % smaller on a smooth law, 1 % on Protein, and 1 % larger on
# Power and 2 % on Kin8nm; on 16,000 of Protein it is 3 % larger.
_LEAVES, _MANY_ROWS = (31, 63), 10_000
# With fewer rows boosting takes longer than all networks, and on Protein it gained nothing. Beyond,
# each of the models learns from a sample of that size.
_LEAST_ROWS, _MOST_ROWS = 2000, 200_000


@storable
class Neighbours:
    r"""Targets of the nearest rows, and how far these are.

    Distances are :math:`|x - x'|^2 + |z - z'|^2`, where z are the principal components of x, each
    of variance 1. A row of the training data is not its own neighbour, nor are rows of its group.
    """

    # With z in the distance, beside x, the CRPS of the portfolio fell by 2 % on 750 rows of Protein
    # (twelve seeds) and by 2.5 % on 4000, and its log-likelihood rose by 0.015 and 0.026; Power
    # stayed the same, other sets of 750 rows do without neighbours.
    _X: Array
    _y: Array
    # Files of earlier versions have none; nor has a single column.
    _axes: Array | None = None

    @classmethod
    def learn(cls, data: TrainingData) -> tuple[Neighbours, Array] | None:
        """Return it with its columns for the training rows; None where it would be too slow."""
        n, p = data.X.shape
        few = data.n_observations < 2 * _PARTS
        if p > _MOST_FEATURES or n * n * p > _MOST_WORK or few:
            return None
        new, axes = cls(), principal_axes(data.X)
        if axes is not None:  # unit vectors, divided by the root of the variance along them
            new._axes = axes * np.sqrt(1 + 1 / np.square(axes).sum(axis=0))
        new._X, new._y = new._coordinates(data.X), data.Y[:, 0]
        if data.groups is None:
            return new, new(data.X, own=True, workers=worker_count(data.n_jobs))
        part = assign_folds(data.n_observations, _PARTS, data.random_state)[0, data.unit]
        out = np.empty((len(data), new(data.X[:1]).shape[1]))
        for k in range(_PARTS):
            other = cls()
            kept = part != k
            other._X, other._y, other._axes = new._X[kept], new._y[kept], new._axes
            out[part == k] = other(data.X[part == k])
        return new, out

    def _coordinates(self, X: Array) -> Array:
        return X if self._axes is None else along(X, self._axes)

    @cached_property
    def _tree(self) -> cKDTree:
        # Exact, and 2 to 5 times as fast as scikit-learn's: 10 instead of 29 microseconds per row
        # among 15,000 of Protein, 78 instead of 135 of ten independent columns.
        return cKDTree(self._X, leafsize=_LEAF, balanced_tree=False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_tree"}

    def __call__(self, X: Array, own: bool = False, workers: int = 1) -> Array:
        """Columns of rows; `own`: these are the rows that are searched."""
        count = min(_NEIGHBOURS, len(self._X) - 1)
        distance, index = self._tree.query(self._coordinates(X), count + 1, workers=workers)
        # Where distances overflow the tree answers with the number of rows.
        if len(self._y) != len(self._X) or (index == len(self._X)).any():
            raise ValueError("The model's neighbours are damaged; fit and save the model again.")
        # A row is left out by its number: copies of it have the same distance, 0.
        self_found = (index == np.arange(len(X))[:, None]) & own
        others = np.argsort(self_found, axis=1, kind="stable")[:, :count]
        distance = np.take_along_axis(distance, others, axis=1)
        y = self._y[np.take_along_axis(index, others, axis=1)]
        weight = 1 / (distance**2 + _LEAST_DISTANCE**2)
        return np.column_stack([
            y[:, : min(_NEAREST, count)],
            y.mean(axis=1),
            (weight * y).sum(axis=1) / weight.sum(axis=1),
            np.log(y.std(axis=1) + _LEAST_SPREAD),
            np.log(distance[:, [0, -1]] + _LEAST_DISTANCE),
        ])  # fmt: skip


@storable
class Boosted:
    """The mean as gradient boosting predicts it; of training rows by models without them."""

    _models: list[Any]

    @classmethod
    def learn(cls, data: TrainingData) -> tuple[Boosted, Array] | None:
        """Return it with its column for the training rows; None where there are few rows."""
        if len(data) < _LEAST_ROWS or data.n_observations < 2 * _PARTS:
            return None
        part = assign_folds(data.n_observations, _PARTS, data.random_state)[0, data.unit]
        tasks = []
        for k in range(_PARTS):
            rows = np.flatnonzero(part != k)
            if len(rows) > _MOST_ROWS:
                rows = data.random_state.choice(rows, _MOST_ROWS, replace=False)
            tasks.append((rows, int(data.random_state.integers(2**31))))
        fit = partial(_boosted, data.X, data.Y[:, 0], data.weight)
        new, out = cls(), np.empty((len(data), 1))
        # In two threads they would wait for each other's Python code.
        new._models = in_parallel(fit, tasks, data.n_jobs, processes=True)
        for k, model in enumerate(new._models):
            out[part == k, 0] = model.predict(data.X[part == k])
        return new, out

    def __call__(self, X: Array) -> Array:
        """Mean of the models' predictions."""
        total = sum(model.predict(X) for model in self._models)
        return np.asarray(total)[:, None] / len(self._models)


def _boosted(X: Array, y: Array, weight: Array | None, task: tuple[NDArray[np.intp], int]) -> Any:
    """Fit a model to some rows, with a seed."""
    rows, seed = task
    model = HistGradientBoostingRegressor(
        early_stopping=False, random_state=seed,
        max_leaf_nodes=_LEAVES[len(X) >= _MANY_ROWS], **_BOOSTING,
    )  # fmt: skip
    return model.fit(X[rows], y[rows], sample_weight=None if weight is None else weight[rows])
