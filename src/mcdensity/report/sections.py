"""The sections of a report on one target."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from mcdensity import metrics
from mcdensity._numbers import readable
from mcdensity.distribution import MixedDistribution
from mcdensity.inspection._asking import Array, Rows
from mcdensity.report.diagnosis import Evaluation
from mcdensity.report.groups import Part, by_feature, by_level, misses
from mcdensity.report.page import (
    Cell,
    boxes,
    number,
    percent,
    pictures,
    section,
    share,
    shown,
    side,
    table_of,
)
from mcdensity.report.svg import Chart, bar, interval_meter, legend, sparkline
from mcdensity.target_kind import describe

__all__ = [
    "calibration", "headline", "importances", "label_of", "levels", "numbers", "pit_chart",
    "rows_of", "target_of", "warnings_of", "wrong",
]  # fmt: skip

# Best and worst rows: as many as a table shows at a glance.
_EXTREMES = 5
# Points of a picture: more would cover each other.
_MOST_DOTS = 800
# Values of a discrete target, in a table.
_MOST_ATOMS = 12
_GRID = 80


def label_of(feature: Any) -> str:
    """Return a feature's name, or the number of its column."""
    return feature if isinstance(feature, str) else f"feature {feature}"


def headline(e: Evaluation) -> str:
    """Say in one sentence how good the predictions are, as HTML."""
    width = float(np.median(np.diff(e.distribution.interval(0.9), axis=1)))
    alone = float(np.diff(np.quantile(e.y, [0.05, 0.95]))[0])
    wide = f"typically <b>{readable(width, 2)} wide</b>" if width > 0 else "mostly one value"
    return (
        f"90 % intervals hold <b>{percent(e.coverage[0.9], 0)} of outcomes</b>; {wide}; "
        f"<b>{_sharpness(alone, width)}</b> without features."
    )


def _sharpness(alone: float, width: float) -> str:
    """Compare the width of intervals with that of y alone."""
    if not (width > 0 and alone > 0) or 0.95 < alone / width < 1.05:
        return "about as sharp as"
    ratio = alone / width
    if ratio < 1:
        return "less sharp than"
    for times, words in ((2, "twice"), (3, "three times"), (4, "four times"), (5, "five times")):
        if abs(ratio / times - 1) < 0.07:
            return f"{words} as sharp as"
    if ratio < 1.9:
        return f"{percent(1 - 1 / ratio, 0)} narrower than"
    return f"{readable(ratio, 2)} times as sharp as"


def numbers(e: Evaluation) -> str:
    """Return the main numbers."""
    return boxes([
        (f"{e.n_rows:,}", "held-out rows"),
        (percent(e.coverage[0.9]), "of outcomes in their 90 % interval"),
        (readable(e.mae, 3), "mean absolute error of the median"),
        (readable(e.crps, 3), "CRPS: mean error of the whole distribution"),
        (f"{e.log_likelihood:.3f}", f"mean log-{e.what} (± {e.log_likelihood_error:.3f})"),
        (
            "unknown" if np.isnan(e.gain) else f"{e.gain:+.3f}",
            f"nats per row above the {e.what} of y alone",
        ),
    ])  # fmt: skip


def calibration(e: Evaluation, target: str) -> str:
    """Return coverage by level, PIT, calibration curve and fan."""
    body = []
    for level, observed in e.coverage.items():
        low, high = e.chance(level)
        off = not low <= observed <= high
        body.append([
            Cell(percent(level, 0), level), share(observed, "off" if off else ""),
            Cell(f"{100 * low:.1f} to {percent(high)}", low), number(e.width[level]),
        ])  # fmt: skip
    head = ["interval", "holds", "by chance", "mean width"]
    more = " With single values that have a probability, intervals hold more than they must."
    more = more if len(e.distribution.atoms) else ""
    return section(
        "calibration",
        "Do the intervals hold?",
        "How many outcomes lie in their central interval, and how many would in 19 of 20 samples "
        f"if the distributions were right.{more}",
        side(
            table_of(head, body, sortable=False)
            + pictures([(pit_chart(e), "PIT histogram.", "Flat is right. A bowl: too narrow; a "
                         "hump: too wide; a slope: too low or too high. The band is chance.")]),
            pictures([
                (_fan(e, target), "Fan chart.", "Median, 50 and 90 % intervals of rows ordered by "
                 "their median, with outcomes."),
                (_curve(e), "Calibration curve.", "How often outcomes lie below each predicted "
                 "quantile; the diagonal is right."),
            ]),
        ),
    )  # fmt: skip


