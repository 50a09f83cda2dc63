"""One small network with the densities of a larger model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sklearn.neighbors import KDTree

from mcdensity._known import storable
from mcdensity._parallel import in_parallel
from mcdensity.data import TrainingData
from mcdensity.distribution import GridDistribution, Reference
from mcdensity.experts.base import Conditioned, Expert, FitReport, Rows
from mcdensity.experts.density.columns import Neighbours
from mcdensity.experts.density.forest import ForestDensity
from mcdensity.experts.density.shares import TreeShares

__all__ = ["Distilled", "Knots", "distill", "finer", "thinned"]

Array = NDArray[np.float64]

# Layers of this width; the last layer has an output for each knot of y. With two layers instead of
# three, and a third of the learning rate, the loss on 1000 rows of Power was twice as large.
_WIDTH, _DEPTH = 128, 3
_BATCH, _LEARNING_RATE = 256, 0.03
# Inputs beside each feature: how far it has come through so many bins, which makes the edges of
# trees easy to learn. Losses without: 0.048 on 1000 rows of Power (with: 0.015), 0.17 on 5000 rows
# of Protein (0.07), 0.021 on 1000 rows of Kin8nm, which has no edges (0.024).
_BINS = 16
# Normal scores between two knots of y at least: with half as many knots as a grid starts with,
# predictions are a fifth faster.
_APART = 0.08
# Rows x at which the model is asked, and steps, if the model kept at least so many rows: with more
# of both the loss on 5000 rows of Power fell from 0.106 to 0.063, at twice the time.
_BUDGETS = ((2000, 48_000, 4000), (0, 24_000, 2500))
# These rows lie on lines through a row that the model kept and one of so many neighbours, and half
# of them have noise of up to this standard deviation. At the rows themselves trees repeat the
# targets that they have seen, and are sharper than at new ones. Points around a row, as far from it
# as its neighbours are, gave smaller divergences (0.013 and 0.019 on 1000 rows of Power), but new
# rows lost more of their log-likelihood (0.017 and 0.005; WineWhite 0.035 and 0.020).
_NEIGHBOURS, _NOISE = 8, 0.3
# Share of them that take some columns from another row: rare combinations.
_CROSSED = 0.25
# Rows to choose the best weights by, and as many to measure the loss with: taken from those that
# the caller gives, if these are enough.
_HELD_OUT, _LEAST_HELD_OUT = 2000, 100
# After a larger loss another network learns, slowly, from twice as many rows in more steps: 0.034
# and 0.027 on Kin8nm. If the model has a forest, it also sees what trees say of a row: the loss on
# 5000 rows of Power falls from 0.096 to 0.026, on 5000 of Protein from 0.20 to 0.028. With the
# neighbours that the model asks, that on 20,000 of Protein falls from 0.080 to 0.045, and with
# twice the steps to 0.039.
_CLOSE, _SLOW_RATE, _MORE_STEPS = 0.03, 0.01, 3
# Blocks have so many times more rows than a model's own: 91,000, 103,000, 112,000, 112,000 and
# 110,000 rows a second with 1, 2, 4, 6 and 10 (1000 rows of a smooth law, one core); 32,000,
# 41,000, 55,000, 56,000 and 55,000 with 1, 2, 4, 8 and 16 where each block reads 128 trees from
# memory (5000 rows of Power, two cores).
_LARGER_BLOCKS = 6
# Closer knots have so many cells in each of the others: laws of forests may be sharper than these.
# New rows of Concrete, some of them copies of known ones, lost 0.21 nats without closer knots, 0.09
# with them, and 0.07 with one row that the model kept for every eight points beside them.
_FINER, _OWN_ROWS = 4, 8
# Log-ratios below the largest of a row by more than this are not learned: no mass is there.
_DEPTH_OF_RATIO = 30.0


@storable
class Distilled(Expert):
    r"""A network from x to the log-ratio :math:`\log f(y \mid x) / f_Y(y)` at knots of y.

    Between the knots the log-ratio is linear in :math:`u = F_Y(y)`, so that the network's output is
    the law: no grid is refined. Arithmetic is in single precision. A forest remembers single rows,
    which a small network cannot: with `trees`, the network also sees what they say of x.

    Parameters
    ----------
    width, depth : int
        Of the hidden layers.
    trees : TreeShares, optional
        Some trees of the model that it learns from.
    neighbours : Neighbours, optional
        Of that model: targets of the nearest rows, and how far these are.

    Attributes
    ----------
    module_ : torch.nn.Module
    alone_ : Distilled or None
        A network that needs no trees, where there are trees: for pages and ONNX files.
    loss_ : float
        Mean Kullback-Leibler divergence from the model that it learned from, on rows that it has
        not seen: what it loses in log-likelihood where that model is right.
    """

    # Files of earlier versions have none of these.
    trees: TreeShares | None = None
    neighbours: Neighbours | None = None
    alone_: Distilled | None = None

    def __init__(
        self,
        width: int = _WIDTH,
        depth: int = _DEPTH,
        trees: TreeShares | None = None,
        neighbours: Neighbours | None = None,
    ) -> None:
        self.width = width
        self.depth = depth
        self.trees = trees
        self.neighbours = neighbours

    def fit(self, data: TrainingData) -> FitReport:
        """Refuse: it learns from a fitted model, see `MCD.distill`."""
        raise TypeError("A distilled network learns from a fitted model: use MCD.distill.")

    def learn(
        self,
        known: _Lesson,
        judge: _Lesson,
        steps: int,
        seed: int,
        rate: float = _LEARNING_RATE,
    ) -> Distilled:
        """Learn the log-ratios of a teacher.

        Parameters
        ----------
        known, judge : _Lesson
            Rows to learn from, and to choose the best weights by; both on the same knots.
        steps, seed : int
        rate : float
            The largest learning rate.
        """
        import torch

        from mcdensity.networks.parameters import ParameterNetwork
        from mcdensity.networks.random import generator, seeded
        from mcdensity.networks.training import train

        self._u, self._points = known.knots.u, known.knots.points
        X = known.X
        low, high = X.min(axis=0), X.max(axis=0)
        self._x_limits = 2 * low - high, 2 * high - low
        level = np.linspace(0, 1, _BINS + 1)
        self._edges = [np.unique(np.quantile(column, level)) for column in X.T]
        inputs = {lesson: torch.as_tensor(self._inputs(lesson.X)) for lesson in (known, judge)}

        def divergence(lesson: _Lesson, rows: Any) -> Any:
            return lesson.divergence(module(inputs[lesson][rows][None])[0], rows).mean()

        def loss() -> Any:
            return divergence(known, torch.randint(len(X), (_BATCH,), generator=generator()))

        with seeded(seed), torch.enable_grad():
            shape = inputs[known].shape[1], len(self._u), self.width, self.depth
            module = ParameterNetwork(1, *shape, 0.0)
            fit = partial(
                train,
                module,
                loss,
                lambda: -divergence(judge, slice(None))[None],
                steps=steps,
                learning_rate=rate,
                weight_decay=0.0,
            )
            # In one thread: for 5000 rows of Power two took no less time (19 s, one 17 s) and, with
            # the teacher's, 52 s of processor time instead of 29 s.
            in_parallel(lambda _: fit(), [None], 1)
        self.module_ = module.eval()
        return self

    def measure(self, test: _Lesson) -> Distilled:
        """Measure the loss by rows that it has not seen, between its knots too."""
        import torch

        table, u = self.at_knots(test.X), test.knots.u
        if len(u) > len(self._u):
            right = np.maximum(np.searchsorted(self._u, u), 1)
            left = self._u[right - 1]
            part = ((u - left) / (self._u[right] - left)).astype(np.float32)
            table = table[:, right - 1] * (1 - part) + table[:, right] * part
        self.loss_ = float(test.divergence(torch.as_tensor(table)).mean())
        return self

    def _inputs(self, X: Array) -> NDArray[np.float32]:
        """Return the features, how far each has come through its bins, and what others say."""
        used = [(j, edges) for j, edges in enumerate(self._edges) if len(edges) > 2]
        source = np.concatenate([[], *([j] * (len(edges) - 1) for j, edges in used)])
        left = np.concatenate([[], *(edges[:-1] for _, edges in used)])
        width = np.concatenate([[], *(np.diff(edges) for _, edges in used)])
        come = X.take(source.astype(np.intp), axis=1)
        come -= left
        come /= width
        told = [one(X) for one in (self.trees, self.neighbours) if one is not None]
        out = [X, np.clip(come, 0, 1, out=come), *told]
        return np.hstack(out, dtype=np.float32, casting="same_kind")

    def at_knots(self, X: Array) -> NDArray[np.float32]:
        """Log-ratios at the knots, up to a constant of the row, (n, G)."""
        import torch

        with torch.inference_mode():
            x = torch.as_tensor(self._inputs(np.clip(X, *self._x_limits)))
            return self.module_(x[None])[0].numpy()

    def distribution(self, X: Array, reference: Reference) -> GridDistribution:
        """Return the laws of rows, in the units of the reference."""
        value = self.at_knots(X).astype(np.float64)
        return GridDistribution.against(self._u, value, reference)

    def condition(self, X: Array) -> Conditioned:
        """Compute the log-ratios of these rows at the knots."""
        table = self.at_knots(X).astype(np.float64)
        table -= table.max(axis=1, keepdims=True)
        table -= np.log(np.exp(table) @ _masses(self._u))[:, None]
        return _ConditionedTable(self._points, table)

    def row_size(self, size: int) -> int:
        """How many numbers a row counts for when rows are divided into blocks."""
        inputs = sum(len(edges) for edges in self._edges)
        return -(-max(size, inputs) // _LARGER_BLOCKS)

    def describe(self) -> str:
        """Name for messages."""
        return "distilled"


@dataclass(frozen=True)
class Knots:
    """Values of y at which log-ratios are learned.

    Parameters
    ----------
    u : ndarray of shape (G,)
        Their probabilities F_Y(y), from 0 to 1.
    points : ndarray of shape (G,)
        Their inner values.
    ask : callable
        Log-ratios of rows there, (rows, G), by the model that is learned from.
    mass : ndarray of shape (G,), optional
        Probabilities that they stand for; by default those of the cells around them.
    """

    u: Array
    points: Array
    ask: Callable[[Array], Array]
    mass: Array | None = None


class _Lesson:
    """Standardised rows, and what a teacher says of them at knots of y."""

    def __init__(self, X: Array, knots: Knots) -> None:
        import torch

        self.X, self.knots = X, knots
        mass = _masses(knots.u) if knots.mass is None else knots.mass
        self._log_mass = torch.as_tensor(np.log(mass), dtype=torch.float32)
        truth = torch.as_tensor(knots.ask(X), dtype=torch.float32)
        truth = torch.maximum(truth, truth.amax(-1, keepdim=True) - _DEPTH_OF_RATIO)
        target = (truth + self._log_mass).log_softmax(-1)
        self._share = target.exp()  # the probabilities that are learned
        self._information = (self._share * target).sum(-1)  # minus their entropy

    def divergence(self, log_ratio: Any, rows: Any = slice(None)) -> Any:
        """Kullback-Leibler divergences of log-ratios from the teacher's, (rows,)."""
        found = (log_ratio + self._log_mass).log_softmax(-1)
        return self._information[rows] - (self._share[rows] * found).sum(-1)


