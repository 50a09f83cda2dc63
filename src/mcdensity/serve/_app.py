"""The web application: routes, the token, errors as sentences."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mcdensity._inputs import check_flag
from mcdensity._validation import check_integer
from mcdensity.serve._batching import Batcher, Job
from mcdensity.serve._counters import Counters
from mcdensity.serve._describe import PREDICT, page_of
from mcdensity.serve._gate import Gate
from mcdensity.serve._models import Served, Shelf
from mcdensity.serve._requests import Limits, RequestError, read_json, read_question, read_rows

__all__ = ["TOKEN", "create_app"]

# The environment variable with the token.
TOKEN = "MCDENSITY_TOKEN"
# Seconds in which a client must have sent its request, and between two looks at the files.
_SLOWEST, _LOOK = 30.0, 1.0
# A body that is too large is read this many times further, so that the client hears why.
_PATIENCE = 20
# Bodies of this size are read by another thread than that of the connections.
_LARGE = 1 << 17


def create_app(
    models: Any,
    *,
    max_rows: int = 10_000,
    max_bytes: int = 8 << 20,
    max_waiting: int = 1000,
    explorer: bool = True,
    load: Any = None,
) -> FastAPI:
    """Return a web application (ASGI) that predicts with some models.

    If the environment variable MCDENSITY_TOKEN is set, clients must send it, as
    ``Authorization: Bearer TOKEN``, or in a browser as the password of any user.

    Parameters
    ----------
    models : estimator, path or mapping
        A fitted estimator, a model file, or several of them by name. A file that is replaced is
        loaded again while the application runs.
    max_rows, max_bytes : int
        What one request may hold.
    max_waiting : int
        How many requests may wait for an answer; others get the status 503.
    explorer : bool, default True
        Whether the start page is the explorer, see `mcdensity.explore`. It holds a sample of the
        training rows.
    load : callable, optional
        From a path to an estimator; by default `mcdensity.load`.

    Returns
    -------
    fastapi.FastAPI

    Examples
    --------
    >>> from mcdensity import MCD
    >>> from mcdensity.serve import create_app
    >>> from mcdensity.simulators import get_simulator
    >>> X, y = get_simulator("LinearGauss").sample(200, random_state=0)
    >>> app = create_app(MCD("quadratic", random_state=0).fit(X, y))
    >>> app.title
    'mcdensity'
    """
    if load is None:
        from mcdensity.persistence import load
    limits = Limits(
        check_integer("max_rows", max_rows),
        check_integer("max_bytes", max_bytes),
        check_integer("max_waiting", max_waiting),
    )
    counters, token = Counters(), _token()
    shelf = Shelf(_by_name(models), load, counters.load)
    server = _Server(shelf, limits, counters, check_flag("explorer", explorer))
    app = FastAPI(
        title="mcdensity",
        description="Distributions of y given x.",
        lifespan=server.lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
    )
    server.add_routes(app)
    app.add_middleware(Gate, token=token, counters=counters)
    return app


def _by_name(models: Any) -> dict[str, Any]:
    if isinstance(models, str | Path):
        return {Path(models).stem: models}
    if not isinstance(models, Mapping):
        return {"model": models}
    if not models:
        raise ValueError("models is empty; give at least one model.")
    for name in models:
        if not isinstance(name, str) or not name:
            raise ValueError(f"models must have texts as names, got {name!r}.")
    return dict(models)


def _token() -> bytes | None:
    token = os.environ.get(TOKEN)
    if token is not None and not token.strip():
        raise ValueError(f"{TOKEN} is set, and empty; give it a secret, or unset it.")
    return None if token is None else token.strip().encode()


class _Server:
    """The state of an application, and what its routes do."""

    def __init__(self, shelf: Shelf, limits: Limits, counters: Counters, explorer: bool) -> None:
        self.shelf, self.limits, self.counters = shelf, limits, counters
        self.explorer = explorer
        self.batcher: Batcher | None = None
        self._bytes = 0
        # Pages of models that are served no longer go with these.
        self._pages: WeakKeyDictionary[Served, asyncio.Future[str]] = WeakKeyDictionary()

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Start the threads, and let them finish what waits."""
        self.batcher = Batcher(self.limits, self.counters.batch)
        self.shelf.watch(_LOOK)
        try:
            yield
        finally:
            await run_in_threadpool(self.batcher.close)
            await run_in_threadpool(self.shelf.close)

    def add_routes(self, app: FastAPI) -> None:
        """Connect paths and functions."""
        app.post("/predict", openapi_extra=PREDICT, response_class=Response)(self.predict)
        app.get("/schema")(self.schema)
        app.get("/healthz")(self.healthz)
        app.get("/metrics", response_class=PlainTextResponse)(self.metrics)
        app.get("/docs", include_in_schema=False)(lambda: HTMLResponse(page_of(app.openapi())))
        app.get("/", include_in_schema=False)(self.start_page)
        app.add_exception_handler(RequestError, _request_error)
        app.add_exception_handler(HTTPException, _http_error)
        app.add_exception_handler(Exception, _other_error)

    async def predict(self, request: Request) -> Response:
        """Predict the distribution of each row, and answer what is asked of it."""
        body = await self._body(request)
        try:
            job = (
                await run_in_threadpool(self._job, body) if len(body) > _LARGE else self._job(body)
            )
        finally:
            self._bytes -= len(body)
        del body
        if self.batcher is None:
            raise RequestError("The server has not started.", 503)
        reply = await asyncio.wrap_future(self.batcher.submit(job))
        return Response(reply, media_type="application/json")

    def _job(self, body: bytes) -> Job:
        content = read_json(body)
        model = self.shelf.get(content.get("model"))
        question = read_question(content, model.several)
        values, count = read_rows(content, model.columns, question, self.limits)
        model.check_dates(values)
        return Job(model, values, count, question)

    async def _body(self, request: Request) -> bytes:
        """Read a body, within the limits; its length is counted until it has been understood."""
        parts: list[bytes] = []
        size = 0
        said = request.headers.get("content-length", "")
        if said.isdecimal() and len(said) < 20 and int(said) > self.limits.bytes * _PATIENCE:
            raise self._too_large()
        try:
            async with asyncio.timeout(_SLOWEST):
                async for part in request.stream():
                    size += len(part)
                    if size > self.limits.bytes * _PATIENCE:
                        break
                    if size > self.limits.bytes:
                        self._release(parts)
                        continue
                    if self._bytes + len(part) > self.limits.waiting_bytes:
                        raise RequestError(
                            "Too much data is being received; try again in a second.", 503
                        )
                    parts.append(part)
                    self._bytes += len(part)
        except (TimeoutError, ClientDisconnect) as error:
            self._release(parts)
            raise RequestError("The request did not arrive in time.", 408) from error
        except BaseException:
            self._release(parts)
            raise
        if size > self.limits.bytes:
            self._release(parts)
            raise self._too_large()
        return b"".join(parts)

    def _too_large(self) -> RequestError:
        text = f"A request may have {self.limits.bytes:,} bytes, and this one has more; split it."
        return RequestError(text, 413)

    def _release(self, parts: list[bytes]) -> None:
        self._bytes -= sum(map(len, parts))
        parts.clear()

    async def schema(self, model: str | None = None) -> dict[str, Any]:
        """Return the features of a model with types and ranges, its targets, and the limits."""
        found = self.shelf.get(model)
        limits = {"rows": self.limits.rows, "bytes": self.limits.bytes}
        return found.schema() | {"models": self.shelf.names, "limits": limits}

    async def healthz(self) -> dict[str, Any]:
        """Say that the server is there."""
        return {"status": "ok", "models": len(self.shelf.names)}

    async def metrics(self) -> PlainTextResponse:
        """Return counts of requests, rows and batches for Prometheus."""
        waiting = 0 if self.batcher is None else self.batcher.waiting
        text = self.counters.text(waiting)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def start_page(self, model: str | None = None) -> Response:
        """Return the explorer of a model; of several, a list of them."""
        if not self.explorer:
            return HTMLResponse(page_of(None, self.shelf.names))
        if model is None and len(self.shelf.names) > 1:
            return HTMLResponse(page_of(None, self.shelf.names, explorer=True))
        served = self.shelf.get(model)
        making = self._pages.get(served)
        if making is None:
            # However many ask for the page, one thread makes it.
            making = asyncio.ensure_future(run_in_threadpool(served.page))
            self._pages[served] = making
        try:
            return HTMLResponse(await asyncio.shield(making))
        except Exception:
            self._pages.pop(served, None)
            raise


def _reply(content: dict[str, Any], status: int) -> Response:
    headers = {"Retry-After": "1"} if status == 503 else None
    # In ASCII: a client's text may hold halves of characters.
    return Response(json.dumps(content), status, headers, media_type="application/json")


async def _request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _reply(error.as_dict(), error.status)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {
        404: "There is nothing here; see /docs.",
        405: "This path does not take this method; see /docs.",
    }
    return _reply({"error": known.get(error.status_code, str(error.detail))}, error.status_code)


async def _other_error(request: Request, error: Exception) -> Response:
    return _reply({"error": "The server failed to answer this request."}, 500)
