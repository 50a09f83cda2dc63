"""Integrals, modes and highest-density regions of densities that are log-linear in y."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import comb, factorial

import numpy as np

from mcdensity.distribution.base import Array
from mcdensity.distribution.loglinear import blocks

__all__ = ["NODES", "WEIGHTS", "Cells"]

# Integrals over a cell, by four points. In a cell where the density changes by a factor of e (e^4)
# the mean position is exact to 1e-8 (5e-5) of the width, the fourth power to 5e-6 (1e-3).
_POINTS, _FACTORS = np.polynomial.legendre.leggauss(4)
NODES, WEIGHTS = (_POINTS + 1) / 2, _FACTORS / 2
# A level of density is found to 200 / 2^60 of its logarithm; mass below exp(-200) is ignored.
_DEPTH = 200.0
_HALVINGS = 60
# Log-densities that differ by less are the same.
_SAME_HEIGHT = 1e-9


@dataclass
class Cells:
    """Rows of densities by cells: log-linear within, each with its true mass.

    Parameters
    ----------
    y, value : ndarray of shape (n, K)
        Points in ascending order, and log-densities there.
    mass : ndarray of shape (n, K - 1)
        Probabilities between the points.
    outside, reach : ndarray of shape (n, 2)
        Probabilities beyond the outer points, and the mean distance from there: the tails are
        exponential.
    """

    y: Array
    value: Array
    mass: Array
    outside: Array
    reach: Array

    def integrate(self, function: Callable[[slice, Array, Array], Array]) -> Array:
        """Integrate ``function(rows, y, log p(y))`` over the cells between the points."""
        out = np.empty(len(self.value))
        for rows in blocks(*self.value.shape):
            y, value = self.y[rows], self.value[rows]
            width, rise = np.diff(y, axis=1), np.diff(value, axis=1)
            top = np.maximum(rise, 0)
            total, norm = np.zeros_like(rise), np.zeros_like(rise)
            for node, weight in zip(NODES, WEIGHTS, strict=True):
                part = weight * np.exp(rise * node - top)
                norm += part
                part *= function(rows, y[:, :-1] + width * node, value[:, :-1] + rise * node)
                total += part
            total /= norm
            total *= self.mass[rows]
            out[rows] = total.sum(axis=1)
        return out

    @cached_property
    def _units(self) -> tuple[Array, Array]:
        """A point in the middle of each row's mass, and a length: the units of its moments."""
        below = self.outside[:, :1] + np.cumsum(self.mass, axis=1)
        last = self.y.shape[1] - 1
        rows = np.arange(len(below))
        low, middle, high = (
            self.y[rows, np.minimum((below < level).sum(axis=1) + shift, last)]
            for level, shift in ((0.25, 0), (0.5, 0), (0.75, 1))
        )
        length = np.maximum(high - low, self.reach.max(axis=1))
        return middle, np.where(length > 0, length, 1.0)

    @cached_property
    def mean(self) -> Array:
        """Expectation of each row."""
        middle, length = self._units
        return middle + length * self._moment(1, np.zeros_like(middle))

    def _moment(self, order: int, center: Array) -> Array:
        """Moment about a center, both in the units of the row."""
        middle, length = self._units

        def power(rows: slice, y: Array, _: Array) -> Array:
            y -= middle[rows, None]
            y /= length[rows, None]
            y -= center[rows, None]
            return y**order

        moment = self.integrate(power)
        for side, sign in ((0, -1), (1, 1)):
            start = sign * ((self.y[:, -side] - middle) / length - center)
            reach = self.reach[:, side] / length
            # Moments about the center of start + T, with T exponential of the given mean.
            tail = sum(
                comb(order, k) * factorial(k) * reach**k * start ** (order - k)
                for k in range(order + 1)
            )
            moment = moment + sign**order * self.outside[:, side] * tail
        return moment

    def _central(self, order: int) -> Array:
        middle, length = self._units
        return self._moment(order, (self.mean - middle) / length)

    @cached_property
    def std(self) -> Array:
        """Standard deviation of each row."""
        return self._units[1] * np.sqrt(self._central(2))

    def standardised_moment(self, order: int) -> Array:
        """Mean of ((y - mean) / std) ** order."""
        return self._central(order) / self._central(2) ** (order / 2)

    def entropy(self) -> Array:
        """Differential entropy of each row."""
        tails = (self.outside * (self.value[:, [0, -1]] - 1)).sum(axis=1)
        return -self.integrate(lambda rows, y, value: value) - tails

    def mean_density(self) -> Array:
        """Integral of the squared density of each row."""
        tails = (self.outside * np.exp(self.value[:, [0, -1]]) / 2).sum(axis=1)
        return self.integrate(lambda rows, y, value: np.exp(value)) + tails

    def mode(self) -> Array:
        """Return the top of the parabola through the highest point and its neighbours."""
        y, value = self.y, self.value
        last = y.shape[1] - 1
        rows = np.arange(len(y))
        # Of several peaks of the same height, but for rounding, the first.
        highest = value >= value.max(axis=1, keepdims=True) - _SAME_HEIGHT
        best = np.clip(highest.argmax(axis=1), min(1, last), max(last - 1, 0))
        y1, v1 = y[rows, best], value[rows, best]
        # The same point may occur several times.
        before = np.maximum((y < y1[:, None]).sum(axis=1) - 1, 0)
        after = np.minimum((y <= y1[:, None]).sum(axis=1), last)
        (y0, v0), (y2, v2) = ((y[rows, k], value[rows, k]) for k in (before, after))
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            first, second = (v1 - v0) / (y1 - y0), (v2 - v1) / (y2 - y1)
            top = (y0 + y1) / 2 + first / (first - second) * (y2 - y0) / 2
        usable = np.isfinite(top) & (top >= y0) & (top <= y2)
        return np.where(usable, top, y1)

    @cached_property
    def _tops(self) -> tuple[Array, Array, Array]:
        """Of each cell the higher end, its height above the other, and 1 - exp(-height)."""
        left, right = self.value[:, :-1], self.value[:, 1:]
        high = np.maximum(left, right)
        fall = high - np.minimum(left, right)
        return high, fall, -np.expm1(-fall)

    def mass_above(self, level: Array) -> Array:
        """Mass where the log-density exceeds `level`, of shape (n,)."""
        out = np.empty(len(level))
        for rows in blocks(*self.value.shape):
            high, fall, whole = (part[rows] for part in self._tops)
            limit = level[rows, None]
            part = -np.expm1(-np.clip(high - limit, 0, fall))
            np.divide(part, whole, out=part, where=fall >= 1e-12)
            np.copyto(part, high > limit, where=fall < 1e-12)
            part *= self.mass[rows]
            ends = self.value[rows][:, [0, -1]] - limit
            tails = self.outside[rows] * -np.expm1(-np.maximum(ends, 0))
            out[rows] = part.sum(axis=1) + tails.sum(axis=1)
        return out

    def hpd_level(self, level: Array) -> Array:
        """Mass where the log-density exceeds each of m levels per row, shape (n, m)."""
        columns = [self.mass_above(level[:, j]) for j in range(level.shape[1])]
        return np.clip(np.stack(columns, axis=1), 0, 1) if columns else np.empty(level.shape)

    def hpd(self, coverage: float) -> list[Array]:
        """Intervals of each row where the density exceeds the level that encloses `coverage`."""
        high = self.value.max(axis=1, initial=-np.inf)
        low = high - _DEPTH
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = self.mass_above(middle) >= coverage
            low, high = np.where(enough, middle, low), np.where(enough, high, middle)
        return [_region(*row) for row in zip(self.y, self.value, self.reach, low, strict=True)]


def _region(y: Array, value: Array, reach: Array, level: float) -> Array:
    """Return the intervals of one row where the log-density exceeds `level`."""
    excess = value - level
    inside = excess >= 0
    change = np.flatnonzero(inside[1:] != inside[:-1])
    part = excess[change] / (excess[change] - excess[change + 1])
    edges = list(y[change] + part * (y[change + 1] - y[change]))
    if inside[0]:
        edges.insert(0, y[0] - reach[0] * excess[0])
    if inside[-1]:
        edges.append(y[-1] + reach[1] * excess[-1])
    return np.array(edges).reshape(-1, 2)
