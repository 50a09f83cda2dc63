"""`mcdensity evaluate`, `report` and `info`: how good a model is, and what a file holds."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from mcdensity.cli.shared import (
    Data,
    Files,
    Json,
    Model,
    SkipBadFiles,
    Target,
    is_folder,
    load_model,
    read_held_out,
    working,
)

__all__ = ["evaluate", "info", "report"]


def evaluate(
    model: Model,
    data: Files,
    target: Target = None,
    by: Annotated[
        str | None,
        typer.Option(help="Of a folder, or a large file: by file, or by a column such as month."),
    ] = None,
    skip_bad_files: SkipBadFiles = False,
    as_json: Json = False,
) -> None:
    """Measure a model on held-out rows: log-likelihood, CRPS, coverage, calibration.

    Of a folder: log-likelihood, coverage and calibration by file, or by a column.
    """
    from mcdensity import report

    if is_folder(data) or by is not None:
        _evaluate_files(model, data, target, by or "file", skip_bad_files, as_json)
        return
    estimator, X, y = read_held_out(model, data, target)
    several = hasattr(estimator, "links_")
    with working(f"Evaluating {len(y):,} rows"):
        result: Any = (report.evaluate_joint if several else report.evaluate)(estimator, X, y)
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
        return
    for name, value in _joint_numbers(result) if several else _numbers(result):
        typer.echo(f"{name:36} {value}")
    where = "in the joint {:.0%} region" if several else "in the {:.0%} interval"
    for level, share in result.coverage.items():
        low, high = result.chance(level)
        typer.echo(f"{where.format(level):36} {share:.1%} (by chance {low:.1%} to {high:.1%})")
    for warning in result.warnings:
        typer.secho(f"Warning: {warning}", fg=typer.colors.YELLOW)


def _evaluate_files(
    model: Path, data: Path, target: str | None, by: str, skip_bad_files: bool, as_json: bool
) -> None:
    from mcdensity.streaming.monitoring import evaluate_files
    from mcdensity.streaming.sources import open_source

    source = open_source(data, skip_bad_files=skip_bad_files)
    for name, reason in source.skipped.items():
        typer.secho(f"{name} is left out: {reason}.", fg=typer.colors.YELLOW, err=True)
    found = evaluate_files(load_model(model), source, target=target, by=by, verbose=True)
    if as_json:
        typer.echo(found.reset_index().to_json(orient="records"))
        return
    typer.echo(found.to_string(float_format=lambda value: f"{value:.4g}"))


def _numbers(result: Any) -> list[tuple[str, str]]:
    return [
        ("rows", f"{result.n_rows:,}"),
        ("log-likelihood", f"{result.log_likelihood:.4f} (± {result.log_likelihood_error:.4f})"),
        ("  above that of y alone", f"{result.gain:+.4f}"),
        ("CRPS", f"{result.crps:.5g}"),
        ("mean absolute error of the median", f"{result.mae:.5g}"),
        ("root mean square error of the mean", f"{result.rmse:.5g}"),
        ("PIT uniform, p", f"{result.pit_p_value:.3g}"),
    ]


def _joint_numbers(result: Any) -> list[tuple[str, str]]:
    error = f"(± {result.log_likelihood_error:.4f})"
    return [
        ("rows", f"{result.n_rows:,}"),
        ("joint log-likelihood", f"{result.log_likelihood:.4f} {error}"),
        ("  from knowing all together", f"{result.dependence:+.4f}"),
        ("energy score (units of spread)", f"{result.energy:.5g}"),
        *((f"CRPS of {name}", f"{e.crps:.5g}") for name, e in result.targets.items()),
        ("in 90 % intervals that hold together", f"{result.simultaneous:.1%}"),
    ]


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

    estimator, X, y = read_held_out(model, data, target)
    with working(f"Report on {len(y):,} rows") as advance:
        result = write_report(
            estimator,
            X,
            y,
            output,
            title=title,
            commands=[_command(model, data, output, target, title)],
            progress=lambda _: advance(0),
        )
    if as_json:
        typer.echo(json.dumps({"report": str(output)} | result.as_dict()))
        return
    for warning in result.warnings:
        typer.secho(f"Warning: {warning}", fg=typer.colors.YELLOW)
    typer.echo(f"Report on {result.n_rows:,} rows: {output}")


def _command(model: Path, data: Path, output: Path, target: str | None, title: str | None) -> str:
    """Return the command that writes this report."""
    words = ["mcdensity", "report", str(model), str(data), "-o", str(output)]
    for name, value in (("--target", target), ("--title", title)):
        words += [name, value] if value is not None else []
    return shlex.join(words)


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
    if found.get("target") is not None:
        typer.echo(f"{'target':12} {found['target']}")
    if found.get("distill_loss") is not None:
        typer.echo(f"{'distilled':12} one small network; it loses {found['distill_loss']:.3f} nats")
    typer.echo(f"{'features':12} {found['n_features']}{': ' if names else ''}{', '.join(names)}")
    typer.echo(f"{'format':12} {found['format']}")
    versions = ", ".join(f"{name} {value}" for name, value in found["versions"].items())
    typer.echo(f"{'made with':12} {versions}")
    size = sum(member["size"] for member in found["members"].values())
    typer.echo(f"{'members':12} {len(found['members'])}, {size / 1024:,.0f} kB")
