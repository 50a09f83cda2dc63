"""Work on several cores: in threads, or in processes where much of the work is Python's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, TypeVar

import joblib
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

__all__ = ["in_parallel", "worker_count"]

# Larger arrays are shared by processes, smaller ones copied: to remove the files of shared ones
# often takes joblib a whole second.
_LARGE = "64M"

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
def _controller(has_torch: bool) -> ThreadpoolController:
    """Find the libraries with threads of their own; again when torch has been imported."""
    return ThreadpoolController()


def in_parallel(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    n_jobs: int | None,
    *,
    processes: bool = False,
) -> list[Result]:
    """Apply a function to each item; the results come in the order of the items.

    In threads, of which there may be one, libraries that use OpenMP, if they have been imported
    before, use one thread in each of ours. That is a setting of the thread, not of the process.

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
    if processes and workers > 1:
        # What one process writes into a shared array the others do not see.
        # One thread in each, whatever the environment says for this process. Another backend of
        # the user's, such as Dask's, is left as it is.
        usual = type(get_active_backend()[0]).__name__ == "LokyBackend"
        config: Any = (
            joblib.parallel_config("loky", inner_max_num_threads=1) if usual else nullcontext()
        )
        with config:
            return joblib.Parallel(n_jobs=workers, mmap_mode="c", max_nbytes=_LARGE)(
                joblib.delayed(function)(item) for item in items
            )
    controller = _controller("torch" in sys.modules)

    def alone(item: Item) -> Any:
        with controller.limit(limits=1, user_api="openmp"):
            return function(item)

    if workers < 2:
        with controller.limit(limits=1, user_api="openmp"):
            return [function(item) for item in items]
    return joblib.Parallel(n_jobs=workers, backend="threading")(
        joblib.delayed(alone)(item) for item in items
    )
