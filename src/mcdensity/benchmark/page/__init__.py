"""The result page: one HTML file that needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib import resources

from mcdensity.benchmark.page.charts import density_panels, dot_chart, line_chart
from mcdensity.benchmark.page.summary import header, numbers, standing, summary
from mcdensity.benchmark.protocols import PROTOCOLS, Protocol
from mcdensity.benchmark.store import Result
from mcdensity.benchmark.tables import Table, summarize
from mcdensity.report.page import Cell, page, section, table_of

__all__ = ["build_page"]

# More tables of a protocol, beside that of its own metric.
_MORE = {
    "density-models": ("kl",),
    "real-data": ("log_mass", "crps"),
    "uci-splits": ("log_mass", "crps"),
    "scaling": ("peak_mb", "kl"),
    "cde39": ("crps",),
    "frontier": ("cpu_seconds", "crps"),
    "target-kinds": ("log_likelihood",),
    "sbi": ("worst",),
    "joint-data": ("energy_score", "kl"),
}
_TIMES = ("timing", "scaling")
_PLACES = ("", "best", "second")


def build_page(results: Sequence[Result], commits: Sequence[str] = ()) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    results : sequence of Result
        Of all protocols; those without results have no section.
    commits : sequence of str
        Where the cells ran from; by default what the results say.
    """
    by_protocol = {
        name: own for name in PROTOCOLS if (own := [r for r in results if r.cell.protocol == name])
    }
    if not by_protocol:
        raise ValueError("There are no results to show; run `mcdensity bench run` first.")
    found = [standing(own, PROTOCOLS[name]) for name, own in by_protocol.items()]
    standings = [s for s in found if s is not None]
    known = {json.loads(r.versions).get("commit") for r in results if r.versions}
    answer = [numbers(standings), *summary(standings)] if standings else []
    links = [("summary", "Summary")] if standings else []
    if any(s.losses for s in standings):
        links.append(("behind", "Where others are ahead"))
    links += [(name, name) for name in by_protocol]
    body = [_section(PROTOCOLS[name], own) for name, own in by_protocol.items()]
    here = resources.files("mcdensity.benchmark.page")
    style = here.joinpath("style.css").read_text(encoding="utf-8")
    top = header(standings, list(commits) or sorted(known - {None}))
    return page("mcdensity: results", top, [*answer, *body], links, style)


def _section(protocol: Protocol, results: list[Result]) -> str:
    table = summarize(results, protocol)
    timed = protocol.name in _TIMES
    parts = [_html(table), line_chart(table, "rows", table.metric) if timed else dot_chart(table)]
    if table.footnotes:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in table.footnotes)
        parts.append(f'<ul class="notes">{notes}</ul>')
    for metric in _MORE.get(protocol.name, ()):
        if any(metric in r.metrics for r in results) or metric == "peak_mb":
            more = _html(summarize(results, protocol, metric))
            parts.append(f"<details><summary>{metric}</summary>{more}</details>")
    curves = {
        (r.cell.problem, r.cell.method): r.curves for r in results if r.curves and not r.cell.seed
    }
    if curves and protocol.name == "density-models":
        parts.append("<h3>True and estimated densities of two test rows, seed 0</h3>")
        parts.append(density_panels(protocol, curves))
    words = table.caption("below it").removeprefix(f"{protocol.title}: ")
    return section(protocol.name, protocol.title, f"{protocol.name}: {words}.", *parts)


def _html(table: Table) -> str:
    head = ["problem", *table.methods, *(f"{m}, published" for m in table.others)]
    rows = [
        [
            Cell(problem),
            *(_own(table, problem, method) for method in table.methods),
            *(_published(table, problem, method) for method in table.others),
        ]
        for problem in table.problems
    ]
    foot = [
        [
            Cell(name),
            *(Cell(format(values[m], spec) if m in values else "") for m in table.methods),
            *(Cell() for _ in table.others),
        ]
        for name, values, spec in table.footer()
    ]
    return table_of(head, rows, foot=foot)


def _own(table: Table, problem: str, method: str) -> Cell:
    key = problem, method
    paper = f"<small>paper {table.paper[key]:g}</small>" if key in table.paper else ""
    kind = _PLACES[table.place(problem, method)]
    return Cell(table.text(problem, method), table.mean.get(key), kind, paper)


def _published(table: Table, problem: str, method: str) -> Cell:
    value = table.published.get((problem, method))
    return Cell() if value is None else Cell(f"{value:g}", value, "published")
