"""`mcdensity predict`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcdensity.cli.shared import (
    Data,
    Json,
    Model,
    features_of,
    find_column,
    load_model,
    split_list,
    split_numbers,
    working,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from mcdensity.distribution import ConditionalDistribution, JointDistribution

__all__ = ["predict"]

# Rows predicted at a time: few enough for their grids to fit in some hundred megabytes.
_BLOCK, _JOINT_BLOCK = 20_000, 200


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
        str | None, typer.Option(help="Columns of the data to copy, separated by commas; or all.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For the random draws.")] = 0,
    as_json: Json = False,
) -> None:
    """Predict the distribution of each row of a table.

    Without options: mean, median and the 90 % interval.
    """
    import numpy as np
    import pandas as pd

    from mcdensity.distribution import JointDistribution
    from mcdensity.tables import read_table, write_table

    wanted = _Wanted.of(quantiles, interval, above, density_grid, samples)
    table = read_table(data)
    estimator = load_model(model)
    kept = list(table.columns) if keep == "all" else split_list(keep)
    for name in kept:
        find_column(table, name, "to keep")
    X, rng = features_of(estimator, table), np.random.default_rng(seed)
    parts = []
    with working("Predicting", total=len(table)) as advance:
        size = _JOINT_BLOCK if hasattr(estimator, "links_") else _BLOCK
        for start in range(0, len(table), size):
            rows = slice(start, min(start + size, len(table)))
            distribution = estimator.predict_distribution(X[rows])
            levels = getattr(estimator, "levels", None)
            if isinstance(distribution, JointDistribution):
                columns = wanted.columns_of_each(distribution, rng)
            else:
                columns = wanted.columns(distribution, rng, levels)
            parts.append(pd.DataFrame(columns))
            advance(rows.stop - rows.start)
    result = pd.concat(parts, ignore_index=True)
    _check_predictions(result, as_json)
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


@dataclass(frozen=True)
class _Wanted:
    """What is asked of each distribution."""

    quantiles: list[float]
    coverages: list[float]
    above: list[float]
    grid: list[float]
    samples: int

    @classmethod
    def of(
        cls,
        quantiles: str | None,
        interval: str | None,
        above: str | None,
        density_grid: str | None,
        samples: int,
    ) -> _Wanted:
        q = split_numbers(quantiles, "--quantiles")
        coverages = split_numbers(interval, "--interval")
        for name, values in (("--quantiles", q), ("--interval", coverages)):
            if any(not 0 < v < 1 for v in values):
                raise ValueError(f"{name} must lie strictly between 0 and 1, got {values}.")
        if samples < 0:
            raise ValueError(f"--samples must not be negative, got {samples}.")
        return cls(q, coverages, split_numbers(above, "--above"), _grid(density_grid), samples)

    def columns_of_each(self, d: JointDistribution, rng: np.random.Generator) -> dict[str, Any]:
        """Return the columns of several targets, which begin with their names."""
        if self.grid:
            raise ValueError("--density-grid is for one target; use --samples.")
        out: dict[str, Any] = {}
        nothing_asked = not any(vars(self).values())
        q = [0.05, 0.5, 0.95] if nothing_asked else self.quantiles
        mean = d.mean() if nothing_asked else None
        for j, name in enumerate(d.names):
            one = d.marginal(j)
            if mean is not None:
                out[f"{name}_mean"] = mean[:, j]
            if q:
                numbers = zip(q, one.ppf_grid(q).T, strict=True)
                out |= {f"{name}_q{_digits(v)}": c for v, c in numbers}
            for c in self.coverages:
                low, high = f"{name}_lower_{100 * c:g}", f"{name}_upper_{100 * c:g}"
                out[low], out[high] = one.interval(c).T
            out |= {f"{name}_above_{v:g}": one.sf(v) for v in self.above}
        if self.samples:
            drawn = d.sample(self.samples, rng)
            for j, name in enumerate(d.names):
                out |= {f"{name}_sample_{i + 1}": drawn[:, i, j] for i in range(self.samples)}
        return out

    def columns(
        self, d: ConditionalDistribution, rng: np.random.Generator, levels: list[str] | None = None
    ) -> dict[str, Any]:
        """Return the columns of the predictions, by name.

        Of a target with levels: the probability of each, and what else is asked for by number.
        """
        nothing_asked = not any(vars(self).values())
        if levels:
            own = {f"p_{name}": d.pmf(float(i)) for i, name in enumerate(levels)}
            if nothing_asked:
                return own
            return own | self.columns(d, rng)
        out: dict[str, Any] = {"mean": d.mean()} if nothing_asked else {}
        q = [0.05, 0.5, 0.95] if nothing_asked else self.quantiles
        if q:
            out |= {f"q{v:g}": c for v, c in zip(q, d.ppf_grid(q).T, strict=True)}
        for c in self.coverages:
            out[f"lower_{100 * c:g}"], out[f"upper_{100 * c:g}"] = d.interval(c).T
        for v in self.above:
            out[f"above_{v:g}"] = d.sf(v)
        if self.grid:
            columns = zip(self.grid, d.pdf_grid(self.grid).T, strict=True)
            out |= {f"density_{v:g}": c for v, c in columns}
        if self.samples:
            drawn = d.sample(self.samples, rng)
            out |= {f"sample_{i + 1}": drawn[:, i] for i in range(self.samples)}
        return out


def _digits(level: float) -> str:
    """Digits of a probability: 05, 50, 025."""
    return f"{level:g}".partition(".")[2].ljust(2, "0")


def _check_predictions(result: pd.DataFrame, as_json: bool) -> None:
    """Refuse to write what is not a number; JSON has no infinity either."""
    import numpy as np

    values = result.to_numpy(dtype=float)
    wrong = ~np.isfinite(values) if as_json else np.isnan(values)
    if wrong.any():
        rows = np.flatnonzero(wrong.any(axis=1))
        name = result.columns[int(np.argmax(wrong[rows[0]]))]
        raise ValueError(
            f"The model predicts no number for {len(rows):,} of {len(result):,} rows (the first is "
            f"row {rows[0]}, {name}); nothing is written: look at the features of these rows, or "
            "fit the model again."
        )


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
