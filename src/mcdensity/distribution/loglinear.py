"""Densities whose logarithm is linear between knots: exact integrals, exact inverses.

Between two knots the density is ``exp(a + s t)``, so its integral, the inverse of that integral
and the part of it above a level have closed forms, and all of them agree with each other to
rounding. Both the marginal densities and the conditional distributions rest on this one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mcdensity.distribution.base import Array

__all__ = ["LogLinear", "at", "blocks", "cap", "cell_means", "is_shared", "scratch", "search"]

# exp(-700) is the smallest round power that is still a normal number.
_FLOOR = 700.0
# Numbers that are processed at once, so that some arrays of them stay in the cache. Building 10,000
# rows of 190 knots took 254, 170, 147 and 168 ms with 2^12, 2^13, 2^14 and 2^15.
_BLOCK = 1 << 14
# Smaller steps of a logarithm count as this one, whose exponential is 1.
_LEAST_STEP = 1e-300
# From this many values per row rows are searched one by one; below it all are bisected at once.
# 3000 rows of 190 (700) knots took 5.3 (6.6) ms one by one and 0.6 (0.9) ms by halving for 3
# values, 11.7 (15.4) and 8.4 (16.9) ms for 48 values.
_MANY_VALUES = 48
# The tails of a grid fall by at least so many e-foldings over its width, so that next to nothing
# lies outside of a grid that was made to hold the mass: at most exp(-10).
_LEAST_FALL = 10.0


def is_shared(rows: Array) -> bool:
    """Whether all rows are one broadcast row."""
    return len(rows) > 1 and rows.strides[0] == 0


def _block_rows(row_size: int) -> int:
    return max(1, _BLOCK // max(row_size, 1))


def blocks(n_rows: int, row_size: int) -> Iterator[slice]:
    """Divide rows into blocks that stay in the cache."""
    step = _block_rows(row_size)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def scratch(arrays: int, n_rows: int, row_size: int) -> Array:
    """Memory for the largest of the blocks, reused for each of them."""
    return np.empty((arrays, min(n_rows, _block_rows(row_size)), row_size))


def cell_means(value: Array, density: Array | None = None, work: Array | None = None) -> Array:
    """Mean of a density over each cell between knots, where its logarithm is linear.

    Parameters
    ----------
    value : ndarray of shape (n, K)
        Log-densities at the knots.
    density : ndarray of shape (n, K), optional
        Their exponentials, where they are available.
    work : ndarray of shape (2, n, K - 1), optional
        Memory to use; the first of the two arrays is the result.
    """
    density = np.exp(value) if density is None else density
    if work is None:
        work = np.empty((2, len(value), value.shape[1] - 1))
    mean, fall = work
    # With d the size of the step of the logarithm, the larger end times (1 - exp(-d)) / d; no
    # masks, which take longer than all the arithmetic.
    np.subtract(value[:, 1:], value[:, :-1], out=fall)
    np.abs(fall, out=fall)
    np.negative(np.maximum(fall, _LEAST_STEP, out=fall), out=fall)
    np.expm1(fall, out=mean)
    mean /= fall
    mean *= np.maximum(density[:, :-1], density[:, 1:], out=fall)
    return mean


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


def at(rows: Array, index: NDArray[np.intp]) -> Array:
    """Entries of each row at an index of shape (n, m)."""
    if is_shared(rows):
        return rows[0].take(index)
    start = (np.arange(len(rows)) * rows.shape[1])[:, None]
    return np.ascontiguousarray(rows).reshape(-1).take(index + start)


def search(sorted_rows: Array, values: Array) -> NDArray[np.intp]:
    """For each row the index of the last entry that is not larger than the value, -1 if none."""
    if is_shared(sorted_rows):
        if is_shared(values):
            once = np.searchsorted(sorted_rows[0], values[0], side="right") - 1
            return np.broadcast_to(once, values.shape)
        return np.searchsorted(sorted_rows[0], values, side="right") - 1
    if values.shape[1] >= _MANY_VALUES or len(values) == 1:
        index = np.empty(values.shape, dtype=np.intp)
        for i, (row, value) in enumerate(zip(sorted_rows, values, strict=True)):
            index[i] = np.searchsorted(row, value, side="right")
        return index - 1
    # All rows are bisected at once.
    flat = np.ascontiguousarray(sorted_rows).reshape(-1)
    size = sorted_rows.shape[1]
    start = (np.arange(len(values)) * size)[:, None]
    low = np.full(values.shape, -1, dtype=np.intp)
    step = 1 << (size.bit_length() - 1) if size else 0
    while step:
        middle = low + step
        ahead = flat.take(start + np.minimum(middle, size - 1)) <= values
        np.copyto(low, middle, where=ahead & (middle < size))
        step >>= 1
    return low


def cap(log_density: Array) -> Array:
    """Keep log-densities, in place, from lying infinitely far below the largest of their row.

    Returns
    -------
    ndarray of shape (n, 1)
        The largest of each row.
    """
    top = log_density.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        raise ValueError(
            "A log-density is NaN, or not finite anywhere in its row; this is a fault of the model "
            "that computed it."
        )
    np.maximum(log_density, top - _FLOOR, out=log_density)
    return top


class LogLinear:
    """Rows of normalised densities, each log-linear between its own knots.

    Parameters
    ----------
    knots : ndarray of shape (n, K)
        Ascending in each row.
    log_density : ndarray of shape (n, K)
        Log-densities at the knots up to a constant per row.
    tails : bool, default True
        Whether the density continues beyond the outer knots, falling exponentially; else it ends.
    in_place : bool, default False
        Whether `log_density` may be overwritten, which saves a copy.
    """

    def __init__(
        self, knots: Array, log_density: Array, *, tails: bool = True, in_place: bool = False
    ) -> None:
        n, size = log_density.shape
        self.tails, self.knots = tails, knots
        copy = None if in_place else True
        self.value = np.array(log_density, dtype=np.float64, order="C", copy=copy)
        self.mass = np.empty((n, size - 1))
        self.outside = np.zeros((n, 2))
        self.rate = np.full((n, 2), np.inf)
        width = np.diff(knots[:1], axis=1) if is_shared(knots) else None
        memory = scratch(3, n, size)
        for rows in blocks(n, size):
            value, mass = self.value[rows], self.mass[rows]
            work = memory[:, : len(value)]
            value -= cap(value)
            w = np.diff(knots[rows], axis=1) if width is None else width
            density = np.exp(value, out=work[0])
            np.multiply(cell_means(value, density, work[1:, :, 1:]), w, out=mass)
            total = mass.sum(axis=1, keepdims=True)
            if tails:
                rate = self._tail_rates(knots[rows], value, w)
                outside = np.exp(value[:, [0, -1]]) / rate
                total += outside.sum(axis=1, keepdims=True)
                self.rate[rows], self.outside[rows] = rate, outside / total
            value -= np.log(total)
            mass /= total

    @staticmethod
    def _tail_rates(knots: Array, value: Array, width: Array) -> Array:
        """How fast the logarithm falls outside: as in the outer cells, or fast enough."""
        # In halves, since the difference of the largest numbers overflows.
        least = _LEAST_FALL / 2 / (knots[:, -1:] / 2 - knots[:, :1] / 2)
        fall = np.stack([value[:, 1] - value[:, 0], value[:, -2] - value[:, -1]], axis=1)
        outer = np.broadcast_to(width[:, [0, -1]], fall.shape)
        # The last two knots may be the same point.
        ends = np.divide(fall, outer, out=np.zeros_like(fall), where=outer > 0)
        return np.maximum(ends, least)

    @cached_property
    def cdf_at_knots(self) -> Array:
        """Probability to the left of each knot."""
        return _cumulated(self.mass, self.outside[:, :1])

    @cached_property
    def sf_at_knots(self) -> Array:
        """Probability to the right of each knot, accurate where it is tiny."""
        from_right = _cumulated(self.mass[:, ::-1], self.outside[:, 1:])
        return np.ascontiguousarray(from_right[:, ::-1])

    def take(self, rows: NDArray[np.intp]) -> LogLinear:
        """Return the chosen rows."""
        new = object.__new__(LogLinear)
        new.tails = self.tails
        shared = is_shared(self.knots)
        for name in ("value", "mass", "outside", "rate"):
            setattr(new, name, getattr(self, name)[rows])
        once = np.broadcast_to(self.knots[:1], new.value.shape) if shared else None
        new.knots = self.knots[rows] if once is None else once
        return new

    def scaled(self, factor: float) -> LogLinear:
        """Return the densities of `factor` times the variable."""
        new = object.__new__(LogLinear)
        new.tails, new.mass, new.outside = self.tails, self.mass, self.outside
        new.knots, new.rate = self.knots * factor, self.rate / factor
        new.value = self.value - np.log(factor)
        return new

    @classmethod
    def joined(cls, laws: list[LogLinear]) -> LogLinear:
        """Return the rows of laws that have equally many knots."""
        new = object.__new__(cls)
        new.tails = laws[0].tails
        for name in ("value", "mass", "outside", "rate"):
            setattr(new, name, np.concatenate([getattr(law, name) for law in laws]))
        once = laws[0].knots[:1]
        if all(np.array_equal(law.knots[:1], once) for law in laws) and all(
            is_shared(law.knots) or len(law.knots) == 1 for law in laws
        ):
            new.knots = np.broadcast_to(once, new.value.shape)
        else:
            new.knots = np.concatenate([law.knots for law in laws])
        return new

    def _cell(self, index: NDArray[np.intp]) -> tuple[Array, Array, Array, Array, NDArray[np.intp]]:
        """Left knot, width, log-density at both ends and index of inner cells."""
        k = np.clip(index, 0, self.knots.shape[1] - 2)
        left, right = at(self.knots, k), at(self.knots, k + 1)
        # Two knots may be the same point, where a grid ends twice: no division by zero.
        return left, np.maximum(right - left, 1e-300), at(self.value, k), at(self.value, k + 1), k

    def _locate(self, sorted_rows: Array, values: Array) -> NDArray[np.intp]:
        """Number of the cell of each value: -1 and K - 1 are the tails, where there are any."""
        index = search(sorted_rows, values)
        return index if self.tails else np.clip(index, 0, self.knots.shape[1] - 2)

    def _assemble(self, index: NDArray[np.intp], below: Array, inner: Array, above: Array) -> Array:
        if not self.tails:
            return inner
        return np.where(index < 0, below, np.where(index > self.knots.shape[1] - 2, above, inner))

    def logpdf(self, y: Array) -> Array:
        """Log-density at (n, m) points."""
        index = self._locate(self.knots, y)
        left, width, a, b, _ = self._cell(index)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
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
        start = at(self.cdf_at_knots, k)
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
        start = at(self.sf_at_knots, k + 1)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            t = np.clip(left + width - y, 0, width)
            inner = start + self._partial(b, b + (a - b) * (t / width), t)
            below = 1 - self.outside[:, :1] * np.exp(self.rate[:, :1] * (y - left))
            above = self.outside[:, 1:] * np.exp(-self.rate[:, 1:] * (y - left - width))
        return np.clip(self._assemble(index, below, inner, above), 0, 1)

    def ppf(self, q: Array) -> Array:
        """Inverse of `cdf` at (n, m) probabilities; at 0 and 1 the ends of the support."""
        index = self._locate(self.cdf_at_knots, q)
        left, width, a, b, k = self._cell(index)
        start, stop = at(self.cdf_at_knots, k), at(self.cdf_at_knots, k + 1)
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
        out = self._assemble(index, below, inner, above)
        # Rounding may have put 0 and 1 into an inner cell.
        first, last = (-np.inf, np.inf) if self.tails else (self.knots[:, :1], self.knots[:, -1:])
        return np.where(q == 0, first, np.where(q == 1, last, out))


def _cumulated(mass: Array, start: Array) -> Array:
    """Sums of start and the masses before each knot."""
    out = np.empty((len(mass), mass.shape[1] + 1))
    out[:, :1] = start
    np.cumsum(mass, axis=1, out=out[:, 1:])
    if start.any():
        out[:, 1:] += start
    return out
