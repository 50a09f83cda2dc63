"""The server's process: its socket, its signals, its end."""

from __future__ import annotations

import errno
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from mcdensity._validation import check_integer

__all__ = ["bound", "run"]

# Seconds that requests under way get to finish.
_GRACE = 60
_BACKLOG = 2048


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address, or say why it cannot be."""
    check_integer("port", port, 0, 65535)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ValueError(f"There is no host {host!r}; give --host a name or an address.") from error
    out = socket.socket(family, kind, protocol)
    try:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        out.bind(address)
    except OSError as error:
        out.close()
        if error.errno == errno.EADDRINUSE:
            reason = f"Port {port} of {host} is in use; choose another with --port."
        elif error.errno == errno.EACCES:
            reason = f"Port {port} of {host} is not for you to use; choose another with --port."
        else:
            reason = f"{host} is no address of this machine; choose another with --host."
        raise OSError(reason) from error
    return out


def run(app: Any, where: socket.socket) -> None:
    """Serve until the process is told to end (SIGINT, SIGTERM); requests under way are finished.

    Parameters
    ----------
    app : ASGI application
        From `create_app`.
    where : socket
        Bound.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE,
    )
    with _quiet_end(), where:
        uvicorn.Server(config).run(sockets=[where])


@contextmanager
def _quiet_end() -> Iterator[None]:
    """Let the signals that uvicorn has obeyed, and raises again afterwards, do nothing more."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.signal(kind, lambda number, frame: None) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
