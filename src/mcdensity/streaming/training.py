"""Networks that learn from the rows of pieces, and their place in a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._calibration import forget_levels
from mcdensity._parallel import limited_threads, worker_count
from mcdensity._progress import SILENT, Reporter
from mcdensity._scaling import location_and_scale
from mcdensity.data import reweighing_rng
from mcdensity.experts.density.network import NetworkDensity
from mcdensity.experts.density.streamed import StreamedDensity
from mcdensity.portfolio import Portfolio
from mcdensity.streaming.leaves import Leaf
from mcdensity.streaming.rows import Layout, Rows
from mcdensity.streaming.shuffle import BUFFERS, Prepared, ShuffledRows
from mcdensity.streaming.sketch import Sketch
from mcdensity.streaming.sources import Piece, Source, SourceError, parse_memory
from mcdensity.tables import TablePreparation

__all__ = [
    "Budget",
    "Preparer",
    "finish",
    "relearn_levels",
    "sketch_pieces",
    "take_over",
    "tower_of",
    "train_network",
]

Array = NDArray[np.float64]

# Rows of the sample at most.
_MOST_SAMPLE = 50_000
# Of the budget of memory: numbers in a sample are copied so many times by what learns from it, and
# this share is for the buffers of shuffled rows, of which so many rows are enough.
_COPIES, _BUFFER_SHARE, _MOST_BUFFER, _LEAST_BUFFER = 40, 0.25, 262_144, 4096
# Share of the budget for row groups that are open, and the bytes that each of theirs takes; a text
# file is read in small parts. As many at most.
_DECODED_SHARE, _DECODED_COPIES, _MOST_OPEN = 0.2, 2, 16
# Networks that stream; of a portfolio the first that it has.
_TOWERS = ("mixture", "flow", "two-tower")


@dataclass(frozen=True)
class Budget:
    """How many rows may be in memory.

    Parameters
    ----------
    sample, buffer : int
    decoded : int
        Rows of pieces that are being read.
    """

    sample: int
    buffer: int
    decoded: int

    @classmethod
    def of(cls, memory: Any, columns: int) -> Budget:
        """Divide bytes; refuse a budget that is too small for one batch."""
        size, width = parse_memory(memory), 8 * max(columns, 1)
        sample = min(_MOST_SAMPLE, size // (_COPIES * width))
        buffer = int(size * _BUFFER_SHARE) // (BUFFERS * width)
        if buffer < _LEAST_BUFFER:
            least = -(-_LEAST_BUFFER * BUFFERS * width // int(_BUFFER_SHARE * 100)) * 100
            raise ValueError(
                f"memory={memory!r} is too small for one batch of {columns} columns; allow at "
                f"least {max(least, 2**20) / 2**20:,.0f} MB."
            )
        decoded = int(size * _DECODED_SHARE) // (_DECODED_COPIES * width)
        return cls(sample, min(buffer, _MOST_BUFFER), decoded)

    def open_pieces(self, pieces: Sequence[Piece]) -> int:
        """How many pieces may be read at the same time."""
        largest = max((piece.rows or 1 for piece in pieces), default=1)
        return int(np.clip(self.decoded // largest, 1, _MOST_OPEN))


class Preparer:
    """Turns rows into numbers in single precision, standardised so that none are lost.

    Parameters
    ----------
    preparation : TablePreparation
    location, scale : ndarray of shape (p,)
    """

    def __init__(self, preparation: TablePreparation, location: Array, scale: Array) -> None:
        self.preparation, self.location, self.scale = preparation, location, scale

    @classmethod
    def of(cls, preparation: TablePreparation, table: Any) -> Preparer:
        """Learn the location and the scale of each column."""
        location, scale = location_and_scale(preparation.transform(table), None)
        return cls(preparation, location, np.where(np.isfinite(scale), scale, 1.0))

    def __call__(self, rows: Rows) -> Prepared:
        """Prepare rows."""
        values = self.preparation.transform(rows.table)
        values -= self.location
        values /= self.scale
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        return Prepared(values.astype(np.float32), rows.Y, weight.astype(np.float32))

    def features(self, X: NDArray[np.float32]) -> Array:
        """Return what the preparation gave."""
        return X * self.scale + self.location


def sketch_pieces(
    source: Source, layout: Layout, pieces: Sequence[Piece], size: int, report: Reporter = SILENT
) -> Sketch:
    """Look at the rows of some pieces once.

    Where damaged files are left out, the rows of a file count only if all of it can be read.
    """
    shape = size, len(layout.targets)
    sketch = Sketch(*shape)
    files: dict[str, list[Piece]] = {}
    for piece in pieces:
        files.setdefault(piece.name, []).append(piece)
    done = 0
    for name, own in files.items():
        found = Sketch(*shape) if source.skips_bad else sketch
        try:
            for piece in own:
                for rows in layout.read(source, piece):
                    found.add(rows)
                done += 1
                report(done / len(pieces))
        except SourceError as error:
            if not source.skips_bad:
                raise
            sketch.skipped[name] = str(error)
            continue
        if found is not sketch:
            sketch.merge(found)
    return sketch


def train_network(
    leaf: Leaf, tower: str, prepare: Preparer, data: Any, source: Source, pieces: Sequence[Piece],
    layout: Layout, budget: Budget, rows: int, least_key: float, seed: int, start: Any = None,
) -> tuple[StreamedDensity, Any]:  # fmt: skip
    """Train a network on the rows of some pieces, `rows` of them; judge it by held-out data."""
    network = StreamedDensity.for_rows(tower, rows, data.effort.steps)
    stream = ShuffledRows(
        source, pieces, layout, prepare, held_out=least_key, buffer=budget.buffer,
        open_pieces=budget.open_pieces(pieces), seed=seed,
    )  # fmt: skip
    # Spread as when the network's report is used.
    untied = data.without_ties(reweighing_rng())
    rng = np.random.default_rng([seed, 1])
    batches = stream.batches(int(network.batch_size or 1))
    try:
        learned = leaf.batches(batches, prepare.features, data.marginal, rng)
        # One core reads; threads that wait for each other beside it take many times as long.
        with limited_threads(max(1, worker_count(data.n_jobs) - 1)):
            report = network.fit_batches(untied, learned, start)
    finally:
        close: Callable[[], None] = batches.close  # type: ignore[attr-defined]
        close()
    return network, report


def tower_of(expert: Any) -> str | None:
    """Return the kind of network that learns from all rows, None if the expert has none."""
    if isinstance(expert, Portfolio):
        names = expert._names()
        return next((n for n in _TOWERS if n in names), None)
    return expert.tower if isinstance(expert, NetworkDensity) else None


def take_over(model: Any, data: Any, found: dict[str, Any]) -> None:
    """Put networks into a model, beside what it has, weighted by held-out rows."""
    expert = model.discriminator_
    if not isinstance(expert, Portfolio) and len(found) == 1:
        ((model.discriminator_, _),) = found.values()
        return
    for network, _ in found.values():
        network.trust_ = 1.0  # the pool has an exponent for it, chosen for this one
    if isinstance(expert, Portfolio):
        expert.reweigh(data, found)
        model.weights_ = dict(expert.weights_)
        return
    several = Portfolio(list(found))
    several.experts_, several._teachers = {}, {}
    several.reweigh(data, found)
    model.discriminator_ = several


def relearn_levels(model: Any, judged: Any, outcome: Any) -> None:
    """Correct a table's laws, which networks have changed, by held-out rows, if it asks for it."""
    forget_levels(model)
    inner = model.estimator_
    if inner.calibrate:
        inner.recalibrate(model.preparation_.transform(judged.table), outcome)


def finish(model: Any) -> None:
    """Let a model of several parts say what their weights are now."""
    if hasattr(model, "links_"):
        for link in model.links_:
            finish(link)
        if all(hasattr(link, "weights_") for link in model.links_):
            places = range(len(model.links_))
            model.weights_ = [model.links_[model.order_.index(j)].weights_ for j in places]
    elif hasattr(model, "parts_") and hasattr(model.parts_[1], "weights_"):
        model.weights_ = model.parts_[1].weights_
