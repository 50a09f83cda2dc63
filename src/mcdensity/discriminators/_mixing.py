"""Weights of a mixture that serve held-out rows best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["mixture_weights"]

Array = NDArray[np.float64]

_ROUNDS = 2000


def mixture_weights(gains: Array, row_weight: Array, least: float = 0.0) -> Array:
    """Maximise the mean of log(w_0 + sum_j w_j exp(gain_j)) over weights that sum to one.

    The problem is concave; expectation and maximisation never lowers the likelihood. A prior worth
    one row, spread evenly, keeps anything from being ruled out by few rows.

    Parameters
    ----------
    gains : ndarray of shape (n, J)
        Log-likelihoods of held-out rows above that of the marginal.
    row_weight : ndarray of shape (n,)
    least : float, default 0
        Smaller weights are dropped, but for that of the marginal.

    Returns
    -------
    ndarray of shape (J + 1,)
        The last is the marginal's.
    """
    value = np.column_stack([gains, np.zeros(len(gains))])
    likelihood = np.exp(value - value.max(axis=1, keepdims=True))
    share = row_weight / row_weight.sum()
    n, count = len(share), value.shape[1]
    w = np.full(count, 1 / count)
    for _ in range(_ROUNDS):
        posterior = likelihood * w
        posterior /= posterior.sum(axis=1, keepdims=True)
        new = (1 / count + n * (share @ posterior)) / (n + 1)
        done = np.abs(new - w).max() < 1e-7
        w = new
        if done:
            break
    w[:-1][w[:-1] < least] = 0
    return w / w.sum()
