"""Least-squares conditional density estimation.

References
----------
Sugiyama, Takeuchi, Suzuki, Kanamori, Hachiya, Okanohara: Conditional density estimation via
least-squares density ratio estimation, 2010.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics.pairwise import euclidean_distances

from mcdensity._validation import as_generator, check_integer, check_number
from mcdensity.baselines.kernels import check_bandwidth
from mcdensity.distribution import ConditionalDistribution, GaussianMixtureDistribution
from mcdensity.estimator import ConditionalEstimator

__all__ = ["LSCDE"]

Array = NDArray[np.float64]

# Candidates of the cross-validation, on standardised data: bandwidths of y, factors for those of x,
# and weights of the ridge, each on a wide geometric grid that was not tuned.
_BANDWIDTHS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
_WIDER_IN_X = (1.0, 2.0, 4.0)
_REGULARIZATIONS = (1e-3, 1e-2, 1e-1, 1.0)
# The choice is made with at most so many centres and rows.
_CHOICE_CENTERS, _CHOICE_ROWS = 150, 2000
_FOLDS = 5


class LSCDE(ConditionalEstimator):
    r"""The density ratio p(x, y) / p(x) as a combination of Gaussian kernels, by least squares.

    .. math:: \hat f(y \mid x) \propto \sum_l \alpha_l
        \exp\left(-\frac{\lVert x - u_l \rVert^2}{2 s^2} - \frac{(y - v_l)^2}{2 h^2}\right)

    The weights solve :math:`(H + \lambda I) \alpha = b`, negative ones are cut to zero, and each
    row is normalised in closed form: it is a Gaussian mixture.

    Parameters
    ----------
    bandwidth : "cv" or float, default "cv"
        h, on standardised data. 0.5 is the value of the `cde` package.
    x_bandwidth : float, optional
        s; by default, chosen together with h where that is "cv", else the same as h.
    regularization : "cv" or float, default "cv"
        :math:`\lambda`.
    n_centers : int, default 500
        Number of centres (u, v), found by k-means among the training pairs; with no more rows than
        this every row is a centre.
    random_state : int, Generator or None

    Parameters set to "cv" are chosen by the log-likelihood of held-out training rows.

    Attributes
    ----------
    bandwidth_, x_bandwidth_, regularization_ : float
    centers_ : ndarray of shape (n_centers, p + 1)
    solution_ : ndarray of shape (n_centers,)
        The solution of the linear equations.
    weights_ : ndarray of shape (n_centers,)
        Its positive part.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.baselines import LSCDE
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, size=500)
    >>> model = LSCDE(random_state=0).fit(x[:, None], x + 0.1 * rng.normal(size=500))
    >>> model.predict([[0.5]]).round(1)
    array([0.5])
    """

    def __init__(
        self,
        bandwidth: str | float = "cv",
        x_bandwidth: float | None = None,
        regularization: str | float = "cv",
        n_centers: int = 500,
        random_state: Any = None,
    ) -> None:
        self.bandwidth = bandwidth
        self.x_bandwidth = x_bandwidth
        self.regularization = regularization
        self.n_centers = n_centers
        self.random_state = random_state

    def _fit(self, X: Array, y: Array, sample_weight: Array | None, **extra: Any) -> None:
        self._check()
        rng = as_generator(self.random_state)
        n = len(y)
        weight = np.full(n, 1 / n) if sample_weight is None else sample_weight / n
        seed = int(rng.integers(2**31))
        settings = self._candidates()
        if len(settings) > 1:
            settings = [self._choose(X, y, weight, settings, rng, seed)]
        self.bandwidth_, self.x_bandwidth_, self.regularization_ = settings[0]
        self.centers_ = _centers(X, y, weight, int(self.n_centers), seed)
        H, b = normal_equations(X, y, weight, self.centers_, self.bandwidth_, self.x_bandwidth_)
        self.solution_ = _solve(H, b, self.regularization_)
        self.weights_ = _positive(self.solution_)

    def _check(self) -> None:
        check_bandwidth(self.bandwidth)
        if self.x_bandwidth is not None:
            check_number("x_bandwidth", self.x_bandwidth, high=1e6)
        if not (isinstance(self.regularization, str) and self.regularization == "cv"):
            check_number("regularization", self.regularization, word="cv")
        check_integer("n_centers", self.n_centers)

    def _candidates(self) -> list[tuple[float, float, float]]:
        if isinstance(self.bandwidth, str):
            pairs = [
                (h, self.x_bandwidth or factor * h)
                for h in _BANDWIDTHS
                for factor in (_WIDER_IN_X if self.x_bandwidth is None else (1.0,))
            ]
        else:
            pairs = [(float(self.bandwidth), self.x_bandwidth or float(self.bandwidth))]
        given = self.regularization
        lambdas = _REGULARIZATIONS if isinstance(given, str) else (float(given),)
        return [(*pair, value) for pair, value in itertools.product(pairs, lambdas)]

    def _choose(
        self,
        X: Array,
        y: Array,
        weight: Array,
        settings: list[tuple[float, float, float]],
        rng: np.random.Generator,
        seed: int,
    ) -> tuple[float, float, float]:
        some = rng.permutation(len(y))[:_CHOICE_ROWS]
        X, y, weight = X[some], y[some], weight[some]
        fold = np.arange(len(y)) % min(_FOLDS, len(y))
        score = np.zeros(len(settings))
        for number in np.unique(fold):
            train, test = fold != number, fold == number
            share = weight[train] / weight[train].sum()
            centers = _centers(
                X[train], y[train], share, min(int(self.n_centers), _CHOICE_CENTERS), seed
            )
            before: tuple[Any, ...] = ()
            for i, (h, s, value) in enumerate(settings):
                if before[:2] != (h, s):
                    H, b = normal_equations(X[train], y[train], share, centers, h, s)
                    before = h, s
                alpha = _positive(_solve(H, b, value))
                density = _mixture(X[test], centers, alpha, h, s).logpdf(y[test])
                # As if mixed with a wide density: no single row should decide.
                floor = np.log(1 / len(y)) - 0.5 * (y[test] / 3) ** 2 - np.log(3)
                score[i] += (weight[test] * np.logaddexp(density, floor)).sum()
        return settings[int(np.argmax(score))]

    def _row_size(self) -> int:
        return len(self.centers_)

    def _distribution(self, X: Array) -> ConditionalDistribution:
        return _mixture(X, self.centers_, self.weights_, self.bandwidth_, self.x_bandwidth_)


def normal_equations(
    X: Array, y: Array, weight: Array, centers: Array, bandwidth: float, x_bandwidth: float
) -> tuple[Array, Array]:
    """Return the matrix H and the vector b of the least-squares problem.

    H is the mean over the rows of the integral over y of the products of two kernels, b the mean of
    a kernel at the pairs; `weight` sums to one.
    """
    of_x = np.exp(-euclidean_distances(X, centers[:, :-1], squared=True) / (2 * x_bandwidth**2))
    v = centers[:, -1]
    of_y = np.exp(-((y[:, None] - v) ** 2) / (2 * bandwidth**2))
    both = np.sqrt(np.pi) * bandwidth * np.exp(-((v[:, None] - v) ** 2) / (4 * bandwidth**2))
    return both * ((of_x * weight[:, None]).T @ of_x), weight @ (of_x * of_y)


def _solve(H: Array, b: Array, regularization: float) -> Array:
    return np.asarray(cho_solve(cho_factor(H + regularization * np.eye(len(H))), b))


def _positive(solution: Array) -> Array:
    """Cut negative weights; with none left, which a strong penalty avoids, all weigh the same."""
    positive = np.maximum(solution, 0)
    return positive if positive.any() else np.ones(len(positive))


def _mixture(
    X: Array, centers: Array, alpha: Array, bandwidth: float, x_bandwidth: float
) -> GaussianMixtureDistribution:
    used = alpha > 0
    distance = euclidean_distances(X, centers[used, :-1], squared=True)
    # In logarithms: far from all centres the nearest one decides.
    log_weight = np.log(alpha[used]) - distance / (2 * x_bandwidth**2)
    weights = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    return GaussianMixtureDistribution(weights, centers[None, used, -1], np.full((1, 1), bandwidth))


def _centers(X: Array, y: Array, weight: Array, count: int, seed: int) -> Array:
    pairs = np.column_stack([X, y])
    if count >= len(pairs):
        return pairs
    means = MiniBatchKMeans(count, random_state=seed, n_init=1, max_iter=20)
    return np.asarray(means.fit(pairs, sample_weight=weight).cluster_centers_)
