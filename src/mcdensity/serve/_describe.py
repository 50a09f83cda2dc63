"""How to ask: what OpenAPI says of `/predict`, and pages that need no network."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

__all__ = ["PREDICT", "page", "page_of"]

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2.5rem auto;padding:0 1rem;
color:#222;background:#fff}code,pre{font:14px/1.45 ui-monospace,monospace;background:#f3f3f3;
border-radius:4px;padding:.1em .3em}pre{padding:.8em;overflow-x:auto}h2{margin-top:2em}
table{border-collapse:collapse}td{padding:.2em .8em .2em 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}code,pre{background:#2a2a2a}
a{color:#8ab4f8}}
"""

_ROW = {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean", "null"]}}


def _numbers(what: str, **more: Any) -> dict[str, Any]:
    number = {"type": "number", **more}
    return {"oneOf": [number, {"type": "array", "items": number}], "description": what}


_OPTIONS: dict[str, Any] = {
    "rows": {
        "type": "array",
        "minItems": 1,
        "items": _ROW,
        "description": "Objects with a value for each feature; null is a missing value.",
    },
    "quantiles": _numbers("Probabilities of quantiles.", exclusiveMinimum=0, exclusiveMaximum=1),
    "interval": _numbers("Coverage of central intervals.", exclusiveMinimum=0, exclusiveMaximum=1),
    "above": _numbers("Values v for the probability P(y > v)."),
    "density": _numbers("Values of y for the density; at an atom it is the mass there."),
    "mean": {"type": "boolean", "description": "Whether to return the mean."},
    "model": {"type": "string", "description": "Name of the model, where there are several."},
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {"type": "string"}, "row": {"type": "integer"}, "column": {"type": "string"},
    },
}  # fmt: skip


def _reply(what: str, schema: Any) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": schema}}}


PREDICT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["rows"],
                    "additionalProperties": False,
                    "properties": _OPTIONS,
                },
                "example": {"rows": [{"x0": 0.5}], "interval": 0.9, "above": 2.0},
            }
        },
    },
    "responses": {
        "200": _reply(
            "Of each row what was asked for, under the same names; by default the mean and three "
            "quantiles. A number that is infinite is null.",
            {
                "type": "object",
                "properties": {
                    "model": {"type": "string"},
                    "predictions": {"type": "array", "items": {"type": "object"}},
                },
            },
        ),
        "401": _reply("The token is missing or wrong.", _ERROR),
        "413": _reply("The request is too large.", _ERROR),
        "422": _reply("The request is wrong; row and column say where.", _ERROR),
        "503": _reply("Too many requests wait; try again.", _ERROR),
    },
}


def page(title: str, body: str) -> str:
    """Return an HTML page without scripts."""
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        "<meta http-equiv='Content-Security-Policy' "
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{html.escape(title)}</h1>{body}</html>"
    )


def page_of(
    openapi: dict[str, Any] | None, models: Sequence[str] = (), *, explorer: bool = False
) -> str:
    """Return the page about the paths, or the start page with the names of the models."""
    if openapi is None:
        rows = "".join(
            f"<tr><td>{html.escape(name)}<td>"
            + (f"<a href='?model={quote(name)}'>explore</a> " if explorer else "")
            + f"<a href='schema?model={quote(name)}'>features</a>"
            for name in models
        )
        return page("mcdensity", f"<table>{rows}</table><p><a href='docs'>How to ask</a></p>")
    parts = []
    for path, methods in openapi["paths"].items():
        for method, entry in methods.items():
            what = html.escape(entry.get("description", ""))
            parts.append(f"<h2><code>{method.upper()} {path}</code></h2><p>{what}</p>")
            if path == "/predict":
                parts.append(_predict())
    parts.append("<p>For programs: <a href='openapi.json'>openapi.json</a>.</p>")
    return page("mcdensity: how to ask", "".join(parts))


def _predict() -> str:
    rows = "".join(
        f"<tr><td><code>{name}</code><td>{html.escape(option['description'])}"
        for name, option in _OPTIONS.items()
    )
    replies = "".join(
        f"<tr><td><code>{status}</code><td>{html.escape(reply['description'])}"
        for status, reply in PREDICT["responses"].items()
    )
    example = json.dumps(PREDICT["requestBody"]["content"]["application/json"]["example"])
    text = (
        "curl -H 'Content-Type: application/json' \\\n     -d '"
        + example
        + "' \\\n     http://127.0.0.1:8000/predict"
    )
    shown = f"<pre>{html.escape(text)}</pre>"
    return f"<table>{rows}</table>{shown}<p>Answers:</p><table>{replies}</table>"
