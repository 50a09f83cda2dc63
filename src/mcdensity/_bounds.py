"""Coordinates in which a bounded target runs over the whole line.

With z the distance from a bound in units of s, softlog(z) = log(exp(z) - 1) behaves as log z near
the bound and as z itself far from it. A target with one bound has the coordinate s softlog(z), one
with two bounds the difference of two such terms. For s = inf these are the logarithm and the logit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log1p

if TYPE_CHECKING:
    from mcdensity.distribution import Reference

__all__ = ["Bounds", "MappedReference"]

Array = NDArray[np.float64]

# Scales s that are tried beside infinity, in units of the median distance from the bound.
_SCALES = (1.0, 0.25)
# With two bounds: at least so many scales would not fit between them, exp(30) is the largest power.
_MOST_SCALES = 30.0
# A logarithm ends so many standard deviations of it above the largest target, and goes on as a
# straight line: a law with heavy tails in the logarithm would have no mean.
_BEYOND = 1.0
# Differences of such targets, and their ratios to small scales, are still finite.
_FURTHEST = 1e150
# Smaller distances are 0: their ratios to scales might be.
_LEAST = 1e-290


class Bounds:
    """A smooth, increasing map of an interval onto the line.

    Parameters
    ----------
    low, high : float
        Ends of the interval; one of them may be infinite, but not both.
    scale : float
        The scale s; infinity for the logarithm or the logit.
    nearest : float
        Targets at a bound are taken to lie this far from it.
    knee : float, default inf
        With one bound and s = inf: distance from the bound beyond which the map is linear.
    """

    def __init__(
        self, low: float, high: float, scale: float, nearest: float, knee: float = np.inf
    ) -> None:
        self.low, self.high, self.scale = low, high, scale
        self.nearest, self.knee = nearest, knee

    @classmethod
    def candidates(cls, low: float, high: float, y: Array) -> Iterator[Bounds]:
        """Yield the maps to choose from, given targets in the interval."""
        away = np.minimum(y - low, high - y)
        inside = away[away > 0]
        nearest = float(inside.min()) / 2 if len(inside) else (high - low) / 4
        middle = float(np.median(np.maximum(away, nearest)))
        if np.isinf(low) or np.isinf(high):
            size = np.log(np.maximum(away, nearest))
            knee = float(np.exp(size.max() + _BEYOND * size.std()))
            yield cls(low, high, np.inf, nearest, knee)
        else:
            yield cls(low, high, np.inf, nearest)
        for factor in _SCALES:
            if factor * middle * _MOST_SCALES >= high - low or np.isinf(high - low):
                yield cls(low, high, factor * middle, nearest)

    def _distances(self, y: Array) -> tuple[Array, Array]:
        """Distances from both bounds, `nearest` at a bound; infinite where there is none."""
        y = np.clip(y, -_FURTHEST, _FURTHEST)
        below, above = y - self.low, self.high - y
        return (
            np.where(below > _LEAST, below, self.nearest),
            np.where(above > _LEAST, above, self.nearest),
        )

    def forward(self, y: Array) -> Array:
        """Map targets of the interval to the line."""
        below, above = self._distances(y)
        if np.isinf(self.scale):
            if np.isinf(self.high):
                return self._log(below)
            if np.isinf(self.low):
                return -self._log(above)
            return np.log(below) - np.log(above)
        out = np.zeros_like(below)
        if np.isfinite(self.low):
            out = out + _softlog(below / self.scale)
        if np.isfinite(self.high):
            out = out - _softlog(above / self.scale)
        return self.scale * out

    def _log(self, distance: Array) -> Array:
        within = np.minimum(distance, self.knee)
        return np.log(within) + (distance - within) / self.knee

    def _exp(self, value: Array) -> Array:
        end = np.log(self.knee)
        with np.errstate(over="ignore"):
            inner = np.exp(np.minimum(value, end))
            return inner + (self.knee * np.maximum(value - end, 0) if np.isfinite(end) else 0.0)

    def log_slope(self, y: Array) -> Array:
        """Return the logarithm of the slope of `forward`."""
        below, above = self._distances(y)
        if np.isinf(self.scale):
            if np.isinf(self.high):
                return -np.log(np.minimum(below, self.knee))
            if np.isinf(self.low):
                return -np.log(np.minimum(above, self.knee))
            return np.log(self.high - self.low) - np.log(below) - np.log(above)
        out = np.full_like(below, -np.inf)
        for distance, end in ((below, self.low), (above, self.high)):
            if np.isfinite(end):
                out = np.logaddexp(out, -np.log(-np.expm1(-distance / self.scale)))
        return out

    def backward(self, value: Array) -> Array:
        """Map the line back to the interval."""
        if np.isinf(self.scale):
            if np.isinf(self.high):
                return self.low + self._exp(value)
            if np.isinf(self.low):
                return self.high - self._exp(-value)
            return self.low + (self.high - self.low) * expit(value)
        s = self.scale
        if np.isinf(self.high):
            return self.low + s * np.logaddexp(0, value / s)
        if np.isinf(self.low):
            return self.high - s * np.logaddexp(0, -value / s)
        # With e = exp(z) and R = exp(value / s), e solves e² + (R - 1) e - R exp(width) = 0; the
        # nearer bound is where the calculation starts, so that no digits are lost.
        ratio = np.exp(-np.minimum(np.abs(value) / s, 700.0))
        most = np.exp((self.high - self.low) / s)
        root = np.sqrt((1 - ratio) ** 2 + 4 * ratio * most)
        distance = s * log1p(2 * ratio * (most - 1) / (1 + ratio + root))
        return np.where(value <= 0, self.low + distance, self.high - distance)


def _softlog(z: Array) -> Array:
    return z + np.log(-np.expm1(-z))


class MappedReference:
    """The law of y for a reference law of its coordinate on the line.

    Parameters
    ----------
    reference : Reference
        Law of (w - location) / scale, where w is the coordinate.
    bounds : Bounds
    location, scale : float
    """

    def __init__(self, reference: Reference, bounds: Bounds, location: float, scale: float) -> None:
        self._reference = reference
        self._bounds, self._location, self._scale = bounds, location, scale

    def _coordinate(self, y: Array) -> Array:
        return (self._bounds.forward(y) - self._location) / self._scale

    def logpdf(self, y: Array) -> Array:
        """Log-density; minus infinity outside of the bounds."""
        y = np.asarray(y, dtype=np.float64)
        outside = (y < self._bounds.low) | (y > self._bounds.high)
        value = self._reference.logpdf(self._coordinate(y))
        value = value + self._bounds.log_slope(y) - np.log(self._scale)
        return np.where(outside, -np.inf, value)

    def cdf(self, y: Array) -> Array:
        """P(Y <= y)."""
        y = np.asarray(y, dtype=np.float64)
        # At a bound itself the coordinate is infinite.
        low, high = y <= self._bounds.low, y >= self._bounds.high
        value = self._reference.cdf(self._coordinate(y))
        return np.where(low, 0.0, np.where(high, 1.0, value))

    def ppf(self, q: Array) -> Array:
        """Inverse of `cdf`."""
        value = self._reference.ppf(q)
        with np.errstate(over="ignore"):
            y = self._bounds.backward(self._location + self._scale * value)
        return np.clip(y, self._bounds.low, self._bounds.high)
