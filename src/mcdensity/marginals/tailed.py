"""A kernel density that leaves room for what has not been seen yet."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from mcdensity._validation import check_weights, weighted_quantile
from mcdensity.distribution.loglinear import LogLinear
from mcdensity.marginals.kde import KernelDensity

__all__ = ["TailedDensity"]


class TailedDensity(KernelDensity):
    r"""Kernel density mixed with a small share of a heavy-tailed one.

    .. math:: (1 - w) \, \hat f_{kernel}(y) + w \, t_\nu\left(\frac{y - m}{s}\right) / s

    A Gaussian kernel falls off within a few bandwidths of the outermost targets, so that a new
    target a little further out has next to no density, and a log-likelihood of minus hundreds. But
    of n + 1 targets the new one is the largest, or the smallest, with probability 2 / (n + 1). The
    default w = 2 / (n + 1) allows for that, and changes the density elsewhere by no more.

    Parameters
    ----------
    bandwidth : {"normal-reference", "silverman", "isj"} or float, default "normal-reference"
        See `KernelDensity`.
    tail_weight : float, optional
        The weight w; by default 2 / (n + 1), with the effective number of targets.
    degrees_of_freedom : float, default 3
        Of the Student t: fewer give heavier tails.

    Attributes
    ----------
    tail_weight_ : float
    bandwidth_, n_effective_ : float
        See `KernelDensity`.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.marginals import KernelDensity, TailedDensity
    >>> y = np.random.default_rng(0).normal(size=100)
    >>> KernelDensity().fit(y).logpdf(6.0).round(), TailedDensity().fit(y).logpdf(6.0).round()
    (np.float64(-51.0), np.float64(-10.0))
    """

    def __init__(
        self,
        bandwidth: str | float = "normal-reference",
        tail_weight: float | None = None,
        degrees_of_freedom: float = 3.0,
    ) -> None:
        super().__init__(bandwidth)
        self.tail_weight = tail_weight
        self.degrees_of_freedom = degrees_of_freedom

    def fit(self, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the density of y.

        Parameters
        ----------
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        """
        super().fit(y, sample_weight)
        # One row may hold nearly all weight: its kernel then still has half of the density.
        usual = min(2 / (self.n_effective_ + 1), 0.5)
        w = usual if self.tail_weight is None else self.tail_weight
        if not 0 < w < 1 or not self.degrees_of_freedom > 0:
            raise ValueError(
                "tail_weight must lie strictly between 0 and 1, and degrees_of_freedom be "
                f"positive, got {self.tail_weight!r} and {self.degrees_of_freedom!r}."
            )
        y = np.asarray(y, dtype=np.float64).ravel()
        kept, weight = check_weights(sample_weight, len(y))
        y = y if kept is None else y[kept]
        low, middle, high = weighted_quantile(y, [0.05, 0.5, 0.95], weight)
        scale = (high - low) / 3.29 if high > low else float(y.std())
        tail = stats.t(self.degrees_of_freedom, middle, scale)
        level = np.geomspace(1e-14, 0.5, 300)
        points = np.concatenate([self._law.knots[0], tail.ppf(level), tail.isf(level)])
        points = np.unique(points)
        mixed = np.logaddexp(np.log1p(-w) + self.logpdf(points), np.log(w) + tail.logpdf(points))
        self._law = LogLinear(points[None], mixed[None])
        self.tail_weight_ = float(w)
        return self
