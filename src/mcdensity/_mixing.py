"""Pooling of densities by held-out likelihood: linearly, and log-linearly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp

__all__ = [
    "best_weights",
    "is_level",
    "mixture_weights",
    "pool_gains",
    "pool_levels",
    "pool_normalizer",
    "pooling_exponents",
    "survivor_exponent",
]

Array = NDArray[np.float64]

# More than any problem of the tests needs to reach 1e-7.
_ROUNDS = 2000
# Strength, in rows, of the prior at the start: 20 keeps a few hundred rows from moving the
# exponents far. With 5, 20 and 60 the mean log-likelihoods of 21 real and simulated tables of 100
# and 300 rows were -0.2722, -0.2716 and -0.2724.
_RIDGE = 20.0
# Strata that the mass of a row must be spread over for its level to be known.
_LEAST_STRATA = 6.0


def best_weights(log_density: Array, row_weight: Array, prior: Array) -> Array:
    """Maximise the mean of log(sum_j w_j f_j) over weights that sum to one.

    The problem is concave; expectation-maximisation never lowers the likelihood.

    Parameters
    ----------
    log_density : ndarray of shape (n, J)
        Of rows that the densities have not seen; a constant per row does not matter.
    row_weight : ndarray of shape (n,)
    prior : ndarray of shape (J,)
        Prior count, in rows, of each density, so that few rows rule nothing out.
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
    """Return the best weights of several densities and of the marginal, whose gain is 0.

    Parameters
    ----------
    gains : ndarray of shape (n, J)
        Log-likelihoods of held-out rows above that of the marginal.
    row_weight : ndarray of shape (n,)
    least : float, default 0
        Smaller weights are dropped, except that of the marginal.

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


def pool_gains(own: Array, grid: Array, exponents: Array) -> Array:
    r"""Log-likelihoods, above that of the marginal, of a log-linear pool.

    .. math:: \log \frac{p(y_i)}{f_Y(y_i)} = \sum_j e_j T_j(y_i) - \log \int \exp \Bigl( \sum_j
        e_j T_j(y) \Bigr) dF_Y(y)

    Parameters
    ----------
    own : ndarray of shape (n, J)
        Log-ratios :math:`T_j` at the rows' own targets.
    grid : ndarray of shape (n, J, G)
        At G quantiles of the marginal.
    exponents : ndarray of shape (J,)
    """
    value = own @ exponents
    return value - pool_normalizer(value, np.einsum("j,njg->ng", exponents, grid))


def pool_normalizer(own: Array, grid: Array) -> Array:
    """Log of the mean of exp T over quantiles of the marginal, for rows of T of shape (n, G).

    A peak that falls between two quantiles is missed by the mean, but if the row's own target is in
    it, that target alone has the mass of a quantile: the normaliser is at least that.
    """
    count = grid.shape[1]
    return np.maximum(logsumexp(grid, axis=1), own) - np.log(count)


def pool_levels(
    low: Array,
    high: Array,
    fold: NDArray[np.intp],
    row_weight: Array,
    grid: Array,
    exponents: Array,
    rest: float,
) -> tuple[Array, Array, NDArray[np.intp], Array] | None:
    """Levels of held-out rows under a log-linear pool with a little of the marginal.

    Parameters
    ----------
    low, high : ndarray of shape (n,)
        P(Y < y) and P(Y <= y) under the marginal.
    fold : ndarray of int, shape (n,)
        The fold that a row was held out with.
    row_weight : ndarray of shape (n,)
    grid : ndarray of shape (n, J, G)
        Log-ratios at the middle of G strata of the marginal.
    exponents : ndarray of shape (J,)
    rest : float
        Weight of the marginal.

    Returns
    -------
    low, high, fold, row_weight : ndarray
        Of the rows whose laws the strata resolve; None where these are fewer than half of them.
    """
    value = np.einsum("j,njg->ng", exponents, grid)
    mass = np.exp(value - value.max(axis=1, keepdims=True))
    mass /= mass.sum(axis=1, keepdims=True)
    resolved = 1 / (mass**2).sum(axis=1) > _LEAST_STRATA
    if resolved.mean() < 0.5:
        return None
    mass, low, high = mass[resolved], low[resolved], high[resolved]
    below = np.pad(np.cumsum(mass, axis=1), ((0, 0), (1, 0)))
    edges = np.linspace(0, 1, below.shape[1])
    levels = [
        rest * at + (1 - rest) * np.array(
            [np.interp(u, edges, row) for u, row in zip(at, below, strict=True)]
        )
        for at in (low, high)
    ]  # fmt: skip
    return levels[0], levels[1], fold[resolved], row_weight[resolved]


def pooling_exponents(own: Array, grid: Array, row_weight: Array, start: Array) -> Array:
    r"""Choose the exponents of a log-linear pool by the likelihood of held-out rows.

    A mixture of densities that are each about right is too wide; so is their geometric mean, but
    less, and with exponents whose sum is free the pool is as sharp as the held-out rows allow. The
    problem is concave; a ridge holds the exponents near `start`.

    Parameters
    ----------
    own, grid : ndarray
        See `pool_gains`.
    row_weight : ndarray of shape (n,)
    start : ndarray of shape (J,)

    Returns
    -------
    ndarray of shape (J,)
        Not negative.
    """
    share = row_weight / row_weight.mean()

    def loss(e: Array) -> tuple[float, Array]:
        value, points = own @ e, np.einsum("j,njg->ng", e, grid)
        top = points.max(axis=1, keepdims=True)
        density = np.exp(points - top)
        total = density.sum(axis=1, keepdims=True)
        log_total = top[:, 0] + np.log(total[:, 0])
        # See `pool_normalizer`: such a row has no influence.
        seen = value < log_total
        gain = value - np.maximum(log_total, value)
        expected = np.einsum("ng,njg->nj", density / total, grid)
        slope = (share * seen) @ (own - expected)
        return (
            -float(share @ gain) + _RIDGE * float(((e - start) ** 2).sum()),
            -slope + 2 * _RIDGE * (e - start),
        )

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(start))
    return np.asarray(found.x)


def survivor_exponent(
    own: Array, grid: Array, row_weight: Array, level: Array, censored: NDArray[np.bool_]
) -> Array:
    """Choose the exponent of one density, where some targets are lower bounds.

    The survivor of a power of a density is no power of the survivor: that of a censored row is the
    share of the mass at the quantiles above its target.

    Parameters
    ----------
    own : ndarray of shape (n,)
    grid : ndarray of shape (n, G)
        See `pool_gains`.
    row_weight : ndarray of shape (n,)
    level : ndarray of shape (n,)
        The marginal's distribution function at the targets.
    censored : ndarray of bool, shape (n,)

    Returns
    -------
    ndarray of shape (1,)
    """
    share = row_weight / row_weight.mean()
    count = grid.shape[1]
    above = (np.arange(count) + 0.5) / count > level[:, None]
    above[:, -1] = True

    def loss(e: float) -> float:
        total = logsumexp(e * grid, axis=1)
        tail = logsumexp(np.where(above, e * grid, -np.inf), axis=1)
        seen = e * own - np.maximum(total, e * own) + np.log(count)
        gain = np.where(censored, tail - total, seen)
        return -float(share @ gain) + _RIDGE * (e - 1) ** 2

    return np.array([minimize_scalar(loss, bounds=(0, 3), method="bounded").x])


def is_level(gains: Array, best: Array) -> bool:
    """Whether gains of the same rows are behind by no more than a standard error."""
    behind = best - gains
    return bool(behind.mean() <= behind.std() / np.sqrt(len(behind)))
