"""`TrainingData`: what an expert learns from, and the one way to hold rows out.

An *observation* is a row, or a group of rows that share one x. Holding out is always by
observation: a row, or a group, is on one side only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._effort import EFFORTS, Effort
from mcdensity._folds import assign_folds
from mcdensity._parallel import limited_threads, worker_count
from mcdensity._progress import SILENT, Reporter
from mcdensity._validation import as_generator
from mcdensity.contrast import ContrastSet, build_contrast
from mcdensity.target import InnerMarginal

__all__ = [
    "Folds", "HeldOut", "OutOfTimeError", "TrainingData", "assign_folds", "reweighing_rng",
]  # fmt: skip

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Each fold of a portfolio is a fifth of the observations, and experts are judged by so many of the
# rows held out: a standard error of about 0.02 nats.
_PARTS, _MOST_SCORED = 5, 2000


def reweighing_rng() -> np.random.Generator:
    """Return what spreads held-out targets wherever experts are compared by them, always alike."""
    return np.random.default_rng(0)


class OutOfTimeError(TimeoutError):
    """The time budget ran out before anything useful was learned."""


@dataclass(frozen=True)
class Folds:
    """Which observations are held out by whom, and by which of them experts are compared.

    Parameters
    ----------
    fold : ndarray of shape (ways, observations)
        Fold of each observation in each way to divide them; -1 where it is never held out.
    scored : ndarray of bool, shape (observations,)
        The observations by which experts are compared.
    """

    fold: Rows
    scored: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Number of folds in each way."""
        return int(self.fold.max()) + 1

    @classmethod
    def chosen(cls, units: int, effort: Effort, rng: np.random.Generator) -> Folds:
        """Divide observations, and choose those by which all experts are compared."""
        count = next((k for n, k in effort.folds if units < n), 1)
        ways = next((k for n, k in effort.ways if units < n), 1)
        part = assign_folds(units, _PARTS, rng, ways)
        fold = np.where(part < count, part, -1)
        scored = np.zeros(units, dtype=bool)
        scored[rng.permutation(np.flatnonzero(fold[0] >= 0))[:_MOST_SCORED]] = True
        return cls(fold, scored)


@dataclass(frozen=True)
class HeldOut:
    """The rows that the members of an ensemble hold out.

    Parameters
    ----------
    held : ndarray of bool, shape (members, n)
        Whether a member holds a row out.
    scored : ndarray of int
        Rows that are held out by some member, and by which the ensemble is judged.
    """

    held: NDArray[np.bool_]
    scored: Rows

    @property
    def members(self) -> int:
        """Number of members."""
        return len(self.held)


