"""`mcdensity predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcdensity.cli.shared import (
    Files,
    Json,
    Model,
    SkipBadFiles,
    features_of,
    find_column,
    is_folder,
    load_model,
    split_list,
    split_numbers,
    working,
)

if TYPE_CHECKING:
    from mcdensity._predictions import Wanted

__all__ = ["predict"]


def predict(
    model: Model,
    data: Files,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="A table to write; by default CSV is printed. Of a folder: a folder.",
        ),
    ] = None,
    quantiles: Annotated[str | None, typer.Option(help="Quantiles, such as 0.05,0.5,0.95.")] = None,
    interval: Annotated[
        str | None, typer.Option(help="Coverage of central intervals, such as 0.9 or 0.5,0.9.")
    ] = None,
    above: Annotated[
        str | None, typer.Option(help="Values v for the probability P(y > v), such as 40.")
    ] = None,
    density_grid: Annotated[
        str | None, typer.Option(help="Values for the density: 0:10:101 or 1,2,3.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Number of random draws of each row.")] = 0,
    keep: Annotated[
        str | None, typer.Option(help="Columns of the data to copy, separated by commas; or all.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For the random draws.")] = 0,
    skip_bad_files: SkipBadFiles = False,
    as_json: Json = False,
) -> None:
    """Predict the distribution of each row of a table, or of the files in a folder.

    Without options: mean, median and the 90 % interval. Of a folder: quantiles 0.05, 0.5 and 0.95,
    in a folder of Parquet files; a run that was interrupted goes on if it is started again.
    """
    import numpy as np
    import pandas as pd

    from mcdensity._predictions import check_predictions
    from mcdensity.tables import read_table, write_table

    wanted = _asked(quantiles, interval, above, density_grid, samples)
    if is_folder(data) or (output is not None and not output.suffix):
        if density_grid or samples or as_json or output is None:
            raise ValueError(
                "A folder is predicted into a folder: give -o FOLDER, and neither --density-grid, "
                "--samples nor --json."
            )
        _predict_folder(load_model(model), data, output, wanted, keep, skip_bad_files)
        return
    table = read_table(data)
    estimator = load_model(model)
    kept = list(table.columns) if keep == "all" else split_list(keep)
    for name in kept:
        find_column(table, name, "to keep")
    X, rng = features_of(estimator, table), np.random.default_rng(seed)
    parts = []
    with working("Predicting", total=len(table)) as advance:
        size = wanted.block(estimator)
        for start in range(0, len(table), size):
            rows = slice(start, min(start + size, len(table)))
            parts.append(wanted.table(estimator, X[rows], rng))
            advance(rows.stop - rows.start)
    result = pd.concat(parts, ignore_index=True)
    check_predictions(result, as_json)
    clash = [name for name in kept if name in result.columns]
    before = table[kept].reset_index(drop=True).rename(columns={n: f"{n}_data" for n in clash})
    result = pd.concat([before, result], axis=1)
    if output is not None:
        write_table(result, output)
        typer.echo(f"Predicted {len(result):,} rows: {output}", err=as_json)
    if as_json:
        typer.echo(result.to_json(orient="records"))
    elif output is None:
        typer.echo(result.to_csv(index=False), nl=False)


def _predict_folder(
    model: Any, data: Path, output: Path, wanted: Wanted, keep: str | None, skip_bad_files: bool
) -> None:
    """Predict files into a folder."""
    from mcdensity.streaming.predicting import predict_files
    from mcdensity.streaming.sources import open_source

    source = open_source(data, skip_bad_files=skip_bad_files)
    for name, reason in source.skipped.items():
        typer.secho(f"{name} is left out: {reason}.", fg=typer.colors.YELLOW, err=True)
    something = wanted.quantiles or wanted.coverages or wanted.above
    rows = predict_files(
        model,
        source,
        output,
        quantiles=(wanted.quantiles or None) if something else (0.05, 0.5, 0.95),
        interval=wanted.coverages or None,
        above=wanted.above or None,
        keep=source.columns if keep == "all" else split_list(keep) or None,
        verbose=True,
    )
    typer.echo(f"Predicted {rows:,} rows: {output}")


def _asked(
    quantiles: str | None,
    interval: str | None,
    above: str | None,
    density_grid: str | None,
    samples: int,
) -> Wanted:
    from mcdensity._predictions import Wanted

    q = split_numbers(quantiles, "--quantiles")
    coverages = split_numbers(interval, "--interval")
    for name, values in (("--quantiles", q), ("--interval", coverages)):
        if any(not 0 < v < 1 for v in values):
            raise ValueError(f"{name} must lie strictly between 0 and 1, got {values}.")
    if samples < 0:
        raise ValueError(f"--samples must not be negative, got {samples}.")
    return Wanted(q, coverages, split_numbers(above, "--above"), _grid(density_grid), samples)


def _grid(text: str | None) -> list[float]:
    if text is None or ":" not in text:
        return split_numbers(text, "--density-grid")
    import numpy as np

    try:
        low, high, count = text.split(":")
        grid = np.linspace(float(low), float(high), int(count))
    except ValueError as error:
        raise ValueError(
            f"--density-grid takes LOW:HIGH:COUNT, or numbers separated by commas, got {text!r}."
        ) from error
    if len(grid) == 0 or not np.isfinite(grid).all():
        raise ValueError(f"--density-grid must have finite ends and a count, got {text!r}.")
    return grid.tolist()
