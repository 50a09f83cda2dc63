"""Weights of a mixture that serve held-out rows best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["best_weights", "mixture_weights"]

Array = NDArray[np.float64]

_ROUNDS = 2000


def best_weights(log_density: Array, row_weight: Array, prior: Array) -> Array:
    """Maximise the mean of log(sum_j w_j f_j) over weights that sum to one.

    The problem is concave; expectation and maximisation never lowers the likelihood.

    Parameters
    ----------
    log_density : ndarray of shape (n, J)
        Of rows that the densities have not seen; a constant per row does not matter.
    row_weight : ndarray of shape (n,)
    prior : ndarray of shape (J,)
        Rows that each density is given to begin with, so that few rows rule nothing out.
    """
    likelihood = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    share = row_weight / row_weight.sum()
    n = len(share)
    w = prior / prior.sum()
    for _ in range(_ROUNDS):
        posterior = likelihood * w
        posterior /= posterior.sum(axis=1, keepdims=True)
        new = (prior + n * (share @ posterior)) / (n + prior.sum())
        done = np.abs(new - w).max() < 1e-7
        w = new
        if done:
            break
    return w


def mixture_weights(gains: Array, row_weight: Array, least: float = 0.0) -> Array:
    """Return the best weights of several densities and of the marginal, which has no gain.

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
    count = value.shape[1]
    w = best_weights(value, row_weight, np.full(count, 1 / count))
    w[:-1][w[:-1] < least] = 0
    return w / w.sum()
