"""`TargetSpace`: from the caller's y to the coordinate that experts see, and back.

Three coordinates of a target are in use:

- the caller's y;
- the standardised z = (w - location) / scale, in which the marginal is fitted; w is y itself or,
  for a target with bounds, a function of it that runs over the whole line;
- the *inner* coordinate t, in which experts learn: z in units of a robust standard deviation,
  compressed logarithmically far out, so that a wild outlier does not squeeze all other targets
  into a point. The ratio of two densities is unchanged by a monotone map.

The kind of the target says with respect to which measure its law is a density: length, or a count
of single values. A discrete target has normal scores as its coordinate: each value has the cell
of scores that its probability, and those of the values below it, give it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from mcdensity._bounds import Bounds, MappedReference
from mcdensity._scaling import location_and_scale
from mcdensity._validation import weighted_quantile
from mcdensity.distribution import (
    ConditionalDistribution,
    DiscreteDistribution,
    GridDistribution,
)
from mcdensity.distribution.against import knots_for
from mcdensity.marginals import AdaptiveDensity, Masses
from mcdensity.target_kind import Measure, refuse_outside

__all__ = [
    "DiscreteSpace",
    "InnerMarginal",
    "MixedSpace",
    "TargetSpace",
    "reference_knots",
    "space_of",
]

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
# Targets by which the coordinate of a bounded one is chosen: a standard error of about 0.02 nats.
_MOST_TO_CHOOSE = 2000
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
        Mean and standard deviation of w: the caller's y, or what `bounds` makes of it.
    middle, spread : float
        Median and robust standard deviation of the standardised targets.
    limits : tuple of float
        Smallest and largest standardised target.
    bounds : Bounds, optional
        The map of a bounded target to the line.
    """

    kind = "continuous"
    bounds: Bounds | None = None

    def __init__(
        self,
        location: float,
        scale: float,
        middle: float = 0.0,
        spread: float = 1.0,
        limits: tuple[float, float] = (-np.inf, np.inf),
        bounds: Bounds | None = None,
    ) -> None:
        self.location, self.scale = location, scale
        self.middle, self.spread, self.limits = middle, spread, limits
        self.bounds = bounds

    @classmethod
    def learn(
        cls, y: Array, weight: Array | None = None, bounds: Bounds | None = None
    ) -> TargetSpace:
        """Learn the space of targets y, shape (n,), with weights of mean 1 or None."""
        if bounds is not None:
            y = bounds.forward(y)
        location, scale = (float(a[0]) for a in location_and_scale(y[:, None], weight))
        z = (y - location) / scale
        low, middle, high = weighted_quantile(z, [0.25, 0.5, 0.75], weight)
        # The standard deviation of z is 1.
        spread = min(1.0, (high - low) / 1.349) if high > low else 1.0
        limits = float(z.min()), float(z.max())
        return cls(location, scale, float(middle), float(spread), limits, bounds)

    @classmethod
    def bounded(cls, low: float, high: float, y: Array, weight: Array | None = None) -> TargetSpace:
        """Learn the space of targets in an interval.

        The map to the line is chosen by the likelihood of held-out targets, as laws of y alone.
        """
        some = np.random.default_rng(0).permutation(len(y))[:_MOST_TO_CHOOSE]
        spaces = [cls.learn(y, weight, bounds) for bounds in Bounds.candidates(low, high, y)]

        def likelihood(space: TargetSpace) -> float:
            part = None if weight is None else weight[some]
            z = space.standardize(y[some])
            if np.ptp(z) == 0:
                return -np.inf
            found = AdaptiveDensity().fit_held_out(z, part) + space.log_jacobian(y[some])
            return float(np.average(found, weights=part))

        return max(spaces, key=likelihood) if len(spaces) > 1 else spaces[0]

    def standardize(self, y: Array) -> Array:
        """Return z of the caller's y."""
        w = y if self.bounds is None else self.bounds.forward(y)
        return (w - self.location) / self.scale

    def log_jacobian(self, y: Array) -> Array:
        """Return the logarithm of dz/dy: a density of z times this slope is one of y."""
        if self.bounds is None:
            return np.full(np.shape(y), -np.log(self.scale))
        inside = (y >= self.bounds.low) & (y <= self.bounds.high)
        return np.where(inside, self.bounds.log_slope(y) - np.log(self.scale), -np.inf)

    def law(self, law: ConditionalDistribution) -> ConditionalDistribution:
        """Turn laws of z into laws of the caller's y."""
        law = law._rescaled(self.location, self.scale)
        if self.bounds is None:
            return law
        assert isinstance(law, GridDistribution)
        bounds = self.bounds
        return law.mapped(lambda law, loc, scale: MappedReference(law, bounds, loc, scale))

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


