"""Running cells: each in a process of its own, supervised by joblib or by a Dask cluster."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from mcdensity._validation import require
from mcdensity.benchmark.cell import die_with_parent
from mcdensity.benchmark.methods import check_method
from mcdensity.benchmark.protocols import Protocol, get_protocol
from mcdensity.benchmark.store import Cell, Result, Store

__all__ = ["plan", "run", "run_in_process", "stored_name"]

# Beyond the time limit of a cell: starting its process, and writing its result.
_GRACE = 120.0
# How often Dask gives a cell to another worker if its worker dies.
_DASK_RETRIES = 3
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def stored_name(protocol: str, quick: bool) -> str:
    """Return the name a protocol has in the store: quick runs are never mixed with full ones."""
    return f"{protocol}-quick" if quick else protocol


def plan(
    protocol: Protocol,
    methods: Sequence[str] | None = None,
    seeds: int | None = None,
    problems: Sequence[str] | None = None,
    quick: bool = False,
) -> list[Cell]:
    """List the cells of a run, seed by seed, so that an early table has all rows."""
    chosen = list(dict.fromkeys(check_method(m) for m in methods or protocol.methods))
    count = protocol.seeds if seeds is None else seeds
    if count < 1:
        raise ValueError(f"seeds must be at least 1, got {count}.")
    rows = list(dict.fromkeys(problems or protocol.problems))
    unknown = [p for p in rows if p not in protocol.problems]
    if unknown:
        raise ValueError(
            f"Problem {unknown[0]!r} is not one of {protocol.name}; choose from "
            f"{', '.join(protocol.problems)}."
        )
    name = stored_name(protocol.name, quick)
    return [
        Cell(name, problem, method, seed)
        for seed in range(count)
        for problem in rows
        if seed < protocol.limits.get(problem, seed + 1)
        for method in chosen
    ]


def run_in_process(cell: Cell, quick: bool, time_limit: float) -> Result:
    """Run a cell in a new process with one thread; a failure is a result too."""
    asked = {
        "protocol": cell.protocol.removesuffix("-quick"),
        "problem": cell.problem,
        "method": cell.method,
        "seed": cell.seed,
        "quick": quick,
        "time_limit": time_limit,
    }
    fields = _server().ask(asked)
    return Result(cell, **fields, finished=datetime.now(UTC).isoformat(timespec="milliseconds"))


class _Server:
    """A process that forks the cells' processes: the libraries are loaded once."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mcdensity.benchmark.cell"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | dict.fromkeys(_THREADS, "1"),
            start_new_session=True,
            preexec_fn=die_with_parent,
        )

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Send a cell and wait for its result."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = ""
        try:
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            pass
        except BaseException:
            self.close()
            raise
        if not line:
            self.close()
            text = f"The server of the cells ended with code {self.process.returncode}."
            return {"status": "failed", "metrics": {}, "error": text}
        return json.loads(line)

    def close(self) -> None:
        """End the process, and with it the cell that it runs."""
        if self in _servers:
            _servers.remove(self)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


_servers: list[_Server] = []
_of_thread = threading.local()


def _server() -> _Server:
    """Return the server of this thread."""
    if not hasattr(os, "fork"):
        raise OSError("Running cells needs a system that can fork processes: Linux or macOS.")
    server = getattr(_of_thread, "server", None)
    if server is None or server not in _servers or server.process.poll() is not None:
        server = _of_thread.server = _Server()
        _servers.append(server)
    return server


def _close_servers() -> None:
    for server in list(_servers):
        server.close()


def run(
    protocol: str,
    store: Store,
    *,
    methods: Sequence[str] | None = None,
    problems: Sequence[str] | None = None,
    seeds: int | None = None,
    jobs: int = 2,
    scheduler: str | None = None,
    quick: bool = False,
    retry_failed: bool = False,
    time_limit: float | None = None,
    report: Callable[[Result | None, int, int], None] | None = None,
) -> list[Result]:
    """Run the cells of a protocol that are not in the store yet, and store each as it ends.

    Several processes may run the same protocol on one store: each cell is run by one of them.

    Parameters
    ----------
    protocol : str
    store : Store
    methods, problems : sequence of str, optional
        By default all of the protocol.
    seeds : int, optional
        Number of seeds, from 0 on.
    jobs : int, default 2
        Processes at a time.
    scheduler : str, optional
        Address of a Dask scheduler, whose workers then run the cells.
    quick : bool
        Small budgets and grids: to try, not to compare.
    retry_failed : bool
        Whether to run failed cells again.
    time_limit : float, optional
        Seconds after which a cell is ended.
    report : callable, optional
        Called with each result (None at the start), the number of cells done, those of other
        processes too, and the number of all.

    Returns
    -------
    list of Result
        What was run now.
    """
    chosen = get_protocol(protocol)
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}.")
    limit = chosen.time_limit if time_limit is None else time_limit
    if not 0 < limit < 1e9:
        raise ValueError(f"time_limit must be a positive number of seconds, got {limit}.")
    cells = plan(chosen, methods, seeds, problems, quick)
    supervise = _with_dask(scheduler) if scheduler else _with_joblib(jobs)
    lifetime = limit * (1 + _DASK_RETRIES if scheduler else 1) + _GRACE
    todo = _Todo(store, cells, retry_failed, lifetime)
    out = []
    if report is not None:
        report(None, todo.count_done(), len(cells))
    try:
        for result in supervise(todo, quick, limit):
            store.record(result)
            store.renew(lifetime)
            out.append(result)
            if report is not None:
                report(result, todo.count_done(), len(cells))
    finally:
        _close_servers()
        store.release(todo.claimed)
    return out


