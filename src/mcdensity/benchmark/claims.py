"""Who runs a cell: processes that share a results file claim cells before they run them."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["Owner", "is_held", "this_process"]


class Owner(NamedTuple):
    """A process, told apart from later ones that the system gives the same number."""

    host: str
    pid: int
    born: str


def this_process() -> Owner:
    """Return the owner of the claims that this process makes."""
    return Owner(socket.gethostname(), os.getpid(), _born(os.getpid()))


def is_held(owner: Owner, expires: float) -> bool:
    """Whether a claim still holds: it has not expired, and its process may still be running.

    A process of another machine cannot be asked; its claims hold until they expire.
    """
    if time.time() > expires:
        return False
    return owner.host != socket.gethostname() or _is_running(owner)


def _is_running(owner: Owner) -> bool:
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it runs, and belongs to somebody else
        return True
    return _born(owner.pid) == owner.born


def _born(pid: int) -> str:
    """Return when a process was started, in ticks of the system; nothing where Linux's /proc lacks.

    A process that has ended, but that its parent has not waited for, counts as not born.
    """
    try:
        # The name of the program, in parentheses, may hold spaces.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "ended" if fields[0] == "Z" else fields[19]
