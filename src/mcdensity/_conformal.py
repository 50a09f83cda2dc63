"""Conformal intervals and regions: what held-out rows say of how far out outcomes fall."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from mcdensity._inputs import check_flag
from mcdensity._known import storable
from mcdensity._validation import as_numbers, check_probability, refuse_masked
from mcdensity.distribution import ConditionalDistribution

__all__ = ["FEW", "Conformal", "ConformalScores", "check_groups", "effective_size", "tail"]

Array = NDArray[np.float64]

# What a score is kept for: central intervals, those with a lower and with an upper end only, and
# highest-density regions.
_SIDES = ("both", "lower", "upper")
_REGION = len(_SIDES)
# Where else an argument has a meaning.
_ELSE = {"groups": ", or for groups that recalibrate was given"}
# Sums of masses are not exact to the last digit.
_ROUNDING = 2e-12
# Below so many rows that count, the share that 90 % intervals hold has a standard error above 4 %.
FEW = 50.0


def tail(law: Any, y: Array) -> Array:
    """Probability, on the nearer side, of an outcome as far out as y or further; y is (n, m)."""
    return np.minimum(law.cdf(y), law.sf(y) + law.pmf(y))


def central(law: Any, level: Array) -> Array:
    """Ends of the intervals of all y with P(Y <= y) and P(Y >= y) of at least a level per row."""
    # Where F reaches 1 - level exactly, at an atom, the next atom is the last such y.
    above = np.minimum(1 - level + (_ROUNDING if len(law.atoms) else 0.0), 1.0)
    return law.ppf(np.column_stack([level, above]))


def effective_size(weights: Array) -> float:
    """Return how many rows of equal weight tell as much as these: (sum w)² / sum w²."""
    w = weights / weights.max()
    return float(w.sum() ** 2 / (w**2).sum())


@storable
class ConformalScores:
    """Scores of held-out rows, large where an outcome lies in the middle of its law.

    Parameters
    ----------
    scores : ndarray of shape (n, c)
        A column for each kind of interval.
    weights : ndarray of shape (n,), optional
        How much more frequent a row like this is among new rows.
    groups : ndarray of int, shape (n,), optional
        The group of each row.
    labels : list, optional
        What the groups are called.
    """

    def __init__(
        self,
        scores: Array,
        weights: Array | None = None,
        groups: NDArray[np.intp] | None = None,
        labels: list[Any] | None = None,
    ) -> None:
        self.scores, self.weights, self.groups, self.labels = scores, weights, groups, labels

    @classmethod
    def checked(cls, scores: Array, sample_weight: Any, groups: Any) -> ConformalScores:
        """Check weights and groups of held-out rows, and keep them beside their scores."""
        n = len(scores)
        weights = None if sample_weight is None else _check_weights(sample_weight, n)
        if groups is None:
            if weights is not None:
                _check_size(weights, "")
            return cls(scores, weights)
        names = check_groups(groups, n)
        labels = list(dict.fromkeys(names))
        place = {label: k for k, label in enumerate(labels)}
        codes = np.array([place[name] for name in names], dtype=np.intp)
        if weights is not None:
            for k, label in enumerate(labels):
                _check_size(weights[codes == k], f" of the group {label!r}")
        return cls(scores, weights, codes, labels)

    def thresholds(
        self, column: int, coverage: float, n: int, sample_weight: Any = None, groups: Any = None
    ) -> Array:
        """Return the score that outcomes of new rows must reach; with 0 any outcome will do.

        Parameters
        ----------
        column : int
        coverage : float
        n : int
        sample_weight : array-like of shape (n,), optional
            Weights of the new rows, in units of those of the held-out rows; by default what a new
            row has on average.
        groups : array-like of shape (n,), optional
            Groups of the new rows, where the held-out rows have groups.
        """
        own = None
        if sample_weight is not None:
            if self.weights is None:
                raise ValueError(
                    "sample_weight: conformalize was given no weights; give both, or none."
                )
            own = _check_weights(sample_weight, n)
        if self.groups is None or self.labels is None:
            if groups is not None:
                raise ValueError("groups: conformalize was given no groups; give both, or none.")
            return self._of_group(column, coverage, slice(None), n, own, "")
        if groups is None:
            raise ValueError(
                "conformalize was given groups; give those of the rows of X as groups, too."
            )
        names = check_groups(groups, n)
        unknown = [name for name in dict.fromkeys(names) if name not in self.labels]
        if unknown:
            raise ValueError(
                f"groups has {unknown[0]!r}, which conformalize has not seen; it knows "
                f"{', '.join(map(repr, self.labels[:10]))}."
            )
        out = np.empty(n)
        codes = np.array([self.labels.index(name) for name in names])
        for k in np.unique(codes):
            new = codes == k
            part = None if own is None else own[new]
            which = f" of the group {self.labels[k]!r}"
            held = self.groups == k
            out[new] = self._of_group(column, coverage, held, int(new.sum()), part, which)
        return out

    def _of_group(
        self, column: int, coverage: float, held: Any, n: int, own: Array | None, which: str
    ) -> Array:
        if column >= self.scores.shape[1]:
            raise ValueError(
                "This model was conformalized by an earlier version, for central intervals; call "
                "conformalize again."
            )
        scores = self.scores[held, column]
        weights = np.ones(len(scores)) if self.weights is None else self.weights[held]
        order = np.argsort(-scores, kind="stable")
        total = np.cumsum(weights[order])
        if own is None:
            own = np.full(n, (weights**2).sum() / total[-1])
        # Of rows that could have come in any order, as likely as their weights say, the new one may
        # be any; 1e-9 allows for the rounding of 1 - coverage.
        needed = coverage * (total[-1] + own) - 1e-9 * total[-1] / len(scores)
        place = np.searchsorted(total, needed)
        if self.weights is None and (place == len(scores)).any():
            rows = int(np.ceil(1 / (1 - coverage) - 1e-9)) - 1
            raise ValueError(
                f"coverage={coverage:g} needs at least {rows} rows in conformalize{which}, got "
                f"{len(scores)}."
            )
        return np.append(scores[order], 0.0)[place]


def _check_weights(sample_weight: Any, n: int) -> Array:
    weights = as_numbers("sample_weight", sample_weight)
    if weights.shape != (n,):
        raise ValueError(
            f"sample_weight must have one weight per row of X, shape ({n},), got shape "
            f"{weights.shape}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight must be finite and not negative.")
    return weights


def _check_size(weights: Array, which: str) -> None:
    """Refuse weights that are all on one row; warn where few rows count."""
    if not weights.any():
        raise ValueError(f"sample_weight is zero for all rows{which}; some must be positive.")
    size = effective_size(weights)
    if size < 2:
        raise ValueError(
            f"sample_weight: of {len(weights)} rows{which} one has nearly all the weight, and "
            "says nothing about intervals. The new rows lie where next to no held-out row does: "
            "give held-out rows that are more like them."
        )
    if size < FEW:
        warnings.warn(
            f"With these weights the {len(weights)} rows{which} tell as much as {size:.0f} of "
            "equal weight: the share of new outcomes that intervals hold may be off by "
            f"{100 * 2 * np.sqrt(0.09 / size):.0f} percentage points for a coverage of 0.9. Give "
            "more held-out rows that are like the new ones.",
            UserWarning,
            stacklevel=5,
        )


def check_groups(groups: Any, n: int) -> list[Any]:
    """Return the group of each of n rows."""
    refuse_masked("groups", groups)
    array = np.asarray(groups)
    if array.shape != (n,):
        raise ValueError(
            f"groups must have one entry per row of X, shape ({n},), got shape {array.shape}."
        )
    return array.tolist()


class Conformal:
    """Intervals and regions of an estimator, and what held-out rows correct in them."""

    def predict_interval(
        self,
        X: ArrayLike,
        coverage: float = 0.9,
        conformal: bool = False,
        *,
        side: str = "both",
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Array:
        """Interval that holds y with probability `coverage`, shape (n, 2).

        Parameters
        ----------
        X : array-like of shape (n, p)
        coverage : float, default 0.9
        conformal : bool, default False
            Whether to use what `conformalize` learned. The interval then holds a new y with at
            least this probability, however poor the model is, as long as the new row and those
            of `conformalize` are exchangeable: on average over all of them, not for each x.
        side : {"both", "lower", "upper"}, default "both"
            Both ends, equally likely to be passed; a lower end only, above which y lies with
            probability `coverage`; or an upper end only.
        sample_weight : array-like of shape (n,), optional
            With weights in `conformalize`: those of these rows, in the same units. By default each
            has what a new row has on average.
        groups : array-like of shape (n,), optional
            With groups in `conformalize`, or in `recalibrate`: those of these rows.
        """
        coverage = check_probability("coverage", coverage)
        if side not in _SIDES:
            raise ValueError(f"side must be one of {', '.join(map(repr, _SIDES))}, got {side!r}.")
        model: Any = self
        rows = model._check_predict(X)
        codes = codes_of(self, groups, len(rows))
        if not check_flag("conformal", conformal):
            refuse_without_conformal(sample_weight, groups if codes is None else None)
            ends = {"lower": [1 - coverage, 1.0], "upper": [0.0, coverage]}

            def plain(law: ConditionalDistribution, block: slice) -> Array:
                return law.interval(coverage) if side == "both" else law.ppf_grid(ends[side])

            return np.concatenate(model._in_blocks(rows, plain, codes=codes))
        found = scores_of(self)
        column = _SIDES.index(side)
        level = found.thresholds(column, coverage, len(rows), sample_weight, groups)

        def ends_of(law: ConditionalDistribution, block: slice) -> Array:
            # With atoms both tails may be larger than a half.
            own = level[block] if side != "both" else np.minimum(level[block], 0.5)
            return central(law, own)

        out = np.concatenate(model._in_blocks(rows, ends_of, codes=codes))
        # More outcomes than are allowed lay where the density is zero.
        anything = level <= 0
        out[anything | (side == "upper"), 0] = -np.inf
        out[anything | (side == "lower"), 1] = np.inf
        return out

    def predict_region(
        self,
        X: ArrayLike,
        coverage: float = 0.9,
        conformal: bool = False,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> list[Array]:
        """Highest-density region of each row: the smallest set that holds y so often.

        Parameters
        ----------
        X, coverage, conformal, sample_weight, groups
            See `predict_interval`.

        Returns
        -------
        list of n ndarrays of shape (k, 2)
            The k intervals that make up the region of a row.
        """
        coverage = check_probability("coverage", coverage)
        model: Any = self
        if getattr(model, "_several", False):
            raise ValueError(
                "predict_region is for one target; of several use the marginals of "
                "predict_distribution(X)."
            )
        rows = model._check_predict(X)
        codes = codes_of(self, groups, len(rows))
        if not check_flag("conformal", conformal):
            refuse_without_conformal(sample_weight, groups if codes is None else None)
            level = np.full(len(rows), 1 - coverage)
        else:
            found = scores_of(self)
            level = found.thresholds(_REGION, coverage, len(rows), sample_weight, groups)

        def regions_of(law: ConditionalDistribution, block: slice) -> list[Array]:
            out: list[Array] = [np.array([[-np.inf, np.inf]])] * len(law)
            for one in np.unique(level[block]):
                same = np.flatnonzero(level[block] == one)
                if one > 0:
                    share = min(max(1 - one, 1e-12), 1 - 1e-12)
                    for i, region in zip(same, law[same].hpd(share), strict=True):
                        out[i] = region
            return out

        blocks = model._in_blocks(rows, regions_of, codes=codes)
        return [region for block in blocks for region in block]

    def conformalize(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Learn from held-out rows how far out in their laws outcomes really fall.

        For ``predict_interval(..., conformal=True)`` and ``predict_region(..., conformal=True)``.
        The rows must not have been used by `fit`. The score of a row for central intervals is the
        probability, on the nearer side, of an outcome as far out as its own or further:
        min(P(Y <= y|x), P(Y >= y|x)); for one-sided ones it is the first or the second of these,
        for regions the probability outside of the region that ends at y.

        Parameters
        ----------
        X : array-like of shape (n, p)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
            How much more frequent rows like these are among the new ones, where new rows have other
            x than these: see `mcdensity.shift.weights`. Intervals then hold what they promise for
            the new rows, as long as y given x is the same. A warning says where few rows count.
        groups : array-like of shape (n,), optional
            Groups, such as regions or sexes, each of which is to be held with the probability asked
            for. New rows then need their `groups`.

        Returns
        -------
        self

        References
        ----------
        Chernozhukov, Wüthrich, Zhu: Distributional conformal prediction, 2021.
        Tibshirani, Barber, Candès, Ramdas: Conformal prediction under covariate shift, 2019.

        Examples
        --------
        >>> from mcdensity import MCD
        >>> from mcdensity.simulators import get_simulator
        >>> X, y = get_simulator("EconDensity").sample(600, random_state=0)
        >>> model = MCD("quadratic", random_state=0).fit(X[:300], y[:300])
        >>> model.conformalize(X[300:], y[300:]).predict_interval(X[:2], conformal=True).shape
        (2, 2)
        """
        model: Any = self
        rows = model._check_predict(X)
        outcomes = model._check_outcomes(y, len(rows))

        def of_rows(law: ConditionalDistribution, block: slice) -> Array:
            at = outcomes[block]
            below, above = law.cdf(at), law.sf(at) + law.pmf(at)
            outside = 1 - law.hpd_level(at)
            return np.column_stack([np.minimum(below, above), below, above, outside])

        codes = codes_of(self, groups, len(rows))
        scores = np.concatenate(model._in_blocks(rows, of_rows, codes=codes))
        keep_scores(self, ConformalScores.checked(scores, sample_weight, groups))
        return self


