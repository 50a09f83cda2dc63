"""`MCD`: marginal contrastive discrimination."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold
from sklearn.utils._param_validation import Interval, StrOptions

from mcdensity._validation import as_generator, weighted_quantile
from mcdensity.contrast import build_contrast
from mcdensity.discriminators import make_discriminator
from mcdensity.discriminators.adapters import TargetMarginal
from mcdensity.distribution import ConditionalDistribution, GridDistribution, Reference
from mcdensity.estimator import ConditionalEstimator
from mcdensity.marginals import AdaptiveDensity, get_marginal

__all__ = ["MCD"]

Array = NDArray[np.float64]

_RATIOS = (0.02, 0.05, 0.15, 0.5)
_FOLDS = 3
# With fewer targets, or more, the marginal's optimism about those it has seen is not asked for.
_LEAST_HELD_OUT, _MOST_HELD_OUT, _PARTS = 10, 5000, 20
# The discriminator sees targets up to this many standard deviations as they are.
_LINEAR = 4.0


class _TargetMap:
    """A monotone map of y for the discriminator: the ratio of densities does not notice it.

    In units of a robust standard deviation it leaves y as it is up to four of them, and grows like
    a logarithm beyond, so that a wild outlier does not squeeze all other targets into a point.
    Targets beyond those seen count as the outermost, unless a discriminator knows better.
    """

    def __init__(self, y: Array, weight: Array | None) -> None:
        low, middle, high = weighted_quantile(y, [0.25, 0.5, 0.75], weight)
        self.range = y.min(), y.max()
        self.middle = middle
        # y is standardised: its standard deviation is 1.
        self.scale = min(1.0, (high - low) / 1.349) if high > low else 1.0

    def __call__(self, y: Array, beyond: bool = False) -> Array:
        y = y if beyond else np.clip(y, *self.range)
        value = (y - self.middle) / self.scale
        size = np.abs(value)
        far = _LINEAR + np.log1p(np.maximum(size - _LINEAR, 0))
        return np.where(size <= _LINEAR, value, np.sign(value) * far)

    def inverse(self, value: Array) -> tuple[Array, Array]:
        """Return y, and the logarithm of the slope of y there."""
        beyond = np.clip(np.abs(value) - _LINEAR, 0, 700)
        size = np.minimum(np.abs(value), _LINEAR) + np.expm1(beyond)
        return self.middle + self.scale * np.sign(value) * size, np.log(self.scale) + beyond

    def marginal(self, marginal: Any, optimism: Array | float) -> TargetMarginal:
        """Return the marginal of the mapped targets."""

        def logpdf(value: Array) -> Array:
            y, log_slope = self.inverse(value)
            return marginal.logpdf(y) + log_slope

        low, high = self.range
        reach = np.array([2 * low - high, 2 * high - low])
        return TargetMarginal(
            quantile=lambda level: self(marginal.ppf(level)),
            cdf=lambda value: marginal.cdf(self.inverse(value)[0]),
            logpdf=logpdf,
            limits=tuple(self(np.array(self.range))),
            reach=tuple(self(reach, beyond=True)),
            optimism=optimism,
        )


class MCD(ConditionalEstimator):
    r"""Conditional density from a marginal density and a classifier.

    .. math:: f(y \mid x) = f_Y(y) \, \frac{q(x, y)}{1 - q(x, y)} \, \frac{1 - r}{r}

    f_Y is the density of y alone; q is the probability, learned by a discriminator, that a pair
    (x, y) was observed together and not put together from two rows; r is the share of such joint
    pairs among those it learned from.

    Parameters
    ----------
    discriminator : str or object, default "auto"
        A name from `mcdensity.discriminators.list_discriminators`; any object with `fit` and
        `predict_proba` (or `predict`, for a regressor of the label); or a torch module, its class
        or a function that makes one, from (batch, p + 1) to one logit. It is cloned, never changed.
        "auto" fits several, and mixes their densities as held-out rows ask for.
    marginal : str or object, default "adaptive"
        A name from `mcdensity.marginals.list_marginals`, or an object with `fit`, `logpdf`, `cdf`
        and `ppf`. "kde" is the paper's kernel density; "tailed" is the same with a little of a
        heavy-tailed density, so that a target just beyond those seen is unlikely, not impossible;
        "adaptive" mixes kernels of several widths and two simple laws as held-out targets ask for.
    construction : {"auto", "id", "iid"}, default "auto"
        How pairs are made, see `mcdensity.build_contrast`; "auto" is "id".
    ratio : float or "auto", default 0.05
        Share of joint pairs. "auto" chooses among 0.02, 0.05, 0.15 and 0.5 by cross-validated
        log-likelihood.
    normalize : bool, default True
        Whether `pdf_from_X`, `logpdf` and `score` use densities scaled to integrate to one. Without
        it they return the formula as it stands. Quantiles, moments, samples and the distribution
        object are always those of the normalised density.
    epsilon : float, default 1e-6
        q is kept below 1 - epsilon, and the ratio f(y|x) / f_Y(y) above epsilon (normalised:
        above epsilon times the largest of the row).
    discriminator_params : dict, optional
        Parameters for a discriminator given by name, such as ``{"C": 0.1}`` for "quadratic", or
        for the training of a torch module.
    random_state : int, Generator, RandomState or None
        Seed; the same seed gives the same numbers.
    verbose : bool, default False
        Whether a neural discriminator shows a progress bar while it learns.

    Attributes
    ----------
    marginal_ : Marginal
        The fitted marginal, of the *standardised* target ``(y - y_mean_) / y_scale_``.
    discriminator_ : Discriminator
        The fitted discriminator; for a scikit-learn learner see its `learner_`.
    ratio_ : float
        The share of joint pairs that was achieved.
    weights_ : dict
        With ``discriminator="auto"``: the weight of each discriminator, and of the marginal.
    ratio_scores_ : dict
        With ``ratio="auto"``: cross-validated log-likelihood of each ratio that was tried.
    contrast_size_ : int
        Number of pairs.
    construction_ : int
        Which of the paper's Constructions 1 to 5 the data called for.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
    x_mean_, x_scale_, y_mean_, y_scale_
        What was used to standardise.

    References
    ----------
    Meziani, Ndiaye, Riu: Marginal Contrastive Discrimination.

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

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_unlabeled: ArrayLike | None = None,
        y_marginal: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Learn the distribution of y given x.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Features. Missing values (NaN) are passed on to a discriminator that takes them.
        y : array-like of shape (n,)
            Target.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows; only their ratios matter, and a row of weight 0 is left out.
        X_unlabeled : array-like of shape (n_x, p), optional
            More x, of the same distribution, whose y is not known.
        y_marginal : array-like of shape (n_y,), optional
            More y, of the same distribution, whose x is not known.
        groups : array-like of shape (n,), optional
            Rows with the same value have the same x, and their y are several draws given that x.
            See `mcdensity.stack_targets`.

        Returns
        -------
        self
        """
        return self._fit_checked(
            X, y, sample_weight, X_unlabeled=X_unlabeled, y_marginal=y_marginal, groups=groups
        )

    def _fit(
        self,
        X: Array,
        y: Array,
        sample_weight: Array | None,
        *,
        X_unlabeled: Array | None = None,
        y_marginal: Array | None = None,
        groups: NDArray[Any] | None = None,
        **extra: Any,
    ) -> None:
        rng = as_generator(self.random_state)
        if hasattr(self, "ratio_scores_"):
            del self.ratio_scores_
        ratio = self.ratio
        if isinstance(ratio, str):
            ratio = self._choose_ratio(
                X, y, sample_weight, groups, rng, X_unlabeled=X_unlabeled, y_marginal=y_marginal
            )
        self._target_map = _TargetMap(y, sample_weight)
        contrast = build_contrast(
            X,
            self._target_map(y),
            construction=self.construction,
            ratio=ratio,
            X_unlabeled=X_unlabeled,
            y_marginal=None if y_marginal is None else self._target_map(y_marginal),
            groups=groups,
            sample_weight=sample_weight,
            random_state=rng,
        )
        targets, weights = y, sample_weight
        if y_marginal is not None:
            targets = np.concatenate([y, y_marginal])
            weights = (
                None if weights is None else np.concatenate([weights, np.ones(len(y_marginal))])
            )
        self.marginal_ = get_marginal(self.marginal).fit(targets, sample_weight=weights)
        self.discriminator_ = make_discriminator(self.discriminator, self.discriminator_params)
        if self.verbose and hasattr(self.discriminator_, "verbose"):
            self.discriminator_.verbose = True
        optimism: Array | float = 0.0
        if self.discriminator_.extrapolates:
            optimism = self._optimism(targets, weights, len(y), rng)
        self.discriminator_.use_marginal(self._target_map.marginal(self.marginal_, optimism))
        self.discriminator_.fit(contrast, rng)
        # A number for every target, which a fitted model has no use for.
        self.marginal_.__dict__.pop("held_out_", None)
        if hasattr(self.discriminator_, "weights_"):
            self.weights_ = dict(self.discriminator_.weights_)
        self.ratio_ = contrast.ratio
        self.contrast_size_ = len(contrast)
        self.construction_ = contrast.construction

    def _optimism(
        self, targets: Array, weights: Array | None, n: int, rng: np.random.Generator
    ) -> Array | float:
        """By how much the marginal is too sure of the labelled targets, for it has seen them."""
        if not _LEAST_HELD_OUT <= len(targets) < _MOST_HELD_OUT:
            return 0.0
        part = rng.permutation(len(targets)) % _PARTS
        known, out = self.marginal_.logpdf(targets), np.zeros(len(targets))
        if isinstance(self.marginal_, AdaptiveDensity):
            return np.nan_to_num(known - self.marginal_.held_out_)[:n]
        for k in range(_PARTS):
            seen = part != k
            if np.ptp(targets[seen]) > 0:
                share = None if weights is None else weights[seen]
                other = get_marginal(self.marginal).fit(targets[seen], sample_weight=share)
                out[~seen] = known[~seen] - other.logpdf(targets[~seen])
        return out[:n]

    def _choose_ratio(
        self,
        X: Array,
        y: Array,
        sample_weight: Array | None,
        groups: NDArray[Any] | None,
        rng: np.random.Generator,
        **extra: Array | None,
    ) -> float:
        """Choose the ratio by cross-validated log-likelihood; a group stays on one side."""
        units = len(y) if groups is None else len(np.unique(groups))
        seed = int(rng.integers(2**31 - 1))
        splitter = (KFold if groups is None else GroupKFold)(
            _FOLDS, shuffle=True, random_state=seed
        )
        self.ratio_scores_: dict[float, float] = {}
        folds = list(splitter.split(X, y, groups)) if units >= 3 * _FOLDS else []
        if not folds or any(np.ptp(y[train]) == 0 for train, _ in folds):
            return 0.05  # too little to choose by
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        for ratio in _RATIOS:
            if ratio <= _FOLDS / ((_FOLDS - 1) * units):
                continue  # fewer broken pairs than that ratio asks for
            model = clone(self).set_params(ratio=ratio, normalize=True, random_state=seed)
            total = 0.0
            for train, test in folds:
                part = None if groups is None else groups[train]
                model.fit(X[train], y[train], weight[train], groups=part, **extra)
                total += float(model.logpdf(X[test], y[test]) @ weight[test])
            self.ratio_scores_[ratio] = total / weight.sum()
        return max(self.ratio_scores_, key=self.ratio_scores_.__getitem__)

    def _log_ratio(self, logits: Array) -> Array:
        """Turn logit q into log f(y|x) / f_Y(y), with q below 1 - epsilon."""
        upper = np.log1p(-self.epsilon) - np.log(self.epsilon)
        return np.minimum(logits, upper) - logit(self.discriminator_.ratio_)

    def _log_ratio_grid(self, X: Array, grid: Array) -> Array:
        return self._log_ratio(self.discriminator_.logit_grid(X, self._mapped(grid)))

    def _log_ratio_rows(self, X: Array, Y: Array) -> Array:
        return self._log_ratio(self.discriminator_.logit_rows(X, self._mapped(Y)))

    def _mapped(self, y: Array) -> Array:
        return self._target_map(y, self.discriminator_.extrapolates)

    # The formula as it stands, for `normalize=False`.

    def _log_density_grid(self, X: Array, grid: Array) -> Array:
        ratio = np.maximum(self._log_ratio_grid(X, grid), np.log(self.epsilon))
        return ratio + self.marginal_.logpdf(grid)

    def _log_density_rows(self, X: Array, Y: Array) -> Array:
        ratio = np.maximum(self._log_ratio_rows(X, Y), np.log(self.epsilon))
        return ratio + self.marginal_.logpdf(Y)

    def _distribution(self, X: Array) -> ConditionalDistribution:
        return GridDistribution.from_log_density(
            lambda rows, y: self._log_ratio_rows(X[rows], y) + self.marginal_.logpdf(y),
            self._knots,
            shared=lambda y: self._log_ratio_grid(X, y) + self.marginal_.logpdf(y),
            reference=self.marginal_,
            # A row far from all that was seen may have a small ratio everywhere: only what is
            # small beside the largest of the row says that a target is impossible.
            floor=np.log(self.epsilon),
        )

    def _reference(self) -> Reference:
        return self.marginal_

    @property
    def _normalized(self) -> bool:
        return self.normalize

    def _allows_nan(self) -> bool:
        try:
            return make_discriminator(self.discriminator, self.discriminator_params).allows_nan()
        except (ImportError, TypeError, ValueError):
            return False  # fit says what is wrong with it

    def _describe(self) -> str:
        discriminator = make_discriminator(self.discriminator, self.discriminator_params)
        return f"the discriminator {discriminator.describe()}"
