"""Assessment and report of a model of several targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from mcdensity import metrics, plotting
from mcdensity._numbers import readable
from mcdensity._validation import as_generator
from mcdensity.distribution import JointDistribution
from mcdensity.plotting.joint import MOST_PAIRS
from mcdensity.report.diagnosis import (
    RARE,
    Evaluation,
    chance_of,
    importance,
    measured,
    warn_of_calibration,
)
from mcdensity.report.page import (
    Cell,
    boxes,
    figure_picture,
    image,
    number,
    percent,
    picture,
    pictures,
    section,
    share,
    table_of,
)
from mcdensity.report.sections import importances, pit_chart

__all__ = ["JointEvaluation", "evaluate_joint", "joint_facts", "joint_parts"]

Array = NDArray[np.float64]

_LEVELS = (0.5, 0.8, 0.9, 0.95)
# Rows whose marginals and regions are computed: each needs draws of its own.
_MOST_ROWS = 200
# Rows whose features are shuffled.
_IMPORTANCE_ROWS = 100


@dataclass
class JointEvaluation:
    """Numbers about predicted laws of several targets and the outcomes.

    Attributes
    ----------
    n_rows : int
    distribution, y, density : of the rows that were looked at closely, `close` of them
    log_likelihood, log_likelihood_error : mean of all rows, and its standard error
    dependence : log-likelihood above that of the product of the targets' own laws: what is gained
        by knowing how they belong together
    energy : energy score, of targets in units of their spread
    coverage : share of outcomes in the highest-density region of each level
    simultaneous : share of rows all of whose outcomes lie in 90 % intervals that hold together
    correlation : mean matrix of correlations
    targets : Evaluation of each target's own law, by name
    importance : features and the log-likelihood lost when they are shuffled, largest first
    importance_error : standard errors of these losses, over shufflings
    warnings : list of str
    """

    n_rows: int
    close: int
    distribution: JointDistribution
    y: Array
    density: Array
    log_likelihood: float
    log_likelihood_error: float
    dependence: float
    energy: float
    coverage: dict[float, float]
    simultaneous: float
    correlation: Array
    targets: dict[str, Evaluation]
    importance: list[tuple[Any, float]] = field(default_factory=list)
    importance_error: dict[Any, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def chance(self, level: float) -> tuple[float, float]:
        """Return the coverages that 19 of 20 samples would show if the laws were right."""
        return chance_of(level, self.close)

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers alone, ready for JSON."""
        names = ("n_rows", "log_likelihood", "log_likelihood_error", "dependence", "energy",
                 "simultaneous")  # fmt: skip
        out: dict[str, Any] = {name: getattr(self, name) for name in names}
        out["coverage"] = {f"{level:g}": share for level, share in self.coverage.items()}
        out["correlation"] = self.correlation.tolist()
        out["targets"] = {name: e.as_dict() for name, e in self.targets.items()}
        if self.importance:
            out["importance"] = {str(name): loss for name, loss in self.importance}
            out["importance_error"] = {str(n): error for n, error in self.importance_error.items()}
        return out | {"warnings": self.warnings}


def evaluate_joint(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    importances: bool = False,
    random_state: Any = 0,
    progress: Callable[[str], None] | None = None,
) -> JointEvaluation:
    """Measure a model of several targets on held-out rows; see `evaluate`."""
    say = progress or (lambda text: None)
    say("laws of each target")
    density = estimator.logpdf(X, y)
    values = np.asarray(y[estimator.target_names_] if hasattr(y, "columns") else y, dtype=float)
    n = len(density)
    if n < 2:
        raise ValueError(f"y has {n} rows; at least 2 are needed to say anything.")
    if np.isnan(density).any():
        raise ValueError(
            f"The model predicts no number for row {np.flatnonzero(np.isnan(density))[0]}."
        )
    rows = np.sort(as_generator(random_state).permutation(n)[:_MOST_ROWS])
    part = X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows]
    law, own, near = estimator.predict_distribution(part), values[rows], density[rows]
    targets = {}
    for j, name in enumerate(law.names):
        marginal = law.marginal(j)
        targets[name] = measured(marginal, own[:, j], marginal.logpdf(own[:, j]), _LEVELS)
        targets[name].warnings = warn_of_calibration(targets[name])
    say("following draws")
    level = law.hpd_level(own)
    low, high = np.moveaxis(estimator.predict_interval(part, 0.9, joint=True), 2, 0)
    middle, spread = own.mean(axis=0), np.maximum(own.std(axis=0), 1e-300)
    draws = (law.sample(100, 0) - middle) / spread
    out = JointEvaluation(
        n,
        len(rows),
        law,
        own,
        near,
        log_likelihood=float(density.mean()),
        log_likelihood_error=float(density.std(ddof=1) / np.sqrt(n)),
        dependence=float((near - sum(e.density for e in targets.values())).mean()),
        energy=metrics.energy_score(draws, (own - middle) / spread),
        coverage={share: float((level <= share).mean()) for share in _LEVELS},
        simultaneous=float(((own >= low) & (own <= high)).all(axis=1).mean()),
        correlation=law.correlation().mean(axis=0),
        targets=targets,
    )
    if importances:
        out.importance, out.importance_error = importance(
            estimator, X, values, random_state, _IMPORTANCE_ROWS
        )
    first, *others = (e.warnings for e in targets.values())
    shared = [text for text in first if all(text in found for found in others)]
    own_words = [
        f"{name}: {text}"
        for name, e in targets.items()
        for text in e.warnings
        if text not in shared
    ]
    out.warnings = [*shared, *own_words, *_warn_of_regions(out, level)]
    return out


