r"""Experts: they learn from `TrainingData`, and give the law of y for rows that they condition on.

An expert knows the law of y given x in one of two ways, distinguished by type:

- a `RatioExpert` (any discriminator, the paper's method) gives the log-ratio
  :math:`\log f(y \mid x) / f_Y(y)` up to a constant of the row, and does not depend on the
  measure of y;
- a `DensityExpert` gives :math:`\log f(y \mid x)` itself, in the inner coordinate of the target.

`Expert.condition` computes once what depends on x alone. It returns a `Conditioned`, which is
evaluated at any y, as often as a grid is refined.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit, logsumexp
from sklearn.base import BaseEstimator

from mcdensity._mixing import pool_normalizer
from mcdensity.data import TrainingData
from mcdensity.experts.tables import LIMIT, Fade, RatioTable

__all__ = [
    "Conditioned",
    "ConditionedDensity",
    "ConditionedPool",
    "ConditionedPortfolio",
    "ConditionedRatio",
    "DensityExpert",
    "Expert",
    "FitReport",
    "RatioExpert",
    "condition_all",
    "pool_points",
]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
# Quantiles of the marginal over which a pool is normalised while its exponents are chosen.
POOL_POINTS = 256
# Scores of a discrete target's cell by which the mass of a held-out value is computed.
_STRATA = 8
# Values at points y of shape (m,), which rows share, or (rows, m), of all rows or of some.
Evaluate = Callable[[Array, Rows | None], Array]


@dataclass(frozen=True)
class FitReport:
    """Predictions for rows that models have not seen, by which experts are compared.

    Parameters
    ----------
    rows : ndarray of int
        Rows of the training data.
    log_density : ndarray of shape (rows,)
        Log-density of their targets, in the inner coordinate.
    log_ratio : ndarray of shape (rows, G)
        Log-density over the marginal's at G quantiles of the marginal, see `pool_points`.
    columns : ndarray of shape (n, c), optional
        Of an expert that others learn from: what it tells about each row of the training data,
        by models that have not seen the row.
    """

    rows: Rows
    log_density: Array
    log_ratio: Array
    columns: Array | None = None

    @classmethod
    def empty(cls) -> FitReport:
        """Return a report on no row."""
        return cls(np.empty(0, dtype=np.intp), np.empty(0), np.empty((0, POOL_POINTS)))

    @classmethod
    def of(cls, conditioned: Conditioned, data: TrainingData, rows: Rows) -> FitReport:
        """Report on the rows of the data that `conditioned` was built from."""
        assert data.marginal is not None
        y, points = data.Y[rows], pool_points(data)
        cells = data.marginal.cells
        if cells is None:
            own = conditioned.relative(y, data.marginal.logpdf(y))[:, 0]
        else:
            # What counts is the mass of the whole cell.
            inside = cells.strata(cells.cell_of_score(y[:, 0]), _STRATA)
            own = conditioned.relative(inside, data.marginal.logpdf(inside))
            own = logsumexp(own, axis=1) - np.log(_STRATA)
        if isinstance(conditioned, ConditionedDensity):
            # A density does not rest on the marginal, which has seen these targets.
            own = own + (data.marginal.logpdf(y)[:, 0] - data.held_out_marginal()[rows])
        grid = conditioned.relative(points, data.marginal.logpdf(points))
        shift = pool_normalizer(own, grid)
        return cls(rows, own - shift + data.held_out_marginal()[rows], grid - shift[:, None])


def pool_points(data: TrainingData) -> Array:
    """Quantiles of the marginal at which the log-ratios of held-out rows are compared."""
    assert data.marginal is not None
    return data.marginal.strata(POOL_POINTS)


class Conditioned(ABC):
    """The laws of y given n rows of x, after what depends on x alone has been computed.

    Attributes
    ----------
    columns : ndarray of shape (n, c) or None
        What experts that learn from this one are told about the rows, see ``Expert.learns_from``.
    """

    columns: Array | None = None

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows

    def __len__(self) -> int:
        return self.n_rows

    @abstractmethod
    def relative(self, y: Array, log_marginal: Array, rows: Rows | None = None) -> Array:
        """Log of f(y|x) over the marginal's density, up to a constant of the row.

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
        ``log_density(y, rows)``. With a `normalizer`: ``log_density(y, rows, log_marginal)``, up to
        a constant of the row; the marginal's log-density at y is None if it is not available.
    normalizer : callable, optional
        Returns the logarithms of these constants, shape (n_rows,); called once, when needed.
    """

    def __init__(
        self,
        n_rows: int,
        log_density: Callable[..., Array],
        normalizer: Callable[[], Array] | None = None,
    ) -> None:
        super().__init__(n_rows)
        self._log_density, self._normalizer = log_density, normalizer

    def log_density(self, y: Array, rows: Rows | None = None) -> Array:
        """Log-density at y, shape (rows, m)."""
        if self._normalizer is None:
            return self._log_density(y, rows)
        shift = self._log_total if rows is None else self._log_total[rows]
        return self._log_density(y, rows, None) - shift[:, None]

    @cached_property
    def _log_total(self) -> Array:
        assert self._normalizer is not None
        return self._normalizer()

    def relative(self, y: Array, log_marginal: Array, rows: Rows | None = None) -> Array:
        """Log-density minus that of the marginal."""
        if self._normalizer is None:
            return self._log_density(y, rows) - log_marginal
        return self._log_density(y, rows, log_marginal) - log_marginal

    def log_ratio(self, y: Array, log_marginal: Array, rows: Rows | None = None) -> Array:
        """`relative` without a constant of the row: the density integrates to one."""
        found = self.relative(y, log_marginal, rows)
        if self._normalizer is None:
            return found
        return found - (self._log_total if rows is None else self._log_total[rows])[:, None]


class ConditionedPool(Conditioned):
    r"""A log-linear pool, :math:`f_Y(y) \prod_j (f_j(y \mid x) / f_Y(y))^{e_j}`.

    Parameters
    ----------
    parts : sequence of Conditioned
    exponents : sequence of float
    fade : Fade, optional
    """

    def __init__(
        self,
        n_rows: int,
        parts: Sequence[Conditioned],
        exponents: Sequence[float],
        fade: Fade | None = None,
    ) -> None:
        super().__init__(n_rows)
        self._parts, self._exponents, self._fade = list(parts), list(exponents), fade

    def relative(self, y: Array, log_marginal: Array, rows: Rows | None = None) -> Array:
        """Weighted sum of the parts' log-ratios, each kept within limits."""
        count = self.n_rows if rows is None else len(rows)
        out = np.zeros((count, y.shape[-1]))
        for part, exponent in zip(self._parts, self._exponents, strict=True):
            out += exponent * np.clip(part.relative(y, log_marginal, rows), -LIMIT, LIMIT)
        return out if self._fade is None else self._fade(out, y)


