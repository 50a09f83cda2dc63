"""The command line. Only what is needed is imported, when it is needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

try:
    import typer
except ImportError:  # pragma: no cover
    sys.exit("The command line needs typer and rich: pip install 'mcdensity[cli]'")

from mcdensity.benchmark.commands import bench

if TYPE_CHECKING:
    import pandas as pd

    from mcdensity.estimator import ConditionalEstimator

__all__ = ["app", "main"]

app = typer.Typer(
    name="mcdensity",
    help="The whole distribution of y given x: quantiles, intervals, P(y > v), from a table.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")

_BLOCK = 20_000
_KINDS = ("densities", "hpd", "fan", "heatmap", "pit", "calibration")

Model = Annotated[Path, typer.Argument(help="A model file, from `mcdensity fit`.")]
Data = Annotated[Path, typer.Argument(help="A table: .csv, .tsv or .parquet.")]
Target = Annotated[
    str | None, typer.Option(help="Column with the outcomes, if it is not the model's own.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output, for machines.")]


def main() -> None:
    """Run the command line; what a user can mend is said in one line, without a traceback.

    Exit codes: 0 all went well, 1 something is wrong with the data, the model or a file, 2 the
    command was misspelt, 130 interrupted.
    """
    try:
        app()
    except SystemExit as stop:
        if stop.code == 130:
            typer.secho("What was finished is kept; no file is half written.", err=True)
        raise
    except BrokenPipeError:
        sys.exit(1)
    except MemoryError:
        typer.secho("Error: there is not enough memory for this.", fg=typer.colors.RED, err=True)
        sys.exit(1)
    except (ValueError, TypeError, OSError, ImportError) as error:
        typer.secho(f"Error: {error}", fg=typer.colors.RED, err=True)
        sys.exit(1)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from mcdensity import __version__

        typer.echo(f"mcdensity {__version__}")
        raise typer.Exit


@app.command()
def fit(
    data: Data,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the model goes.")],
    model: Annotated[
        str,
        typer.Option(help="mcd, mcd:DISCRIMINATOR such as mcd:catboost, or a method such as mdn."),
    ] = "mcd",
    drop: Annotated[
        str | None, typer.Option(help="Columns to leave out, with commas between.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="A column with weights of the rows.")] = None,
    hold_out: Annotated[
        float,
        typer.Option(help="Share of the rows to keep back for `report`, written beside the model."),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same model.")] = 0,
    as_json: Json = False,
) -> None:
    """Learn the distribution of a column given the others, and write a model file."""
    import numpy as np

    from mcdensity.persistence import save
    from mcdensity.tables import TableEstimator, read_table, write_table

    if not 0 <= hold_out < 1:
        raise ValueError(f"--hold-out must lie in [0, 1), got {hold_out:g}.")
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder; name a file in it.")
    estimator = TableEstimator(_make_estimator(model, seed))
    table = read_table(data)
    table, y = _take_target(table, target)
    notes = []
    known = y.notna()
    if not known.all():
        notes.append(f"{int((~known).sum())} rows without {target!r} are left out.")
        table, y = table[known], y[known]
    held_out = None
    if hold_out:
        order = np.random.default_rng(seed).permutation(len(y))
        cut = round(hold_out * len(y))
        held_out = output.with_name(f"{output.stem}-held-out.csv")
        chosen = np.sort(order[:cut])
        if cut == 0:
            raise ValueError(f"--hold-out {hold_out:g} of {len(y)} rows is no row.")
        write_table(table.iloc[chosen].assign(**{target: y.iloc[chosen]}), held_out)
        rest = np.sort(order[cut:])
        table, y = table.iloc[rest], y.iloc[rest]
    weights = None if weight is None else _column(table, weight, "weights").astype(float)
    unused = [*_list(drop), *([weight] if weight else [])]
    for name in unused:
        _column(table, name, "to drop")
    table = table.drop(columns=unused)
    with _working(f"Fitting {model} to {len(y):,} rows"):
        estimator.fit(table, y, weights)
    left_out = estimator.preparation_.left_out_
    notes += [f"Column {name!r} is left out: {why}." for name, why in left_out.items()]
    with _working("Writing the model"):
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
        typer.echo(f"Held out {cut:,} rows: {held_out}")


@app.command()
def predict(
    model: Model,
    data: Data,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A table to write; by default CSV is printed."),
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
        str | None, typer.Option(help="Columns of the data to copy, with commas; or all.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For the random draws.")] = 0,
    as_json: Json = False,
) -> None:
    """Predict the distribution of each row of a table.

    Without options: mean, median and the 90 % interval.
    """
    import numpy as np
    import pandas as pd

    from mcdensity.tables import read_table, write_table

    q = _numbers(quantiles, "--quantiles")
    coverages = _numbers(interval, "--interval")
    for name, values in (("--quantiles", q), ("--interval", coverages)):
        if any(not 0 < v < 1 for v in values):
            raise ValueError(f"{name} must lie strictly between 0 and 1, got {values}.")
    values, grid = _numbers(above, "--above"), _grid(density_grid)
    if samples < 0:
        raise ValueError(f"--samples must not be negative, got {samples}.")
    table = read_table(data)
    estimator = _load(model)
    kept = list(table.columns) if keep == "all" else _list(keep)
    for name in kept:
        _column(table, name, "to keep")
    default = not (q or coverages or values or grid or samples)
    X, rng = _features(estimator, table), np.random.default_rng(seed)

    def block(rows: slice) -> dict[str, Any]:
        d = estimator.predict_distribution(X[rows])
        out: dict[str, Any] = {}
        if default:
            out["mean"] = d.mean()
        levels = [0.05, 0.5, 0.95] if default else q
        if levels:
            out |= {f"q{v:g}": c for v, c in zip(levels, d.ppf_grid(levels).T, strict=True)}
        for c in coverages:
            out[f"lower_{100 * c:g}"], out[f"upper_{100 * c:g}"] = d.interval(c).T
        for v in values:
            out[f"above_{v:g}"] = d.sf(v)
        if grid:
            out |= {f"density_{v:g}": c for v, c in zip(grid, d.pdf_grid(grid).T, strict=True)}
        if samples:
            drawn = d.sample(samples, rng)
            out |= {f"sample_{i + 1}": drawn[:, i] for i in range(samples)}
        return out

    parts = []
    with _working("Predicting", total=len(table)) as advance:
        for start in range(0, len(table), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(table)))
            parts.append(pd.DataFrame(block(rows)))
            advance(rows.stop - rows.start)
    result = pd.concat(parts, ignore_index=True)
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


@app.command()
def evaluate(model: Model, data: Data, target: Target = None, as_json: Json = False) -> None:
    """Measure a model on held-out rows: log-likelihood, CRPS, coverage, calibration."""
    from mcdensity.report import evaluate as measure

    estimator, X, y = _held_out(model, data, target)
    with _working(f"Evaluating {len(y):,} rows"):
        result = measure(estimator, X, y)
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
        return
    numbers = (
        ("rows", f"{result.n_rows:,}"),
        ("log-likelihood", f"{result.log_likelihood:.4f} (± {result.log_likelihood_error:.4f})"),
        ("  above that of y alone", f"{result.gain:+.4f}"),
        ("CRPS", f"{result.crps:.5g}"),
        ("mean absolute error of the median", f"{result.mae:.5g}"),
        ("root mean square error of the mean", f"{result.rmse:.5g}"),
        ("PIT uniform, p", f"{result.pit_p_value:.3g}"),
    )
    for name, value in numbers:
        typer.echo(f"{name:36} {value}")
    for level, share in result.coverage.items():
        low, high = result.chance(level)
        typer.echo(
            f"{f'in the {level:.0%} interval':36} {share:.1%} (by chance {low:.1%} to {high:.1%})"
        )
    for warning in result.warnings:
        typer.secho(f"Warning: {warning}", fg=typer.colors.YELLOW)


@app.command()
def report(
    model: Model,
    data: Data,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file.")] = Path(
        "report.html"
    ),
    target: Target = None,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
    as_json: Json = False,
) -> None:
    """Write a report on held-out rows: one HTML file with tables, pictures and warnings."""
    from mcdensity.report import write_report

    estimator, X, y = _held_out(model, data, target)
    with _working(f"Report on {len(y):,} rows") as advance:
        result = write_report(estimator, X, y, output, title=title, progress=lambda _: advance(0))
    if as_json:
        typer.echo(json.dumps({"report": str(output)} | result.as_dict()))
        return
    for warning in result.warnings:
        typer.secho(f"Warning: {warning}", fg=typer.colors.YELLOW)
    typer.echo(f"Report on {result.n_rows:,} rows: {output}")


@app.command()
def plot(
    model: Model,
    data: Data,
    kind: Annotated[str, typer.Option(help=f"One of {', '.join(_KINDS)}.")] = "densities",
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A picture: .png, .svg or .pdf.")
    ] = Path("plot.png"),
    rows: Annotated[
        str | None, typer.Option(help="Rows to draw, such as 0,5,7 (densities and hpd).")
    ] = None,
    feature: Annotated[
        str | None, typer.Option(help="The feature to move along (heatmap).")
    ] = None,
    target: Target = None,
) -> None:
    """Draw a picture of predicted distributions."""
    from matplotlib.figure import Figure

    from mcdensity import plotting
    from mcdensity._files import replacing
    from mcdensity.tables import nearest, read_table

    if kind not in _KINDS:
        raise ValueError(
            f"--kind {kind!r} is not known{nearest(kind, _KINDS)}; choose from {', '.join(_KINDS)}."
        )
    if output.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{output} must end in .png, .svg or .pdf.")
    table, estimator = read_table(data), _load(model)
    name = target or getattr(estimator, "target_", None)
    y = None
    if name in table.columns:
        table, column = _take_target(table, str(name))
        y = column.to_numpy(float)
    elif kind in ("pit", "calibration"):
        raise ValueError(f"--kind {kind} needs outcomes; name their column with --target.")
    X = _features(estimator, table)
    figure = Figure(figsize=(7, 5), layout="constrained")
    ax = figure.subplots()
    with _working(f"Drawing {kind}"):
        if kind == "heatmap":
            if feature is None:
                raise ValueError("--kind heatmap needs a --feature to move along.")
            plotting.plot_heatmap(estimator, X, feature, y=y, ax=ax)
        else:
            chosen = [int(r) for r in _numbers(rows, "--rows")] or list(range(len(table)))
            if kind in ("densities", "hpd") and rows is None:
                chosen = chosen[:5]
            wrong = [r for r in chosen if not 0 <= r < len(table)]
            if wrong:
                raise ValueError(f"--rows: there is no row {wrong[0]}; the table has {len(table)}.")
            d = estimator.predict_distribution(X.iloc[chosen] if hasattr(X, "iloc") else X[chosen])
            outcomes = None if y is None else y[chosen]
            labels = [f"row {r}" for r in chosen]
            if kind in ("densities", "hpd"):
                getattr(plotting, f"plot_{kind}")(d, outcomes, labels=labels, ax=ax)
            else:
                getattr(plotting, f"plot_{kind}")(d, outcomes, ax=ax)
    axis = {"densities": "x", "hpd": "x", "fan": "y", "heatmap": "y"}.get(kind)
    if axis and name:
        ax.set(**{f"{axis}label": name})
    with replacing(output) as temporary:
        figure.savefig(temporary, dpi=150, format=output.suffix[1:].lower())
    typer.echo(f"Picture: {output}")


@app.command()
def info(model: Model, as_json: Json = False) -> None:
    """Say what a model file holds, without loading the model."""
    from mcdensity.persistence import read_info

    found = read_info(model)
    if as_json:
        typer.echo(json.dumps(found))
        return
    names = found["feature_names"]
    typer.echo(f"{'class':12} {found['class']}")
    typer.echo(f"{'parameters':12} {' '.join(found['parameters'].split())}")
    typer.echo(f"{'features':12} {found['n_features']}{': ' if names else ''}{', '.join(names)}")
    typer.echo(f"{'format':12} {found['format']}")
    versions = ", ".join(f"{name} {value}" for name, value in found["versions"].items())
    typer.echo(f"{'made with':12} {versions}")
    size = sum(member["size"] for member in found["members"].values())
    typer.echo(f"{'members':12} {len(found['members'])}, {size / 1024:,.0f} kB")


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write to.")] = Path(
        "demo"
    ),
) -> None:
    """Show the way from a CSV file to a report, on data that come with scikit-learn."""
    from sklearn.datasets import load_diabetes

    from mcdensity.tables import write_table

    table = load_diabetes(as_frame=True, scaled=False).frame
    table["sex"] = table["sex"].map({1.0: "female", 2.0: "male"})
    table = table.rename(columns={"target": "progression"})
    output.mkdir(parents=True, exist_ok=True)
    names = ("diabetes.csv", "model.mcd", "model-held-out.csv", "predictions.csv", "report.html")
    data, model, held_out, predictions, page = (output / name for name in names)
    write_table(table, data)
    steps: tuple[tuple[str, Any], ...] = (
        (f"fit {data} --target progression --hold-out 0.3 -o {model}",
         lambda: fit(data, "progression", model, hold_out=0.3)),
        (f"predict {model} {held_out} --interval 0.9 --above 200 --keep progression "
         f"-o {predictions}",
         lambda: predict(model, held_out, predictions, interval="0.9", above="200",
                         keep="progression")),
        (f"report {model} {held_out} -o {page}", lambda: report(model, held_out, page)),
    )  # fmt: skip
    for text, step in steps:
        typer.secho(f"$ mcdensity {text}", bold=True)
        step()
    typer.echo(f"Open {page} in a browser.")


# Helpers.


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _numbers(text: str | None, option: str) -> list[float]:
    try:
        return [float(part) for part in _list(text)]
    except ValueError as error:
        raise ValueError(f"{option} takes numbers with commas between, got {text!r}.") from error


def _grid(text: str | None) -> list[float]:
    if text is None or ":" not in text:
        return _numbers(text, "--density-grid")
    import numpy as np

    try:
        low, high, count = text.split(":")
        grid = np.linspace(float(low), float(high), int(count))
    except ValueError as error:
        raise ValueError(
            f"--density-grid takes LOW:HIGH:COUNT, or numbers with commas, got {text!r}."
        ) from error
    if len(grid) == 0 or not np.isfinite(grid).all():
        raise ValueError(f"--density-grid must have finite ends and a count, got {text!r}.")
    return grid.tolist()


@contextmanager
def _working(text: str, total: int | None = None) -> Iterator[Any]:
    """Show a bar with the time that passed, on standard error, while something takes long."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda count: bar.advance(task, count)


