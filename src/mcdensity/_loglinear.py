"""Densities whose logarithm is linear between knots: exact integrals, exact inverses.

Between two knots the density is ``exp(a + s t)``, so its integral, the inverse of that integral
and the part of it above a level have closed forms, and all of them agree with each other to
rounding. Both the marginal densities and the conditional distributions rest on this one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["LogLinear", "fill_up", "is_shared", "resolve"]

Array = NDArray[np.float64]

# exp(-700) is the smallest round power that is still a normal number.
_FLOOR = 700.0
# A row is resolved when neither the mass of a cell nor that left of a knot may be off by more, and
# the density itself by no more than the last.
_CELL_TOLERANCE = 2e-4
_TOTAL_TOLERANCE = 1e-3
_EVEN_TOLERANCE = 8e-3
_ROUNDS = 8
_NEW_KNOTS = 64
# So few values are looked up by counting.
_FEW = 16


def is_shared(rows: Array) -> bool:
    """Whether all rows are one and the same, broadcast."""
    return len(rows) > 1 and rows.strides[0] == 0


def _mean_exponential(d: Array) -> Array:
    """Mean of ``exp(-d t)`` over t in [0, 1], for d >= 0: (1 - exp(-d)) / d."""
    small = d < 1e-8
    safe = np.where(small, 1.0, d)
    return np.where(small, 1.0, -np.expm1(-safe) / safe)


def _log1p_ratio(z: Array) -> Array:
    """log(1 + z) / z, which is 1 at z = 0."""
    small = np.abs(z) < 1e-8
    safe = np.where(small, 1.0, z)
    return np.where(small, 1.0, np.log1p(safe) / safe)


def _search(sorted_rows: Array, values: Array) -> NDArray[np.intp]:
    """For each row the index of the last entry that is not larger than the value, -1 if none."""
    if is_shared(sorted_rows):
        return np.searchsorted(sorted_rows[0], values, side="right") - 1
    if is_shared(values) and values.shape[1] <= _FEW:
        return np.stack([(sorted_rows <= v).sum(axis=1) for v in values[0]], axis=1) - 1
    index = np.empty(values.shape, dtype=np.intp)
    for i, (row, value) in enumerate(zip(sorted_rows, values, strict=True)):
        index[i] = np.searchsorted(row, value, side="right")
    return index - 1


def _capped(log_density: Array) -> Array:
    """Keep log-densities from being infinitely far below the largest of their row."""
    top = log_density.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        raise ValueError(
            "A log-density is NaN, or not finite anywhere in its row; this is a fault of the model "
            "that computed it."
        )
    return np.maximum(log_density, top - _FLOOR)


class LogLinear:
    """Rows of normalised densities, each log-linear between its own knots.

    Parameters
    ----------
    knots : ndarray of shape (n, K)
        Ascending in each row.
    log_density : ndarray of shape (n, K)
        Log-densities at the knots up to a constant per row.
    tails : bool, default True
        Whether the density goes on beyond the outer knots, falling exponentially; else it ends.
    """

    def __init__(self, knots: Array, log_density: Array, *, tails: bool = True) -> None:
        value = _capped(log_density)
        value = value - value.max(axis=1, keepdims=True)
        width = np.diff(knots, axis=1)
        rise = np.diff(value, axis=1)
        mass = (
            width
            * np.exp(np.maximum(value[:, :-1], value[:, 1:]))
            * _mean_exponential(np.abs(rise))
        )
        if tails:
            # At least ten e-foldings over the width of the grid, so that little lies outside.
            least = 10 / (knots[:, -1:] - knots[:, :1])
            outer, fall = width[:, [0, -1]], rise[:, [0, -1]] * [1, -1]
            # The last two knots may be the same point.
            ends = np.divide(fall, outer, out=np.zeros_like(outer), where=outer > 0)
            self.rate = np.maximum(ends, least)
            outside = np.exp(value[:, [0, -1]]) / self.rate
        else:
            self.rate = np.full((len(knots), 2), np.inf)
            outside = np.zeros((len(knots), 2))
        self.tails = tails
        total = mass.sum(axis=1, keepdims=True) + outside.sum(axis=1, keepdims=True)
        self.knots = knots
        self.value = value - np.log(total)
        self.mass = mass / total
        self.outside = outside / total

    @cached_property
    def cdf_at_knots(self) -> Array:
        """Probability to the left of each knot."""
        return np.cumsum(np.concatenate([self.outside[:, :1], self.mass], axis=1), axis=1)

    @cached_property
    def sf_at_knots(self) -> Array:
        """Probability to the right of each knot, accurate where it is tiny."""
        from_right = np.concatenate([self.outside[:, 1:], self.mass[:, ::-1]], axis=1)
        return np.cumsum(from_right, axis=1)[:, ::-1]

    def take(self, rows: NDArray[np.intp]) -> LogLinear:
        """Return the chosen rows."""
        new = object.__new__(LogLinear)
        new.tails = self.tails
        for name in ("knots", "value", "mass", "outside", "rate"):
            setattr(new, name, getattr(self, name)[rows])
        return new

    def _cell(self, index: NDArray[np.intp]) -> tuple[Array, Array, Array, Array, NDArray[np.intp]]:
        """Left knot, width, log-density at both ends and index of inner cells."""
        k = np.clip(index, 0, self.knots.shape[1] - 2)
        left, right = (np.take_along_axis(self.knots, k + i, axis=1) for i in (0, 1))
        a, b = (np.take_along_axis(self.value, k + i, axis=1) for i in (0, 1))
        # Two knots may be the same point, where a grid ends twice: no division by zero.
        return left, np.maximum(right - left, 1e-300), a, b, k

    def _locate(self, sorted_rows: Array, values: Array) -> NDArray[np.intp]:
        """Number of the cell of each value: -1 and K - 1 are the tails, where there are any."""
        index = _search(sorted_rows, values)
        return index if self.tails else np.clip(index, 0, self.knots.shape[1] - 2)

    def _assemble(self, index: NDArray[np.intp], below: Array, inner: Array, above: Array) -> Array:
        if not self.tails:
            return inner
        return np.where(index < 0, below, np.where(index > self.knots.shape[1] - 2, above, inner))

    def logpdf(self, y: Array) -> Array:
        """Log-density at (n, m) points."""
        index = self._locate(self.knots, y)
        left, width, a, b, _ = self._cell(index)
        with np.errstate(invalid="ignore", divide="ignore"):
            inner = a + (b - a) * np.clip((y - left) / width, 0, 1)
            below = a + self.rate[:, :1] * (y - left)
            above = b - self.rate[:, 1:] * (y - left - width)
        return self._assemble(index, below, inner, above)

    def _partial(self, a: Array, b: Array, t: Array) -> Array:
        """Integral of ``exp(a + (b - a) u / t)`` for u from 0 to t."""
        return t * np.exp(np.maximum(a, b)) * _mean_exponential(np.abs(b - a))

    def cdf(self, y: Array) -> Array:
        """Probability to the left of (n, m) points."""
        index = self._locate(self.knots, y)
        left, width, a, b, k = self._cell(index)
        start = np.take_along_axis(self.cdf_at_knots, k, axis=1)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            t = np.clip(y - left, 0, width)
            inner = start + self._partial(a, a + (b - a) * (t / width), t)
            below = self.outside[:, :1] * np.exp(self.rate[:, :1] * (y - left))
            above = 1 - self.outside[:, 1:] * np.exp(-self.rate[:, 1:] * (y - left - width))
        return np.clip(self._assemble(index, below, inner, above), 0, 1)

    def sf(self, y: Array) -> Array:
        """Probability to the right of (n, m) points."""
        index = self._locate(self.knots, y)
        left, width, a, b, k = self._cell(index)
        start = np.take_along_axis(self.sf_at_knots, k + 1, axis=1)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            t = np.clip(left + width - y, 0, width)
            inner = start + self._partial(b, b + (a - b) * (t / width), t)
            below = 1 - self.outside[:, :1] * np.exp(self.rate[:, :1] * (y - left))
            above = self.outside[:, 1:] * np.exp(-self.rate[:, 1:] * (y - left - width))
        return np.clip(self._assemble(index, below, inner, above), 0, 1)

    def ppf(self, q: Array) -> Array:
        """Inverse of `cdf` at (n, m) probabilities."""
        index = self._locate(self.cdf_at_knots, q)
        left, width, a, b, k = self._cell(index)
        start, stop = (np.take_along_axis(self.cdf_at_knots, k + i, axis=1) for i in (0, 1))
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            slope = (b - a) / width
            # From the end where the density is larger, so that nothing overflows.
            rising = b > a
            ahead = np.where(rising, 0.0, np.maximum(q - start, 0) * np.exp(-a))
            back = np.where(rising, np.maximum(stop - q, 0) * np.exp(-b), 0.0)
            ahead = ahead * _log1p_ratio(np.maximum(slope * ahead, -1))
            back = back * _log1p_ratio(np.maximum(-slope * back, -1))
            inner = left + np.clip(np.nan_to_num(np.where(rising, width - back, ahead)), 0, width)
            below = left + np.log(q / self.outside[:, :1]) / self.rate[:, :1]
            above = left + width - np.log((1 - q) / self.outside[:, 1:]) / self.rate[:, 1:]
        return self._assemble(index, below, inner, above)


def _cell_error(knots: Array, value: Array) -> tuple[Array, Array, Array]:
    """Estimate, for each cell, the share of the mass that the log-linear rule may miss.

    Returns the error where the function bends, that where it jumps, and the mass of the cells.

    The two neighbouring cells, prolonged into a cell, lie above or below its own straight line by
    `left` and `right` at its middle. Where both lie on the same side the function bends: for a
    parabola the true line is a quarter of their harmonic mean away. Where they lie on different
    sides the function jumps, and the jump may be anywhere in the cell.
    """
    width = np.diff(knots[:1] if is_shared(knots) else knots, axis=1)
    rise = np.diff(value, axis=1)
    kink = np.diff(rise * np.divide(1, width, out=np.zeros_like(width), where=width > 0), axis=1)
    left, right = np.zeros_like(rise), np.zeros_like(rise)
    np.multiply(kink, width[:, 1:] / -2, out=left[:, 1:])
    np.multiply(kink, width[:, :-1] / -2, out=right[:, :-1])
    density = np.exp(value)
    flat = np.abs(rise) < 1e-6
    mass = np.diff(density, axis=1) / np.where(flat, 1.0, rise)
    np.copyto(mass, density[:, 1:], where=flat)
    mass *= width
    total = mass.sum(axis=1, keepdims=True)
    mass /= total

    product = left * right
    same = product > 0
    bend = np.divide(product, left + right, out=np.zeros_like(rise), where=same)
    bent = (np.exp(np.minimum(bend / 2, 60.0)) - 1) * mass
    bent = np.abs(bent, out=bent) * (2 / 3)
    jumped = np.zeros_like(rise)
    jumps = (product < 0) & ~flat
    if jumps.any():
        row, cell = np.nonzero(jumps)
        low = np.minimum(np.abs(left[jumps]), np.abs(right[jumps]))
        full = np.maximum(density[row, cell], density[row, cell + 1])
        full = full * np.broadcast_to(width, rise.shape)[jumps] / total[row, 0] - mass[jumps]
        jumped[jumps] = full * np.minimum(low / np.abs(rise[jumps]), 0.5)
    return bent, jumped, mass


def _new_knots(knots: Array, error: Array) -> Array:
    """Place new knots where the error is, as serves an error of third order best."""
    importance = np.cbrt(np.where(error > _CELL_TOLERANCE / 20, error, 0.0))
    total = np.cumsum(importance, axis=1)
    position = (np.arange(_NEW_KNOTS) + 0.5) / _NEW_KNOTS * total[:, -1:]
    cell = np.stack([np.searchsorted(t, p) for t, p in zip(total, position, strict=True)])
    cell = np.minimum(cell, error.shape[1] - 1)
    upper = np.take_along_axis(total, cell, axis=1)
    within = 1 - (upper - position) / np.take_along_axis(importance, cell, axis=1)
    start, stop = (np.take_along_axis(knots, cell + i, axis=1) for i in (0, 1))
    return start + (stop - start) * np.clip(within, 0, 1)


def resolve(
    knots: Array,
    value: Array,
    evaluate: Callable[[NDArray[np.intp], Array], Array],
    *,
    fixed_ends: bool = False,
) -> tuple[Array, Array]:
    """Add knots to the rows that need them, until each row's grid resolves its density.

    Parameters
    ----------
    knots : ndarray of shape (K,)
        The knots that all rows start with.
    value : ndarray of shape (n, K)
        Log-densities there, up to a constant per row.
    evaluate : callable
        ``evaluate(rows, points)``: log-densities of the chosen rows at points of shape (rows, m).
    fixed_ends : bool
        Whether the outer cells are constant by definition, and never split.

    Returns
    -------
    knots, value : ndarray of shape (n, K')
        Each row depends on that row alone: the shorter ones are filled up with points on the
        straight line of their last cell, which changes nothing.
    """
    n = len(value)
    rows = np.arange(n)
    all_knots = np.broadcast_to(knots, value.shape)
    done: list[tuple[NDArray[np.intp], Array, Array]] = []
    value = _capped(value)
    for _ in range(_ROUNDS):
        bent, jumped, mass = _cell_error(all_knots, value - value.max(axis=1, keepdims=True))
        if fixed_ends:
            bent[:, [0, -1]] = jumped[:, [0, -1]] = 0
        # Bends miss mass of one sign, which adds up; but what is missed everywhere alike, as of a
        # normal density, only changes the constant. The places of jumps are off at random.
        missed = bent.sum(axis=1)
        uneven = bent - missed[:, None] * mass
        active = (
            (missed > _EVEN_TOLERANCE)
            | (np.abs(uneven).max(axis=1) > _CELL_TOLERANCE)
            | (np.abs(np.cumsum(uneven, axis=1)).max(axis=1) > _TOTAL_TOLERANCE)
            | (np.einsum("ij,ij->i", jumped, jumped) > _TOTAL_TOLERANCE**2)
        )
        error = bent + jumped
        active &= (error > _CELL_TOLERANCE / 20).any(axis=1)
        if not active.all():
            done.append((rows[~active], all_knots[~active], value[~active]))
        if not active.any():
            break
        rows, all_knots, value = rows[active], all_knots[active], value[active]
        fresh = _new_knots(all_knots, error[active])
        all_knots = np.concatenate([all_knots, fresh], axis=1)
        value = _capped(np.concatenate([value, evaluate(rows, fresh)], axis=1))
        order = np.argsort(all_knots, axis=1, kind="stable")
        all_knots = np.take_along_axis(all_knots, order, axis=1)
        value = np.take_along_axis(value, order, axis=1)
    else:
        done.append((rows, all_knots, value))
    if len(done) == 1 and done[0][1].shape[1] == len(knots):
        return done[0][1], done[0][2]  # nothing was added: the knots stay one shared row
    size = max(k.shape[1] for _, k, _ in done)
    out_knots, out_value = np.empty((n, size)), np.empty((n, size))
    for chosen, k, v in done:
        out_knots[chosen], out_value[chosen] = fill_up(k, v, size)
    return out_knots, out_value


def fill_up(knots: Array, value: Array, size: int) -> tuple[Array, Array]:
    """Give each row `size` knots by dividing its last cell, along the straight line there."""
    more = size - knots.shape[1]
    if more == 0:
        return knots, value
    part = np.arange(1, more + 1) / (more + 1)
    filled = []
    for array in (knots, value):
        start, stop = array[:, -2:-1], array[:, -1:]
        filled.append(np.concatenate([array[:, :-1], start + (stop - start) * part, stop], axis=1))
    return filled[0], filled[1]
