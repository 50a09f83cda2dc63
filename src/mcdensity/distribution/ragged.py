"""Rows of log-linear densities with different numbers of knots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mcdensity.distribution.base import Array
from mcdensity.distribution.loglinear import LogLinear, is_shared

__all__ = ["Ragged", "rows_of"]


def rows_of(values: Array, rows: NDArray[np.intp]) -> Array:
    """Return chosen rows; if all rows are one broadcast row, they stay so."""
    if is_shared(values):
        return np.broadcast_to(values[:1], (len(rows), *values.shape[1:]))
    return values[rows]


class Ragged:
    """Rows of densities in parts, so that no row is padded to the size of another.

    Parameters
    ----------
    parts : sequence of LogLinear
        Each with its own number of knots.
    rows : sequence of ndarray
        The place of each part's rows among all rows.
    """

    def __init__(self, parts: Sequence[LogLinear], rows: Sequence[NDArray[np.intp]]) -> None:
        self.parts, self.rows = list(parts), list(rows)
        self.n_rows = sum(len(r) for r in rows)

    def each(self, function: Callable[[LogLinear, Array], Array], values: Array) -> Array:
        """Call ``function(part, values of its rows)`` for each part; return results in order."""
        out = np.empty(values.shape)
        for part, rows in zip(self.parts, self.rows, strict=True):
            out[rows] = function(part, rows_of(values, rows))
        return out

    def take(self, rows: NDArray[np.intp]) -> Ragged:
        """Return the chosen rows."""
        part, place = np.empty((2, self.n_rows), dtype=np.intp)
        for i, own in enumerate(self.rows):
            part[own], place[own] = i, np.arange(len(own))
        chosen = [np.flatnonzero(part[rows] == i) for i in range(len(self.parts))]
        kept = [i for i, r in enumerate(chosen) if len(r)]
        parts = [self.parts[i].take(place[rows[chosen[i]]]) for i in kept]
        return Ragged(parts, [chosen[i] for i in kept])

    def scaled(self, factor: float) -> Ragged:
        """Return the same densities in other units: knots are multiplied by the factor."""
        return Ragged([part.scaled(factor) for part in self.parts], self.rows)

    def joined(self, others: Sequence[Ragged]) -> Ragged:
        """Return the rows of this and of others, parts of the same size together."""
        by_size: dict[int, tuple[list[LogLinear], list[NDArray[np.intp]]]] = {}
        start = 0
        for ragged in (self, *others):
            for part, rows in zip(ragged.parts, ragged.rows, strict=True):
                parts, places = by_size.setdefault(part.knots.shape[1], ([], []))
                parts.append(part)
                places.append(start + rows)
            start += ragged.n_rows
        return Ragged(
            [LogLinear.joined(parts) for parts, _ in by_size.values()],
            [np.concatenate(places) for _, places in by_size.values()],
        )
