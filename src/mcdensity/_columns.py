"""What columns of tables may hold beside numbers: signs for missing values, keys, dates, levels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._validation import require

__all__ = [
    "DATE_PARTS",
    "LEAST_KEYS",
    "as_levels",
    "check_dates",
    "date_numbers",
    "dates_of",
    "has_day_first",
    "is_key",
    "refuse_times",
    "without_signs",
]

# Signs that people write for a missing value: the first in any column, the others among numbers.
_SIGNS = ("?", "-", "--", ".", "n.a.", "missing")
# With fewer rows integers may be in order by chance.
LEAST_KEYS = 20
# Numbers of rows that were drawn from a longer table are still dense.
_DENSE = 20
_DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T].*)?$")
# Days of a date that numbers count from.
_START = "2000-01-01"
DATE_PARTS = ("year", "month", "day", "weekday", "hour", "elapsed")


def without_signs(column: Any) -> tuple[Any, str | None]:
    """Return a column in which signs for missing values are missing, and the sign that was found.

    Parameters
    ----------
    column : Series
    """
    pandas = require("pandas", "cli")
    if pandas.api.types.is_numeric_dtype(column) or column.dtype.kind in "Mm":
        return column, None
    text = column.astype(object).where(column.notna(), None)
    plain = text.map(lambda v: v.strip().lower() if isinstance(v, str) else v)
    found = plain.isin(_SIGNS)
    if not found.any():
        return column, None
    rest = plain[~found & plain.notna()]
    numbers = len(rest) > 0 and pandas.to_numeric(rest, errors="coerce").notna().all()
    if not numbers:
        found = plain == _SIGNS[0]
        if not found.any():
            return column, None
    return text.mask(found, None), str(plain[found].iloc[0])


def is_key(column: Any) -> bool:
    """Whether a column of numbers looks like numbers of rows: different integers in order."""
    values = np.asarray(column, dtype=np.float64)
    if len(values) < LEAST_KEYS or not np.isfinite(values).all():
        return False
    steps = np.diff(values)
    whole = bool((values == np.floor(values)).all())
    return whole and bool((steps > 0).all()) and steps.sum() < _DENSE * len(values)


# Dates.


def check_dates(dates: Sequence[str] | None) -> tuple[str, ...]:
    """Return the parts of dates that become numbers; none by default."""
    parts = (dates,) if isinstance(dates, str) else tuple(dates or ())
    unknown = [part for part in parts if part not in DATE_PARTS]
    if unknown:
        raise ValueError(f"dates must name some of {', '.join(DATE_PARTS)}, got {unknown[0]!r}.")
    return parts


def has_day_first(column: Any) -> bool:
    """Whether dates such as 3.4.2020 and 25/4/2020 begin with the day."""
    text = column.dropna().astype(str).str.extract(r"^\s*(\d{1,2})([-/.])\d{1,2}[-/.]")
    first = require("pandas", "cli").to_numeric(text[0], errors="coerce")
    return bool((text[1] == ".").any() or (first > 12).any())


def dates_of(column: Any, *, day_first: bool = False) -> Any | None:
    """Return a column as dates, or None if it holds none."""
    pandas = require("pandas", "cli")
    if pandas.api.types.is_datetime64_any_dtype(column):
        return column.dt.tz_localize(None) if column.dt.tz is not None else column
    if pandas.api.types.is_numeric_dtype(column):
        return None
    known = column.dropna().astype(str)
    if len(known) == 0 or not known.head(200).map(lambda v: _DATE.match(v) is not None).all():
        return None
    return pandas.to_datetime(
        column.astype(object), errors="coerce", format="mixed", dayfirst=day_first
    )


def date_numbers(dates: Any, part: str) -> NDArray[np.float64]:
    """Return a part of dates as numbers; NaN where a date is missing."""
    if part == "elapsed":
        pandas = require("pandas", "cli")
        days = (dates - pandas.Timestamp(_START)) / pandas.Timedelta(days=1)
        return days.to_numpy(dtype=np.float64)
    name = {"weekday": "day_of_week"}.get(part, part)
    return getattr(dates.dt, name).to_numpy(dtype=np.float64, na_value=np.nan)


def refuse_times(column: Any, name: str) -> None:
    """Refuse durations, and dates that nobody asked to turn into numbers."""
    if require("pandas", "cli").api.types.is_timedelta64_dtype(column):
        raise ValueError(
            f"The column {name!r} holds durations. Turn them into numbers, for example with "
            ".dt.total_seconds(); or leave the column out."
        )
    if dates_of(column) is not None:
        raise ValueError(
            f"The column {name!r} holds dates. Say what matters in them: "
            "TableEstimator(dates=('year', 'month', 'weekday', 'elapsed')), on the command line "
            "--dates year,month,weekday,elapsed; or leave the column out with --drop."
        )


# Levels.


def as_levels(y: Any, levels: Sequence[str]) -> NDArray[np.float64]:
    """Return the number of each target among the levels."""
    names = [str(level).strip() for level in levels]
    if len(names) < 3 or len(set(names)) < len(names):
        raise ValueError(
            f"levels must name at least three different grades in their order, got {names}. For "
            "two of them use a classifier."
        )
    place = {name: float(i) for i, name in enumerate(names)}
    text = [str(value).strip() for value in np.asarray(y, dtype=object)]
    unknown = sorted({value for value in text if value not in place})
    if unknown:
        raise ValueError(
            f"y holds {unknown[0]!r}, which is not among the levels {names}"
            f"{f' (and {len(unknown) - 1} more)' if len(unknown) > 1 else ''}."
        )
    return np.array([place[value] for value in text])
