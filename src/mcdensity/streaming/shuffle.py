"""Batches of prepared rows in random order, from pieces that are read beside the training."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity.streaming.rows import Layout, Rows
from mcdensity.streaming.sources import Piece, Source, SourceError

__all__ = ["Prepared", "ShuffledRows"]

Array = NDArray[np.float64]

# Rows of a piece that are read at once.
_SLICE = 16_384
# Buffers in memory at once: one is being learned from, one waits, one is being filled, and the last
# is permuted.
BUFFERS = 4


@dataclass(frozen=True)
class Prepared:
    """Rows as numbers.

    Parameters
    ----------
    X : ndarray of float32, shape (n, p)
    Y : ndarray of shape (n, k)
    weight : ndarray of float32, shape (n,)
    """

    X: NDArray[np.float32]
    Y: Array
    weight: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.Y)

    def part(self, chosen: Any) -> Prepared:
        """Return some of the rows."""
        return Prepared(self.X[chosen], self.Y[chosen], self.weight[chosen])


class ShuffledRows:
    """All rows of some pieces but those held out, pass after pass, in random order.

    Pieces are opened in random order, several at a time; slices of them fill a buffer, which is
    permuted. The order depends on the seed alone. Reading is done in a thread of its own.

    Parameters
    ----------
    source : Source
    pieces : sequence of Piece
    layout : Layout
    prepare : callable
        From `Rows` to `Prepared`.
    held_out : float
        Rows with keys up to this one are passed over.
    buffer : int
        Rows in a buffer.
    open_pieces : int
        Pieces that are read at the same time: each buffer has rows of so many different places,
        even if the files are sorted.
    seed : int
    """

    def __init__(
        self,
        source: Source,
        pieces: Sequence[Piece],
        layout: Layout,
        prepare: Callable[[Rows], Prepared],
        *,
        held_out: float = -1.0,
        buffer: int = 262_144,
        open_pieces: int = 16,
        seed: int = 0,
    ) -> None:
        self.source, self.pieces, self.layout, self.prepare = source, list(pieces), layout, prepare
        self.held_out, self.buffer, self.seed = held_out, buffer, seed
        self.open_pieces = open_pieces

    def batches(self, size: int) -> Iterator[Prepared]:
        """Yield batches of about equal size without end."""
        for full in _ahead(self._buffers):
            count = max(1, round(len(full) / size))
            ends = np.linspace(0, len(full), count + 1).astype(int)
            for start, stop in itertools.pairwise(ends):
                yield full.part(slice(start, stop))

    def _buffers(self) -> Iterator[Prepared]:
        passes = 0
        while True:
            rng = np.random.default_rng([self.seed, passes])
            parts: list[Prepared] = []
            seen = 0
            for rows in self._slices(rng):
                parts.append(rows)
                seen += len(rows)
                if sum(map(len, parts)) >= self.buffer:
                    yield _permuted(parts, rng)
                    parts = []
            if parts:
                yield _permuted(parts, rng)
            if seen == 0:
                raise ValueError("The source has no labelled rows to learn from.")
            passes += 1

    def _slices(self, rng: np.random.Generator) -> Iterator[Prepared]:
        """Yield prepared slices of pieces, of several in turn."""
        waiting = [self.pieces[i] for i in rng.permutation(len(self.pieces))]
        size = min(_SLICE, max(256, self.buffer // self.open_pieces))
        opened: dict[Piece, Iterator[Rows]] = {}
        while waiting or opened:
            while waiting and len(opened) < self.open_pieces:
                piece = waiting.pop()
                opened[piece] = self.layout.read(self.source, piece, size)
            for piece, reader in list(opened.items()):
                rows = next(reader, None)
                if rows is None:
                    del opened[piece]
                    continue
                kept = np.flatnonzero(rows.key > self.held_out)
                if len(kept):
                    yield self._prepared(rows if len(kept) == len(rows) else rows.part(kept), piece)

    def _prepared(self, rows: Rows, piece: Piece) -> Prepared:
        try:
            return self.prepare(rows)
        except ValueError as error:
            raise SourceError(f"{piece.name}: {error}") from error


def _permuted(parts: Sequence[Prepared], rng: np.random.Generator) -> Prepared:
    """Put parts together in random order, with one copy."""
    place = rng.permutation(sum(map(len, parts)))
    ends = np.cumsum([0, *map(len, parts)])

    def together(name: str) -> Any:
        first = getattr(parts[0], name)
        out = np.empty((len(place), *first.shape[1:]), dtype=first.dtype)
        for part, start, stop in zip(parts, ends, ends[1:], strict=False):
            out[place[start:stop]] = getattr(part, name)
        return out

    return Prepared(together("X"), together("Y"), together("weight"))


def _ahead(generate: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Yield what a generator yields; the next one is made meanwhile, in a thread."""
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def work() -> None:
        try:
            for item in generate():
                while not stopped.is_set():
                    try:
                        ready.put((item, None), timeout=0.2)
                        break
                    except queue.Full:
                        continue
                if stopped.is_set():
                    return
        except BaseException as error:
            while not stopped.is_set():
                try:
                    ready.put((None, error), timeout=0.2)
                    return
                except queue.Full:
                    continue

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            yield item
    finally:
        stopped.set()
        thread.join()