def _warn_of_regions(e: JointEvaluation, level: Array) -> list[str]:
    if any(len(target.distribution.atoms) for target in e.targets.values()):
        return []  # levels of laws with atoms are not uniform
    if stats.kstest(level, "uniform").pvalue >= RARE:
        return []
    word = "narrow" if level.mean() > 0.5 else "wide"
    return [
        f"The regions of all targets together are too {word}: those of 90 % hold "
        f"{100 * e.coverage[0.9]:.0f} % of the outcomes."
    ]


def joint_parts(
    estimator: Any, X: Any, y: ArrayLike, random_state: Any, say: Callable[[str], None]
) -> tuple[str, str, list[tuple[str, str]], JointEvaluation]:
    """Return the headline, the main numbers, the named sections, and the numbers in them."""
    e = evaluate_joint(estimator, X, y, importances=True, random_state=random_state, progress=say)
    words = (
        f"Joint 90 % regions hold <b>{percent(e.coverage[0.9], 0)} of outcomes</b>; knowing how "
        f"the {len(e.targets)} targets belong together is worth <b>{e.dependence:+.2f} nats per "
        "row</b>."
    )
    numbers = boxes([
        (f"{e.n_rows:,}", "held-out rows"),
        (percent(e.coverage[0.9]), "of outcomes in their joint 90 % region"),
        (percent(e.simultaneous), "of rows in intervals that hold together with 90 %"),
        (f"{e.log_likelihood:.3f}", f"mean joint log-density (± {e.log_likelihood_error:.3f})"),
        (f"{e.dependence:+.3f}", "nats per row from knowing how the targets belong together"),
        (readable(e.energy, 3), "energy score, in units of each target's spread"),
    ])  # fmt: skip
    parts = [("Targets", _targets(e)), ("Together", _together(e)), ("Regions", _regions(e))]
    say("drawing rows")
    parts += [("Rows", _rows(e)), ("Importance", importances(e))]
    return words, numbers, parts, e


def _targets(e: JointEvaluation) -> str:
    head = ["target", "log-density", "CRPS", "mean error", "in 90 % intervals", "mean width"]
    body = [
        [
            Cell(name, kind="text"), Cell(f"{t.log_likelihood:.3f}", t.log_likelihood),
            number(t.crps), number(t.mae), share(t.coverage[0.9]), number(t.width[0.9]),
        ]
        for name, t in e.targets.items()
    ]  # fmt: skip
    drawn = [
        (pit_chart(t), f"{name}.", "Flat is right; a bowl: too narrow; a hump: too wide; a slope: "
         "too low or too high.")
        for name, t in e.targets.items()
    ]  # fmt: skip
    words = "The law of each target alone, and the PIT of its outcomes."
    return section("targets", "Each target by itself", words, table_of(head, body), pictures(drawn))


def _together(e: JointEvaluation) -> str:
    body = [
        [Cell(name, kind="text"), *(Cell(f"{value:.2f}", value) for value in row)]
        for name, row in zip(e.targets, e.correlation, strict=True)
    ]
    words = "Mean over rows of the correlations that remain when the features are known."
    return section("together", "How they belong together", words, table_of(["", *e.targets], body))


def _regions(e: JointEvaluation) -> str:
    body = []
    for level, observed in e.coverage.items():
        low, high = e.chance(level)
        off = "" if low <= observed <= high else "off"
        body.append([
            Cell(percent(level, 0), level), share(observed, off),
            Cell(f"{100 * low:.1f} to {percent(high)}", low),
        ])  # fmt: skip
    return section(
        "regions",
        "Do the regions hold?",
        "How many outcomes lie in the smallest region that should hold them with the given "
        f"probability, all targets together. Of {e.close:,} rows.",
        table_of(["region", "holds", "by chance"], body, sortable=False),
    )


def _rows(e: JointEvaluation) -> str:
    order = np.argsort(e.density, kind="stable")
    chosen = {"worst": order[0], "middle": order[len(order) // 2], "best": order[-1]}
    names = list(e.targets)
    drawn = []
    for word, i in chosen.items():
        law, outcome = e.distribution[[i]], e.y[i]
        if len(names) <= MOST_PAIRS:
            data = figure_picture(
                lambda figure, d=law, o=outcome: plotting.plot_pairs(d, o, figure=figure),  # type: ignore[misc]
                (1.6 * len(names) + 2,) * 2,
            )
        else:
            data = picture(
                lambda ax, d=law, o=outcome: plotting.plot_contours(d, o, ax=ax),  # type: ignore[misc]
                (5, 4),
            )
        text = ", ".join(f"{n} {readable(v)}" for n, v in zip(names, outcome, strict=True))
        drawn.append(
            (image(data, f"The {word} row"), f"The {word} predicted:", f"{text} (orange).")
        )
    return section(
        "rows",
        "Some rows",
        "The law of each target, and the regions that hold each pair with 50 and 90 %.",
        pictures(drawn),
    )


def joint_facts(inner: Any) -> list[tuple[str, str]]:
    """Say what was fitted, of a model of several targets."""
    order = ", ".join(inner.target_names_[j] for j in inner.order_)
    facts = [("targets", ", ".join(inner.target_names_))]
    facts.append(("together", f"{inner.joint_way_}, in the order {order}"))
    tried = [f"{way}: {score:.3f}" for way, score in inner.joint_scores_.items()]
    if tried:
        facts.append(("tried on some rows, log-likelihood", "; ".join(tried)))
    return facts
