"""How good laws of durations are, where some outcomes are lower bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity._validation import as_numbers, refuse_masked
from mcdensity.metrics._inputs import Array, Density, prepare

__all__ = ["brier_score", "concordance"]

# Pairs of rows that are compared at once.
_BLOCK = 1 << 22


def brier_score(
    distribution: Density,
    y: ArrayLike,
    times: ArrayLike,
    censored: ArrayLike | None = None,
    *,
    grid: ArrayLike | None = None,
) -> Any:
    r"""Brier score of the survival function at some times. Lower is better.

    .. math:: \frac1n \sum_i w_i(t) \, (1\{y_i > t\} - S(t \mid x_i))^2

    Rows that were censored before t have the weight 0, and the others the inverse of the
    probability not to be censored before min(y, t), by the estimate of Kaplan and Meier from these
    rows: this must not depend on x.

    Parameters
    ----------
    distribution : ConditionalDistribution, or densities of shape (n, G) with `grid`
    y : array-like of shape (n,)
    times : float or array-like of shape (m,)
    censored : array-like of bool, shape (n,), optional
        Where y is a lower bound.
    grid : array-like of shape (G,), optional

    Returns
    -------
    float, or ndarray of shape (m,)

    References
    ----------
    Graf, Schmoor, Sauerbrei, Schumacher: Assessment and comparison of prognostic classification
    schemes for survival data, 1999.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from mcdensity.distribution import ScipyDistribution
    >>> from mcdensity.metrics import brier_score
    >>> law = ScipyDistribution(stats.expon, loc=np.zeros((2, 1)), scale=np.ones((2, 1)))
    >>> round(brier_score(law, [0.5, 2.0], times=np.log(2)), 3)
    0.25
    """
    d, y = prepare(distribution, y, grid)
    flags = _flags(censored, len(y))
    at = np.atleast_1d(as_numbers("times", times))
    if at.ndim != 1 or not np.isfinite(at).all():
        raise ValueError(f"times must hold finite numbers, shape (m,), got shape {at.shape}.")
    survival = 1 - d.cdf_grid(at)
    if not flags.any():
        found = np.mean((survival - (y[:, None] > at)) ** 2, axis=0)
    else:
        time, left = _kaplan_meier(y, flags)
        # Just before an outcome that was seen; at t itself for those that go on.
        ended = (y[:, None] <= at) & ~flags[:, None]
        before = left[np.searchsorted(time, y, side="left")]
        later = left[np.searchsorted(time, at, side="right")]
        if (later <= 0).any():
            raise ValueError(
                f"times has {at[later <= 0][0]:g}, by when all rows are censored or have ended; "
                "give earlier ones."
            )
        weight = np.where(ended, 1 / np.maximum(before, 1e-12)[:, None], 0.0)
        weight += np.where(y[:, None] > at, 1 / later, 0.0)
        found = np.mean(weight * (survival - (y[:, None] > at)) ** 2, axis=0)
    return float(found[0]) if np.ndim(times) == 0 else found


def concordance(
    distribution: Density,
    y: ArrayLike,
    censored: ArrayLike | None = None,
    *,
    grid: ArrayLike | None = None,
) -> float:
    """Share of pairs of rows whose medians are in the order of their outcomes. Higher is better.

    Harrell's C: pairs count if the smaller outcome was seen; equal medians count half. 0.5 is
    chance, 1 is perfect.

    Parameters
    ----------
    distribution : ConditionalDistribution, or densities of shape (n, G) with `grid`
    y : array-like of shape (n,)
    censored : array-like of bool, shape (n,), optional
        Where y is a lower bound.
    grid : array-like of shape (G,), optional
    """
    d, y = prepare(distribution, y, grid)
    flags = _flags(censored, len(y))
    middle = d.median()
    pairs = right = 0.0
    step = max(1, _BLOCK // max(1, len(y)))
    seen = np.flatnonzero(~flags)
    for start in range(0, len(seen), step):
        i = seen[start : start + step, None]
        # A row that was censored at the time of an outcome went on beyond it.
        later = (y > y[i]) | ((y == y[i]) & flags)
        pairs += later.sum()
        right += (later & (middle > middle[i])).sum() + (later & (middle == middle[i])).sum() / 2
    if pairs == 0:
        raise ValueError("No two rows can be compared: no outcome that was seen is before another.")
    return float(right / pairs)


def _flags(censored: ArrayLike | None, n: int) -> NDArray[np.bool_]:
    if censored is None:
        return np.zeros(n, dtype=bool)
    refuse_masked("censored", censored)
    flags = np.asarray(censored)
    if flags.shape != (n,) or not np.isin(flags, (0, 1)).all():
        raise ValueError(
            f"censored must hold True or False for each row, shape ({n},), got shape {flags.shape}."
        )
    return flags.astype(bool)


def _kaplan_meier(y: Array, flags: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Times at which rows were censored, and the probability of going on before and after each."""
    time = np.unique(y[flags])
    # At equal times outcomes come first: a row that ended then was not at risk to be censored.
    at_risk = ((y > time[:, None]) | ((y == time[:, None]) & flags)).sum(axis=1)
    lost = (flags & (y == time[:, None])).sum(axis=1)
    return time, np.concatenate([[1.0], np.cumprod(1 - lost / at_risk)])
