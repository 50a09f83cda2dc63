"""Progress of long work: what is being done, of how many, and how long it will still take."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["SILENT", "Reporter", "counting", "showing"]

# Seconds between two looks at the reports.
_PAUSE = 0.2
# Below this share of the work the pace says little about the time that is left.
_LEAST_SHARE = 0.03
# Seconds before the first line of text and between two; and without news.
_FIRST_LINE, _NEXT_LINE = 2.0, 20.0
# Shares of a part's work that differ by less are not worth a line.
_STEP = 0.01


@dataclass(eq=False)
class Reporter:
    """Tells how far a part of the work is; may be passed to threads and to processes.

    Reports are lines that are added to a file, so that it does not matter where they come from.

    Parameters
    ----------
    path : str, optional
        The file; without one nothing is reported.
    name : str
        The part of the work.
    start, stop : float
        What 0 and 1 of the work at hand are of that part.
    """

    path: str | None = None
    name: str = ""
    start: float = 0.0
    stop: float = 1.0
    _last: float = -1.0

    def expect(self, costs: dict[str, float]) -> None:
        """Announce the parts of the work, and the time that they take relative to each other."""
        self._write({"costs": costs})

    def part(self, name: str) -> Reporter:
        """Return the reporter of a part."""
        return Reporter(self.path, name)

    def within(self, start: float, stop: float) -> Reporter:
        """Return the reporter of a stretch of this part, such as one of several folds."""
        reach = self.stop - self.start
        return replace(
            self, start=self.start + start * reach, stop=self.start + stop * reach, _last=-1.0
        )

    def __call__(self, share: float) -> None:
        """Report that a share of the work at hand is done."""
        if share < 1 and share - self._last < _STEP:
            return
        self._last = share
        self._write({"name": self.name, "share": self.start + share * (self.stop - self.start)})

    def _write(self, report: dict[str, Any]) -> None:
        if self.path is None:
            return
        # One short write in append mode is not torn apart by those of others.
        line = (json.dumps(report) + "\n").encode()
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, line)
        finally:
            os.close(file)


SILENT = Reporter()


class _Summary:
    """What the reports say together."""

    def __init__(self, text: str) -> None:
        self.text, self.begin = text, time.monotonic()
        self.costs: dict[str, float] = {}
        self.share: dict[str, float] = {}

    def add(self, line: str) -> None:
        report = json.loads(line)
        if "costs" in report:
            self.costs = report["costs"]
        else:
            name = report["name"]
            self.share[name] = max(self.share.get(name, 0.0), report["share"])

    @property
    def done(self) -> float:
        """Share of all the work that is done."""
        costs = self.costs or dict.fromkeys(self.share, 1.0)
        total = sum(costs.values())
        return sum(costs.get(n, 0.0) * s for n, s in self.share.items()) / total if total else 0.0

    @property
    def description(self) -> str:
        """What is being done, and of how many."""
        running = [name for name, share in self.share.items() if name and share < 1]
        if not running:
            return self.text
        finished = sum(self.share.get(name, 0.0) >= 1 for name in self.costs)
        return f"{self.text}: {', '.join(running)} ({finished} of {len(self.costs)} done)"

    @property
    def subject(self) -> str:
        """What makes a line worth writing when it changes."""
        return self.description

    @property
    def left(self) -> str:
        """How long it will still take."""
        done = min(self.done, 1.0)
        if done < _LEAST_SHARE:
            return ""
        seconds = (time.monotonic() - self.begin) * (1 - done) / done
        if seconds >= 90:
            return f"about {seconds / 60:.0f} min left"
        return f"about {seconds:.0f} s left"


@contextmanager
def showing(verbose: bool, text: str, outer: Reporter = SILENT) -> Iterator[Reporter]:
    """Show progress on standard error: a bar, or lines of text.

    Parameters
    ----------
    verbose : bool
        Whether to show anything.
    text : str
        What is being done.
    outer : Reporter, optional
        Where reports go already: nothing further is shown then.
    """
    if not verbose or outer.path is not None:
        yield outer
        return
    handle, path = tempfile.mkstemp(prefix="mcdensity-progress-")
    summary, ended, rest = _Summary(text), threading.Event(), ""
    with os.fdopen(handle) as file, _display(summary) as draw:

        def look() -> None:
            nonlocal rest
            *lines, rest = (rest + file.read()).split("\n")
            for line in lines:
                summary.add(line)
            draw()

        def watch() -> None:
            while not ended.wait(_PAUSE):
                look()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield Reporter(path)
        finally:
            ended.set()
            watcher.join()
            look()
            os.unlink(path)


@contextmanager
def counting(
    verbose: bool, text: str, total: int | None, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show how many rows are done, how many a second, and how long the rest will take.

    Parameters
    ----------
    verbose : bool
        Whether to show anything.
    text : str
        What is being done.
    total : int or None
        How many rows there are, where that is known.
    done : int
        How many are done already.
    """
    if not verbose:
        yield lambda count: None
        return
    summary = _Count(text, total, done)
    with _display(summary) as draw:

        def advance(count: int) -> None:
            summary.new += count
            draw()

        yield advance


class _Count(_Summary):
    """Rows that are done, of how many, and the pace of those done since the beginning."""

    def __init__(self, text: str, total: int | None, before: int) -> None:
        super().__init__(text)
        self.total, self.before, self.new = total, before, 0

    @property
    def _pace(self) -> float:
        return self.new / max(time.monotonic() - self.begin, 1e-9)

    @property
    def done(self) -> float:
        """Share of all the rows that are done."""
        return (self.before + self.new) / self.total if self.total else 0.0

    @property
    def subject(self) -> str:
        """It stays the same: rows are counted now and then."""
        return self.text

    @property
    def description(self) -> str:
        """How many rows are done, and how many a second."""
        return f"{self.text}: {self.before + self.new:,} rows, {self._pace:,.0f} a second"

    @property
    def left(self) -> str:
        """How long it will still take."""
        if not self.total or not self.new:
            return ""
        return f"about {max(self.total - self.before - self.new, 0) / self._pace:,.0f} s left"


@contextmanager
def _display(summary: _Summary) -> Iterator[Callable[[], None]]:
    """Yield a function that shows where the work stands."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        terminal = False
    else:
        terminal = sys.stderr.isatty()
    if not terminal:
        lines = _Lines(summary)
        yield lines
        lines.finish()
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(summary.text, total=1.0, left="")

        def update() -> None:
            bar.update(task, completed=summary.done, description=summary.description,
                       left=summary.left)  # fmt: skip

        yield update


class _Lines:
    """Lines of text, for log files: when something else is being done, and now and then."""

    def __init__(self, summary: _Summary) -> None:
        self.summary, self.next, self.last = summary, summary.begin + _FIRST_LINE, ""

    def __call__(self) -> None:
        now, text, subject = time.monotonic(), self.summary.description, self.summary.subject
        if now < self.next or (subject == self.last and now < self.next + _NEXT_LINE):
            return
        self.next, self.last = now + _FIRST_LINE, subject
        self._write(", ".join(filter(None, (text, f"{self.summary.done:.0%}", self.summary.left))))

    def finish(self) -> None:
        seconds = time.monotonic() - self.summary.begin
        if seconds >= _FIRST_LINE:
            self._write(f"{self.summary.text}: done in {seconds:.0f} s")

    def _write(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
