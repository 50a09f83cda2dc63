"""Recalibration: laws whose levels of held-out outcomes become uniform."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from mcdensity._conformal import check_groups
from mcdensity._folds import assign_folds
from mcdensity._known import storable
from mcdensity._levels import LevelMap, learn_levels
from mcdensity._pairs import group_codes
from mcdensity.distribution import ConditionalDistribution, DiscreteDistribution
from mcdensity.distribution.recalibrated import recalibrated

__all__ = ["Calibrated", "GroupLevels", "calibrate", "corrected", "forget"]

Array = NDArray[np.float64]

# Models that `calibrate=True` fits beside the one to all rows, where there are no held-out rows.
_FOLDS = 3
# What `recalibrate` sets.
_LEARNED = ("calibration_", "group_calibration_")
# A fit needs a positive time budget.
_LEAST_SECONDS = 1e-3


@storable
class GroupLevels:
    """What is left to correct in the laws of each group, after the map that all have in common.

    Parameters
    ----------
    labels : list
        What the groups are called.
    maps : list of LevelMap or None
        None where the common map is as likely.
    """

    def __init__(self, labels: list[Any], maps: list[LevelMap | None]) -> None:
        self.labels, self.maps = labels, maps

    def codes(self, groups: Any, n: int) -> NDArray[np.intp]:
        """Return places of the groups of n rows among the labels; -1 for others."""
        place = {label: k for k, label in enumerate(self.labels)}
        return np.array([place.get(name, -1) for name in check_groups(groups, n)], dtype=np.intp)

    def applied(
        self, law: ConditionalDistribution, codes: NDArray[np.intp]
    ) -> ConditionalDistribution:
        """Correct laws by the maps of their groups."""
        if not isinstance(law, DiscreteDistribution):
            law = law.as_grid()
        parts, rows = [], []
        for k in np.unique(codes):
            own = np.flatnonzero(codes == k)
            found = self.maps[k] if k >= 0 else None
            parts.append(law[own] if found is None else recalibrated(law[own], found))
            rows.append(own)
        joined = parts[0]._joined(parts[1:]) if len(parts) > 1 else parts[0]
        return joined[np.argsort(np.concatenate(rows))]


class Calibrated:
    """What corrects the levels of an estimator's laws."""

    def recalibrate(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        r"""Correct the distributions by rows that were not used by `fit`.

        The level of an outcome is :math:`u = F(y \mid x)`. If outcomes fall below the 10 % quantile
        more often than one time in ten, and so on, the distribution function :math:`G` of the
        levels is not the identity. The corrected laws are :math:`G(F(y \mid x))`, with density
        :math:`g(F(y \mid x)) \, f(y \mid x)`: everything that this estimator predicts afterwards is
        of these. G is smooth and increasing; how far it may be from the identity is chosen by
        cross-validated likelihood, and it stays the identity where that gains nothing.

        It corrects what is wrong on average over all rows, the same way for each x. A second call
        replaces the first. Several targets of a chain are corrected one by one, and so are the
        atoms and the density of a mixed one. What `conformalize` learned is forgotten.

        With `groups` each group gets a map :math:`H_k(G(u))`, where G is that of all rows and
        :math:`H_k` is learned from the group's own, with the same prior toward the identity: few
        rows leave the map that all have in common.

        Parameters
        ----------
        X : array-like of shape (n, p)
        y : array-like of shape (n,) or (n, k)
        groups : array-like of shape (n,), optional
            Groups, such as regions or sexes, whose laws may be off in different ways; for one
            target that is continuous or discrete. Give those of new rows to
            ``predict_distribution(X, groups=...)`` and to intervals, regions and `conformalize`.
            Rows of a group that was not seen, and what is asked for without groups, have
            the common map.

        Returns
        -------
        self

        References
        ----------
        Kuleshov, Fenner, Ermon: Accurate uncertainties for deep learning using calibrated
        regression, 2018.

        Examples
        --------
        >>> from mcdensity import MCD
        >>> from mcdensity.simulators import get_simulator
        >>> X, y = get_simulator("EconDensity").sample(900, random_state=0)
        >>> narrow = 0.6 * y + 0.4 * X[:, 0] ** 2
        >>> model = MCD("quadratic", random_state=0).fit(X[:300], narrow[:300])
        >>> before = model.score(X[600:], y[600:])
        >>> model.recalibrate(X[300:600], y[300:600]).score(X[600:], y[600:]) > before
        True
        """
        check_is_fitted(self)
        _recalibrate(self, X, y, groups)
        forget(self)
        return self


def _recalibrate(model: Any, X: Any, y: Any, groups: Any) -> None:
    if not model._normalized:
        raise ValueError(
            "recalibrate needs laws that integrate to one; use normalize=True instead of "
            "normalize=False, the formula as it stands."
        )
    if groups is not None and (getattr(model, "_several", False) or hasattr(model, "parts_")):
        raise ValueError(
            "recalibrate: groups is for one target that is continuous or discrete; leave it out."
        )
    if getattr(model, "_several", False):
        _recalibrate_links(model, X, y)
        return
    rows = model._check_predict(X)
    outcomes = model._check_outcomes(y, len(rows))
    if hasattr(model, "parts_"):
        from mcdensity._mixed import labels_of

        labels, rest = model.parts_
        labels.recalibrate(rows, labels_of(outcomes, model.atoms_, labels._no_atom))
        others = ~np.isin(outcomes, model.atoms_)
        if others.any():
            rest.recalibrate(rows[others], outcomes[others])
        return
    names = None if groups is None else check_groups(groups, len(rows))
    before = {name: model.__dict__.pop(name) for name in _LEARNED if name in model.__dict__}
    try:
        low, high = _levels(model, rows, outcomes)
        found = learn_levels(low, high)
        by_group = None if names is None else _learn_groups(low, high, found, names)
    except BaseException:
        model.__dict__.update(before)
        raise
    if found is not None:
        model.calibration_ = found
    if by_group is not None:
        model.group_calibration_ = by_group


def _learn_groups(low: Array, high: Array, common: LevelMap | None, names: list[Any]) -> Any:
    """Learn what the common map leaves in each group."""
    if common is not None:
        low, high = common.cdf(low), common.cdf(high)
    rows: dict[Any, list[int]] = {}
    for i, name in enumerate(names):
        rows.setdefault(name, []).append(i)
    return GroupLevels(list(rows), [learn_levels(low[own], high[own]) for own in rows.values()])


def _recalibrate_links(model: Any, X: Any, y: Any) -> None:
    """Correct each link of a chain, given the targets before it."""
    if hasattr(model, "contrast_"):
        raise ValueError(
            "recalibrate is for one target and for chains; fit the model with joint='chain'."
        )
    inputs = model._joint_inputs(X)
    outcomes = model._outcomes(y, len(inputs))
    for place, (j, link) in enumerate(zip(model.order_, model.links_, strict=True)):
        before = outcomes[:, model.order_[:place]]
        link.recalibrate(np.hstack([inputs, before]), outcomes[:, j])


def _levels(model: Any, X: Array, y: Array) -> tuple[Array, Array]:
    """P(Y < y | x) and P(Y <= y | x) of standardised rows."""

    def of_rows(law: ConditionalDistribution, rows: slice) -> Array:
        at = law.cdf(y[rows])
        return np.column_stack([at - law.pmf(y[rows]), at])

    low, high = np.concatenate(model._in_blocks(X, of_rows)).T
    return low, high


def forget(model: Any) -> None:
    """Drop what held-out rows have told about intervals of other laws."""
    for name in ("conformal_levels_", "conformal_"):
        model.__dict__.pop(name, None)


def forget_levels(model: Any) -> None:
    """Drop all that held-out rows have told about a model, whose laws are others now."""
    forget(model)
    for name in _LEARNED:
        model.__dict__.pop(name, None)
    inner = [model.estimator_] if hasattr(model, "estimator_") else []
    for part in (*inner, *getattr(model, "links_", ()), *getattr(model, "parts_", ())):
        forget_levels(part)


def corrected(
    model: Any, law: ConditionalDistribution, codes: NDArray[np.intp] | None = None
) -> ConditionalDistribution:
    """Apply what `recalibrate` learned, if anything, to laws in standardised units.

    Parameters
    ----------
    model : ConditionalEstimator
    law : ConditionalDistribution
    codes : ndarray of int, optional
        Groups of the rows, see `GroupLevels.codes`.
    """
    levels = getattr(model, "calibration_", None)
    law = law if levels is None else recalibrated(law, levels)
    return law if codes is None else model.group_calibration_.applied(law, codes)


def calibrate(model: Any, X: Array, y: Array, weight: Array | None, extra: dict[str, Any]) -> None:
    """Correct a model by its own training rows, each by a model that has not seen it.

    A portfolio has such models. For others three more are fitted, each without a third of the rows.

    Parameters
    ----------
    model : MCD
        Fitted.
    X, y, weight, extra
        What it was fitted to, as the caller gave it.
    """
    if hasattr(model, "parts_"):
        return  # they have been corrected
    levels = model.discriminator_.__dict__.pop("held_out_levels_", None)
    pooled = levels is not None
    if levels is None:
        levels = _crossfitted(model, X, y, weight, extra)
    found = None if levels is None else learn_levels(*levels, pooled=pooled)
    if found is not None:
        model.calibration_ = found


def _crossfitted(
    model: Any, X: Array, y: Array, weight: Array | None, extra: dict[str, Any]
) -> tuple[Array, Array, NDArray[np.intp], Array | None] | None:
    groups = extra.get("groups")
    unit = np.arange(len(y)) if groups is None else group_codes(groups, X)
    fold = assign_folds(int(unit.max()) + 1, _FOLDS, 0)[0, unit]
    if any(len(y[fold != k]) < 2 * _FOLDS or np.ptp(y[fold != k]) == 0 for k in range(_FOLDS)):
        return None
    out = np.empty((len(y), 2))
    for k in range(_FOLDS):
        seen, held = fold != k, np.flatnonzero(fold == k)
        other = clone(model).set_params(
            calibrate=False, verbose=False, target=model.target_kind_, support=model.support_
        )
        if hasattr(model, "_measure"):  # of a part of a mixed target, which is no kind of its own
            other._measure = model._measure
        if model.time_budget is not None:
            budget = max(model.time_budget / (2 * _FOLDS), _LEAST_SECONDS)
            other.set_params(time_budget=budget)
        rows_of = {"groups": None if groups is None else groups[seen]}
        other.fit(X[seen], y[seen], None if weight is None else weight[seen], **(extra | rows_of))
        out[held] = np.column_stack(_levels(other, other._check_predict(X[held]), y[held]))
    return out[:, 0], out[:, 1], fold, weight
