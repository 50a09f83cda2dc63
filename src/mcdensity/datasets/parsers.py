"""From the formats of the sources to tidy tables."""

from __future__ import annotations

import fnmatch
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcdensity.datasets.checks import CHECKS

if TYPE_CHECKING:
    import pandas as pd

    from mcdensity.datasets.sources import Source

__all__ = ["in_order", "parse"]


def parse(source: Source, paths: list[Path]) -> pd.DataFrame:
    """Turn downloaded files into the table of a source."""
    import pandas as pd

    contents = [_content(path, source.member) for path in paths]
    table = pd.concat([_PARSERS[source.parser](content, source) for content in contents])
    table.columns = list(source.columns)
    return table.reset_index(drop=True)


def in_order(table: pd.DataFrame, file: str) -> bool:
    """Whether the rows of a table have the order that the fixed splits count in."""
    if file not in CHECKS or len(table) < 100:  # the small tables of tests have no order
        return True
    y = table.iloc[:, -1].to_numpy(np.float64)
    return bool(np.isclose(np.cos(np.arange(len(y))) @ y, CHECKS[file][2], rtol=1e-5))


def _content(path: Path, member: str) -> bytes:
    """Read a file, or the member of an archive; UCI has archives within archives."""
    data = path.read_bytes()
    if not member:
        return data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        found = [n for n in names if fnmatch.fnmatch(n.rsplit("/", 1)[-1], member)]
        if found:
            return archive.read(found[0])
        for name in names:
            if name.endswith(".zip"):
                with zipfile.ZipFile(io.BytesIO(archive.read(name))) as inner:
                    for n in inner.namelist():
                        if fnmatch.fnmatch(n.rsplit("/", 1)[-1], member):
                            return inner.read(n)
    raise ValueError(f"the archive holds no file {member!r}, only {', '.join(names[:5])}")


def _table(rows: Any, source: Source) -> pd.DataFrame:
    import pandas as pd

    values = np.asarray(rows, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < len(source.columns):
        raise ValueError(f"expected {len(source.columns)} columns, found shape {values.shape}")
    return pd.DataFrame(values[:, : len(source.columns)])


def _boston(content: bytes, source: Source) -> pd.DataFrame:
    """Two lines a row, after a text that ends before the first line of numbers."""
    lines = content.decode("latin-1").splitlines()
    start = next(i for i, line in enumerate(lines) if _is_numbers(line))
    numbers = np.array(" ".join(lines[start:]).split(), dtype=np.float64)
    return _table(numbers.reshape(-1, len(source.columns)), source)


def _is_numbers(line: str) -> bool:
    words = line.split()
    try:
        [float(word) for word in words]
    except ValueError:
        return False
    return len(words) > 1


def _spaces(content: bytes, source: Source) -> pd.DataFrame:
    lines = [line.split() for line in content.decode("latin-1").splitlines()]
    return _table([line for line in lines if line], source)


def _semicolons(content: bytes, source: Source) -> pd.DataFrame:
    lines = content.decode("latin-1").splitlines()[1:]
    return _table([line.split(";") for line in lines if line.strip()], source)


def _excel(content: bytes, source: Source) -> pd.DataFrame:
    import pandas as pd

    sheets = pd.read_excel(io.BytesIO(content), sheet_name=None, engine="calamine")
    first = None
    for sheet in sheets.values():
        sheet = sheet.dropna(axis=0, how="all").dropna(axis=1, how="all")
        # The power plant's five sheets hold the same rows in five orders.
        if len(sheet) == source.rows or first is None:
            table = _table(sheet.to_numpy(), source)
            if len(table) == source.rows and in_order(table, source.file):
                return table
            first = table if first is None else first
    if first is None:
        raise ValueError("the workbook has no sheets")
    return first


def _protein(content: bytes, source: Source) -> pd.DataFrame:
    """The target comes first."""
    lines = content.decode("latin-1").splitlines()[1:]
    table = _table([line.split(",") for line in lines if line.strip()], source)
    return table[[*table.columns[1:], table.columns[0]]]


def _arff(content: bytes, source: Source) -> pd.DataFrame:
    lines = content.decode("latin-1").splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().lower() == "@data")
    return _table([line.split(",") for line in lines[start + 1 :] if line.strip()], source)


def _taxi(content: bytes, source: Source) -> pd.DataFrame:
    """Every 500th trip of the month."""
    import pandas as pd

    table = pd.read_csv(io.BytesIO(content), skipinitialspace=True)
    names = {
        "tpep_pickup_datetime": "pickup_datetime", "tpep_dropoff_datetime": "dropoff_datetime",
    }  # fmt: skip
    return table.rename(columns=names)[list(source.columns)].iloc[::500]


def _sdss(content: bytes, source: Source) -> pd.DataFrame:
    import pandas as pd

    table = pd.read_csv(io.BytesIO(content), comment="#")
    u, g, r, i, z = (table[f"dered_{band}"] for band in "ugriz")
    return pd.concat([r, u - g, g - r, r - i, i - z, table["z"]], axis=1)


def _teddy(content: bytes, source: Source) -> pd.DataFrame:
    """Columns: id, magnitude, four colours, redshift, and five scaled copies."""
    lines = [line.split() for line in content.decode("latin-1").splitlines()]
    rows = [line[1:7] for line in lines if line and not line[0].startswith("#")]
    return _table(rows, source)


def _named(content: bytes, source: Source) -> pd.DataFrame:
    """Columns by name, text and missing values among them."""
    import pandas as pd

    return pd.read_csv(io.BytesIO(content), low_memory=False)[list(source.columns)]


def _flights(content: bytes, source: Source) -> pd.DataFrame:
    import pandas as pd

    names = [
        "Month", "DayofMonth", "DayOfWeek", "CRSDepTime", "CRSArrTime", "Reporting_Airline",
        "Origin", "Dest", "Distance", "DepDelay", "ArrDelay",
    ]  # fmt: skip
    table = pd.read_csv(io.BytesIO(content), usecols=names, low_memory=False)[names]
    table = table[table["Origin"].isin(["EWR", "JFK", "LGA"])].dropna()
    table["DayOfWeek"] -= 1
    for name in ("CRSDepTime", "CRSArrTime"):
        time = table[name].astype(int)
        table[name] = time // 100 * 60 + time % 100
    return table


_PARSERS: dict[str, Callable[[bytes, Any], Any]] = {
    "arff": _arff,
    "boston": _boston,
    "excel": _excel,
    "flights": _flights,
    "named": _named,
    "protein": _protein,
    "sdss": _sdss,
    "semicolons": _semicolons,
    "spaces": _spaces,
    "taxi": _taxi,
    "teddy": _teddy,
}
