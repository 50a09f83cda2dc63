"""`mcdensity serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from mcdensity.cli.shared import model_key, working

__all__ = ["serve"]


def serve(
    models: Annotated[
        list[str],
        typer.Argument(help="Model files, from `mcdensity fit`; NAME=FILE gives one a name."),
    ],
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8000,
    host: Annotated[str, typer.Option(help="0.0.0.0: for other machines, too.")] = "127.0.0.1",
    max_rows: Annotated[int, typer.Option(help="Rows of one request.")] = 10_000,
    max_bytes: Annotated[int, typer.Option(help="Bytes of one request.")] = 8 << 20,
    max_waiting: Annotated[int, typer.Option(help="Requests that may wait.")] = 1000,
    explorer: Annotated[
        bool, typer.Option(help="Show the explorer, which holds rows of the training data.")
    ] = True,
) -> None:
    """Answer requests for predictions over HTTP; if MCDENSITY_TOKEN is set, clients must know it.

    POST /predict with {"rows": [{...}], "quantiles": [...], "interval": 0.9, "above": 40}; GET
    /schema, /docs, /healthz, /metrics, and the explorer at /. A model file that is replaced is
    taken up.
    """
    from mcdensity._validation import require

    require("fastapi", "serve")
    from mcdensity.persistence import load
    from mcdensity.serve import TOKEN, create_app, run
    from mcdensity.serve._running import bound

    files = _named(models)
    where = bound(host, port)
    try:
        with working("Loading the models"):
            app = create_app(
                files,
                max_rows=max_rows,
                max_bytes=max_bytes,
                max_waiting=max_waiting,
                explorer=explorer,
                load=lambda path: load(path, key=model_key()),
            )
    except BaseException:
        where.close()
        raise
    if (
        not os.environ.get(TOKEN)
        and not host.startswith("127.")
        and host not in ("localhost", "::1")
    ):
        text = f"Note: whoever reaches {host} may ask; set {TOKEN} to require a token."
        typer.secho(text, fg=typer.colors.YELLOW, err=True)
    where.listen(2048)  # who reads the next line may ask at once
    name = f"[{host}]" if ":" in host else host
    typer.echo(f"Serving {', '.join(files)} at http://{name}:{where.getsockname()[1]}", err=True)
    run(app, where)


def _named(models: list[str]) -> dict[str, Path]:
    """Return files by name: that which is given, or that of the file."""
    out: dict[str, Path] = {}
    for text in models:
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            name, path = Path(text).stem, text
        if not name:
            raise ValueError(f"Give a model as FILE or NAME=FILE, got {text!r}.")
        if name in out:
            raise ValueError(f"Two models have the name {name!r}; give one as NAME=FILE.")
        out[name] = Path(path)
    return out
