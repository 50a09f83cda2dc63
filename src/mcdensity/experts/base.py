r"""What an expert is: it learns from `TrainingData`, and answers for rows that it has seen once.

An expert knows the law of y given x in one of two ways, told apart by type:

- a `RatioExpert` (any discriminator, the paper's method) gives the log-ratio
  :math:`\log f(y \mid x) / f_Y(y)` up to a constant of the row, and needs to know nothing of the
  measure of y;
- a `DensityExpert` gives :math:`\log f(y \mid x)` itself, in the inner coordinate of the target.

`Expert.condition` computes once what depends on x alone. What it returns, a `Conditioned`, is asked
for any y, as often as a grid is refined.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit, logsumexp
from sklearn.base import BaseEstimator

from mcdensity.data import TrainingData
from mcdensity.experts.tables import RatioTable

__all__ = [
    "Conditioned",
    "ConditionedAverage",
    "ConditionedDensity",
    "ConditionedRatio",
    "DensityExpert",
    "Expert",
    "FitReport",
    "RatioExpert",
]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
# Values at points y of shape (m,), which rows share, or (rows, m), of all rows or of some.
Evaluate = Callable[[Array, Rows | None], Array]


@dataclass(frozen=True)
class FitReport:
    """Held-out log-densities of the rows that an expert was asked to be judged by.

    Parameters
    ----------
    rows : ndarray of int
        Rows of the training data.
    log_density : ndarray of float
        Log-density of their targets, in the inner coordinate, under models that have not seen them.
    """

    rows: Rows
    log_density: Array

    @classmethod
    def empty(cls) -> FitReport:
        """Return a report on no row."""
        return cls(np.empty(0, dtype=np.intp), np.empty(0))


class Conditioned(ABC):
    """The laws of y given n rows of x, after what depends on x alone has been computed."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows

    def __len__(self) -> int:
        return self.n_rows

    @abstractmethod
    def relative(self, y: Array, log_marginal: Array, rows: Rows | None = None) -> Array:
        """Log of f(y|x) over the marginal's density.

        Parameters
        ----------
        y : ndarray of shape (m,) or (rows, m)
            Inner values: shared by the rows, or for each row its own.
        log_marginal : ndarray of the shape of y
            The marginal's log-density there.
        rows : ndarray of int, optional
            Which rows; by default all.
        """


class ConditionedRatio(Conditioned):
    """Log-ratios of a classifier, up to a constant of the row.

    Parameters
    ----------
    n_rows : int
    log_ratio : callable
        ``log_ratio(y, rows)``; may be infinite.
    table : RatioTable, optional
        Where to tabulate the ratio, to normalise it.
    """

    def __init__(self, n_rows: int, log_ratio: Evaluate, table: RatioTable | None = None) -> None:
        super().__init__(n_rows)
        self._log_ratio, self._table = log_ratio, table

    def log_ratio(self, y: Array, rows: Rows | None = None) -> Array:
        """Log-ratio at y as the classifier gives it, shape (rows, m)."""
        return self._log_ratio(y, rows)

    @cached_property
    def _tabulated(self) -> tuple[Array, Array]:
        if self._table is None:
            raise ValueError("Normalised ratios need the marginal: fit the expert through MCD.")
        return self._table.normalize(self._log_ratio(self._table.points, None))

    def relative(self, y: Array, log_marginal: Array, rows: Rows | None = None) -> Array:
        """Normalised log-ratio, interpolated in a table that is computed once."""
        value, bend = self._tabulated
        assert self._table is not None
        if rows is not None:
            value, bend = value[rows], bend[rows]
        return self._table.interpolate(value, bend, y)


class ConditionedDensity(Conditioned):
    """Log-densities in the inner coordinate.

    Parameters
    ----------
    n_rows : int
    log_density : callable
        ``log_density(y, rows)``; with `rests_on_marginal` ``log_density(y, rows, log_marginal)``,
        where the marginal's log-density at y is None if it is not at hand.
    rests_on_marginal : bool
        Whether the density has a part that is a multiple of the marginal's.
    """

    def __init__(
        self, n_rows: int, log_density: Callable[..., Array], rests_on_marginal: bool = False
    ) -> None:
        super().__init__(n_rows)
        self._log_density, self._rests_on_marginal = log_density, rests_on_marginal

    def log_density(
        self, y: Array, rows: Rows | None = None, log_marginal: Array | None = None
    ) -> Array:
        """Log-density at y, shape (rows, m)."""
        if self._rests_on_marginal:
            return self._log_density(y, rows, log_marginal)
        return self._log_density(y, rows)

    def relative(self, y: Array, log_marginal: Array, rows: Rows | None = None) -> Array:
        """Log-density less that of the marginal."""
        return self.log_density(y, rows, log_marginal) - log_marginal


