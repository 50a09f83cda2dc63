"""What one pass over the rows keeps: counts, moments, quantiles, frequent values, a sample.

All parts can be merged, so that several processes may each look at some pieces.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._columns import LEAST_KEYS, is_key
from mcdensity._validation import require
from mcdensity.streaming.rows import Rows

__all__ = ["ColumnSketch", "FrequentValues", "QuantileSketch", "Sketch", "UniformSample"]

Array = NDArray[np.float64]

# Values in a level of the sketch of quantiles: the error of ten million rows is below 0.001.
_LEVEL = 8192
# Different values whose counts are kept, of a target and of a column of text.
_MOST_ATOMS, _MOST_TEXTS = 512, 20_000


class QuantileSketch:
    """Quantiles of a stream, with a known error.

    Values wait in levels. A full level is sorted, and every second of its values goes up by one,
    where it stands for twice as many. Each time a rank changes by at most the weight of the values
    that went up: `error` adds that.

    Parameters
    ----------
    size : int
        Values that wait in a level at most.

    Attributes
    ----------
    count : int
    error : float
        Largest possible error of a rank, as a share of the count.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.streaming.sketch import QuantileSketch
    >>> sketch = QuantileSketch()
    >>> for start in range(0, 100_000, 1000):
    ...     sketch.add(np.arange(start, start + 1000))
    >>> bool(abs(sketch.quantile(0.5) - 50_000) <= 100_000 * sketch.error)
    True
    """

    def __init__(self, size: int = _LEVEL) -> None:
        self.size, self.count, self._wrong = size, 0, 0
        self._levels: list[list[Array]] = []
        self._odd: list[int] = []

    @property
    def error(self) -> float:
        """Largest possible error of a rank, as a share of the count."""
        return self._wrong / max(self.count, 1)

    def add(self, values: Array) -> None:
        """Add values."""
        self.count += len(values)
        self._put(0, np.asarray(values, dtype=np.float64))

    def merge(self, other: QuantileSketch) -> None:
        """Add the values of another sketch."""
        self.count += other.count
        self._wrong += other._wrong
        for level, waiting in enumerate(other._levels):
            for values in waiting:
                self._put(level, values)

    def _put(self, level: int, values: Array) -> None:
        if len(values) == 0:
            return
        while len(self._levels) <= level:
            self._levels.append([])
            self._odd.append(0)
        waiting = self._levels[level]
        waiting.append(values)
        if sum(map(len, waiting)) < self.size:
            return
        ordered = np.sort(np.concatenate(waiting))
        rest = ordered[len(ordered) - len(ordered) % 2 :]
        self._levels[level] = [rest] if len(rest) else []
        # First one half, then the other, so that errors cancel.
        start, self._odd[level] = self._odd[level], 1 - self._odd[level]
        self._wrong += 2**level
        self._put(level + 1, ordered[start : len(ordered) - len(rest) : 2])

    def quantile(self, level: Any) -> Any:
        """Return values below which the given shares lie."""
        parts = [(v, 2**h) for h, waiting in enumerate(self._levels) for v in waiting]
        if not parts:
            raise ValueError("The sketch has seen no values.")
        values = np.concatenate([v for v, _ in parts])
        weight = np.concatenate([np.full(len(v), w) for v, w in parts])
        order = np.argsort(values, kind="stable")
        rank = np.cumsum(weight[order])
        place = np.searchsorted(rank, np.asarray(level) * rank[-1])
        return values[order][np.minimum(place, len(values) - 1)]


class FrequentValues:
    """Counts of the values that are frequent (Misra and Gries, 1982).

    Parameters
    ----------
    size : int
        Values whose counts are kept.

    Attributes
    ----------
    error : int
        By how much a count may be too low; 0 as long as there are no more different values.
    """

    def __init__(self, size: int) -> None:
        self.size, self.error = size, 0
        self.counts: dict[Any, int] = {}

    def add(self, values: Iterable[Any], counts: Iterable[int]) -> None:
        """Add values that occur so many times."""
        own = self.counts
        for value, count in zip(values, counts, strict=True):
            own[value] = own.get(value, 0) + int(count)
        if len(own) > self.size:
            less = sorted(own.values(), reverse=True)[self.size]
            self.error += less
            self.counts = {v: c - less for v, c in own.items() if c > less}

    def merge(self, other: FrequentValues) -> None:
        """Add the counts of another one."""
        self.error += other.error
        self.add(other.counts.keys(), other.counts.values())


class UniformSample:
    """The rows of the smallest keys.

    Parameters
    ----------
    size : int
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._parts: list[Rows] = []
        self._waiting, self._most = 0, np.inf

    def add(self, rows: Rows) -> None:
        """Add rows whose keys are small enough."""
        chosen = np.flatnonzero(rows.key <= self._most)
        if len(chosen):
            self._parts.append(rows.part(chosen))
            self._waiting += len(chosen)
        if self._waiting > 2 * self.size:
            self._parts = [self.rows()]
            self._waiting, self._most = self.size, float(self._parts[0].key[-1])

    def merge(self, other: UniformSample) -> None:
        """Add the rows of another sample."""
        for part in other._parts:
            self.add(part)

    def in_order(self) -> Rows:
        """Return all rows in the order in which they came, if there were no more than `size`."""
        return Rows.joined(self._parts)

    def rows(self) -> Rows:
        """Return the rows, those of the smallest keys first."""
        every = Rows.joined(self._parts)
        return every.part(np.argsort(every.key, kind="stable")[: self.size])


