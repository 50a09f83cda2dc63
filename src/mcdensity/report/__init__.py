"""A report on a fitted estimator and held-out data: one HTML file that needs no network."""

from __future__ import annotations

import html
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mcdensity import plotting
from mcdensity._files import write_file
from mcdensity._numbers import readable
from mcdensity.estimator import ConditionalEstimator
from mcdensity.plotting.features import feature_column
from mcdensity.report import page
from mcdensity.report.diagnosis import Evaluation, evaluate
from mcdensity.report.joint import JointEvaluation, evaluate_joint, joint_facts, joint_parts
from mcdensity.target_kind import describe

__all__ = [
    "Evaluation",
    "JointEvaluation",
    "build_report",
    "evaluate",
    "evaluate_joint",
    "write_report",
]

# Central intervals in the table of coverages.
_LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
# Best and worst rows: as many as a table and a picture show at a glance.
_EXTREMES = 5


def write_report(
    estimator: ConditionalEstimator,
    X: Any,
    y: ArrayLike,
    path: str | Path,
    **options: Any,
) -> Evaluation | JointEvaluation:
    """Write a report to a file and return the numbers in it; see `build_report`."""
    text, evaluation = build_report(estimator, X, y, **options)
    write_file(path, text)
    return evaluation


def build_report(
    estimator: ConditionalEstimator,
    X: Any,
    y: ArrayLike,
    *,
    title: str | None = None,
    n_features: int = 4,
    random_state: Any = 0,
    progress: Callable[[str], None] | None = None,
) -> tuple[str, Evaluation | JointEvaluation]:
    """Build a report on held-out rows as HTML.

    What was fitted, how good the distributions are (log-likelihood, CRPS, coverage, PIT,
    calibration), the best and the worst predicted rows, how the density changes with the main
    features, and warnings in plain words. Of several targets: each by itself, how they belong
    together, their regions, and pairs of them.

    Parameters
    ----------
    estimator : ConditionalEstimator
        Fitted to other rows than these.
    X : DataFrame or array of shape (n, p)
    y : array-like of shape (n,) or (n, k)
        Outcomes.
    title : str, optional
    n_features : int, default 4
        Features to show, the most important ones.
    random_state : int, Generator, RandomState or None
        For the shuffling that measures how much a feature matters.
    progress : callable, optional
        Called with a few words when a new part begins.

    Returns
    -------
    html : str
    evaluation : Evaluation, or JointEvaluation for several targets
        The numbers in it.
    """
    say = progress or (lambda text: None)
    say("evaluating")
    names = getattr(estimator, "target_names_", None) if hasattr(estimator, "links_") else None
    target = ", ".join(names) if names else getattr(estimator, "target_", None) or "y"
    heading = title or f"{target}: report on held-out rows"
    parts = [f"<h1>{html.escape(heading)}</h1>"]
    evaluation: Evaluation | JointEvaluation
    if names:
        found, evaluation = joint_parts(estimator, X, y, random_state, say)
        parts += [found[0], _warnings(evaluation), *found[1:]]
    else:
        evaluation = evaluate(
            estimator, X, y, levels=_LEVELS, importances=True, random_state=random_state
        )
        say("drawing calibration")
        parts += [_summary(evaluation), _warnings(evaluation), _coverage(evaluation)]
        parts.append(_calibration(evaluation, target))
        say("drawing rows")
        parts.append(_rows(X, evaluation, target))
        say("drawing features")
        parts.append(_features(estimator, X, evaluation, n_features, target))
    parts.append(_fitted(estimator))
    template = resources.files("mcdensity.report").joinpath("template.html")
    text = template.read_text(encoding="utf-8")
    text = text.replace("<!-- title -->", html.escape(heading))
    return text.replace("<!-- body -->", "\n".join(parts)), evaluation


def _summary(e: Evaluation) -> str:
    return page.boxes([
        (f"{e.n_rows:,}", "held-out rows"),
        (f"{e.log_likelihood:.3f}", f"mean log-{e.what} (± {e.log_likelihood_error:.3f})"),
        (f"{e.gain:+.3f}", f"above the {e.what} of y alone, in nats per row"),
        (readable(e.crps), f"CRPS; mean absolute error of the median {readable(e.mae)}"),
        (f"{e.coverage[0.9]:.1%}", "of outcomes in their 90 % interval"),
    ])  # fmt: skip


def _warnings(e: Evaluation | JointEvaluation) -> str:
    if not e.warnings:
        return '<p class="fine">No warnings: nothing here contradicts the predictions.</p>'
    items = "".join(f"<li>{html.escape(text)}</li>" for text in e.warnings)
    return f'<h2>Warnings</h2><ul class="warnings">{items}</ul>'


