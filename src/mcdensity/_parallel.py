"""Work on several cores: in threads, or in processes where much of the work is Python's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import joblib
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

__all__ = ["in_parallel", "worker_count"]

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
    if jobs not in (None, 1):
        return joblib.effective_n_jobs(jobs)
    cores = joblib.cpu_count()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores, int(asked))) if asked.isdigit() else cores


def in_parallel(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    n_jobs: int | None,
    *,
    processes: bool = False,
) -> list[Result]:
    """Apply a function to each item; the results come in the order of the items.

    In threads libraries that would start threads of their own use one in each of ours. That is a
    setting of the thread, not of the process.

    Parameters
    ----------
    function : callable
    items : iterable
    n_jobs : int or None
        See `worker_count`.
    processes : bool, default False
        Whether to use processes, which joblib keeps for the next call.
    """
    items = list(items)
    workers = min(worker_count(n_jobs), len(items))
    if workers < 2:
        return [function(item) for item in items]
    if processes:
        # Large arrays are shared by the processes; what one writes the others do not see.
        # One thread in each, whatever the environment says for this process.
        with joblib.parallel_config("loky", inner_max_num_threads=1):
            return joblib.Parallel(n_jobs=workers, mmap_mode="c")(
                joblib.delayed(function)(item) for item in items
            )
    controller = ThreadpoolController()

    def alone(item: Item) -> Any:
        with controller.limit(limits=1, user_api="openmp"):
            return function(item)

    return joblib.Parallel(n_jobs=workers, backend="threading")(
        joblib.delayed(alone)(item) for item in items
    )
