"""Rows of a source with their targets, weights and random keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._columns import as_levels
from mcdensity._validation import require
from mcdensity.streaming.sources import BATCH, Piece, Source, SourceError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Layout", "Rows"]

Array = NDArray[np.float64]


@dataclass
class Rows:
    """Labelled rows.

    Parameters
    ----------
    table : DataFrame
        The features.
    Y : ndarray of shape (n, k)
        The targets.
    weight : ndarray of shape (n,) or None
    key : ndarray of shape (n,)
        A random number of each row, from 0 to 1, that depends on the seed and on the place of the
        row in its source alone. Rows of small keys are a uniform sample, whoever draws it.
    unlabeled : int
        Rows that were left out: they have no target.
    """

    table: pd.DataFrame
    Y: Array
    weight: Array | None
    key: Array
    unlabeled: int = 0

    def __len__(self) -> int:
        return len(self.Y)

    def part(self, chosen: Any) -> Rows:
        """Return some of the rows."""
        weight = None if self.weight is None else self.weight[chosen]
        return Rows(self.table.iloc[chosen], self.Y[chosen], weight, self.key[chosen])

    @staticmethod
    def joined(parts: Sequence[Rows]) -> Rows:
        """Return rows of several parts, in their order."""
        pandas = require("pandas", "cli")
        weights = [part.weight for part in parts]
        return Rows(
            pandas.concat([part.table for part in parts], ignore_index=True),
            np.concatenate([part.Y for part in parts]),
            None if weights[0] is None else np.concatenate([w for w in weights if w is not None]),
            np.concatenate([part.key for part in parts]),
            sum(part.unlabeled for part in parts),
        )


@dataclass(frozen=True)
class Layout:
    """Which columns are what.

    Parameters
    ----------
    targets, features : tuple of str
    weight : str or None
    levels : tuple of str or None
        Of a text target: its values in their order.
    seed : int
        Of the keys.
    """

    targets: tuple[str, ...]
    features: tuple[str, ...]
    weight: str | None = None
    levels: tuple[str, ...] | None = None
    seed: int = 0

    def read(self, source: Source, piece: Piece, size: int = BATCH) -> Iterator[Rows]:
        """Yield the labelled rows of a piece, in their order."""
        extra = [] if self.weight is None else [self.weight]
        rng = np.random.default_rng([self.seed, piece.number])
        for table in source.read(piece, [*self.features, *self.targets, *extra], size):
            key = rng.random(len(table))
            Y = np.column_stack([self._target(table[name], piece) for name in self.targets])
            weight = None if self.weight is None else self._weights(table[self.weight], piece)
            known = ~np.isnan(Y).any(axis=1)
            if weight is not None:
                known &= weight > 0
            rows = Rows(table[list(self.features)], Y, weight, key)
            if not known.all():
                chosen = np.flatnonzero(known)
                left_out = len(rows) - len(chosen)
                rows = rows.part(chosen)
                rows.unlabeled = left_out
            yield rows

    def _target(self, column: Any, piece: Piece) -> Array:
        if self.levels is not None:
            known = column.notna().to_numpy()
            out = np.full(len(column), np.nan)
            out[known] = as_levels(column[known], self.levels)
            return out
        values = _numbers(column)
        if values is None:
            raise SourceError(
                f"{piece.name}: the target {column.name!r} holds {_wrong(column)!r}, which is no "
                "number. If texts have an order, give them as levels."
            )
        if np.isinf(values).any():
            raise SourceError(f"{piece.name}: the target {column.name!r} holds infinity.")
        return values

    def _weights(self, column: Any, piece: Piece) -> Array:
        values = _numbers(column)
        if values is None or not np.isfinite(values).all() or (values < 0).any():
            raise SourceError(
                f"{piece.name}: the weights in {column.name!r} must be finite numbers, and none "
                "negative."
            )
        return values


def _numbers(column: Any) -> Array | None:
    """Return a column as numbers, NaN where it is empty; None where it holds something else."""
    pandas = require("pandas", "cli")
    if pandas.api.types.is_datetime64_any_dtype(column):
        return None
    try:
        return pandas.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return None


def _wrong(column: Any) -> str:
    pandas = require("pandas", "cli")
    found = column[pandas.to_numeric(column, errors="coerce").isna() & column.notna()]
    return str((found if len(found) else column).iloc[0])
