"""Densities as cosine series: basis, cut-off, bumps, normalising, tails.

References
----------
Efromovich: Nonparametric Curve Estimation, 1999. Izbicki, Lee: Converting high-dimensional
regression to high-dimensional conditional density estimation, 2017.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import label

from mcdensity.distribution import ConditionalDistribution, GridDistribution, Reference
from mcdensity.estimator import ConditionalEstimator
from mcdensity.marginals import TailedDensity

__all__ = ["SeriesEstimator", "check_n_basis", "cosine_basis", "repair", "series_losses"]

Array = NDArray[np.float64]

# Points of the unit interval where a series is worked: a wave of the 31st term has 34.
_POINTS = 513
_BUMPS = (0.0, 0.01, 0.02, 0.05, 0.1)
_SHARPER = (1.0, 1.2, 1.5, 2.0)


def cosine_basis(z: Array, n_basis: int) -> Array:
    """Return the first functions of the cosine basis on [0, 1] at z, shape (*z.shape, n_basis)."""
    out = np.sqrt(2) * np.cos(np.pi * np.asarray(z)[..., None] * np.arange(n_basis))
    out[..., 0] = 1
    return out


def series_losses(coefficients: Array, basis: Array, weight: Array | None = None) -> Array:
    """CDE loss of a series with its first 1, 2, ... terms, shape (I,).

    Parameters
    ----------
    coefficients : ndarray of shape (n, I)
        Of rows that are held out.
    basis : ndarray of shape (n, I)
        The basis at their targets.
    weight : ndarray of shape (n,), optional
    """
    terms = coefficients**2 - 2 * coefficients * basis
    return np.cumsum(np.average(terms, axis=0, weights=weight))


def repair(density: Array, bump: float = 0.0, sharpen: float = 1.0) -> Array:
    """Make densities of series on an even grid of [0, 1].

    Negative values are cut; what is then left is lowered, where it holds more than 1, or scaled up;
    isolated bumps of less mass than `bump` are dropped (never all of them); the result is raised to
    the power `sharpen` and scaled to integrate to one.

    Parameters
    ----------
    density : ndarray of shape (n, G)
    bump : float
        Least mass of a bump.
    sharpen : float
        Exponent.

    Returns
    -------
    ndarray of shape (n, G)
    """
    density = _normalized(density)
    if bump > 0:
        density = _without_bumps(density, bump)
    if sharpen != 1:
        density = density**sharpen
    return density / _integral(density)


def _integral(density: Array) -> Array:
    """Integrate over [0, 1] by the trapezoidal rule, shape (n, 1)."""
    return (density.sum(axis=1) - density[:, [0, -1]].mean(axis=1))[:, None] / (
        density.shape[1] - 1
    )


def _normalized(density: Array) -> Array:
    positive = np.maximum(density, 0)
    mass = _integral(positive)
    positive = np.where(mass > 0, positive, 1.0)
    # The nearest density in mean square is the series less a constant, cut at zero: its integral
    # falls with the constant, which bisection finds.
    low, high = np.zeros_like(mass), np.maximum(density.max(axis=1, keepdims=True), 0)
    over = mass > 1
    if over.any():
        for _ in range(40):
            middle = (low + high) / 2
            more = _integral(np.maximum(density - middle, 0)) > 1
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        positive = np.where(over, np.maximum(density - low, 0), positive)
    return positive / _integral(positive)


def _without_bumps(density: Array, least: float) -> Array:
    """Drop stretches of positive density that hold less mass than `least`."""
    rows, points = density.shape
    # A structure that joins along the axis of the grid alone.
    stretch, count = label(density > 0, structure=[[0, 0, 0], [1, 1, 1], [0, 0, 0]])
    mass = np.bincount(stretch.ravel(), density.ravel(), count + 1) / (points - 1)
    of_row = np.zeros(count + 1, dtype=np.intp)
    of_row[stretch.ravel()] = np.repeat(np.arange(rows), points)
    largest = np.zeros(rows)
    np.maximum.at(largest, of_row[1:], mass[1:])
    keep = (mass >= least) | (mass == largest[of_row])
    keep[0] = False
    return density * keep[stretch]


def check_n_basis(n_basis: int | None, n: int) -> int:
    """Return the number of basis functions: by default 31, and never more than there are rows."""
    if n_basis is None:
        return min(31, n)
    if int(n_basis) != n_basis or not 1 <= n_basis <= n:
        raise ValueError(
            f"n_basis must be an integer from 1 to the number of training rows, {n}: more "
            f"coefficients cannot be learned. Got {n_basis!r}."
        )
    return int(n_basis)


class SeriesEstimator(ConditionalEstimator):
    r"""Base of methods that give a density as a cosine series on the range of the targets.

    .. math:: \hat f(y \mid x) = (1 - \varepsilon) \sum_{i < I} \beta_i(x) \, \phi_i(z)
        / (y_{max} - y_{min}) + \varepsilon \, \hat f_Y(y), \quad
        z = (y - y_{min}) / (y_{max} - y_{min})

    The second term, a marginal density with heavy tails, keeps the density positive where the
    series is zero; :math:`\varepsilon` is by default 2 / (n + 1), the chance that a new target is
    outside the range of n.

    Subclasses set the parameters, call ``_set_range`` and ``_tune``, and implement
    ``_coefficients(X)``, of shape (rows, I), the first of them 1.
    """

    bump_threshold: float | None
    sharpen: float | None
    floor: float | None
    n_basis_: int
    bump_threshold_: float = 0.0
    sharpen_: float = 1.0

    def _coefficients(self, X: Array) -> Array:
        raise NotImplementedError

    def _set_range(self, y: Array, sample_weight: Array | None) -> Array:
        """Note the range of the targets, and return them scaled to [0, 1]."""
        if self.floor is not None and not 0 <= self.floor < 1:
            raise ValueError(f"floor must lie in [0, 1), got {self.floor!r}.")
        bump, sharpen = self.bump_threshold, self.sharpen
        if bump is not None and not 0 <= bump < 1:
            raise ValueError(f"bump_threshold must lie in [0, 1), got {bump!r}.")
        if sharpen is not None and not 0 < sharpen < np.inf:
            raise ValueError(f"sharpen must be positive, got {sharpen!r}.")
        self.y_range_ = float(y.min()), float(y.max())
        self.floor_ = 2 / (len(y) + 1) if self.floor is None else float(self.floor)
        self._marginal = TailedDensity().fit(y, sample_weight=sample_weight)
        return (y - self.y_range_[0]) / (self.y_range_[1] - self.y_range_[0])

    def _tune(self, coefficients: Array, z: Array, weight: Array | None) -> None:
        """Choose cut-off, bump threshold and exponent by the CDE loss of held-out rows."""
        losses = series_losses(coefficients, cosine_basis(z, coefficients.shape[1]), weight)
        self.n_basis_ = int(np.argmin(losses)) + 1
        bumps = _BUMPS if self.bump_threshold is None else (self.bump_threshold,)
        exponents = _SHARPER if self.sharpen is None else (self.sharpen,)
        raw = self._raw(coefficients)
        position = z * (_POINTS - 1)
        left = np.minimum(position.astype(np.intp), _POINTS - 2)
        part = position - left
        best = np.inf
        for bump in bumps:
            for exponent in exponents:
                density = repair(raw, bump, exponent)
                rows = np.arange(len(z))
                at = (1 - part) * density[rows, left] + part * density[rows, left + 1]
                loss = np.average(_integral(density**2)[:, 0] - 2 * at, weights=weight)
                if loss < best - 1e-12:
                    best, self.bump_threshold_, self.sharpen_ = loss, bump, exponent
        self.cde_loss_ = float(best)

    def _raw(self, coefficients: Array) -> Array:
        size = self.n_basis_
        basis = cosine_basis(np.linspace(0, 1, _POINTS), size)
        return coefficients[:, :size] @ basis.T

    def _reference(self) -> Reference:
        return self._marginal

    def _start_knots(self, y: Array) -> Array:
        return np.linspace(*self.y_range_, _POINTS)

    def _distribution(self, X: Array) -> ConditionalDistribution:
        low, high = self.y_range_
        raw = self._raw(self._coefficients(X))
        density = repair(raw, self.bump_threshold_, self.sharpen_) / (high - low)
        y = self._knots
        log_f = self._marginal.logpdf(y)
        with np.errstate(divide="ignore"):
            series = np.log1p(-self.floor_) + np.log(density) - log_f
            floor = np.log(self.floor_)
        value = np.logaddexp(series, floor)
        u = self._marginal.cdf(y)
        # Outside of the range there is the marginal alone: the density steps down to it.
        edge = np.array([0.0, u[0] * (1 - 1e-9)]), np.array([u[-1] + (1 - u[-1]) * 1e-9, 1.0])
        outside = np.full((len(X), 2), floor)
        return GridDistribution(
            np.broadcast_to(np.concatenate([edge[0], u, edge[1]]), (len(X), len(u) + 4)),
            np.concatenate([outside, value, outside], axis=1),
            reference=self._marginal,
        )
