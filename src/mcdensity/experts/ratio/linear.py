"""Logistic discriminators: on the raw pair, and on its degree-2 features."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from mcdensity.data import TrainingData
from mcdensity.experts.base import Evaluate, FitReport, RatioExpert, Rows
from mcdensity.experts.ratio.learner import LearnerDiscriminator
from mcdensity.experts.registry import register

__all__ = ["QuadraticDiscriminator", "elastic_net"]

Array = NDArray[np.float64]

# Up to this many columns of X all their products are features (at most 1,830, still feasible
# with Newton steps and some thousand pairs); beyond, only their squares.
_MAX_PRODUCTS = 60


@register("elastic-net")
def elastic_net(C: float = 1.0, l1_ratio: float = 0.5) -> LearnerDiscriminator:
    """Logistic regression on the raw (x, y), the paper's "elastic-net".

    Its logit has no product of x and y, so after normalising the density does not depend on x.
    It is here for comparison; `QuadraticDiscriminator` is the one to use.
    """
    return LearnerDiscriminator(
        LogisticRegression(C=C, l1_ratio=l1_ratio, solver="saga", tol=1e-3, max_iter=500)
    )


@register("quadratic", portfolio=0)
class QuadraticDiscriminator(RatioExpert):
    r"""Logistic regression on all terms of degree one and two in (x, y).

    With more than 60 columns the products of two different columns of x are left out.

    .. math:: \operatorname{logit} q(x, y) = a(x) + b(x) y + c y^2

    with a quadratic and b linear in x. If y given x is normal with a mean linear in x and a
    constant variance, and y is normal, this is the true logit. It fits in milliseconds, and
    evaluating it on a grid costs almost nothing.

    Parameters
    ----------
    C : float, default 10.0
        Inverse strength of the ridge penalty, as in `LogisticRegression` for a thousand pairs: it
        is relative to the mean loss, so that its meaning does not depend on the number of pairs.

    Attributes
    ----------
    learner_ : LogisticRegression

    Examples
    --------
    >>> from mcdensity import MCD
    >>> from mcdensity.simulators import get_simulator
    >>> X, y = get_simulator("LinearGauss").sample(200, random_state=0)
    >>> MCD("quadratic", discriminator_params={"C": 0.1}).fit(X, y).discriminator_
    QuadraticDiscriminator(C=0.1)
    """

    smooth: ClassVar[bool] = True
    sees_all_pairs: ClassVar[bool] = True
    quick: ClassVar[bool] = True
    # Beyond, its pairs take seconds, and it had no weight on any set that was tried.
    most_observations: ClassVar[float] = 2000

    def __init__(self, C: float = 10.0) -> None:
        self.C = C

    def fit(self, data: TrainingData) -> FitReport:
        """Learn from all pairs of the contrast set."""
        contrast = data.contrast()
        pool, x = contrast.x_pool, contrast.x_index
        y = contrast.y_pool[contrast.y_index]
        if y.shape[1] > 1:  # all targets but the last are as features
            pool, x, y = np.hstack([pool[x], y[:, :-1]]), np.arange(len(contrast)), y[:, -1:]
        p = pool.shape[1]
        rows, columns = np.triu_indices(p) if p <= _MAX_PRODUCTS else (np.arange(p),) * 2
        self._products = rows, columns
        x_features = self._x_features(pool)
        k = x_features.shape[1]
        design = np.empty((len(contrast), k + p + 2))
        design[:, :k] = x_features[x]
        design[:, k : k + p] = pool[x] * y
        design[:, -2:] = np.concatenate([y, y**2], axis=1)
        # Newton's steps are exact and few, but need the square of the number of features.
        solver = "newton-cholesky" if design.shape[1] <= 500 else "lbfgs"
        self.learner_ = LogisticRegression(
            C=self.C * 1000 / len(contrast), solver=solver, max_iter=300
        )
        self.learner_.fit(design, contrast.label, sample_weight=contrast.weight)
        self.ratio_ = contrast.ratio
        coefficient = self.learner_.coef_[0]
        self._of_x, self._of_xy = coefficient[:k], coefficient[k : k + p]
        self._of_y, self._of_yy = coefficient[-2:]
        self.make_table(data)
        return FitReport.empty()

    def _x_features(self, X: Array) -> Array:
        rows, columns = self._products
        return np.concatenate([X, X[:, rows] * X[:, columns]], axis=1)

    def _terms(self, X: Array) -> tuple[Array, Array]:
        constant = self._x_features(X) @ self._of_x + self.learner_.intercept_[0]
        return constant[:, None], (X @ self._of_xy + self._of_y)[:, None]

    def logit_rows(self, X: Array, Y: Array) -> Array:
        """Logit of q at (X[i], Y[i, j])."""
        return self._conditioned_logit(X)(Y, None)

    def _conditioned_logit(self, X: Array) -> Evaluate:
        constant, slope = self._terms(X)

        def evaluate(y: Array, rows: Rows | None) -> Array:
            a, b = (constant, slope) if rows is None else (constant[rows], slope[rows])
            return a + y * (b + self._of_yy * y)

        return evaluate

    def describe(self) -> str:
        """Name for messages."""
        return "quadratic"