class _ConditionedTable(Conditioned):
    """Normalised log-ratios, linear between points of y."""

    def __init__(self, points: Array, table: Array) -> None:
        super().__init__(len(table))
        self._points, self._table = points, table

    def relative(self, y: Array, log_marginal: Array, rows: Rows | None = None) -> Array:
        """Log-ratio at y."""
        some = self._table if rows is None else self._table[rows]
        pairs = zip(np.broadcast_to(y, (len(some), y.shape[-1])), some, strict=True)
        return np.stack([np.interp(own, self._points, row) for own, row in pairs])


def _masses(u: Array) -> Array:
    """Probabilities that knots stand for."""
    width = np.diff(u)
    mass = np.zeros(len(u))
    mass[:-1] += width / 2
    mass[1:] += width / 2
    return np.maximum(mass, 1e-12)


def thinned(u: Array) -> Array:
    """Return 0, 1 and some of the probabilities between, so far apart that few knots are left."""
    score = ndtri(np.clip(u, 1e-300, 1 - 1e-16))
    kept = np.zeros(len(u), dtype=bool)
    last = -np.inf
    for i, value in enumerate(score):
        if value - last >= _APART:
            kept[i], last = True, value
    return np.unique(np.concatenate([[0.0], u[kept], [1.0]]))