class DiscreteSpace(TargetSpace):
    """The space of a target with single values: counts, grades.

    Experts that learn a ratio see the mean normal score of a value's cell, those that learn a
    density see targets that are spread over their cells.

    Parameters
    ----------
    location, scale : float
        Mean and standard deviation of y; they only inform.
    masses : Masses
        Values and their probabilities.
    limits : tuple of float
        Scores of the smallest and the largest value that was seen.
    snaps : bool, default True
        Whether `inner` turns all scores of a cell into one.
    """

    kind = "discrete"

    def __init__(
        self,
        location: float,
        scale: float,
        masses: Masses,
        limits: tuple[float, float],
        snaps: bool = True,
    ) -> None:
        super().__init__(location, scale, limits=limits)
        self.masses, self.snaps = masses, snaps

    @classmethod
    def of(cls, masses: Masses, y: Array, weight: Array | None = None) -> DiscreteSpace:
        """Return the space of targets y, given the probabilities of their values."""
        location, scale = (float(a[0]) for a in location_and_scale(y[:, None], weight))
        first, last = masses.scores_[masses.cell(np.array([y.min(), y.max()]))].tolist()
        return cls(location, scale, masses, (first, last))

    def standardize(self, y: Array) -> Array:
        """Return the score of the nearest value."""
        return self.masses.scores_[self.masses.cell(y)]

    def log_jacobian(self, y: Array) -> Array:
        """Return the logarithm of the value's mass over the density of its score."""
        return self.masses.log_mass(y) - self.masses.logpdf(self.standardize(y))

    def law(self, law: ConditionalDistribution) -> ConditionalDistribution:
        """Return laws of the values as they are."""
        return law

    def of_ratios(
        self, log_ratio: Array, *, by_value: bool = False, floor: float = 0.0
    ) -> DiscreteDistribution:
        """Return laws, given log-ratios at the nodes of the cells, or of each value.

        No ratio is below `floor`.
        """
        masses = self.masses
        weights = masses.masses_ if by_value else masses.weights_
        found = np.exp(log_ratio - log_ratio.max(axis=1, keepdims=True)) * weights
        np.maximum(found, floor * found.sum(axis=1, keepdims=True) * weights, out=found)
        if not by_value:
            found = np.add.reduceat(found, masses.starts_, axis=1)
        return DiscreteDistribution(masses.values_, found)

    def inner(self, z: Array, *, clip: bool = True) -> Array:
        """Return the score of the cell that z lies in; with ``clip=False`` z itself."""
        if clip and self.snaps:
            z = self.masses.scores_[self.masses.cell_of_score(z)]
        return np.clip(z, *self.limits) if clip else z

    def outer(self, t: Array) -> tuple[Array, Array]:
        """Return t itself, and a slope of 1."""
        return t, np.zeros(np.shape(t))

    def log_slope(self, z: Array) -> Array:
        """Return the logarithm of 1."""
        return np.zeros(np.shape(z))


class MixedSpace(TargetSpace):
    """The space of a target with a density and atoms.

    Its atoms and its density are learned by models of their own, from the caller's y.

    Parameters
    ----------
    location, scale : float
        Mean and standard deviation of y; they only inform.
    """

    kind = "mixed"

    def standardize(self, y: Array) -> Array:
        """Return y itself."""
        return y

    def law(self, law: ConditionalDistribution) -> ConditionalDistribution:
        """Return laws of y as they are."""
        return law


