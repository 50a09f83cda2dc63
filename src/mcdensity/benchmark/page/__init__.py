"""The result page: one HTML file that needs no network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import resources

from mcdensity.benchmark.page.charts import density_panels, dot_chart, line_chart
from mcdensity.benchmark.protocols import PROTOCOLS, Protocol
from mcdensity.benchmark.store import Result
from mcdensity.benchmark.tables import Table, summarize

__all__ = ["build_page"]

# More tables of a protocol, beside that of its own metric.
_MORE = {
    "density-models": ("kl",),
    "real-data": ("log_mass", "crps"),
    "uci-splits": ("log_mass", "crps"),
    "scaling": ("peak_mb", "kl"),
}
_TIMES = ("timing", "scaling")


def build_page(results: Sequence[Result]) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    results : sequence of Result
        Of all protocols; those without results have no section.
    """
    sections, links = [], []
    for name, protocol in PROTOCOLS.items():
        own = [r for r in results if r.cell.protocol == name]
        if own:
            links.append(f'<a href="#{name}">{name}</a>')
            sections.append(_section(protocol, own))
    if not sections:
        raise ValueError("There are no results to show; run `mcdensity bench run` first.")
    here = resources.files("mcdensity.benchmark.page")
    template = here.joinpath("template.html").read_text(encoding="utf-8")
    return template.replace("<!-- links -->", " ".join(links)).replace(
        "<!-- sections -->", "\n".join(sections)
    )


def _section(protocol: Protocol, results: list[Result]) -> str:
    table = summarize(results, protocol)
    parts = [f'<section id="{protocol.name}"><h2>{html.escape(protocol.title)}</h2>', _html(table)]
    if protocol.name in _TIMES:
        parts.append(line_chart(table, "rows", table.metric))
    else:
        parts.append(dot_chart(table))
    if table.footnotes:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in table.footnotes)
        parts.append(f'<ul class="notes">{notes}</ul>')
    for metric in _MORE.get(protocol.name, ()):
        if any(metric in r.metrics for r in results) or metric == "peak_mb":
            more = summarize(results, protocol, metric)
            parts.append(f"<details><summary>{metric}</summary>{_html(more)}</details>")
    curves = {
        (r.cell.problem, r.cell.method): r.curves for r in results if r.curves and not r.cell.seed
    }
    if curves and protocol.name == "density-models":
        parts.append("<h3>True and estimated densities of two test rows, seed 0</h3>")
        parts.append(density_panels(protocol, curves))
    return "\n".join([*parts, "</section>"])


def _html(table: Table) -> str:
    head = "".join(f'<th scope="col"><button>{html.escape(m)}</button></th>' for m in table.methods)
    rows = []
    for problem in table.problems:
        cells = []
        for method in table.methods:
            key = problem, method
            text = html.escape(table.text(problem, method))
            place = ("", " class=best", " class=second")[table.place(problem, method)]
            value = f' data-value="{table.mean[key]:.8g}"' if key in table.mean else ""
            paper = f"<small>{table.paper[key]:g}</small>" if key in table.paper else ""
            cells.append(f"<td{place}{value}>{text}{paper}</td>")
        rows.append(f'<tr><th scope="row">{html.escape(problem)}</th>{"".join(cells)}</tr>')
    foot = []
    for name, values, spec in table.footer():
        own = "".join(
            f"<td>{format(values[m], spec) if m in values else ''}</td>" for m in table.methods
        )
        foot.append(f'<tr><th scope="row">{html.escape(name)}</th>{own}</tr>')
    return (
        f'<p class="caption">{html.escape(table.caption("below it"))}.</p><div class="wide"><table>'
        f'<thead><tr><th scope="col"><button>problem</button></th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody><tfoot>{''.join(foot)}</tfoot></table></div>"
    )
