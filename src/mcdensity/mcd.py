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

from mcdensity._validation import as_generator
from mcdensity.contrast import build_contrast
from mcdensity.discriminators import make_discriminator
from mcdensity.distribution import Reference
from mcdensity.estimator import ConditionalEstimator
from mcdensity.marginals import get_marginal

__all__ = ["MCD"]

Array = NDArray[np.float64]

_RATIOS = (0.02, 0.05, 0.15, 0.5)
_FOLDS = 3


class MCD(ConditionalEstimator):
    r"""Conditional density from a marginal density and a classifier.

    .. math:: f(y \mid x) = f_Y(y) \, \frac{q(x, y)}{1 - q(x, y)} \, \frac{1 - r}{r}

    f_Y is the density of y alone; q is the probability, learned by a discriminator, that a pair
    (x, y) was observed together and not put together from two rows; r is the share of such joint
    pairs among those it learned from.

    Parameters
    ----------
    discriminator : str or object, default "mlp"
        A name from `mcdensity.discriminators.list_discriminators`; any object with `fit` and
        `predict_proba` (or `predict`, for a regressor of the label); or a torch module, its class
        or a function that makes one, from (batch, p + 1) to one logit. It is cloned, never changed.
    marginal : str or object, default "kde"
        A name from `mcdensity.marginals.list_marginals`, or an object with `fit`, `logpdf`, `cdf`,
        `ppf` and `sample`.
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
        q is kept below 1 - epsilon, and the ratio f(y|x) / f_Y(y) above epsilon.
    discriminator_params : dict, optional
        Parameters for a discriminator given by name, such as ``{"C": 0.1}`` for "quadratic".
    random_state : int, Generator, RandomState or None
        Seed; the same seed gives the same numbers.

    Attributes
    ----------
    marginal_ : Marginal
        The fitted marginal, of the *standardised* target ``(y - y_mean_) / y_scale_``.
    discriminator_ : Discriminator
        The fitted discriminator; for a scikit-learn learner see its `learner_`.
    ratio_ : float
        The share of joint pairs that was achieved.
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
    array([[0.2, 1.1, 1.9]])
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
    }

    def __init__(
        self,
        discriminator: Any = "mlp",
        marginal: Any = "kde",
        construction: str = "auto",
        ratio: float | str = 0.05,
        normalize: bool = True,
        epsilon: float = 1e-6,
        discriminator_params: dict[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.discriminator = discriminator
        self.marginal = marginal
        self.construction = construction
        self.ratio = ratio
        self.normalize = normalize
        self.epsilon = epsilon
        self.discriminator_params = discriminator_params
        self.random_state = random_state

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
        ratio = self.ratio
        if isinstance(ratio, str):
            ratio = self._choose_ratio(
                X, y, sample_weight, groups, rng, X_unlabeled=X_unlabeled, y_marginal=y_marginal
            )
        contrast = build_contrast(
            X,
            y,
            construction=self.construction,
            ratio=ratio,
            X_unlabeled=X_unlabeled,
            y_marginal=y_marginal,
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
        self.discriminator_.fit(contrast, rng)
        self.ratio_ = contrast.ratio
        self.contrast_size_ = len(contrast)
        self.construction_ = contrast.construction

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
        folds = min(_FOLDS, units // 2)
        if folds < 2:
            self.ratio_scores_: dict[float, float] = {}
            return 0.05
        splitter = (KFold if groups is None else GroupKFold)(folds, shuffle=True, random_state=seed)
        self.ratio_scores_ = {}
        for ratio in _RATIOS:
            if ratio <= folds / ((folds - 1) * units):
                continue  # fewer broken pairs than that ratio asks for
            model = clone(self).set_params(ratio=ratio, normalize=True, random_state=seed)
            total = 0.0
            for train, test in splitter.split(X, y, groups):
                weight = None if sample_weight is None else sample_weight[train]
                model.fit(
                    X[train],
                    y[train],
                    weight,
                    groups=None if groups is None else groups[train],
                    **extra,
                )
                held_out = model.logpdf(X[test], y[test])
                total += float(
                    held_out
                    @ (np.ones(len(test)) if sample_weight is None else sample_weight[test])
                )
            self.ratio_scores_[ratio] = total / len(y)
        return max(self.ratio_scores_, key=self.ratio_scores_.__getitem__, default=0.5)

    def _log_ratio(self, logits: Array) -> Array:
        """Turn logit q into log f(y|x) / f_Y(y), kept within its bounds."""
        upper = np.log1p(-self.epsilon) - np.log(self.epsilon)
        shift = logit(self.discriminator_.ratio_)
        return np.maximum(np.minimum(logits, upper) - shift, np.log(self.epsilon))

    def _log_density_grid(self, X: Array, grid: Array) -> Array:
        return self._log_ratio(self.discriminator_.logit_grid(X, grid)) + self.marginal_.logpdf(
            grid
        )

    def _log_density_rows(self, X: Array, Y: Array) -> Array:
        return self._log_ratio(self.discriminator_.logit_rows(X, Y)) + self.marginal_.logpdf(Y)

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
