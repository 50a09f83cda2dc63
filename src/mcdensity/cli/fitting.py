"""`mcdensity fit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcdensity.cli.shared import (
    Files,
    Json,
    SkipBadFiles,
    find_column,
    is_folder,
    model_key,
    split_list,
    take_targets,
    working,
)

if TYPE_CHECKING:
    import pandas as pd

    from mcdensity.estimator import ConditionalEstimator

__all__ = ["fit"]

# Copies of a table that fitting makes, about: one whose copies are larger than the budget is
# streamed.
_COPIES = 8


def fit(
    data: Files,
    target: Annotated[str, typer.Option(help="The column to predict, or several: a,b.")],
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
    n_jobs: Annotated[
        int | None, typer.Option(help="Cores to use (mcd only); by default all.")
    ] = None,
    target_kind: Annotated[
        str | None,
        typer.Option(help="auto (the default), continuous, discrete or mixed (mcd only)."),
    ] = None,
    support: Annotated[
        str | None,
        typer.Option(
            help="Bounds of the target, such as 0, or 0,100 or ,50; none for no bounds (mcd only)."
        ),
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(help="Values of a text target in their order, such as low,medium,high."),
    ] = None,
    dates: Annotated[
        str | None,
        typer.Option(help="What dates become: some of year,month,day,weekday,hour,elapsed."),
    ] = None,
    memory: Annotated[
        str,
        typer.Option(
            help="What rows in memory may take; a folder, or a larger file, is read in parts."
        ),
    ] = "2GB",
    skip_bad_files: SkipBadFiles = False,
    as_json: Json = False,
) -> None:
    """Learn the distribution of a column given the others, and write a model file."""
    from mcdensity.tables import TableEstimator

    _check_options(seed, hold_out, output)
    asked = {"time_budget": time_budget, "effort": effort, "n_jobs": n_jobs,
             "target_kind": target_kind, "support": _support(support)}  # fmt: skip
    estimator = TableEstimator(
        _make_estimator(model, seed, **asked),
        dates=split_list(dates) or None,
        levels=split_list(levels) or None,
    )
    columns = {"weight": weight, "drop": split_list(drop)}
    if _is_large(data, memory):
        if hold_out:
            raise ValueError(
                "--hold-out is for one file in memory. Of many rows a part is held out anyway; for "
                "`report` and `evaluate` keep a file aside."
            )
        options = columns | {"memory": memory, "skip_bad_files": skip_bad_files}
        _fit_files(data, target, estimator, output, seed, options, as_json)
    else:
        _fit_table(data, target, estimator, output, seed, columns, hold_out, as_json, model)


def _fit_table(
    data: Path, target: str, estimator: Any, output: Path, seed: int, columns: dict[str, Any],
    hold_out: float, as_json: bool, model: str,
) -> None:  # fmt: skip
    """Fit to a table in memory, and write the model."""
    from mcdensity.persistence import save
    from mcdensity.tables import read_table, write_table

    table, y, targets = take_targets(read_table(data), target, estimator.levels)
    table, y, notes = _known_rows(table, y, targets)
    held_out = None
    if hold_out:
        held_out = output.with_name(f"{output.stem}-held-out.csv")
        aside, table, y = _divide(table, y, hold_out, seed)
    table, weights = _without(table, columns["drop"], columns["weight"], targets)
    _fit_shown(estimator, table, y, weights, f"Fitting {model} to {len(y):,} rows")
    notes += _decisions(estimator, target)
    if held_out is not None:
        write_table(aside, held_out)
    with working("Writing the model"):
        save(estimator, output, key=model_key())
    if as_json:
        out = {"model": str(output), "rows": len(y), "features": list(estimator.feature_names_in_),
               "held_out": held_out and str(held_out), "notes": notes}  # fmt: skip
        typer.echo(json.dumps(out))
        return
    notes.append(f"Fitted {model} to {len(y):,} rows and {len(table.columns)} columns: {output}")
    if held_out is not None:
        notes.append(f"Held out {len(aside):,} rows: {held_out}")
    typer.echo("\n".join(notes))


def _is_large(data: Path, memory: str) -> bool:
    """Whether the rows are not read into memory all at once."""
    from mcdensity.streaming.sources import parse_memory, table_bytes

    budget = parse_memory(memory)
    return is_folder(data) or (data.is_file() and _COPIES * table_bytes(data) > budget)


def _fit_files(
    data: Path, target: str, estimator: Any, output: Path, seed: int, options: dict[str, Any],
    as_json: bool,
) -> None:  # fmt: skip
    """Fit to files, and write the model."""
    import warnings

    from mcdensity.persistence import save
    from mcdensity.streaming.fitting import fit_files

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model = fit_files(data, target, estimator, random_state=seed, verbose=True, **options)
    notes = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    found = model.source_
    if found["unlabeled"]:
        notes.append(f"{found['unlabeled']:,} rows without {target!r} are left out.")
    notes += _decisions(model, target)
    with working("Writing the model"):
        save(model, output, key=model_key())
    if as_json:
        out = {"model": str(output), "rows": found["rows"], "files": found["files"],
               "features": list(model.feature_names_in_), "notes": notes}  # fmt: skip
        typer.echo(json.dumps(out))
        return
    score = found.get("held_out_log_likelihood")
    if score is not None:
        notes.append(f"Log-likelihood of rows that were held out: {score:.4f}.")
    notes.append(f"Fitted to {found['rows']:,} rows of {found['files']:,} files: {output}")
    typer.echo("\n".join(notes))


def _check_options(seed: int, hold_out: float, output: Path) -> None:
    if seed < 0:
        raise ValueError(f"--seed must not be negative, got {seed}.")
    if not 0 <= hold_out < 1:
        raise ValueError(f"--hold-out must lie in [0, 1), got {hold_out:g}.")
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder; name a file in it.")


def _fit_shown(estimator: Any, table: pd.DataFrame, y: Any, weights: Any, text: str) -> None:
    """Fit, and show how far it is and how long it will still take, where the model knows that."""
    inner = estimator.estimator
    if "verbose" not in inner.get_params():
        with working(text):
            estimator.fit(table, y, weights)
        return
    estimator.set_params(estimator__verbose=True)
    estimator.fit(table, y, weights)
    estimator.set_params(estimator__verbose=False)
    estimator.estimator_.set_params(verbose=False)


def _known_rows(
    table: pd.DataFrame, y: Any, targets: list[str]
) -> tuple[pd.DataFrame, Any, list[str]]:
    """Return the rows whose targets are known, and a note on the others."""
    known = y.notna() if len(targets) == 1 else y.notna().all(axis=1)
    if known.all():
        return table, y, []
    names = " or ".join(map(repr, targets))
    note = f"{int((~known).sum())} rows without {names} are left out."
    return table[known], y[known], [note]


def _decisions(estimator: Any, target: str) -> list[str]:
    """Say what was decided about the target and the columns."""
    from mcdensity.target_kind import describe

    preparation = estimator.preparation_
    notes = [f"Column {name!r} is left out: {why}." for name, why in preparation.left_out_.items()]
    notes += [
        f"Column {name!r}: {sign!r} is taken as missing."
        for name, sign in preparation.signs_.items()
    ]
    if hasattr(estimator, "target_kind_"):
        what = f"target {target!r} is" if isinstance(estimator.target_kind_, str) else "targets are"
        notes.append(f"The {what} {describe(estimator)}.")
    return notes


def _without(
    table: pd.DataFrame, drop: list[str], weight: str | None, targets: list[str]
) -> tuple[pd.DataFrame, pd.Series | None]:
    """Return the table without some columns, and the weights."""
    unused = [*drop, *([weight] if weight else [])]
    for name in unused:
        if name in targets:
            raise ValueError(
                f"{name!r} is the target; it can be neither dropped nor used as weights."
            )
        find_column(table, name, "to drop")
    weights = None if weight is None else _numbers(table[weight])
    return table.drop(columns=unused), weights


def _divide(
    table: pd.DataFrame, y: Any, share: float, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame, Any]:
    """Return a random share of the rows, with their targets, and the others."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(y))
    cut = round(share * len(y))
    if not 0 < cut < len(y) - 1:
        raise ValueError(
            f"--hold-out {share:g} of {len(y)} rows leaves {cut} to hold out and {len(y) - cut} to "
            "learn from; choose another share."
        )
    chosen, rest = np.sort(order[:cut]), np.sort(order[cut:])
    outcomes = y.to_frame() if y.ndim == 1 else y
    aside = table.iloc[chosen].assign(**{str(n): outcomes[n].iloc[chosen] for n in outcomes})
    return aside, table.iloc[rest], y.iloc[rest]