def space_of(
    measure: Measure,
    y: Array,
    weight: Array | None,
    more: Array | None = None,
    *,
    smooth: bool = True,
) -> TargetSpace:
    """Learn the space of targets whose kind and support are known.

    Parameters
    ----------
    measure : Measure
    y : ndarray of shape (n,)
    weight : ndarray of shape (n,), optional
    more : ndarray, optional
        Further targets, by which the masses of a discrete one are learned as well.
    smooth : bool, default True
        Whether masses are smoothed, and values added that were not seen.
    """
    if more is not None:
        refuse_outside("y_marginal", more, measure.support)
    if measure.kind == "discrete":
        masses = Masses(measure.support, smooth)
        if more is None:
            masses.fit(y, weight)
        else:
            known = np.ones(len(y)) if weight is None else weight
            masses.fit(np.concatenate([y, more]), np.concatenate([known, np.ones(len(more))]))
        return DiscreteSpace.of(masses, y, weight)
    if measure.kind == "mixed":
        space = TargetSpace.learn(y, weight)
        return MixedSpace(space.location, space.scale)
    if np.isinf(measure.support).all():
        return TargetSpace.learn(y, weight)
    return TargetSpace.bounded(*measure.support, y, weight)


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
    tied : ndarray, optional
        The few different values of a target, none if they are many, where more rows than those at
        hand have told; see `tied_values`.

    Attributes
    ----------
    limits : tuple of float
        Inner values of the smallest and the largest target.
    reach : tuple of float
        How far beyond them densities are tabulated: by the range of the targets on either side.
    """

    def __init__(
        self,
        space: TargetSpace,
        marginal: Any,
        held_out: Array | None = None,
        tied: Array | None = None,
    ) -> None:
        self.space, self.marginal, self.held_out, self.tied = space, marginal, held_out, tied
        low, high = space.limits
        ends = np.array([low, high, 2 * low - high, 2 * high - low])
        first, last, far_below, far_above = space.inner(ends, clip=False).tolist()
        self.limits, self.reach = (first, last), (far_below, far_above)

    @property
    def cells(self) -> Masses | None:
        """Of a discrete target: its values and their cells."""
        return self.space.masses if isinstance(self.space, DiscreteSpace) else None

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
        if self.cells is not None:
            return self.cells.nodes_, self.cells.weights_
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
        if self.cells is not None:
            spread = self.cells.spread(self.cells.cell_of_score(t), rng)
            limits = float(spread.min()), float(spread.max())
            own = self.space
            space = DiscreteSpace(own.location, own.scale, self.cells, limits, snaps=False)
            held_out = self.held_out
            if held_out is not None:
                n = len(held_out)
                held_out = held_out + self.logpdf(spread[:n]) - self.logpdf(t[:n])
            return spread, InnerMarginal(space, self.marginal, held_out)
        values = tied_values(t) if self.tied is None else self.tied
        if len(values) == 0:
            return None
        middle = (values[1:] + values[:-1]) / 2
        first, last = 2 * values[0] - middle[0], 2 * values[-1] - middle[-1]
        edges = np.concatenate([[first], middle, [last]])
        cell = np.searchsorted(middle, t)
        low, high = edges[cell], edges[cell + 1]
        mass = np.maximum(np.diff(self.cdf(edges)), 1e-12)[cell]
        held_out = np.log(mass / (high - low))[:n_labeled]
        spread = low + (high - low) * rng.random(len(t))
        return spread, InnerMarginal(self.space, self.marginal, held_out, self.tied)


def tied_values(t: Array) -> Array:
    """Return the different values of targets, if they are few; else none."""
    values = np.unique(t)
    return values if 2 < len(values) <= max(_FEW_VALUES, len(t) / 20) else np.empty(0)
