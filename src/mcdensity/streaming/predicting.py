"""`predict_files` and `predict_dask`: predictions of more rows than memory holds."""

from __future__ import annotations

import hashlib
import json
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np

from mcdensity._files import replacing, write_file
from mcdensity._inputs import check_quantiles
from mcdensity._parallel import worker_count
from mcdensity._predictions import Wanted, check_predictions
from mcdensity._progress import counting
from mcdensity._validation import as_numbers, require
from mcdensity.streaming.sources import Piece, Source, SourceError, open_source
from mcdensity.tables import TableEstimator

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["features_of", "loaded", "predict_dask", "predict_files"]

# Rows of a part, about: row groups of a file are put together up to this many.
_PART_ROWS = 200_000
# The file that says what the parts in a folder are; readers of Parquet folders pass over it.
_HEAD, _FORMAT = "_mcdensity.json", 1
# Rows whose predictions tell one model from another, and the digits that all machines agree on.
_FIRST_ROWS, _DIGITS = 50, 5


@dataclass(frozen=True)
class Part:
    """Consecutive pieces of one file that become one file of predictions."""

    number: int
    pieces: tuple[Piece, ...]

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"part-{self.number:05d}.parquet"


def predict_files(
    model: Any,
    source: Any,
    output: str | Path,
    *,
    quantiles: Any = (0.05, 0.5, 0.95),
    interval: Any = None,
    above: Any = None,
    client: Any = None,
    keep: Sequence[str] | None = None,
    n_jobs: int | None = None,
    skip_bad_files: bool = False,
    verbose: bool = False,
) -> int:
    """Predict the rows of files, and write the predictions as a folder of Parquet files.

    Each part of the output holds the predictions of consecutive rows of one file, in their order. A
    part is there completely or not at all: a call that was interrupted goes on where it stopped if
    it is made again.

    Parameters
    ----------
    model : ConditionalEstimator or path
        A fitted model, or a model file. A distilled one is many times faster.
    source : str, Path, sequence of these, pyarrow.dataset.Dataset or Dask DataFrame
        See `fit_files`; it needs the features only.
    output : str or Path
        A folder, which is made.
    quantiles : sequence of float or None, default (0.05, 0.5, 0.95)
        Columns "q0.05" and so on; of several targets "a_q05".
    interval : float or sequence of float, optional
        Coverages of central intervals: columns "lower_90" and "upper_90".
    above : float or sequence of float, optional
        Values v for P(y > v): columns "above_40".
    client : dask.distributed.Client, optional
        A cluster that does the work; its workers must see the files and the folder.
    keep : sequence of str, optional
        Columns to copy. By default those that the model does not use, such as an id.
    n_jobs : int, optional
        Processes; by default as many as there are cores.
    skip_bad_files : bool, default False
    verbose : bool, default False
        Whether to show how many rows a second are predicted, and how long it will still take.

    Returns
    -------
    int
        How many rows the folder has predictions of.

    Examples
    --------
    >>> import tempfile, pandas as pd
    >>> from pathlib import Path
    >>> from mcdensity import MCD, TableEstimator, predict_files
    >>> from mcdensity.simulators import get_simulator
    >>> X, y = get_simulator("EconDensity").sample(300, random_state=0)
    >>> table = pd.DataFrame({"x": X[:, 0], "id": range(300)})
    >>> model = TableEstimator(MCD("quadratic", random_state=0)).fit(table[["x"]], y)
    >>> folder = Path(tempfile.mkdtemp())
    >>> table.to_parquet(folder / "new.parquet")
    >>> predict_files(model, folder / "new.parquet", folder / "predictions")
    300
    >>> list(pd.read_parquet(folder / "predictions").columns)
    ['id', 'q0.05', 'q0.5', 'q0.95']
    """
    wanted = _wanted(quantiles, interval, above)
    opened, output = open_source(source, skip_bad_files=skip_bad_files), Path(output)
    _check_output(output, source)
    job = _Job(loaded(model), opened, wanted, _kept(loaded(model), opened, keep))
    parts = _parts(opened)
    _claim(output, job, parts)
    missing = [part for part in parts if not (output / part.name).exists()]
    done = sum(_rows_of(output / part.name) for part in parts if part not in missing)
    with counting(verbose, f"Predicting {output}", opened.rows, done) as advance:
        for rows, problem in _work(job, missing, output, n_jobs, client):
            if problem:
                warnings.warn(f"A part is left out: {problem}.", stacklevel=2)
            done += rows
            advance(rows)
    return done