class Expert(BaseEstimator, ABC):
    """Learns the law of y given x from standardised rows.

    What a class can do is declared on it, and read by the portfolio, by `MCD` and by the tests:

    Attributes
    ----------
    target_kinds : frozenset of str
        Kinds of target: "continuous", and "discrete", which it sees as normal scores; a mixed one
        is learned by two models.
    max_targets : int
        Largest number of target columns.
    holds_out : bool
        Whether `fit` uses the folds of its data by itself, as ensembles do, and reports on them.
        Others are fitted once for each fold by the portfolio.
    streams : bool
        Whether it learns from batches of rows, so that all rows need not be in memory.
    sees_all_pairs : bool
        Whether it needs all pairs of the contrast set in memory at once.
    quick : bool
        Whether it fits almost instantly, so that skipping folds saves nothing.
    least_observations : int
    most_observations : int
        The portfolio leaves it out by default where there are fewer, or more.
    least_effort : {"fast", "normal", "best"}
        The portfolio leaves it out by default where less is asked for.
    takes_censored : bool
        Whether it learns from targets that are lower bounds, see ``TrainingData.censored``.
    learns_from : str or None
        Name of an expert whose columns (see `FitReport`) it has as inputs beside x. The portfolio
        fits that one first, and passes on what it tells.
    devices : tuple of str
    """

    target_kinds: ClassVar[frozenset[str]] = frozenset({"continuous", "discrete"})
    max_targets: ClassVar[int] = 1
    holds_out: ClassVar[bool] = False
    streams: ClassVar[bool] = False
    sees_all_pairs: ClassVar[bool] = False
    quick: ClassVar[bool] = False
    least_observations: ClassVar[int] = 0
    most_observations: ClassVar[float] = np.inf
    least_effort: ClassVar[str] = "fast"
    takes_censored: ClassVar[bool] = False
    learns_from: ClassVar[str | None] = None
    devices: ClassVar[tuple[str, ...]] = ("cpu",)

    @abstractmethod
    def fit(self, data: TrainingData) -> FitReport:
        """Learn; report on the rows that ``data.folds`` marks as scored."""

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
        return ConditionedRatio(len(X), self._log_ratio_of(X), self._table)

    def _log_ratio_of(self, X: Array) -> Evaluate:
        evaluate, shift = self._conditioned_logit(X), logit(self.ratio_)

        def log_ratio(y: Array, rows: Rows | None) -> Array:
            value = evaluate(y, rows) - shift
            if np.isnan(value).any():
                raise ValueError(f"The discriminator {self.describe()} returned NaN.")
            return value

        return log_ratio

    def make_table(self, data: TrainingData) -> None:
        """Choose, after fitting, where ratios are tabulated to be normalised."""
        self._table = None
        if data.marginal is not None:
            self._table = RatioTable.chosen(
                data.marginal,
                lambda X, y: self._log_ratio_of(X)(y, None),
                data.X,
                data.n_observations,
                self.smooth,
            )


