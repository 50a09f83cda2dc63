"""Pieces of HTML that reports are made of; all text is escaped."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from mcdensity._numbers import readable
from mcdensity._validation import require

__all__ = [
    "Cell", "boxes", "figure_picture", "image", "number", "page", "percent", "picture", "pictures",
    "section", "share", "shown", "side", "table_of",
]  # fmt: skip


# Tables with so few columns do not fill a wide window.
_FEW_COLUMNS = 3


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, what it is sorted by, and how it looks.

    `markup` is put after the text as it is, so that it must come from this package.
    """

    text: str = ""
    value: float | None = None
    kind: str = ""
    markup: str = ""


def number(value: float, digits: int = 4, kind: str = "") -> Cell:
    """Return a cell with a number."""
    return Cell(readable(float(value), digits), float(value), kind)


def percent(value: float, decimals: int = 1) -> str:
    """Return a share as people write it, such as 90.5 %."""
    return f"{100 * value:.{decimals}f} %"


def share(value: float, kind: str = "") -> Cell:
    """Return a cell with a share."""
    return Cell(percent(value), float(value), kind)


def shown(value: Any) -> Cell:
    """Return a cell with a value of the data: a number, text, or nothing."""
    if value is None or value != value:
        return Cell("missing", kind="text")
    if isinstance(value, float | np.floating | int | np.integer) and not isinstance(value, bool):
        return Cell(readable(float(value)), float(value))
    return Cell(str(value), kind="text")


def boxes(numbers: Sequence[tuple[str, str]]) -> str:
    """Return numbers, each with what it is."""
    cells = "".join(
        f"<div><b>{html.escape(a)}</b><span>{html.escape(b)}</span></div>" for a, b in numbers
    )
    return f'<div class="numbers">{cells}</div>'


def table_of(
    head: Sequence[str],
    body: Sequence[Sequence[str | Cell]],
    *,
    foot: Sequence[Sequence[str | Cell]] = (),
    sortable: bool = True,
) -> str:
    """Return a table, which can be sorted where it has several rows; `foot` stays below."""
    rows = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in body]
    kinds = [
        next((row[j].kind for row in rows if row[j].kind == "text"), "") for j in range(len(head))
    ]
    heads = "".join(
        f'<th scope="col"{_class(kind)}>{html.escape(str(text))}</th>'
        for text, kind in zip(head, kinds, strict=True)
    )
    lines = "".join(map(_row, rows))
    below = f"<tfoot>{''.join(map(_row, foot))}</tfoot>" if foot else ""
    kind = ["sort"] * (sortable and len(body) > 1) + ["small"] * (len(head) <= _FEW_COLUMNS)
    inner = f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody>{below}"
    # A region that scrolls must be within reach of the keyboard.
    return f'<div class="wide" tabindex="0"><table{_class(" ".join(kind))}>{inner}</table></div>'


def _row(row: Sequence[str | Cell]) -> str:
    return "<tr>" + "".join(map(_cell, row)) + "</tr>"


def _cell(cell: str | Cell) -> str:
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    value = "" if cell.value is None else f' data-v="{cell.value:.9g}"'
    return f"<td{_class(cell.kind)}{value}>{html.escape(cell.text)}{cell.markup}</td>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def section(name: str, heading: str, words: str, *parts: str) -> str:
    """Return a section of the page: an anchor, a heading, words, and more HTML."""
    said = f"<p>{html.escape(words)}</p>" if words else ""
    inner = "\n".join(parts)
    return f'<section id="{name}"><h2>{html.escape(heading)}</h2>{said}\n{inner}</section>'


def side(*parts: str) -> str:
    """Return HTML side by side where the window is wide."""
    return f'<div class="side">{"".join(f"<div>{part}</div>" for part in parts)}</div>'


def page(
    title: str,
    header: str,
    body: Sequence[str],
    links: Sequence[tuple[str, str]],
    more_style: str = "",
) -> str:
    """Return the whole page; `header` and `body` are HTML."""
    folder = resources.files("mcdensity.report")
    style, script, text = (
        folder.joinpath(name).read_text(encoding="utf-8")
        for name in ("style.css", "sort.js", "template.html")
    )
    items = "".join(f'<li><a href="#{a}">{html.escape(b)}</a></li>' for a, b in links)
    inner = (
        f'<header><div>{header}</div></header>\n<nav aria-label="Sections"><ul>{items}</ul></nav>\n'
        f"<main>{chr(10).join(body)}</main>"
    )
    # The body comes last: what it holds is not searched for marks.
    for mark, part in (
        ("style", style + more_style),
        ("script", script),
        ("title", html.escape(title)),
    ):
        text = text.replace(f"<!-- {mark} -->", part)
    return text.replace("<!-- body -->", inner)


def figure_picture(draw: Callable[[Any], Any], size: tuple[float, float]) -> str:
    """Draw on a figure of its own, without pyplot's global state, and return it as base64."""
    figure = require("matplotlib.figure", "plot").Figure(figsize=size, layout="constrained")
    draw(figure)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=130)
    return base64.b64encode(out.getvalue()).decode()


def picture(draw: Callable[[Any], Any], size: tuple[float, float]) -> str:
    """Draw on axes of their own, and return the figure as base64."""
    return figure_picture(lambda figure: draw(figure.subplots()), size)


def image(data: str, alt: str) -> str:
    """Return a picture of pixels."""
    return f'<img alt="{html.escape(alt, quote=True)}" src="data:image/png;base64,{data}">'


def pictures(drawn: Sequence[tuple[str, str, str]], kind: str = "") -> str:
    """Return pictures side by side: HTML, a name and a caption of each."""
    figures = "".join(
        f"<figure>{data}<figcaption><b>{html.escape(name)}</b> {html.escape(text)}</figcaption>"
        "</figure>"
        for data, name, text in drawn
    )
    return f'<div class="pictures{f" {kind}" if kind else ""}">{figures}</div>'
