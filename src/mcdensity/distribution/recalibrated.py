"""Laws whose distribution functions have gone through a map of [0, 1] onto itself."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mcdensity.distribution.base import Array
from mcdensity.distribution.discrete import DiscreteDistribution
from mcdensity.distribution.grid import GridDistribution
from mcdensity.distribution.loglinear import LogLinear
from mcdensity.distribution.resolve import Group, resolve
from mcdensity.distribution.univariate import ConditionalDistribution

__all__ = ["Levels", "recalibrated"]


class Levels(Protocol):
    """An increasing map G of [0, 1] onto itself."""

    def cdf(self, u: Array) -> Array:
        """G itself."""

    def log_slope(self, u: Array) -> Array:
        """Logarithm of its slope."""


def recalibrated(law: ConditionalDistribution, levels: Levels) -> ConditionalDistribution:
    r"""Return the laws with distribution functions :math:`G(F(y))`.

    Where F has a density f, theirs is :math:`g(F(y)) f(y)`, on a grid that resolves it.

    Parameters
    ----------
    law : ConditionalDistribution
        With a density, or of single values.
    levels : Levels

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity._levels import LevelMap
    >>> from mcdensity.distribution import DiscreteDistribution
    >>> from mcdensity.distribution.recalibrated import recalibrated
    >>> higher = LevelMap(np.array([[1.0, 1.0], [2.0, 1.0]]), np.array([0.5, 0.5]))
    >>> recalibrated(DiscreteDistribution([0, 1], [[0.5, 0.5]]), higher).masses
    array([[0.375, 0.625]])
    """
    if isinstance(law, DiscreteDistribution):
        below = np.pad(np.cumsum(law.masses, axis=1)[:, :-1], ((0, 0), (1, 1)))
        below[:, -1] = 1.0
        return DiscreteDistribution(law.atoms, np.diff(levels.cdf(below), axis=1))
    grid = law.as_grid()
    groups: list[Group] = []
    for part, rows in zip(grid._law.parts, grid._law.rows, strict=True):
        groups += _reweighted(part, rows, levels)
    new = object.__new__(GridDistribution)
    return new._set_groups(groups, grid._reference, grid._loc, grid._scale)


def _reweighted(part: LogLinear, rows: NDArray[np.intp], levels: Levels) -> list[Group]:
    """Multiply densities by the slope of the map, with further knots where these are needed."""

    def log_density(chosen: NDArray[np.intp], points: Array) -> Array:
        some = part.take(chosen)
        return some.logpdf(points) + levels.log_slope(some.cdf(points))

    value = part.value + levels.log_slope(part.cdf_at_knots)
    found = resolve(part.knots, value, log_density)
    return [Group(rows[group.rows], group.knots, group.value) for group in found]
