"""Recalibration: laws whose levels of held-out outcomes become uniform."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from mcdensity._folds import assign_folds
from mcdensity._levels import learn_levels
from mcdensity._pairs import group_codes
from mcdensity.distribution import ConditionalDistribution
from mcdensity.distribution.recalibrated import recalibrated

__all__ = ["Calibrated", "calibrate", "corrected", "forget"]

Array = NDArray[np.float64]

# Models that `calibrate=True` fits beside the one to all rows, where there are no held-out rows.
_FOLDS = 3
# A fit needs a positive time budget.
_LEAST_SECONDS = 1e-3


class Calibrated:
    """What corrects the levels of an estimator's laws."""

    def recalibrate(self, X: ArrayLike, y: ArrayLike) -> Self:
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

        Parameters
        ----------
        X : array-like of shape (n, p)
        y : array-like of shape (n,) or (n, k)

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
        _recalibrate(self, X, y)
        forget(self)
        return self


def _recalibrate(model: Any, X: Any, y: Any) -> None:
    if not model._normalized:
        raise ValueError(
            "recalibrate needs laws that integrate to one; use normalize=True instead of "
            "normalize=False, the formula as it stands."
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
    levels_before = model.__dict__.pop("calibration_", None)
    try:
        found = learn_levels(*_levels(model, rows, outcomes))
    except BaseException:
        if levels_before is not None:
            model.calibration_ = levels_before
        raise
    if found is not None:
        model.calibration_ = found


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


def corrected(model: Any, law: ConditionalDistribution) -> ConditionalDistribution:
    """Apply what `recalibrate` learned, if anything, to laws in standardised units."""
    levels = getattr(model, "calibration_", None)
    return law if levels is None else recalibrated(law, levels)


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
    if levels is None:
        levels = _crossfitted(model, X, y, weight, extra)
    found = None if levels is None else learn_levels(*levels)
    if found is not None:
        model.calibration_ = found


def _crossfitted(
    model: Any, X: Array, y: Array, weight: Array | None, extra: dict[str, Any]
) -> tuple[Array, Array, NDArray[np.intp]] | None:
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
    return out[:, 0], out[:, 1], fold