@dataclass
class ColumnSketch:
    """One column: how much is missing, moments and extremes of numbers, counts of texts."""

    missing: int = 0
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    key: bool | None = None  # whether it numbers the rows; None before a batch could tell
    texts: FrequentValues = field(default_factory=lambda: FrequentValues(_MOST_TEXTS))

    def add(self, column: Any) -> None:
        """Add the values of a column of a table."""
        pandas = require("pandas", "cli")
        if not pandas.api.types.is_numeric_dtype(column):
            counts = column.value_counts()
            self.missing += len(column) - int(counts.sum())
            self.key = False
            self.texts.add(map(str, counts.index), counts)
            return
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if len(values) >= LEAST_KEYS:
            self.key = self.key is not False and is_key(values)
        known = values[np.isfinite(values)]
        self.missing += len(values) - len(known)
        if len(known):
            mean = float(known.mean())
            self._moments(len(known), mean, float(((known - mean) ** 2).sum()))
            self.low = min(self.low, float(known.min()))
            self.high = max(self.high, float(known.max()))

    def _moments(self, count: int, mean: float, squares: float) -> None:
        total = self.count + count
        step = mean - self.mean
        self.squares += squares + step**2 * self.count * count / total
        self.mean += step * count / total
        self.count = total

    def merge(self, other: ColumnSketch) -> None:
        """Add what another one has seen."""
        self.missing += other.missing
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        found = {self.key, other.key} - {None}
        self.key = all(found) if found else None
        self.texts.merge(other.texts)
        if other.count:
            self._moments(other.count, other.mean, other.squares)

    def summary(self) -> dict[str, Any]:
        """What it says, as numbers and text."""
        out: dict[str, Any] = {"missing": self.missing}
        if self.count:
            spread = float(np.sqrt(self.squares / self.count))
            out |= {"mean": self.mean, "std": spread, "min": self.low, "max": self.high}
        if self.texts.counts:
            top = sorted(self.texts.counts.items(), key=lambda pair: (-pair[1], pair[0]))[:50]
            out |= {"different": len(self.texts.counts), "counts": dict(top)}
        return out


class Sketch:
    """All that one pass keeps.

    Parameters
    ----------
    sample : int
        Rows to keep.
    n_targets : int

    Attributes
    ----------
    rows, unlabeled : int
    columns : dict of ColumnSketch
    quantiles, values : list
        Of each target: a `QuantileSketch` and the `FrequentValues`.
    skipped : dict
        Files that could not be read to their end, and why.
    extremes : dict
        Rows with the smallest and the largest of each target, which decide on its support.
    """

    def __init__(self, sample: int, n_targets: int) -> None:
        self.rows = self.unlabeled = 0
        self.columns: dict[str, ColumnSketch] = {}
        self.sample = UniformSample(sample)
        self.quantiles = [QuantileSketch() for _ in range(n_targets)]
        self.values = [FrequentValues(_MOST_ATOMS) for _ in range(n_targets)]
        self.extremes: dict[tuple[int, str], Rows] = {}
        self.skipped: dict[str, str] = {}

    def add(self, rows: Rows) -> None:
        """Look at some rows."""
        self.unlabeled += rows.unlabeled
        if len(rows) == 0:
            return
        self.rows += len(rows)
        for name in rows.table.columns:
            self.columns.setdefault(str(name), ColumnSketch()).add(rows.table[name])
        for j, (quantiles, values) in enumerate(zip(self.quantiles, self.values, strict=True)):
            y = rows.Y[:, j]
            quantiles.add(y)
            # Values that occur once in a batch are no atoms of it: they would only fill the table.
            found, counts = np.unique(y, return_counts=True)
            often = counts > 1
            values.add(found[often].tolist(), counts[often])
            values.error += not often.all()
            for end, at in (("low", int(np.argmin(y))), ("high", int(np.argmax(y)))):
                self._extreme((j, end), rows.part([at]))
        self.sample.add(rows)

    def _extreme(self, place: tuple[int, str], row: Rows) -> None:
        j, end = place
        known = self.extremes.get(place)
        sign = 1 if end == "low" else -1
        # Of equal ones the smallest key, so that the order of the pieces does not matter.
        if known is None or (sign * row.Y[0, j], row.key[0]) < (sign * known.Y[0, j], known.key[0]):
            self.extremes[place] = row

    def merge(self, other: Sketch) -> None:
        """Add what another sketch has seen."""
        self.rows += other.rows
        self.unlabeled += other.unlabeled
        self.skipped |= other.skipped
        for name, column in other.columns.items():
            self.columns.setdefault(name, ColumnSketch()).merge(column)
        for mine, theirs in zip(self.quantiles, other.quantiles, strict=True):
            mine.merge(theirs)
        for known, new in zip(self.values, other.values, strict=True):
            known.merge(new)
        for place, row in other.extremes.items():
            self._extreme(place, row)
        self.sample.merge(other.sample)

    def summary(self, names: Iterable[str]) -> dict[str, Any]:
        """What was seen, as numbers and text."""
        level = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]
        targets = {}
        for name, quantiles, values in zip(names, self.quantiles, self.values, strict=True):
            found = quantiles.quantile(level).tolist()
            often = sorted(values.counts.items(), key=lambda pair: (-pair[1], pair[0]))
            atoms = {v: c for v, c in often if c > 0.01 * self.rows}
            targets[name] = {
                "quantiles": dict(zip(level, found, strict=True)),
                "error": quantiles.error,
                "atoms": atoms,
            }
        columns = {name: column.summary() for name, column in self.columns.items()}
        return {"rows": self.rows, "unlabeled": self.unlabeled, "columns": columns,
                "targets": targets}  # fmt: skip
