"""Requests that wait are predicted together, by one thread."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._predictions import Wanted
from mcdensity.serve._answers import answer, as_json, select
from mcdensity.serve._models import Served, say
from mcdensity.serve._requests import Limits, Question, RequestError

__all__ = ["Batcher", "Job"]

# Rows that are predicted together at most, beside those of one large request.
_MOST_ROWS = 4096


@dataclass(eq=False)
class Job:
    """One request: the rows for a model, and what is asked of them.

    The model is the one that the rows were checked against, whatever is loaded meanwhile.
    """

    model: Served
    values: Mapping[str, NDArray[Any]]
    count: int
    question: Question
    done: Future[bytes] = field(default_factory=Future)


class Batcher:
    """A thread that answers requests, as many together as wait when it has time.

    Parameters
    ----------
    limits : Limits
    told : callable
        Called with the number of requests and rows of each batch.
    """

    def __init__(self, limits: Limits, told: Any = lambda jobs, rows: None) -> None:
        self._limits, self._told = limits, told
        self._waiting: deque[Job] = deque()
        self._rows = 0
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="mcdensity-batches", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return len(self._waiting)

    def submit(self, job: Job) -> Future[bytes]:
        """Let a request wait for its answer, or refuse it if too many do."""
        with self._changed:
            if self._closed:
                raise RequestError("The server is shutting down.", 503)
            full = len(self._waiting) >= self._limits.waiting
            if full or (self._waiting and self._rows + job.count > self._limits.waiting_rows):
                raise RequestError("Too many requests are waiting; try again in a second.", 503)
            self._waiting.append(job)
            self._rows += job.count
            self._changed.notify()
        return job.done

    def close(self) -> None:
        """Answer all that wait, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                jobs = self._collect()
            self._told(len(jobs), sum(job.count for job in jobs))
            self._answer(jobs)

    def _collect(self) -> list[Job]:
        """Take the first request, and those for the same model that fit beside it."""
        first = self._waiting[0].model
        taken: list[Job] = []
        rows = 0
        for job in self._waiting:
            if job.model is first and (not taken or rows + job.count <= _MOST_ROWS):
                taken.append(job)
                rows += job.count
        chosen = set(map(id, taken))
        self._waiting = deque(job for job in self._waiting if id(job) not in chosen)
        self._rows -= rows
        return taken

    def _answer(self, jobs: list[Job]) -> None:
        try:
            replies = _predict(jobs)
        except Exception as error:  # a request must not take the others, nor the thread, with it
            if len(jobs) > 1:
                for job in jobs:
                    self._answer([job])
                return
            _set(jobs[0].done, _failure(error))
            return
        for job, reply in zip(jobs, replies, strict=True):
            _set(job.done, reply)


def _set(future: Future[bytes], result: bytes | Exception) -> None:
    with suppress(InvalidStateError):  # the client is gone
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


def _failure(error: Exception) -> RequestError:
    if isinstance(error, RequestError):
        return error
    if isinstance(error, ValueError | TypeError):
        reason = str(error).split("\n")[0].rstrip(".")
        return RequestError(f"The model does not take these rows: {reason}.")
    say("".join(traceback.format_exception(error)))
    return RequestError("The model failed on these rows.", 500)


def _predict(jobs: list[Job]) -> list[bytes]:
    """Answer requests for one model."""
    model = jobs[0].model
    values = {
        column.name: np.concatenate([job.values[column.name] for job in jobs])
        for column in model.columns
    }
    total = sum(job.count for job in jobs)
    ends = np.cumsum([job.count for job in jobs]).tolist()
    size = Wanted().block(model.estimator)
    table = model.table(values)
    found: list[list[Any]] = [[] for _ in jobs]
    for start in range(0, total, size):
        stop = min(start + size, total)
        law = model.estimator.predict_distribution(table[start:stop])
        # Requests that ask for the same things are answered together.
        same: dict[Question, list[tuple[int, int, int]]] = {}
        for i, (job, end) in enumerate(zip(jobs, ends, strict=True)):
            low, high = max(end - job.count, start), min(end, stop)
            if low < high:
                same.setdefault(job.question, []).append((i, low - start, high - start))
        for question, members in same.items():
            alone = len(same) == 1
            rows = np.concatenate([np.arange(low, high) for _, low, high in members])
            reply = answer(law if alone else law[rows], question, model.levels)
            place = 0
            for i, low, high in members:
                found[i].append(select(reply, slice(place, place + high - low)))
                place += high - low
    out = []
    for job, parts in zip(jobs, found, strict=True):
        whole = parts[0] if len(parts) == 1 else _joined(parts)
        head: dict[str, Any] = {"model": model.name}
        asked = job.question.quantiles
        if asked and "quantiles" not in job.question.single:
            head["quantiles"] = asked
        out.append(as_json(whole, job.count, head))
    return out


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {name: _joined([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)