def pit_chart(e: Evaluation) -> str:
    """Draw the histogram of F(y|x), with a band of chance."""
    value, bins = metrics.pit(e.distribution, e.y), 10
    count, edges = np.histogram(value, bins=bins, range=(0, 1))
    height = count * bins / e.n_rows
    low, high = (stats.binom.ppf(q, e.n_rows, 1 / bins) * bins / e.n_rows for q in (0.025, 0.975))
    chart = Chart("PIT histogram", (0, 1), (0, 1.1 * max(high, height.max())),
                  ("F(y|x) of the outcomes", "relative frequency"))  # fmt: skip
    chart.bars(edges[:-1] + 0.004, edges[1:] - 0.004, 0, height)
    chart.band([0, 1], [low, low], [high, high], "chance")
    chart.line([0, 1], [1, 1], "even")
    return chart.markup()


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def _curve(e: Evaluation) -> str:
    level = np.sort(metrics.pit(e.distribution, e.y))
    n = len(level)
    band = float(stats.kstwo.ppf(0.95, n))
    chart = Chart("Calibration curve", (0, 1), (0, 1), ("predicted probability", "observed share"),
                  written=(_percent, _percent))  # fmt: skip
    at = np.linspace(0, 1, 51)
    chart.band(at, np.maximum(at - band, 0), np.minimum(at + band, 1), "chance")
    chart.line([0, 1], [0, 1], "even")
    at = np.linspace(0, 1, 201)
    chart.line(at, np.interp(at, np.r_[0, level, 1], np.r_[0, (np.arange(n) + 0.5) / n, 1]))
    return chart.markup()


def _fan(e: Evaluation, target: str) -> str:
    chosen = np.linspace(0, e.n_rows - 1, min(e.n_rows, 300)).astype(int)
    order = np.argsort(e.distribution.median(), kind="stable")[chosen]
    found = e.distribution[order].ppf_grid([0.05, 0.25, 0.5, 0.75, 0.95])
    chart = Chart("Fan chart", (0, len(order) - 1), _range(e, found),
                  ("rows, by their median", target))  # fmt: skip
    at = np.arange(len(order))
    chart.band(at, found[:, 0], found[:, 4])
    chart.band(at, found[:, 1], found[:, 3], "area inner")
    chart.line(at, found[:, 2])
    chart.dots(at, e.y[order])
    return chart.markup()


def _range(e: Evaluation, quantiles: Array) -> tuple[float, float]:
    """Ends of an axis of y: what is predicted, and nearly all outcomes."""
    low = min(float(quantiles.min()), float(np.quantile(e.y, 0.005)))
    high = max(float(quantiles.max()), float(np.quantile(e.y, 0.995)))
    return low - 0.02 * (high - low), high + 0.02 * (high - low)


def levels(e: Evaluation, X: Any) -> str:
    """Return coverage by predicted level and by group."""
    parts, level = [], by_level(e)
    if level:
        parts.append(f"<h3>By predicted level</h3>{_parts(level, 'predicted median', False)}")
    names = [name for name, _ in e.importance]
    rows = Rows(X)
    texts = [name for name in names if rows.numbers(rows.number(name)) is None]
    chosen = [name for name in names if name in texts[:4] or name in names[:4]]
    groups = by_feature(e, X, chosen)
    if groups:
        parts.append(f"<h3>By group</h3>{_parts(groups, 'group', True)}")
    if not parts:
        parts.append(f"<p>{e.n_rows} rows are too few to split.</p>")
    return section(
        "groups",
        "Coverage by predicted level and by group",
        "The 90 % intervals of parts of the rows: the dot is what they hold, the grey bar what 19 "
        "of 20 samples would show. Orange: less likely than 1 in 200 if the intervals were right. "
        "Bias is the mean of outcomes minus predicted means.",
        *parts,
    )


def _parts(parts: Sequence[Part], name: str, features: bool) -> str:
    lowest = min(min(p.coverage, p.chance[0]) for p in parts)
    ends = (max(0.0, min(0.75, lowest - 0.02)), 1.0)
    body = []
    for p in parts:
        first = [Cell(p.feature, kind="text")] if features else []
        meter = interval_meter(p.coverage, *p.chance, p.off, ends)
        body.append([
            *first, Cell(p.label, p.order if not features else None, "text"),
            Cell(f"{p.n_rows:,}", p.n_rows),
            Cell(percent(p.coverage), p.coverage, "off" if p.off else "", meter),
            number(p.width, 3), number(p.error, 3), number(p.bias, 2),
        ])  # fmt: skip
    head = ["feature"] if features else []
    return table_of(
        [*head, name, "rows", "in 90 % intervals", "typical width", "mean error", "bias"], body
    )


