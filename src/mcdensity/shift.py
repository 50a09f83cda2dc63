r"""Covariate shift: new rows whose x are distributed otherwise than those of the training rows.

As long as y given x is the same, training rows speak for the new ones when they are weighted by
:math:`w(x) = p_{new}(x) / p_{train}(x)`. This ratio is the odds of a classifier of new rows against
training rows.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils import check_array

from mcdensity._conformal import FEW, effective_size

__all__ = ["effective_size", "weights"]

Array = NDArray[np.float64]

_FOLDS = 5
# No row counts more than this many times as much as without a shift, or less than its inverse.
_MOST = 100.0
# Beyond so many columns there are no products of them among the features.
_MOST_COLUMNS = 20


def weights(X_train: Any, X_new: Any, *, return_new: bool = False, random_state: Any = 0) -> Any:
    r"""Weights with which training rows, or held-out ones, stand for the new rows.

    .. math:: w(x) = \frac{P(new \mid x)}{P(train \mid x)} \cdot \frac{n_{train}}{n_{new}}

    A logistic regression, with squares and products of the columns, and gradient boosted trees tell
    new rows from the others, each row by a model that has not seen it. The better one, by the
    likelihood of the labels, is used, after a correction of its odds; if neither tells anything all
    weights are 1. They are kept between 1/100 and 100.

    Parameters
    ----------
    X_train, X_new : array-like or DataFrame of shape (n, p) and (m, p)
        Missing values are allowed; text is, in a DataFrame.
    return_new : bool, default False
        Whether to return weights of the new rows, too.
    random_state : int, RandomState or None, default 0
        Seed of the division into folds and of the trees.

    Returns
    -------
    ndarray of shape (n,)
        Of mean 1. A warning says where few rows count, see `effective_size`.
    ndarray of shape (m,)
        With `return_new`: those of the new rows, in the same units.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity import shift
    >>> rng = np.random.default_rng(0)
    >>> w = shift.weights(rng.normal(size=(500, 1)), rng.normal(1.0, size=(500, 1)))
    >>> w.shape, 100 < shift.effective_size(w) < 400
    ((500,), True)
    """
    old, new = _as_numbers(X_train, X_new)
    X = np.concatenate([old, new])
    label = np.repeat([0, 1], [len(old), len(new)])
    parts = StratifiedKFold(_FOLDS, shuffle=True, random_state=random_state)
    base = np.full(len(X), logit(label.mean()))
    best, odds = log_loss(label, 1 / (1 + np.exp(-base))), base
    for learner in _learners(X.shape[1], random_state):
        share = cross_val_predict(learner, X, label, cv=parts, method="predict_proba")[:, 1]
        raw = logit(np.clip(share, 1e-6, 1 - 1e-6))[:, None]
        # Trees are too sure of themselves: two numbers put the odds right.
        probability = cross_val_predict(
            LogisticRegression(), raw, label, cv=parts, method="predict_proba"
        )[:, 1]
        loss = log_loss(label, probability)
        if loss < best:
            best, odds = loss, logit(np.clip(probability, 1e-9, 1 - 1e-9))
    limit = np.log(_MOST)
    found = np.exp(np.clip(odds - logit(label.mean()), -limit, limit))
    found /= found[: len(old)].mean()
    size = effective_size(found[: len(old)])
    if size < FEW:
        warnings.warn(
            f"Of {len(old)} rows of X_train about {size:.0f} count: the rows of X_new lie where "
            "few of them do, and what is learned with these weights is uncertain. Give more rows "
            "that are like the new ones.",
            UserWarning,
            stacklevel=2,
        )
    return (found[: len(old)], found[len(old) :]) if return_new else found[: len(old)]


def _learners(columns: int, random_state: Any) -> list[Any]:
    degree = 2 if columns <= _MOST_COLUMNS else 1
    return [
        make_pipeline(
            SimpleImputer(strategy="median"),
            StandardScaler(),
            PolynomialFeatures(degree, include_bias=False),
            StandardScaler(),
            LogisticRegression(max_iter=1000),
        ),
        HistGradientBoostingClassifier(
            max_iter=100, learning_rate=0.05, max_leaf_nodes=8, random_state=random_state
        ),
    ]


def _as_numbers(X_train: Any, X_new: Any) -> tuple[Array, Array]:
    """Return both tables as numbers, with the same columns."""
    if hasattr(X_train, "columns") and hasattr(X_new, "columns"):
        from mcdensity.tables import TablePreparation

        preparation = TablePreparation().fit(X_train)
        X_train, X_new = (preparation.transform(X) for X in (X_train, X_new))
    old, new = (_checked(name, X) for name, X in (("X_train", X_train), ("X_new", X_new)))
    if old.shape[1] != new.shape[1]:
        raise ValueError(
            f"X_new has {new.shape[1]} columns and X_train has {old.shape[1]}; they must have the "
            "same features."
        )
    return old, new


def _checked(name: str, X: ArrayLike) -> Array:
    array: Array = check_array(X, dtype=np.float64, ensure_all_finite="allow-nan", input_name=name)
    if len(array) < 2 * _FOLDS:
        raise ValueError(
            f"{name} has {len(array)} rows; weights need at least {2 * _FOLDS} to be learned."
        )
    return array
