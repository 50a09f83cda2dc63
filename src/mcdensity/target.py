"""`TargetSpace`: from the caller's y to the coordinate that experts see, and back.

Three coordinates of a target are in use:

- the caller's y;
- the standardised z = (y - location) / scale, in which the marginal is fitted;
- the *inner* coordinate t, in which experts learn: z in units of a robust standard deviation,
  compressed logarithmically far out, so that a wild outlier does not squeeze all other targets
  into a point. The ratio of two densities is unchanged by a monotone map.

The kind of the target says with respect to which measure its law is a density. Only "continuous"
is implemented: a density on the whole line.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from mcdensity._scaling import location_and_scale
from mcdensity._validation import weighted_quantile
from mcdensity.distribution.against import knots_for

__all__ = ["InnerMarginal", "TargetSpace", "reference_knots"]

Array = NDArray[np.float64]

# Targets up to this many robust standard deviations are left as they are. Of a normal target hardly
# any lies beyond. With 3, 4 and 6 the likelihood of `mixture` was 1.273, 1.271 and 1.262 on
# ARMAJump, and the same on LinearStudentT (benchmarks/constants.py).
_LINEAR = 4.0
# exp(700) is still a finite number.
_MOST_EXPONENT = 700.0
# A target with no more values than this, or a twentieth of the rows, has ties that a density must
# not see: grades (3 to 11 values) and Naval's decay (51 values in 11,934 rows) are such.
_FEW_VALUES = 15
# Normal scores at which grids start: a sixteenth of a standard deviation apart, and wider far out.
_SCORES = np.concatenate(
    [np.arange(-7, -4.5, 0.25), np.linspace(-4.5, 4.5, 145), np.arange(4.75, 7.1, 0.25)]
)
_MAX_GAPS = 64
# Normal scores beyond which ratios of classifiers are tabulated at a few points only.
_TABLE_END, _TABLE_FAR = 4.5, np.array([5.25, 6.0, 7.0])


def reference_knots(reference: Any, low: float, high: float) -> Array:
    """Values of standardised y where the grid of every row starts.

    They are evenly spaced in the normal scores of the reference. Knots at the ends of its widest
    gaps keep a cell from reaching across one, and a ratio may have kinks at the outermost targets.
    `knots_for` would add those that it adds here at every prediction.
    """
    gaps = getattr(reference, "gaps_", np.empty((0, 2)))
    widest = gaps[np.argsort(gaps[:, 0] - gaps[:, 1], kind="stable")[:_MAX_GAPS]]
    points = [reference.ppf(ndtr(_SCORES)), widest.ravel(), [low, high]]
    return knots_for(np.unique(np.concatenate(points)), reference)


class TargetSpace:
    """The space of one target column: its kind, support, measure and coordinates.

    Parameters
    ----------
    location, scale : float
        Mean and standard deviation of the caller's y.
    middle, spread : float
        Median and robust standard deviation of the standardised targets.
    limits : tuple of float
        Smallest and largest standardised target.

    Attributes
    ----------
    kind : {"continuous"}
    support : tuple of float
        Limits of the caller's y.
    atoms : ndarray
        Values of y with a positive mass; none for a continuous target.
    """

    kind = "continuous"
    support = (-np.inf, np.inf)
    atoms: Array = np.empty(0)

    def __init__(
        self,
        location: float,
        scale: float,
        middle: float = 0.0,
        spread: float = 1.0,
        limits: tuple[float, float] = (-np.inf, np.inf),
    ) -> None:
        self.location, self.scale = location, scale
        self.middle, self.spread, self.limits = middle, spread, limits

    @classmethod
    def learn(cls, y: Array, weight: Array | None = None) -> TargetSpace:
        """Learn the space of targets y, shape (n,), with weights of mean 1 or None."""
        location, scale = (float(a[0]) for a in location_and_scale(y[:, None], weight))
        z = (y - location) / scale
        low, middle, high = weighted_quantile(z, [0.25, 0.5, 0.75], weight)
        # The standard deviation of z is 1.
        spread = min(1.0, (high - low) / 1.349) if high > low else 1.0
        limits = float(z.min()), float(z.max())
        return cls(location, scale, float(middle), float(spread), limits)

    def standardize(self, y: Array) -> Array:
        """Return z of the caller's y."""
        return (y - self.location) / self.scale

    def in_caller_units(self, z: Array) -> Array:
        """Return the caller's y of standardised targets."""
        return self.location + self.scale * z

    def inner(self, z: Array, *, clip: bool = True) -> Array:
        """Return t of standardised targets; those beyond the training range are clipped to it.

        With ``clip=False`` the map continues beyond it, for densities that extrapolate.
        """
        value = ((np.clip(z, *self.limits) if clip else z) - self.middle) / self.spread
        size = np.abs(value)
        far = _LINEAR + np.log1p(np.maximum(size - _LINEAR, 0))
        return np.where(size <= _LINEAR, value, np.sign(value) * far)

    def outer(self, t: Array) -> tuple[Array, Array]:
        """Return z of inner values, and the logarithm of the slope dz/dt there."""
        beyond = np.clip(np.abs(t) - _LINEAR, 0, _MOST_EXPONENT)
        size = np.minimum(np.abs(t), _LINEAR) + np.expm1(beyond)
        return self.middle + self.spread * np.sign(t) * size, np.log(self.spread) + beyond

    def log_slope(self, z: Array) -> Array:
        """Return the logarithm of dt/dz: a density of t times this slope is one of z."""
        size = np.abs((z - self.middle) / self.spread)
        return -np.log(self.spread) - np.log1p(np.maximum(size - _LINEAR, 0))


