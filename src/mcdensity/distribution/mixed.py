"""Distributions with a density and atoms: a delay that is often zero, an income with a cap."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity.distribution.base import Array
from mcdensity.distribution.grid import GridDistribution
from mcdensity.distribution.univariate import ConditionalDistribution

__all__ = ["MixedDistribution"]

# An atom is the mode if it has more mass than a window around the mode of the density that is this
# share of the central 80 % of it.
_WINDOW = 0.1


class MixedDistribution(ConditionalDistribution):
    r"""Atoms, and a density for the rest.

    .. math:: P(Y \le y) = \sum_{a_j \le y} \pi_j + \pi_0 F(y), \quad \pi_0 = 1 - \sum_j \pi_j

    `pdf` and `logpdf` are with respect to a measure that counts the atoms and has length
    elsewhere: at an atom they are the mass, elsewhere :math:`\pi_0` times the density.

    Parameters
    ----------
    atoms : array-like of shape (J,)
        Ascending.
    masses : array-like of shape (n, J)
        Their probabilities; what is missing to 1 is that of the rest.
    rest : ConditionalDistribution
        Of n rows: the law of y where it is no atom.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from mcdensity.distribution import MixedDistribution, ScipyDistribution
    >>> rest = ScipyDistribution(stats.expon, loc=np.zeros((1, 1)), scale=np.full((1, 1), 2.0))
    >>> law = MixedDistribution([0], [[0.6]], rest)
    >>> law.pmf(0), law.sf(0), law.ppf(0.5), law.mean().round(3)
    (array([0.6]), array([0.4]), array([0.]), array([0.8]))
    """

    def __init__(self, atoms: ArrayLike, masses: ArrayLike, rest: ConditionalDistribution) -> None:
        self._atoms = np.asarray(atoms, dtype=np.float64)
        self._masses = np.asarray(masses, dtype=np.float64)
        self._rest = rest
        if self._atoms.ndim != 1 or not (np.diff(self._atoms) > 0).all():
            raise ValueError("atoms must be one-dimensional and strictly ascending.")
        if self._masses.shape != (len(rest), len(self._atoms)):
            raise ValueError(
                f"masses must be of shape ({len(rest)}, {len(self._atoms)}), one row for each of "
                f"`rest` and one column for each atom, got shape {self._masses.shape}."
            )
        total = self._masses.sum(axis=1)
        if not (self._masses >= 0).all() or not (total <= 1 + 1e-9).all():
            raise ValueError("masses must not be negative, and their sum must not exceed 1.")
        self._share = np.clip(1 - total, 0, 1)

    def __len__(self) -> int:
        return len(self._rest)

    def _take(self, rows: NDArray[np.intp]) -> MixedDistribution:
        return MixedDistribution(self._atoms, self._masses[rows], self._rest._take(rows))

    def _joined(self, others: Sequence[Any]) -> MixedDistribution:
        masses = np.concatenate([self._masses, *(other._masses for other in others)])
        rest = self._rest._joined([other._rest for other in others])
        return MixedDistribution(self._atoms, masses, rest)

    def _rescaled(self, loc: float, scale: float) -> MixedDistribution:
        rest = self._rest._rescaled(loc, scale)
        return MixedDistribution(loc + scale * self._atoms, self._masses, rest)

    def as_grid(self) -> GridDistribution:
        """Refuse: atoms have no density."""
        raise TypeError("A distribution with atoms has no density at them: use pmf and pdf.")

    @property
    def atoms(self) -> Array:
        """The single values of positive probability, ascending."""
        return self._atoms

    @property
    def masses(self) -> Array:
        """Probability of each atom, shape (n, J)."""
        return self._masses

    @property
    def rest(self) -> ConditionalDistribution:
        """The law of y where it is no atom."""
        return self._rest

    def _pmf(self, y: Array) -> Array:
        return (self._masses[:, None, :] * (y[:, :, None] == self._atoms)).sum(axis=2)

    def _logpdf(self, y: Array) -> Array:
        mass = self._pmf(y)
        with np.errstate(divide="ignore"):
            density = self._rest._logpdf(y) + np.log(self._share)[:, None]
            at_atom = (y[:, :, None] == self._atoms).any(axis=2)
            return np.where(at_atom, np.log(mass), density)

    def _cdf(self, y: Array) -> Array:
        jumps = (self._masses[:, None, :] * (self._atoms <= y[:, :, None])).sum(axis=2)
        return np.minimum(jumps + self._share[:, None] * self._rest._cdf(y), 1.0)

    def _sf(self, y: Array) -> Array:
        jumps = (self._masses[:, None, :] * (self._atoms > y[:, :, None])).sum(axis=2)
        return np.minimum(jumps + self._share[:, None] * self._rest._sf(y), 1.0)

    def _ppf(self, q: Array) -> Array:
        # Without the jumps below it, q is a probability of the rest; within a jump it is the atom.
        share = self._share[:, None]
        before = share * self._rest._cdf(np.broadcast_to(self._atoms, self._masses.shape))
        jump = np.cumsum(self._masses, axis=1)
        start, end = before + jump - self._masses, before + jump
        passed = np.zeros_like(q)
        out = np.full(q.shape, np.nan)
        for j, atom in enumerate(self._atoms):
            inside = (q > start[:, j : j + 1]) & (q <= end[:, j : j + 1])
            # Rounding must not step over an atom at an end of the support.
            at_end = (start[:, j : j + 1] <= 0) & (q <= 0) & (self._masses[:, j : j + 1] > 0)
            out = np.where(np.isnan(out) & (inside | at_end), atom, out)
            passed = passed + np.where(q > end[:, j : j + 1], self._masses[:, j : j + 1], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.where(share > 0, (q - passed) / share, 0.5)
        level = np.where(q >= 1, 1.0, np.clip(level, 0.0, 1.0))
        rest = self._rest._ppf(level)
        low, high = self._limits_of_gaps(q, start, end)
        found = np.where(np.isnan(out), np.clip(rest, low, high), out)
        # At 1 it is the largest value there is: an atom, if the rest ends below it.
        top = np.where(self._masses > 0, self._atoms, -np.inf).max(axis=1)[:, None]
        return np.where((q >= 1) & (top > found), top, found)

    def _limits_of_gaps(self, q: Array, start: Array, end: Array) -> tuple[Array, Array]:
        """Return the atoms on either side of the quantiles that are not atoms."""
        low, high = np.full(q.shape, -np.inf), np.full(q.shape, np.inf)
        for j, atom in enumerate(self._atoms):
            low = np.where(q > end[:, j : j + 1], atom, low)
            high = np.where((q <= start[:, j : j + 1]) & np.isinf(high), atom, high)
        return low, high

    def mean(self) -> Array:
        """Expectation of each row."""
        return self._masses @ self._atoms + self._share * self._rest.mean()

    def std(self) -> Array:
        """Return the standard deviation of each row."""
        with np.errstate(over="ignore"):
            return np.sqrt(np.maximum(self._central(2), 0))

    def _central(self, order: int) -> Array:
        """Central moment, from those of the rest."""
        mean = self.mean()
        shift = self._rest.mean() - mean
        spread = self._rest.std()
        density = shift**order + comb(order, 2) * spread**2 * shift ** (order - 2)
        for k in range(3, order + 1):
            moment = self._rest._standardised_moment(k) * spread**k
            density = density + comb(order, k) * moment * shift ** (order - k)
        jumps = (self._masses * (self._atoms - mean[:, None]) ** order).sum(axis=1)
        return jumps + np.where(self._share > 0, self._share * density, 0.0)

    def _standardised_moment(self, order: int) -> Array:
        return self._central(order) / self._central(2) ** (order / 2)

    def entropy(self) -> Array:
        """Entropy of each row, in nats, with respect to the same measure as `logpdf`."""
        parts = np.column_stack([self._masses, self._share])
        with np.errstate(divide="ignore", invalid="ignore"):
            choice = -np.where(parts > 0, parts * np.log(parts), 0).sum(axis=1)
        return choice + np.where(self._share > 0, self._share * self._rest.entropy(), 0.0)

    def _mean_density(self) -> Array:
        return (self._masses**2).sum(axis=1) + self._share**2 * self._rest._mean_density()

    def mode(self) -> Array:
        """The most likely value of each row.

        An atom, if it has more mass than a window around the mode of the density, a tenth as wide
        as its central 80 %.
        """
        peak = self._rest.mode()
        low, high = self._rest.interval(0.8).T
        half = _WINDOW * (high - low) / 2
        window = self._share * (self._rest.cdf(peak + half) - self._rest.cdf(peak - half))
        best = self._masses.argmax(axis=1)
        mass = self._masses[np.arange(len(self)), best]
        return np.where(mass >= window, self._atoms[best], peak)

    def _hpd_level(self, y: Array) -> Array:
        # Atoms come first: they have no length. Then the density, from its peaks down.
        own = self._pmf(y)
        first = (self._masses[:, None, :] >= own[:, :, None]) * self._masses[:, None, :]
        at_atom = (y[:, :, None] == self._atoms).any(axis=2)
        density = 1 - self._share[:, None] * (1 - self._rest.hpd_level(y))
        return np.where(at_atom, first.sum(axis=2), density)

    def _hpd(self, coverage: float) -> list[Array]:
        order = np.argsort(-self._masses, axis=1, kind="stable")
        sums = np.cumsum(np.take_along_axis(self._masses, order, axis=1), axis=1)
        count = np.minimum((sums < coverage).sum(axis=1) + 1, len(self._atoms))
        regions = []
        for i in range(len(self)):
            chosen = self._atoms[order[i, : count[i]]]
            chosen = chosen[self._masses[i, order[i, : count[i]]] > 0]
            parts = np.column_stack([chosen, chosen])
            missing = coverage - sums[i, -1]
            if missing > 0:
                level = min(missing / self._share[i], 1 - 1e-12)
                density = self._rest[i].hpd(level)[0]
                # An atom within an interval is part of it.
                within = (density[:, 0] <= chosen[:, None]) & (chosen[:, None] <= density[:, 1])
                parts = np.concatenate([parts[~within.any(axis=1)], density])
            regions.append(parts[np.argsort(parts[:, 0])])
        return regions