class _Todo:
    """The cells that are left to run; going over them claims each that no other process runs."""

    def __init__(
        self, store: Store, cells: Sequence[Cell], retry_failed: bool, lifetime: float
    ) -> None:
        self.store, self.cells, self.lifetime = store, cells, lifetime
        self.claimed: set[Cell] = set()
        # Data that could not be had may be there now; failures happen again, unless told otherwise.
        self._again = {"unavailable"} | ({"failed"} if retry_failed else set())
        self._before = store.stamps(cells[0].protocol)
        self._left = [
            c for c in cells if c not in self._before or self._before[c][0] in self._again
        ]

    def count_done(self) -> int:
        """Count the cells that are not left to run, by whichever process they were run."""
        now = self.store.stamps(self.cells[0].protocol)
        waiting = [c for c in self._left if now.get(c) == self._before.get(c)]
        return len(self.cells) - len(waiting)

    def __iter__(self) -> Iterator[Cell]:
        left = self._left
        while left:
            refused = []
            for cell in left:
                seen = self._before[cell][1] if cell in self._before else None
                if self.store.claim(cell, seen, self.lifetime):
                    self.claimed.add(cell)
                    yield cell
                else:
                    refused.append(cell)
            # Once more while it brings anything: another process may have died with its cells.
            left = refused if len(refused) < len(left) else []


Supervisor = Callable[[Iterable[Cell], bool, float], Iterator[Result]]


def _with_joblib(jobs: int) -> Supervisor:
    from joblib import Parallel, delayed

    def supervise(cells: Iterable[Cell], quick: bool, limit: float) -> Iterator[Result]:
        # Threads only wait here: the work is in the cells' own processes.
        # Cells are taken one by one: what waits here could be run by another process.
        pool = Parallel(
            n_jobs=jobs, prefer="threads", return_as="generator_unordered", pre_dispatch=jobs,
            batch_size=1,
        )  # fmt: skip
        yield from pool(delayed(run_in_process)(cell, quick, limit) for cell in cells)

    return supervise


def _with_dask(address: str) -> Supervisor:
    distributed = require("distributed", "distributed")
    try:
        # Asked of a plain socket first: a client that finds nobody goes on trying, and says so
        # long after.
        host, port = distributed.comm.get_address_host_port(address, strict=True)
        socket.create_connection((host, port), timeout=10).close()
        client = distributed.Client(address, timeout=10, set_as_default=False)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ConnectionError(
            f"No Dask scheduler answers at {address!r}: {error}. Start one with `dask scheduler` "
            "and give the address it prints, or leave out --scheduler to run here."
        ) from error

    def supervise(cells: Iterable[Cell], quick: bool, limit: float) -> Iterator[Result]:
        with client:
            try:
                client.wait_for_workers(1, timeout=60)
            except TimeoutError as error:
                raise ConnectionError(
                    f"The Dask scheduler at {address!r} has no workers; start some with "
                    f"`dask worker {address}`."
                ) from error
            # A worker that dies takes its cell with it: the cell is given to another.
            futures = {
                client.submit(
                    _on_worker, tuple(cell), quick, limit, pure=False, retries=_DASK_RETRIES
                ): cell
                for cell in cells
            }
            for future in distributed.as_completed(list(futures), loop=client.loop):
                try:
                    result = future.result()
                except Exception as error:  # workers that die again and again, or lack the package
                    result = Result(futures[future], "failed", {}, error=f"{error!r}")
                yield result
                future.release()
            client.run(_close_servers)

    return supervise


def _on_worker(cell: tuple[Any, ...], quick: bool, limit: float) -> Result:
    return run_in_process(Cell(*cell), quick, limit)