class InnerMarginal:
    """The marginal law of a target in the inner coordinate.

    Parameters
    ----------
    space : TargetSpace
    marginal : Marginal
        Of the standardised target.
    held_out : ndarray of shape (n,), optional
        Log-density, in the inner coordinate, of each labelled target under a marginal that has not
        seen it; by default the marginal's own.

    Attributes
    ----------
    limits : tuple of float
        Inner values of the smallest and the largest target.
    reach : tuple of float
        How far beyond them densities are tabulated: by the range of the targets on either side.
    """

    def __init__(self, space: TargetSpace, marginal: Any, held_out: Array | None = None) -> None:
        self.space, self.marginal, self.held_out = space, marginal, held_out
        low, high = space.limits
        ends = np.array([low, high, 2 * low - high, 2 * high - low])
        first, last, far_below, far_above = space.inner(ends, clip=False).tolist()
        self.limits, self.reach = (first, last), (far_below, far_above)

    def quantile(self, level: Array) -> Array:
        """Inner values below which the law has the given probabilities, within the limits."""
        return self.space.inner(self.marginal.ppf(level))

    def cdf(self, t: Array) -> Array:
        """Probability below inner values."""
        return self.marginal.cdf(self.space.outer(t)[0])

    def logpdf(self, t: Array) -> Array:
        """Log-density with respect to the inner coordinate."""
        z, log_slope = self.space.outer(t)
        return self.marginal.logpdf(z) + log_slope

    def strata(self, count: int) -> Array:
        """Quantiles in the middle of `count` strata of equal probability."""
        return self.quantile((np.arange(count) + 0.5) / count)

    def knots(self) -> tuple[Array, Array]:
        """Return the inner values where grids start, and the probabilities that they stand for."""
        z = reference_knots(self.marginal, *self.space.limits)
        u = np.concatenate([[0.0], self.marginal.cdf(z), [1.0]])
        mass = np.diff((u[1:] + u[:-1]) / 2)
        mass[[0, -1]] += [u[1] / 2, (1 - u[-2]) / 2]
        return self.space.inner(z, clip=False), mass

    def table_points(self, step: float) -> Array:
        """Inner values at which ratios are tabulated, `step` apart in the target's normal score."""
        low, high = self.limits
        even = np.linspace(-_TABLE_END, _TABLE_END, round(2 * _TABLE_END / step) + 1)
        t = self.quantile(ndtr(np.concatenate([-_TABLE_FAR[::-1], even, _TABLE_FAR])))
        t = np.unique(np.concatenate([[low], t[(t > low) & (t < high)], [high]]))
        # Points closer than this would make a spline through them needlessly steep.
        apart = np.concatenate([[True], np.diff(t) > 1e-6 * (high - low)])
        return t[apart]

    def spread_ties(
        self, t: Array, rng: np.random.Generator, n_labeled: int
    ) -> tuple[Array, InnerMarginal] | None:
        """Spread the targets of a discrete y evenly over the cells between its values.

        Peaks at the values would make the likelihood of held-out rows arbitrarily large, and
        the sharpest density would win. Spread, the likelihood is that of the values' probabilities;
        the marginal that the others are compared with is then even in each cell, too.

        Returns
        -------
        (targets, marginal), or None where the target has no ties to speak of.
        """
        values = np.unique(t)
        if not 2 < len(values) <= max(_FEW_VALUES, len(t) / 20):
            return None
        middle = (values[1:] + values[:-1]) / 2
        first, last = 2 * values[0] - middle[0], 2 * values[-1] - middle[-1]
        edges = np.concatenate([[first], middle, [last]])
        cell = np.searchsorted(values, t)
        low, high = edges[cell], edges[cell + 1]
        mass = np.maximum(np.diff(self.cdf(edges)), 1e-12)[cell]
        held_out = np.log(mass / (high - low))[:n_labeled]
        spread = low + (high - low) * rng.random(len(t))
        return spread, InnerMarginal(self.space, self.marginal, held_out)
