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

from mcdensity._validation import check_integer, check_number, weighted_quantile
from mcdensity.baselines.kernels import evaluation_rows
from mcdensity.distribution import ConditionalDistribution, GridDistribution, Reference
from mcdensity.distribution.against import knots_for
from mcdensity.estimator import ConditionalEstimator
from mcdensity.marginals import TailedDensity

__all__ = ["SeriesEstimator", "check_n_basis", "cosine_basis", "repair", "series_losses"]

Array = NDArray[np.float64]

# Points of the unit interval where a series is evaluated: a wave of the 31st term has 34.
_POINTS = 513
# Candidates, chosen by the CDE loss: the mass below which a bump is dropped, and the exponent.
_BUMPS = (0.0, 0.01, 0.02, 0.05, 0.1)
_SHARPER = (1.0, 1.2, 1.5, 2.0)
# Knots of the marginal on each side of the range, evenly by its mass; where its kernels lie apart
# `knots_for` adds more. Regions of 0.99 of 300 log-normal targets held 0.9883 without them.
_OUTER_POINTS = 32
# Targets further than this many interquartile ranges from the quartiles are out of the range.
_REACH = 5.0


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
    return _finished(_normalized(density), bump, sharpen)


def _finished(density: Array, bump: float, sharpen: float) -> Array:
    if bump > 0:
        density = _without_bumps(density, bump)
    if sharpen != 1:
        density = (density / density.max(axis=1, keepdims=True)) ** sharpen
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
    return check_integer("n_basis", n_basis, 1, n)  # rows cannot determine more coefficients


class SeriesEstimator(ConditionalEstimator):
    r"""Base of methods that give a density as a cosine series on the range of the targets.

    .. math:: \hat f(y \mid x) = (1 - \varepsilon) \sum_{i < I} \beta_i(x) \, \phi_i(z)
        / (y_{max} - y_{min}) + \varepsilon \, \hat f_Y(y), \quad
        z = (y - y_{min}) / (y_{max} - y_{min})

    The second term, a marginal density with heavy tails, keeps the density positive where the
    series is zero; :math:`\varepsilon` is by default 2 / (n + 1), the chance that a new target is
    outside the range of n. Targets more than five interquartile ranges from the quartiles are not
    in the range of the series: they are left to the marginal density, whatever x is.

    Subclasses set the parameters, call ``_set_range`` and ``_tune``, and implement
    ``_coefficients(X)``, of shape (rows, I), the first of them 1.
    """

    bump_threshold: float | None
    sharpen: float | None
    floor: float | None
    n_basis_: int
    bump_threshold_: float
    sharpen_: float

    def _coefficients(self, X: Array) -> Array:
        raise NotImplementedError

    def _set_range(self, y: Array, sample_weight: Array | None) -> tuple[Array, NDArray[np.intp]]:
        """Note the range of the series; return targets in it scaled to [0, 1], and their rows."""
        if self.floor is not None:
            check_number("floor", self.floor, high=1, closed=True)
        self.bump_threshold_, self.sharpen_ = 0.0, 1.0
        if self.bump_threshold is not None:
            self.bump_threshold_ = check_number(
                "bump_threshold", self.bump_threshold, high=1, closed=True
            )
        if self.sharpen is not None:
            self.sharpen_ = check_number("sharpen", self.sharpen, high=100)
        # Far outliers are left to the marginal: on a range that holds them too, all else would be
        # within one wave.
        low, high = weighted_quantile(y, [0.25, 0.75], sample_weight)
        reach = _REACH * (high - low) if high > low else np.inf
        self.y_range_ = float(max(y.min(), low - reach)), float(min(y.max(), high + reach))
        self.floor_ = 2 / (len(y) + 1) if self.floor is None else float(self.floor)
        self._marginal = TailedDensity().fit(y, sample_weight=sample_weight)
        low, high = self.y_range_
        rows = np.flatnonzero((y >= low) & (y <= high))
        self._cut = len(rows) < len(y)
        return (y[rows] - low) / (high - low), rows

    def _tune(self, coefficients: Array, z: Array, weight: Array | None) -> None:
        """Choose cut-off, bump threshold and exponent by the CDE loss of held-out rows."""
        losses = series_losses(coefficients, cosine_basis(z, coefficients.shape[1]), weight)
        self.n_basis_ = int(np.argmin(losses)) + 1
        bumps = _BUMPS if self.bump_threshold is None else (self.bump_threshold_,)
        exponents = _SHARPER if self.sharpen is None else (self.sharpen_,)
        some = evaluation_rows(len(z))
        coefficients, z = coefficients[some], z[some]
        weight = None if weight is None else weight[some]
        plain = _normalized(self._raw(coefficients))
        position = z * (_POINTS - 1)
        left = np.minimum(position.astype(np.intp), _POINTS - 2)
        part = position - left
        best = np.inf
        for bump in bumps:
            for exponent in exponents:
                density = _finished(plain, bump, exponent)
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
        # Beside an even grid, points where the marginal has its mass: it is the coordinate.
        inner = self._marginal.ppf(np.linspace(0.002, 0.998, 250))
        low, high = self.y_range_
        inner = inner[(inner > low) & (inner < high)]
        # Outside of the range there may be outliers, with kernels of their own.
        below, above = self._marginal.cdf(low), self._marginal.cdf(high)
        part = np.linspace(0, 1, _OUTER_POINTS + 2)[1:-1]
        ends = knots_for(self._marginal.ppf(below * part), self._marginal)
        self._below = self._marginal.cdf(ends[ends < low])
        ends = knots_for(self._marginal.ppf(above + (1 - above) * part), self._marginal)
        self._above = self._marginal.cdf(ends[ends > high])
        return np.unique(np.concatenate([np.linspace(low, high, _POINTS), inner]))

    def _distribution(self, X: Array) -> ConditionalDistribution:
        low, high = self.y_range_
        raw = self._raw(self._coefficients(X))
        density = repair(raw, self.bump_threshold_, self.sharpen_) / (high - low)
        y = self._knots
        position = (y - low) / (high - low) * (_POINTS - 1)
        left = np.clip(position.astype(np.intp), 0, _POINTS - 2)
        part = position - left
        density = (1 - part) * density[:, left] + part * density[:, left + 1]
        log_f = self._marginal.logpdf(y)
        u = self._marginal.cdf(y)
        # Outside of the range there is the marginal alone: with its own mass, where targets are
        # there, else with the share that keeps the density positive.
        apart = u[0] + 1 - u[-1] if self._cut else 0.0
        with np.errstate(divide="ignore"):
            floor = np.log(self.floor_)
            series = np.log(max(1 - apart - self.floor_, 0)) + np.log(density) - log_f
        value = np.logaddexp(series, floor)
        edges = u[0] * (1 - 1e-9), u[-1] + (1 - u[-1]) * 1e-9
        before = np.concatenate([[0.0], np.minimum(self._below, edges[0]), edges[:1]])
        after = np.concatenate([edges[1:], np.maximum(self._above, edges[1]), [1.0]])
        knots = np.concatenate([before, u, after])
        outside = np.full((len(X), len(knots)), 0.0 if self._cut else floor)
        outside[:, len(before) : len(before) + len(u)] = value
        return GridDistribution(
            np.broadcast_to(knots, outside.shape), outside, reference=self._marginal
        )
