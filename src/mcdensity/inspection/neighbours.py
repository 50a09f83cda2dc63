"""Rows that are most like a given one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mcdensity._scaling import location_and_scale
from mcdensity._validation import check_integer, require
from mcdensity.inspection._asking import Array, Rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["nearest_rows"]


def nearest_rows(
    estimator: Any,
    X: Any,
    known: Any,
    y: ArrayLike | None = None,
    *,
    n_neighbors: int = 5,
) -> pd.DataFrame:
    """Find the rows, such as those of training, that are most like each given row.

    Distances are Euclidean, between rows as the model sees them: numbers in units of their standard
    deviation in training, texts as one column for each value. A column that the model does not use
    does not count.

    Parameters
    ----------
    estimator : ConditionalEstimator
        Fitted.
    X : DataFrame or array of shape (n, p)
        The rows in question.
    known : DataFrame or array of shape (m, p)
        Where to look. Models do not keep their training rows, so give them here.
    y : array-like of shape (m,), optional
        Outcomes of the known rows, to show beside them.
    n_neighbors : int, default 5

    Returns
    -------
    DataFrame
        With the columns row (number in X), rank (1 is the nearest), neighbor (number in `known`),
        distance, y where it was given, and the features of the known row.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity import MCD
    >>> from mcdensity.inspection import nearest_rows
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> model = MCD("quadratic", random_state=0).fit(X, X[:, 0] + rng.normal(size=200))
    >>> nearest_rows(model, X[7:8], X, n_neighbors=1)["neighbor"].tolist()
    [7]
    """
    from sklearn.neighbors import NearestNeighbors

    given, pool = Rows(X), Rows(known, "known")
    n_neighbors = check_integer("n_neighbors", n_neighbors, 1, len(pool))
    outcomes = None if y is None else np.asarray(y)
    if outcomes is not None and len(outcomes) != len(pool):
        raise ValueError(
            f"y must have one value per row of known ({len(pool)}), not {len(outcomes)}."
        )
    inside = _as_the_model_sees(estimator, pool.X)
    index = NearestNeighbors(n_neighbors=n_neighbors).fit(inside)
    distance, neighbor = index.kneighbors(_as_the_model_sees(estimator, given.X, pool.X))
    n, flat = len(given), neighbor.ravel()
    pandas = require("pandas", "cli")
    out: dict[str, Any] = {
        "row": np.repeat(np.arange(n), n_neighbors),
        "rank": np.tile(np.arange(1, n_neighbors + 1), n),
        "neighbor": flat,
        "distance": distance.ravel(),
    }
    if outcomes is not None:
        several = outcomes.reshape(len(pool), -1)
        names = ["y"] if several.shape[1] == 1 else [f"y{k}" for k in range(several.shape[1])]
        out |= {name: several[flat, k] for k, name in enumerate(names)}
    left = pandas.DataFrame(out)
    features = pool.X.iloc[flat] if pool.is_table else pandas.DataFrame(pool.X[flat])
    features = features.reset_index(drop=True)
    features.columns = [
        f"{name} (feature)" if name in left.columns else name for name in features.columns
    ]
    return pandas.concat([left, features], axis=1)


def _as_the_model_sees(estimator: Any, X: Any, scale_of: Any = None) -> Array:
    """Return rows in the standardised space of the model, numbers only."""
    if hasattr(estimator, "links_"):  # several targets: each link standardises by itself
        raw = estimator._joint_inputs(X)
        pool = raw if scale_of is None else estimator._joint_inputs(scale_of)
        center, scale = location_and_scale(pool, None)
        inside = (raw - center) / scale
    elif hasattr(estimator, "_check_predict"):
        inside = estimator._check_predict(X)
    else:
        raise TypeError(
            f"estimator must be a fitted estimator of mcdensity, got {type(estimator).__name__}."
        )
    return np.nan_to_num(np.asarray(inside, dtype=np.float64), nan=0.0)