def wrong(e: Evaluation, target: str) -> str:
    """Return where predictions fail, and by how much."""
    below, above = misses(e)
    body = [
        [
            Cell(words, kind="text"), Cell(f"{m.n_rows:,}", m.n_rows), share(m.share),
            Cell(percent(m.expected), m.expected), number(m.typical, 3), number(m.worst, 3),
        ]
        for words, m in (("below their interval", below), ("above their interval", above))
    ]  # fmt: skip
    median = e.distribution.median()
    off = np.abs(e.y - median)
    half, most = np.quantile(off, [0.5, 0.9])
    constant = float(np.abs(e.y - np.median(e.y)).mean())
    said = (
        f"Half of the outcomes are within {readable(float(half), 3)} of the predicted median, 9 of "
        f"10 within {readable(float(most), 3)}. The mean error is {readable(e.mae, 3)}; that of "
        f"one value for all rows would be {readable(constant, 3)}."
    )
    low, high = e.distribution.interval(0.9).T
    out = (e.y < low) | (e.y > high)
    chosen = np.linspace(0, e.n_rows - 1, min(e.n_rows, _MOST_DOTS)).astype(int)
    ends = _range(e, median)
    chart = Chart("Predicted and observed", ends, ends, ("predicted median", target),
                  size=(460, 300))  # fmt: skip
    chart.line(ends, ends, "even")
    chart.dots(median[chosen], e.y[chosen])
    chart.dots(median[chosen][out[chosen]], e.y[chosen][out[chosen]], "dots out")
    marks = legend(("dots", "outcome"), ("dots out", "outside of its 90 % interval"),
                   ("even", "as predicted"))  # fmt: skip
    head = ["outcomes", "rows", "share", "expected", "typically by", "at most by"]
    return section(
        "wrong",
        "Where it is wrong, and by how much",
        said,
        side(
            table_of(head, body, sortable=False),
            pictures([(chart.markup() + marks, "Predicted and observed.", "Each dot is a row.")]),
        ),
    )


