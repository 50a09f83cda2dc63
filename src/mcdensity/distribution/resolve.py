"""Knots where they are needed: grids that grow until they resolve the density of their row."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcdensity.distribution.base import Array
from mcdensity.distribution.loglinear import blocks, cap, is_shared, scratch

__all__ = ["Group", "resolve"]

Rows = NDArray[np.intp]

# A row is resolved when the mass of each cell, the mass left of each knot and the density itself
# are off by no more than these. Tried with a normal law, a narrow one, t3, Laplace,
# uniform, exponential and skew normal laws on a normal reference: with these the distribution
# function was off by 2e-4 at most, with four times as much by 5e-4, with a quarter by 1e-4.
_CELL_TOLERANCE = 2e-4
_TOTAL_TOLERANCE = 1e-3
_EVEN_TOLERANCE = 8e-3
# Cells whose error is below this get no knots.
_NEGLIGIBLE = _CELL_TOLERANCE / 20
# Narrower cells count as having no width: their slopes could overflow.
_LEAST_WIDTH = 1e-150
# A smaller rise counts as flat, without a jump.
_LEAST_RISE = 1e-6
# A normal law of a width of 1e-7 of the reference's needs five rounds, the others two.
_ROUNDS = 8
# With 16, 32, 64 and 128 the laws above were off by up to 1e-3, 5e-4, 2e-4 and 8e-5, and had up to
# 240, 256, 320 and 448 knots.
_NEW_KNOTS = 64
# New knots are placed by shares of the error that are multiples of one in so many.
_UNITS = 1e5


# Arrays that `_examine` works with.
_ARRAYS = 8


class Group(NamedTuple):
    """Rows with equally many knots."""

    rows: Rows
    knots: Array
    value: Array


class _Findings(NamedTuple):
    """Rows that are not resolved, their new knots, and the cells that these divide."""

    active: NDArray[np.bool_]
    fresh: Array
    cell: Rows


def _bends(width: Array, rise: Array, mass: Array, work: Array) -> tuple[Array, Array]:
    """Estimate the share of the mass of each inner cell that the log-linear rule may miss.

    The two neighbouring cells, extended into a cell, lie above or below its own straight line by
    `left` and `right` at its middle. Where both lie on the same side the function bends: for a
    parabola the true line is a quarter of their harmonic mean away. Where they lie on different
    sides the function jumps, and the jump may be anywhere in the cell.

    Returns the error of bends, and the smaller of `left` and `right` where there is a jump, else 0.
    """
    slope, kink, left, right = work
    inverse = np.divide(1.0, width, out=np.zeros_like(width), where=width > _LEAST_WIDTH)
    np.multiply(rise, inverse, out=slope)
    kink = np.subtract(slope[:, 1:], slope[:, :-1], out=kink[:, 1:])
    half = width[:, 1:-1] * -0.5
    left = np.multiply(kink[:, :-1], half, out=left[:, 2:])
    right = np.multiply(kink[:, 1:], half, out=right[:, 2:])
    product = np.multiply(left, right, out=slope[:, 2:])
    bend = np.add(left, right, out=kink[:, 1:])
    np.copyto(bend, np.inf, where=product <= 0)
    np.divide(product, bend, out=bend)
    bend *= 0.5
    np.minimum(bend, 60.0, out=bend)
    missed = np.expm1(bend, out=bend)
    np.abs(missed, out=missed)
    missed *= mass[:, 1:-1]
    missed *= 2 / 3
    jump = np.minimum(np.abs(left, out=left), np.abs(right, out=right), out=left)
    np.copyto(jump, 0.0, where=product >= 0)
    return missed, jump


def _examine(knots: Array, value: Array, memory: Array) -> _Findings:
    """Find the rows of a block that are not resolved, and place new knots in them."""
    work = memory[:, : len(value)]
    relative = np.subtract(value, cap(value), out=work[0])
    width = np.diff(knots[:1] if is_shared(knots) else knots, axis=1)
    density = np.exp(relative, out=work[1])
    rise = np.subtract(relative[:, 1:], relative[:, :-1], out=work[7, :, 1:])
    # The mass of a cell, exact enough for an error: a flat one has the density of its end.
    mass = np.subtract(density[:, 1:], density[:, :-1], out=work[2, :, 1:])
    flat = np.abs(rise, out=work[3, :, 1:]) < _LEAST_RISE
    np.copyto(mass, density[:, 1:], where=flat)
    np.copyto(rise, 1.0, where=flat)
    mass /= rise
    np.copyto(rise, 0.0, where=flat)
    mass *= width
    total = mass.sum(axis=1, keepdims=True)
    mass /= total

    error, jump = _bends(width, rise, mass, work[3:7, :, 1:])
    # Bends miss mass of one sign, which adds up; but an error that is the same everywhere, as
    # with a normal density, only changes the constant. The places of jumps are off at random.
    missed = error.sum(axis=1)
    active = missed > _EVEN_TOLERANCE
    # A difference of positive numbers is no larger than both, nor is a sum of such differences.
    largest = np.maximum(error.max(axis=1), missed * mass.max(axis=1))
    doubtful = (largest > _CELL_TOLERANCE) | (missed > _TOTAL_TOLERANCE)
    doubtful = np.flatnonzero(doubtful & ~active)
    if len(doubtful):
        uneven = -missed[doubtful, None] * mass[doubtful]
        uneven[:, 1:-1] += error[doubtful]
        failed = np.maximum(uneven.max(axis=1), -uneven.min(axis=1)) > _CELL_TOLERANCE
        left = np.flatnonzero(~failed & (missed[doubtful] > _TOTAL_TOLERANCE))
        if len(left):
            furthest = np.abs(np.cumsum(uneven[left], axis=1)).max(axis=1)
            failed[left] = furthest > _TOTAL_TOLERANCE
        active[doubtful] = failed
    # Far out, where there is almost no mass, rounding looks like jumps.
    full = np.maximum(density[:, 1:-2], density[:, 2:-1], out=work[6, :, 3:])
    full *= width[:, 1:-1]
    row, cell = np.nonzero((jump > 0) & (full > _NEGLIGIBLE * total))
    if len(row):
        most = full[row, cell] / total[row, 0] - mass[row, cell + 1]
        height = np.maximum(np.abs(rise[row, cell + 1]), _LEAST_RISE)
        jumped = most * np.minimum(jump[row, cell] / height, 0.5)
        active |= np.bincount(row, jumped**2, len(value)) > _TOTAL_TOLERANCE**2
        error[row, cell] += jumped
    chosen = np.flatnonzero(active)
    if len(chosen) == 0:
        return _Findings(active, np.empty((0, _NEW_KNOTS)), np.empty((0, _NEW_KNOTS), np.intp))
    chosen = chosen[(error[chosen] > _NEGLIGIBLE).any(axis=1)]
    active[:] = False
    active[chosen] = True
    return _Findings(active, *_new_knots(knots, chosen, error[chosen]))


def _new_knots(knots: Array, rows: Rows, error: Array) -> tuple[Array, Rows]:
    """Place new knots where the error is, optimally for an error of third order."""
    n, cells = error.shape
    importance = np.zeros_like(error)
    np.cbrt(error, out=importance, where=error > _NEGLIGIBLE)
    # Whole numbers, so that rounding of the densities, which depends on the other rows, does not
    # move the knots.
    importance *= _UNITS / importance.sum(axis=1, keepdims=True)
    np.rint(importance, out=importance)
    total = np.cumsum(importance, axis=1)
    # How many of the evenly spread positions lie at or before the end of each cell.
    before = np.floor(total * (_NEW_KNOTS / total[:, -1:]) + 0.5).astype(np.intp)
    count = np.diff(before, axis=1, prepend=0)
    cell = np.repeat(np.tile(np.arange(cells), n), count.ravel()).reshape(n, _NEW_KNOTS)
    position = (np.arange(_NEW_KNOTS) + 0.5) / _NEW_KNOTS * total[:, -1:]
    each = np.arange(n)[:, None]
    within = 1 - (total[each, cell] - position) / importance[each, cell]
    cell += 1  # the outermost cells are never divided
    start, stop = knots[rows[:, None], cell], knots[rows[:, None], cell + 1]
    fresh = start + (stop - start) * np.clip(within, 0, 1)
    return np.minimum(fresh, stop), cell


def _merged(old: Array, fresh: Array, cell: Rows) -> Array:
    """Put new values into the cells that they belong to, without sorting anything."""
    out = np.empty((len(old), old.shape[1] + fresh.shape[1]))
    place = cell + 1 + np.arange(fresh.shape[1])
    is_old = np.ones(out.shape, dtype=bool)
    np.put_along_axis(is_old, place, False, axis=1)
    np.put_along_axis(out, place, fresh, axis=1)
    out[is_old] = old.ravel()
    return out


def resolve(knots: Array, value: Array, evaluate: Callable[[Rows, Array], Array]) -> list[Group]:
    """Add knots to the rows that need them, until each row's grid resolves its density.

    Parameters
    ----------
    knots : ndarray of shape (K,) or (n, K)
        The knots that rows start with: one set for all, or one for each. The outermost cells are
        never divided.
    value : ndarray of shape (n, K)
        Log-densities there, up to a constant per row; very small ones are clipped in place.
    evaluate : callable
        ``evaluate(rows, points)``: log-densities of the chosen rows at points of shape (rows, m).

    Returns
    -------
    list of Group
        The rows by the number of their knots. The knots of a row depend on that row alone. Rows
        without new knots still share the knots that they started with.
    """
    rows = np.arange(len(value))
    knots = np.broadcast_to(knots, value.shape)
    done: list[Group] = []
    for _ in range(_ROUNDS):
        memory = scratch(_ARRAYS, *value.shape)
        found = [_examine(knots[b], value[b], memory) for b in blocks(*value.shape)]
        if not found:
            break
        active = np.concatenate([f.active for f in found])
        if not active.all():
            done.append(_group(rows, knots, value, ~active))
        rows = rows[active]
        if len(rows) == 0:
            break
        fresh, cell = (np.concatenate([f[i] for f in found]) for i in (1, 2))
        new = evaluate(rows, fresh)
        knots = np.ascontiguousarray(knots[active])
        knots, value = _merged(knots, fresh, cell), _merged(value[active], new, cell)
    else:
        for b in blocks(*value.shape):
            cap(value[b])
        done.append(Group(rows, knots, value))
    return done


def _group(rows: Rows, knots: Array, value: Array, chosen: NDArray[np.bool_]) -> Group:
    if chosen.all():
        return Group(rows, knots, value)
    once = np.broadcast_to(knots[:1], (int(chosen.sum()), knots.shape[1]))
    return Group(rows[chosen], once if is_shared(knots) else knots[chosen], value[chosen])
