"""What every request passes: the token, and the counting."""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from typing import Any

from mcdensity.serve._counters import Counters

__all__ = ["Gate"]

# Who asks whether the server lives need not know the token.
_OPEN = "/healthz"
_PATHS = frozenset({"/predict", "/schema", "/healthz", "/metrics", "/docs", "/openapi.json", "/"})
_REFUSAL = b'{"error": "A token is needed: send it as Authorization: Bearer TOKEN."}'


class Gate:
    """Middleware (ASGI) that asks for a token and counts answers.

    Parameters
    ----------
    app : ASGI application
    token : bytes or None
    counters : Counters
    """

    def __init__(self, app: Any, token: bytes | None, counters: Counters) -> None:
        self._app, self._token, self._counters = app, token, counters

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, path = time.perf_counter(), scope["path"]
        status = 500

        async def noting(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if self._token is None or path == _OPEN or self._knows(scope["headers"]):
                await self._app(scope, receive, noting)
            else:
                await _refuse(noting)
        finally:
            # Other paths are counted as one: clients must not make up new ones without end.
            known = path if path in _PATHS else "other"
            self._counters.request(known, status, time.perf_counter() - start)

    def _knows(self, headers: Any) -> bool:
        given = b""
        for name, value in headers:
            if name == b"authorization":
                scheme, _, given = value.partition(b" ")
                if scheme.lower() == b"basic":  # browsers: the password of any user
                    try:
                        given = base64.b64decode(given, validate=True).partition(b":")[2]
                    except (binascii.Error, ValueError):
                        given = b""
                elif scheme.lower() != b"bearer":
                    given = b""
        assert self._token is not None
        return hmac.compare_digest(given.strip(), self._token)


async def _refuse(send: Any) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"www-authenticate", b'Basic realm="mcdensity", charset="UTF-8"'),
        (b"content-length", str(len(_REFUSAL)).encode()),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": _REFUSAL})
