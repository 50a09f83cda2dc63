"""Tables in files: CSV and Parquet."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcdensity._files import replacing
from mcdensity._validation import require

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["nearest", "read_table", "write_table"]

_READERS = {".csv": ",", ".tsv": "\t", ".parquet": None, ".pq": None}


def nearest(name: str, known: Iterable[Any]) -> str:
    """Return " (did you mean 'x'?)" where one of the known names is like this one, else "".

    Examples
    --------
    >>> from mcdensity.tables import nearest
    >>> nearest("prise", ["price", "size"])
    " (did you mean 'price'?)"
    """
    names = {str(n).lower(): str(n) for n in known}
    found = difflib.get_close_matches(str(name).lower(), names, n=1)
    return f" (did you mean {names[found[0]]!r}?)" if found else ""


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV or Parquet file; errors are reported in one sentence.

    Known endings are .csv, .tsv and .parquet; text files may be compressed (.csv.gz). A CSV file
    with semicolons, as spreadsheets write them in much of Europe, is read too.
    """
    pandas = require("pandas", "cli")
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it.")
    if not path.exists():
        beside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"There is no file {path}{nearest(path.name, beside)}.")
    suffix = _suffix(path)
    try:
        if _READERS[suffix] is None:
            table = pandas.read_parquet(path)
        else:
            table = pandas.read_csv(path, sep=_READERS[suffix])
            if suffix == ".csv" and table.shape[1] == 1 and ";" in str(table.columns[0]):
                table = pandas.read_csv(path, sep=";", decimal=",")
    except pandas.errors.EmptyDataError as error:
        raise ValueError(f"{path} is empty.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8; save it as such, or as Parquet.") from error
    except (ValueError, EOFError, OSError) as error:
        message = str(error).strip().splitlines()[-1]
        raise ValueError(f"{path} cannot be read as a table: {message}") from error
    if len(table) == 0:
        raise ValueError(f"{path} has no rows.")
    return table


def write_table(table: pd.DataFrame, path: str | Path) -> None:
    """Write a CSV or Parquet file, completely or not at all."""
    suffix = _suffix(Path(path))
    with replacing(path) as temporary:
        if _READERS[suffix] is None:
            table.to_parquet(temporary, index=False)
        else:
            table.to_csv(temporary, index=False, sep=_READERS[suffix])


def _suffix(path: Path) -> str:
    name = re.sub(r"\.(gz|bz2|xz|zip)$", "", path.name.lower())
    suffix = Path(name).suffix
    if suffix not in _READERS:
        raise ValueError(
            f"{path} has {f'the ending {suffix!r}' if suffix else 'no ending'}; tables are read "
            f"and written as {', '.join(_READERS)}."
        )
    return suffix
