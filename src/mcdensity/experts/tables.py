"""Log-ratios tabulated in y: normalised once, and interpolated ever after."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from mcdensity._known import storable

__all__ = ["LIMIT", "RatioTable"]

Array = NDArray[np.float64]

# A classifier may be sure of itself: log-ratios are kept within these limits, far beyond what any
# number of pairs supports.
LIMIT = 30.0
# Points between two knots where a spline is integrated: a thirtieth of a standard deviation apart.
_FINER = 4


@storable
class RatioTable:
    r"""Where a log-ratio T is tabulated, and how it is integrated against the marginal.

    .. math:: Z(x) = \int e^{T(x, y)} \, dF_Y(y)

    Between the points T is a cubic spline, or piecewise linear where the classifier is a step
    function; beyond the outermost it is constant.

    Parameters
    ----------
    points : ndarray of shape (m,)
        Inner values of y, ascending.
    levels : ndarray of shape (m,)
        Probabilities below them.
    smooth : bool
        Whether T is interpolated by a spline.
    """

    def __init__(self, points: Array, levels: Array, smooth: bool) -> None:
        self.points, self.levels, self.smooth = points, levels, smooth and len(points) > 3
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
        # A level between two points follows the straight line: the cells are narrow.
        u = np.interp(fine, points, levels)
        self._fine, self._mass = fine, np.diff(np.concatenate([[0.0], u, [1.0]]))

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

    def interpolate(self, value: Array, bend: Array, y: Array) -> Array:
        """Values at y, (m,) or (rows, m), of functions given by rows of `value` and `bend`."""
        y = np.clip(y, self.points[0], self.points[-1])
        i = np.clip(np.searchsorted(self.points, y, side="right"), 1, len(self.points) - 1)
        left, width = self.points[i - 1], self.points[i] - self.points[i - 1]
        b = (y - left) / width
        a = 1 - b
        c, d = (a**3 - a) * width**2 / 6, (b**3 - b) * width**2 / 6
        if y.ndim == 1:
            out = value[:, i - 1] * a + value[:, i] * b
            if self.smooth:
                out += bend[:, i - 1] * c + bend[:, i] * d
            return out

        def at(table: Array, j: NDArray[np.intp]) -> Array:
            return np.take_along_axis(table, j, axis=1)

        out = at(value, i - 1) * a + at(value, i) * b
        if self.smooth:
            out += at(bend, i - 1) * c + at(bend, i) * d
        return out
