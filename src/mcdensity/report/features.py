"""How the law moves with the main features, over the rows as they are."""

from __future__ import annotations

import html
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._numbers import readable
from mcdensity._validation import require
from mcdensity.inspection import accumulated_local_effects
from mcdensity.inspection._asking import Array, Rows
from mcdensity.report.diagnosis import Evaluation
from mcdensity.report.groups import as_date
from mcdensity.report.page import pictures, section
from mcdensity.report.sections import label_of
from mcdensity.report.svg import Chart, legend

__all__ = ["features_of"]

_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
# Rows whose features are moved, and values to which.
_ROWS, _POINTS = 200, 12
# Texts that are shown, and different numbers that are shown like texts.
_TEXTS, _FEW = 8, 5
_MOST_DOTS = 500
_MISSING = "missing"


def features_of(
    estimator: Any, X: Any, e: Evaluation, n_features: int, target: str, random_state: Any
) -> str:
    """Return two pictures of each of the most important features."""
    rows = Rows(X)
    found = [_Feature(rows, name) for name, _ in e.importance]
    found = [feature for feature in found if feature.varies][:n_features]
    if not found:
        return ""
    quantiles = e.distribution.ppf_grid(_LEVELS)
    table = accumulated_local_effects(
        estimator,
        X,
        [feature.name for feature in found],
        [("quantile", level) for level in _LEVELS],
        n_points=_POINTS,
        n_rows=_ROWS,
        random_state=random_state,
    )
    parts = []
    for feature in found:
        own = table[table["feature"] == feature.name]
        kinds = [part for _, part in own.groupby("functional", sort=False)]
        effects = np.column_stack([part["effect"] for part in kinds])
        # Effects have mean zero: with the mean quantiles they are those of a typical row.
        curves = effects + quantiles.mean(axis=0)
        ends = _ends(e, quantiles, curves)
        drawn = [
            (feature.of_the_rows(e, quantiles, target, ends), "The rows themselves.",
             "Outcomes, and the mean of the predicted quantiles of rows with about this value. "
             "Other features change along with it."),
            (feature.alone(kinds[0]["value"].tolist(), curves, target, ends),
             f"{feature.label} alone.", "How the quantiles of a typical row move: local changes "
             "over the rows as they are, added up (accumulated local effects)."),
        ]  # fmt: skip
        parts += [f"<h3>{html.escape(feature.label)}</h3>", pictures(drawn, "two")]
    marks = legend(
        ("dots", "outcome"), ("line", "median"), ("area inner", "25 to 75 %"), ("area", "5 to 95 %")
    )
    return section(
        "features",
        "How the law moves with the main features",
        "On the left what is, on the right what the feature does by itself. Where features are "
        "correlated the two differ.",
        marks,
        *parts,
    )


