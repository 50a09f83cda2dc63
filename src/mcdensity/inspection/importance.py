"""How much each feature matters: what is lost when it is shuffled among the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from mcdensity._validation import as_generator, as_numbers, check_integer, require
from mcdensity.distribution.joint import refuse_joint
from mcdensity.inspection._asking import Array, Rows, answers, as_functionals, ask, choose
from mcdensity.metrics.outcomes import crps_by_row

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["permutation_importance"]

_SCORES = ("log_likelihood", "crps", "width")


def permutation_importance(
    estimator: Any,
    X: Any,
    y: Any = None,
    features: Sequence[Any] | None = None,
    *,
    score: str = "log_likelihood",
    n_repeats: int = 5,
    n_rows: int | None = 500,
    random_state: Any = None,
) -> pd.DataFrame:
    """Measure how much worse predictions become when a feature is shuffled among the rows.

    A feature that another one can replace matters little by this measure.

    Parameters
    ----------
    estimator : ConditionalEstimator
        Fitted to other rows than these.
    X : DataFrame or array of shape (n, p)
    y : array-like of shape (n,) or (n, k)
        Outcomes; not needed for ``score="width"``.
    features : list of str or int, optional
        Names or numbers of columns; by default all that the estimator uses.
    score : {"log_likelihood", "crps", "width"}, default "log_likelihood"
        What is compared: the log-likelihood that is lost, in nats per row; the CRPS that is added,
        in units of y; or the mean absolute change of the width of the 90 % interval, which says
        what the uncertainty depends on, not how good it is.
    n_repeats : int, default 5
        Shufflings of each feature; at least 2, for the standard errors.
    n_rows : int or None, default 500
        At most so many rows are used, drawn at random; None for all.
    random_state : int, Generator, RandomState or None
        For shuffling and drawing.

    Returns
    -------
    DataFrame
        With the columns feature, importance and std_error (over the shufflings), the most
        important feature first.

    References
    ----------
    Breiman: Random forests, Machine Learning, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity import MCD
    >>> from mcdensity.inspection import permutation_importance
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 3))
    >>> y = 2 * X[:, 1] + rng.normal(size=400)
    >>> model = MCD("quadratic", random_state=0).fit(X[:200], y[:200])
    >>> int(permutation_importance(model, X[200:], y[200:], random_state=0)["feature"][0])
    1
    """
    if score not in _SCORES:
        raise ValueError(f"score must be one of {', '.join(_SCORES)}, got {score!r}.")
    n_repeats = check_integer("n_repeats", n_repeats, 2)
    rng = as_generator(random_state)
    rows = Rows(X)
    columns = rows.used_by(estimator, features)
    chosen = choose(len(rows), n_rows, rng)
    if len(chosen) < 2:
        raise ValueError("X has 1 row; at least 2 are needed to shuffle a feature among them.")
    rows, function = rows.at(chosen), _scored(estimator, y, len(rows), chosen, score)
    shuffled = (
        rows.with_value(j, rng.permutation(len(rows))) for j in columns for _ in range(n_repeats)
    )
    found = ask(rows, chain([rows.as_they_are()], shuffled), function)
    before = next(found)
    after = np.array([_worse(score, before, value) for value in found])
    after = after.reshape(len(columns), n_repeats)
    table = require("pandas", "cli").DataFrame({
        "feature": [rows.names[j] for j in columns],
        "importance": after.mean(axis=1),
        "std_error": after.std(axis=1, ddof=1) / np.sqrt(n_repeats),
    })  # fmt: skip
    return table.sort_values("importance", ascending=False, kind="stable", ignore_index=True)


def _scored(estimator: Any, y: Any, n: int, chosen: Any, score: str) -> Callable[[Any], Array]:
    """Return a function of rows, blocks of the chosen ones: the score of each."""
    if score == "width":
        return answers(estimator, as_functionals("width"))
    if y is None:
        raise ValueError(f'y is missing; score="{score}" needs outcomes. Only "width" does not.')
    names = getattr(estimator, "target_names_", None)
    if hasattr(y, "columns") and names is not None:
        y = y[list(names)]
    outcomes = as_numbers("y", y)
    if outcomes.ndim == 2 and outcomes.shape[1] == 1:
        outcomes = outcomes[:, 0]
    if len(outcomes) != n:
        raise ValueError(f"X has {n} rows and y has {len(outcomes)}.")
    if not np.isfinite(outcomes).all():
        raise ValueError("y contains NaN or infinity; leave these rows out.")
    outcomes = outcomes[chosen]

    def function(mixed: Any) -> Array:
        own = np.concatenate([outcomes] * (len(mixed) // len(outcomes)))
        if score == "log_likelihood":
            return estimator.logpdf(mixed, own)
        law = estimator.predict_distribution(mixed)
        refuse_joint(law, 'score="crps"')
        return crps_by_row(law, own)

    return function


def _worse(score: str, before: Array, after: Array) -> float:
    if score == "log_likelihood":
        return float((before - after).mean())
    if score == "crps":
        return float((after - before).mean())
    return float(np.abs(after - before).mean())
