r"""Several targets by the paper's pairs: a joint law without x, times a classifier's ratio.

.. math:: f(y \mid x) = f_Y(y) \frac{q(x, y)}{1 - q(x, y)} \frac{1 - r}{r}, \quad y \in R^k

:math:`f_Y` is a chain that does not look at x. Any classifier of pairs (x, y) serves: it sees all
targets as columns beside those of x.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mcdensity._effort import EFFORTS
from mcdensity._inputs import InputChecks
from mcdensity._pairs import group_codes
from mcdensity._validation import as_generator
from mcdensity.chain import EstimatorLink, fit_links
from mcdensity.data import TrainingData
from mcdensity.discriminators import make_discriminator
from mcdensity.distribution.tilted import TiltedDistribution
from mcdensity.experts.base import RatioExpert

__all__ = ["LEAST_DRAWS", "BlindLink", "JointContrast", "fit_common_law"]

Array = NDArray[np.float64]

# The classifier where none is named that learns a ratio.
_USUAL = "mlp"
# Log-ratios beyond this are those of pairs that were never seen.
_LIMIT = 30.0
# Pairs whose ratio is computed at once.
_BLOCK = 1 << 17
# Where fewer draws of the common law count, nothing is precise.
LEAST_DRAWS = 30.0


class BlindLink(EstimatorLink):
    """A link that sees a column of zeros in the place of x."""

    def __init__(self, estimator: Any, n_features: int) -> None:
        super().__init__(estimator)
        self.n_features = n_features

    def _inputs(self, X: Array) -> Array:
        return np.hstack([np.zeros((len(X), 1)), X[:, self.n_features :]])


def fit_common_law(
    model: Any,
    Y: Array,
    sample_weight: Array | None,
    order: Sequence[int],
    settings: Sequence[dict[str, Any]],
) -> list[Any]:
    """Fit a chain that does not look at x; the first link is the law of one target alone."""
    budget = None if model.time_budget is None else model.time_budget / 2
    plain = clone(model, safe=False).set_params(
        discriminator="auto", discriminator_params=None, effort="fast", time_budget=budget
    )
    # Of a constant column there is nothing to learn.
    first = {"discriminator": "quadratic", "discriminator_params": None}
    each = [s | first if j == order[0] else s for j, s in enumerate(settings)]
    return fit_links(plain, np.zeros((len(Y), 1)), Y, sample_weight, order, each)


class JointContrast(InputChecks):
    """The ratio of the law of y given x to that of y alone, for y of k columns.

    Parameters
    ----------
    discriminator, discriminator_params, construction, ratio, random_state, effort, n_jobs
        As for `MCD`. A name that stands for densities, or for a portfolio, becomes "mlp"; of ratios
        none is chosen by cross-validation, "auto" is 0.05.
    time_budget : float, optional
        Of the whole model; half of it is for the ratio, the other half for the law of y alone.

    Attributes
    ----------
    expert_ : RatioExpert
    spaces_ : list of TargetSpace
        Coordinates of the targets that the classifier sees.
    """

    def __init__(
        self,
        discriminator: Any = _USUAL,
        discriminator_params: dict[str, Any] | None = None,
        construction: str = "auto",
        ratio: float | str = 0.05,
        random_state: Any = None,
        effort: str = "normal",
        n_jobs: int | None = None,
        time_budget: float | None = None,
    ) -> None:
        self.discriminator = discriminator
        self.discriminator_params = discriminator_params
        self.construction = construction
        self.ratio = ratio
        self.random_state = random_state
        self.effort = effort
        self.n_jobs = n_jobs
        self.time_budget = time_budget

    @classmethod
    def of(cls, model: Any) -> JointContrast:
        """Return one with the parameters of a model of several targets."""
        own = cls().get_params(deep=False)
        return cls(**{name: getattr(model, name) for name in own})

    def _make(self) -> RatioExpert:
        expert = make_discriminator(self.discriminator, self.discriminator_params)
        if not isinstance(expert, RatioExpert):
            expert = make_discriminator(_USUAL)
            assert isinstance(expert, RatioExpert)
        return expert

    def _allows_nan(self) -> bool:
        return self._make().allows_nan()

    def fit(
        self,
        X: Array,
        Y: Array,
        sample_weight: Array | None,
        links: Sequence[Any],
        order: Sequence[int],
        X_unlabeled: Array | None = None,
        y_marginal: Array | None = None,
        groups: NDArray[Any] | None = None,
    ) -> JointContrast:
        """Learn from pairs; the links are those of the common law."""
        self.spaces_ = [links[list(order).index(j)].target_space_ for j in range(len(order))]
        if any(space.kind == "mixed" for space in self.spaces_):
            raise ValueError(
                "joint='contrast' takes no target that has a density and atoms; use joint='chain'."
            )
        self._learn_scales(X, Y[:, 0], sample_weight)
        expert, budget = self._make(), self.time_budget
        expert.fit(
            TrainingData(
                self._scale_x(X),
                self._coordinates(Y),
                sample_weight,
                None if groups is None else group_codes(groups, X),
                None if X_unlabeled is None else self._scale_x(X_unlabeled),
                None if y_marginal is None else self._coordinates(y_marginal),
                random_state=as_generator(self.random_state),
                construction=self.construction,
                ratio=0.05 if isinstance(self.ratio, str) else self.ratio,
                effort=EFFORTS[self.effort],
                n_jobs=self.n_jobs,
                deadline=None if budget is None else time.monotonic() + budget / 2,
            )
        )
        self.expert_ = expert
        return self

    def _coordinates(self, Y: Array) -> Array:
        columns = zip(self.spaces_, Y.T, strict=True)
        return np.column_stack([space.inner(space.standardize(y)) for space, y in columns])

    def log_ratio(self, X: Array, Y: Array, log_common: Array | None = None) -> Array:
        """Logarithm of the ratio at pairs of rows, shape (n,)."""
        out = np.empty(len(X))
        for start in range(0, len(X), _BLOCK):
            some = slice(start, start + _BLOCK)
            y = self._coordinates(Y[some])
            # The expert's last column is the last target; the others are as features to it.
            features = np.hstack([self._scale_x(X[some]), y[:, :-1]])
            out[some] = self.expert_._log_ratio_of(features)(y[:, -1:], None)[:, 0]
        return np.clip(out, -_LIMIT, _LIMIT)

    def law(
        self, X: Array, links: Sequence[Any], order: Sequence[int], names: Sequence[str]
    ) -> TiltedDistribution:
        """Laws given rows."""
        blind = [BlindLink(link, X.shape[1]) for link in links]
        return TiltedDistribution(blind, X, order, names, log_ratio=self.log_ratio)
