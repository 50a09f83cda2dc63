"""`fit_files`: a model of more rows than memory holds."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mcdensity._effort import EFFORTS
from mcdensity._progress import showing
from mcdensity._validation import as_generator, require
from mcdensity.data import OutOfTimeError
from mcdensity.estimator import ConditionalEstimator
from mcdensity.experts.distilled import Distilled
from mcdensity.experts.registry import get_expert
from mcdensity.mcd import MCD
from mcdensity.portfolio import Portfolio
from mcdensity.streaming.leaves import Leaf, leaves_of
from mcdensity.streaming.rows import Layout, Rows
from mcdensity.streaming.sketch import Sketch
from mcdensity.streaming.sources import Source, open_source
from mcdensity.streaming.training import (
    Budget,
    Preparer,
    finish,
    relearn_levels,
    sketch_pieces,
    take_over,
    tower_of,
    train_network,
)
from mcdensity.tables import TableEstimator, TablePreparation

__all__ = ["fit_files"]

Array = NDArray[np.float64]

# Held-out rows at least and at most.
_LEAST_HELD_OUT, _MOST_HELD_OUT = 500, 10_000
# Experts that learn from the sample, beside the network that sees all rows.
_OF_SAMPLE = ("forest", "stacked")


def fit_files(
    source: Any,
    target: str | Sequence[str],
    estimator: ConditionalEstimator | None = None,
    *,
    memory: Any = "2GB",
    n_jobs: int | None = None,
    client: Any = None,
    warm_start: TableEstimator | None = None,
    random_state: Any = None,
    weight: str | None = None,
    drop: Iterable[str] = (),
    skip_bad_files: bool = False,
    verbose: bool = False,
) -> TableEstimator:
    """Fit a model to files that need not fit into memory.

    One pass counts, and keeps a uniform sample; a random part is held out. A network then sees all
    other rows, experts that cannot stream the sample; the held-out part weights them. Rows that
    fit into the sample are learned from in memory, as by `TableEstimator.fit`.

    Parameters
    ----------
    source : str, Path, sequence of these, pyarrow.dataset.Dataset or Dask DataFrame
        A Parquet or CSV file, a folder of them, or a glob.
    target : str or sequence of str
        The column to predict, or several; "a,b" names two.
    estimator : ConditionalEstimator, optional
        By default `MCD()`; a `TableEstimator` has further options for tables. One that does not
        stream learns from the sample, with a warning.
    memory : str or int, default "2GB"
        What rows in memory may take; Python and its libraries, half a gigabyte, come on top.
    n_jobs : int, optional
        Cores; by default all.
    client : dask.distributed.Client, optional
        A cluster, whose workers each learn from some of the pieces.
    warm_start : TableEstimator, optional
        A model to go on from: it is weighted beside a network that learns from these files. What
        it has learned by `recalibrate` and `conformalize` is dropped, since its laws change.
    random_state : int, Generator, RandomState or None
        Seed; by default that of the estimator.
    weight : str, optional
        Column with weights of the rows.
    drop : iterable of str, optional
        Columns to leave out.
    skip_bad_files : bool, default False
        Whether files that are damaged, or have other columns, are left out with a warning.
    verbose : bool, default False
        Whether to show what is being done, and how long it will still take.

    Returns
    -------
    TableEstimator
        `source_` says what was read; after a warm start `drift_` says how far that differs.

    Examples
    --------
    >>> import tempfile, numpy as np, pandas as pd
    >>> from mcdensity import MCD, fit_files
    >>> x, noise = np.random.default_rng(0).normal(size=(2, 300))
    >>> path = f"{tempfile.mkdtemp()}/table.parquet"
    >>> pd.DataFrame({"x": x, "y": x + noise}).to_parquet(path)
    >>> fit_files(path, "y", MCD("quadratic", random_state=0)).source_["rows"]
    300
    """
    opened = open_source(source, skip_bad_files=skip_bad_files)
    _warn_of_skipped(opened.skipped)
    if warm_start is not None:
        _check_warm_start(warm_start, estimator, target)
    model = copy.copy(warm_start) if warm_start is not None else _table_estimator(estimator, n_jobs)
    seed, layout_seed = _seeded(model, random_state)
    layout = _layout(opened, target, weight, drop, model, layout_seed)
    budget = Budget.of(memory, len(layout.features) + len(layout.targets))
    run = _run(opened, layout, budget, seed, client, verbose)
    if warm_start is not None:
        from mcdensity.streaming.continuing import go_on

        return go_on(run, model)
    return run.fit(model)


def _seeded(model: TableEstimator, random_state: Any) -> tuple[np.random.Generator, int]:
    """Give a model that is not fitted its seed; return a generator, and the seed of the keys."""
    fitted = hasattr(model, "estimator_")
    inner: Any = model.estimator_ if fitted else model.estimator
    given = getattr(inner, "random_state", None) if random_state is None else random_state
    if not fitted and random_state is not None and "random_state" in inner.get_params():
        inner.set_params(random_state=random_state)
    rng = as_generator(given)
    return rng, int(rng.integers(2**31 - 1))


def _run(
    source: Source, layout: Layout, budget: Budget, rng: np.random.Generator, client: Any,
    verbose: bool,
) -> Run:  # fmt: skip
    if client is None:
        return Run(source, layout, budget, rng, verbose)
    from mcdensity.streaming.cluster import ClusterRun

    return ClusterRun(source, layout, budget, rng, verbose, client)


@dataclass
class Run:
    """One fit: what is read, and how much of it may be in memory."""

    source: Source
    layout: Layout
    budget: Budget
    rng: np.random.Generator
    verbose: bool = False

    def fit(self, model: TableEstimator) -> TableEstimator:
        """Sketch, fit to the sample, stream, and weight the experts."""
        held = _MOST_HELD_OUT
        sketch = self.looked(self.budget.sample + held)
        if sketch.rows <= self.budget.sample:
            self._fit_table(model, sketch.sample.in_order(), None)
            model.source_ = self.describe(sketch, [], None)
            return model
        held = int(np.clip(sketch.rows // 10, _LEAST_HELD_OUT, held))
        rows = sketch.sample.rows()
        judged, sample = rows.part(slice(held)), rows.part(slice(held, held + self.budget.sample))
        least_key = float(judged.key[-1])
        sample = Rows.joined([sample, *sketch.extremes.values()])
        asked = model.estimator
        model.set_params(estimator=_for_sample(asked, self.verbose))
        self._fit_table(model, sample, sketch)
        model.set_params(estimator=asked)
        inner = model.estimator_
        streamed: list[str] = []
        if isinstance(inner, MCD):
            _restore(inner, asked)
            streamed = self.stream(model, sample, judged, sketch.rows, least_key)
        if not streamed:
            warnings.warn(
                f"{type(inner).__name__} learns from a sample of {len(sample):,} of "
                f"{sketch.rows:,} rows: only MCD with 'auto', 'mixture', 'flow' or 'two-tower' "
                "learns from all.",
                stacklevel=4,
            )
        outcome = _outcome(judged, self.layout)
        if streamed:
            relearn_levels(model, judged, outcome)
        model.source_ = self.describe(sketch, streamed, model.score(judged.table, outcome))
        return model

    def looked(self, size: int) -> Sketch:
        """Look at all rows once; leave out files that turn out to be damaged."""
        sketch = self.sketch(size)
        if sketch.skipped:
            _warn_of_skipped(sketch.skipped)
            self.source.leave_out(sketch.skipped)
        if sketch.rows == 0:
            raise ValueError("No row of the source has a target; check the name of the column.")
        return sketch

    # The parts of the work, which a cluster does elsewhere.

    def sketch(self, size: int) -> Sketch:
        """Look at all rows once."""
        pieces = self.source.pieces
        with showing(self.verbose, f"Reading {len(self.source.files):,} files") as report:
            return sketch_pieces(self.source, self.layout, pieces, size, report)

    def stream(
        self, model: TableEstimator, sample: Rows, judged: Rows, rows: int, least_key: float
    ) -> list[str]:
        """Let networks learn from all rows, and weight them; return the names of the towers."""
        prepare = Preparer.of(model.preparation_, sample.table)
        features = model.preparation_.transform(sample.table)
        own = model.preparation_.transform(judged.table)
        towers: list[str] = []
        leaves = leaves_of(model.estimator_)
        for leaf in leaves:
            tower = tower_of(leaf.model.discriminator_)
            if tower is None:
                continue
            law = leaf.law_of_y(features, sample.Y)
            seed = int(self.rng.integers(2**31 - 1))
            options: dict[str, Any] = {
                "random_state": np.random.default_rng(seed),
                "effort": EFFORTS[leaf.model.effort],
                "n_jobs": leaf.model.n_jobs,
            }
            if (seconds := model.estimator.time_budget) is not None:  # type: ignore[union-attr]
                options["deadline"] = time.monotonic() + seconds / 2 / len(leaves)
            data = leaf.data(own, judged.Y, judged.weight, law, **options)
            try:
                found = self.networks(leaf, tower, prepare, data, rows, least_key, seed)
            except OutOfTimeError:
                if not isinstance(leaf.model.discriminator_, Portfolio):
                    raise
                continue  # what has learned from the sample stays
            take_over(leaf.model, data, found)
            towers.append(tower)
        finish(model.estimator_)
        return towers

    def networks(
        self, leaf: Leaf, tower: str, prepare: Preparer, data: Any, rows: int, least_key: float,
        seed: int,
    ) -> dict[str, Any]:  # fmt: skip
        """Train on all pieces; return networks and what they say of the held-out rows."""
        text = f"Learning {leaf.name} from {rows:,} rows"
        with showing(self.verbose, text) as report:
            found = train_network(
                leaf, tower, prepare, data.but(report=report), self.source, self.source.pieces,
                self.layout, self.budget, rows, least_key, seed,
            )  # fmt: skip
        return {tower: found}

    # What is shared.

    def _fit_table(self, model: TableEstimator, rows: Rows, sketch: Sketch | None) -> None:
        """Learn the preparation and the model from rows in memory; the sketch is of all rows."""
        columns = {} if sketch is None else sketch.columns
        # Numbers of rows are in order in the files, but not in a sample.
        keys = [n for n, column in columns.items() if column.key and column.count > 0]
        table = rows.table[[n for n in self.layout.features if n not in keys]]
        preparation = TablePreparation(model.max_categories, model.dates).fit(table)
        if sketch is not None:
            preparation.learn_from_all(
                {name: column.texts.counts for name, column in columns.items()},
                {name: column.missing for name, column in columns.items()},
                {name: (c.low, c.high) for name, c in columns.items() if c.count},
            )
        reason = "it holds different whole numbers in order, like numbers of rows"
        preparation.left_out_ |= dict.fromkeys(keys, reason)
        outcome = _outcome(rows, self.layout)
        levels, model.levels = model.levels, None  # the targets are numbers already
        try:
            if levels is not None and isinstance(model.estimator, MCD):
                model.set_params(estimator=_for_levels(model.estimator, levels))
            model._fit_prepared(preparation, table, outcome, rows.weight)
        finally:
            model.levels = levels
        self.layout = replace(self.layout, features=tuple(preparation.feature_names_in_))

    def describe(self, sketch: Sketch, streamed: list[str], score: float | None) -> dict[str, Any]:
        """Say what was read, and what came of it."""
        out = sketch.summary(self.layout.targets)
        out |= {"files": len(self.source.files), "skipped": dict(self.source.skipped),
                "streamed": streamed}  # fmt: skip
        return out | ({} if score is None else {"held_out_log_likelihood": score})


def _for_sample(estimator: Any, verbose: bool) -> Any:
    """Return what learns from the sample: without what will learn from all rows."""
    if not isinstance(estimator, MCD):
        return estimator
    changed = clone(estimator, safe=False).set_params(verbose=verbose)
    if changed.joint == "auto":
        changed.set_params(joint="chain")
    if changed.time_budget is not None:  # the other half is for all rows
        changed.set_params(time_budget=changed.time_budget / 2)
    if isinstance(changed.discriminator, str) and changed.discriminator == "auto":
        options = dict(changed.discriminator_params or {})
        asked = options.get("portfolio", _OF_SAMPLE)
        names = [asked] if isinstance(asked, str) else list(asked)
        rest = [name for name in names if not get_expert(name).streams]
        if changed.effort == "fast" and "portfolio" not in options:
            rest = [name for name in rest if get_expert(name).least_effort == "fast"]
        if isinstance(asked, dict):
            options["portfolio"] = {n: asked[n] for n in rest} or ["quadratic"]
        else:
            options["portfolio"] = rest or ["quadratic"]
        changed.set_params(discriminator_params=options)
    elif changed.discriminator in ("mixture", "flow", "two-tower"):
        # A short training gives all that is replaced afterwards.
        changed.set_params(
            discriminator_params={**(changed.discriminator_params or {}), "steps": 10}
        )
    return changed


def _restore(model: MCD, asked: Any) -> None:
    """Give a fitted model, and its leaves, the parameters that were asked for."""
    model.set_params(joint=asked.joint, time_budget=asked.time_budget)
    for part in (model, *(leaf.model for leaf in leaves_of(model))):
        part.set_params(discriminator_params=asked.discriminator_params, verbose=asked.verbose)
        if isinstance(getattr(part, "discriminator_", None), Portfolio):
            options = asked.discriminator_params or {}
            part.discriminator_.portfolio = options.get("portfolio")


def _for_levels(estimator: MCD, levels: Sequence[str]) -> MCD:
    if estimator.target != "auto":
        return estimator
    changed = clone(estimator, safe=False)
    return changed.set_params(target="discrete", support=(0, len(levels) - 1))


def _table_estimator(estimator: Any, n_jobs: int | None) -> TableEstimator:
    if estimator is not None and not isinstance(estimator, ConditionalEstimator):
        raise TypeError(f"estimator must be an estimator of mcdensity, got {estimator!r}.")
    if isinstance(estimator, TableEstimator):
        model = clone(estimator, safe=False)
        model.estimator = MCD() if model.estimator is None else model.estimator
    else:
        model = TableEstimator(MCD() if estimator is None else clone(estimator, safe=False))
    if n_jobs is not None and "n_jobs" in model.estimator.get_params():
        model.estimator.set_params(n_jobs=n_jobs)
    return model


def _layout(
    source: Source, target: Any, weight: str | None, drop: Iterable[str], model: TableEstimator,
    seed: int,
) -> Layout:  # fmt: skip
    if isinstance(target, str):
        several = [target]
        if target not in source.kinds and "," in target:
            several = [part.strip() for part in target.split(",") if part.strip()]
    else:
        several = [str(name) for name in target]
    source.check_columns(several, "the target")
    if len(set(several)) < len(several) or not several:
        raise ValueError(f"target must name different columns, got {target!r}.")
    unused = [drop] if isinstance(drop, str) else list(drop)
    source.check_columns(unused, "to drop")
    if weight is not None:
        source.check_columns([weight], "the weights")
        unused.append(weight)
    for name in several:
        if name in unused:
            raise ValueError(f"{name!r} is the target; it is neither dropped nor used as weights.")
    if hasattr(model, "preparation_"):
        features = [str(name) for name in model.feature_names_in_]
        source.check_columns(features, "a feature of the model")
    else:
        features = [n for n in source.columns if n not in unused and n not in several]
    levels = None if model.levels is None else tuple(model.levels)
    return Layout(tuple(several), tuple(features), weight, levels, seed)


def _check_warm_start(model: Any, estimator: Any, target: Any) -> None:
    if not isinstance(model, TableEstimator) or not hasattr(model, "preparation_"):
        raise TypeError(
            "warm_start must be a fitted TableEstimator, such as fit_files returns, got "
            f"{type(model).__name__}."
        )
    if estimator is not None:
        raise ValueError("Give estimator or warm_start, not both: the model has its estimator.")
    inner = model.estimator_
    if not isinstance(inner, MCD) or hasattr(inner, "contrast_"):
        raise TypeError("warm_start takes a model with an MCD of one target, or a chain of MCDs.")
    if any(isinstance(leaf.model.discriminator_, Distilled) for leaf in leaves_of(inner)):
        raise ValueError(
            "warm_start was distilled, and cannot go on learning; give the model that it was "
            "distilled from."
        )
    names = target if isinstance(target, str) else ",".join(target)
    if model.target_ is not None and names != model.target_:
        raise ValueError(f"target={target!r}, but warm_start is a model of {model.target_!r}.")


def _warn_of_skipped(skipped: dict[str, str]) -> None:
    for name, reason in skipped.items():
        warnings.warn(f"{name} is left out: {reason}.", stacklevel=4)


def _outcome(rows: Rows, layout: Layout) -> Any:
    """Return the targets as a named column, or as a table of several."""
    pandas = require("pandas", "cli")
    if len(layout.targets) == 1:
        return pandas.Series(rows.Y[:, 0], name=layout.targets[0])
    return pandas.DataFrame(rows.Y, columns=list(layout.targets))