def predict_dask(
    model: Any, frame: Any, *, quantiles: Any = (0.05, 0.5, 0.95), interval: Any = None,
    above: Any = None,
) -> Any:  # fmt: skip
    """Predict a Dask DataFrame lazily, partition by partition.

    Parameters
    ----------
    model : ConditionalEstimator or path
    frame : dask.dataframe.DataFrame
    quantiles, interval, above
        See `predict_files`.

    Returns
    -------
    dask.dataframe.DataFrame
        With the index of `frame`.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> from mcdensity import MCD, TableEstimator, predict_dask
    >>> from mcdensity.simulators import get_simulator
    >>> X, y = get_simulator("EconDensity").sample(300, random_state=0)
    >>> table = pd.DataFrame({"x": X[:, 0]})
    >>> model = TableEstimator(MCD("quadratic", random_state=0)).fit(table, y)
    >>> lazy = predict_dask(model, dd.from_pandas(table, npartitions=3))
    >>> lazy.compute().shape
    (300, 3)
    """
    if not (hasattr(frame, "map_partitions") and hasattr(frame, "_meta_nonempty")):
        raise TypeError(f"frame must be a Dask DataFrame, got {type(frame).__name__}.")
    estimator, wanted = loaded(model), _wanted(quantiles, interval, above)
    meta = _predicted(frame._meta_nonempty, estimator, wanted).iloc[:0]
    return frame.map_partitions(_predicted, estimator, wanted, meta, meta=meta)


def _predicted(table: pd.DataFrame, model: Any, wanted: Wanted, meta: Any = None) -> pd.DataFrame:
    """Predict a table in memory; the result has its index."""
    pandas = require("pandas", "cli")
    if len(table) == 0 and meta is not None:
        return meta.set_axis(table.index, axis=0)
    X, size = features_of(model, table), wanted.block(model)
    rng = np.random.default_rng(0)
    blocks = range(0, len(table), size)
    out = pandas.concat([wanted.table(model, X[i : i + size], rng) for i in blocks])
    check_predictions(out)
    return out.set_axis(table.index, axis=0)


@dataclass
class _Job:
    """What each process needs."""

    model: Any
    source: Source
    wanted: Wanted
    keep: list[str]

    def columns(self) -> list[str]:
        """Columns to read."""
        names = getattr(self.model, "feature_names_in_", None)
        every = self.source.columns if names is None else [str(name) for name in names]
        return list(dict.fromkeys([*self.keep, *every]))

    def tables(self, pieces: Iterable[Piece]) -> Iterator[pd.DataFrame]:
        """Yield predictions, with the columns that are kept."""
        pandas = require("pandas", "cli")
        size = self.wanted.block(self.model)
        for piece in pieces:
            for table in self.source.read(piece, self.columns(), size):
                found = _predicted(table, self.model, self.wanted)
                kept = table[self.keep]
                clash = {n: f"{n}_data" for n in self.keep if n in found.columns}
                yield pandas.concat([kept.rename(columns=clash), found], axis=1)

    def write(self, part: Part, output: Path) -> tuple[int, str]:
        """Write a part, completely or not at all; return the number of its rows.

        One that cannot be read is left out, where that is asked for, and the reason returned.
        """
        try:
            return self._write(part, output), ""
        except SourceError as error:
            if not self.source.skips_bad:
                raise
            return 0, str(error)

    def _write(self, part: Part, output: Path) -> int:
        arrow, parquet = require("pyarrow", "cli"), require("pyarrow.parquet", "cli")
        rows, writer = 0, None
        with replacing(output / part.name) as temporary:
            try:
                for found in self.tables(part.pieces):
                    batch = arrow.Table.from_pandas(found, preserve_index=False)
                    if writer is None:
                        writer = parquet.ParquetWriter(temporary, batch.schema)
                    writer.write_table(batch.cast(writer.schema))
                    rows += len(found)
            finally:
                if writer is not None:
                    writer.close()
            if writer is None:  # a file without rows
                parquet.write_table(arrow.table({}), temporary)
        return rows

    def fingerprint(self) -> str:
        """Tell this model, these options and this source from others."""
        found = next(self.tables(self.source.pieces)).iloc[:_FIRST_ROWS]
        numbers = found.select_dtypes("number").to_numpy(dtype=float)
        with np.errstate(all="ignore"):
            size = 10.0 ** np.floor(np.log10(np.abs(numbers).max(axis=0) + 1e-300))
        rounded = np.round(numbers / size, _DIGITS)
        text = [list(found.columns), self.source.files, len(self.source.pieces), rounded.tolist()]
        return hashlib.sha256(json.dumps(text).encode()).hexdigest()


