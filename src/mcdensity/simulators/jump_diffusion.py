"""JumpDiffusion: a day of a stock index with stochastic volatility and jumps.

References
----------
Christoffersen, Jacobs, Ornthanalai: Dynamic jump intensities and risk premiums, 2012, and the 2016
option model whose parameters these are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import poisson

from mcdensity._validation import as_generator
from mcdensity.distribution import ConditionalDistribution, GridDistribution
from mcdensity.simulators.base import Simulator, check_size

__all__ = ["JumpDiffusion"]

Array = NDArray[np.float64]

_DT = 1 / 252
_KAPPA_V, _THETA_V, _XI_V = 3.011, 0.0365, 0.346
_KAPPA_L, _THETA_L, _XI_L = 2.353, 0.171, 0.158
_KAPPA_P, _THETA_P, _XI_P = 0.662, 0.101, 0.204
_RHO = -0.353
_THETA, _DELTA = -0.037, 0.031
_GAMMA, _GAMMA_V, _GAMMA_L = 0.4, 90.0, 25.0
_RISK = 1.554
_XI = np.exp(_THETA + _DELTA**2 / 2) - 1
_START = (0.0365, 0.171, 0.101)
# The variance has this floor; with a floor of 0 the return would have an atom.
_FLOOR = 1e-4
_NODES = 700


class JumpDiffusion(Simulator):
    r"""One-day log-return given the state (V, L, Psi); `sample` draws one path from the mean state.

    Given the two shocks that move the variance, and the number of jumps J, the return is normal:
    its density is a Poisson sum inside a two-dimensional Gaussian integral, done by quadrature.
    The integrand has a kink where the variance reaches its floor; the integral over the shock of
    the variance is split there.
    """

    n_features = 3

    def sample(self, n: int, random_state: Any = None) -> tuple[Array, Array]:
        """Draw a path of n days: X holds the state before each day, y the day's return."""
        X, y = self._paths(check_size(n), 1, as_generator(random_state))
        return X[0], y[0]

    def _sample_x(self, n: int, rng: np.random.Generator) -> Array:
        return self._paths(n, 1, rng)[0][0]

    def _marginal_draws(self, rng: np.random.Generator) -> Array:
        return self._paths(100, 1000, rng)[1].ravel()

    def _paths(self, n: int, paths: int, rng: np.random.Generator) -> tuple[Array, Array]:
        state = np.tile(_START, (paths, 1))
        X, y = np.empty((paths, n, 3)), np.empty((paths, n))
        for day in range(n):
            X[:, day] = state
            state, y[:, day] = self._step(state, rng)
        return X, y

    @staticmethod
    def _step(state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        v, low, psi = state.T
        e_p, e_l, e_v, e_y = rng.normal(size=(4, len(state)))
        next_psi = np.maximum(
            0, psi + _KAPPA_P * (_THETA_P - psi) * _DT + _XI_P * np.sqrt(psi * _DT) * e_p
        )
        next_low = _next_low(low, e_l)
        next_v = np.maximum(_FLOOR, _variance_drift(v, low, e_l) + _XI_V * np.sqrt(v * _DT) * e_v)
        intensity = psi + _GAMMA_V * v + _GAMMA_L * low
        jumps = rng.poisson(intensity * _DT)
        size = _THETA + _DELTA * rng.normal(size=len(state))
        diffusion = np.sqrt(next_v * _DT) * (np.sqrt(1 - _RHO**2) * e_y + _RHO * e_v)
        y = _drift(next_v, intensity) + diffusion + size * jumps
        return np.stack([next_v, next_low, next_psi], axis=1), y

    def sample_y(self, X: ArrayLike, m: int = 1, random_state: Any = None) -> Array:
        """Draw m returns for each state, by simulating the day."""
        X = self._check_states(X)
        rng = as_generator(random_state)
        return self._step(np.repeat(X, check_size(m), axis=0), rng)[1].reshape(len(X), m)

    def _check_states(self, X: ArrayLike) -> Array:
        X = self._check(X)
        if (X < 0).any() or (X[:, 0] < _FLOOR).any():
            raise ValueError(
                f"X must hold states (V, L, Psi) with V >= {_FLOOR:g} and no negative values."
            )
        return X

    def distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """Return the true distribution of y given each row of X."""
        X = self._check_states(X)
        knots, value = np.empty((len(X), _NODES)), np.empty((len(X), _NODES))
        for i, (v, low, psi) in enumerate(X):
            knots[i], value[i] = _tabulated(v, low, psi)
        return GridDistribution(knots, value)


def _next_low(low: Any, e_l: Array) -> Array:
    return np.maximum(0, low + _KAPPA_L * (_THETA_L - low) * _DT + _XI_L * np.sqrt(low * _DT) * e_l)


def _variance_drift(v: Any, low: Any, e_l: Array) -> Array:
    """Return all of the next variance but the part that e_V moves."""
    next_low = _next_low(low, e_l)
    return (
        v
        + _KAPPA_V * (_THETA_V - v) * _DT
        + _GAMMA * _KAPPA_L * (_THETA_L - next_low) * _DT
        + _GAMMA * _XI_L * np.sqrt(next_low * _DT) * e_l
    )


def _drift(next_v: Any, intensity: Any) -> Any:
    return (-next_v / 2 - _XI * intensity + _RISK * np.sqrt(next_v)) * _DT


_HERMITE = np.polynomial.hermite_e.hermegauss(12)
_LEGENDRE = np.polynomial.legendre.leggauss(28)
_OUTER = np.polynomial.hermite_e.hermegauss(6)
# Near its floor the variance is moved by e_L more than by e_V: the kink is in the outer integral
# too, and takes many nodes there.
_NEAR_FLOOR = 3e-3
_OUTER_NEAR_FLOOR = ndtri((np.arange(96) + 0.5) / 96), np.full(96, 1 / 96)


def _shock_nodes(kink: float) -> tuple[Array, Array]:
    """Nodes and weights for a standard normal integral of a function with a kink."""
    if kink < -7 or kink > 7:
        node, weight = _HERMITE
        return node, weight / weight.sum()
    nodes, weights = [], []
    for low, high in ((-8.5, kink), (kink, 8.5)):
        node = (low + high) / 2 + (high - low) / 2 * _LEGENDRE[0]
        nodes.append(node)
        weights.append((high - low) / 2 * _LEGENDRE[1] * np.exp(-0.5 * node**2))
    weight = np.concatenate(weights)
    return np.concatenate(nodes), weight / weight.sum()


def _tabulated(v: float, low: float, psi: float) -> tuple[Array, Array]:
    """Tabulate the log-density of one state: knots and values."""
    spread = _XI_V * np.sqrt(v * _DT)
    intensity = psi + _GAMMA_V * v + _GAMMA_L * low
    e_l, outer_weight = _OUTER_NEAR_FLOOR if v < _NEAR_FLOOR else _OUTER
    means, variances, weights = [], [], []
    drifts = _variance_drift(v, low, e_l)
    for drift, weight in zip(drifts, outer_weight / outer_weight.sum(), strict=True):
        e_v, inner = _shock_nodes((_FLOOR - drift) / spread)
        next_v = np.maximum(_FLOOR, drift + spread * e_v)
        means.append(_drift(next_v, intensity) + np.sqrt(next_v * _DT) * _RHO * e_v)
        variances.append(next_v * _DT * (1 - _RHO**2))
        weights.append(weight * inner)
    # Beside the spread of a jump that of the shocks is small: there a normal for each outer node
    # has the right mean and variance, and that is enough.
    grouped_weight = np.array([w.sum() for w in weights])
    grouped_mean = np.array([w @ m for w, m in zip(weights, means, strict=True)]) / grouped_weight
    second = [w @ (u + m**2) for w, m, u in zip(weights, means, variances, strict=True)]
    grouped_variance = np.array(second) / grouped_weight - grouped_mean**2
    mean, variance, weight = (np.concatenate(part) for part in (means, variances, weights))

    # Fine where the day without a jump is, coarse out to where only jumps lead: 1 is a return that
    # no number of jumps explains.
    knots = weight @ mean + np.sinh(np.linspace(-6, 6, _NODES)) / np.sinh(6)
    rate = intensity * _DT
    density = poisson.pmf(0, rate) * (_normal(knots, mean, variance) @ weight)
    for jumps in range(1, int(poisson.isf(1e-12, rate)) + 2):
        total = grouped_variance + jumps**2 * _DELTA**2
        part = _normal(knots, grouped_mean + jumps * _THETA, total) @ grouped_weight
        density += poisson.pmf(jumps, rate) * part
    return knots, np.log(np.maximum(density, 1e-300))


def _normal(points: Array, mean: Array, variance: Array) -> Array:
    z = (points[:, None] - mean) ** 2 / variance
    return np.exp(-0.5 * z) / np.sqrt(2 * np.pi * variance)
