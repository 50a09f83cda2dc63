"""What the metrics share: checks of their input, averages, and points to integrate on."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from mcdensity._validation import check_weights
from mcdensity.distribution import (
    ConditionalDistribution,
    Distribution,
    GridDistribution,
    JointDistribution,
)

__all__ = [
    "Array",
    "Density",
    "average",
    "both_on_points",
    "check_floor",
    "check_values",
    "prepare",
]

Array = NDArray[np.float64]
Density = ConditionalDistribution | ArrayLike


def average(value: Array, sample_weight: ArrayLike | None) -> float:
    kept, weight = check_weights(sample_weight, len(value))
    return float(np.average(value if kept is None else value[kept], weights=weight))


def prepare(
    distribution: Any, y: Any, grid: ArrayLike | None, *, joint: bool = False
) -> tuple[Any, Array]:
    """Return a distribution and outcomes; `joint`: those of several targets will do."""
    if isinstance(y, Distribution):
        raise TypeError("The distribution comes first: metric(distribution, y).")
    y = np.asarray(y, dtype=np.float64)
    if isinstance(distribution, JointDistribution):
        if not joint:
            raise TypeError(
                "This metric is for one target; use it with distribution.marginal(column), or "
                "log_likelihood, energy_score, variogram_score, dawid_sebastiani or hpd_coverage."
            )
        return distribution, y
    if not isinstance(distribution, ConditionalDistribution):
        if grid is None:
            raise ValueError(
                "Give a ConditionalDistribution, or a matrix of densities together with its grid: "
                "metric(density, y, grid=grid)."
            )
        distribution = _from_matrix(distribution, grid)
    if y.shape != (len(distribution),):
        raise ValueError(
            f"y must have one outcome per row, shape ({len(distribution)},), got shape {y.shape}."
        )
    if not np.isfinite(y).all():
        raise ValueError("y contains NaN or infinity.")
    return distribution, y


def check_floor(floor: float) -> float:
    if not floor > 0:
        raise ValueError(f"floor must be positive, got {floor!r}.")
    return floor


def check_values(name: str, value: Array) -> None:
    if np.isnan(value).any() or (value < 0).any():
        raise ValueError(f"{name} holds negative or NaN densities.")


def _check_grid(grid: ArrayLike) -> Array:
    points = np.asarray(grid, dtype=np.float64)
    if points.ndim != 1 or len(points) < 2 or not (np.diff(points) > 0).all():
        raise ValueError("grid must be one-dimensional and strictly ascending.")
    return points


def _check_matrix(density: ArrayLike, points: Array, name: str = "density") -> Array:
    """Check densities on a grid: not negative, and of mass one, or less if the grid misses some."""
    value = np.asarray(density, dtype=np.float64)
    if value.ndim != 2 or value.shape[1] != len(points):
        raise ValueError(
            f"{name} must be of shape (n, {len(points)}), one column per grid point, got shape "
            f"{value.shape}."
        )
    check_values(name, value)
    mass = np.asarray(np.trapezoid(value, points, axis=1))
    # Between coarse grid points the trapezoidal rule overestimates a sharp density: 1 % too much
    # on average, or 10 % in a row, is its error and not that of the density.
    worst = int(np.argmax(mass))
    if mass.mean() > 1.01 or mass[worst] > 1.1:
        raise ValueError(
            f"{name} is not normalised: it integrates to {mass.mean():.3g} on average, and to "
            f"{mass[worst]:.3g} in row {worst}. Divide each row by its integral first."
        )
    if not (mass > 0).all():
        raise ValueError(f"{name} is zero on the whole grid in row {int(np.argmin(mass))}.")
    _warn_missing(mass, name)
    return value


def _warn_missing(mass: Any, name: str) -> None:
    missed = 1 - mass.mean()
    if missed > 0.01:  # more than the error of the trapezoidal rule
        warnings.warn(
            f"The grid misses {missed:.1%} of the mass of {name} on average; widen it.",
            UserWarning,
            stacklevel=4,
        )


def _from_matrix(density: ArrayLike, grid: ArrayLike) -> ConditionalDistribution:
    points = _check_grid(grid)
    value = _check_matrix(density, points)
    with np.errstate(divide="ignore"):
        return GridDistribution(np.broadcast_to(points, value.shape), np.log(value))


def both_on_points(
    truth: Density, estimate: Density, grid: ArrayLike | None
) -> tuple[Array, Array, Array]:
    """Log-densities of both at the same points, and weights that make a sum an integral."""
    if grid is None:
        if not isinstance(truth, ConditionalDistribution) or not isinstance(
            estimate, ConditionalDistribution
        ):
            raise ValueError("Matrices of densities need the grid they stand for.")
        if len(truth) != len(estimate):
            raise ValueError(f"truth has {len(truth)} rows, estimate {len(estimate)}.")
        # Gauss-Legendre between quantiles of both, so that neither's mass is overlooked: what lies
        # beyond 6.5 standard deviations of a normal distribution is less than 1e-10. The panels and
        # nodes give the divergence of normal distributions to 1e-6 (see the tests).
        level = ndtr(np.linspace(-6.5, 6.5, 121))
        edges = np.concatenate([d.ppf_grid(level) for d in (truth, estimate)], axis=1)
        edges = np.sort(edges, axis=1)
        node, weight = np.polynomial.legendre.leggauss(6)
        half = np.diff(edges, axis=1)[:, :, None] / 2
        points = edges[:, :-1, None] + half * (1 + node)
        n = len(edges)
        weights = (half * weight).reshape(n, -1)
        points = points.reshape(n, -1)
        return truth.logpdf(points), estimate.logpdf(points), weights
    points = _check_grid(grid)
    weights = np.zeros((1, len(points)))
    weights[0, 1:] += np.diff(points) / 2
    weights[0, :-1] += np.diff(points) / 2
    values = []
    for name, density in (("truth", truth), ("estimate", estimate)):
        if isinstance(density, ConditionalDistribution):
            log = density.logpdf_grid(points)
            if name == "truth":
                _warn_missing((weights * np.exp(log)).sum(axis=1), name)
        else:
            with np.errstate(divide="ignore"):
                log = np.log(_check_matrix(density, points, name))
        values.append(log)
    if values[0].shape != values[1].shape:
        raise ValueError(f"truth has {len(values[0])} rows, estimate {len(values[1])}.")
    return values[0], values[1], weights
