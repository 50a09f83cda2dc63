"""`MCD`: marginal contrastive discrimination."""

from __future__ import annotations

import time
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit
from sklearn.utils._param_validation import Interval, StrOptions

from mcdensity._censoring import expert_for, fit_marginal, measure_of, with_weights
from mcdensity._distilling import Distillable
from mcdensity._effort import EFFORTS
from mcdensity._mixed import discrete_law, fit_parts, mixed_law
from mcdensity._pairs import group_codes
from mcdensity._progress import showing
from mcdensity._ratios import score_ratios
from mcdensity._several import SeveralTargets
from mcdensity._validation import as_generator
from mcdensity.chain import settings_of
from mcdensity.data import TrainingData
from mcdensity.discriminators import make_discriminator
from mcdensity.distribution import ConditionalDistribution, GridDistribution, Reference
from mcdensity.experts.base import ConditionedRatio, DensityExpert
from mcdensity.experts.distilled import Distilled
from mcdensity.experts.tables import Fade
from mcdensity.portfolio import Portfolio
from mcdensity.target import DiscreteSpace, InnerMarginal, MixedSpace, TargetSpace, space_of
from mcdensity.target_kind import describe

__all__ = ["MCD"]

Array = NDArray[np.float64]

# Rows that a model keeps, in single precision, so that it can be distilled: 1.6 MB for 20 columns.
_MOST_KEPT = 20_000