def finer(u: Array) -> Array:
    """Return knots with others between them, evenly by their normal scores; 0 and 1 stay alone."""
    score = ndtri(u[1:-1])
    place = np.arange(0, len(score) - 1 + 1e-9, 1 / _FINER)
    return np.concatenate([[0.0], ndtr(np.interp(place, np.arange(len(score)), score)), [1.0]])


def distill(
    kept: Array,
    more: Array | None,
    knots: Knots,
    fine: Knots,
    seed: int,
    forest: ForestDensity | None = None,
    neighbours: Neighbours | None = None,
    thorough: bool = True,
) -> Distilled:
    """Make a small network with the densities of a model.

    Parameters
    ----------
    kept : ndarray of shape (n, p)
        Standardised rows that the model learned from, and kept.
    more : ndarray of shape (m, p), optional
        Rows of the same distribution that it has not seen.
    knots, fine : Knots
        What is asked of the model, and closer knots to measure the loss by; a network with trees,
        which may be sharp, has these too.
    seed : int
    forest : ForestDensity, optional
        Of the model: if the network alone is not close to it, some of the trees are kept.
    neighbours : Neighbours, optional
        Of the model; with the trees they are kept, too.
    thorough : bool
        Whether a network that is not close is replaced by a slower one.
    """
    rng = np.random.default_rng(seed)
    count, steps = next(budget[1:] for budget in _BUDGETS if len(kept) >= budget[0])
    rows, held_out = kept, None
    if more is not None:
        more = rng.permutation(more)[:count]
        if len(more) >= 4 * _LEAST_HELD_OUT:
            cut = min(len(more) // 2, 2 * _HELD_OUT)
            held_out, more = more[:cut], more[cut:]
        rows = np.concatenate([rows, more])
    if held_out is None:
        held_out = _near(rows, 2 * _HELD_OUT, rng)
    new = _around(rows, count, rng)
    if more is not None:
        new = np.concatenate([new, more])
    seed = int(rng.integers(2**31))
    half = len(held_out) // 2
    known, judge = (_Lesson(X, knots) for X in (new, held_out[:half]))
    test = _Lesson(held_out[half:], fine)
    alone = Distilled().learn(known, judge, steps, seed).measure(test)
    if alone.loss_ <= _CLOSE or not thorough:
        return alone
    slow = _MORE_STEPS * steps, seed, _SLOW_RATE
    new = np.concatenate([new, _near(rows, count, rng)])
    if forest is None:
        again = Distilled().learn(_Lesson(new, knots), judge, *slow)
    else:
        own = rows[rng.integers(len(rows), size=count // _OWN_ROWS)]
        known, judge = (_Lesson(np.concatenate([new, own]), fine), _Lesson(held_out[:half], fine))
        again = Distilled(trees=TreeShares(forest), neighbours=neighbours)
        again.learn(known, judge, *slow)
        again.alone_ = alone
    return again if again.measure(test).loss_ < alone.loss_ else alone


def _around(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Points near rows, some with columns of others, some with noise."""
    new = _near(rows, count, rng)
    other = rows[rng.integers(len(rows), size=count)]
    crossed = rng.random((count, 1)) < _CROSSED
    taken = rng.random(new.shape) < rng.random((count, 1)) / 2
    new = np.where(crossed & taken, other, new)
    scale = np.maximum(rng.uniform(-_NOISE, _NOISE, (count, 1)), 0)
    return new + scale * rng.normal(size=new.shape)


def _near(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Points on lines through rows and their neighbours: like new rows, they are none of those."""
    near = KDTree(rows).query(rows, min(_NEIGHBOURS + 1, len(rows)), return_distance=False)
    one = rng.integers(len(rows), size=count)
    other = near[one, rng.integers(1, near.shape[1], size=count)]
    part = rng.uniform(-1, 1, (count, 1))
    return rows[one] * (1 - part) + rows[other] * part