@dataclass
class TrainingData:
    """Rows, targets and all else that an expert may need, validated and standardised.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Standardised features.
    Y : ndarray of shape (n, k)
        Targets in the inner coordinate of their `TargetSpace`.
    weight : ndarray of shape (n,), optional
        Weights of the rows, of mean 1; None where all are equal.
    groups : ndarray of int, shape (n,), optional
        The observation of each row, numbered from 0.
    X_unlabeled : ndarray of shape (n_x, p), optional
    Y_marginal : ndarray of shape (n_y, k), optional
    marginal : InnerMarginal, optional
        The law of y alone.
    folds : Folds, optional
        The rows to hold out, and to report on. Without folds, an expert divides the rows itself.
    random_state : Generator
    construction : {"auto", "id", "iid"}
    ratio : float
        How pairs are made, see `mcdensity.build_contrast`.
    columns : ndarray of shape (n, c), optional
        What another expert tells about the rows, see `mcdensity.experts.base.FitReport`.
    device : str
    effort : Effort
        How much work experts should do.
    n_jobs : int, optional
        Threads that may be used, see `MCD`.
    deadline : float, optional
        Value of ``time.monotonic()`` by which training should end.
    report : Reporter
        Where an expert says how far it is.
    keep_levels : bool
        Whether a portfolio keeps the levels of its held-out rows, as `held_out_levels_`.
    censored : ndarray of bool, shape (n,), optional
        Which targets are lower bounds. What the marginal says of these, held out, is the
        log-probability of a larger target.
    """

    X: Array
    Y: Array
    weight: Array | None = None
    groups: Rows | None = None
    X_unlabeled: Array | None = None
    Y_marginal: Array | None = None
    marginal: InnerMarginal | None = None
    folds: Folds | None = None
    random_state: np.random.Generator = field(default_factory=np.random.default_rng)
    construction: str = "auto"
    ratio: float = 0.05
    columns: Array | None = None
    device: str = "auto"
    effort: Effort = EFFORTS["normal"]
    n_jobs: int | None = 1
    deadline: float | None = None
    report: Reporter = SILENT
    keep_levels: bool = False
    censored: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.X)

    @classmethod
    def of_contrast(cls, contrast: ContrastSet, random_state: Any = None) -> TrainingData:
        """Return the rows that a contrast set was built from, with that set as their contrast."""
        origin = contrast.origin
        if origin is None:
            raise ValueError("contrast must be a ContrastSet that build_contrast made.")
        n = origin.n_labeled
        data = cls(
            contrast.x_pool[:n],
            contrast.y_pool[:n],
            origin.row_weight,
            origin.groups,
            contrast.x_pool[n:] if len(contrast.x_pool) > n else None,
            contrast.y_pool[n:] if len(contrast.y_pool) > n else None,
            random_state=as_generator(random_state),
            construction=origin.kind,
            ratio=origin.ratio,
        )
        data._contrast = contrast
        return data

    @cached_property
    def unit(self) -> Rows:
        """The observation of each row."""
        return np.arange(len(self)) if self.groups is None else self.groups

    @property
    def n_observations(self) -> int:
        """Number of different observations: rows, or groups of them."""
        return len(self) if self.groups is None else int(self.groups.max()) + 1

    @cached_property
    def row_weight(self) -> Array:
        """Weight of each row; ones where all are equal."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @cached_property
    def _contrast(self) -> ContrastSet:
        one = self.Y.shape[1] == 1
        more = self.Y_marginal
        return build_contrast(
            self.X,
            self.Y[:, 0] if one else self.Y,
            construction=self.construction,
            ratio=self.ratio,
            X_unlabeled=self.X_unlabeled,
            y_marginal=more[:, 0] if one and more is not None else more,
            groups=self.groups,
            sample_weight=self.weight,
            random_state=self.random_state,
        )

    def contrast(self) -> ContrastSet:
        """Return labelled pairs of these rows, made when first asked for."""
        return self._contrast

    def but(self, **changes: Any) -> TrainingData:
        """Return these data with other folds, another deadline or the like; pairs are kept."""
        new = replace(self, **changes)
        if "_contrast" in self.__dict__ and not {"X", "Y", "groups", "weight"} & set(changes):
            new._contrast = self._contrast
        return new

    def part(self, rows: NDArray[np.bool_]) -> TrainingData:
        """Return some of the labelled rows, without folds; what has no label stays whole."""
        groups = None
        if self.groups is not None:
            groups = np.unique(self.groups[rows], return_inverse=True)[1]
        marginal = self.marginal
        if marginal is not None and marginal.held_out is not None:
            marginal = InnerMarginal(
                marginal.space, marginal.marginal, marginal.held_out[rows], marginal.tied
            )
        part = replace(
            self,
            X=self.X[rows],
            Y=self.Y[rows],
            weight=None if self.weight is None else self.weight[rows],
            groups=groups,
            marginal=marginal,
            columns=None if self.columns is None else self.columns[rows],
            censored=None if self.censored is None else self.censored[rows],
            folds=None,
        )
        if "_contrast" in self.__dict__:
            # Pairs of a part follow the set of the whole: the user has been told of its ratio.
            part._contrast = self._contrast.part(rows, self.random_state)
        return part

    def without_ties(self, rng: np.random.Generator | None = None) -> TrainingData:
        """Return the data with a discrete target spread over the cells between its values."""
        if self.marginal is None or self.Y.shape[1] != 1:
            return self
        pool = self.Y if self.Y_marginal is None else np.concatenate([self.Y, self.Y_marginal])
        rng = self.random_state if rng is None else rng
        spread = self.marginal.spread_ties(pool[:, 0], rng, len(self))
        if spread is None:
            return self
        values, marginal = spread
        n = len(self)
        more = None if self.Y_marginal is None else values[n:, None]
        return replace(self, Y=values[:n, None], Y_marginal=more, marginal=marginal)

    def held_out_marginal(self) -> Array:
        """Log-density of each target under a marginal that has not seen it, shape (n,)."""
        if self.marginal is None:
            raise ValueError("These data have no marginal; fit the expert through MCD.")
        if self.marginal.held_out is not None:
            return self.marginal.held_out
        return self.marginal.logpdf(self.Y[:, 0])

    def held_out(
        self, members: int, *, share: float = 0.2, most: int | None = None
    ) -> HeldOut | None:
        """Decide which rows each member of an ensemble holds out.

        Parameters
        ----------
        members : int
            Members of the ensemble; where the data come with folds, these decide.
        share : float, default 0.2
            Share of the observations that a member holds out.
        most : int, optional
            Largest number of rows to score the ensemble by.

        Returns
        -------
        HeldOut, or None where there are too few observations.
        """
        units, unit = self.n_observations, self.unit
        if self.folds is not None:
            held = [way == e for way in self.folds.fold for e in range(self.folds.count)]
            scored = self.folds.scored[unit]
        else:
            size = max(1, round(share * units))
            if units - size < 2:
                return None
            # Consecutive parts of that size, starting over if the members need more than there are.
            order = self.random_state.permutation(units)
            held = []
            for e in range(members):
                mask = np.zeros(units, dtype=bool)
                mask[np.take(order, np.arange(e * size, (e + 1) * size), mode="wrap")] = True
                held.append(mask)
            scored = np.ones(len(self), dtype=bool)
        table = np.stack(held)[:, unit]
        rows = np.flatnonzero(table.any(axis=0) & scored)
        if most is not None and len(rows) > most:
            rows = np.sort(self.random_state.permutation(rows)[:most])
        return HeldOut(table, rows)

    def batches(self, size: int) -> Iterator[Rows]:
        """Yield the numbers of the labelled rows in random order, `size` at a time, once each."""
        order = self.random_state.permutation(len(self))
        for start in range(0, len(self), size):
            yield order[start : start + size]

    def own_threads(self) -> AbstractContextManager[None]:
        """Keep libraries with threads of their own, within it, to the cores that may be used."""
        return limited_threads(worker_count(self.n_jobs))

    def seconds_left(self) -> float:
        """Return how long training may still take; infinity without a time budget."""
        return np.inf if self.deadline is None else self.deadline - time.monotonic()