class MCD(Distillable, SeveralTargets):
    r"""Conditional density from a marginal density and a classifier.

    .. math:: f(y \mid x) = f_Y(y) \, \frac{q(x, y)}{1 - q(x, y)} \, \frac{1 - r}{r}

    f_Y is the density of y alone; q is the probability, learned by a discriminator, that a pair
    (x, y) was observed together and not formed from two rows; r is the share of such joint
    pairs among those it learned from.

    Parameters
    ----------
    discriminator : str or object, default "auto"
        A name from `mcdensity.discriminators.list_discriminators`; any object with `fit` and
        `predict_proba` (or `predict`, for a regressor of the label); or a torch module, its class
        or a function that makes one, from (batch, p + 1) to one logit. It is cloned, never changed.
        "auto" fits several, and pools their densities, weighted by held-out likelihood.
    marginal : str or object, default "adaptive"
        A name from `mcdensity.marginals.list_marginals`, or an object with `fit`, `logpdf`, `cdf`
        and `ppf`. "kde" is the paper's kernel density; "tailed" is the same with a little of a
        heavy-tailed density, so that a target just beyond those seen is unlikely, not impossible;
        "adaptive" mixes kernels and two simple laws, weighted by held-out likelihood.
    construction : {"auto", "id", "iid"}, default "auto"
        How pairs are made, see `mcdensity.build_contrast`; "auto" is "id".
    ratio : float or "auto", default 0.05
        Share of joint pairs. "auto" chooses among 0.02, 0.05, 0.15 and 0.5 by cross-validated
        log-likelihood.
    normalize : bool, default True
        Whether `pdf_from_X`, `logpdf` and `score` use densities scaled to integrate to one, whose
        ratio fades beyond the data. Without it they return the formula as it stands. Quantiles,
        moments, samples and the distribution object are always those of the normalised density.
    epsilon : float, default 1e-6
        q is kept below 1 - epsilon, and the ratio f(y|x) / f_Y(y) above epsilon, that of the
        normalised density too: no target that the marginal expects is impossible.
    discriminator_params : dict, optional
        Parameters for a discriminator given by name, such as ``{"C": 0.1}`` for "quadratic", or
        for the training of a torch module.
    random_state : int, Generator, RandomState or None
        Seed; the same seed gives the same numbers.
    verbose : bool, default False
        Whether to show, on standard error, what is being fitted and how long it will still take.
    time_budget : float, optional
        Seconds that `fit` may take. A quick model comes first, then whatever fits into the time;
        networks are trained with fewer steps. The result then depends on the machine. Without a
        budget it depends on the data and the seed alone.
    effort : {"fast", "normal", "best"}, default "normal"
        How much work to do: which experts the portfolio has, how many folds, steps and trees. It
        applies to experts that are given by name, too. "fast" takes about a fifth of the time of
        "normal"; "best" takes two to three times as long, lifts the limits on the number of rows
        for which an expert is tried, and gains a little.
    n_jobs : int, optional
        Cores for fitting several experts, and for predictions; -1: all. Threads are used for short
        work, processes for long. By default all cores, or as many as ``OMP_NUM_THREADS`` or
        ``joblib.parallel_config`` says, and one within a worker of joblib. Results are the same
        for any `n_jobs`, apart from rounding. With a `time_budget` experts are fitted one after
        the other.
    target : {"auto", "continuous", "discrete", "mixed"}, default "auto"
        What y is: a number with a density; one of few numbers, such as a count or a grade, with
        masses; or a number with a density that has some values, such as 0 or a cap, far more often
        than a density explains. "auto" finds out, and `target_kind_` says what it found. A target
        that is merely rounded is continuous.
    support : tuple of float or None, optional
        Bounds (low, high) of y, either of which may be None; no mass lies beyond. By default they
        are detected: 0 if no target is negative, 0 and 1 if all lie between, and an end of the
        range that many rows share. ``(None, None)`` is unbounded.
    joint : {"auto", "chain", "contrast", "likelihood"} or sequence, default "auto"
        How several targets, a y of k columns, are learned together: "chain", the first given x, the
        second given x and the first, and so on; "contrast", by pairs with y in R^k, the
        discriminator ("mlp" where it is none) times a law of y alone; or "likelihood", the chain
        pooled with a law of y alone times the law of x given y, for simulators. "auto" tries all
        of these, and several orders of the columns, on some of the rows ("likelihood" where x has
        2 to 16 columns, all continuous; it must gain 0.2 nats, or 0.05 up to 2400 rows). A sequence
        of names or numbers of the columns is the order of the chain. `target` and `support` may be
        lists, one entry per column.
    calibrate : bool, default False
        Whether to correct the laws by training rows that were held out, see `recalibrate`. "auto"
        holds rows out anyway; for others three more models are fitted, each without a third of
        the rows.

    Attributes
    ----------
    marginal_ : Marginal
        The fitted marginal, of the *standardised* target ``(y - y_mean_) / y_scale_``; of a
        discrete one, of its normal score. A mixed target has none, but `parts_`.
    discriminator_ : Expert
        The fitted discriminator; for a scikit-learn learner see its `learner_`.
    parts_ : list of MCD
        Of a mixed target: a model of which atom y is, or none, and one of y where it is none.
    target_space_ : TargetSpace
        The coordinates of the target.
    target_kind_ : str
        "continuous", "discrete" or "mixed". Of several targets this and `support_`, `atoms_` and
        `weights_` are lists.
    links_, order_, target_names_, joint_way_, joint_scores_
        Of several targets: the model of each given those before it, the number of the target that
        each is the model of, the names of the targets, "chain" or "contrast", and what a trial of
        these and of orders found.
    support_ : tuple of float
        Bounds of y, infinite where there is none.
    atoms_ : ndarray
        The values with a mass of their own; none for a continuous target.
    ratio_ : float
        The share of joint pairs that was achieved; not set where no pairs are needed: by experts
        that learn densities, such as "mixture" and "forest", and by distilled models.
    weights_ : dict
        With ``discriminator="auto"``: the weight of each discriminator, and of the marginal.
    ratio_scores_ : dict
        With ``ratio="auto"``: cross-validated log-likelihood of each ratio that was tried.
    contrast_size_ : int
        Number of pairs, where there are any.
    construction_ : int
        Which of the paper's Constructions 1 to 5 the data called for.
    distill_loss_ : float
        Of a distilled model: how much log-likelihood it loses.
    calibration_ : LevelMap
        What `recalibrate`, or ``calibrate=True``, has learned; not set where nothing is gained.
    group_calibration_ : GroupLevels
        What `recalibrate` has learned of groups beyond that.
    n_features_in_, feature_names_in_, x_mean_, x_scale_, y_mean_, y_scale_
        What was seen, and used to standardise.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity import MCD
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> y = X[:, 0] + rng.normal(scale=0.5, size=500)
    >>> model = MCD(discriminator="quadratic", random_state=0).fit(X, y)
    >>> model.predict_quantiles([[1.0, 0.0]], (0.05, 0.5, 0.95)).round(1)
    array([[0.1, 1. , 1.9]])
    """

    target_kinds: ClassVar[frozenset[str]] = frozenset({"continuous", "discrete", "mixed"})
    _fade: Fade | None = None  # files of earlier versions have none
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "discriminator": [object],
        "marginal": [object],
        "construction": [StrOptions({"auto", "id", "iid"})],
        "ratio": [Interval(Real, 0, 1, closed="neither"), StrOptions({"auto"})],
        "normalize": ["boolean"],
        "epsilon": [Interval(Real, 0, 0.5, closed="neither")],
        "discriminator_params": [dict, None],
        "random_state": ["random_state", np.random.Generator],
        "verbose": ["boolean"],
        "time_budget": [Interval(Real, 0, None, closed="neither"), None],
        "effort": [StrOptions(set(EFFORTS))],
        "n_jobs": [
            Interval(Integral, None, -1, closed="right"),
            Interval(Integral, 1, None, closed="left"),
            None,
        ],
        "target": [StrOptions({"auto", "continuous", "discrete", "mixed"}), list, tuple],
        "support": [object],
        "joint": [StrOptions({"auto", "chain", "contrast", "likelihood"}), list, tuple],
        "calibrate": ["boolean"],
    }

    def __init__(
        self,
        discriminator: Any = "auto",
        marginal: Any = "adaptive",
        construction: str = "auto",
        ratio: float | str = 0.05,
        normalize: bool = True,
        epsilon: float = 1e-6,
        discriminator_params: dict[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
        time_budget: float | None = None,
        effort: str = "normal",
        n_jobs: int | None = None,
        target: str = "auto",
        support: Any = None,
        joint: Any = "auto",
        calibrate: bool = False,
    ) -> None:
        self.discriminator = discriminator
        self.marginal = marginal
        self.construction = construction
        self.ratio = ratio
        self.normalize = normalize
        self.epsilon = epsilon
        self.discriminator_params = discriminator_params
        self.random_state = random_state
        self.verbose = verbose
        self.time_budget = time_budget
        self.effort = effort
        self.n_jobs = n_jobs
        self.target = target
        self.support = support
        self.joint = joint
        self.calibrate = calibrate

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_unlabeled: ArrayLike | None = None,
        y_marginal: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        censored: ArrayLike | None = None,
    ) -> Self:
        """Learn the distribution of y given x.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Features. Missing values (NaN) are passed on to a discriminator that takes them.
        y : array-like of shape (n,) or (n, k)
            One target, or several, whose names are those of the columns of a DataFrame.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows; only their ratios matter, and a row of weight 0 is left out.
        X_unlabeled : array-like of shape (n_x, p), optional
            More x, of the same distribution, whose y is not known.
        y_marginal : array-like of shape (n_y,) or (n_y, k), optional
            More y, of the same distribution, whose x is not known.
        groups : array-like of shape (n,), optional
            Rows with the same value are several draws of y given one x, see `stack_targets`.
        censored : array-like of bool, shape (n,), optional
            Where y is a lower bound, such as a duration that had not ended: "mixture" and "flow",
            and "auto", which then is their mean with laws of known families beside it, learn by the
            probability of a larger target. Other discriminators learn from the other rows, weighted
            by the inverse probability of not being censored; this must then not depend on x.

        Returns
        -------
        self
        """
        more = {"X_unlabeled": X_unlabeled, "y_marginal": y_marginal, "groups": groups}
        return self._fit_checked(X, y, sample_weight, censored=censored, **more)

    def _fit(
        self,
        X: Array,
        y: Array,
        sample_weight: Array | None,
        *,
        X_unlabeled: Array | None = None,
        y_marginal: Array | None = None,
        groups: NDArray[Any] | None = None,
        censored: NDArray[np.bool_] | None = None,
        **extra: Any,
    ) -> None:
        rng = as_generator(self.random_state)
        expert = make_discriminator(self.discriminator, self.discriminator_params)
        expert = expert_for(expert, censored)
        if censored is not None and not expert.takes_censored:
            X, y, sample_weight, groups = with_weights(X, y, sample_weight, groups, censored)
            censored = None
        if isinstance(self.target_space_, MixedSpace):
            more = {"X_unlabeled": X_unlabeled, "y_marginal": y_marginal, "groups": groups}
            fit_parts(self, X, y, sample_weight, rng, **more)
            return
        deadline = None if self.time_budget is None else time.monotonic() + self.time_budget
        ratio = self.ratio
        if isinstance(ratio, str):
            self.ratio_scores_ = score_ratios(
                self,
                X,
                y,
                sample_weight,
                groups,
                int(rng.integers(2**31 - 1)),
                deadline,
                X_unlabeled=X_unlabeled,
                y_marginal=y_marginal,
            )
            # With too few observations to choose by there are no scores.
            ratio = max(self.ratio_scores_, key=self.ratio_scores_.__getitem__, default=0.05)
        space = self.target_space_
        targets, weights = y, sample_weight
        if y_marginal is not None:
            targets = np.concatenate([y, y_marginal])
            weights = (
                None if weights is None else np.concatenate([weights, np.ones(len(y_marginal))])
            )
        held_out = fit_marginal(self, expert, y, sample_weight, targets, weights, censored)
        data = TrainingData(
            X,
            space.inner(y)[:, None],
            sample_weight,
            None if groups is None else group_codes(groups, X),
            X_unlabeled,
            None if y_marginal is None else space.inner(y_marginal)[:, None],
            InnerMarginal(space, self.marginal_, held_out),
            random_state=rng,
            construction=self.construction,
            ratio=ratio,
            effort=EFFORTS[self.effort],
            n_jobs=self.n_jobs,
            deadline=deadline,
            keep_levels=self.calibrate,
            censored=censored,
        )
        if isinstance(space, DiscreteSpace) and isinstance(expert, DensityExpert):
            data = data.without_ties()
        if not isinstance(expert, DensityExpert):
            contrast = data.contrast()
            self.ratio_ = contrast.ratio
            self.contrast_size_ = len(contrast)
            self.construction_ = contrast.construction
        with showing(self.verbose, f"Fitting MCD to {len(X):,} rows") as report:
            expert.fit(data.but(report=report))
        self.discriminator_ = expert
        # A portfolio has its own; outcomes that are lower bounds say that there is mass beyond.
        own = isinstance(expert, Portfolio) or censored is not None
        self._fade = None if own else Fade.of(data.marginal, data.n_observations)
        kept = rng.permutation(len(X))[:_MOST_KEPT]
        self._kept_rows = X[np.sort(kept)].astype(np.float32)
        if hasattr(expert, "weights_"):
            self.weights_ = dict(expert.weights_)

    def _learn_space(self, y: Array, weight: Array | None, more: Array | None) -> TargetSpace:
        part = getattr(self, "_measure", None)  # of a model that is a part of another
        seen = self.__dict__.pop("_seen", None)  # those that are no lower bounds
        measure = part or measure_of(y, seen, self.target, self.support)
        space = space_of(measure, y, weight, more, smooth=part is None)
        self.target_kind_, self.support_, self.atoms_ = space.kind, measure.support, measure.atoms
        if isinstance(space, DiscreteSpace):
            self.atoms_ = space.masses.values_
        return space

    def _settings(self, names: list[str]) -> list[dict[str, Any]]:
        return settings_of(self.target, self.support, names)

    def _log_ratio(
        self, X: Array, fade: Fade | None = None
    ) -> Callable[[Array, NDArray[np.intp] | None], Array]:
        """Condition on rows; return log f(y|x) / f_Y(y) at standardised y as a function.

        The function takes points of shape (m,), which rows share, or (rows, m), and the rows.
        """
        space, marginal = self.target_space_, self.marginal_
        conditioned = self.discriminator_.condition(X)

        def relative(y: Array, rows: NDArray[np.intp] | None) -> Array:
            if isinstance(conditioned, ConditionedRatio):
                # q stays below 1 - epsilon.
                most = logit(1 - self.epsilon) - logit(self.discriminator_.ratio_)
                found = np.minimum(conditioned.log_ratio(space.inner(y), rows), most)
            else:
                log_marginal = marginal.logpdf(y) - space.log_slope(y)
                found = conditioned.relative(space.inner(y, clip=False), log_marginal, rows)
            return found if fade is None else fade(found, space.inner(y, clip=False))

        return relative

    # The formula as it stands, for `normalize=False`.

    def _log_density_grid(self, X: Array, grid: Array) -> Array:
        ratio = np.maximum(self._log_ratio(X)(grid, None), np.log(self.epsilon))
        return ratio + self.marginal_.logpdf(grid)

    def _log_density_rows(self, X: Array, Y: Array) -> Array:
        return self._log_density_grid(X, Y)

    def _distribution(self, X: Array) -> ConditionalDistribution:
        space, expert = self.target_space_, getattr(self, "discriminator_", None)
        if isinstance(space, MixedSpace):
            return mixed_law(self.parts_, self.atoms_, X)
        if isinstance(space, DiscreteSpace):
            return discrete_law(self, X)
        if isinstance(expert, Distilled):
            return expert.distribution(X, self.marginal_)
        log_ratio = self._log_ratio(X, self._fade)
        return GridDistribution.from_log_density(
            lambda rows, y: log_ratio(y, rows) + self.marginal_.logpdf(y),
            self._knots,
            shared=lambda y: log_ratio(y, None) + self.marginal_.logpdf(y),
            reference=self.marginal_,
            floor=float(np.log(self.epsilon)),
        )

    def _reference(self) -> Reference:
        return self.marginal_

    def _row_size(self) -> int:
        size, expert = super()._row_size(), getattr(self, "discriminator_", None)
        return expert.row_size(size) if isinstance(expert, Distilled) else size

    def _start_knots(self, y: Array) -> Array:
        if isinstance(self.target_space_, MixedSpace):
            return np.empty(max(part._row_size() for part in self.parts_))
        if isinstance(self.target_space_, DiscreteSpace):
            return self.target_space_.masses.nodes_
        return super()._start_knots(y)

    @property
    def _normalized(self) -> bool:
        return self.normalize

    def _allows_nan(self) -> bool:
        if hasattr(self, "distill_loss_"):
            return False
        try:
            return make_discriminator(self.discriminator, self.discriminator_params).allows_nan()
        except (ImportError, TypeError, ValueError):
            return False  # fit will report the problem

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = super().__repr__(N_CHAR_MAX)
        return f"{text} [y: {describe(self)}]" if hasattr(self, "target_kind_") else text

    def _describe(self) -> str:
        discriminator = make_discriminator(self.discriminator, self.discriminator_params)
        return f"the discriminator {discriminator.describe()}"