def keep_scores(model: Any, found: ConformalScores, columns: int | None = 1) -> None:
    """Store scores, and those of central intervals in order."""
    model.conformal_ = found
    central = np.sort(found.scores[:, :columns], axis=0)
    model.conformal_levels_ = central[:, 0] if columns == 1 else central


def scores_of(model: Any) -> ConformalScores:
    """Return what `conformalize` learned, or say that it has not been called."""
    check_is_fitted(model)
    if not hasattr(model, "conformal_levels_"):
        raise ValueError("conformal=True needs conformalize(X, y) on held-out rows first.")
    if hasattr(model, "conformal_"):
        return model.conformal_
    levels = model.conformal_levels_  # of a file of an earlier version
    return ConformalScores(levels[:, None] if levels.ndim == 1 else levels)


def codes_of(model: Any, groups: Any, n: int) -> NDArray[np.intp] | None:
    """Return which of the groups of `recalibrate` rows belong to, if it was given groups."""
    return model._group_codes(groups, n) if hasattr(model, "group_calibration_") else None


def refuse_without_conformal(sample_weight: Any, groups: Any) -> None:
    """Refuse arguments that only `conformalize` gives a meaning."""
    for name, value in (("sample_weight", sample_weight), ("groups", groups)):
        if value is not None:
            raise ValueError(f"{name} is for conformal=True{_ELSE.get(name, '')}; leave it out.")
