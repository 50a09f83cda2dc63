"""Probabilities of single values: the marginal of a discrete target."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, ndtr, ndtri, xlogy

from mcdensity._mixing import best_weights
from mcdensity.marginals.base import Marginal

__all__ = ["Masses"]

Array = NDArray[np.float64]

# A value is averaged with its neighbours until so many rows are there: which of these is chosen by
# the likelihood of values that are left out.
_WINDOWS = (1.0, 3.0, 8.0)
_LEAST_ROWS = 0.01
# Rows' worth of mass for the values between those seen, and the most values that are left out.
_ROWS_UNSEEN, _MOST_LEFT_OUT = 0.5, 60
# Beyond the values seen masses fall geometrically, as in the outermost share of the mass, and each
# has at least this factor of the one before it.
_TAIL, _LEAST_DECAY = 0.1, 0.5
# Values beyond those seen: of grades, of which there are at most so many, and of counts; and rows'
# worth of mass for all of them on one side, a small share of which falls as a power law.
_MOST_GRADES, _GRADES_BEYOND, _COUNTS_BEYOND, _MOST_BEYOND = 15, 3, 100, 500
_ROWS_BEYOND, _FAR = 0.5, 0.05
# The least mass that a law of counts gives a value.
_TINY = 1e-12
# Rows that it and the smoothed shares are given beforehand when the two are mixed.
_PRIOR_ROWS = 1
# Scores of cells are computed between these probabilities.
_LEAST = 1e-300
# Rounding error of multiples of a step, in steps; whole numbers up to here are exact.
_ROUNDING, _MOST_INTEGER = 1e-4, 2.0**53
# Laws are integrated over the cells in panels of at most this many normal scores, out to the last
# score, by so many points each. Laws that shift by two standard deviations and shrink to a half
# have masses exact to 2e-5 (see the tests).
_PANEL, _LAST_SCORE = 0.65, 6.5
_SMALL = 1e-7
_POINTS, _FACTORS = np.polynomial.legendre.leggauss(4)


class Masses(Marginal):
    """Smoothed masses of values, and their normal scores.

    The coordinate in which `logpdf`, `cdf` and `ppf` work is the normal score: the law of y alone
    is the standard normal one, and each value has a cell of it.

    Parameters
    ----------
    support : tuple of float
        Values beyond those seen stay within it.
    smooth : bool, default True
        Whether to smooth, and to add values that were not seen. Without, the masses are the shares
        of the targets.

    Attributes
    ----------
    values_ : ndarray of shape (K,)
        Ascending.
    masses_ : ndarray of shape (K,)
    edges_ : ndarray of shape (K + 1,)
        Ends of the values' cells, from minus infinity to infinity.
    scores_ : ndarray of shape (K,)
        The mean of the normal law in each cell.
    nodes_, weights_ : ndarray of shape (m,)
        Scores, and the probabilities that they stand for, to integrate over the cells by.
    starts_ : ndarray of shape (K,)
        The first node of each cell.
    """

    def __init__(
        self, support: tuple[float, float] = (-np.inf, np.inf), smooth: bool = True
    ) -> None:
        self.support = support
        self.smooth = smooth

    def fit(self, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the masses of targets.

        Parameters
        ----------
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        """
        target = np.asarray(y, dtype=np.float64)
        weight = np.ones(len(target)) if sample_weight is None else np.asarray(sample_weight)
        weight = weight * len(target) / weight.sum()
        seen = np.unique(target)
        step = _lattice(seen) if self.smooth else None
        self.values_ = seen if step is None else _completed(seen, step, self.support)
        cell = self.cell(target)
        count = np.bincount(cell, weights=weight, minlength=len(self.values_)).astype(np.float64)
        self.masses_ = _smoothed(count, self.values_, seen) if self.smooth else count / count.sum()
        below = np.concatenate([[0.0], np.cumsum(self.masses_)])
        above = np.concatenate([[0.0], np.cumsum(self.masses_[::-1])])[::-1]
        # From the nearer side, so that scores of rare values keep their digits.
        lower, upper = ndtri(np.minimum(below, 1)), -ndtri(np.minimum(above, 1))
        self.edges_ = np.where(below < 0.5, lower, upper)
        self.edges_[[0, -1]] = -np.inf, np.inf
        density = np.exp(-(self.edges_**2) / 2) / np.sqrt(2 * np.pi)
        self.scores_ = -np.diff(density) / self.masses_
        self._set_nodes()
        self._n = float(count.sum())
        return self

    def held_out(self, scores: Array, sample_weight: Array | None = None) -> Array:
        """Log-density of scores of targets that were learned from, each without itself."""
        cell = self.cell_of_score(scores)
        weight = np.ones(len(cell)) if sample_weight is None else sample_weight
        rows = self._n * self.masses_[cell]
        left = np.maximum(rows - weight, 0.1 * rows) / np.maximum(self._n - weight, 1)
        return self.logpdf(scores) + np.minimum(np.log(left / self.masses_[cell]), 0)

    def _set_nodes(self) -> None:
        even = np.arange(-_LAST_SCORE, _LAST_SCORE + _PANEL / 2, _PANEL)
        ends = np.unique(np.concatenate([self.edges_, even]))
        low, high = ends[:-1, None], ends[1:, None]
        mass = np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
        level = np.broadcast_to((_POINTS + 1) / 2, (len(low), len(_POINTS)))
        nodes, weights = _between(low, high, level), mass * _FACTORS / 2
        # One point is enough where there is next to no mass.
        small = mass[:, 0] < _SMALL
        middle = _between(low, high, np.full(low.shape, 0.5))[:, 0]
        nodes[small, 0], weights[small, 0] = middle[small], mass[small, 0]
        used = np.ones(nodes.shape, dtype=bool)
        used[small, 1:] = False
        self.nodes_, self.weights_ = nodes[used], weights[used]
        first = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        self.starts_ = first[np.searchsorted(ends, self.edges_[:-1])]

    def cell(self, y: Array) -> NDArray[np.intp]:
        """Return the number of the value nearest to each y."""
        middle = (self.values_[1:] + self.values_[:-1]) / 2
        return np.searchsorted(middle, y, side="right")

    def cell_of_score(self, score: Array) -> NDArray[np.intp]:
        """Return the number of the cell that each score lies in."""
        return np.searchsorted(self.edges_[1:-1], score, side="right")

    def log_mass(self, y: Array) -> Array:
        """Log-mass of y; minus infinity off the values."""
        cell = self.cell(y)
        return np.where(self.values_[cell] == y, np.log(self.masses_[cell]), -np.inf)

    def spread(self, cell: NDArray[np.intp], rng: np.random.Generator) -> Array:
        """Draw normal scores from the cells of values."""
        return _between(self.edges_[cell], self.edges_[cell + 1], rng.random(len(cell)))

    def strata(self, cell: NDArray[np.intp], count: int) -> Array:
        """Scores in the middle of `count` strata of equal probability of each cell."""
        level = np.broadcast_to((np.arange(count) + 0.5) / count, (len(cell), count))
        return _between(self.edges_[cell][:, None], self.edges_[cell + 1][:, None], level)

    def logpdf(self, y: ArrayLike) -> Array:
        """Log-density of normal scores."""
        return -np.square(y) / 2 - np.log(2 * np.pi) / 2

    def cdf(self, y: ArrayLike) -> Array:
        """Probability below normal scores."""
        return ndtr(y)

    def ppf(self, q: ArrayLike) -> Array:
        """Inverse of `cdf`."""
        return ndtri(q)


