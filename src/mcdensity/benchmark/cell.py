"""Cells in processes of their own: ``python -m mcdensity.benchmark.cell`` serves a supervisor.

Loading the libraries takes longer than most cells. So a server loads them once, computes nothing
itself, and forks a fresh process for every cell that a line of its input describes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

__all__ = ["die_with_parent"]

_PACKAGES = (
    "mcdensity", "numpy", "scipy", "scikit-learn", "torch", "xgboost", "catboost", "lightgbm",
    "zuko",
)  # fmt: skip
# Loaded before the first cell; what is not installed is left to the cell that needs it.
_PRELOADED = (
    "torch._dynamo", "sklearn.ensemble", "sklearn.neural_network", "sklearn.multioutput", "pandas",
    "mcdensity.mcd", "mcdensity.metrics", "mcdensity.discriminators.neural",
    "mcdensity.discriminators.trees", "mcdensity.baselines.deepcde", "mcdensity.baselines.flow",
    "mcdensity.baselines.flexcode", "mcdensity.baselines.lscde", "mcdensity.baselines.rfcde",
    "mcdensity.baselines.mdn", "mcdensity.baselines.kmn", "mcdensity.simulators",
    "mcdensity.datasets", "mcdensity.benchmark.protocols", "xgboost", "catboost", "lightgbm",
    "zuko.transforms",
)  # fmt: skip


def die_with_parent() -> None:
    """Ask Linux to end this process when the one that started it ends, even by SIGKILL."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _versions() -> str:
    from mcdensity.benchmark.source import source_commit

    known = {"commit": source_commit(), "python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            known[name] = version(name)
    return json.dumps(known)


def _run(asked: dict[str, Any]) -> dict[str, Any]:
    """Run a cell in this process; a failure is a result too."""
    out: dict[str, Any] = {}
    try:
        from mcdensity.benchmark.protocols import run_cell

        warnings.simplefilter("ignore")
        out |= run_cell(**asked)
        out["status"] = "done"
    except BaseException as error:  # a method may also call sys.exit
        if type(error).__name__ in ("DatasetUnavailableError", "NotForThisTargetError"):
            out |= {"status": "unavailable", "metrics": {}, "error": str(error)}
        else:
            out |= {"status": "failed", "metrics": {}, "error": traceback.format_exc()}
    # Kilobytes, but bytes on macOS.
    unit = 2**20 if sys.platform == "darwin" else 2**10
    out["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return out


def _forked(asked: dict[str, Any], time_limit: float) -> dict[str, Any]:
    """Run a cell in a forked process, and end it after its time."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            os.setsid()
            os.close(read)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1):
                os.dup2(nowhere, stream)
            with os.fdopen(write, "w") as out:
                out.write(json.dumps(_run(asked)))
        finally:
            os._exit(0)
    os.close(write)
    data = b""
    deadline = time.monotonic() + time_limit
    with os.fdopen(read, "rb", buffering=0) as pipe:
        while True:
            ready = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                text = f"Ended after its time limit of {time_limit:g} s."
                return {"status": "failed", "metrics": {}, "error": text}
            part = pipe.read(1 << 16)
            if not part:
                break
            data += part
    code = os.waitpid(pid, 0)[1]
    try:
        return json.loads(data)
    except ValueError:
        text = f"The process ended without a result (wait status {code})."
        return {"status": "failed", "metrics": {}, "error": text}


def main() -> None:
    """Answer each line of the input, a cell, with a line of the output, its result."""
    sys.path.insert(0, os.getcwd())
    # What libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            import_module(name)
    about = {"versions": _versions(), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    while line := sys.stdin.readline():
        asked = json.loads(line)
        limit = asked.pop("time_limit")
        answers.write(json.dumps(about | _forked(asked, limit)) + "\n")


if __name__ == "__main__":
    main()
