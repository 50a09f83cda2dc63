"""What any distribution has, whatever the dimension of its target: rows, density, draws, mean."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity._numbers import readable

__all__ = ["Array", "Distribution"]

Array = NDArray[np.float64]

# Rows that `repr` shows: as many as `DataFrame.head`.
_SHOWN_ROWS = 5


class Distribution(ABC):
    """Distributions of a target, one per row.

    ``len(distribution)`` is the number of rows; ``distribution[3]``, ``distribution[2:5]`` and
    ``distribution[mask]`` are the distributions of the chosen rows.
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _take(self, rows: NDArray[np.intp]) -> Self:
        """Return the chosen rows."""

    @abstractmethod
    def _joined(self, others: Sequence[Any]) -> Self:
        """Return the rows of this and of others of its kind."""

    @abstractmethod
    def logpdf(self, y: ArrayLike) -> Array:
        """Log-density of each row at y."""

    @abstractmethod
    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw `n_samples` values from each row's distribution."""

    @abstractmethod
    def mean(self) -> Array:
        """Expectation of each row."""

    @abstractmethod
    def _summary_columns(self) -> tuple[tuple[str, ...], Array]:
        """Return names of columns and their numbers, shape (n, columns), for `repr`."""

    def pdf(self, y: ArrayLike) -> Array:
        """Density of each row at y."""
        return np.exp(self.logpdf(y))

    def __getitem__(self, key: Any) -> Self:
        rows = np.arange(len(self))[key]
        return self._take(np.atleast_1d(rows))

    def _summary(self) -> tuple[list[str], list[list[str]], int]:
        """Names of columns, rows of text, and the number of rows that are not shown."""
        some = self[:_SHOWN_ROWS]
        if len(some) == 0:
            return [], [], 0
        names, numbers = some._summary_columns()
        rows = [[str(i), *(readable(v) for v in row)] for i, row in enumerate(numbers)]
        return ["row", *names], rows, len(self) - len(some)

    def _row_text(self, row: list[str]) -> str:
        return "".join(f"{cell:>{5 if i == 0 else 12}}" for i, cell in enumerate(row))

    def __repr__(self) -> str:
        head = f"{type(self).__name__} of {len(self)} row{'s' * (len(self) != 1)}"
        names, rows, more = self._summary()
        if not rows:
            return head
        lines = [head, *(self._row_text(row) for row in [names, *rows])]
        if more:
            lines.append(f"  ... {more} more")
        return "\n".join(lines)

    def _pictures(self) -> tuple[str, list[str]]:
        """Return a heading and a small picture of each row as SVG, for notebooks; or none."""
        return "", []

    def _repr_html_(self) -> str:
        names, rows, more = self._summary()
        heading, pictures = self[:_SHOWN_ROWS]._pictures() if rows else ("", [])
        if pictures:
            names = [*names, heading]
        pictures = [f"<td>{picture}</td>" for picture in pictures] or [""] * len(rows)
        top = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{v}</td>" for v in row) + f"{picture}</tr>"
            for row, picture in zip(rows, pictures, strict=True)
        )
        note = f"<p>and {more} more</p>" if more else ""
        return (
            f"<div><p><b>{html.escape(type(self).__name__)}</b>, {len(self)} rows</p><table>"
            f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{note}</div>"
        )
