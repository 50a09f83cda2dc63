"""A report on a fitted estimator and held-out data: one HTML file that needs no network."""

from __future__ import annotations

import html
import platform
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from sklearn.base import clone

from mcdensity._files import write_file
from mcdensity.estimator import ConditionalEstimator
from mcdensity.report import sections
from mcdensity.report.diagnosis import Evaluation, evaluate
from mcdensity.report.features import features_of
from mcdensity.report.joint import JointEvaluation, evaluate_joint, joint_facts, joint_parts
from mcdensity.report.page import Cell, page, section, table_of
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
# What the numbers depend on.
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "KDEpy", "pandas")


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
    commands: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> tuple[str, Evaluation | JointEvaluation]:
    """Build a report on held-out rows as HTML.

    How good the distributions are in plain words and numbers (coverage, CRPS, log-likelihood),
    where they hold and where they do not (calibration, coverage by predicted level and by group),
    the best and the worst predicted rows, what the features are worth and how the law moves with
    them over the rows as they are, what the target is, and how to repeat it all. Of several
    targets: each by itself, how they belong together, their regions, and pairs of them.

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
        For the shuffling that measures how much a feature matters, and for drawing rows.
    commands : sequence of str, optional
        Commands that made the report, to show among what is needed to repeat it.
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
    evaluation: Evaluation | JointEvaluation
    if names:
        words, top, parts, evaluation = joint_parts(estimator, X, y, random_state, say)
    else:
        evaluation = evaluate(
            estimator, X, y, levels=_LEVELS, importances=True, random_state=random_state
        )
        words, top = sections.headline(evaluation), sections.numbers(evaluation)
        parts = _parts(estimator, X, evaluation, n_features, target, random_state, say)
    parts.append(_recipe(estimator, random_state, commands))
    words, after = (text.replace(" %", "&nbsp;%") for text in (words, _after(evaluation)))
    header = (
        f'<p class="kind">mcdensity report</p><h1>{html.escape(heading)}</h1>'
        f'<p class="headline">{words}</p><p class="after">{after}</p>'
    )
    body = [top, sections.warnings_of(evaluation), *(text for _, text in parts)]
    links = [(text.split('id="')[1].split('"')[0], name) for name, text in parts]
    return page(heading, header, body, links), evaluation


def _parts(
    estimator: Any,
    X: Any,
    e: Evaluation,
    n_features: int,
    target: str,
    random_state: Any,
    say: Callable[[str], None],
) -> list[tuple[str, str]]:
    """Return the sections on one target, each with its name in the list of sections."""
    say("drawing calibration")
    parts = [
        ("Intervals", sections.calibration(e, target)),
        ("Groups", sections.levels(e, X)),
        ("Errors", sections.wrong(e, target)),
    ]
    say("drawing rows")
    parts.append(("Rows", sections.rows_of(e, X, target)))
    parts.append(("Importance", sections.importances(e)))
    say("drawing features")
    moved = features_of(estimator, X, e, n_features, target, random_state)
    parts += [("Features", moved)] if moved else []
    parts.append(("Target", sections.target_of(estimator, e, target)))
    return parts


def _after(e: Evaluation | JointEvaluation) -> str:
    low, high = e.chance(0.9)
    rows = f"{e.n_rows:,} held-out rows"
    chance = f"by chance {100 * low:.0f} to {100 * high:.0f} % would be in 90 % "
    what = "intervals" if isinstance(e, Evaluation) else "regions"
    many = len(e.warnings)
    said = f"{many} warning{'s' if many > 1 else ''} below" if many else "no warnings"
    return f"From {rows}; {chance}{what}; {said}."


def _recipe(
    estimator: ConditionalEstimator, random_state: Any, commands: Sequence[str]
) -> tuple[str, str]:
    """Return what was fitted, and how to repeat the report."""
    from mcdensity import __version__

    inner = getattr(estimator, "estimator_", estimator)
    facts = [("features", str(estimator.n_features_in_))]
    if hasattr(inner, "target_kind_"):
        facts.append(("target", describe(inner)))
    if hasattr(inner, "links_"):
        facts += joint_facts(inner)
    for name in ("ratio_", "contrast_size_", "construction_", "weights_"):
        if hasattr(inner, name):
            facts.append((name, _plain(getattr(inner, name))))
    preparation = getattr(estimator, "preparation_", None)
    if preparation is not None and getattr(preparation, "left_out_", None):
        facts += [(f"column {n!r} left out", why) for n, why in preparation.left_out_.items()]
    versions = [f"Python {platform.python_version()}", f"mcdensity {__version__}"]
    for name in _LIBRARIES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    facts += [
        ("versions", ", ".join(versions)),
        ("system", f"{platform.system()} {platform.machine()}"),
    ]
    parts = {type(estimator), type(inner)}
    imports = sorted(f"from {part.__module__} import {part.__name__}\n" for part in parts)
    code = (
        f"{''.join(imports)}from mcdensity.report import write_report\n\n"
        f"model = {clone(estimator)!r}\n"
        "model.fit(X_train, y_train)\n"
        f'write_report(model, X, y, "report.html", random_state={random_state!r})'
    )
    shell = "".join(f"<pre>{html.escape(line)}</pre>" for line in commands)
    text = section(
        "recipe",
        "What was fitted, and how to repeat it",
        "",
        f"<pre>{html.escape(code)}</pre>{shell}",
        table_of(["", ""], [[a, Cell(b, kind="long")] for a, b in facts], sortable=False),
    )
    return "Recipe", text


def _plain(value: Any) -> str:
    """Return what was learned, with numbers of a few digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items())
    return str(value)
