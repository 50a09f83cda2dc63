"""`mcdensity fit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcdensity.cli.shared import Data, Json, find_column, split_list, take_target, working

if TYPE_CHECKING:
    import pandas as pd

    from mcdensity.estimator import ConditionalEstimator

__all__ = ["fit"]


def fit(
    data: Data,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the model.")],
    model: Annotated[
        str,
        typer.Option(help="mcd, mcd:DISCRIMINATOR such as mcd:catboost, or a method such as mdn."),
    ] = "mcd",
    drop: Annotated[
        str | None, typer.Option(help="Columns to leave out, separated by commas.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="A column with weights of the rows.")] = None,
    hold_out: Annotated[
        float,
        typer.Option(help="Share of the rows to hold out for `report`, written beside the model."),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same model.")] = 0,
    time_budget: Annotated[
        float | None, typer.Option(help="Seconds that fitting may take (mcd only).")
    ] = None,
    effort: Annotated[
        str | None, typer.Option(help="fast, normal (the default) or best (mcd only).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn the distribution of a column given the others, and write a model file."""
    from mcdensity.persistence import save
    from mcdensity.tables import TableEstimator, read_table

    if not 0 <= hold_out < 1:
        raise ValueError(f"--hold-out must lie in [0, 1), got {hold_out:g}.")
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder; name a file in it.")
    estimator = TableEstimator(_make_estimator(model, seed, time_budget, effort))
    table = read_table(data)
    table, y = take_target(table, target)
    notes = []
    known = y.notna()
    if not known.all():
        notes.append(f"{int((~known).sum())} rows without {target!r} are left out.")
        table, y = table[known], y[known]
    held_out = None
    if hold_out:
        held_out = output.with_name(f"{output.stem}-held-out.csv")
        table, y, n_held_out = _hold_out(table, y, hold_out, seed, held_out)
    weights = None if weight is None else find_column(table, weight, "weights").astype(float)
    unused = [*split_list(drop), *([weight] if weight else [])]
    for name in unused:
        find_column(table, name, "to drop")
    table = table.drop(columns=unused)
    with working(f"Fitting {model} to {len(y):,} rows"):
        estimator.fit(table, y, weights)
    left_out = estimator.preparation_.left_out_
    notes += [f"Column {name!r} is left out: {why}." for name, why in left_out.items()]
    with working("Writing the model"):
        save(estimator, output)
    if as_json:
        out = {"model": str(output), "rows": len(y), "features": list(estimator.feature_names_in_),
               "held_out": held_out and str(held_out), "notes": notes}  # fmt: skip
        typer.echo(json.dumps(out))
        return
    for note in notes:
        typer.echo(note)
    typer.echo(f"Fitted {model} to {len(y):,} rows and {len(table.columns)} columns: {output}")
    if held_out is not None:
        typer.echo(f"Held out {n_held_out:,} rows: {held_out}")


def _hold_out(
    table: pd.DataFrame, y: pd.Series, share: float, seed: int, path: Path
) -> tuple[pd.DataFrame, pd.Series, int]:
    """Write a random share of the rows to a file; return the others, and how many were written."""
    import numpy as np

    from mcdensity.tables import write_table

    order = np.random.default_rng(seed).permutation(len(y))
    cut = round(share * len(y))
    if cut == 0:
        raise ValueError(f"--hold-out {share:g} of {len(y)} rows selects no row.")
    chosen, rest = np.sort(order[:cut]), np.sort(order[cut:])
    write_table(table.iloc[chosen].assign(**{str(y.name): y.iloc[chosen]}), path)
    return table.iloc[rest], y.iloc[rest], cut


def _make_estimator(
    name: str, seed: int, time_budget: float | None, effort: str | None
) -> ConditionalEstimator:
    from mcdensity._effort import EFFORTS
    from mcdensity.baselines import get_estimator, list_estimators
    from mcdensity.discriminators import list_discriminators
    from mcdensity.mcd import MCD
    from mcdensity.tables import nearest

    method, _, discriminator = name.lower().partition(":")
    if time_budget is not None and not 0 < time_budget < float("inf"):
        raise ValueError(f"--time-budget must be a positive number of seconds, got {time_budget}.")
    if effort is not None and effort not in EFFORTS:
        raise ValueError(f"--effort must be one of {', '.join(EFFORTS)}, got {effort!r}.")
    asked: dict[str, Any] = {"time_budget": time_budget, "effort": effort}
    asked = {option: value for option, value in asked.items() if value is not None}
    if method == "mcd" and (not discriminator or discriminator in list_discriminators()):
        options: dict[str, Any] = {"random_state": seed}
        if discriminator:
            options["discriminator"] = discriminator
        return MCD(**options, **asked)
    if name.lower() in list_estimators():
        for option in asked:
            flag = option.replace("_", "-")
            raise ValueError(f"--{flag} is for mcd; --model {name} takes none.")
        estimator = get_estimator(name.lower())
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=seed)
        return estimator
    known = ["mcd", *(f"mcd:{d}" for d in list_discriminators()), *list_estimators()]
    raise ValueError(
        f"--model {name!r} is not known{nearest(name, known)}; choose from {', '.join(known)}."
    )
