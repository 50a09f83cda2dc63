"""One small network with the densities of a larger model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.neighbors import KDTree

from mcdensity._known import storable
from mcdensity._parallel import in_parallel
from mcdensity.data import TrainingData
from mcdensity.distribution import GridDistribution, Reference
from mcdensity.experts.base import Conditioned, Expert, FitReport, Rows

__all__ = ["Distilled", "distill", "thinned"]

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
# targets that they have seen, and are sharper than at new ones.
_NEIGHBOURS, _NOISE = 8, 0.3
# Share of them that take some columns from another row: rare combinations.
_CROSSED = 0.25
# Rows to choose the best weights by, and as many to measure the loss with: taken from those that
# the caller gives, if these are enough.
_HELD_OUT, _LEAST_HELD_OUT = 2000, 100
# Log-ratios below the largest of a row by more than this are not learned: no mass is there.
_DEPTH_OF_RATIO = 30.0


@storable
class Distilled(Expert):
    r"""A network from x to the log-ratio :math:`\log f(y \mid x) / f_Y(y)` at knots of y.

    Between the knots the log-ratio is linear in :math:`u = F_Y(y)`, so that the network's output is
    the law: no grid is refined. Arithmetic is in single precision.

    Parameters
    ----------
    width, depth : int
        Of the hidden layers.

    Attributes
    ----------
    module_ : torch.nn.Module
    loss_ : float
        Mean Kullback-Leibler divergence from the model that it learned from, on rows that it has
        not seen: what it loses in log-likelihood where that model is right.
    """

    def __init__(self, width: int = _WIDTH, depth: int = _DEPTH) -> None:
        self.width = width
        self.depth = depth

    def fit(self, data: TrainingData) -> FitReport:
        """Refuse: it learns from a fitted model, see `MCD.distill`."""
        raise TypeError("A distilled network learns from a fitted model: use MCD.distill.")

    def learn(
        self,
        X: Array,
        held_out: Array,
        knots: Array,
        points: Array,
        teacher: Callable[[Array], Array],
        steps: int,
        seed: int,
        mass: Array | None = None,
    ) -> Distilled:
        """Learn the log-ratios of a teacher.

        Parameters
        ----------
        X, held_out : ndarray of shape (n, p) and (m, p)
            Standardised rows to learn from, and to measure the loss on.
        knots : ndarray of shape (G,)
            Values of u = F_Y(y), from 0 to 1.
        points : ndarray of shape (G,)
            The inner values of y there.
        teacher : callable
            Log-ratios of rows at the knots, (rows, G).
        steps, seed : int
        mass : ndarray of shape (G,), optional
            Probabilities that the knots stand for; by default those of the cells around them.
        """
        import torch

        from mcdensity.networks.parameters import ParameterNetwork
        from mcdensity.networks.random import generator, seeded
        from mcdensity.networks.training import train

        self._u, self._points = knots, points
        mass = _masses(knots) if mass is None else mass
        log_mass = torch.as_tensor(np.log(mass), dtype=torch.float32)
        low, high = X.min(axis=0), X.max(axis=0)
        self._x_limits = 2 * low - high, 2 * high - low
        level = np.linspace(0, 1, _BINS + 1)
        self._edges = [np.unique(np.quantile(column, level)) for column in X.T]

        def learned(rows: Array) -> tuple[Any, ...]:
            """Inputs of rows, the probabilities that are learned there, and minus their entropy."""
            truth = torch.as_tensor(teacher(rows), dtype=torch.float32)
            truth = torch.maximum(truth, truth.amax(-1, keepdim=True) - _DEPTH_OF_RATIO)
            target = (truth + log_mass).log_softmax(-1)
            share = target.exp()
            inputs = torch.as_tensor(self._inputs(rows), dtype=torch.float32)
            return inputs, share, (share * target).sum(-1)

        def divergence(x: Any, share: Any, information: Any) -> Any:
            found = (module(x[None])[0] + log_mass).log_softmax(-1)
            return (information - (share * found).sum(-1)).mean()

        known, new = learned(X), learned(held_out)
        half = len(held_out) // 2  # the others measure the loss

        def loss() -> Any:
            rows = torch.randint(len(X), (_BATCH,), generator=generator())
            return divergence(*(part[rows] for part in known))

        with seeded(seed), torch.enable_grad():
            module = ParameterNetwork(1, known[0].shape[1], len(knots), self.width, self.depth, 0.0)
            fit = partial(
                train,
                module,
                loss,
                lambda: -divergence(*(part[:half] for part in new))[None],
                steps=steps,
                learning_rate=_LEARNING_RATE,
                weight_decay=0.0,
            )
            # In one thread: for 5000 rows of Power two took no less time (19 s, one 17 s) and, with
            # the teacher's, 52 s of processor time instead of 29 s.
            in_parallel(lambda _: fit(), [None], 1)
            with torch.no_grad():
                self.loss_ = float(divergence(*(part[half:] for part in new)))
        self.module_ = module.eval()
        return self

    def _inputs(self, X: Array) -> Array:
        """Return the features and how far each has come through its bins, from 0 to 1."""
        out = [X]
        for column, edges in zip(X.T, self._edges, strict=True):
            if len(edges) > 2:
                out.append(np.clip((column[:, None] - edges[:-1]) / np.diff(edges), 0, 1))
        return np.hstack(out)

    def at_knots(self, X: Array) -> NDArray[np.float32]:
        """Log-ratios at the knots, up to a constant of the row, (n, G)."""
        import torch

        with torch.inference_mode():
            x = torch.as_tensor(self._inputs(np.clip(X, *self._x_limits)), dtype=torch.float32)
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

    def describe(self) -> str:
        """Name for messages."""
        return "distilled"


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


def distill(
    kept: Array,
    more: Array | None,
    knots: Array,
    points: Array,
    teacher: Callable[[Array], Array],
    seed: int,
    mass: Array | None = None,
) -> Distilled:
    """Make a small network with the densities of a model.

    Parameters
    ----------
    kept : ndarray of shape (n, p)
        Standardised rows that the model learned from, and kept.
    more : ndarray of shape (m, p), optional
        Rows of the same distribution that it has not seen.
    knots, points, teacher, seed, mass
        See `Distilled.learn`.
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
    new = _near(rows, count, rng)
    other = rows[rng.integers(len(rows), size=count)]
    crossed = rng.random((count, 1)) < _CROSSED
    taken = rng.random(new.shape) < rng.random((count, 1)) / 2
    new = np.where(crossed & taken, other, new)
    scale = np.maximum(rng.uniform(-_NOISE, _NOISE, (count, 1)), 0)
    new = new + scale * rng.normal(size=new.shape)
    if more is not None:
        new = np.concatenate([new, more])
    seed = int(rng.integers(2**31))
    return Distilled().learn(new, held_out, knots, points, teacher, steps, seed, mass)


def _near(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Points on lines through rows and their neighbours: like new rows, they are none of those."""
    near = KDTree(rows).query(rows, min(_NEIGHBOURS + 1, len(rows)), return_distance=False)
    one = rng.integers(len(rows), size=count)
    other = near[one, rng.integers(1, near.shape[1], size=count)]
    part = rng.uniform(-1, 1, (count, 1))
    return rows[one] * (1 - part) + rows[other] * part
