"""Pieces of HTML that reports are made of; all text is escaped."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Sequence
from typing import Any

from mcdensity._validation import require

__all__ = ["boxes", "figure_picture", "picture", "pictures", "table_of"]


def boxes(numbers: Sequence[tuple[str, str]]) -> str:
    """Return numbers, each with what it is."""
    cells = "".join(
        f"<div><b>{html.escape(a)}</b><span>{html.escape(b)}</span></div>" for a, b in numbers
    )
    return f'<div class="numbers">{cells}</div>'


def table_of(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table of text."""
    heads = "".join(f"<th>{html.escape(str(cell))}</th>" for cell in head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in body
    )
    return (
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        "</div>"
    )


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


def pictures(drawn: Sequence[tuple[str, str, str]]) -> str:
    """Return pictures side by side: data, a description and a caption of each."""
    figures = "".join(
        f'<figure><img alt="{html.escape(alt, quote=True)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{html.escape(text)}</figcaption></figure>"
        for data, alt, text in drawn
    )
    return f'<div class="pictures">{figures}</div>'
