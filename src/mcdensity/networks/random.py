"""Random numbers of the networks: each thread has a generator of its own while it trains."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["generator", "seeded"]

_local = threading.local()


def generator(device: torch.device | None = None) -> torch.Generator | None:
    """Return this thread's generator within `seeded`, else None: torch's own."""
    if device is not None and device.type != "cpu":
        return None
    return getattr(_local, "generator", None)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed this thread's generator, and outside worker threads torch's own for a while.

    Modules of users, and draws on a GPU, use torch's own, which is restored afterwards. Threads
    share it, so that a worker leaves it alone.
    """
    before = generator()
    _local.generator = torch.Generator().manual_seed(seed)
    try:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield
    finally:
        _local.generator = before
