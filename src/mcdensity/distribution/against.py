"""Densities given by their ratio to a reference: knots and cells in the units of y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mcdensity.distribution.base import Array
from mcdensity.distribution.cells import NODES, WEIGHTS, Cells
from mcdensity.distribution.loglinear import LogLinear, cap, cell_means, is_shared

__all__ = ["Reference", "ReferenceCells", "cells_against", "inner_probabilities", "knots_for"]

# The distance from 1 to the next smaller number.
_STEP = 2.0**-53
# Minus the logarithm of a density that counts as zero.
_LOWEST = 700.0
_TINY = float(np.finfo(np.float64).tiny)
# The cells that reach to infinity are divided at so many points, closer where their mass is. With
# 8, 16, 32 and 64 the standard deviation of t5 is off by 5e-3, 4e-4, 3e-5 and 2e-6, and regions of
# laws that follow t3 outside of the central 90 % miss 8e-4, 1e-4, 9e-6 and 9e-7 of the mass.
_TAIL_POINTS = 32
# Knots are added where a cell of the reference, taken as log-linear, has a mass that is off by
# more than this share, unless there is next to no mass. 300 normal targets with outliers at 40, 80
# and 120: without such knots the mean was off by 0.03, with 1, 0.3 and 0.1 by 2e-4, for 26, 34 and
# 74 knots. Nothing was added after the fourth round.
_OFF = 0.3
_LEAST_MASS = 1e-9
_ROUNDS = 6


class Reference(Protocol):
    """A one-dimensional distribution to measure densities against: a marginal is one."""

    def logpdf(self, y: Array) -> Array:
        """Log-density."""

    def cdf(self, y: Array) -> Array:
        """P(Y <= y)."""

    def ppf(self, q: Array) -> Array:
        """Inverse of `cdf`."""


def inner_probabilities(u: Array) -> Array:
    """Keep probabilities away from 0 and 1, whose quantiles may be infinite."""
    return np.clip(u, _TINY, 1 - _STEP)


def knots_for(y: Array, reference: Reference) -> Array:
    """Add knots where the reference has gaps or peaks within a cell.

    Integrals take the density as log-linear in y between knots. This holds if it does for the
    reference, and if the log-ratio is resolved.
    """
    for _ in range(_ROUNDS):
        u = np.maximum.accumulate(reference.cdf(y))
        width, mass = np.diff(y), np.diff(u)
        value = reference.logpdf(y)
        value = np.maximum(value, value.max() - _LOWEST)
        linear = width * cell_means(value[None])[0]
        bad = np.flatnonzero((np.abs(linear - mass) > _OFF * mass) & (mass > _LEAST_MASS))
        if len(bad) == 0:
            break
        # The middle of the cell finds the ends of gaps, the middle of its mass finds peaks.
        middle = y[bad] + width[bad] / 2
        by_mass = reference.ppf(u[bad] + mass[bad] / 2)
        y = np.unique(np.concatenate([y, middle, by_mass]))
    return y


def _tail(u: Array, ratio: Array) -> tuple[Array, Array, Array, Array]:
    """Divide a cell between u[:, 0], the end, and u[:, 1].

    Returns
    -------
    points, ratio : ndarray of shape (n, _TAIL_POINTS)
        From the end onwards.
    mass : ndarray of shape (n, _TAIL_POINTS)
        From each point to the next.
    outside : ndarray of shape (n, 1)
        Mass between the end and the first point.
    """
    width = u[:, 1:] - u[:, :1]
    part = np.arange(_TAIL_POINTS, 0, -1) / _TAIL_POINTS
    least = np.minimum(_STEP / np.maximum(np.abs(width), _TINY), 1)
    share = np.exp(np.log(least) * part**2)
    points = u[:, :1] + width * share
    inner = ratio[:, :1] + (ratio[:, 1:] - ratio[:, :1]) * share
    all_points = np.concatenate([points, u[:, 1:]], axis=1)
    all_ratios = np.concatenate([inner, ratio[:, 1:]], axis=1)
    mass = np.abs(np.diff(all_points, axis=1)) * cell_means(all_ratios)
    first = np.concatenate([ratio[:, :1], inner[:, :1]], axis=1)
    outside = np.abs(points[:, :1] - u[:, :1]) * cell_means(first)
    return points, inner, mass, outside


@dataclass
class ReferenceCells(Cells):
    """Cells whose log-ratio to a reference is linear in its probability u.

    Parameters
    ----------
    u : ndarray of shape (n, K) or (1, K)
        Probabilities of the points y.
    ratio : ndarray of shape (n, K)
        Log-ratios there.
    reference : Reference
    """

    u: Array
    ratio: Array
    reference: Reference

    def entropy(self) -> Array:
        """Differential entropy of each row: the reference bends between the points."""
        u, ratio, rise = self.u, self.ratio, np.diff(self.ratio, axis=1)
        total, norm = np.zeros_like(rise), np.zeros_like(rise)
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            inner = u[:, :-1] + np.diff(u, axis=1) * node
            log_f = self.reference.logpdf(self.reference.ppf(inner_probabilities(inner)))
            part = weight * np.exp(rise * node - np.maximum(rise, 0))
            norm += part
            total += part * (ratio[:, :-1] + rise * node + np.maximum(log_f, -_LOWEST))
        tails = (self.outside * (self.value[:, [0, -1]] - 1)).sum(axis=1)
        return -(self.mass * (total / norm)).sum(axis=1) - tails


def cells_against(law: LogLinear, reference: Reference) -> ReferenceCells:
    """Cells in y of densities whose log-ratio to a reference is linear in its probability u.

    The outer cells reach to infinity, and may hold much of the mass: they are divided.
    """
    u = law.knots[:1] if is_shared(law.knots) else law.knots
    ratio, mass = law.value, law.mass
    if u.shape[1] == 2:  # one cell is both ends: it is halved
        u = np.insert(u, 1, u.mean(axis=1), axis=1)
        ratio = np.insert(ratio, 1, ratio.mean(axis=1), axis=1)
        mass = np.diff(u, axis=1) * cell_means(ratio)
    low, low_ratio, low_mass, low_outside = _tail(u[:, :2], ratio[:, :2])
    high, high_ratio, high_mass, high_outside = _tail(u[:, :-3:-1], ratio[:, :-3:-1])
    u = np.concatenate([low, u[:, 1:-1], high[:, ::-1]], axis=1)
    ratio = np.concatenate([low_ratio, ratio[:, 1:-1], high_ratio[:, ::-1]], axis=1)
    mass = np.concatenate([low_mass, mass[:, 1:-1], high_mass[:, ::-1]], axis=1)
    outside = np.concatenate([low_outside, high_outside], axis=1)
    y = np.maximum.accumulate(reference.ppf(inner_probabilities(u)), axis=1)
    value = ratio + reference.logpdf(y)
    cap(value)
    with np.errstate(divide="ignore", over="ignore"):
        reach = np.exp(np.log(outside) - value[:, [0, -1]])
    reach = np.minimum(reach, y[:, -1:] - y[:, :1])
    return ReferenceCells(
        np.broadcast_to(y, value.shape), value, mass, outside, reach, u, ratio, reference
    )
