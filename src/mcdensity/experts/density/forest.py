"""A forest as a density: kernels at the predictions of its trees."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft
from scipy.special import logsumexp, ndtr
from sklearn.ensemble import ExtraTreesRegressor

from mcdensity._mixing import best_weights, pool_normalizer
from mcdensity._parallel import worker_count
from mcdensity._validation import check_integer
from mcdensity.data import HeldOut, OutOfTimeError, TrainingData
from mcdensity.experts.base import (
    ConditionedDensity,
    DensityExpert,
    FitReport,
    Rows,
    pool_points,
)
from mcdensity.experts.density.axes import along, principal_axes
from mcdensity.experts.registry import register

__all__ = ["ForestDensity"]

Array = NDArray[np.float64]

# Widths of the kernels to choose from, in inner units: a standard deviation of a normal target.
# Held-out rows gave weight to each of them on some of Protein, Concrete, Yacht and Kin8nm.
_WIDTHS = np.array([0.01, 0.03, 0.08, 0.2, 0.5])
# Points of the grid on which densities are kept: where targets span ten standard deviations, the
# narrowest kernel is as wide as a cell.
_GRID = 1024
# How far the grid reaches beyond the targets, in widths of the widest kernel: 6e-7 lies beyond.
_REACH = 5.0
# Predictions are also drawn towards their mean, to so much of their distance from it: trees of
# single rows scatter more than the target does. Alone, without the last two, 90 % intervals held
# 0.95 to 0.98 on Protein, Power, Concrete and Kin8nm, with them 0.93 to 0.95; Concrete gained 0.11
# nats, the others 0.01 to 0.03.
_SHRINKAGES = (1.0, 0.5, 0.0)
# Rows that each combination, and the marginal, is given beforehand when the weights are learned.
_PRIOR = np.append(np.full(len(_SHRINKAGES) * len(_WIDTHS), 0.2), 0.1)
# Shares of the features that splits may choose from: the second from so many observations on. With
# half of them the CRPS fell by 2 % on Protein, and rose by 27 % on Yacht (225 rows) and 5 % on
# Concrete (750). In between the first parts are grown with both: the mean squared error decides.
_SHARES, _MANY_OBSERVATIONS, _MEDIUM = (1.0, 0.5), 2000, 500
_PILOT_PARTS = 2
# Below 2000 rows, where trees are quick, there are so many times more: on 750 rows of Protein
# the pool's CRPS was 2.306, 2.296 and 2.294 with 200, 300 and 400 trees (six seeds).
_MORE_TREES = 1.5
# Rows are divided into four groups by how far the trees disagree, each with weights of its own, if
# a group has at least so many rows to learn from.
_GROUPS, _LEAST_ROWS = 4, 60
# Nodes of all trees together: 6 million take 440 MB. Beyond 15,000 rows there are fewer trees. On
# 20,000 rows of Protein 25, 50, 100 and 200 trees had -1.91, -1.77, -1.69 and -1.64.
_MOST_NODES = 6_000_000
_MOST_ROWS = 100_000
# With a time budget: trees that measure the pace, and the least that are worth growing.
_PILOT_TREES, _LEAST_TREES = 2, 20
# The parts that are held out in turn, as everywhere in the package.
_PARTS = 5
# What experts that learn from the forest are told of a row: mean and spread of what the trees
# predict, in inner units, and quantiles. On 3750 rows of Protein `mixture` had -2.19 without, -2.10
# with the first two, and -2.06 with the quantiles.
_COLUMN_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
_COLUMNS = 2 + len(_COLUMN_LEVELS)
# From so many rows on they are asked in the order of a tree's leaves, so that neighbours take the
# same way through memory: 160 trees of 5000 rows of Power took 39 to 41 microseconds a row in any
# order, and 26 in this one (4700 rows in a call).
_MANY_ROWS = 1000
# Added to the spread before its logarithm is taken: single predictions have none.
_LEAST_SPREAD = 0.05
_TINY = float(np.finfo(np.float64).tiny)


@register("forest", portfolio=15)
class ForestDensity(DensityExpert):
    r"""Extremely randomised trees; the density is a kernel mixture of what the trees predict.

    .. math:: f(y \mid x) = \sum_{c, h} w_{c h} \frac{1}{B} \sum_{b \le B}
        N(y; m(x) + c (T_b(x) - m(x)), h) + w_0 f_Y(y)

    Up to 50 features, trees also see their principal components, so that splits need not be
    parallel to the axes. Trees are grown to single rows, so that each predicts a target of the
    training data; m is the mean of the predictions. The weights of the widths h, and of how far
    predictions are drawn towards their mean (c), are learned by the likelihood of held-out rows,
    separately for rows whose trees agree and for rows whose trees do not.

    Parameters
    ----------
    n_trees : int, default 200
        Trees in total, at normal effort; they are shared by the parts of the rows that are held
        out in turn. With fewer than 2000 rows there are half as many more; with more than 15,000
        there are fewer, so that all have at most six million nodes; beyond 100,000 rows each part
        learns from a sample of that size.
    min_samples_leaf : int, default 1
        Rows in a leaf; with more than one a tree predicts their mean.
    max_features : float, optional
        Share of the features that each split may choose from; by default all below 500
        observations, half of them from 2000 on, and in between what held-out rows say.

    Attributes
    ----------
    forests_ : list of ExtraTreesRegressor
    width_weights_ : ndarray of shape (groups, 3 * widths + 1)
        For c = 1, 1/2 and 0 the weight of each width; the last is that of the marginal. Groups go
        from rows whose trees agree to those whose trees do not.

    References
    ----------
    Geurts, Ernst, Wehenkel: Extremely randomized trees, 2006.
    """

    holds_out: ClassVar[bool] = True
    # In the pool it gained 0.02 to 0.27 nats on Boston, Concrete, Energy, Power and Protein with
    # 300 and 1000 rows; with 100 rows of the smooth density models it lost up to 0.02.
    least_observations: ClassVar[int] = 200

    def __init__(
        self, n_trees: int = 200, min_samples_leaf: int = 1, max_features: float | None = None
    ) -> None:
        self.n_trees = n_trees
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features

    def fit(self, data: TrainingData) -> FitReport:
        """Grow trees without each of the parts that are held out, and learn the widths."""
        check_integer("n_trees", self.n_trees)
        check_integer("min_samples_leaf", self.min_samples_leaf)
        if data.marginal is None:
            raise ValueError("forest needs the marginal: fit it through MCD.")
        low, high = data.marginal.limits
        reach = _REACH * _WIDTHS[-1]
        self._grid = np.linspace(low - reach, high + reach, _GRID)
        self._marginal = data.marginal.logpdf(self._grid)
        self.forests_: list[Any] = []
        self._axes = principal_axes(data.X)
        held_out = data.held_out(_PARTS)
        if held_out is None:  # too few rows to learn a width from: the widest, and the marginal
            used = np.ones(len(data), dtype=bool)
            share = self._shares_of_features(data)[0]
            self.forests_.append(self._grow(data, used, self._n_trees(data), share))
            self._edges = np.empty(0)
            self.width_weights_ = np.zeros((1, len(_PRIOR)))
            self.width_weights_[0, [len(_WIDTHS) - 1, -1]] = 0.5
            return replace(FitReport.empty(), columns=self._columns(self._ask(data.X)))
        mass, columns = self._grow_parts(data, held_out)
        return replace(self._learn_widths(data, held_out.scored, mass), columns=columns)

    def _inputs(self, X: Array) -> Array:
        """Return the features and their principal components."""
        axes = getattr(self, "_axes", None)  # files of earlier versions have none
        if axes is None:
            return X
        return np.hstack([X, along(X, axes)])

    def _shares_of_features(self, data: TrainingData) -> tuple[float, ...]:
        """Shares of the features to choose from."""
        if self.max_features is not None:
            return (self.max_features,)
        many, n = data.n_observations >= _MANY_OBSERVATIONS, data.n_observations
        return (
            _SHARES if not many and n >= _MEDIUM and data.deadline is None else _SHARES[many:][:1]
        )

    def _n_trees(self, data: TrainingData) -> int:
        quick = data.n_observations < _MANY_OBSERVATIONS and data.effort.rank > 0
        factor = _MORE_TREES if quick else 1.0
        return max(1, round(self.n_trees * data.effort.trees * factor))

    def _grow(self, data: TrainingData, used: NDArray[np.bool_], n_trees: int, share: float) -> Any:
        rows = np.flatnonzero(used)
        if len(rows) > _MOST_ROWS:
            rows = data.random_state.choice(rows, _MOST_ROWS, replace=False)
        forest = ExtraTreesRegressor(
            n_trees,
            min_samples_leaf=self.min_samples_leaf,
            max_features=share,
            n_jobs=worker_count(data.n_jobs),
            random_state=int(data.random_state.integers(2**31 - 1)),
        )
        weight = None if data.weight is None else data.weight[rows]
        # Rounded, so that another unit of y does not decide which of two equal splits is taken.
        y = np.round(data.Y[rows, 0], 6)
        return forest.fit(self._inputs(data.X[rows]), y, sample_weight=weight)

    def _best_share(
        self, data: TrainingData, parts: NDArray[np.bool_], n_trees: int
    ) -> tuple[float, list[Any]]:
        """Choose the share of the features; return it, and forests that are grown already."""
        shares = self._shares_of_features(data)
        if len(shares) == 1:
            return shares[0], []
        tried = [[self._grow(data, ~held, n_trees, share) for held in parts] for share in shares]

        def error(forests: list[Any]) -> float:
            pairs = zip(forests, parts, strict=True)
            found = ((forest.predict(self._inputs(data.X[held])), held) for forest, held in pairs)
            return sum(data.row_weight[held] @ (m - data.Y[held, 0]) ** 2 for m, held in found)

        best = int(np.argmin([error(forests) for forests in tried]))
        return shares[best], tried[best]

    def _grow_parts(self, data: TrainingData, held_out: HeldOut) -> tuple[Array, Array]:
        """Grow trees; return what those that held a row out say of it.

        Predictions of the scored rows, as in `_masses`, and the columns of all rows.
        """
        affordable = _MOST_NODES // (2 * min(len(data), _MOST_ROWS))
        if data.deadline is not None:
            start = time.monotonic()
            share = self._shares_of_features(data)[0]
            self._grow(data, ~held_out.held[0], _PILOT_TREES, share)
            pace = (time.monotonic() - start) / _PILOT_TREES
            affordable = min(affordable, int(data.seconds_left() / (2 * pace)))
            if affordable < min(_LEAST_TREES, self.n_trees):
                raise OutOfTimeError(
                    "Too little time is left for a forest; allow more time_budget."
                )
        n_trees = max(min(self._n_trees(data), affordable), min(_LEAST_TREES, self.n_trees))
        scored, parts = held_out.scored, _all_parts(held_out.held, data)
        mass, count = np.zeros((len(_SHRINKAGES), len(scored), _GRID)), np.zeros((len(scored), 1))
        columns, times = np.zeros((len(data), _COLUMNS)), np.zeros((len(data), 1))
        each = -(-n_trees // len(parts))
        share, first = self._best_share(data, parts[:_PILOT_PARTS], each)
        for k, held in enumerate(parts):
            data.report(k / len(parts))
            forest = first[k] if k < len(first) else self._grow(data, ~held, each, share)
            self.forests_.append(forest)
            found = self._ask(data.X[held], self.forests_[-1:])
            columns[held] += self._columns(found)
            times[held] += 1
            mine, some = held[scored], self._is_scored(held, scored)
            if mine.any():
                mass[:, mine] += self._masses([part[:, some] for part in found])
                count[mine] += 1
        return mass / count, columns / times

    @staticmethod
    def _is_scored(held: NDArray[np.bool_], scored: Rows) -> NDArray[np.bool_]:
        """Which of the rows that are held out are scored."""
        out = np.zeros(len(held), dtype=bool)
        out[scored] = True
        return out[held]

    def _learn_widths(self, data: TrainingData, scored: Rows, mass: Array) -> FitReport:
        """Learn the weights of the widths from held-out rows, and report on these."""
        assert data.marginal is not None
        spread = self._spread(mass)
        groups = min(_GROUPS, max(1, len(scored) // _LEAST_ROWS))
        self._edges = np.quantile(spread, np.arange(1, groups) / groups)
        group = np.searchsorted(self._edges, spread)
        y, weight = data.Y[scored], data.row_weight[scored]
        marginal = data.held_out_marginal()[scored]
        spectra = self._spectrum(np.eye(len(_WIDTHS)))
        smooth = (irfft(rfft(m, axis=1) * one, _GRID, axis=1) for m in mass for one in spectra)
        each = np.column_stack([self._interpolate(density, y) for density in smooth])
        parts = np.column_stack([np.log(np.maximum(each, _TINY)), marginal])
        self.width_weights_ = np.stack(
            [best_weights(parts[group == g], weight[group == g], _PRIOR) for g in range(groups)]
        )
        own = logsumexp(parts, b=self.width_weights_[group], axis=1) - marginal
        points = pool_points(data)
        log_marginal = data.marginal.logpdf(points)
        kernels = self._smoothed(mass, group)
        ratio = self._log_density(kernels, group, points, log_marginal) - log_marginal
        shift = pool_normalizer(own, ratio)
        return FitReport(scored, own - shift + marginal, ratio - shift[:, None])

    def condition(self, X: Array) -> ConditionedDensity:
        """Ask the trees about these rows."""
        return _ConditionedForest(self, X)

    def _log_marginal(self, y: Array) -> Array:
        """Log-density of the marginal as the expert knows it: beyond its grid it falls by e."""
        inside = np.clip(y, self._grid[0], self._grid[-1])
        return np.interp(inside, self._grid, self._marginal) - np.abs(y - inside)

    # Densities on the grid: kernels are convolutions.

    def _ask(self, X: Array, forests: list[Any] | None = None) -> list[Array]:
        """Return the predictions of the trees of each forest, (trees, n)."""
        rows = np.ascontiguousarray(self._inputs(X), dtype=np.float32)
        forests = self.forests_ if forests is None else forests
        # The trees themselves do not look at the width of what they are given.
        if any(forest.n_features_in_ != rows.shape[1] for forest in forests):
            raise ValueError("The trees were grown for rows of another width.")
        if len(rows) < _MANY_ROWS:
            return [_predicted(forest, rows) for forest in forests]
        order = np.argsort(forests[0].estimators_[0].tree_.apply(rows), kind="stable")
        rows, found = rows[order], []
        for forest in forests:
            found.append(np.empty((len(forest.estimators_), len(rows))))
            found[-1][:, order] = _predicted(forest, rows)
        return found

    @staticmethod
    def _columns(found: list[Array]) -> Array:
        """Mean, spread and quantiles of the predictions of a forest, averaged over forests."""
        out = np.zeros((found[0].shape[1], _COLUMNS))
        for trees in found:
            order = np.sort(trees, axis=0)
            place = np.array(_COLUMN_LEVELS) * (len(order) - 1)
            left = np.minimum(place.astype(np.intp), max(0, len(order) - 2))
            part = (place - left)[:, None]
            quantiles = (
                order[left] * (1 - part) + order[np.minimum(left + 1, len(order) - 1)] * part
            )
            out[:, 0] += trees.mean(axis=0)
            out[:, 1] += np.log(trees.std(axis=0) + _LEAST_SPREAD)
            out[:, 2:] += quantiles.T
        return out / len(found)

    def _masses(self, found: list[Array]) -> Array:
        """Shares of the trees' predictions at the points of the grid, (shrinkages, n, G).

        Each prediction is divided between the two points next to it.
        """
        trees = np.concatenate(found)
        mean, n = trees.mean(axis=0), trees.shape[1]
        start, out = np.arange(n) * _GRID, []
        for share in _SHRINKAGES:
            left, part = self._place(mean + share * (trees - mean) if share > 0 else mean[None])
            index, part = (start + left).ravel(), part.ravel()
            mass = np.bincount(index, 1 - part, n * _GRID)
            mass += np.bincount(index + 1, part, n * _GRID)
            out.append(mass.reshape(n, _GRID) / len(left))
        return np.stack(out)

    def _place(self, y: Array) -> tuple[Rows, Array]:
        """Index of the point of the grid before y, and the way to the next, from 0 to 1."""
        place = (y - self._grid[0]) / (self._grid[1] - self._grid[0])
        left = np.clip(place, 0, _GRID - 2).astype(np.intp)
        return left, np.clip(place - left, 0, 1)

    def _spread(self, mass: Array) -> Array:
        """Standard deviation of the predictions of each row."""
        # By sums over each row alone: those of a product of matrices depend on the other rows.
        mean = (mass[0] * self._grid).sum(axis=1)
        return np.sqrt((mass[0] * (self._grid - mean[:, None]) ** 2).sum(axis=1))

    def _spectrum(self, weights: Array) -> NDArray[np.complex128]:
        """Fourier transforms of kernels with the given weights of the widths, (..., G / 2 + 1).

        The grid reaches so far beyond all predictions that it may be taken as a circle.
        """
        step = self._grid[1] - self._grid[0]
        place = np.arange(_GRID)
        distance = np.minimum(place, _GRID - place) * step
        # The mean over a cell, so that a kernel narrower than a cell has all its mass.
        above = ndtr((distance + step / 2) / _WIDTHS[:, None])
        below = ndtr((distance - step / 2) / _WIDTHS[:, None])
        return rfft(weights @ (above - below) / step, axis=-1)

    def _smoothed(self, mass: Array, group: Rows) -> Array:
        """Densities of the kernels on the grid, (n, G)."""
        weights = self.width_weights_[:, :-1].reshape(len(self.width_weights_), len(mass), -1)
        spectra = self._spectrum(weights)  # (groups, shrinkages, frequencies)
        total = np.zeros((mass.shape[1], spectra.shape[-1]), dtype=np.complex128)
        for k, part in enumerate(mass):
            total += rfft(part, axis=1) * spectra[group, k]
        return irfft(total, _GRID, axis=1)

    def _log_density(self, kernels: Array, group: Rows, y: Array, log_marginal: Array) -> Array:
        """Log-densities of rows at points y that they share, (m,), or at their own, (rows, m)."""
        rest = np.log(self.width_weights_[group, -1:]) + log_marginal
        return np.logaddexp(np.log(np.maximum(self._interpolate(kernels, y), _TINY)), rest)

    def _interpolate(self, density: Array, y: Array) -> Array:
        """Values of densities on the grid at points y, (m,) or (rows, m); 0 beyond the grid."""
        left, part = self._place(y)
        if y.ndim == 1:
            found = density[:, left] * (1 - part) + density[:, left + 1] * part
        else:
            before, after = (np.take_along_axis(density, i, axis=1) for i in (left, left + 1))
            found = before * (1 - part) + after * part
        return found * ((y >= self._grid[0]) & (y <= self._grid[-1]))


class _ConditionedForest(ConditionedDensity):
    """What the trees say of some rows; densities are computed when they are first asked for."""

    def __init__(self, forest: ForestDensity, X: Array) -> None:
        # It integrates to one as it is.
        super().__init__(len(X), self._evaluate, lambda: np.zeros(len(X)))
        self._forest, self._found = forest, forest._ask(X)

    @cached_property
    def columns(self) -> Array:  # type: ignore[override]
        """Mean, spread and quantiles of what the trees predict."""
        return self._forest._columns(self._found)

    @cached_property
    def _kernels(self) -> tuple[Array, Rows]:
        mass = self._forest._masses(self._found)
        group = np.searchsorted(self._forest._edges, self._forest._spread(mass))
        return self._forest._smoothed(mass, group), group

    def _evaluate(self, y: Array, rows: Rows | None, log_marginal: Array | None) -> Array:
        kernels, group = self._kernels
        if rows is not None:
            kernels, group = kernels[rows], group[rows]
        if log_marginal is None:
            log_marginal = self._forest._log_marginal(y)
        return self._forest._log_density(kernels, group, y, log_marginal)


def _predicted(forest: Any, rows: NDArray[np.float32]) -> Array:
    """Return the predictions of each tree, (trees, n)."""
    return np.stack([tree.tree_.predict(rows).ravel() for tree in forest.estimators_])


def _all_parts(held: NDArray[np.bool_], data: TrainingData) -> NDArray[np.bool_]:
    """Complete the parts that are held out, so that each row is in one: (parts, n)."""
    rest = ~held.any(axis=0)
    missing = _PARTS - len(held)
    if not rest.any():
        return held
    if missing < 1:
        part = data.random_state.permutation(data.n_observations) % len(held)
        return held | (rest & (part[data.unit] == np.arange(len(held))[:, None]))
    part = data.random_state.permutation(data.n_observations) % missing
    return np.concatenate([held, [rest & (part[data.unit] == k) for k in range(missing)]])
