"""What the results say: is `MCD()` better, by how much, and at what cost."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mcdensity._numbers import readable
from mcdensity.benchmark.protocols import Protocol
from mcdensity.benchmark.store import Result
from mcdensity.benchmark.tables import Table, summarize
from mcdensity.report.page import Cell, boxes, number, section, table_of

__all__ = ["OURS", "Loss", "Standing", "header", "numbers", "standing", "summary"]

OURS = "MCD"


@dataclass(frozen=True)
class Loss:
    """A problem on which another method is ahead."""

    problem: str
    method: str
    own: float
    other: float
    errors: float


@dataclass(frozen=True)
class Standing:
    """How `MCD()` stands in a protocol, against methods that are not MCD.

    `gains` are what it is ahead of the best of the others by, problem for problem: nats for
    likelihoods, differences of C2ST, else shares of the other's number. `seconds` are medians over
    the problems of the time that fitting takes.
    """

    protocol: Protocol
    rank: float
    next_method: str
    next_rank: float
    gains: dict[str, float]
    losses: list[Loss]
    seconds: dict[str, float]

    @property
    def first(self) -> int:
        """Number of problems on which nobody is ahead."""
        return len(self.gains) - len(self.losses)

    @property
    def gain(self) -> str:
        """The median of the gains, in words."""
        value = float(np.median(list(self.gains.values())))
        if self.protocol.metric == "log_likelihood":
            return f"{value:+.3f} nats"
        if self.protocol.metric == "c2st":
            return f"{value:.3f} {'closer' if value >= 0 else 'farther'}"
        return f"{abs(value):.0%} {'lower' if value >= 0 else 'higher'}"


def standing(results: Sequence[Result], protocol: Protocol) -> Standing | None:
    """Compare `MCD()` with the others; None where the protocol does not."""
    table = summarize(results, protocol)
    others = [m for m in table.ranked_methods if m.partition(":")[0] != OURS]
    problems = [p for p in table.ranked_problems if (p, OURS) in table.mean]
    if OURS not in table.ranked_methods or not others or not problems:
        return None
    ranks = table.average_ranks()
    following = min(others, key=ranks.__getitem__)
    gains, losses = {}, []
    for problem in problems:
        best = min(others, key=lambda m, p=problem: table.score(p, m))  # type: ignore[misc]
        gains[problem] = _gain(table, problem, best)
        if table.score(problem, best) < table.score(problem, OURS):
            losses.append(_loss(table, problem, best))
    seconds = {
        method: float(np.median(known))
        for method in (OURS, following)
        if (known := [r.fit_seconds for r in results
                      if r.cell.method == method and r.fit_seconds is not None])
    }  # fmt: skip
    return Standing(protocol, ranks[OURS], following, ranks[following], gains, losses, seconds)


def _gain(table: Table, problem: str, best: str) -> float:
    own, other = table.mean[problem, OURS], table.mean[problem, best]
    if table.metric in ("log_likelihood", "c2st"):
        return other - own if table.lower_is_better else own - other
    return 1 - own / other


def _loss(table: Table, problem: str, best: str) -> Loss:
    own, other = table.mean[problem, OURS], table.mean[problem, best]
    error = np.hypot(table.error[problem, OURS], table.error[problem, best])
    errors = abs(own - other) / error if error > 0 else np.nan
    return Loss(problem, best, own, other, float(errors))


def header(standings: Sequence[Standing], commits: Sequence[str]) -> str:
    """Return the head of the page: the answer in one sentence, then where it comes from."""
    total = sum(len(s.gains) for s in standings)
    first = sum(s.first for s in standings)
    said = (
        f"MCD() is ahead of every other method on <b>{first} of {total}</b> problems."
        if total
        else "Results of the experiments."
    )
    made = f" The cells ran from commit {html.escape(', '.join(commits))}." if commits else ""
    return (
        '<p class="kind">mcdensity</p><h1>Results</h1>'
        f'<p class="headline">{said}</p>'
        '<p class="after">Every number is a mean over seeds of runs that <code>mcdensity bench run'
        f"</code> repeats.{made}</p>"
    )


def summary(standings: Sequence[Standing]) -> list[str]:
    """Return sections: how MCD() stands in each protocol, and where others are ahead."""
    rows = [
        [
            Cell(s.protocol.name, markup=f"<small>{html.escape(s.protocol.title)}</small>",
                 kind="long"),
            Cell(f"{s.first} of {len(s.gains)}", s.first / len(s.gains)),
            number(s.rank, 3),
            Cell(f"{s.next_method}, {readable(s.next_rank, 3)}", s.next_rank),
            Cell(s.gain, float(np.median(list(s.gains.values())))),
            *(_seconds(s, method) for method in (OURS, s.next_method)),
        ]
        for s in standings
    ]  # fmt: skip
    head = ["protocol", "first on", "average rank", "next, its rank",
            "gain over the best other", "seconds", "next's seconds"]  # fmt: skip
    answer = section(
        "summary",
        "Is it better, by how much, and at what cost?",
        "MCD() with its defaults against every method that is not MCD. The gain is over the best "
        "of the others, problem for problem, so over a choice that nobody can make beforehand. "
        "The gain is a median over the problems, and so are the seconds that fitting takes on one "
        "thread.",
        table_of(head, rows),
    )
    losses = [(s, loss) for s in standings for loss in s.losses]
    if not losses:
        return [answer]
    behind = section(
        "behind",
        "Where others are ahead",
        "Differences of less than two standard errors may be chance.",
        table_of(
            ["problem", "protocol", "best other method", "MCD()", "the other",
             "standard errors apart"],
            [
                [loss.problem, Cell(s.protocol.name, kind="text"), Cell(loss.method, kind="text"),
                 number(loss.own), number(loss.other),
                 number(loss.errors, 2) if np.isfinite(loss.errors) else Cell("one seed")]
                for s, loss in losses
            ],
        ),
    )  # fmt: skip
    return [answer, behind]


def numbers(standings: Sequence[Standing]) -> str:
    """Return the figures at the top of the page."""
    found = [
        (
            f"{s.rank:.2f}",
            f"average rank in {s.protocol.name}; {s.next_method} is next with {s.next_rank:.2f}",
        )
        for s in standings
    ]
    return boxes(found)


def _seconds(found: Standing, method: str) -> Cell:
    seconds = found.seconds.get(method)
    return Cell() if seconds is None else number(seconds, 2)
