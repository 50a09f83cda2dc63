"""What the commands share: options, reading tables and models, a progress bar."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

    from mcdensity.estimator import ConditionalEstimator

__all__ = [
    "Data", "Files", "Json", "Model", "SkipBadFiles", "Target", "features_of", "find_column",
    "is_folder", "load_model", "model_key", "read_held_out", "split_list", "split_numbers",
    "take_target", "take_targets", "working",
]  # fmt: skip

Model = Annotated[Path, typer.Argument(help="A model file, from `mcdensity fit`.")]
Data = Annotated[Path, typer.Argument(help="A table: .csv, .tsv or .parquet.")]
Files = Annotated[
    Path, typer.Argument(help="A table: .csv, .tsv or .parquet; or a folder of them, or a glob.")
]
SkipBadFiles = Annotated[
    bool,
    typer.Option("--skip-bad-files", help="Leave out files that cannot be read, and say so."),
]
Target = Annotated[
    str | None, typer.Option(help="Column with the outcomes, if it is not the model's own.")
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable JSON on standard output.")]


def split_list(text: str | None) -> list[str]:
    """Split text at commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def split_numbers(text: str | None, option: str) -> list[float]:
    """Split numbers at commas."""
    try:
        return [float(part) for part in split_list(text)]
    except ValueError as error:
        raise ValueError(f"{option} takes numbers separated by commas, got {text!r}.") from error


@contextmanager
def working(text: str, total: int | None = None) -> Iterator[Any]:
    """Show a progress bar with the elapsed time, on standard error, during a long task."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda count: bar.advance(task, count)


def is_folder(path: Path) -> bool:
    """Whether a path is a folder of files, or a glob."""
    return path.is_dir() or (not path.exists() and any(sign in str(path) for sign in "*?["))


def find_column(table: pd.DataFrame, name: str, what: str) -> pd.Series:
    """Return a column of a table, or say which columns there are."""
    from mcdensity.tables import nearest

    if name not in table.columns:
        raise ValueError(
            f"There is no column {name!r} ({what}){nearest(name, table.columns)}; the table has "
            f"{', '.join(map(str, table.columns))}."
        )
    return table[name]


def take_target(
    table: pd.DataFrame, name: str, levels: list[str] | None = None
) -> tuple[pd.DataFrame, pd.Series]:
    """Return the other columns, and the target as numbers, or as text with levels."""
    import pandas as pd

    column = find_column(table, name, "the target")
    if levels:
        return table.drop(columns=name), column
    if pd.api.types.is_datetime64_any_dtype(column):
        raise ValueError(f"The target {name!r} holds dates; turn it into a number first.")
    y = pd.to_numeric(column, errors="coerce")
    wrong = column[y.isna() & column.notna()]
    if len(wrong):
        raise ValueError(
            f"The target {name!r} holds text, such as {str(wrong.iloc[0])!r} (row "
            f"{int(wrong.index[0])}); a distribution needs numbers. If the texts have an order, "
            "give them with --levels, such as --levels low,medium,high; else use a classifier."
        )
    return table.drop(columns=name), y.astype(float)


def take_targets(
    table: pd.DataFrame, names: str, levels: list[str] | None = None
) -> tuple[pd.DataFrame, Any, list[str]]:
    """Return the other columns, one target or a table of several, and their names."""
    several = [names] if names in table.columns else split_list(names)
    if len(several) < 2:
        return *take_target(table, names, levels), [names]
    if levels:
        raise ValueError("--levels is for one target; turn texts into numbers first.")
    if len(set(several)) < len(several):
        raise ValueError(f"--target names a column twice, got {names!r}.")
    for name in several:
        find_column(table, name, "a target")
    columns = {}
    for name in several:
        table, columns[name] = take_target(table, name)
    import pandas as pd

    return table, pd.DataFrame(columns), several


def load_model(path: Path) -> ConditionalEstimator:
    """Load a model file."""
    from mcdensity.persistence import load

    # Nothing of what is built here becomes garbage: to look for it took about a tenth of the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        with working("Loading the model"):
            return load(path, key=model_key())
    finally:
        if collects:
            gc.enable()


def model_key() -> bytes | None:
    """Return the key that models are signed with: what the file MCDENSITY_KEY_FILE names holds."""
    name = os.environ.get("MCDENSITY_KEY_FILE")
    return Path(name).read_bytes().strip() if name else None


def features_of(estimator: ConditionalEstimator, table: pd.DataFrame) -> Any:
    """Return what the estimator takes: a table, or the columns that an array had."""
    from mcdensity.tables import TableEstimator

    if isinstance(estimator, TableEstimator):
        return table
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        for name in names:
            find_column(table, name, "a feature of the model")
        return table[list(names)]
    if table.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"The model was fitted to {estimator.n_features_in_} columns without names, and the "
            f"table has {table.shape[1]}; give a table with only these columns, in the same order."
        )
    return table.to_numpy(dtype=float)


def read_held_out(model: Path, data: Path, target: str | None) -> tuple[Any, Any, Any]:
    """Load a model, and a table with known outcomes."""
    from mcdensity._columns import as_levels
    from mcdensity.tables import read_table

    table, estimator = read_table(data), load_model(model)
    name = target or getattr(estimator, "target_", None)
    if name is None:
        raise ValueError("The model does not know the name of its target; give --target.")
    levels = getattr(estimator, "levels", None)
    table, y, several = take_targets(table, name, levels)
    known = y.notna() if len(several) < 2 else y.notna().all(axis=1)
    if not known.all():
        typer.echo(f"{int((~known).sum())} rows without {name!r} are left out.", err=True)
        table, y = table[known], y[known]
    table = table.reset_index(drop=True)
    X = features_of(estimator, table)
    if len(several) > 1:
        return estimator, X, y.reset_index(drop=True)
    return estimator, X, as_levels(y, levels) if levels else y.to_numpy()