class ConditionedAverage(Conditioned):
    r"""A mixture of laws, :math:`\sum_j w_j f_j(y \mid x) + w_0 f_Y(y)`.

    Parameters
    ----------
    parts : sequence of Conditioned
    weights : sequence of float
        One for each part; what is missing to 1 is the marginal's weight.
    """

    def __init__(self, n_rows: int, parts: Sequence[Conditioned], weights: Sequence[float]) -> None:
        super().__init__(n_rows)
        self._parts, self._weights = list(parts), np.asarray(weights, dtype=np.float64)

    def relative(self, y: Array, log_marginal: Array, rows: Rows | None = None) -> Array:
        """Log of the mixture over the marginal."""
        count = self.n_rows if rows is None else len(rows)
        with np.errstate(divide="ignore"):
            rest = np.log(max(1 - self._weights.sum(), 0.0))
        if len(self._parts) == 1 and rest < -30:
            return self._parts[0].relative(y, log_marginal, rows)
        out = np.full((count, y.shape[-1]), rest)
        for part, weight in zip(self._parts, self._weights, strict=True):
            np.logaddexp(out, np.log(weight) + part.relative(y, log_marginal, rows), out=out)
        return out


class Expert(BaseEstimator, ABC):
    """Learns the law of y given x from standardised rows.

    What a class can do is declared on it, and read by the portfolio, by `MCD` and by the tests:

    Attributes
    ----------
    target_kinds : frozenset of str
        Kinds of target.
    max_targets : int
        Largest number of target columns.
    holds_out : bool
        Whether `fit` obeys the folds of its data by itself, as ensembles do, and reports on them.
        Others are fitted once for each fold by the portfolio.
    streams : bool
        Whether it learns from batches of rows, so that all rows need not be in memory.
    sees_all_pairs : bool
        Whether it needs all pairs of the contrast set in memory at once.
    devices : tuple of str
    """

    target_kinds: ClassVar[frozenset[str]] = frozenset({"continuous"})
    max_targets: ClassVar[int] = 1
    holds_out: ClassVar[bool] = False
    streams: ClassVar[bool] = False
    sees_all_pairs: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("cpu",)

    @abstractmethod
    def fit(self, data: TrainingData) -> FitReport:
        """Learn; report on the rows that ``data.folds`` wants to be scored."""

    @abstractmethod
    def condition(self, X: Array) -> Conditioned:
        """Compute what depends on these standardised rows alone."""

    def allows_nan(self) -> bool:
        """Whether X may have missing values."""
        return False

    def takes_weights(self) -> bool:
        """Whether rows may have weights."""
        return True

    def describe(self) -> str:
        """Name for messages."""
        return type(self).__name__


class DensityExpert(Expert):
    """An expert that gives densities in the inner coordinate; see `ConditionedDensity`."""

    @abstractmethod
    def condition(self, X: Array) -> ConditionedDensity:
        """Compute what depends on these standardised rows alone."""


class RatioExpert(Expert):
    """Tells joint pairs from broken ones: logit q(x, y) gives the ratio of densities.

    Subclasses implement `fit`, which sets `ratio_`, and `logit_rows`. Where a part of the work
    depends on x alone, they override `_conditioned_logit` too.

    Attributes
    ----------
    ratio_ : float
        The share of joint pairs that the learner saw, its own class weights included.
    """

    ratio_: float
    # Whether the log-ratio is smooth in y, so that it is interpolated by a spline.
    smooth: ClassVar[bool] = False
    _table: RatioTable | None = None

    @abstractmethod
    def logit_rows(self, X: Array, Y: Array) -> Array:
        """Logit of q at (X[i], Y[i, j]), shape (n, m); may be infinite."""

    def _conditioned_logit(self, X: Array) -> Evaluate:
        def evaluate(y: Array, rows: Rows | None) -> Array:
            some = X if rows is None else X[rows]
            return self.logit_rows(some, np.broadcast_to(y, (len(some), y.shape[-1])))

        return evaluate

    def condition(self, X: Array) -> ConditionedRatio:
        """Compute what depends on these standardised rows alone."""
        evaluate, shift = self._conditioned_logit(X), logit(self.ratio_)

        def log_ratio(y: Array, rows: Rows | None) -> Array:
            value = evaluate(y, rows) - shift
            if np.isnan(value).any():
                raise ValueError(f"The discriminator {self.describe()} returned NaN.")
            return value

        return ConditionedRatio(len(X), log_ratio, self._table)

    def use_table(self, data: TrainingData) -> None:
        """Take from the data's marginal where ratios are tabulated to be normalised."""
        self._table = None
        if data.marginal is not None:
            self._table = RatioTable(*data.marginal.table_points(), smooth=self.smooth)


def held_out_density(conditioned: Conditioned, data: TrainingData, rows: Rows) -> Array:
    """Log-densities of the targets of some rows of the data, which `conditioned` is given by."""
    y = data.Y[rows]
    if isinstance(conditioned, ConditionedDensity):
        return conditioned.log_density(y)[:, 0]
    # A ratio multiplies the marginal: that of these targets must not have seen them.
    assert data.marginal is not None
    own = data.marginal.logpdf(y)
    return conditioned.relative(y, own)[:, 0] + data.held_out_marginal()[rows]


def mixture_log_density(log_density: Sequence[Array], weights: Array) -> Array:
    """Log of a weighted sum of densities given by their logarithms, each of shape (n,)."""
    with np.errstate(divide="ignore"):
        return logsumexp(np.stack(log_density), b=weights[:, None], axis=0)
