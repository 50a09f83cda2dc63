"""Estimators of several targets at once: a chain of models of one target each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from mcdensity._conformal import (
    ConformalScores,
    central,
    keep_scores,
    refuse_without_conformal,
    scores_of,
    tail,
)
from mcdensity._inputs import all_or_nothing, check_flag, check_quantiles
from mcdensity._validation import as_generator, check_integer, check_probability, check_weights
from mcdensity.chain import (
    EstimatorLink,
    as_columns,
    check_order,
    check_targets,
    fit_links,
    names_of,
    number_of_targets,
)
from mcdensity.distribution import JointDistribution
from mcdensity.estimator import ConditionalEstimator

__all__ = ["SeveralTargets"]

Array = NDArray[np.float64]

# Rows whose laws are worked on at once, and draws by which simultaneous intervals are found.
_ROWS, _DRAWS = 128, 256
# Rows by which a fit finds out how many draws count.
_FEW_ROWS = 32
# What a fit of several targets leaves, beside what one of one target does.
_OF_SEVERAL = (
    "links_", "order_", "target_names_", "joint_way_", "joint_scores_", "contrast_",
    "effective_draws_",
)  # fmt: skip


class SeveralTargets(ConditionalEstimator):
    """Lets an estimator of one target learn several: with y of k columns its results have k, too.

    Attributes
    ----------
    links_ : list
        Models of one target each, given x and the targets before it.
    order_ : list of int
        The number of the target that each link is the model of.
    target_names_ : list of str
    joint_way_ : {"chain", "contrast", "likelihood"}
    joint_scores_ : dict
        Held-out log-likelihoods of the ways that were tried.
    """

    links_: list[Any]
    order_: list[int]
    target_names_: list[str]

    @property
    def _several(self) -> bool:
        return "links_" in self.__dict__

    def __sklearn_is_fitted__(self) -> bool:
        return self._several or super().__sklearn_is_fitted__()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # Fitting.

    def _fit_checked(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, **extra: Any
    ) -> Self:
        if number_of_targets(y) < 2:
            if isinstance(getattr(self, "target", None), list | tuple):
                raise ValueError(f"target={self.target!r} has kinds of several columns; y has one.")
            for name in _OF_SEVERAL:
                self.__dict__.pop(name, None)
            if getattr(y, "ndim", 1) == 2:
                y = y.iloc[:, 0] if hasattr(y, "iloc") else np.asanyarray(y)[:, 0]
            return super()._fit_checked(X, y, sample_weight, **extra)
        return self._fit_several(X, y, sample_weight, **extra)

    @all_or_nothing
    def _fit_several(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        *,
        y_marginal: ArrayLike | None = None,
        **extra: Any,
    ) -> Self:
        self._validate_params()
        if extra.pop("censored", None) is not None:
            raise ValueError("censored is for one target; y has several columns.")
        if not self._normalized:
            raise ValueError(
                "normalize=False, the formula as it stands, is for one target; y has several "
                "columns. Use normalize=True."
            )
        names = names_of(y)
        Y = check_targets(y, names)
        inputs, _ = self._check_x(X, "X", Y[:, 0])
        kept, weight = check_weights(sample_weight, len(inputs))
        if kept is not None:
            inputs, Y = inputs[kept], check_targets(Y[kept], names)
            if extra.get("groups") is not None:
                extra["groups"] = np.asarray(extra["groups"])[kept]
        if y_marginal is not None:
            extra["y_marginal"] = as_columns("y_marginal", y_marginal, len(names))
        self.missing_columns_ = None  # the links see to missing values
        if extra.get("X_unlabeled") is not None:
            extra["X_unlabeled"] = self._check_x(extra["X_unlabeled"], "X_unlabeled")
        given = {name: value for name, value in extra.items() if value is not None}
        inputs = self._link_inputs(inputs)
        model, settings = self._link_model(), self._settings(names)
        way, order, scores = self._choose(inputs, Y, weight, names, settings, given)
        contrast: Any = None
        if way == "contrast":
            from mcdensity.contrasted import JointContrast, fit_common_law

            links = fit_common_law(self, Y, weight, order, settings)
            contrast = JointContrast.of(self).fit(inputs, Y, weight, links, order, **given)
        else:
            if "y_marginal" in given:
                given["y_marginal"] = given["y_marginal"][:, order[0]]
            links = fit_links(model, inputs, Y, weight, order, settings, **given)
        if way == "likelihood":
            from mcdensity.likelihood import JointLikelihood

            contrast = JointLikelihood().fit(self, inputs, Y, weight, order, settings)
        for name in [name for name in vars(self) if name.endswith("_")]:
            if not name.startswith("_") and name not in ("n_features_in_", "feature_names_in_"):
                delattr(self, name)
        self.links_, self.order_, self.target_names_ = links, order, names
        self.joint_way_, self.joint_scores_ = way, scores
        if contrast is not None:
            self.contrast_ = contrast
            self._warn_of_few_draws(inputs)
        self.missing_columns_ = None  # the links see to missing values
        for name in ("target_kind_", "support_", "atoms_", "weights_"):
            if all(hasattr(link, name) for link in links):
                found = [getattr(links[order.index(j)], name) for j in range(len(names))]
                setattr(self, name, found)
        return self

    def _choose(
        self,
        X: Array,
        Y: Array,
        weight: Array | None,
        names: list[str],
        settings: list[dict[str, Any]],
        given: dict[str, Any],
    ) -> tuple[str, list[int], dict[str, float]]:
        """Return the way, the order of a chain, and scores of a trial."""
        from mcdensity._joint_choice import choose_way

        joint = getattr(self, "joint", "chain")
        if joint == "likelihood":
            from mcdensity.likelihood import check_features

            check_features(self, X)
        if joint in ("contrast", "likelihood"):
            return joint, check_order("chain", names), {}
        if joint == "auto" and not given and self.effort != "fast" and self.time_budget is None:
            way, order, scores = choose_way(self, X, Y, weight, settings)
            keys = [o if isinstance(o, str) else ", ".join(names[j] for j in o) for o in scores]
            return way, order, dict(zip(keys, scores.values(), strict=True))
        return "chain", check_order(joint, names), {}

    def _warn_of_few_draws(self, X: Array) -> None:
        from mcdensity.contrasted import LEAST_DRAWS

        some = X[np.linspace(0, len(X) - 1, min(len(X), _FEW_ROWS)).astype(np.intp)]
        law = self.contrast_.law(some, self.links_, self.order_, self.target_names_)
        self.effective_draws_ = float(np.median(law.effective_draws()))
        if self.effective_draws_ < LEAST_DRAWS:
            warnings.warn(
                f"joint={self.joint_way_!r}: only {self.effective_draws_:.0f} of the draws that "
                "normalise it count for a row in the middle: too few. Use joint='chain'.",
                UserWarning,
                stacklevel=4,
            )

    def _link_model(self) -> Any:
        """Return an estimator whose copies become the links."""
        return self

    def _link_inputs(self, X: Array) -> Array:
        """Features of the links, beside the targets before them."""
        return X

    def _settings(self, names: list[str]) -> list[dict[str, Any]]:
        """Parameters of each target's own."""
        return [{} for _ in names]

    # Predictions.

    def _joint_inputs(self, X: Any) -> Array:
        """Check features; they are standardised by the links."""
        check_is_fitted(self)
        return self._link_inputs(self._check_x(X, "X"))

    def _joint_law(self, X: Array) -> JointDistribution:
        if hasattr(self, "contrast_"):
            return self.contrast_.law(X, self.links_, self.order_, self.target_names_)
        links = [EstimatorLink(link) for link in self.links_]
        return JointDistribution(links, X, self.order_, self.target_names_)

    def _some_rows(self, n: int, size: int = _ROWS) -> Iterator[slice]:
        return (slice(start, min(start + size, n)) for start in range(0, n, size))

    def _by_rows(
        self, X: Any, function: Callable[[JointDistribution, slice], Array], size: int = _ROWS
    ) -> Array:
        inputs = self._joint_inputs(X)
        parts = [
            function(self._joint_law(inputs[b]), b) for b in self._some_rows(len(inputs), size)
        ]
        return np.concatenate(parts)

    def predict_distribution(self, X: ArrayLike, *, groups: ArrayLike | None = None) -> Any:
        """Return the distribution of y given each row of X.

        A `JointDistribution` where y has several columns. It holds its densities: for very many
        rows the shorthands below need less memory, since they work in blocks. `groups` are those of
        the rows, where `recalibrate` was given groups; without them the correction is that for all.
        """
        if not self._several:
            return super().predict_distribution(X, groups=groups)
        self._group_codes(groups, 0)  # there are none
        return self._joint_law(self._joint_inputs(X))

    def pdf_from_X(self, X: ArrayLike, y_grid: ArrayLike) -> Array:  # noqa: N802
        """Densities of y given each row of X, at points that all rows share.

        Parameters
        ----------
        X : array-like of shape (n, p)
        y_grid : array-like of shape (G,) or, for k targets, (G, k)

        Returns
        -------
        ndarray of shape (n, G)
        """
        if not self._several:
            return super().pdf_from_X(X, y_grid)
        points = as_columns("y_grid", y_grid, len(self.target_names_))

        def densities(law: JointDistribution, rows: slice) -> Array:
            return law.pdf(np.broadcast_to(points, (len(law), *points.shape)))

        return self._by_rows(X, densities, max(1, 1 + 20_000 // len(points)))

    def logpdf(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Log-density of y[i] given row i of X, shape (n,)."""
        if not self._several:
            return super().logpdf(X, y)
        inputs = self._joint_inputs(X)
        return self._joint_law(inputs).logpdf(self._outcomes(y, len(inputs)))

    def _outcomes(self, y: ArrayLike, n: int) -> Array:
        columns = getattr(y, "columns", None)
        if columns is not None:
            names = [str(column) for column in columns]
            if sorted(names) != sorted(self.target_names_):
                raise ValueError(
                    f"y has the columns {', '.join(names)}; the model was fitted with "
                    f"{', '.join(self.target_names_)}."
                )
            y = np.asarray(y)[:, [names.index(name) for name in self.target_names_]]
        return as_columns("y", y, len(self.target_names_), n)

    def predict(self, X: ArrayLike) -> Array:
        """Conditional mean of y given each row of X, (n,) or (n, k)."""
        if not self._several:
            return super().predict(X)
        return self._by_rows(X, lambda law, _: law.mean())

    def predict_var(self, X: ArrayLike) -> Array:
        """Conditional variance of y given each row of X, (n,) or (n, k)."""
        if not self._several:
            return super().predict_var(X)
        return self._by_rows(X, lambda law, _: np.einsum("nii->ni", law.cov()))

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> Array:
        """Conditional quantiles of each target, shape (n, q), or (n, k, q) for k targets."""
        if not self._several:
            return super().predict_quantiles(X, quantiles)
        levels = check_quantiles(quantiles)

        def of_rows(law: JointDistribution, _: slice) -> Array:
            found = [law.marginal(j).ppf_grid(levels) for j in range(law.n_targets)]
            return np.stack(found, axis=1)

        return self._by_rows(X, of_rows)

    def predict_interval(
        self,
        X: ArrayLike,
        coverage: float = 0.9,
        conformal: bool = False,
        joint: bool = False,
        *,
        side: str = "both",
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Array:
        """Interval that holds y with probability `coverage`, (n, 2) or (n, k, 2).

        Parameters
        ----------
        X : array-like of shape (n, p)
        coverage : float, default 0.9
        conformal : bool, default False
            Whether to use what `conformalize` learned: the interval then holds a new y with at
            least this probability, on average over rows that are exchangeable with those of
            `conformalize`, however poor the model is.
        joint : bool, default False
            For several targets: whether all intervals of a row are to hold together, instead of
            each on its own.
        side : {"both", "lower", "upper"}, default "both"
            For one target: both ends, equally likely to be passed; a lower end only, above which y
            lies with probability `coverage`; or an upper end only.
        sample_weight, groups : array-like of shape (n,), optional
            Of these rows, where `conformalize` was given weights or groups.
        """
        joint = check_flag("joint", joint)
        more: dict[str, Any] = {"sample_weight": sample_weight, "groups": groups}
        if not self._several:
            return super().predict_interval(X, coverage, conformal, side=side, **more)
        coverage = check_probability("coverage", coverage)
        if side != "both":
            raise ValueError(f"side={side!r} is for one target; y has several columns.")
        if not check_flag("conformal", conformal):
            refuse_without_conformal(sample_weight, groups)
            k = len(self.target_names_)

            def of_rows(law: JointDistribution, _: slice) -> Array:
                laws = [law.marginal(j) for j in range(k)]
                level = np.full(len(law), (1 - coverage) / 2)
                if joint:
                    draws, weight = law._weighted_draws(_DRAWS)
                    # Of densities on their grids, which is fast for many draws.
                    quick = [one if len(one.atoms) else one.as_grid() for one in laws]
                    tails = np.min([tail(quick[j], draws[..., j]) for j in range(k)], axis=0)
                    level = np.minimum(_quantile(tails, weight, 1 - coverage), 0.5)
                ends = np.column_stack([level, 1 - level])
                return np.stack([one.ppf(ends) for one in laws], axis=1)

            return self._by_rows(X, of_rows)
        found, k = scores_of(self), len(self.target_names_)
        n = len(self._joint_inputs(X))
        columns = [k] if joint else range(k)
        levels = [found.thresholds(j, coverage, n, **more) for j in columns]
        levels = levels * k if joint else levels

        def adjusted(law: JointDistribution, rows: slice) -> Array:
            out = []
            for j, level in enumerate(levels):
                own = np.minimum(level[rows], 0.5)
                ends = central(law.marginal(j), own)
                out.append(np.where(own[:, None] > 0, ends, [-np.inf, np.inf]))
            return np.stack(out, axis=1)

        return self._by_rows(X, adjusted)

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
        for regions the probability outside of the region that ends at y; for intervals that hold
        together it is the least of those of the row's targets.

        Parameters
        ----------
        X : array-like of shape (n, p)
        y : array-like of shape (n,) or (n, k)
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
        """
        if not self._several:
            return super().conformalize(X, y, sample_weight, groups)
        inputs = self._joint_inputs(X)
        outcomes = self._outcomes(y, len(inputs))

        def tails(law: JointDistribution, rows: slice) -> Array:
            own = outcomes[rows]
            found = [tail(law.marginal(j), own[:, [j]])[:, 0] for j in range(law.n_targets)]
            return np.column_stack([*found, np.min(found, axis=0)])

        # A column for each target, and one for all together.
        found = ConformalScores.checked(self._by_rows(X, tails), sample_weight, groups)
        keep_scores(self, found, None)
        return self

    def sample(self, X: ArrayLike, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw targets given each row of X, shape (n, n_samples), or (n, n_samples, k)."""
        if not self._several:
            return super().sample(X, n_samples, random_state)
        n_samples = check_integer("n_samples", n_samples)
        inputs = self._joint_inputs(X)
        return self._joint_law(inputs).sample(n_samples, as_generator(random_state))


def _quantile(values: Array, weight: Array, level: float) -> Array:
    """Quantile of weighted values of each row; both are (n, m), and weights sum to one."""
    order = np.argsort(values, axis=1)
    values, weight = (np.take_along_axis(part, order, axis=1) for part in (values, weight))
    # Each value stands in the middle of its weight.
    place = weight.cumsum(axis=1) - weight / 2
    pairs = zip(place, values, strict=True)
    return np.array([np.interp(level, at, value) for at, value in pairs])