def _work(
    job: _Job, parts: Sequence[Part], output: Path, n_jobs: int | None, client: Any
) -> Iterator[tuple[int, str]]:
    """Write parts, side by side; yield their numbers of rows."""
    if client is not None:
        from mcdensity.streaming.cluster import check_client

        distributed = require("distributed", "distributed")
        shared = check_client(client).scatter(job, broadcast=True, hash=False)
        futures = [
            client.submit(_write, part, shared, output.absolute(), pure=False, retries=3)
            for part in parts
        ]
        for future in distributed.as_completed(futures):
            yield future.result()
        return
    workers = min(worker_count(n_jobs), max(1, len(parts)))
    if workers == 1:
        for part in parts:
            yield job.write(part, output)
        return
    with tempfile.TemporaryDirectory(prefix="mcdensity-") as folder:
        path = Path(folder) / "job"
        joblib.dump(job, path)
        with joblib.parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
            run = joblib.Parallel(return_as="generator_unordered")
            yield from run(joblib.delayed(_write_from)(str(path), part, output) for part in parts)


def _write(part: Part, job: _Job, output: Path) -> tuple[int, str]:
    return job.write(part, output)


@lru_cache(maxsize=1)
def _job_of(path: str) -> _Job:
    return joblib.load(path)  # written by this package a moment ago


def _write_from(path: str, part: Part, output: Path) -> tuple[int, str]:
    return _job_of(path).write(part, output)


def _parts(source: Source) -> list[Part]:
    """Put pieces of the same file together."""
    out: list[list[Piece]] = []
    for piece in source.pieces:
        last = out[-1] if out else []
        rows = sum(p.rows or _PART_ROWS for p in [*last, piece])
        if last and last[-1].place == piece.place and rows <= _PART_ROWS:
            last.append(piece)
        else:
            out.append([piece])
    return [Part(i, tuple(pieces)) for i, pieces in enumerate(out)]


def _claim(output: Path, job: _Job, parts: Sequence[Part]) -> None:
    """Say whose predictions a folder has, or refuse one that has others."""
    head = {"format": _FORMAT, "parts": len(parts), "fingerprint": job.fingerprint()}
    output.mkdir(parents=True, exist_ok=True)
    path = output / _HEAD
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if found != head:
            raise ValueError(
                f"{output} has predictions of another model, of other data or with other options; "
                "name another folder, or remove it."
            )
        return
    if any(output.iterdir()):
        raise ValueError(f"{output} is not empty; name another folder.")
    write_file(path, json.dumps(head))


def _check_output(output: Path, source: Any) -> None:
    if output.exists() and not output.is_dir():
        raise NotADirectoryError(f"{output} is a file; predictions of files are a folder.")
    folder = Path(source) if isinstance(source, str | Path) and Path(source).is_dir() else None
    if folder is not None and output.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{output} lies in the folder that is read; name another.")


def _rows_of(path: Path) -> int:
    return int(require("pyarrow.parquet", "cli").read_metadata(path).num_rows)


def loaded(model: Any) -> Any:
    """Return a model, which may be given as a file."""
    if isinstance(model, str | Path):
        from mcdensity.persistence import load

        return load(model)
    if not hasattr(model, "predict_distribution"):
        raise TypeError(f"model must be a fitted model or a model file, got {model!r}.")
    return model


def features_of(model: Any, table: pd.DataFrame) -> Any:
    """Return what a model takes of a table."""
    names = getattr(model, "feature_names_in_", None)
    if isinstance(model, TableEstimator) or names is None:
        return table
    return table[list(names)]


def _kept(model: Any, source: Source, keep: Sequence[str] | None) -> list[str]:
    names = [str(name) for name in getattr(model, "feature_names_in_", source.columns)]
    source.check_columns(names, "a feature of the model")
    if keep is None:
        return [name for name in source.columns if name not in names]
    kept = [keep] if isinstance(keep, str) else list(keep)
    source.check_columns(kept, "to keep")
    return kept


def _wanted(quantiles: Any, interval: Any, above: Any) -> Wanted:
    levels = [] if quantiles is None else check_quantiles(quantiles).tolist()
    coverages = [] if interval is None else np.atleast_1d(as_numbers("interval", interval)).tolist()
    if any(not 0 < c < 1 for c in coverages):
        raise ValueError(f"interval must lie strictly between 0 and 1, got {interval!r}.")
    values = [] if above is None else np.atleast_1d(as_numbers("above", above)).tolist()
    if not np.isfinite(values).all():
        raise ValueError(f"above must be finite, got {above!r}.")
    if not levels and not coverages and not values:
        raise ValueError("Ask for something: quantiles, interval or above.")
    return Wanted(levels, coverages, values)
