"""Tables of results: ours beside the paper's, ranks, wins and tests."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import rankdata, wilcoxon

from mcdensity.benchmark.protocols import Protocol
from mcdensity.benchmark.store import Result

__all__ = ["Table", "summarize"]

# Metrics of which less is better; of all others more is.
_LOWER = {
    "kl", "kl_grid", "kl_grid_raw", "crps", "rmse", "seconds", "cpu_seconds", "peak_mb", "c2st",
    "worst", "energy", "below", "mass_error",
}  # fmt: skip
# Metrics that rank nothing where the target is discrete, and one that has no better side.
_UNRANKED = {"log_likelihood", "log_likelihood_no_floor", "log_likelihood_raw"}
_NO_ORDER = {"coverage_90"}
DISCRETE = ("WineRed", "WineWhite", "Naval")


@dataclass
class Table:
    """Means over seeds of one metric, by problem and method."""

    protocol: Protocol
    metric: str
    problems: list[str]
    methods: list[str]
    mean: dict[tuple[str, str], float]
    error: dict[tuple[str, str], float]
    seeds: dict[tuple[str, str], int]
    paper: dict[tuple[str, str], float]
    missing: dict[tuple[str, str], str] = field(default_factory=dict)
    failures: dict[tuple[str, str], int] = field(default_factory=dict)
    published: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def others(self) -> list[str]:
        """Methods whose numbers others published; they are shown, and rank nothing."""
        return list(dict.fromkeys(method for _, method in self.published))

    @property
    def lower_is_better(self) -> bool:
        """Whether the smallest number of a row wins."""
        return self.metric in _LOWER

    @property
    def ranked_methods(self) -> list[str]:
        """Methods that compete: columns of raw densities, and what always failed, do not."""
        have = {m for _, m in self.mean}
        return [m for m in self.methods if not m.endswith(" raw") and m in have]

    @property
    def ranked_problems(self) -> list[str]:
        """Problems whose numbers mean something, and that every method was run on."""
        if self.metric in _NO_ORDER:
            return []
        return [
            p
            for p in self.problems
            if any((p, m) in self.mean for m in self.ranked_methods)
            and all(
                (p, m) in self.mean or self.missing.get((p, m)) == "failed"
                for m in self.ranked_methods
            )
            and not (p in DISCRETE and self.metric in _UNRANKED)
        ]

    def score(self, problem: str, method: str) -> float:
        """Return what methods are ranked by, less is better: one that failed comes last."""
        key = problem, method
        if key not in self.mean or self.failures.get(key):
            return np.inf
        return self.mean[key] if self.lower_is_better else -self.mean[key]

    def place(self, problem: str, method: str) -> int:
        """Return 1 for the best of a row and all that equal it, 2 for the next, else 0.

        One method alone, beside published numbers, is not the best of anything.
        """
        methods = self.ranked_methods
        if problem not in self.ranked_problems or method not in methods or len(methods) < 2:
            return 0
        own = self.score(problem, method)
        better = [s for m in self.ranked_methods if (s := self.score(problem, m)) < own]
        if own == np.inf or len(set(better)) > 1 or len(better) > 1:
            return 0
        return 2 if better else 1

    def average_ranks(self) -> dict[str, float]:
        """Mean rank of each method; 1 is best on all problems."""
        methods, problems = self.ranked_methods, self.ranked_problems
        if not problems:
            return {}
        values = np.array([[self.score(p, m) for m in methods] for p in problems])
        ranks = rankdata(values, axis=1).mean(axis=0)
        return dict(zip(methods, ranks.tolist(), strict=True))

    def wins(self) -> dict[str, int]:
        """Number of problems that each method is best on, alone."""
        out = dict.fromkeys(self.ranked_methods, 0)
        for problem in self.ranked_problems:
            best = [m for m in out if self.place(problem, m) == 1]
            if len(best) == 1:
                out[best[0]] += 1
        return out

    def p_values(self) -> dict[str, float]:
        """Wilcoxon signed-rank tests, over the problems, of the first method against each other."""
        if not self.ranked_methods:
            return {}
        first, out = self.ranked_methods[0], {}
        for method in self.ranked_methods[1:]:
            scores = [(self.score(p, first), self.score(p, method)) for p in self.ranked_problems]
            gaps = [a - b for a, b in scores if a != b and np.isfinite([a, b]).all()]
            if len(gaps) >= 5:
                out[method] = float(wilcoxon(gaps).pvalue)
        return out

    def text(self, problem: str, method: str) -> str:
        """Return "mean (error)", or why there is none."""
        if (problem, method) not in self.mean:
            return self.missing.get((problem, method), "")
        digits = self.protocol.decimals
        out = f"{self.mean[problem, method]:.{digits}f}"
        if self.seeds[problem, method] > 1:
            out += f" ({self.error[problem, method]:.{digits}f})"
        failed = self.failures.get((problem, method))
        return f"{out}, {failed} failed" if failed else out

    def caption(self, paper: str = "in brackets") -> str:
        """Title, and what the numbers are."""
        counts = sorted(set(self.seeds.values()))
        seeds = " to ".join(str(c) for c in sorted({counts[0], counts[-1]})) if counts else "no"
        better = "lower" if self.lower_is_better else "higher"
        shown = f"; {paper} the paper's number" if self.paper else ""
        return (
            f"{self.protocol.title}: {self.metric}, mean (standard error) over {seeds} seeds, "
            f"{better} is better{shown}"
        )

    def markdown(self) -> str:
        """Return the table with footnotes; the best of a row is bold, the second underlined."""
        lines = [f"**{self.caption()}.**", ""]
        heads = [*self.methods, *(f"{m} (published)" for m in self.others)]
        lines.append("| | " + " | ".join(heads) + " |")
        lines.append("|---|" + "---|" * len(heads))
        for problem in self.problems:
            cells = []
            for method in self.methods:
                text = self.text(problem, method)
                place = self.place(problem, method)
                if place:
                    text = f"**{text}**" if place == 1 else f"<u>{text}</u>"
                if (problem, method) in self.paper:
                    text += f" [{self.paper[problem, method]:g}]"
                cells.append(text)
            known = (self.published.get((problem, m)) for m in self.others)
            cells += ["" if value is None else f"{value:g}" for value in known]
            lines.append(f"| {problem} | " + " | ".join(cells) + " |")
        for name, values, spec in self.footer():
            row = [format(values[m], spec) if m in values else "" for m in self.methods]
            row += [""] * len(self.others)
            lines.append(f"| {name} | " + " | ".join(row) + " |")
        lines += ["", *(f"- {note}" for note in self.footnotes)]
        return "\n".join(lines) + "\n"

    @property
    def footnotes(self) -> tuple[str, ...]:
        """Footnotes of the protocol; they speak of its own metric."""
        return self.protocol.footnotes if self.metric == self.protocol.metric else ()

    def footer(self) -> list[tuple[str, dict[str, float], str]]:
        """Rows below the problems: name, values by method, format."""
        wins: dict[str, float] = dict(self.wins())
        rows: list[tuple[str, dict[str, float], str]] = [
            ("average rank", self.average_ranks(), ".2f"),
            ("wins", wins if self.ranked_problems else {}, ".0f"),
            (
                f"p, {self.ranked_methods[0]} against it" if self.ranked_methods else "p",
                self.p_values(),
                ".3f",
            ),
        ]
        return [row for row in rows if row[1] and len(self.ranked_methods) > 1]

    def csv(self) -> str:
        """Return the table as CSV: one line per problem and method."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["problem", "method", "metric", "mean", "error", "seeds", "paper", "note"])
        for p in self.problems:
            for m in self.methods:
                if (p, m) in self.mean:
                    numbers = [f"{self.mean[p, m]:.6g}", f"{self.error[p, m]:.3g}"]
                    row = [*numbers, self.seeds[p, m], self.paper.get((p, m), ""), ""]
                else:
                    note = self.missing.get((p, m), "not run")
                    row = ["", "", 0, self.paper.get((p, m), ""), note]
                writer.writerow([p, m, self.metric, *row])
        for (p, m), value in self.published.items():
            writer.writerow([p, m, self.metric, value, "", "", "", "published"])
        return out.getvalue()


