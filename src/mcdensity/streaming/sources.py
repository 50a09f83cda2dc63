"""Where rows come from: files, folders, globs, datasets of pyarrow, Dask DataFrames.

A source is a list of pieces, each a row group, a file or a partition, with a number that depends on
nothing but the source. Batches of a piece come in the order of its rows.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcdensity._validation import require
from mcdensity.streaming.schemas import SourceError, check_kinds, kind_of, kinds_of, listed
from mcdensity.tables import nearest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Piece", "Source", "SourceError", "open_source", "parse_memory", "table_bytes"]

_TEXT = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_UNITS = {"": 1, "b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}
# Rows that are decoded at once.
BATCH = 65_536


@dataclass(frozen=True)
class Piece:
    """A part of a source.

    Parameters
    ----------
    number : int
        Its place in the source.
    name : str
        The file, or the partition, for messages.
    place : int
        The number of the file or fragment.
    group : int or None
        The row group of a Parquet file.
    rows : int or None
        How many there are, where that is known without reading.
    """

    number: int
    name: str
    place: int
    group: int | None = None
    rows: int | None = None


class Source:
    """Pieces and how they are read; see `open_source`.

    Attributes
    ----------
    pieces : list of Piece
    kinds : dict
        Column to "number", "text", "date" or "other".
    skipped : dict
        Files that are left out, and why.
    skips_bad : bool
        Whether files that turn out to be damaged are to be left out.
    """

    pieces: list[Piece]
    kinds: dict[str, str]
    skips_bad: bool = False

    def __init__(self) -> None:
        self.skipped: dict[str, str] = {}

    def leave_out(self, skipped: Mapping[str, str]) -> None:
        """Leave out files that could not be read to their end; `skipped` says why."""
        self.skipped |= skipped
        self.pieces = [piece for piece in self.pieces if piece.name not in skipped]
        _refuse_nothing(self)

    def read(
        self, piece: Piece, columns: Sequence[str] | None = None, size: int = BATCH
    ) -> Iterator[pd.DataFrame]:
        """Yield the rows of a piece, `size` at a time at most."""
        raise TypeError(f"{type(self).__name__} must implement read.")

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.kinds)

    @property
    def files(self) -> list[str]:
        """Names of the files or partitions."""
        return list(dict.fromkeys(piece.name for piece in self.pieces))

    @property
    def rows(self) -> int | None:
        """Number of rows, where it is known without reading."""
        counts = [piece.rows for piece in self.pieces]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def check_columns(self, names: Sequence[str], what: str) -> None:
        """Refuse columns that are not there."""
        for name in names:
            if name not in self.kinds:
                raise ValueError(
                    f"There is no column {name!r} ({what}){nearest(name, self.kinds)}; the source "
                    f"has {', '.join(self.kinds)}."
                )


class _Fragments(Source):
    """Parquet files and other datasets of pyarrow."""

    def __init__(self, dataset: Any, skip_bad: bool) -> None:
        super().__init__()
        self.pieces = []
        self._fragments: list[Any] = []
        first: Any = None
        for fragment in dataset.get_fragments():
            name = getattr(fragment, "path", None) or f"fragment {len(self._fragments)}"
            try:
                groups = _row_groups(fragment)
                own = kinds_of(fragment.physical_schema)
                if first is None:
                    first = name, own
                check_kinds(name, own, *first)
            except (OSError, ValueError) as error:
                _pass_over(self, name, error, skip_bad)
                continue
            place = len(self._fragments)
            self._fragments.append(fragment)
            for group, rows in groups:
                self.pieces.append(Piece(len(self.pieces), name, place, group, rows))
        kept = [f.physical_schema for f in self._fragments]
        _refuse_nothing(self)
        # Numbers of different widths become the wider one, as do numbers and missing columns.
        arrow = require("pyarrow", "cli")
        self._schema = arrow.unify_schemas([dataset.schema, *kept], promote_options="permissive")
        self.kinds = kinds_of(self._schema)

    def read(
        self, piece: Piece, columns: Sequence[str] | None = None, size: int = BATCH
    ) -> Iterator[pd.DataFrame]:
        """Yield the rows of a piece."""
        arrow = require("pyarrow", "cli")
        fragment = self._fragments[piece.place]
        if piece.group is not None:
            fragment = fragment.subset(row_group_ids=[piece.group])
        # Few batches are read ahead: memory is bounded.
        scanner = fragment.scanner(
            schema=self._schema,
            columns=None if columns is None else list(columns),
            batch_size=size,
            batch_readahead=1,
            fragment_readahead=1,
        )
        try:
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield batch.to_pandas()
        except (OSError, arrow.ArrowException) as error:
            raise SourceError(f"{piece.name} cannot be read: {_last_line(error)}") from error


class _TextFiles(Source):
    """CSV files, which may be compressed."""

    def __init__(self, paths: Sequence[Path], skip_bad: bool) -> None:
        super().__init__()
        self.pieces = []
        self._paths: list[tuple[Path, tuple[str, str]]] = []
        first: Any = None
        for path in paths:
            try:
                separator = self._separator(path)
                start = next(self._open(path, separator, None, 1000), None)
                if start is None or len(start) == 0:
                    raise SourceError("it has no rows")
                own = {str(n): kind_of(start[n]) for n in start.columns}
                if first is None:
                    first = str(path), own
                check_kinds(str(path), own, *first)
            except (OSError, ValueError) as error:
                _pass_over(self, str(path), error, skip_bad)
                continue
            self.pieces.append(Piece(len(self.pieces), str(path), len(self._paths)))
            self._paths.append((path, separator))
        _refuse_nothing(self)
        self.kinds = first[1]

    @staticmethod
    def _separator(path: Path) -> tuple[str, str]:
        """Separator, and the sign in numbers: spreadsheets in much of Europe write 1,5;2,5."""
        separator = _TEXT[_ending(path)]
        head = require("pandas", "cli").read_csv(path, sep=separator, nrows=0).columns
        if separator == "," and len(head) == 1 and ";" in str(head[0]):
            return ";", ","
        return separator, "."

    @staticmethod
    def _open(
        path: Path, separator: tuple[str, str], columns: Sequence[str] | None, size: int
    ) -> Iterator[pd.DataFrame]:
        pandas = require("pandas", "cli")
        sep, decimal = separator
        wanted = None if columns is None else list(columns)
        with pandas.read_csv(
            path, sep=sep, decimal=decimal, usecols=wanted, chunksize=size
        ) as reader:
            for chunk in reader:
                yield chunk if wanted is None else chunk[wanted]

    def read(
        self, piece: Piece, columns: Sequence[str] | None = None, size: int = BATCH
    ) -> Iterator[pd.DataFrame]:
        """Yield the rows of a file."""
        try:
            yield from self._open(*self._paths[piece.place], columns, size)
        except (OSError, ValueError, EOFError) as error:
            raise SourceError(f"{piece.name} cannot be read: {_last_line(error)}") from error


class _Partitions(Source):
    """A Dask DataFrame."""

    def __init__(self, frame: Any) -> None:
        super().__init__()
        self._parts = frame.to_delayed()
        self.pieces = [Piece(i, f"partition {i}", i) for i in range(len(self._parts))]
        _refuse_nothing(self)
        self.kinds = {str(name): kind_of(frame._meta[name]) for name in frame.columns}

    def read(
        self, piece: Piece, columns: Sequence[str] | None = None, size: int = BATCH
    ) -> Iterator[pd.DataFrame]:
        """Yield the rows of a partition, which is computed where it is asked for."""
        table = _computed(self._parts[piece.place])
        if columns is not None:
            table = table[list(columns)]
        for start in range(0, len(table), size):
            yield table.iloc[start : start + size]


def open_source(source: Any, *, skip_bad_files: bool = False) -> Source:
    """Look at a source without reading its rows.

    Parameters
    ----------
    source : str, Path, sequence of these, pyarrow.dataset.Dataset or Dask DataFrame
        A Parquet or CSV file, a folder of them (and of folders, ``month=3/...``), or a glob.
    skip_bad_files : bool, default False
        Whether files that cannot be read, or do not fit the others, are left out; `skipped` has
        their names. By default they are an error.

    Raises
    ------
    SourceError
        A file is damaged or has other columns than the others; it names the file and the column.
    """
    if isinstance(source, Source):
        return source
    opened = _opened(source, skip_bad_files)
    opened.skips_bad = skip_bad_files
    return opened


def _opened(source: Any, skip_bad_files: bool) -> Source:
    if hasattr(source, "get_fragments"):
        return _Fragments(source, skip_bad_files)
    if hasattr(source, "to_delayed") and hasattr(source, "columns"):
        return _Partitions(source)
    if isinstance(source, str | Path):
        paths, root = _find(source)
    elif isinstance(source, Sequence) and all(isinstance(p, str | Path) for p in source):
        paths, root = [path for one in source for path in _find(one)[0]], None
    else:
        raise TypeError(
            "source must be a file, a folder, a glob, a list of files, a pyarrow Dataset or a Dask "
            f"DataFrame, got {type(source).__name__}."
        )
    endings = {_ending(path) in _TEXT for path in paths}
    if len(endings) > 1:
        raise SourceError(f"{source} has CSV and Parquet files; name one kind, such as '*.csv'.")
    if endings == {True}:
        return _TextFiles(paths, skip_bad_files)
    return _Fragments(_dataset(paths, root, skip_bad_files), skip_bad_files)


def table_bytes(path: Path) -> int:
    """Bytes that a table takes in memory, about, without reading it."""
    size = path.stat().st_size
    if _ending(path) in _PARQUET:
        parquet = require("pyarrow.parquet", "cli")
        try:
            found = parquet.read_metadata(path)
        except (OSError, ValueError):
            return size  # reading it will report the problem
        return max(size, 8 * found.num_rows * found.num_columns)
    return size if path.suffix.lower() in _TEXT else 5 * size  # compressed


def parse_memory(memory: Any) -> int:
    """Return a number of bytes, for numbers and texts such as "2GB"."""
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*([\d.]+)\s*([kmgt]?b?)\s*", memory.lower())
        if found is not None:
            unit = found[2] if found[2].endswith("b") or not found[2] else f"{found[2]}b"
            try:
                memory = float(found[1]) * _UNITS[unit]
            except ValueError:
                memory = None
    if isinstance(memory, bool) or not isinstance(memory, int | float) or not memory > 0:
        raise ValueError(
            f"memory must be a size such as '2GB', or a number of bytes, got {memory!r}."
        )
    return int(memory)


def _find(source: str | Path) -> tuple[list[Path], Path | None]:
    """Files of a path, and the folder that they are in, if it is one."""
    path = Path(source)
    if path.is_dir():
        known = (*_TEXT, *_PARQUET)
        found = sorted(p for p in path.rglob("*") if p.is_file() and _ending(p) in known)
        found = [p for p in found if not any(_hidden(part) for part in p.relative_to(path).parts)]
        if not found:
            raise SourceError(
                f"The folder {path} has no files that end in {', '.join(known)}; name another."
            )
        return found, path
    if path.exists():
        if _ending(path) not in (*_TEXT, *_PARQUET):
            raise SourceError(f"{path} is neither CSV nor Parquet; files end in .csv or .parquet.")
        return [path], None
    if any(sign in str(source) for sign in "*?["):
        found = sorted(Path(p) for p in glob.glob(str(source), recursive=True))
        found = [p for p in found if p.is_file() and not _hidden(p.name)]
        if not found:
            raise SourceError(f"No file is named like {source}.")
        return found, None
    beside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    raise FileNotFoundError(f"There is no file or folder {path}{nearest(path.name, beside)}.")


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _ending(path: Path) -> str:
    return Path(re.sub(r"\.(gz|bz2|xz|zip)$", "", path.name.lower())).suffix


def _dataset(paths: Sequence[Path], root: Path | None, skip_bad: bool) -> Any:
    """Make a dataset; columns may be in the names of folders."""
    arrow_dataset = require("pyarrow.dataset", "cli")
    names = [str(path) for path in paths]
    base = {} if root is None else {"partition_base_dir": str(root)}
    for i in range(len(names)):  # the schema comes from the first file that can be read
        try:
            schema = arrow_dataset.dataset(
                names[i], format="parquet", partitioning="hive", **base
            ).schema
        except (OSError, ValueError) as error:
            if not skip_bad:
                raise SourceError(f"{names[i]} cannot be read: {_last_line(error)}") from error
            continue
        return arrow_dataset.dataset(
            names, schema=schema, format="parquet", partitioning="hive", **base
        )
    raise SourceError(f"None of {listed(names)} can be read as Parquet.")


def _row_groups(fragment: Any) -> list[tuple[int | None, int | None]]:
    if not hasattr(fragment, "row_groups"):
        return [(None, None)]
    fragment.ensure_complete_metadata()
    return [(group.id, group.num_rows) for group in fragment.row_groups if group.num_rows]


def _pass_over(source: Source, name: str, error: Exception, skip_bad: bool) -> None:
    message = _last_line(error)
    if not skip_bad:
        if isinstance(error, SourceError) and name in message:
            raise error
        raise SourceError(
            f"{name} cannot be read: {message}. Mend or remove it, or skip such files with "
            "skip_bad_files."
        ) from error
    source.skipped[name] = message


def _refuse_nothing(source: Source) -> None:
    if not source.pieces:
        reason = next(iter(source.skipped.values()), "it has no rows")
        raise SourceError(f"Nothing can be read from the source: {reason}.")


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].rstrip(".") if lines else type(error).__name__


def _computed(part: Any) -> Any:
    """Compute a partition here; one whose data lie on a cluster is fetched from there."""
    futures = require("distributed", "distributed").Future
    graph = dict(part.__dask_graph__())
    if any(isinstance(value, futures) for value in graph.values()):
        return part.compute()
    return part.compute(scheduler="synchronous")
