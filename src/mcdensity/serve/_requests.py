"""What clients ask: checked, with the row and the column of what is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._table_files import nearest

__all__ = [
    "Column",
    "Limits",
    "Question",
    "RequestError",
    "read_json",
    "read_question",
    "read_rows",
]

# Numbers that may be asked of one row by one option, and of all rows together.
_MOST_POINTS, _MOST_NUMBERS = 1000, 1_000_000
_LISTS = ("quantiles", "interval", "above", "density")
_KEYS = ("rows", *_LISTS, "mean", "model")
_SCALARS = frozenset({int, float, bool, type(None)})


class RequestError(ValueError):
    """A request that cannot be answered.

    Parameters
    ----------
    message : str
        One sentence for the client.
    status : int, default 422
    row : int, optional
        Number of the row that is wrong, from 0.
    column : str, optional
    """

    def __init__(
        self, message: str, status: int = 422, row: int | None = None, column: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.row, self.column = status, row, column

    def as_dict(self) -> dict[str, Any]:
        """Return what the client gets."""
        where = {"row": self.row, "column": self.column}
        return {"error": str(self)} | {name: v for name, v in where.items() if v is not None}


@dataclass(frozen=True)
class Limits:
    """What one request, and all that wait together, may hold.

    Parameters
    ----------
    rows, bytes : int
        Of one request.
    waiting : int
        Requests that may wait for an answer; others are told to come back.
    """

    rows: int = 10_000
    bytes: int = 8 << 20
    waiting: int = 1000

    @property
    def waiting_rows(self) -> int:
        """Rows that may wait, in all requests together."""
        return 10 * self.rows

    @property
    def waiting_bytes(self) -> int:
        """Bytes of requests that may be in memory at the same time."""
        return 8 * self.bytes


@dataclass(frozen=True)
class Column:
    """A feature as clients see it.

    Parameters
    ----------
    name : str
    kind : {"number", "text", "date", "any"}
    """

    name: str
    kind: str = "number"


@dataclass(frozen=True)
class Question:
    """What is asked of each law: numbers for each option, none where it was not asked.

    `single` names the options that were given as one number: their answers are no lists.
    """

    quantiles: tuple[float, ...] = ()
    interval: tuple[float, ...] = ()
    above: tuple[float, ...] = ()
    density: tuple[float, ...] = ()
    mean: bool = False
    single: frozenset[str] = frozenset()

    @property
    def points(self) -> int:
        """How many numbers one row gets."""
        return 1 + sum(len(getattr(self, name)) for name in _LISTS) + len(self.interval)


def read_json(body: bytes) -> dict[str, Any]:
    """Return the object that the body of a request holds."""
    try:
        content = json.loads(body)
    except RecursionError as error:
        raise RequestError("The body is nested too deeply.") from error
    except ValueError as error:
        raise RequestError(f"The body is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise RequestError('The body must be a JSON object, such as {"rows": [{"x0": 1.5}]}.')
    for name in content:
        if name not in _KEYS:
            raise RequestError(
                f"There is no option {_short(name)}{nearest(name, _KEYS)}; there are "
                f"{', '.join(_KEYS)}."
            )
    return content


def read_question(content: dict[str, Any], several: bool) -> Question:
    """Return what a request asks for; by default the mean and three quantiles.

    Parameters
    ----------
    content : dict
    several : bool
        Whether the model has several targets.
    """
    found: dict[str, tuple[float, ...]] = {}
    single = []
    for name in _LISTS:
        given = content.get(name)
        if given is None:
            continue
        if not isinstance(given, list):
            single.append(name)
            given = [given]
        found[name] = _numbers(name, given)
    for name in ("quantiles", "interval"):
        wrong = [v for v in found.get(name, ()) if not 0 < v < 1]
        if wrong:
            raise RequestError(
                f'"{name}" must lie strictly between 0 and 1, got {wrong[0]:g}.', column=name
            )
    if several and "density" in found:
        raise RequestError('"density" is for models of one target.', column="density")
    mean = content.get("mean")
    if mean is not None and not isinstance(mean, bool):
        raise RequestError(f'"mean" must be true or false, got {_short(mean)}.', column="mean")
    if not found and not mean:
        return Question(quantiles=(0.05, 0.5, 0.95), mean=True)
    return Question(**found, mean=bool(mean), single=frozenset(single))


def _numbers(name: str, given: list[Any]) -> tuple[float, ...]:
    if not 0 < len(given) <= _MOST_POINTS:
        raise RequestError(
            f'"{name}" must have from 1 to {_MOST_POINTS} numbers, got {len(given)}.', column=name
        )
    out = []
    for value in given:
        number = _number(value)
        if isinstance(value, bool) or number is None or not math.isfinite(number):
            raise RequestError(
                f'"{name}" must be finite numbers, got {_short(value)}.', column=name
            )
        out.append(number)
    return tuple(out)


def read_rows(
    content: dict[str, Any], columns: Sequence[Column], question: Question, limits: Limits
) -> tuple[dict[str, NDArray[Any]], int]:
    """Return the values of each feature, and the number of rows.

    Parameters
    ----------
    content : dict
        From `read_json`.
    columns : sequence of Column
        What the model takes. Other columns of the rows are not used.
    question : Question
    limits : Limits
    """
    rows = content.get("rows")
    if not isinstance(rows, list) or not rows:
        raise RequestError('"rows" must be a list of at least one object, each with a value for '
                           "every feature; see /schema.")  # fmt: skip
    if len(rows) > limits.rows:
        raise RequestError(
            f"A request may have {limits.rows:,} rows, and this one has {len(rows):,}; split it.",
            413,
        )
    if len(rows) * question.points > _MOST_NUMBERS:
        raise RequestError(
            f"A request may ask for {_MOST_NUMBERS:,} numbers, and this one asks for "
            f"{question.points:,} for each of {len(rows):,} rows; split it.",
            413,
        )
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            raise RequestError(
                f'Row {i} must be an object such as {{"{columns[0].name}": 1.5}}, got '
                f"{_short(row)}.",
                row=i,
            )
        if len(row) > len(columns):
            _refuse_nested(i, row)
    out = {}
    for column in columns:
        try:
            values = [row[column.name] for row in rows]
        except KeyError:
            i = next(i for i, row in enumerate(rows) if column.name not in row)
            near = nearest(column.name, [str(name) for name in rows[i]])
            raise RequestError(
                f"Row {i} lacks the column {_short(column.name)}{near}; give null if the value is "
                "missing.",
                row=i,
                column=column.name,
            ) from None
        out[column.name] = _values(column, values)
    return out, len(rows)


def _refuse_nested(number: int, row: dict[str, Any]) -> None:
    for name, value in row.items():
        if isinstance(value, list | dict):
            raise _wrong(number, name, value, "a number, a text or null")


def _values(column: Column, values: list[Any]) -> NDArray[Any]:
    """Return a column as floats, or as objects where it may hold text."""
    kinds = set(map(type, values))
    if column.kind == "number" or (column.kind == "any" and kinds <= _SCALARS):
        if not kinds <= _SCALARS:
            i = next(i for i, value in enumerate(values) if type(value) not in _SCALARS)
            raise _wrong(i, column.name, values[i], "a number or null")
        try:
            numbers = np.array(values, dtype=np.float64)
        except OverflowError:
            numbers = np.array([v if v is None else _number(v) for v in values], dtype=np.float64)
        # null is NaN here, as is NaN, which is no JSON but read by Python.
        if not np.isfinite(numbers).all():
            for i in np.flatnonzero(~np.isfinite(numbers)).tolist():
                if values[i] is not None:
                    raise _wrong(i, column.name, float(numbers[i]), "a finite number or null")
        return numbers
    for i, value in enumerate(values):
        good = isinstance(value, str) or (type(value) in _SCALARS and column.kind != "date")
        if isinstance(value, float) and not math.isfinite(value):
            good = False
        if isinstance(value, str) and not _encodable(value):
            good = False
        if not good and value is not None:
            wanted = "a date as text, such as 2024-05-31," if column.kind == "date" else "a text"
            raise _wrong(i, column.name, value, f"{wanted} or null")
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _wrong(row: int, column: str, value: Any, wanted: str) -> RequestError:
    return RequestError(
        f"Row {row}, column {_short(column)}: expected {wanted}, got {_short(value)}.",
        row=row,
        column=column,
    )


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return math.inf


def _encodable(text: str) -> bool:
    """Whether a text is Unicode: JSON can hold halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short(value: Any) -> str:
    """Show a value of a client in a message."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, float):
        return f"{value:g}"
    text = json.dumps(value) if isinstance(value, str) else "a number of many digits"
    if isinstance(value, int) and abs(value) < 10**20:
        text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
