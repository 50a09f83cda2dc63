"""Kernel densities of weighted targets: what neighbours and forests have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.stats import norm

from mcdensity._validation import check_number, weighted_quantile
from mcdensity.distribution import ConditionalDistribution, GaussianMixtureDistribution
from mcdensity.estimator import ConditionalEstimator

__all__ = ["FEW", "WeightedKernelEstimator", "cde_losses", "check_bandwidth", "evaluation_rows"]

Array = NDArray[np.float64]

# Candidates for the bandwidth, relative to that of a normal y for all targets.
_RELATIVE = np.geomspace(0.003, 3, 24)
# Rows that a choice is judged by, and bins of the targets meanwhile.
_EVALUATED = 1000
_BINS = 400
# Rows may have kernels of their own up to this number; else they share kernels, and where that
# saves some, the targets are gathered at steps of a bandwidth / 8.
FEW = 256
_STEPS = 8


class WeightedKernelEstimator(ConditionalEstimator):
    r"""Base of methods that give each training row a weight and smooth the weighted targets.

    .. math:: \hat f(y \mid x) = \sum_i w_i(x) \, \varphi\left(\frac{y - y_i}{h}\right) / h

    Subclasses implement ``_row_weights(X)``, a sparse matrix of shape (rows, n), and set
    `bandwidth_`, in standardised units, through ``_remember``. `_own_kernels` is the number of
    kernels of a row where it is the same small number for all.
    """

    bandwidth_: float
    _own_kernels: int | None = None

    def _row_weights(self, X: Array) -> csr_matrix:
        raise NotImplementedError

    def _remember(self, y: Array, bandwidth: float) -> None:
        self._y, self.bandwidth_ = y, float(bandwidth)
        self._nodes, self._gather = _gathered(y, bandwidth / _STEPS)

    def _row_size(self) -> int:
        return self._own_kernels or min(len(self._y), len(self._nodes))

    def _distribution(self, X: Array) -> ConditionalDistribution:
        weights = self._row_weights(X)
        if self._own_kernels:
            shape = len(X), self._own_kernels
            return GaussianMixtureDistribution(
                weights.data.reshape(shape),
                self._y[weights.indices].reshape(shape),
                np.full((1, 1), self.bandwidth_),
            )
        if len(self._nodes) < len(self._y):
            shared, centers = weights @ self._gather, self._nodes
        else:
            shared, centers = weights, self._y
        return GaussianMixtureDistribution(
            shared.toarray(), centers[None], np.full((1, 1), self.bandwidth_)
        )


def check_bandwidth(bandwidth: Any) -> None:
    """Check a bandwidth that is "cv" or a positive number, in standard deviations of y."""
    if not (isinstance(bandwidth, str) and bandwidth == "cv"):
        check_number("bandwidth", bandwidth, high=1e6, word="cv")


def candidates(y: Array, weight: Array | None) -> Array:
    """Return bandwidths to choose from.

    Where targets are equal, as rounded ones are, the loss falls without bound as kernels become
    spikes at their values: bandwidths then start at half of the usual step between values.
    """
    low, high = weighted_quantile(y, [0.25, 0.75], weight)
    spread = min(1.0, (high - low) / 1.349) or 1.0
    usual = 1.06 * spread * len(y) ** -0.2
    distinct = np.unique(y)
    if len(distinct) == len(y):
        return usual * _RELATIVE
    least = max(0.03 * usual, float(np.median(np.diff(distinct))) / 2)
    return np.geomspace(least, max(3 * usual, 2 * least), len(_RELATIVE))


def evaluation_rows(n: int) -> NDArray[np.intp]:
    """Return evenly spread rows that a choice is judged by: all, where there are not too many."""
    return np.unique(np.linspace(0, n - 1, min(n, _EVALUATED)).round().astype(np.intp))


def cde_losses(
    weights: list[csr_matrix],
    y: Array,
    at: Array,
    bandwidths: Array,
    weight: Array | None,
    logarithmic: bool = False,
) -> Array:
    """CDE losses of several kernel estimates, shape (len(weights), len(bandwidths)).

    Parameters
    ----------
    weights : list of sparse matrices of shape (R, n)
        Of the training rows, for each of R rows that are held out; one matrix per candidate.
    y : ndarray of shape (n,)
        Training targets.
    at : ndarray of shape (R,)
        Targets of the held-out rows.
    bandwidths : ndarray of shape (H,)
    weight : ndarray of shape (R,), optional
        Weights of the held-out rows.
    logarithmic : bool, default False
        Whether to return minus the log-likelihood instead, with a small share of a wide density,
        so that one row alone does not decide.
    """
    centers, gather = _binned(y)
    counts = [(w @ gather).toarray() for w in weights]
    out = np.empty((len(weights), len(bandwidths)))
    for j, h in enumerate(bandwidths):
        point = norm.pdf(at[:, None], centers, h)
        square = None if logarithmic else norm.pdf(centers[:, None], centers, np.sqrt(2) * h)
        for i, count in enumerate(counts):
            if square is None:
                little = 2 / (len(y) + 1) * norm.pdf(at, 0, 2)
                density = (point * count).sum(axis=1) + little
                loss = -np.log(np.maximum(density, 1e-300))
            else:
                loss = ((count @ square - 2 * point) * count).sum(axis=1)
            out[i, j] = np.average(loss, weights=weight)
    return out


def _binned(y: Array) -> tuple[Array, csr_matrix]:
    """Groups of neighbouring targets, with the mean of each, and the matrix that sums by group."""
    n = len(y)
    order = np.argsort(y, kind="stable")
    group = np.empty(n, dtype=np.intp)
    group[order] = np.arange(n) * min(n, _BINS) // n
    centers = np.bincount(group, y) / np.bincount(group)
    return centers, csr_matrix((np.ones(n), (np.arange(n), group)), (n, len(centers)))


def _gathered(y: Array, step: float) -> tuple[Array, csr_matrix]:
    """Nodes of an even grid next to targets, and the matrix that shares targets among them."""
    n = len(y)
    position = (y - y.min()) / step
    cell = np.floor(position)
    part = position - cell
    nodes, column = np.unique(np.concatenate([cell, cell + 1]), return_inverse=True)
    row = np.concatenate([np.arange(n), np.arange(n)])
    matrix = csr_matrix((np.concatenate([1 - part, part]), (row, column)), (n, len(nodes)))
    return y.min() + step * nodes, matrix