def _between(low: Array, high: Array, level: Array) -> Array:
    """Quantiles of the normal law between two scores."""
    # In the tail that is nearer, so that no digits are lost.
    flip = low + high > 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    level = np.where(flip, 1 - level, level)
    start, end = ndtr(low), ndtr(high)
    score = ndtri(np.maximum(start + (end - start) * level, _LEAST))
    return np.where(flip, -score, score)


def _completed(seen: Array, step: float, support: tuple[float, float]) -> Array:
    """All values of a lattice between those seen, and some beyond, within the support."""
    low, high = support
    count = round((seen[-1] - seen[0]) / step)
    # Few values that do not start at 0 or 1 are grades, others are counts.
    grades = len(seen) <= _MOST_GRADES and seen[0] > step
    before = after = _GRADES_BEYOND if grades else min(max(_COUNTS_BEYOND, count), _MOST_BEYOND)
    if np.isfinite(low):
        before = min(before, int((seen[0] - low) / step + 1e-6))
    if np.isfinite(high):
        after = min(_MOST_BEYOND, int((high - seen[-1]) / step + 1e-6))
    values = seen[0] + step * np.arange(-before, count + after + 1)
    # Values that were seen are kept to the last digit.
    values[np.round((seen - seen[0]) / step).astype(int) + before] = seen
    return values


