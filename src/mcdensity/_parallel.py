"""Work on several cores: in threads, or in processes where much of the work is Python's."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any, TypeVar

import joblib
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

__all__ = ["in_parallel", "limited_threads", "worker_count"]

# Seconds after which processes without work end.
_IDLE = 300
_starting = threading.Lock()

Item = TypeVar("Item")
Result = TypeVar("Result")


def worker_count(n_jobs: int | None) -> int:
    """Return how many threads to use.

    None: as many as there are cores, or as ``OMP_NUM_THREADS`` says, and one within a worker of
    joblib. Negative numbers count from the number of cores, as in scikit-learn.
    """
    if n_jobs is not None:
        return joblib.effective_n_jobs(n_jobs)
    backend, jobs = get_active_backend()
    if backend.nesting_level:
        return 1
    if jobs is not None:
        return joblib.effective_n_jobs(jobs)
    cores = joblib.cpu_count()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores, int(asked))) if asked.isdigit() else cores


@lru_cache
def _controller(user_api: str, has_torch: bool) -> ThreadpoolController:
    """Find the libraries with threads of their own; again when torch has been imported.

    Those of one kind alone: when a limit ends, all that are known are set to what they had.
    """
    return ThreadpoolController().select(user_api=user_api)


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Let libraries with OpenMP use so many threads at most when they are called from this one."""
    libraries = _controller("openmp", "torch" in sys.modules)
    now = (library.num_threads for library in libraries.lib_controllers)
    with libraries.limit(limits=min([count, *now])):
        yield


class _QuietAlgebra:
    """While processes work beside this one, its linear algebra (BLAS) uses one thread.

    That is a setting of the whole process. It is taken back when the last of our threads is done.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._limit = _controller("blas", "torch" in sys.modules).limit(limits=1)
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limit.restore_original_limits()


_quiet_algebra = _QuietAlgebra()


def in_parallel(
    function: Callable[..., Result],
    items: Iterable[Item],
    n_jobs: int | None,
    *,
    processes: bool = False,
    after: Sequence[int | None] | None = None,
    told: Callable[[Result], Any] | None = None,
) -> list[Result]:
    """Apply a function to each item; the results come in the order of the items.

    The calling thread takes its share of the work, so that the first item does not wait until
    processes have started. Libraries that use OpenMP, if they have been imported before, use one
    thread in each of ours. That is a setting of the thread, not of the process; beside processes
    BLAS has one thread, too: with 1000 rows two of them made all others wait.

    Parameters
    ----------
    function : callable
    items : iterable
        Started in this order.
    n_jobs : int or None
        See `worker_count`.
    processes : bool, default False
        Whether the others work in processes, which are kept for the next call, instead of threads.
    after : sequence of int or None, optional
        For each item the number of an earlier one that must be done first. The function is then
        called with the item and what it is told of the result of that one, or None.
    told : callable, optional
        From a result to what is told of it; by default the result.
    """
    work = _SharedWork(list(items), after, told)
    workers = min(worker_count(n_jobs), len(work.items))
    backend = get_active_backend()[0]
    if processes and workers > 1 and type(backend).__name__ != "LokyBackend":
        while work.waiting:  # a backend of the user's, such as Dask's
            some = [joblib.delayed(function)(*work.arguments(i)) for i in work.ready()]
            found = joblib.Parallel(n_jobs=workers)(some)
            work.finish(dict(zip(work.ready(), found, strict=True)))
        return work.in_order()

    def alone(*arguments: Any) -> Any:
        with limited_threads(1), _quiet_algebra if processes else nullcontext():
            return function(*arguments)

    def elsewhere(*arguments: Any) -> Any:
        return _processes(workers - 1).submit(function, *arguments).result()

    run = elsewhere if processes else alone
    others = [
        threading.Thread(target=work.do, args=(run,), daemon=True) for _ in range(workers - 1)
    ]
    work.do(alone, others)
    if work.error is None or isinstance(work.error, Exception):  # an interrupt does not wait
        for thread in others:
            if thread.ident is not None:  # it was started
                thread.join()
    if work.error is not None:
        raise work.error
    return work.in_order()


@lru_cache(maxsize=1)
def _pool(count: int, process: int) -> Any:
    from joblib.externals.loky import ProcessPoolExecutor

    # One thread in each process, whatever the environment says for this one.
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    env = dict.fromkeys(names, "1")
    return ProcessPoolExecutor(count, timeout=_IDLE, env=env, initializer=_stay)


def _stay() -> None:
    """Keep a process that has grown: large models are no leak, and its end would be warned of."""
    from joblib.externals.loky import process_executor

    process_executor._USE_PSUTIL = False


def _processes(count: int) -> Any:
    """Return processes that wait for work, new ones if there are none or these have died."""
    with _starting:
        flags = _pool(count, os.getpid())._flags
        if flags.broken or flags.shutdown:
            _pool.cache_clear()
        return _pool(count, os.getpid())


class _SharedWork:
    """Items that several threads take, one after the other, as soon as what they need is done."""

    def __init__(
        self,
        items: Sequence[Any],
        after: Sequence[int | None] | None,
        told: Callable[[Any], Any] | None,
    ) -> None:
        self.items, self.after, self.told = items, after, told or (lambda result: result)
        self.waiting = list(range(len(items)))
        self.results: dict[int, Any] = {}
        self.error: BaseException | None = None
        self.changed = threading.Condition()

    def ready(self) -> list[int]:
        """Numbers of items that may be started."""
        after = self.after or [None] * len(self.items)
        return [i for i in self.waiting if after[i] is None or after[i] in self.results]

    def arguments(self, number: int) -> list[Any]:
        """Return what the function is called with."""
        if self.after is None:
            return [self.items[number]]
        needed = self.after[number]
        return [self.items[number], None if needed is None else self.told(self.results[needed])]

    def finish(self, results: dict[int, Any]) -> None:
        """Take results."""
        with self.changed:
            self.results.update(results)
            self.waiting = [i for i in self.waiting if i not in results]
            self.changed.notify_all()

    def in_order(self) -> list[Any]:
        """Return all results."""
        return [self.results[i] for i in range(len(self.items))]

    def do(self, run: Callable[..., Any], others: Sequence[threading.Thread] = ()) -> None:
        """Take items until none is left; start the others when the first has been taken."""
        while (number := self._next()) is not None:
            for thread in others:
                thread.start()
            others = ()
            try:
                self.finish({number: run(*self.arguments(number))})
            except BaseException as error:
                with self.changed:
                    self.error = self.error or error
                    self.waiting.clear()
                    self.changed.notify_all()

    def _next(self) -> int | None:
        with self.changed:
            while self.waiting and not (ready := self.ready()):
                self.changed.wait()
            if not self.waiting:
                return None
            self.waiting.remove(ready[0])
            return ready[0]