def rows_of(e: Evaluation, X: Any, target: str) -> str:
    """Return the best and the worst predicted rows."""
    order = np.argsort(e.density, kind="stable")
    k = min(_EXTREMES, e.n_rows // 2)
    rows = Rows(X)
    columns = [rows.number(name) for name, _ in e.importance[:4]]
    parts = []
    for word, chosen in (("worst", order[:k]), ("best", order[::-1][:k])):
        law = e.distribution[chosen]
        interval, median = law.interval(0.9), law.median()
        ends = law.ppf_grid([0.005, 0.995])
        low = min(float(ends.min()), float(e.y[chosen].min()))
        grid = np.linspace(low, max(float(ends.max()), float(e.y[chosen].max())), _GRID)
        curves = _curves(law, grid)
        body = []
        for i, row in enumerate(chosen):
            curve = None if curves is None else curves[i]
            name = f"Law of row {row}, with its outcome"
            drawn = sparkline(grid, curve, law.atoms, law.masses[i], float(e.y[row]), name)
            body.append([
                Cell(str(row), float(row)), Cell(markup=drawn, value=float(median[i])),
                number(e.y[row], 5), number(median[i]),
                Cell(f"{readable(interval[i, 0])} to {readable(interval[i, 1])}", interval[i, 0]),
                Cell(f"{e.density[row]:.2f}", e.density[row]),
                *(shown(_at(rows.column(j), row)) for j in columns),
            ])  # fmt: skip
        head = ["row", "law and outcome", target, "median", "90 % interval", f"log-{e.what}"]
        names = [label_of(rows.names[j]) for j in columns]
        parts += [f"<h3>The {word}</h3>", table_of([*head, *names], body)]
    return section(
        "rows",
        "The worst and the best predicted rows",
        "By the likelihood of their outcome, which is the orange line. The pictures of a table "
        "have the same scale.",
        *parts,
    )


def _curves(law: Any, grid: Array) -> Array | None:
    """Densities of rows on a grid, without atoms; None where there are only atoms."""
    if law.is_discrete:
        return None
    return (law.rest if isinstance(law, MixedDistribution) else law).pdf_grid(grid)


def _at(column: Any, row: int) -> Any:
    return column.iloc[row] if hasattr(column, "iloc") else column[row]


def importances(e: Any) -> str:
    """Return how much the features matter."""
    losses = e.importance[:20]
    most = max((loss + 2 * e.importance_error[name] for name, loss in losses), default=0.0)
    body = [
        [
            Cell(label_of(name), kind="text"), Cell(f"{loss:.3f}", loss),
            Cell(f"± {e.importance_error[name]:.3f}", e.importance_error[name]),
            Cell(markup=bar(loss, e.importance_error[name], most), value=loss),
        ]
        for name, loss in losses
    ]  # fmt: skip
    rest = len(e.importance) - len(losses)
    more = f" {rest} more features matter less." if rest else ""
    return section(
        "importance",
        "What the features are worth",
        "Log-likelihood that is lost, in nats per row, when a feature is shuffled among the "
        "held-out rows, with its standard error over shufflings. The whisker is two of them. A "
        f"feature that another one can replace loses little.{more}",
        table_of(["feature", "loss", "standard error", ""], body),
    )


def target_of(estimator: Any, e: Evaluation, target: str) -> str:
    """Return what the target is, and how outcomes and predictions compare over all rows."""
    inner = getattr(estimator, "estimator_", estimator)
    said = f"The target is {describe(inner)}." if hasattr(inner, "target_kind_") else ""
    said = f"{said} Held-out outcomes lie between {readable(float(e.y.min()))} and "
    said += f"{readable(float(e.y.max()))}."
    drawn = pictures([(_marginal(e, target), "All rows together.", "Bars: outcomes. Line: the "
                       "mean of the predicted laws.")])  # fmt: skip
    return section("target", "The target", said.strip(), side(_shares(e), drawn))


def _shares(e: Evaluation) -> str:
    """Compare outcomes of all rows with predictions: shares of atoms, and quantiles."""
    law, atoms = e.distribution, e.distribution.atoms
    parts = []
    if len(atoms):
        observed = np.array([(e.y == atom).mean() for atom in atoms])
        predicted = law.masses.mean(axis=0)
        seen = np.sort(np.argsort(-np.maximum(observed, predicted), kind="stable")[:_MOST_ATOMS])
        body: list[list[Cell]] = [
            [number(atoms[i]), share(observed[i]), share(predicted[i])]
            for i in seen
            if max(observed[i], predicted[i]) > 0.0005
        ]
        parts.append(table_of(["value", "of outcomes", "of predictions"], body))
    if not law.is_discrete:
        # Quantiles of all laws together, from evenly spaced ones of each.
        together = law.ppf_grid(np.linspace(0.005, 0.995, 100)).ravel()
        body = [
            [Cell(percent(q, 0), q), number(np.quantile(e.y, q)), number(np.quantile(together, q))]
            for q in (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
        ]
        head = ["quantile over all rows", "of outcomes", "of predictions"]
        parts.append(table_of(head, body, sortable=False))
    return "".join(parts)


def _marginal(e: Evaluation, target: str) -> str:
    law = e.distribution
    if law.is_discrete:
        known = (law.atoms >= e.y.min()) & (
            law.atoms <= max(e.y.max(), np.quantile(law.ppf(0.9), 0.9))
        )
        known = known if known.any() else np.ones(len(law.atoms), dtype=bool)
        at, predicted = law.atoms[known], law.masses.mean(axis=0)[known]
        observed = np.array([(e.y == value).mean() for value in at])
        step = float(np.diff(at).min()) if len(at) > 1 else 1.0
        top = 1.1 * max(observed.max(), predicted.max())
        chart = Chart("Outcomes and predictions", (at[0] - step, at[-1] + step), (0, top),
                      (target, "share of rows"), written=(None, _percent))  # fmt: skip
        chart.bars(at - 0.4 * step, at + 0.4 * step, 0, observed)
        chart.line(at, predicted, "mark")
        chart.dots(at, predicted, "dots out")
        return chart.markup()
    y = e.y[~np.isin(e.y, law.atoms)]
    if len(y) < 2:
        y = e.y
    low, high = np.quantile(y, [0.002, 0.998])
    edges = np.linspace(low, high, min(31, max(6, int(np.sqrt(len(y))) + 1)))
    count = np.histogram(y, edges)[0] / e.n_rows
    grid = np.linspace(low, high, 120)
    curves = _curves(law, grid)
    weight = 1 - law.masses.sum(axis=1) if len(law.atoms) else np.ones(len(law))
    mean = (curves * weight[:, None]).mean(axis=0) if curves is not None else np.zeros(len(grid))
    mean *= edges[1] - edges[0]  # as a share of rows in a bar, like the outcomes
    top = 1.1 * max(count.max(), np.quantile(mean, 0.98))
    what = "share of rows beside the atoms" if len(law.atoms) else "share of rows"
    chart = Chart("Outcomes and predictions", (low, high), (0, top), (target, what),
                  written=(None, _percent))  # fmt: skip
    chart.bars(edges[:-1], edges[1:], 0, count)
    chart.line(grid, np.minimum(mean, top), "mark")
    return chart.markup()


def warnings_of(e: Any) -> str:
    """Return the warnings, or say that there are none."""
    if not e.warnings:
        return '<p class="fine">No warnings: nothing here contradicts the predictions.</p>'
    items = "".join(f"<li>{html.escape(text)}</li>" for text in e.warnings)
    return f'<div class="warnings"><h2>Warnings</h2><ul>{items}</ul></div>'