def _smoothed(count: Array, values: Array, seen: Array) -> Array:
    """Average the shares of rare values with those of their neighbours, and add tails.

    Counts are mixed with the negative binomial law of the same mean and variance, as far as values
    that are left out support it.
    """
    n = count.sum()
    first, last = np.searchsorted(values, [seen[0], seen[-1]])
    inside = count[first : last + 1]

    def held_out(rows: float) -> Array:
        """Log-masses of the values, each without one of its rows."""
        found = []
        for k in known.tolist():
            left = inside.copy()
            left[k] = max(left[k] - 1, 0.0)
            left = _drawn_together(left, rows)
            found.append(np.log(left[k] / left.sum()))
        return np.array(found)

    known = np.flatnonzero(inside > 0)
    known = known[:: -(-len(known) // _MOST_LEFT_OUT)]
    tried = {rows: held_out(rows) for rows in _WINDOWS}
    rows = max(tried, key=lambda rows: inside[known] @ tried[rows])
    masses = np.zeros(len(values))
    masses[first : last + 1] = _drawn_together(inside, rows)
    masses *= 1 / masses.sum()
    share = inside / n
    beyond = ((np.arange(last + 1, len(values)), share[::-1]), (np.arange(first)[::-1], share))
    for ahead, tail in beyond:
        if len(ahead):
            place = np.arange(len(ahead))
            # Mostly geometric; a little of a power law, so that an outlier is not impossible.
            for part, law in ((1 - _FAR, _decay(tail) ** place), (_FAR, (place + 1.0) ** -2)):
                masses[ahead] += _ROWS_BEYOND / n * part * law / law.sum()
    masses /= masses.sum()
    counts = _count_law(count, values)
    if counts is not None:
        parts = np.column_stack([tried[rows], np.log(counts[first + known])])
        prior = np.full(2, _PRIOR_ROWS * len(known) / inside[known].sum())
        masses = best_weights(parts, inside[known], prior) @ np.stack([masses, counts])
    return masses / masses.sum()


def _count_law(count: Array, values: Array) -> Array | None:
    """Negative binomial masses with the mean and the variance of counts; None for other values."""
    if values[0] != 0 or values[1] != 1 or len(values) <= _MOST_GRADES:
        return None
    mean = count @ values / count.sum()
    variance = count @ (values - mean) ** 2 / count.sum()
    if variance < (1 + _ROUNDING) * mean:
        law = np.exp(xlogy(values, mean) - mean - gammaln(values + 1))
    else:
        size = mean**2 / (variance - mean)
        log_ratio = gammaln(values + size) - gammaln(size) - gammaln(values + 1)
        law = np.exp(
            log_ratio + size * np.log(size / (size + mean)) + xlogy(values, mean / (size + mean))
        )
    return np.maximum(law, _TINY)


def _drawn_together(count: Array, rows: float) -> Array:
    """Counts of which those below `rows` are smoothed; together they keep what they have."""
    rare = np.flatnonzero(count < rows)
    out = count.copy()
    local = np.array([_local(count, k, rows) for k in rare.tolist()])
    out[rare] = local * (count[rare].sum() + _ROWS_UNSEEN) / local.sum() if len(rare) else local
    return out


def _local(count: Array, k: int, rows: float) -> float:
    """Count of a value, drawn towards the mean of the smallest window that holds so many rows."""
    reach = 0
    while True:
        window = count[max(0, k - reach) : k + reach + 1]
        if window.sum() >= rows or len(window) == len(count):
            break
        reach += 1
    own, mean = float(count[k]), max(float(window.mean()), _LEAST_ROWS)
    # In logarithms, since tails fall steeply; the mean counts as one row.
    return float(np.exp((own * np.log(max(own, _LEAST_ROWS)) + np.log(mean)) / (own + 1)))


def _decay(share: Array) -> float:
    """How fast masses fall outwards in the first tenth of the mass."""
    part = share[: int(np.searchsorted(np.cumsum(share), _TAIL)) + 1][::-1]
    # The mean of a geometric law gives its decay.
    excess = part @ np.arange(len(part)) / part.sum()
    return float(max(_LEAST_DECAY, excess / (1 + excess)))


def _lattice(values: Array) -> float | None:
    """Return the step of which the differences of values are multiples, or None."""
    if len(values) < 2:
        return None
    steps = np.diff(values)
    if (values == np.floor(values)).all() and np.abs(values).max() < _MOST_INTEGER:
        return float(np.gcd.reduce(steps.astype(np.int64)))
    multiple = (values - values[0]) / steps.min()
    on_lattice = np.abs(multiple - np.round(multiple)).max() < _ROUNDING
    return float(steps.min()) if on_lattice else None
