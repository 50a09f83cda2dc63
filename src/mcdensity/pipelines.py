"""All methods of an estimator, behind scikit-learn's pipelines and searches.

scikit-learn's `Pipeline`, `GridSearchCV` and `TransformedTargetRegressor` pass on `predict` and
`score`, and nothing else. `as_estimator` gives the other methods back.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils.validation import check_is_fitted

from mcdensity._delegate import DelegatingEstimator
from mcdensity._inputs import all_or_nothing
from mcdensity._validation import as_numbers
from mcdensity.chain import number_of_targets
from mcdensity.estimator import ConditionalEstimator

__all__ = ["PreparedEstimator", "as_estimator"]

Array = NDArray[np.float64]

_ONE_TARGET = (
    "A transformer of y is for one target, and y has several columns. Leave it out: estimators of "
    "mcdensity standardise y themselves and answer in its own units."
)


def as_estimator(fitted: Any) -> ConditionalEstimator:
    """Return an estimator with all methods, for a fitted pipeline, search or scaled target.

    Parameters
    ----------
    fitted : Pipeline, search, TransformedTargetRegressor or ConditionalEstimator
        Fitted. A pipeline must end in an estimator of this package; a search, such as
        `GridSearchCV`, must have a `best_estimator_`; the transformer of a
        `TransformedTargetRegressor` must be a shift and a scale, such as `StandardScaler`. They
        may be nested.

    Returns
    -------
    ConditionalEstimator
        Takes the same X as `fitted`, and gives distributions of y in the units of the caller. It
        shares its fitted parts with `fitted`; nothing is fitted again.

    See Also
    --------
    TableEstimator : Text, categories and missing values without a pipeline.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.decomposition import PCA
    >>> from sklearn.pipeline import make_pipeline
    >>> from mcdensity import MCD, as_estimator
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 4))
    >>> y = X[:, 0] + rng.normal(scale=0.5, size=300)
    >>> pipeline = make_pipeline(PCA(3), MCD("quadratic", random_state=0)).fit(X, y)
    >>> as_estimator(pipeline).predict_quantiles(X[:2]).shape
    (2, 3)
    """
    if isinstance(fitted, ConditionalEstimator):
        check_is_fitted(fitted)
        return fitted
    if isinstance(fitted, Pipeline):
        check_is_fitted(fitted)
        inner = as_estimator(fitted.steps[-1][1])
        return PreparedEstimator._of(inner, fitted[:-1] if len(fitted.steps) > 1 else None, None)
    if isinstance(fitted, TransformedTargetRegressor):
        check_is_fitted(fitted)
        return PreparedEstimator._of(as_estimator(fitted.regressor_), None, fitted.transformer_)
    if hasattr(fitted, "best_estimator_"):
        return as_estimator(fitted.best_estimator_)
    if hasattr(fitted, "refit") and hasattr(fitted, "cv"):
        raise ValueError(
            f"fitted must have a best_estimator_, and this {type(fitted).__name__} has none. Fit "
            "it, with refit=True."
        )
    raise TypeError(
        "fitted must be a fitted Pipeline, search or TransformedTargetRegressor with an estimator "
        f"of mcdensity at its end, got {type(fitted).__name__}."
    )


class PreparedEstimator(DelegatingEstimator):
    """An estimator behind transformers of X and a scaler of y; see `as_estimator`.

    Parameters
    ----------
    estimator : ConditionalEstimator
        What learns from the transformed rows.
    preparation : transformer, optional
        For X; a `Pipeline` of transformers will do.
    target_transformer : transformer, optional
        For y. It must be a shift and a scale: `StandardScaler`, `MinMaxScaler`, `MaxAbsScaler` or
        `RobustScaler`.

    Attributes
    ----------
    estimator_ : ConditionalEstimator
    preparation_ : transformer or None
    target_transformer_ : transformer or None
    n_features_in_ : int
    """

    def __init__(
        self,
        estimator: ConditionalEstimator,
        preparation: Any = None,
        target_transformer: Any = None,
    ) -> None:
        self.estimator = estimator
        self.preparation = preparation
        self.target_transformer = target_transformer

    @classmethod
    def _of(
        cls, estimator: ConditionalEstimator, preparation: Any, target_transformer: Any
    ) -> PreparedEstimator:
        """Put fitted parts together."""
        # The parameters are not fitted, so that a model file does not hold all parts twice.
        out = cls(
            clone(estimator),
            None if preparation is None else clone(preparation),
            None if target_transformer is None else clone(target_transformer),
        )
        return out._take(estimator, preparation, target_transformer)

    @all_or_nothing
    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, **extra: Any
    ) -> Self:
        """Learn the preparation, and the distribution of y given what it makes of X.

        Parameters
        ----------
        X : array-like of shape (n, p)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        **extra
            More for the estimator's `fit`; `X_unlabeled` and `y_marginal` are transformed too.

        Returns
        -------
        self
        """
        target = self.target_transformer
        if target is not None:
            target = clone(target).fit(_column("y", y))
            _affine(target)  # fail before anything is learned
            y = target.transform(_column("y", y))[:, 0]
            if extra.get("y_marginal") is not None:
                more = _column("y_marginal", extra["y_marginal"])
                extra["y_marginal"] = target.transform(more)[:, 0]
        preparation = self.preparation
        if preparation is not None:
            preparation = clone(preparation).fit(X, y)
            X = preparation.transform(X)
            if extra.get("X_unlabeled") is not None:
                extra["X_unlabeled"] = preparation.transform(extra["X_unlabeled"])
        estimator = clone(self.estimator).fit(X, y, sample_weight, **extra)
        return self._take(estimator, preparation, target)

    def _take(self, estimator: ConditionalEstimator, preparation: Any, target: Any) -> Self:
        if target is not None and hasattr(estimator, "links_"):
            raise ValueError(_ONE_TARGET)
        location, scale = (0.0, 1.0) if target is None else _affine(target)
        self._adopt(estimator, location, scale)
        self.preparation_, self.target_transformer_ = preparation, target
        outer = estimator if preparation is None else preparation
        self.n_features_in_ = getattr(outer, "n_features_in_", estimator.n_features_in_)
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(outer, "feature_names_in_"):
            self.feature_names_in_ = outer.feature_names_in_
        return self

    def _prepare(self, X: Any) -> Any:
        return X if self.preparation_ is None else self.preparation_.transform(X)


def _column(name: str, y: ArrayLike) -> Array:
    if number_of_targets(y) > 1:
        raise ValueError(_ONE_TARGET)
    return as_numbers(name, y).reshape(-1, 1)


def _affine(transformer: TransformerMixin) -> tuple[float, float]:
    """Return location and scale of y = location + scale * (transformed y)."""
    location, scale = 0.0, 1.0
    if isinstance(transformer, StandardScaler | RobustScaler):
        standard = isinstance(transformer, StandardScaler)
        centered = transformer.with_mean if standard else transformer.with_centering
        scaled = transformer.with_std if standard else transformer.with_scaling
        center = transformer.mean_ if standard else transformer.center_
        location = float(center[0]) if centered else 0.0
        scale = float(transformer.scale_[0]) if scaled else 1.0
    elif isinstance(transformer, MinMaxScaler):
        scale = 1 / float(transformer.scale_[0])
        location = -float(transformer.min_[0]) * scale
    elif isinstance(transformer, MaxAbsScaler):
        scale = float(transformer.scale_[0])
    elif not (
        isinstance(transformer, FunctionTransformer)
        and transformer.func is None
        and transformer.inverse_func is None
    ):
        raise TypeError(
            f"The transformer of y is a {type(transformer).__name__}, and only a shift and a scale "
            "can be undone: StandardScaler, MinMaxScaler, MaxAbsScaler or RobustScaler. Leave it "
            "out: estimators of mcdensity standardise y themselves and answer in its own units."
        )
    return location, scale
