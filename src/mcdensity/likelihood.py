r"""Several targets by the law of x given them: what simulators are made of.

.. math:: f(y \mid x) \propto f_1(y \mid x)^{1/2} \, \bigl( f_Y(y) f_2(x \mid y) \bigr)^{1/2}

:math:`f_1` is the chain of targets given x, :math:`f_2` a chain of the columns of x given the
targets, and :math:`f_Y` a chain that does not look at x. By Bayes' formula each factor alone is the
law of y given x. Where x is made from y by a simple mechanism, the second is far easier to learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mcdensity.chain import EstimatorLink
from mcdensity.contrasted import BlindLink, fit_common_law
from mcdensity.distribution import JointDistribution
from mcdensity.distribution.tilted import TiltedDistribution
from mcdensity.target_kind import decide

__all__ = ["JointLikelihood", "check_features", "looks_simulated"]

Array = NDArray[np.float64]

# The share of Bayes' formula in the pool. With 10,000 pairs of slcp, two observations, C2ST was
# 0.801 and 0.779 with 0, 0.732 and 0.667 with a half, 0.720 and 0.713 with 1; and with a half four
# times as many draws count.
_SHARE = 0.5
# The discriminator of the columns of x, where that of the targets is "auto".
_USUAL = "mixture"
# Features whose joint law can be learned in reasonable time.
_MOST_FEATURES = 50
# Of a model that chooses how it learns, columns that such a law is tried for.
_MOST_TO_TRY = 16
# Log-ratios beyond this are those of points that were never seen.
_LIMIT = 60.0
# Pairs whose densities are computed at once, and those that tell the usual log-density of x.
_BLOCK, _USUAL_PAIRS = 1 << 16, 256


class JointLikelihood:
    """The ratio of the pooled law of y given x to that of a chain.

    Attributes
    ----------
    likelihood_ : MCD
        The law of the features given the targets.
    common_ : list of MCD
        Links of the law of the targets without x, in the order `order_`.
    order_ : list of int
    """

    # Of the log-densities of x given y: it has the unit of x, and the limits of ratios have none.
    _middle = 0.0  # files of earlier versions have none

    def fit(
        self,
        model: Any,
        X: Array,
        Y: Array,
        sample_weight: Array | None,
        order: Sequence[int],
        settings: Sequence[dict[str, Any]],
    ) -> JointLikelihood:
        """Learn both laws; the parameters are those of a model of several targets."""
        own: dict[str, Any] = {"joint": "chain", "target": "auto", "support": None}
        if isinstance(model.discriminator, str) and model.discriminator == "auto":
            own |= {"discriminator": _USUAL, "discriminator_params": None}
        reverse = clone(model, safe=False).set_params(**own)
        try:
            self.likelihood_ = reverse.fit(Y, X, sample_weight)
        except ValueError as error:
            raise ValueError(
                "joint='likelihood' learns the law of x given y, with the columns of X as targets "
                f"y0, y1, ...: {error} Or use joint='chain'."
            ) from error
        self._middle = float(np.median(self._of_x(X[:_USUAL_PAIRS], Y[:_USUAL_PAIRS])))
        self.common_ = fit_common_law(model, Y, sample_weight, order, settings)
        self.order_ = list(order)
        return self

    def _of_x(self, X: Array, Y: Array) -> Array:
        """Log-densities of x given y."""
        return self.likelihood_.logpdf(Y, X if X.shape[1] > 1 else X[:, 0])

    def log_ratio(self, X: Array, Y: Array, log_chain: Array | None) -> Array:
        """Log-ratios of the pooled law to the chain at pairs of rows, up to a constant of x.

        `log_chain` has the chain's log-densities there; all are of shape (n,).
        """
        assert log_chain is not None  # the links look at x
        out, names = np.empty(len(X)), [str(j) for j in self.order_]
        links = [BlindLink(link, X.shape[1]) for link in self.common_]
        for start in range(0, len(X), _BLOCK):
            some = slice(start, start + _BLOCK)
            x, y = X[some], Y[some]
            common = JointDistribution(links, x, self.order_, names).logpdf(y)
            seen = self._of_x(x, y) - self._middle
            out[some] = _SHARE * (common + seen - log_chain[some])
        return np.clip(out, -_LIMIT, _LIMIT)

    def law(
        self, X: Array, links: Sequence[Any], order: Sequence[int], names: Sequence[str]
    ) -> TiltedDistribution:
        """Laws given rows."""
        chain = [EstimatorLink(link) for link in links]
        return TiltedDistribution(chain, X, order, names, log_ratio=self.log_ratio, blind=False)


def check_features(model: Any, X: Array) -> None:
    """Refuse features that have no law of their own, and what cannot be kept."""
    if model.time_budget is not None:
        raise ValueError("time_budget is not for joint='likelihood'; use effort='fast'.")
    why = None
    if X.shape[1] > _MOST_FEATURES:
        why = f"X has {X.shape[1]} columns, and at most {_MOST_FEATURES} can be learned"
    elif np.isnan(X).any():
        why = "X has missing values"
    elif (X.min(axis=0) == X.max(axis=0)).any():
        why = f"column {int(np.argmax(X.min(axis=0) == X.max(axis=0)))} of X is constant"
    if why is not None:
        raise ValueError(
            f"joint='likelihood' learns the law of x given y, but {why}. Use joint='chain'."
        )


def looks_simulated(X: Array) -> bool:
    """Whether x may be what a simulator made of y: a few columns, all continuous."""
    if not 2 <= X.shape[1] <= _MOST_TO_TRY or np.isnan(X).any():
        return False
    return all(len(np.unique(x)) > 1 and decide(x, "auto", None).kind == "continuous" for x in X.T)
