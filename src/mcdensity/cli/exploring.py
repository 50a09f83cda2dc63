"""`mcdensity explore`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mcdensity.cli.shared import Data, Json, Model, Target, features_of, load_model, working

__all__ = ["explore"]


def explore(
    model: Model,
    data: Data,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file.")] = Path(
        "explore.html"
    ),
    target: Target = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    as_json: Json = False,
) -> None:
    """Write a page on which features are moved, and the distribution follows at once."""
    from mcdensity.tables import read_table

    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder; name a file in it.")
    table, estimator = read_table(data), load_model(model)
    table, y = _outcomes(estimator, table, target)
    X = features_of(estimator, table)
    from mcdensity.explorer import explore as write

    with working(f"Distilling, and comparing on {len(table):,} rows"):
        page = write(estimator, X, output, y, title=title)
    if as_json:
        out = {"page": str(page.path), "loss": page.loss, "notes": page.notes}
        typer.echo(json.dumps(out))
        return
    for note in page.notes:
        typer.secho(f"Note: {note}", fg=typer.colors.YELLOW)
    typer.echo(f"The small network is {page.loss:.3f} nats from the model. Page: {page.path}")


def _outcomes(estimator: Any, table: Any, target: str | None) -> tuple[Any, Any]:
    """Return the table without the targets, and outcomes as numbers if the table has them."""
    import pandas as pd

    from mcdensity._columns import as_levels
    from mcdensity.cli.shared import find_column

    names = list(getattr(estimator, "target_names_", []))
    if target is not None:
        find_column(table, target, "the target")
    if not names:
        name = target or getattr(estimator, "target_", None)
        names = [] if name is None else [name]
    if not names or any(name not in table.columns for name in names):
        return table, None
    levels = getattr(estimator, "levels", None)
    if levels:
        known = table[names[0]].isin(list(levels))
        y = pd.Series(float("nan"), index=table.index)
        y[known] = as_levels(table[names[0]][known], levels)
    else:
        y = table[names].apply(pd.to_numeric, errors="coerce").astype(float)
        y = y if len(names) > 1 else y[names[0]]
    return table.drop(columns=names), y
