"""Nearest-neighbour kernel conditional density estimation.

References
----------
Pospisil, Izbicki, Lee: NNKCDE, 2020. Izbicki, Lee, Freeman: Photo-z estimation, 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.neighbors import NearestNeighbors

from mcdensity._several import SeveralTargets
from mcdensity._validation import check_integer
from mcdensity.baselines.kernels import (
    FEW,
    WeightedKernelEstimator,
    candidates,
    cde_losses,
    check_bandwidth,
    evaluation_rows,
)

__all__ = ["NNKCDE", "neighbor_counts", "neighbors_without_itself"]

Array = NDArray[np.float64]

# The most neighbours to choose from: it bounds the memory, and was not tuned.
_MOST_NEIGHBORS = 2000


class NNKCDE(SeveralTargets, WeightedKernelEstimator):
    """The targets of the k nearest neighbours of x, smoothed with a Gaussian kernel.

    Parameters
    ----------
    n_neighbors : "cv" or int, default "cv"
        Number of neighbours.
    bandwidth : "cv" or float, default "cv"
        Of the kernel, in standard deviations of y.

    Both are chosen together, by the CDE loss of training rows that are left out of their own
    neighbours (evaluated on at most 1000 rows).

    Attributes
    ----------
    n_neighbors_ : int
    bandwidth_ : float
    cde_loss_ : float
        The least loss, where there was a choice.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.baselines import NNKCDE
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, size=500)
    >>> model = NNKCDE().fit(x[:, None], x + 0.1 * rng.normal(size=500))
    >>> model.predict([[0.5]]).round(1)
    array([0.5])
    """

    def __init__(self, n_neighbors: str | int = "cv", bandwidth: str | float = "cv") -> None:
        self.n_neighbors = n_neighbors
        self.bandwidth = bandwidth

    def _fit(self, X: Array, y: Array, sample_weight: Array | None, **extra: Any) -> None:
        n = len(y)
        check_bandwidth(self.bandwidth)
        if isinstance(self.n_neighbors, str):
            if self.n_neighbors != "cv":
                raise ValueError(
                    f'n_neighbors must be "cv" or an integer, got {self.n_neighbors!r}.'
                )
            ks = neighbor_counts(n, _MOST_NEIGHBORS)
        else:
            # No more neighbours than there are rows.
            ks = np.array([check_integer("n_neighbors", self.n_neighbors, 1, n)])
        hs = (
            candidates(y, sample_weight)
            if isinstance(self.bandwidth, str)
            else np.array([float(self.bandwidth)])
        )
        self._neighbors = NearestNeighbors().fit(X)
        self._weight = sample_weight
        self.n_neighbors_, bandwidth = int(ks[0]), hs[0]
        if len(ks) > 1 or len(hs) > 1:
            rows = evaluation_rows(n)
            kept = np.minimum(ks, n - 1)  # a row is not its own neighbour here
            index = neighbors_without_itself(self._neighbors, X, rows, kept.max())
            losses = cde_losses(
                [self._as_weights(index[:, :k]) for k in kept],
                y,
                y[rows],
                hs,
                None if sample_weight is None else sample_weight[rows],
            )
            i, j = np.unravel_index(np.argmin(losses), losses.shape)
            self.n_neighbors_, bandwidth = int(ks[i]), hs[j]
            self.cde_loss_ = float(losses[i, j])
        self._own_kernels = self.n_neighbors_ if self.n_neighbors_ <= FEW else None
        self._remember(y, bandwidth)

    def _as_weights(self, index: NDArray[np.intp]) -> csr_matrix:
        rows, k = index.shape
        data = np.ones(index.size) if self._weight is None else self._weight[index.ravel()]
        data = (data.reshape(rows, k) / data.reshape(rows, k).sum(axis=1, keepdims=True)).ravel()
        n = self._neighbors.n_samples_fit_
        return csr_matrix((data, index.ravel(), np.arange(rows + 1) * k), (rows, n))

    def _row_weights(self, X: Array) -> csr_matrix:
        return self._as_weights(
            self._neighbors.kneighbors(X, self.n_neighbors_, return_distance=False)
        )


def neighbor_counts(n: int, most: int) -> NDArray[np.intp]:
    """Numbers of neighbours to choose from."""
    most = min(n - 1, most)
    return np.unique(np.geomspace(min(3, most), most, 14).round().astype(np.intp))


def neighbors_without_itself(
    tree: NearestNeighbors, X: Array, rows: NDArray[np.intp], k: int
) -> NDArray[np.intp]:
    """Neighbours of training rows, the row itself left out, shape (len(rows), k)."""
    index = tree.kneighbors(X[rows], k + 1, return_distance=False)
    own = index == rows[:, None]
    own[~own.any(axis=1), -1] = True  # it is behind k + 1 copies of itself
    return index[~own].reshape(len(rows), k)
