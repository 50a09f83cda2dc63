"""Laws as distributions of scipy.stats, one object for all rows."""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from mcdensity.distribution.base import Array

if TYPE_CHECKING:
    from mcdensity.distribution.univariate import ConditionalDistribution

__all__ = ["to_scipy"]


def to_scipy(law: ConditionalDistribution) -> Any:
    """Return a distribution of scipy; see `ConditionalDistribution.to_scipy`."""
    rows = np.arange(float(len(law)))
    if len(law) == 0:
        raise ValueError("to_scipy: there are no rows.")
    if law.is_discrete:
        values = law.atoms
        if (values != np.round(values)).any():
            raise ValueError(
                "to_scipy: scipy's discrete distributions are of whole numbers, and this target "
                f"takes values such as {values[values != np.round(values)][0]:g}. Multiply the "
                "target, or use the methods of the law itself."
            )
        return _Counts(law)(rows)
    if len(law.atoms):
        raise ValueError(
            "to_scipy: the target is mixed, with a density and atoms, which scipy does not have. "
            "Use the methods of the law itself."
        )
    if hasattr(stats, "make_distribution"):  # the new infrastructure of scipy
        return stats.make_distribution(_Density(law))(row=rows)
    return _OldDensity(law)(rows)


class _Rows:
    """A law that is asked at pairs of a value and the number of a row, as scipy asks."""

    def __init__(self, law: ConditionalDistribution) -> None:
        self.law = law
        self.ends = law.ppf_grid([0.0, 1.0])

    def at(self, method: str, y: ArrayLike, row: ArrayLike) -> Array:
        """Apply a method of the law to values, (rows, points) -> (rows, points)."""
        value, number = np.broadcast_arrays(np.asarray(y, dtype=np.float64), row)
        if value.size == 0:
            return np.empty(value.shape)
        points, rows = value.ravel(), number.ravel().astype(np.intp)
        order = np.argsort(rows, kind="stable")
        found, first, count = np.unique(rows[order], return_index=True, return_counts=True)
        # As many points for each row as the one with the most: others repeat their first one.
        place = np.arange(count.max())
        table = points[order][first[:, None] + np.minimum(place, count[:, None] - 1)]
        law = self.law if len(found) == len(self.law) else self.law[found]
        answers = getattr(law, method)(table)
        out = np.empty(len(points))
        out[order] = answers[place < count[:, None]]
        return out.reshape(value.shape)

    def of(self, numbers: Array, row: ArrayLike) -> Array:
        """Look up numbers of the rows."""
        return numbers[np.asarray(row).astype(np.intp)]

    def moment(self, order: int, kind: str) -> Array:
        """Moments of all rows: raw, central or standardized."""
        law = self.law
        if kind == "raw":
            mean = law.mean()
            return sum(  # type: ignore[return-value]
                comb(order, j) * mean ** (order - j) * self.moment(j, "central")
                for j in range(order + 1)
            )
        if order == 0:
            return np.ones(len(law))
        if order == 1:
            return np.zeros(len(law))
        shape = np.ones(len(law)) if order == 2 else law._standardised_moment(order)
        return shape if kind == "standardized" else law.std() ** order * shape


class _Density:
    """What scipy's `make_distribution` asks for; its only parameter is the number of the row."""

    __make_distribution_version__ = "1.16.0"

    def __init__(self, law: ConditionalDistribution) -> None:
        self._rows = _Rows(law)
        last = len(law) - 1
        self.parameters = {"row": {"endpoints": (0, last), "inclusive": (True, True)}}
        self.support = {"endpoints": (self._end(0), self._end(1)), "inclusive": (True, True)}

    def _end(self, side: int) -> Callable[..., Array]:
        return lambda *, row: self._rows.of(self._rows.ends[:, side], row)

    def pdf(self, y: Array, *, row: Array) -> Array:
        return np.exp(self.logpdf(y, row=row))

    def logpdf(self, y: Array, *, row: Array) -> Array:
        return self._rows.at("_logpdf", y, row)

    def cdf(self, y: Array, *, row: Array) -> Array:
        return self._rows.at("_cdf", y, row)

    def ccdf(self, y: Array, *, row: Array) -> Array:
        return self._rows.at("_sf", y, row)

    def icdf(self, q: Array, *, row: Array) -> Array:
        return self._rows.at("_ppf", q, row)

    def entropy(self, *, row: Array) -> Array:
        return self._rows.of(self._rows.law.entropy(), row)

    def mode(self, *, row: Array) -> Array:
        return self._rows.of(self._rows.law.mode(), row)

    def moment(self, order: int, kind: str, *, row: Array) -> Array:
        return self._rows.of(self._rows.moment(int(order), kind), row)


class _Old:
    """What scipy's older families have in common."""

    _rows: _Rows

    def _updated_ctor_param(self) -> dict[str, Any]:
        return {"law": self._rows.law}  # scipy makes a copy of what it freezes

    def _cdf(self, y: Array, row: Array) -> Array:
        return self._rows.at("_cdf", y, row)

    def _sf(self, y: Array, row: Array) -> Array:
        return self._rows.at("_sf", y, row)

    def _ppf(self, q: Array, row: Array) -> Array:
        return self._rows.at("_ppf", q, row)

    def _argcheck(self, row: Array) -> NDArray[np.bool_]:
        return (row >= 0) & (row < len(self._rows.law))

    def _get_support(self, row: Array) -> tuple[Array, Array]:
        ends = self._rows.ends
        return self._rows.of(ends[:, 0], row), self._rows.of(ends[:, 1], row)

    def _munp(self, order: int, row: Array) -> Array:
        return self._rows.of(self._rows.moment(int(order), "raw"), row)

    def _entropy(self, row: Array) -> Array:
        return self._rows.of(self._rows.law.entropy(), row)

    def _stats(self, row: Array, moments: str = "mv") -> tuple[Array, ...]:
        law = self._rows.law
        each = (law.mean(), law.var(), law.skewness(), law.kurtosis())
        return tuple(self._rows.of(numbers, row) for numbers in each)


class _OldDensity(_Old, stats.rv_continuous):
    """A density, for versions of scipy without `make_distribution`."""

    def __init__(self, law: ConditionalDistribution) -> None:
        super().__init__(name="mcdensity", shapes="row")
        self._rows = _Rows(law)

    def _pdf(self, y: Array, row: Array) -> Array:
        return np.exp(self._rows.at("_logpdf", y, row))


class _Counts(_Old, stats.rv_discrete):
    """A law of whole numbers; scipy's new infrastructure has none of one's own."""

    def __new__(cls, law: ConditionalDistribution) -> _Counts:
        return super().__new__(cls)

    def __init__(self, law: ConditionalDistribution) -> None:
        super().__init__(name="mcdensity", shapes="row")
        self._rows = _Rows(law)

    def _pmf(self, y: Array, row: Array) -> Array:
        return self._rows.at("_pmf", y, row)
