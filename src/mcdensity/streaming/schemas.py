"""What columns of files hold, and whether files fit together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcdensity._validation import require

__all__ = ["SourceError", "check_kinds", "kind_of", "kinds_of", "listed"]

# How many names a message lists.
_MOST_NAMES = 8


class SourceError(ValueError):
    """A file of a source cannot be read, or does not fit the others."""


def kinds_of(schema: Any) -> dict[str, str]:
    """Return what the columns of a schema of pyarrow hold."""
    types = require("pyarrow", "cli").types

    def kind(of: Any) -> str:
        if types.is_dictionary(of):
            of = of.value_type
        if types.is_floating(of) or types.is_integer(of) or types.is_decimal(of):
            return "number"
        if types.is_boolean(of) or types.is_null(of):
            return "number" if types.is_boolean(of) else "nothing"
        if types.is_string(of) or types.is_large_string(of) or types.is_string_view(of):
            return "text"
        return "date" if types.is_temporal(of) else "other"

    return {field.name: kind(field.type) for field in schema}


def kind_of(column: Any) -> str:
    """Return what a column of a table holds."""
    types = require("pandas", "cli").api.types
    if len(column) and column.isna().all():
        return "nothing"
    if types.is_bool_dtype(column) or types.is_numeric_dtype(column):
        return "number"
    return "date" if types.is_datetime64_any_dtype(column) else "text"


def check_kinds(name: str, own: dict[str, str], first_name: str, first: dict[str, str]) -> None:
    """Refuse a file whose columns differ from those of the first one."""
    lacking = [column for column in first if column not in own]
    if lacking:
        raise SourceError(
            f"{name} lacks {listed(lacking)}, which {first_name} has. Files of a source have the "
            "same columns; leave the file out, or skip such files with skip_bad_files."
        )
    for column, kind in first.items():
        other = own[column]
        if other != kind and "nothing" not in (kind, other):
            raise SourceError(
                f"{name}: the column {column!r} holds {_words(other)}, and {_words(kind)} in "
                f"{first_name}. Convert one of them, or skip such files with skip_bad_files."
            )


def _words(kind: str) -> str:
    return {"number": "numbers", "date": "dates", "other": "something else"}.get(kind, kind)


def listed(names: Sequence[str]) -> str:
    """Return names for a message, not too many."""
    shown = ", ".join(repr(name) for name in names[:_MOST_NAMES])
    return shown + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")