class ConditionedPortfolio(Conditioned):
    """A pool, normalised, with a little of the marginal.

    Parameters
    ----------
    pool : ConditionedPool
    rest : float
        Weight of the marginal.
    points, log_marginal, mass : ndarray of shape (m,)
        Points over which the pool is normalised, the marginal there, and the probabilities that
        they stand for.
    """

    def __init__(
        self, pool: ConditionedPool, rest: float, points: Array, log_marginal: Array, mass: Array
    ) -> None:
        super().__init__(len(pool))
        self._pool, self._rest = pool, rest
        self._points, self._log_marginal, self._mass = points, log_marginal, mass

    @cached_property
    def _at_points(self) -> Array:
        return self._pool.relative(self._points, self._log_marginal)

    @cached_property
    def _log_total(self) -> Array:
        return logsumexp(self._at_points, b=self._mass, axis=1, keepdims=True)

    def relative(self, y: Array, log_marginal: Array, rows: Rows | None = None) -> Array:
        """Log of the law over the marginal."""
        if rows is None and y.shape == self._points.shape and (y == self._points).all():
            value, total = self._at_points, self._log_total
        else:
            value = self._pool.relative(y, log_marginal, rows)
            total = self._log_total if rows is None else self._log_total[rows]
        with np.errstate(divide="ignore"):  # of nothing but the marginal
            share = np.log1p(-self._rest)
        return np.logaddexp(share + value - total, np.log(self._rest))


def condition_all(experts: Mapping[str, Any], X: Array) -> dict[str, Conditioned]:
    """Condition experts, each after the one that it learns from, if that is among them."""
    found: dict[str, Conditioned] = {}

    def conditioned(name: str) -> Conditioned:
        if name not in found:
            expert = experts[name]
            teacher = expert.learns_from
            found[name] = (
                expert.condition(X, conditioned(teacher).columns)
                if teacher is not None and teacher in experts
                else expert.condition(X)
            )
        return found[name]

    return {name: conditioned(name) for name in experts}
