"""Random numbers of the networks: each thread has a generator of its own while it trains."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

__all__ = ["generator", "seeded"]

_local = threading.local()
_lock = threading.RLock()


def generator(device: torch.device | None = None) -> torch.Generator | None:
    """Return this thread's generator within `seeded`, else None: torch's own."""
    if device is not None and device.type != "cpu":
        return None
    return getattr(_local, "generator", None)


@contextmanager
def seeded(seed: int, *, shared: bool = False) -> Iterator[None]:
    """Seed this thread's generator, and torch's own where that is needed.

    Parameters
    ----------
    seed : int
    shared : bool, default False
        Whether something draws from torch's own generator, which all threads share: modules of
        users do. It is seeded, and restored afterwards; other threads that need it wait.
    """
    before = generator()
    _local.generator = torch.Generator().manual_seed(seed)
    # On a GPU all draws are torch's own.
    shared = shared or torch.cuda.is_available()
    try:
        with _lock if shared else nullcontext():
            if not shared:
                yield
                return
            devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(seed)
                yield
    finally:
        _local.generator = before
