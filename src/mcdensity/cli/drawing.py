"""`mcdensity plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mcdensity.cli.shared import (
    Data,
    Model,
    Target,
    features_of,
    load_model,
    split_numbers,
    take_target,
    working,
)

__all__ = ["plot"]

_KINDS = ("densities", "hpd", "fan", "heatmap", "pit", "calibration")


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
    table, estimator = read_table(data), load_model(model)
    name = target or getattr(estimator, "target_", None)
    y = None
    if name in table.columns:
        table, column = take_target(table, str(name))
        y = column.to_numpy(float)
    elif kind in ("pit", "calibration"):
        raise ValueError(f"--kind {kind} needs outcomes; name their column with --target.")
    X = features_of(estimator, table)
    figure = Figure(figsize=(7, 5), layout="constrained")
    ax = figure.subplots()
    with working(f"Drawing {kind}"):
        if kind == "heatmap":
            if feature is None:
                raise ValueError("--kind heatmap needs a --feature to move along.")
            plotting.plot_heatmap(estimator, X, feature, y=y, ax=ax)
        else:
            chosen = [int(r) for r in split_numbers(rows, "--rows")] or list(range(len(table)))
            if kind in ("densities", "hpd") and rows is None:
                chosen = chosen[:5]
            wrong = [r for r in chosen if not 0 <= r < len(table)]
            if wrong:
                raise ValueError(f"--rows: there is no row {wrong[0]}; the table has {len(table)}.")
            d = estimator.predict_distribution(X.iloc[chosen] if hasattr(X, "iloc") else X[chosen])
            from mcdensity.distribution.joint import refuse_joint

            refuse_joint(d, "`plot`")
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
