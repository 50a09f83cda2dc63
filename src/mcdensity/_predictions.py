"""What is asked of predicted laws, and the columns that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mcdensity._validation import require
from mcdensity.distribution import ConditionalDistribution, JointDistribution

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Wanted", "check_predictions"]

# Rows predicted at a time: few enough for their grids to fit in some hundred megabytes.
_BLOCK, _JOINT_BLOCK = 20_000, 200


@dataclass(frozen=True)
class Wanted:
    """What is asked of each distribution."""

    quantiles: Sequence[float] = ()
    coverages: Sequence[float] = ()
    above: Sequence[float] = ()
    grid: Sequence[float] = ()
    samples: int = 0

    def block(self, estimator: Any) -> int:
        """How many rows to predict at a time."""
        return _JOINT_BLOCK if hasattr(estimator, "links_") else _BLOCK

    def table(self, estimator: Any, X: Any, rng: np.random.Generator) -> pd.DataFrame:
        """Predict some rows."""
        pandas = require("pandas", "cli")
        law = estimator.predict_distribution(X)
        if isinstance(law, JointDistribution):
            return pandas.DataFrame(self.columns_of_each(law, rng))
        levels = getattr(estimator, "levels", None)
        return pandas.DataFrame(self.columns(law, rng, levels))

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


def check_predictions(result: pd.DataFrame, as_json: bool = False) -> None:
    """Refuse to write what is not a number; JSON has no infinity either."""
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
