"""Where predictions hold and where they do not: by predicted level, by group, by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from mcdensity._numbers import readable
from mcdensity.inspection._asking import Array, Rows
from mcdensity.report.diagnosis import RARE, Evaluation, chance_of

__all__ = ["Misses", "Part", "as_date", "by_feature", "by_level", "misses"]

# Fewer rows of a group say little about a coverage of 90 %.
_LEAST = 20
# Groups of numbers, and texts of a feature, at most.
_BINS, _MOST = 3, 8


@dataclass(frozen=True)
class Part:
    """What the 90 % intervals of some rows are worth.

    Attributes
    ----------
    feature, label : which rows
    order : place of the label among those of its feature
    n_rows : how many
    coverage : share of outcomes in their interval
    chance : coverages that 19 of 20 samples would show
    off : whether it is further from what it should be than in 1 of 200 samples
    width : median width of the intervals
    error : mean distance of outcomes from the median
    bias : mean of outcomes minus predicted mean
    """

    feature: str
    label: str
    order: int
    n_rows: int
    coverage: float
    chance: tuple[float, float]
    off: bool
    width: float
    error: float
    bias: float


@dataclass(frozen=True)
class Misses:
    """Outcomes beyond one end of their 90 % intervals.

    Attributes
    ----------
    n_rows, share, expected : how many, and how many there should be
    typical, worst : median and largest distance from the interval
    """

    n_rows: int
    share: float
    expected: float
    typical: float
    worst: float


class _Intervals:
    """Of each row, what `Part` and `Misses` need."""

    def __init__(self, e: Evaluation) -> None:
        law = e.distribution
        self.y, self.median, self.mean = e.y, law.median(), law.mean()
        self.low, self.high = law.interval(0.9).T
        self.inside = (e.y >= self.low) & (e.y <= self.high)
        self.below = np.full(len(e.y), 0.05)
        self.above = np.full(len(e.y), 0.05)
        if len(law.atoms):
            self.below = law.cdf(self.low) - law.pmf(self.low)
            self.above = law.sf(self.high)

    def part(self, feature: str, label: str, order: int, rows: NDArray[np.bool_]) -> Part:
        n, hits = int(rows.sum()), int(self.inside[rows].sum())
        nominal = float(np.clip(1 - (self.below + self.above)[rows].mean(), 0, 1))
        rare = min(stats.binom.cdf(hits, n, nominal), stats.binom.sf(hits - 1, n, nominal))
        y = self.y[rows]
        return Part(
            feature, label, order, n, hits / n, chance_of(nominal, n), bool(rare < RARE),
            float(np.median(self.high[rows] - self.low[rows])),
            float(np.abs(y - self.median[rows]).mean()), float((y - self.mean[rows]).mean()),
        )  # fmt: skip


def by_level(e: Evaluation) -> list[Part]:
    """Split the rows by their predicted median."""
    found = _Intervals(e)
    n_bins = min(6, e.n_rows // _LEAST)
    if n_bins < 2:
        return []
    return [
        found.part("predicted median", label, k, rows)
        for k, (label, rows) in enumerate(_bins(found.median, n_bins))
        if rows.sum() >= _LEAST // 2
    ]


def by_feature(e: Evaluation, X: Any, features: list[Any]) -> list[Part]:
    """Split the rows by the values of each of some features."""
    rows, found = Rows(X), _Intervals(e)
    out = []
    for feature in features:
        groups = _groups(rows, rows.number(feature))
        kept = [(label, chosen) for label, chosen in groups if chosen.sum() >= _LEAST]
        if len(kept) > 1:
            name = feature if isinstance(feature, str) else f"feature {feature}"
            out += [found.part(name, label, k, own) for k, (label, own) in enumerate(kept)]
    return out


def misses(e: Evaluation) -> tuple[Misses, Misses]:
    """Count outcomes below and above their 90 % intervals, and say how far they are."""
    found = _Intervals(e)
    out = []
    for distance, expected in ((found.low - e.y, found.below), (e.y - found.high, found.above)):
        beyond = distance[distance > 0]
        typical, worst = (np.median(beyond), beyond.max()) if len(beyond) else (0.0, 0.0)
        out.append(
            Misses(len(beyond), len(beyond) / e.n_rows, float(expected.mean()), float(typical),
                   float(worst))
        )  # fmt: skip
    return out[0], out[1]


def _groups(rows: Rows, j: int) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    numbers = rows.numbers(j)
    if numbers is not None:
        missing = np.isnan(numbers)
        different = np.unique(numbers[~missing])
        if len(different) <= _BINS + 2:
            yield from ((readable(value), numbers == value) for value in different)
        else:
            yield from _bins(numbers, _BINS, as_date if rows.is_date(j) else _short)
        yield "missing", missing
        return
    column = rows.column(j).astype(object)
    text = np.array(["missing" if v is None or v != v else str(v) for v in column], dtype=object)
    names, count = np.unique(text.astype(str), return_counts=True)
    for name in names[np.argsort(-count, kind="stable")[:_MOST]]:
        yield str(name), text == name


def as_date(days: float) -> str:
    """Return days since 1970 as a date."""
    return str(np.datetime64(int(days), "D"))


def _short(value: float) -> str:
    return readable(value, 3)


def _bins(
    values: Array, n_bins: int, written: Callable[[float], str] = _short
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Split numbers into parts of about the same size, from low to high."""
    known = values[np.isfinite(values)]
    edges = np.unique(np.quantile(known, np.linspace(0, 1, n_bins + 1), method="inverted_cdf"))
    whole = bool((known == np.floor(known)).all())
    for k in range(len(edges) - 1):
        last = k == len(edges) - 2
        low, high = edges[k], edges[k + 1]
        rows = (values >= low) & ((values <= high) if last else (values < high))
        if len(edges) == 2:
            label = "all"
        elif k == 0:
            label = f"below {written(high)}"
        elif last:
            label = f"{written(low)} and more"
        elif whole and written is _short:  # the last number of the group itself
            label = readable(low) if high - 1 == low else f"{readable(low)} to {readable(high - 1)}"
        else:
            label = f"{written(low)} to {written(high)}"
        yield label, rows
