"""`mcdensity plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
# Of several targets.
_JOINT_KINDS = ("pairs", "contours")


def plot(
    model: Model,
    data: Data,
    kind: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(_KINDS)}; of several targets {', '.join(_JOINT_KINDS)}. By "
            "default the first."
        ),
    ] = None,
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
    from mcdensity.tables import nearest, read_table

    known = (*_KINDS, *_JOINT_KINDS)
    if kind is not None and kind not in known:
        raise ValueError(
            f"--kind {kind!r} is not known{nearest(kind, known)}; choose from {', '.join(known)}."
        )
    if output.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{output} must end in .png, .svg or .pdf.")
    along = _check_feature(model, kind, feature)
    from matplotlib.figure import Figure

    from mcdensity import plotting

    table, estimator = read_table(data), load_model(model)
    several = hasattr(estimator, "links_")
    choices = _JOINT_KINDS if several else _KINDS
    kind = kind or choices[0]
    if kind not in choices:
        what = "several targets" if several else "one target"
        raise ValueError(
            f"--kind {kind} is not for a model of {what}; choose from {', '.join(choices)}."
        )
    if several:
        _plot_joint(estimator, table, kind, rows, output)
        return
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
        if along is not None:
            plotting.plot_heatmap(estimator, X, along, y=y, ax=ax)
        else:
            chosen = [int(r) for r in split_numbers(rows, "--rows")] or list(range(len(table)))
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
    _save(figure, output)


def _check_feature(model: Path, kind: str | None, feature: str | None) -> str | int | None:
    """Return the feature to move along, or its number; mistakes are found before the model loads.

    A model file says in its head which features it has.
    """
    from mcdensity.persistence import read_info
    from mcdensity.tables import nearest

    if kind != "heatmap":
        if feature is not None:
            raise ValueError("--feature is for --kind heatmap; leave it out, or add that.")
        return None
    if feature is None:
        raise ValueError("--kind heatmap needs a --feature to move along.")
    info = read_info(model)
    names, count = info["feature_names"], info["n_features"]
    if feature in names:
        return feature
    if names:
        raise ValueError(
            f"--feature: the model has no feature {feature!r}{nearest(feature, names)}; choose "
            f"from {', '.join(names)}."
        )
    if not feature.isdigit() or int(feature) >= count:
        raise ValueError(
            f"--feature: the features of the model have no names; give a number from 0 to "
            f"{count - 1}, got {feature!r}."
        )
    return int(feature)


def _save(figure: Any, output: Path) -> None:
    from mcdensity._files import replacing

    with replacing(output) as temporary:
        figure.savefig(temporary, dpi=150, format=output.suffix[1:].lower())
    typer.echo(f"Picture: {output}")


def _plot_joint(estimator: Any, table: Any, kind: str, rows: str | None, output: Path) -> None:
    """Draw the joint law of one row."""
    from matplotlib.figure import Figure

    from mcdensity import plotting

    chosen = [int(r) for r in split_numbers(rows, "--rows")] or [0]
    if len(chosen) > 1 or not 0 <= chosen[0] < len(table):
        raise ValueError(
            f"--rows: the joint law of one row is drawn; name one of 0 to {len(table) - 1}."
        )
    names, outcome = estimator.target_names_, None
    known = [name for name in names if name in table.columns]
    if len(known) == len(names):
        outcome = table[names].iloc[chosen[0]].to_numpy(float)
    X = features_of(estimator, table.drop(columns=known))
    with working(f"Drawing {kind}"):
        d = estimator.predict_distribution(X.iloc[chosen] if hasattr(X, "iloc") else X[chosen])
        side = 2.2 * len(names) + 1 if kind == "pairs" else 6
        figure = Figure(figsize=(side, side), layout="constrained")
        if kind == "pairs":
            plotting.plot_pairs(d, outcome, figure=figure)
        else:
            plotting.plot_contours(d, outcome, ax=figure.subplots())
    _save(figure, output)