def _make_estimator(name: str, seed: int) -> ConditionalEstimator:
    from mcdensity.baselines import get_estimator, list_estimators
    from mcdensity.discriminators import list_discriminators
    from mcdensity.mcd import MCD
    from mcdensity.tables import nearest

    method, _, discriminator = name.lower().partition(":")
    if method == "mcd" and (not discriminator or discriminator in list_discriminators()):
        return MCD(discriminator, random_state=seed) if discriminator else MCD(random_state=seed)
    if name.lower() in list_estimators():
        estimator = get_estimator(name.lower())
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=seed)
        return estimator
    known = ["mcd", *(f"mcd:{d}" for d in list_discriminators()), *list_estimators()]
    raise ValueError(
        f"--model {name!r} is not known{nearest(name, known)}; choose from {', '.join(known)}."
    )


def _column(table: pd.DataFrame, name: str, what: str) -> pd.Series:
    from mcdensity.tables import nearest

    if name not in table.columns:
        raise ValueError(
            f"There is no column {name!r} ({what}){nearest(name, table.columns)}; the table has "
            f"{', '.join(map(str, table.columns))}."
        )
    return table[name]


def _take_target(table: pd.DataFrame, name: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return the other columns, and the target as numbers."""
    import pandas as pd

    column = _column(table, name, "the target")
    if pd.api.types.is_datetime64_any_dtype(column):
        raise ValueError(f"The target {name!r} holds dates; turn it into a number first.")
    y = pd.to_numeric(column, errors="coerce")
    wrong = column[y.isna() & column.notna()]
    if len(wrong):
        raise ValueError(
            f"The target {name!r} holds text, such as {str(wrong.iloc[0])!r} (row "
            f"{int(wrong.index[0])}); a density needs numbers."
        )
    return table.drop(columns=name), y.astype(float)


def _load(path: Path) -> ConditionalEstimator:
    from mcdensity.persistence import load

    with _working("Loading the model"):
        return load(path)


def _features(estimator: ConditionalEstimator, table: pd.DataFrame) -> Any:
    """Return what the estimator takes: a table, or the columns that an array had."""
    from mcdensity.tables import TableEstimator

    if isinstance(estimator, TableEstimator):
        return table
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        for name in names:
            _column(table, name, "a feature of the model")
        return table[list(names)]
    if table.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"The model was fitted to {estimator.n_features_in_} columns without names, and the "
            f"table has {table.shape[1]}; give a table with these columns alone, in their order."
        )
    return table.to_numpy(dtype=float)


def _held_out(model: Path, data: Path, target: str | None) -> tuple[Any, Any, Any]:
    """Load a model, and a table with known outcomes."""
    from mcdensity.tables import read_table

    table, estimator = read_table(data), _load(model)
    name = target or getattr(estimator, "target_", None)
    if name is None:
        raise ValueError("The model does not know the name of its target; give --target.")
    table, y = _take_target(table, name)
    known = y.notna()
    if not known.all():
        typer.echo(f"{int((~known).sum())} rows without {name!r} are left out.", err=True)
        table, y = table[known], y[known]
    table = table.reset_index(drop=True)
    return estimator, _features(estimator, table), y.to_numpy()


if __name__ == "__main__":
    main()
