"""The same on a Dask cluster: workers sketch pieces, and each trains networks on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from mcdensity._progress import Reporter, showing
from mcdensity._validation import require
from mcdensity.streaming.fitting import Run
from mcdensity.streaming.leaves import Leaf
from mcdensity.streaming.rows import Layout
from mcdensity.streaming.sketch import Sketch
from mcdensity.streaming.sources import Piece, Source
from mcdensity.streaming.training import Budget, Preparer, sketch_pieces, train_network

__all__ = ["ClusterRun", "check_client", "gathered"]

Result = TypeVar("Result")

# Rows of a shard, about, and shards at most: their number depends on the data alone, so that the
# result does not depend on the workers.
_SHARD_ROWS, _MOST_SHARDS = 5_000_000, 16
# Pieces that one task sketches.
_TASKS = 64
# Share of a worker's memory that rows may take; Python and its libraries need the rest.
_WORKER_SHARE = 0.25
# How often a task is tried whose worker died.
_TRIES = 5


@dataclass
class ClusterRun(Run):
    """A fit whose rows are read by the workers of a cluster.

    The model of the sample is fitted by the caller; sketches and networks come from the workers.
    """

    client: Any = None

    def __post_init__(self) -> None:
        self.client = check_client(self.client)
        limits = [w.get("memory_limit") for w in _workers(self.client).values()]
        known = [limit for limit in limits if limit]
        if known:
            most = int(_WORKER_SHARE * min(known))
            columns = len(self.layout.features) + len(self.layout.targets)
            own = Budget.of(most, columns)
            self.budget = replace(
                self.budget,
                buffer=min(self.budget.buffer, own.buffer),
                decoded=min(self.budget.decoded, own.decoded),
            )

    def sketch(self, size: int) -> Sketch:
        """Look at all rows once."""
        pieces = self.source.pieces
        step = max(1, -(-len(pieces) // _TASKS))
        groups = [pieces[i : i + step] for i in range(0, len(pieces), step)]
        with showing(self.verbose, f"Reading {len(self.source.files):,} files") as report:
            parts = gathered(
                self.client, sketch_shard, groups, (self.source, self.layout, size), report
            )
        # In the order of the pieces: what is kept does not depend on who was first.
        out = parts[0]
        for part in parts[1:]:
            out.merge(part)
        return out

    def networks(
        self, leaf: Leaf, tower: str, prepare: Preparer, data: Any, rows: int, least_key: float,
        seed: int,
    ) -> dict[str, Any]:  # fmt: skip
        """Train a network on each shard."""
        count = int(np.clip(round(rows / _SHARD_ROWS), 1, _MOST_SHARDS))
        count = min(max(count, min(2, len(self.source.pieces))), len(self.source.pieces))
        order = np.random.default_rng([seed, 2]).permutation(len(self.source.pieces))
        shards = [
            (i, [self.source.pieces[j] for j in np.sort(order[i::count])]) for i in range(count)
        ]
        common = (
            leaf, tower, prepare, data, self.source, self.layout, self.budget, rows // count,
            least_key, seed,
        )  # fmt: skip
        text = f"Learning {leaf.name} from {rows:,} rows in {count} shards"
        with showing(self.verbose, text) as report:
            found = gathered(self.client, train_shard, shards, common, report)
        if count == 1:
            return {tower: found[0]}
        return {f"{tower} {i + 1}": result for i, result in enumerate(found)}


def sketch_shard(pieces: Sequence[Piece], source: Source, layout: Layout, size: int) -> Sketch:
    """Sketch some pieces, on a worker."""
    return sketch_pieces(source, layout, pieces, size)


def train_shard(
    shard: tuple[int, Sequence[Piece]], leaf: Leaf, tower: str, prepare: Preparer, data: Any,
    source: Source, layout: Layout, budget: Budget, rows: int, least_key: float, seed: int,
) -> tuple[Any, Any]:  # fmt: skip
    """Train a network on one shard, on a worker; it depends on the shard and the seed alone."""
    number, pieces = shard
    own = data.but(random_state=np.random.default_rng([seed, 3, number]), n_jobs=1)
    return train_network(
        leaf, tower, prepare, own, source, pieces, layout, budget, rows, least_key, seed + number
    )


def check_client(client: Any) -> Any:
    """Return a client of a cluster that answers, or say what is wrong."""
    distributed = require("distributed", "distributed")
    if not isinstance(client, distributed.Client):
        raise TypeError(f"client must be a dask.distributed.Client, got {type(client).__name__}.")
    if client.status != "running":
        raise ConnectionError(
            f"The scheduler of client is gone (its status is {client.status!r}); connect again."
        )
    if not _workers(client):
        raise ConnectionError("The cluster of client has no workers; start some.")
    return client


def _workers(client: Any) -> dict[str, Any]:
    try:
        return client.scheduler_info(n_workers=-1)["workers"]
    except TypeError:  # older versions list all of them
        return client.scheduler_info()["workers"]
    except (OSError, KeyError, ValueError) as error:
        raise ConnectionError(f"The scheduler of client does not answer: {error}.") from error


def gathered(
    client: Any,
    function: Callable[..., Result],
    items: Sequence[Any],
    common: Sequence[Any],
    report: Reporter,
) -> list[Result]:
    """Apply a function to items on the workers; results are in the order of the items.

    A task whose worker dies is done again elsewhere. What all need is sent once.
    """
    distributed = require("distributed", "distributed")
    try:
        shared = client.scatter(tuple(common), broadcast=True, hash=False)
        futures = [
            client.submit(_call, function, item, shared, pure=False, retries=_TRIES)
            for item in items
        ]
        for i, _ in enumerate(distributed.as_completed(futures)):
            report((i + 1) / len(futures))
        return client.gather(futures)
    except (distributed.client.FutureCancelledError, distributed.CancelledError) as error:
        raise ConnectionError(f"The scheduler of client is gone: {error}.") from error


def _call(function: Callable[..., Result], item: Any, shared: Sequence[Any]) -> Result:
    return function(item, *shared)