def summarize(results: Sequence[Result], protocol: Protocol, metric: str | None = None) -> Table:
    """Average results over seeds.

    Parameters
    ----------
    results : sequence of Result
        Of the protocol.
    protocol : Protocol
    metric : str, optional
        By default the protocol's own.
    """
    name = metric or protocol.metric
    known = sorted({m for r in results for m in r.metrics} | {"peak_mb"})
    if results and name not in known and any(r.status == "done" for r in results):
        raise ValueError(f"Metric {name!r} is not among the results; choose from {known}.")
    groups: dict[tuple[str, str], list[float]] = {}
    missing: dict[tuple[str, str], str] = {}
    failures: dict[tuple[str, str], int] = {}
    for result in results:
        key = result.cell.problem, result.cell.method
        value = result.peak_mb if name == "peak_mb" else result.metrics.get(name)
        if result.status == "done" and value is not None:
            groups.setdefault(key, []).append(value)
            raw = result.metrics.get(f"{name}_raw")
            if raw is not None:
                groups.setdefault((key[0], f"{key[1]} raw"), []).append(raw)
        elif result.status != "done":
            missing[key] = "not available" if result.status == "unavailable" else "failed"
            failures[key] = failures.get(key, 0) + (result.status == "failed")
    have = {m for _, m in groups} | {m for _, m in missing}
    ordered = [m for method in protocol.methods for m in (method, f"{method} raw") if m in have]
    methods = ordered + sorted(have - set(ordered))
    # Raw columns come last.
    methods = [m for m in methods if not m.endswith(" raw")] + [
        m for m in methods if m.endswith(" raw")
    ]
    rows = {p for p, _ in groups} | ({p for p, _ in missing} if name == protocol.metric else set())
    problems = [p for p in protocol.problems if p in rows]
    own = name == protocol.metric
    paper = protocol.paper_numbers() if own else {}
    published = protocol.published_numbers() if own else {}
    return Table(
        protocol,
        name,
        problems,
        methods,
        {key: float(np.mean(v)) for key, v in groups.items()},
        {key: float(np.std(v, ddof=1) / np.sqrt(len(v))) if len(v) > 1 else 0.0
         for key, v in groups.items()},
        {key: len(v) for key, v in groups.items()},
        {key: v for key, v in paper.items() if key[1] in methods and key[0] in rows},
        {key: v for key, v in missing.items() if key not in groups},
        failures,
        {key: v for key, v in published.items() if key[0] in rows},
    )  # fmt: skip
