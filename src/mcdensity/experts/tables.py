"""Log-ratios tabulated in y: normalised once, then interpolated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.special import logsumexp

from mcdensity._known import storable
from mcdensity.marginals.masses import Masses
from mcdensity.target import InnerMarginal

__all__ = ["LIMIT", "CellTable", "Fade", "RatioTable"]

Array = NDArray[np.float64]

# A classifier may be overconfident: log-ratios are kept within these limits, far beyond what any
# number of pairs supports.
LIMIT = 30.0
# Points between two knots where a spline is integrated.
_FINER = 4
# Distances, in normal scores of y, of the points where smooth ratios are tabulated, and the
# error of the log-density at a row's own targets that is allowed on average. With 0.25, 0.125 and
# 0.0625 the log-likelihood of `mlp` was off by 3e-4, 1e-5 and 1e-6 on Kin8nm, by 1e-2, 2e-3 and
# 3e-4 on Yacht, whose law is sharp, and by 0.08, 7e-3 and 2e-4 on the inverse sinusoid. With 0.5
# it was off by 2e-4 on a smooth law of 1000 rows, and predictions with `mlp` are a third faster.
_STEPS = (0.5, 0.375, 0.25, 0.125, 0.0625)
_TOLERANCE = 3e-3
# Steps of trees lie anywhere: their table has a fixed spacing.
_STEP_OF_TREES = 0.125
# Rows by which the table is chosen.
_ROWS = 128
# Beyond the outermost of n targets a positive log-ratio fades over max(1, 2000 / n) inner units. A
# constant one would multiply the marginal's heavy tail: of 1000 normal rows the quantile of 0.999
# was up to 9.4 standard deviations too far out where x is extreme, with 4, 2, 1 and 0.5 units up to
# 3.3, 1.6, 0.6 and 0.5 (then also 0.7 too far in). With 100 rows more lies beyond: 2 units cost
# 0.02 nats on ARMAJump and SkewNormal, and gained 0.001 to 0.004 on five real sets of 300 rows.
_FADE, _LEAST_FADE = 2000.0, 1.0


@storable
class Fade:
    """Positive log-ratios fade beyond the outermost targets: no tail without data gets much mass.

    Parameters
    ----------
    low, high : float
        Inner values of the outermost targets.
    length : float
        Over which a positive log-ratio falls by a factor of e.
    """

    def __init__(self, low: float, high: float, length: float) -> None:
        self.low, self.high, self.length = low, high, length

    @classmethod
    def of(cls, marginal: InnerMarginal | None, n_observations: int) -> Fade | None:
        """Return that of a target with so many observations; none for one with single values."""
        if marginal is None or marginal.cells is not None:
            return None
        return cls(*marginal.limits, max(_LEAST_FADE, _FADE / n_observations))

    def __call__(self, log_ratio: Array, y: Array) -> Array:
        """Return log-ratios (n, m), changed in place, at inner values y, (m,) or (n, m)."""
        beyond = np.maximum(self.low - y, y - self.high)
        far = np.flatnonzero((beyond if y.ndim == 1 else beyond.max(axis=0)) > 0)
        if len(far):
            value, beyond = log_ratio[:, far], np.maximum(beyond[..., far], 0)
            log_ratio[:, far] = np.where(value > 0, value * np.exp(-beyond / self.length), value)
        return log_ratio


@storable
class RatioTable:
    r"""Where a log-ratio T is tabulated, and how it is integrated against the marginal.

    .. math:: Z(x) = \int e^{T(x, y)} \, dF_Y(y)

    Between the points T is a cubic spline, or piecewise linear where the classifier is a step
    function; beyond the outermost it is constant if it is negative, and fades to 0 if it is
    positive: no row may put much mass into a tail without data.

    Parameters
    ----------
    points : ndarray of shape (m,)
        Inner values of y, ascending.
    cdf : callable
        Distribution function of the marginal.
    smooth : bool
        Whether T is interpolated by a spline.
    fade : float
        Length over which a positive T fades beyond the outermost points, see `Fade`.
    """

    fade = np.inf

    def __init__(
        self, points: Array, cdf: Callable[[Array], Array], smooth: bool, fade: float = np.inf
    ) -> None:
        self.points, self.smooth, self.fade = points, smooth and len(points) > 3, fade
        m = len(points)
        eye = np.eye(m)
        # Second derivatives at the points are linear in the values there.
        self._bend = (
            CubicSpline(points, eye, bc_type="natural")(points, 2)
            if self.smooth
            else np.zeros((m, m))
        )
        step = np.arange(_FINER) / _FINER
        fine = (points[:-1, None] + np.diff(points)[:, None] * step).ravel()
        fine = np.append(fine, points[-1])
        self._fine, self._mass = fine, np.diff(np.concatenate([[0.0], cdf(fine), [1.0]]))

    def normalize(self, value: Array) -> tuple[Array, Array]:
        """Return normalised log-ratios at the points, and their second derivatives."""
        value = np.clip(value, -LIMIT, LIMIT).astype(np.float64)
        bend = value @ self._bend.T
        fine = self.interpolate(value, bend, self._fine)
        top = fine.max(axis=1, keepdims=True)
        density = np.exp(fine - top)
        # The trapezoidal rule, constant beyond the ends.
        ends = self._mass[0] * density[:, 0] + self._mass[-1] * density[:, -1]
        total = (density[:, 1:] + density[:, :-1]) @ (self._mass[1:-1] / 2) + ends
        return value - top - np.log(total)[:, None], bend

    @classmethod
    def chosen(
        cls,
        marginal: InnerMarginal,
        log_ratio: Callable[[Array, Array], Array],
        X: Array,
        n_observations: int,
        smooth: bool,
    ) -> RatioTable:
        """Return a table that follows the ratios of some rows with as few points as possible.

        Parameters
        ----------
        marginal : InnerMarginal
        log_ratio : callable
            ``log_ratio(X, y)`` at points y that the rows share.
        X : ndarray of shape (n, p)
            Rows to choose from.
        n_observations, smooth : int, bool
        """
        if marginal.cells is not None:
            return CellTable(marginal.cells, marginal.limits)

        def table(step: float) -> RatioTable:
            fade = max(_LEAST_FADE, _FADE / n_observations)
            return cls(marginal.table_points(step), marginal.cdf, smooth, fade)

        if not smooth:
            return table(_STEP_OF_TREES)
        X = X[:: max(1, len(X) // _ROWS)][:_ROWS]
        best = table(_STEPS[-1])
        y = best._fine
        truth = best.interpolate(*best.normalize(log_ratio(X, best.points)), y)
        mass = np.exp(truth) * (best._mass[1:] + best._mass[:-1]) / 2
        for step in _STEPS[:-1]:
            other = table(step)
            found = other.interpolate(*other.normalize(log_ratio(X, other.points)), y)
            if (mass * np.abs(found - truth)).sum(axis=1).mean() < _TOLERANCE:
                return other
        return best

    def interpolate(self, value: Array, bend: Array, y: Array) -> Array:
        """Values at y, (m,) or (rows, m), of functions given by rows of `value` and `bend`."""
        fade = Fade(self.points[0], self.points[-1], self.fade)
        at_y, y = y, np.clip(y, self.points[0], self.points[-1])
        i = np.clip(np.searchsorted(self.points, y, side="right"), 1, len(self.points) - 1)
        left, width = self.points[i - 1], self.points[i] - self.points[i - 1]
        b = (y - left) / width
        a = 1 - b
        c, d = (a**3 - a) * width**2 / 6, (b**3 - b) * width**2 / 6

        def at(table: Array, j: NDArray[np.intp]) -> Array:
            return table[:, j] if j.ndim == 1 else np.take_along_axis(table, j, axis=1)

        out = at(value, i - 1) * a + at(value, i) * b
        if self.smooth:
            out += at(bend, i - 1) * c + at(bend, i) * d
        return fade(out, at_y)


@storable
class CellTable(RatioTable):
    """Log-ratios of a discrete target: one for each value, constant over the cell of its scores.

    Parameters
    ----------
    cells : Masses
    limits : tuple of float
        Scores of the outermost values that were seen: beyond them the ratio is constant.
    """

    smooth = False

    def __init__(self, cells: Masses, limits: tuple[float, float]) -> None:
        self.points = np.clip(cells.scores_, *limits)
        self._cells = cells

    def normalize(self, value: Array) -> tuple[Array, Array]:
        """Return normalised log-ratios at the values, and no second derivatives."""
        value = np.clip(value, -LIMIT, LIMIT).astype(np.float64)
        total = logsumexp(value, b=self._cells.masses_, axis=1, keepdims=True)
        return value - total, np.zeros((len(value), 0))

    def interpolate(self, value: Array, bend: Array, y: Array) -> Array:
        """Values of the cells that scores y, (m,) or (rows, m), lie in."""
        cell = self._cells.cell_of_score(y)
        return value[:, cell] if cell.ndim == 1 else np.take_along_axis(value, cell, axis=1)
