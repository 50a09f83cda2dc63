"""Charts of the result page, as SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from typing import Any

from mcdensity.benchmark.protocols import Protocol
from mcdensity.benchmark.tables import Table

__all__ = ["density_panels", "dot_chart", "line_chart"]

# Colours are classes of the page's style, once for light and once for dark windows. MCD is always
# the first.
_COLORS = tuple(f"k{i}" for i in range(8))
# The densities of these are drawn: more lines in a small panel could not be told apart.
_DRAWN = ("MCD:MLP", "MDN", "NF", "NNKCDE")
_MARKS = ("circle", "square", "triangle", "diamond")


def _scale(low: float, high: float, start: float, stop: float, log: bool) -> Any:
    def change(value: float) -> float:
        return math.log10(value) if log else value

    a, b = change(low), change(high)
    span = (b - a) or 1.0
    return lambda value: start + (change(value) - a) / span * (stop - start)


def _ticks(low: float, high: float, log: bool) -> list[float]:
    if log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        factors = (1,) if last - first > 3 else (1, 2, 5)
        ticks = [f * 10.0**k for k in range(first, last + 1) for f in factors]
        return [t for t in ticks if low <= t <= high]
    step = 10 ** math.floor(math.log10((high - low) / 3 or 1))
    step *= next(f for f in (1, 2, 5, 10) if (high - low) / (f * step) <= 6)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _mark(kind: str, x: float, y: float, color: str, title: str) -> str:
    shape = {
        "circle": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>',
        "square": f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>',
        "triangle": f'<path d="M{x:.1f},{y - 5:.1f}l5,9h-10z"/>',
        "diamond": f'<path d="M{x:.1f},{y - 5.5:.1f}l5.5,5.5-5.5,5.5-5.5-5.5z"/>',
    }[kind]
    return f'<g class="key {color}"><title>{html.escape(title)}</title>{shape}</g>'


def _style(protocol: Protocol, method: str) -> tuple[str, str]:
    """Colour and mark of a method, the same in all charts of a protocol."""
    known = protocol.methods
    index = known.index(method) if method in known else len(known)
    return _COLORS[index % len(_COLORS)], _MARKS[index // len(_COLORS) % len(_MARKS)]


def _legend(protocol: Protocol, names: Iterable[str]) -> str:
    items = []
    for name in names:
        color, mark = _style(protocol, name)
        items.append(
            f'<span><svg viewBox="0 0 14 14">{_mark(mark, 7, 7, color, name)}</svg>'
            f"{html.escape(name)}</span>"
        )
    return f'<p class="legend">{"".join(items)}</p>'


def dot_chart(table: Table) -> str:
    """One line per problem, one mark per method; on a log scale where all numbers are positive."""
    methods = table.ranked_methods
    problems = [p for p in table.problems if any((p, m) in table.mean for m in methods)]
    values = [table.mean[p, m] for p in problems for m in methods if (p, m) in table.mean]
    if not values:
        return ""
    log = table.lower_is_better and min(values) > 0
    low, high = min(values), max(values)
    if not log and not table.lower_is_better:
        low = max(low, -6.0)  # the worst would squeeze all others together
    left, width, row = 170, 820, 26
    height = row * len(problems) + 40
    x = _scale(low, high, left + 10, width - 15, log)
    parts = [
        f'<text x="{x(t):.1f}" y="{height - 8}" text-anchor="middle">{t:g}</text>'
        f'<line x1="{x(t):.1f}" x2="{x(t):.1f}" y1="6" y2="{height - 26}" class="grid"/>'
        for t in _ticks(low, high, log)
    ]
    for j, problem in enumerate(problems):
        y = row * j + 18
        parts.append(
            f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{html.escape(problem)}</text>'
            f'<line x1="{left}" x2="{width}" y1="{y}" y2="{y}" class="grid"/>'
        )
        for method in reversed(methods):
            if (problem, method) in table.mean:
                value = table.mean[problem, method]
                color, mark = _style(table.protocol, method)
                at = x(min(max(value, low), high))
                parts.append(_mark(mark, at, y, color, f"{method}: {value:.4g}"))
    return _figure(table.metric, width, height, parts) + _legend(table.protocol, methods)


def line_chart(table: Table, across: str, up: str) -> str:
    """Lines of methods over problems that are numbers, both axes logarithmic."""
    methods = table.ranked_methods
    points = {
        m: [(float(p), max(table.mean[p, m], 1e-4)) for p in table.problems if (p, m) in table.mean]
        for m in methods
    }
    flat = [point for line in points.values() for point in line]
    if not flat:
        return ""
    width, height, left = 820, 380, 70
    xs, ys = [a for a, _ in flat], [b for _, b in flat]
    x = _scale(min(xs), max(xs), left, width - 20, True)
    y = _scale(min(ys), max(ys), height - 50, 15, True)
    parts = [
        f'<text x="{x(t):.1f}" y="{height - 28}" text-anchor="middle">{t:g}</text>'
        f'<line x1="{x(t):.1f}" x2="{x(t):.1f}" y1="10" y2="{height - 45}" class="grid"/>'
        for t in sorted(set(xs))
    ]
    parts += [
        f'<text x="{left - 8}" y="{y(t) + 4:.1f}" text-anchor="end">{t:g}</text>'
        f'<line x1="{left}" x2="{width - 10}" y1="{y(t):.1f}" y2="{y(t):.1f}" class="grid"/>'
        for t in _ticks(min(ys), max(ys), True)
    ]
    parts.append(
        f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">{html.escape(across)}</text>'
    )
    for method in methods:
        color, mark = _style(table.protocol, method)
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points[method])
        parts.append(f'<polyline points="{path}" class="{color}"/>')
        for a, b in points[method]:
            parts.append(_mark(mark, x(a), y(b), color, f"{method}, {a:g}: {b:.4g}"))
    return _figure(f"{up} by {across}", width, height, parts) + _legend(table.protocol, methods)


def density_panels(protocol: Protocol, curves: dict[tuple[str, str], Any]) -> str:
    """For each problem a panel: the true density as an area, estimates as lines."""
    drawn = [m for m in _DRAWN if any(key[1] == m for key in curves)]
    panels = []
    for problem in protocol.problems:
        have = [m for m in drawn if (problem, m) in curves]
        if not have:
            continue
        pictures = [
            _density(protocol, problem, [(m, curves[problem, m][row]) for m in have])
            for row in range(len(curves[problem, have[0]]))
        ]
        panels.append(
            f"<figure><figcaption>{html.escape(problem)}</figcaption>{''.join(pictures)}</figure>"
        )
    box = '<rect class="truth" x="1" y="2" width="12" height="10"/>'
    truth = f"<span><svg viewBox='0 0 14 14'>{box}</svg>truth</span>"
    legend = _legend(protocol, drawn).replace('<p class="legend">', f'<p class="legend">{truth}')
    return legend + f'<div class="panels">{"".join(panels)}</div>'


def _density(protocol: Protocol, problem: str, curves: list[tuple[str, Any]]) -> str:
    width, height = 260, 150
    grid, truth = curves[0][1]["y"], curves[0][1]["truth"]
    top = 1.25 * max(truth)
    x = _scale(grid[0], grid[-1], 8, width - 8, False)
    y = _scale(0, top, height - 22, 6, False)

    def path(values: list[float]) -> str:
        return " ".join(
            f"{x(a):.1f},{y(min(b, top)):.1f}" for a, b in zip(grid, values, strict=True)
        )

    parts = [
        f'<polygon points="{x(grid[0]):.1f},{y(0):.1f} {path(truth)} {x(grid[-1]):.1f},{y(0):.1f}" '
        'class="truth"/>'
    ]
    for method, curve in curves:
        color = _style(protocol, method)[0]
        parts.append(
            f'<polyline points="{path(curve["estimate"])}" class="{color}">'
            f"<title>{html.escape(method)}</title></polyline>"
        )
    parts += [
        f'<text x="{x(t):.1f}" y="{height - 6}" text-anchor="middle">{t:g}</text>'
        for t in _ticks(grid[0], grid[-1], False)
    ]
    return _figure(f"densities of {problem}", width, height, parts, "small")


def _figure(name: str, width: int, height: int, parts: list[str], kind: str = "large") -> str:
    return (
        f'<div class="wide"><svg class="chart {kind}" role="img" aria-label="{html.escape(name)}" '
        f'viewBox="0 0 {width} {height}">{"".join(parts)}</svg></div>'
    )