def _numbers(weights: pd.Series) -> pd.Series:
    """Return a column of weights as numbers."""
    import pandas as pd

    found = pd.to_numeric(weights, errors="coerce")
    if found.isna().any():
        first = found.isna().idxmax()
        raise ValueError(
            f"--weight: the column {weights.name!r} must hold numbers, got {weights[first]!r} (row "
            f"{first})."
        )
    return found.astype(float)


def _support(text: str | None) -> tuple[float | None, float | None] | None:
    """Read bounds: "0," and ",50" and "0,100"; "none" for no bounds at all."""
    if text is None:
        return None
    if text.strip().lower() == "none":
        return None, None
    parts = [part.strip() for part in text.split(",")]
    try:
        low, high = (float(part) if part else None for part in parts)
    except ValueError:
        raise ValueError(
            "--support takes two numbers separated by a comma, either of which may be missing, "
            f"such as 0, or 0,100; or none. Got {text!r}."
        ) from None
    return low, high


def _make_estimator(name: str, seed: int, **asked: Any) -> ConditionalEstimator:
    from mcdensity._effort import EFFORTS
    from mcdensity.baselines import get_estimator, list_estimators
    from mcdensity.discriminators import list_discriminators
    from mcdensity.mcd import MCD
    from mcdensity.tables import nearest

    method, _, discriminator = name.lower().partition(":")
    time_budget, effort = asked["time_budget"], asked["effort"]
    if asked["n_jobs"] == 0:
        raise ValueError("--n-jobs must not be 0.")
    if time_budget is not None and not 0 < time_budget < float("inf"):
        raise ValueError(f"--time-budget must be a positive number of seconds, got {time_budget}.")
    if effort is not None and effort not in EFFORTS:
        raise ValueError(f"--effort must be one of {', '.join(EFFORTS)}, got {effort!r}.")
    kinds = ("auto", "continuous", "discrete", "mixed")
    if asked["target_kind"] not in (None, *kinds):
        raise ValueError(
            f"--target-kind must be one of {', '.join(kinds)}, got {asked['target_kind']!r}."
        )
    asked = {option: value for option, value in asked.items() if value is not None}
    if method == "mcd" and (not discriminator or discriminator in list_discriminators()):
        options: dict[str, Any] = {"random_state": seed}
        if discriminator:
            options["discriminator"] = discriminator
        if "target_kind" in asked:
            asked["target"] = asked.pop("target_kind")
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
