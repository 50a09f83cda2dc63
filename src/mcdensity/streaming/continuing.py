"""Going on from a fitted model with new files, and saying how far these differ."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstest

from mcdensity._effort import EFFORTS
from mcdensity.metrics import pit_ks
from mcdensity.portfolio import Portfolio
from mcdensity.streaming.leaves import leaves_of
from mcdensity.streaming.rows import Rows
from mcdensity.streaming.training import Preparer, finish, relearn_levels, take_over, tower_of
from mcdensity.target import DiscreteSpace

if TYPE_CHECKING:
    from mcdensity.streaming.fitting import Run
    from mcdensity.tables import TableEstimator

__all__ = ["drift", "go_on"]

Array = NDArray[np.float64]

# Rows that judge, at least and at most, and the share of the rows that they are.
_LEAST, _MOST, _SHARE = 100, 20_000, 10
# Rows of the laws that drift is measured by.
_MEASURED = 5000


def go_on(run: Run, model: TableEstimator) -> TableEstimator:
    """Add networks that learn from new files to a copy of a model, weighted by new rows."""
    sketch = run.looked(_MOST)
    if sketch.rows < 2 * _LEAST:
        raise ValueError(
            f"warm_start needs at least {2 * _LEAST} new rows with a target, got {sketch.rows}."
        )
    rows = sketch.sample.rows()
    judged = rows.part(slice(int(np.clip(sketch.rows // _SHARE, _LEAST, _MOST))))
    least_key = float(judged.key[-1])
    model = copy.deepcopy(model)
    _check_support(model, Rows.joined(list(sketch.extremes.values())))
    features = model.preparation_.transform(judged.table)
    before = drift(model, judged)
    prepare = Preparer.of(model.preparation_, judged.table)
    for leaf in leaves_of(model.estimator_):
        expert = leaf.model.discriminator_
        tower = tower_of(expert) or "mixture"
        law = leaf.law_of_y(features, judged.Y)
        seed = int(run.rng.integers(2**31 - 1))
        data = leaf.data(
            features, judged.Y, judged.weight, law,
            random_state=np.random.default_rng(seed), effort=EFFORTS[leaf.model.effort],
        )  # fmt: skip
        found = run.networks(leaf, tower, prepare, data, sketch.rows, least_key, seed)
        known = _as_portfolio(expert, tower)
        leaf.model.discriminator_ = known
        taken = known.experts_ | known._teachers
        take_over(leaf.model, data, {_new_name(name, taken): f for name, f in found.items()})
    finish(model.estimator_)
    outcome: Any = judged.Y if judged.Y.shape[1] > 1 else judged.Y[:, 0]
    relearn_levels(model, judged, outcome)
    after = model.score(judged.table, outcome)
    model.drift_ = before | {"log_likelihood_after": after, "rows": sketch.rows}
    model.source_ = run.describe(sketch, ["mixture"], after)
    return model


def drift(model: TableEstimator, rows: Rows) -> dict[str, Any]:
    """Say how far rows differ from those that a model has learned from.

    Returns
    -------
    dict
        "y": the largest difference between the distribution function of y that the model knows and
        that of these rows (Kolmogorov and Smirnov), by target; "pit": the same for the probability
        integral transform, which is uniform as long as the law of y given x has not changed;
        "log_likelihood" of these rows.
    """
    some = rows.part(slice(_MEASURED))
    features = model.preparation_.transform(some.table)
    inner: Any = model.estimator_
    several = hasattr(inner, "links_")
    names = inner.target_names_ if several else [model.target_ or "y"]
    of_pit = {}
    for j, name in enumerate(names):
        link, inputs = inner, features
        if several:
            place = inner.order_.index(j)
            link, before = inner.links_[place], some.Y[:, inner.order_[:place]]
            inputs = np.hstack([inner._link_inputs(features), before])
        of_pit[name] = pit_ks(link.predict_distribution(inputs), some.Y[:, j])
    of_y: dict[str, float] = {}
    for leaf in leaves_of(inner):
        name = names[0] if not several else leaf.name.split(", ")[0]
        _, y, _ = leaf.view(features, some.Y)
        of_y[name] = max(of_y.get(name, 0.0), _distance(leaf.model, y))
    outcome: Any = some.Y if several else some.Y[:, 0]
    return {"y": of_y, "pit": of_pit, "log_likelihood": model.score(some.table, outcome)}


def _distance(model: Any, y: Array) -> float:
    """Distance of targets from the law that a model of one target knows."""
    space = model.target_space_
    if len(y) == 0:
        return 0.0
    if isinstance(space, DiscreteSpace):
        masses = space.masses
        found = np.bincount(masses.cell(y), minlength=len(masses.masses_)) / len(y)
        return float(np.abs(np.cumsum(found - masses.masses_)).max())
    return float(kstest(model.marginal_.cdf(space.standardize(y)), "uniform").statistic)


def _as_portfolio(expert: Any, name: str) -> Portfolio:
    if isinstance(expert, Portfolio):
        return expert
    known = Portfolio([name])
    known.experts_, known._teachers = {name: expert}, {}
    return known


def _new_name(name: str, taken: Any) -> str:
    """Return the name, or the first of "name 2", "name 3", ... that is not taken."""
    others = (f"{name} {i}" for i in range(2, 1000))
    return name if name not in taken else next(other for other in others if other not in taken)


def _check_support(model: TableEstimator, ends: Rows) -> None:
    """Refuse targets that the model says are impossible."""
    inner: Any = model.estimator_
    supports = inner.support_ if hasattr(inner, "links_") else [inner.support_]
    for j, (low, high) in enumerate(supports):
        least, most = float(ends.Y[:, j].min()), float(ends.Y[:, j].max())
        if least < low or most > high:
            raise ValueError(
                f"The new targets go from {least:g} to {most:g}, and the model has a support of "
                f"{low:g} to {high:g}; fit it anew, with support= for both."
            )