class _Feature:
    """A column of the rows: numbers along an axis, or texts beside each other."""

    def __init__(self, rows: Rows, name: Any) -> None:
        self.name, self.label = name, label_of(name)
        self.rows, j = rows, rows.number(name)
        self.few_numbers = False
        self.numbers, self.is_date = rows.numbers(j), rows.is_date(j)
        if self.numbers is not None:
            different = np.unique(self.numbers[np.isfinite(self.numbers)])
            self.varies = len(different) > 1
            if len(different) > _FEW:
                return
            self.text, self.names = self.labels(self.numbers), self.labels(different).tolist()
            self.numbers = None
            self.few_numbers = True
        else:
            self.text = self.labels(rows.column(j))
            names, count = np.unique(self.text, return_counts=True)
            self.varies = len(names) > 1
            self.names = sorted(names[np.argsort(-count, kind="stable")[:_TEXTS]].tolist())

    @staticmethod
    def labels(values: Any) -> NDArray[np.str_]:
        """Return values as they are written on an axis."""
        out = []
        for value in np.asarray(values, dtype=object):
            if value is None or value != value or value == "(missing)":
                out.append(_MISSING)
            else:
                number = isinstance(value, float | int | np.number) and not isinstance(value, bool)
                out.append(readable(float(value)) if number else str(value))
        return np.array(out)

    def as_numbers(self, values: list[Any]) -> Array | None:
        """Return values of this feature as numbers; None for texts."""
        if not self.rows.is_table:
            return np.asarray(values, dtype=np.float64)
        frame = require("pandas", "cli").DataFrame({"value": values})
        return Rows(frame).numbers(0)

    def chart(self, title: str, target: str, ends: tuple[float, float]) -> Chart:
        """Return axes, with nothing on them."""
        labels = (self.label, target)
        if self.numbers is None:
            width = (-0.5, len(self.names) - 0.5)
            return Chart(title, width, ends, labels, categories=self.names)
        low, high = np.quantile(self.numbers[np.isfinite(self.numbers)], [0.005, 0.995])
        written = (as_date if self.is_date else None, None)
        return Chart(title, (float(low), float(high)), ends, labels, written=written)

    def of_the_rows(
        self, e: Evaluation, quantiles: Array, target: str, ends: tuple[float, float]
    ) -> str:
        """Draw outcomes, and mean quantiles of rows with about the same value."""
        chart = self.chart(f"{target} and {self.label} of the rows", target, ends)
        some = np.linspace(0, e.n_rows - 1, min(e.n_rows, _MOST_DOTS)).astype(int)
        if self.numbers is None:
            place = {text: float(k) for k, text in enumerate(self.names)}
            for text, k in place.items():
                _box(chart, k, quantiles[self.text == text].mean(axis=0))
            # Beside each other, so that dots do not cover each other.
            spread = np.random.default_rng(0).uniform(-0.3, 0.3, len(some))
            at = np.array([place.get(text, np.inf) for text in self.text[some]])
            chart.dots(at + spread, e.y[some])
            return chart.markup()
        at = self.numbers
        known = np.isfinite(at)
        edges = np.unique(np.quantile(at[known], np.linspace(0, 1, _POINTS + 1)))
        bins = np.where(known, np.searchsorted(edges[1:-1], at, side="right"), -1)
        used = [k for k in range(len(edges) - 1) if (bins == k).any()]
        middle = np.array([at[bins == k].mean() for k in used])
        _fan(chart, middle, np.stack([quantiles[bins == k].mean(axis=0) for k in used]))
        chart.dots(np.where(known, at, np.inf)[some], e.y[some])
        return chart.markup()

    def alone(
        self, values: list[Any], curves: Array, target: str, ends: tuple[float, float]
    ) -> str:
        """Draw quantiles at values of this feature."""
        chart = self.chart(f"Effect of {self.label} alone on {target}", target, ends)
        found = self.as_numbers(values)
        if self.numbers is None or found is None:
            given = found if self.few_numbers else values
            for text, own in zip(self.labels(given), curves, strict=True):
                if text in self.names:
                    _box(chart, float(self.names.index(text)), own)
            return chart.markup()
        # The outermost values may lie beyond the axis: the curves end where it does.
        at = np.unique(np.clip(found, *chart.x))
        _fan(chart, at, np.stack([np.interp(at, found, own) for own in curves.T], axis=1))
        chart.rug(at)
        return chart.markup()


def _ends(e: Evaluation, quantiles: Array, curves: Array) -> tuple[float, float]:
    """Ends of the y-axis, the same in both pictures."""
    low = float(min(np.quantile(e.y, 0.01), np.quantile(quantiles[:, 0], 0.02), curves.min()))
    high = float(max(np.quantile(e.y, 0.99), np.quantile(quantiles[:, -1], 0.98), curves.max()))
    margin = 0.03 * (high - low)
    return low - margin, high + margin


def _fan(chart: Chart, at: Array, curves: Array) -> None:
    chart.band(at, curves[:, 0], curves[:, 4])
    chart.band(at, curves[:, 1], curves[:, 3], "area inner")
    chart.line(at, curves[:, 2])


def _box(chart: Chart, at: float, curve: Array) -> None:
    chart.bars(at - 0.36, at + 0.36, curve[0], curve[4], "area")
    chart.bars(at - 0.36, at + 0.36, curve[1], curve[3], "area inner")
    chart.line([at - 0.36, at + 0.36], [curve[2], curve[2]])
