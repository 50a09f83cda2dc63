"""Kernel density estimation, binned: the cost hardly depends on the number of targets."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity._validation import check_weights, weighted_quantile
from mcdensity.distribution.loglinear import LogLinear
from mcdensity.marginals.base import Marginal

__all__ = ["KernelDensity"]

# The kernel is tabulated at this many steps per bandwidth, to this many bandwidths, where it has
# fallen to exp(-32).
_STEPS = 16
_REACH = 8
# Nodes of the table at most, 8 MB: an outlier a million bandwidths away gets a coarser one.
_MAX_NODES = 1 << 20

_NORMAL_REFERENCE = (4 / 3) ** 0.2


class KernelDensity(Marginal):
    r"""Gaussian kernel density.

    .. math:: \hat f(y) = \frac{1}{n h} \sum_i \varphi\left(\frac{y - y_i}{h}\right)

    The targets are binned at a sixteenth of a bandwidth, convolved with the kernel once, and the
    logarithm is interpolated. The convolution is summed directly, not through the Fourier
    transform: the kernel is short, so this is as fast, and all terms are positive, so that the far
    tails keep their relative precision, where a transform would leave rounding noise. Long gaps
    between targets take no memory.

    Parameters
    ----------
    bandwidth : {"normal-reference", "silverman", "isj"} or float, default "normal-reference"
        With A = min(standard deviation, interquartile range / 1.349): 1.059 A n^(-1/5) (the
        paper's choice), 0.9 A n^(-1/5), Improved Sheather-Jones (better for several modes, needs
        some hundreds of targets), or a number, in the units of the y that `fit` is given (inside
        `mcdensity.MCD` that is the standardised target).

    Attributes
    ----------
    bandwidth_ : float
        The bandwidth in use.
    n_effective_ : float
        Number of targets; with weights, (sum of w)² / (sum of w²).
    gaps_ : ndarray of shape (k, 2)
        The stretches between targets that are too long for the kernels to fill.

    References
    ----------
    Silverman: Density Estimation for Statistics and Data Analysis, 1986. Botev, Grotowski, Kroese:
    Kernel density estimation via diffusion, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.marginals import KernelDensity
    >>> y = np.random.default_rng(0).normal(size=100_000)
    >>> kde = KernelDensity().fit(y)
    >>> np.exp(kde.logpdf(0.0)).round(2), kde.ppf(0.975).round(2)
    (np.float64(0.39), np.float64(1.97))
    """

    def __init__(self, bandwidth: str | float = "normal-reference") -> None:
        self.bandwidth = bandwidth

    def fit(self, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the density of y.

        Parameters
        ----------
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        """
        y = np.asarray(y, dtype=np.float64).ravel()
        if not np.isfinite(y).all():
            raise ValueError("y contains NaN or infinity; a marginal density needs numbers only.")
        kept, weight = check_weights(sample_weight, len(y))
        if kept is not None:
            y = y[kept]
        if len(y) < 2 or y.min() == y.max():
            raise ValueError("y is constant; a density needs at least two different targets.")
        weight = np.ones(len(y)) if weight is None else weight
        self.n_effective_ = float(weight.sum() ** 2 / (weight**2).sum())
        self.bandwidth_ = self._select_bandwidth(y, weight)
        self._law, self.gaps_ = _binned(y, weight, self.bandwidth_)
        return self

    def _select_bandwidth(self, y: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
        if not isinstance(self.bandwidth, str):
            if not 0 < self.bandwidth < np.inf:
                raise ValueError(f"bandwidth must be positive, got {self.bandwidth!r}.")
            return float(self.bandwidth)
        if self.bandwidth == "isj":
            from KDEpy.bw_selection import improved_sheather_jones

            try:
                with np.errstate(all="ignore"):
                    return float(improved_sheather_jones(y[:, None], weights=weight))
            except ValueError:
                warnings.warn(
                    'bandwidth="isj" found no solution for these targets (it needs some hundreds, '
                    'of a continuous variable); "normal-reference" is used.',
                    UserWarning,
                    stacklevel=3,
                )
        elif self.bandwidth not in ("normal-reference", "silverman"):
            raise ValueError(
                'bandwidth must be "normal-reference", "silverman", "isj" or a positive number, '
                f"got {self.bandwidth!r}."
            )
        factor = 0.9 if self.bandwidth == "silverman" else _NORMAL_REFERENCE
        mean = np.average(y, weights=weight)
        spread = float(np.sqrt(np.average((y - mean) ** 2, weights=weight)))
        low, high = weighted_quantile(y, [0.25, 0.75], weight)
        if high > low:
            spread = min(spread, (high - low) / 1.349)
        return float(factor * spread * self.n_effective_**-0.2)

    def logpdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Log-density at y."""
        return self._each(self._law.logpdf, y)

    def cdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """P(Y <= y)."""
        return self._each(self._law.cdf, y)

    def ppf(self, q: ArrayLike) -> NDArray[np.float64]:
        """Inverse of `cdf`."""
        return self._each(self._law.ppf, q)

    @staticmethod
    def _each(function: Any, values: ArrayLike) -> NDArray[np.float64]:
        values = np.asarray(values, dtype=np.float64)
        result = function(values.reshape(1, -1)).reshape(values.shape)
        return result[()]


def _binned(
    y: NDArray[np.float64], weight: NDArray[np.float64], bandwidth: float
) -> tuple[LogLinear, NDArray[np.float64]]:
    """Tabulate the density on stretches of the axis that are close enough to a target.

    Returns
    -------
    law : LogLinear
    gaps : ndarray of shape (k, 2)
        What lies between the stretches.
    """
    order = np.argsort(y)
    y, weight = y[order], weight[order]
    # A new stretch begins where two neighbours are further apart than both kernels reach.
    gap = np.diff(y) > 2 * _REACH * bandwidth
    stretch = np.concatenate([[0], np.cumsum(gap)])
    first = y[np.concatenate([[True], gap])]
    last = y[np.concatenate([gap, [True]])]
    # Coarser where there would be too many nodes: scattered targets have stretches of their own.
    for steps in (_STEPS, _STEPS // 2, _STEPS // 4):
        step, reach = bandwidth / steps, steps * _REACH
        length = np.ceil((last - first) / step).astype(np.int64) + 2 * reach + 1
        if length.sum() <= _MAX_NODES:
            break
    begin = np.concatenate([[0], np.cumsum(length)[:-1]])

    position = (y - first[stretch]) / step
    cell = position.astype(np.int64)
    part = position - cell
    cell += begin[stretch] + reach
    size = int(length.sum())
    count = np.bincount(cell, weight * (1 - part), size)
    count += np.bincount(cell + 1, weight * part, size)

    # The table of the kernel goes two steps further than the nodes, so that none is left empty.
    offset = np.arange(-reach - 2, reach + 3) / steps
    # The middle of all: mode="same" would return as many as the kernel has, if these are more.
    density = np.convolve(count, np.exp(-0.5 * offset**2))[reach + 2 : reach + 2 + size]
    node = np.arange(size) - np.repeat(begin + reach, length)
    points = np.repeat(first, length) + node * step
    outer = _REACH * bandwidth
    gaps = np.stack([last[:-1] + outer, first[1:] - outer], axis=1)
    return LogLinear(points[None], np.log(density)[None]), gaps