def _coverage(e: Evaluation) -> str:
    rows = []
    for level, share in e.coverage.items():
        low, high = e.chance(level)
        off = "" if low <= share <= high else " class=off"
        rows.append(
            f"<tr><td>{level:.0%}</td><td{off}>{share:.1%}</td>"
            f"<td>{low:.1%} to {high:.1%}</td><td>{readable(e.width[level])}</td></tr>"
        )
    return (
        "<h2>Coverage</h2><p>How many outcomes lie in their central interval, and how many would "
        "if the distributions were right (19 times out of 20).</p>"
        '<div class="wide"><table><thead><tr><th>interval</th><th>observed</th><th>expected</th>'
        f"<th>mean width</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _calibration(e: Evaluation, target: str) -> str:
    pit = page.picture(lambda ax: plotting.plot_pit(e.distribution, e.y, ax=ax), (5, 3.6))
    curve = page.picture(lambda ax: plotting.plot_calibration(e.distribution, e.y, ax=ax), (5, 4.4))
    chosen = np.linspace(0, e.n_rows - 1, min(e.n_rows, 400)).astype(int)
    order = np.argsort(e.distribution.median(), kind="stable")[chosen]
    fan = page.picture(
        lambda ax: plotting.plot_fan(e.distribution[order], e.y[order], ax=ax).set_ylabel(target),
        (5, 3.6),
    )
    return "<h2>Calibration</h2>" + page.pictures([
        (pit, "PIT histogram", "Flat is right. A bowl: too narrow; a hump: too wide; a slope: "
         "too low or too high."),
        (curve, "Calibration curve", "How often outcomes lie below each predicted quantile."),
        (fan, "Fan chart", "Median and intervals of rows ordered by their median, with outcomes."),
    ])  # fmt: skip


def _rows(X: Any, e: Evaluation, target: str) -> str:
    order = np.argsort(e.density, kind="stable")
    k = min(_EXTREMES, e.n_rows // 2)
    groups = (("best", order[::-1][:k]), ("worst", order[:k]))
    names = [name for name, _ in e.importance[:5]]
    parts, pictures = ["<h2>The best and the worst predicted rows</h2>"], []
    for word, rows in groups:
        distribution = e.distribution[rows]
        interval = distribution.interval(0.9)
        head = ["row", target, "median", "90 % interval", f"log-{e.what}", *names]
        body = []
        for i, row in enumerate(rows):
            cells = [
                str(row), readable(e.y[row], 5), readable(distribution.median()[i]),
                f"{readable(interval[i, 0])} to {readable(interval[i, 1])}",
                f"{e.density[row]:.2f}",
                *(_show(feature_column(X, name), row) for name in names),
            ]  # fmt: skip
            body.append("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>")
        heads = "".join(f"<th>{html.escape(str(h))}</th>" for h in head)
        parts.append(
            f'<h3>The {word}</h3><div class="wide"><table><thead><tr>{heads}</tr></thead>'
            f"<tbody>{''.join(body)}</tbody></table></div>"
        )
        picture = page.picture(
            lambda ax, d=distribution, r=rows: plotting.plot_densities(  # type: ignore[misc]
                d, e.y[r], labels=[f"row {i}" for i in r], ax=ax
            ).set_xlabel(target),
            (5, 4),
        )
        pictures.append((picture, f"The {word}", f"Densities of the {word} predicted rows."))
    return "\n".join([*parts, page.pictures(pictures)])


def _features(
    estimator: ConditionalEstimator, X: Any, e: Evaluation, n_features: int, target: str
) -> str:
    shown = e.importance[:n_features]
    rows = "".join(
        f"<tr><td>{html.escape(str(name))}</td><td>{loss:.3f}</td></tr>"
        for name, loss in e.importance[:15]
    )
    pictures = []
    for name, _ in shown:

        def draw(ax: Any, name: Any = name) -> None:
            plotting.plot_heatmap(estimator, X, name, y=e.y, ax=ax).set_ylabel(target)

        pictures.append((page.picture(draw, (5.4, 3.8)), str(name),
                         f"The density of {target} along {name}."))  # fmt: skip
    return (
        "<h2>How the density changes with the main features</h2><p>Log-likelihood that is lost, in "
        "nats per row, when a feature is shuffled among the held-out rows. The pictures move one "
        "feature and hold the others at their median or most frequent value; points are the "
        'held-out rows.</p><div class="wide"><table><thead><tr><th>feature</th><th>loss</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>{page.pictures(pictures)}"
    )


def _fitted(estimator: ConditionalEstimator) -> str:
    from mcdensity import __version__

    inner = getattr(estimator, "estimator_", estimator)
    facts = [("estimator", repr(estimator)), ("features", str(estimator.n_features_in_))]
    if hasattr(inner, "target_kind_"):
        facts.append(("target", describe(inner)))
    if hasattr(inner, "links_"):
        facts += joint_facts(inner)
    for name in ("ratio_", "contrast_size_", "construction_", "weights_"):
        if hasattr(inner, name):
            value = getattr(inner, name)
            facts.append((name, f"{value:.4g}" if isinstance(value, float) else str(value)))
    preparation = getattr(estimator, "preparation_", None)
    if preparation is not None and preparation.left_out_:
        facts += [(f"column {n!r} left out", why) for n, why in preparation.left_out_.items()]
    facts.append(("mcdensity", __version__))
    rows = "".join(
        f'<tr><td>{html.escape(a)}</td><td class="text">{html.escape(b)}</td></tr>'
        for a, b in facts
    )
    return f'<h2>What was fitted</h2><div class="wide"><table><tbody>{rows}</tbody></table></div>'


def _show(column: Any, row: int) -> str:
    value = column.iloc[row] if hasattr(column, "iloc") else column[row]
    if value is None or value != value:
        return "missing"
    return readable(float(value)) if isinstance(value, float | np.floating) else str(value)
