"""Random forests for conditional densities, also for functional features.

References
----------
Pospisil, Lee: RFCDE: Random forests for conditional density estimation, 2018; (f)RFCDE: Random
forests for conditional density estimation and functional data, 2019. Meinshausen: Quantile
regression forests, 2006.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.stats import poisson
from sklearn.base import clone
from sklearn.tree import DecisionTreeRegressor

from mcdensity._validation import as_generator, check_integer, check_number
from mcdensity.baselines.kernels import (
    WeightedKernelEstimator,
    candidates,
    cde_losses,
    check_bandwidth,
    evaluation_rows,
)
from mcdensity.baselines.series import cosine_basis

__all__ = ["RFCDE", "FunctionalRFCDE"]

Array = NDArray[np.float64]

# Largest number of rows that a tree is grown from.
_MOST_ROWS = 20_000
# Mean lengths of the intervals of a functional feature to choose from; 0 takes each column alone.
_FLAMBDAS = (0, 1, 5, 20, 80)


class RFCDE(WeightedKernelEstimator):
    r"""Forest whose splits lower the CDE loss of a cosine series, with a kernel density at the end.

    In a node the best series has the coefficients :math:`\overline{\phi_i(y)}`, and its loss is
    minus the sum of their squares; so the best split is that of a regression tree with the targets
    :math:`\phi_1(y), \ldots, \phi_I(y)`. The training rows that share leaves with x are its
    neighbours, weighted as in a quantile regression forest, and their targets are smoothed.

    Parameters
    ----------
    n_trees : int, default 100
    min_samples_leaf : int, optional
        Least number of rows in a leaf; by default n^0.4, at least 10.
    max_features : int, optional
        Features considered for a split; by default the square root of their number, at least 4.
    n_basis : int, optional
        Number of basis functions, the constant included; by default 15, or as many as there are
        rows.
    bandwidth : "cv" or float, default "cv"
        Of the kernel, in standard deviations of y; chosen by the likelihood of out-of-bag rows.
    n_jobs : int, optional
        Threads that grow trees.
    random_state : int, Generator or None

    Attributes
    ----------
    trees_ : list of DecisionTreeRegressor
    bandwidth_ : float
    cde_loss_ : float
        Out of bag, where the bandwidth was chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.baselines import RFCDE
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, size=500)
    >>> model = RFCDE(random_state=0).fit(x[:, None], x + 0.1 * rng.normal(size=500))
    >>> model.predict([[0.5]]).round(1)
    array([0.5])
    """

    def __init__(
        self,
        n_trees: int = 100,
        min_samples_leaf: int | None = None,
        max_features: int | None = None,
        n_basis: int | None = None,
        bandwidth: str | float = "cv",
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_trees = n_trees
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.n_basis = n_basis
        self.bandwidth = bandwidth
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _groups(self, p: int, rng: np.random.Generator) -> NDArray[np.intp]:
        """Return the first features of the groups whose means a tree sees: here each is alone."""
        return np.arange(p)

    def _fit(self, X: Array, y: Array, sample_weight: Array | None, **extra: Any) -> None:
        n, p = X.shape
        self._check(n)
        rng = as_generator(self.random_state)
        size = min(15, n) if self.n_basis is None else check_integer("n_basis", self.n_basis, 2, n)
        z = (y - y.min()) / (y.max() - y.min())
        basis = cosine_basis(z, size)[:, 1:]
        usual = min(max(10, round(n**0.4)), max(1, n // 4))
        leaf = int(self.min_samples_leaf or usual)
        groups, count, seeds = [], [], []
        for _ in range(int(self.n_trees)):
            drawn = rng.integers(n, size=min(n, _MOST_ROWS))
            count.append(np.bincount(drawn, minlength=n).astype(np.float64))
            seeds.append(int(rng.integers(2**31)))
            groups.append(self._groups(p, np.random.default_rng(rng.integers(2**63))))
        self.groups_ = groups

        def grow(t: int) -> DecisionTreeRegressor:
            features = self._means(X, t)
            most = int(self.max_features or 0) or max(4, int(np.ceil(np.sqrt(features.shape[1]))))
            tree = DecisionTreeRegressor(
                min_samples_leaf=leaf,
                max_features=min(most, features.shape[1]),
                random_state=seeds[t],
            )
            drawn = np.flatnonzero(count[t])
            weight = count[t][drawn]
            if sample_weight is not None:
                weight = weight * sample_weight[drawn]
            return tree.fit(features[drawn], basis[drawn], weight)

        self.trees_ = Parallel(n_jobs=self.n_jobs, prefer="threads")(
            delayed(grow)(t) for t in range(int(self.n_trees))
        )
        # Leaves are numbered through all trees.
        self._first_node = np.cumsum([0, *(tree.tree_.node_count for tree in self.trees_)])
        node = self._nodes_of(X)
        share = np.stack(count, axis=1) * (1 if sample_weight is None else sample_weight[:, None])
        inside = share > 0
        self._leaves = csr_matrix(
            (share[inside], (np.nonzero(inside)[0], node[inside])), (n, self._first_node[-1])
        )
        total = np.asarray(self._leaves.sum(axis=0)).ravel()
        self._leaves.data /= total[self._leaves.indices]
        self._leaves = self._leaves.T.tocsr()
        bandwidth = self.bandwidth
        if isinstance(bandwidth, str):
            bandwidth = self._choose_bandwidth(y, node, inside, sample_weight)
        self._remember(y, bandwidth)

    def _choose_bandwidth(
        self, y: Array, node: NDArray[np.intp], inside: NDArray[np.bool_], weight: Array | None
    ) -> float:
        hs = candidates(y, weight)
        rows = evaluation_rows(len(y))
        rows = rows[~inside[rows].all(axis=1)]
        if len(rows) == 0:  # few rows and trees: no row is out of any bag
            return float(hs[len(hs) // 2])
        weights = self._from_nodes(node[rows], ~inside[rows])
        own = None if weight is None else weight[rows]
        losses = cde_losses([weights], y, y[rows], hs, own, logarithmic=True)[0]
        best = hs[np.argmin(losses)]
        self.cde_loss_ = float(cde_losses([weights], y, y[rows], np.array([best]), own)[0, 0])
        return float(best)

    def _check(self, n: int) -> None:
        check_bandwidth(self.bandwidth)
        check_integer("n_trees", self.n_trees)
        if self.min_samples_leaf is not None:
            check_integer("min_samples_leaf", self.min_samples_leaf, 1, n)
        if self.max_features is not None:
            check_integer("max_features", self.max_features)

    def _means(self, X: Array, t: int) -> Array:
        """Return the means of the groups of features that tree t looks at."""
        first = self.groups_[t]
        if len(first) == X.shape[1]:
            return X
        return np.add.reduceat(X, first, axis=1) / np.diff(np.append(first, X.shape[1]))

    def _nodes_of(self, X: Array) -> NDArray[np.intp]:
        """Number of the leaf of each row in each tree, shape (rows, n_trees)."""
        return np.stack(
            [
                tree.apply(self._means(X, t)) + first
                for t, (tree, first) in enumerate(
                    zip(self.trees_, self._first_node[:-1], strict=True)
                )
            ],
            axis=1,
        )

    def _from_nodes(self, node: NDArray[np.intp], use: NDArray[np.bool_]) -> csr_matrix:
        row = np.nonzero(use)[0]
        share = (1 / use.sum(axis=1))[row]
        hits = csr_matrix((share, (row, node[use])), (len(node), self._first_node[-1]))
        return csr_matrix(hits @ self._leaves)

    def _row_weights(self, X: Array) -> csr_matrix:
        node = self._nodes_of(X)
        return self._from_nodes(node, np.ones(node.shape, dtype=bool))


class FunctionalRFCDE(RFCDE):
    """RFCDE for features that are values of a function in their order, such as a spectrum.

    Each tree cuts the features into groups of neighbours, whose lengths are Poisson numbers (zero
    left out) of mean about `flambda`, and splits on the means of the groups: noise averages out.

    Parameters
    ----------
    flambda : "cv" or float, default "cv"
        Parameter of the Poisson distribution; with 0 each feature is a group, which is `RFCDE`.
        Chosen by the out-of-bag CDE loss of smaller forests.
    n_trees, min_samples_leaf, max_features, n_basis, bandwidth, n_jobs, random_state
        As in `RFCDE`.

    Attributes
    ----------
    flambda_ : float
    groups_ : list of ndarray
        For each tree the first features of its groups.
    trees_, bandwidth_, cde_loss_
        As in `RFCDE`.
    """

    def __init__(
        self,
        flambda: str | float = "cv",
        n_trees: int = 100,
        min_samples_leaf: int | None = None,
        max_features: int | None = None,
        n_basis: int | None = None,
        bandwidth: str | float = "cv",
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            n_trees, min_samples_leaf, max_features, n_basis, bandwidth, n_jobs, random_state
        )
        self.flambda = flambda

    def _check(self, n: int) -> None:
        super()._check(n)
        if not (isinstance(self.flambda, str) and self.flambda == "cv"):
            check_number("flambda", self.flambda, closed=True, word="cv")

    def _fit(self, X: Array, y: Array, sample_weight: Array | None, **extra: Any) -> None:
        self._check(len(y))
        if isinstance(self.flambda, str):
            rng = as_generator(self.random_state)
            losses = {}
            for value in [v for v in _FLAMBDAS if v < X.shape[1]]:
                trial = clone(self).set_params(
                    flambda=value,
                    n_trees=max(10, int(self.n_trees) // 4),
                    bandwidth="cv",
                    random_state=int(rng.integers(2**31)),
                )
                trial._fit(X, y, sample_weight)
                losses[value] = getattr(trial, "cde_loss_", np.inf)
            self.flambda_ = float(min(losses, key=lambda v: losses[v]))
        else:
            self.flambda_ = float(self.flambda)
        super()._fit(X, y, sample_weight)

    def _groups(self, p: int, rng: np.random.Generator) -> NDArray[np.intp]:
        if self.flambda_ == 0:
            return np.arange(p)
        # The quantile of a uniform draw above P(0) is a Poisson number that is not zero.
        least = np.exp(-self.flambda_)
        if least == 1 or self.flambda_ > 10 * p:  # groups of one, or one group
            return np.arange(p) if least == 1 else np.zeros(1, dtype=np.intp)
        lengths = poisson.ppf(rng.uniform(least, 1, size=p), self.flambda_)
        ends = np.cumsum(np.clip(lengths, 1, p)).astype(np.intp)
        return np.concatenate([[0], ends[ends < p]])
