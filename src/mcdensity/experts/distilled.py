"""One small network with the densities of a larger model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KDTree

from mcdensity._known import storable
from mcdensity.data import TrainingData
from mcdensity.distribution import GridDistribution, Reference
from mcdensity.experts.base import Conditioned, Expert, FitReport, Rows

__all__ = ["Distilled", "distill"]

Array = NDArray[np.float64]

# Two layers of this width; the last layer has an output for each knot of y.
_WIDTH, _DEPTH = 128, 2
_STEPS, _BATCH, _LEARNING_RATE = 2500, 256, 0.01
# Rows x at which the model is asked: between a row that it kept and one of so many neighbours, and
# half of them with noise of up to this standard deviation. At the rows themselves trees repeat the
# targets that they have seen, and are sharper than at new ones: on 3750 rows of Protein the loss
# was 0.32 with the rows themselves, 0.21 between them.
_ROWS, _NEIGHBOURS, _NOISE = 24_000, 8, 0.3
# Share of them that take some columns from another row: rare combinations.
_CROSSED = 0.25
# Share of the kept rows that the loss is measured with, and their number at most; so many of the
# rows that the caller gives are needed to measure it with a fifth of these instead.
_HELD_OUT, _MOST_HELD_OUT, _LEAST_HELD_OUT = 0.2, 2000, 100
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
        seed: int,
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
        seed : int
        """
        import torch

        from mcdensity.networks.parameters import ParameterNetwork
        from mcdensity.networks.random import generator, seeded
        from mcdensity.networks.training import train

        self._u, self._points = knots, points
        log_mass = torch.as_tensor(np.log(_masses(knots)), dtype=torch.float32)
        low, high = X.min(axis=0), X.max(axis=0)
        self._x_limits = 2 * low - high, 2 * high - low
        x, truth = (torch.as_tensor(a, dtype=torch.float32) for a in (X, teacher(X)))
        new_x = torch.as_tensor(held_out, dtype=torch.float32)
        new_truth = torch.as_tensor(teacher(held_out), dtype=torch.float32)

        def divergence(x: Any, truth: Any) -> Any:
            truth = torch.maximum(truth, truth.amax(-1, keepdim=True) - _DEPTH_OF_RATIO)
            target = (truth + log_mass).log_softmax(-1)
            found = (module(x[None])[0] + log_mass).log_softmax(-1)
            return (target.exp() * (target - found)).sum(-1).mean()

        def loss() -> Any:
            rows = torch.randint(len(x), (_BATCH,), generator=generator())
            return divergence(x[rows], truth[rows])

        with seeded(seed), torch.enable_grad():
            module = ParameterNetwork(1, X.shape[1], len(knots), self.width, self.depth, 0.0)
            train(
                module,
                loss,
                lambda: -divergence(new_x, new_truth)[None],
                steps=_STEPS,
                learning_rate=_LEARNING_RATE,
                weight_decay=0.0,
            )
            with torch.no_grad():
                self.loss_ = float(divergence(new_x, new_truth))
        self.module_ = module.eval()
        return self

    def at_knots(self, X: Array) -> NDArray[np.float32]:
        """Log-ratios at the knots, up to a constant of the row, (n, G)."""
        import torch

        with torch.inference_mode():
            x = torch.as_tensor(np.clip(X, *self._x_limits), dtype=torch.float32)
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


def distill(
    kept: Array,
    more: Array | None,
    knots: Array,
    points: Array,
    teacher: Callable[[Array], Array],
    seed: int,
) -> Distilled:
    """Make a small network with the densities of a model.

    Parameters
    ----------
    kept : ndarray of shape (n, p)
        Standardised rows that the model learned from, and kept.
    more : ndarray of shape (m, p), optional
        Rows of the same distribution that it has not seen.
    knots, points, teacher, seed
        See `Distilled.learn`.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(kept))
    cut = int(np.clip(_HELD_OUT * len(kept), min(10, len(kept) // 2), _MOST_HELD_OUT))
    held_out, rows = _between(kept[order[:cut]], cut, rng), kept[order[cut:]]
    if more is not None:
        more = rng.permutation(more)[:_ROWS]
        cut = min(len(more) // 5, _MOST_HELD_OUT)
        if cut >= _LEAST_HELD_OUT:
            held_out, more = more[:cut], more[cut:]
        rows = np.concatenate([rows, more])
    new = _between(rows, _ROWS, rng)
    other = rows[rng.integers(len(rows), size=_ROWS)]
    crossed = rng.random((_ROWS, 1)) < _CROSSED
    taken = rng.random(new.shape) < rng.random((_ROWS, 1)) / 2
    new = np.where(crossed & taken, other, new)
    scale = np.maximum(rng.uniform(-_NOISE, _NOISE, (_ROWS, 1)), 0)
    new = new + scale * rng.normal(size=new.shape)
    if more is not None:
        new = np.concatenate([new, more])
    return Distilled().learn(new, held_out, knots, points, teacher, int(rng.integers(2**31)))


def _between(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Points between rows and their neighbours: like new rows, they are none of those."""
    near = KDTree(rows).query(rows, min(_NEIGHBOURS + 1, len(rows)), return_distance=False)
    one = rng.integers(len(rows), size=count)
    other = near[one, rng.integers(1, near.shape[1], size=count)]
    part = rng.random((count, 1))
    return rows[one] * (1 - part) + rows[other] * part
