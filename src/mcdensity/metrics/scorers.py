"""Metrics against outcomes as scorers for scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from mcdensity.distribution import ConditionalDistribution
from mcdensity.metrics.joint import dawid_sebastiani, energy_score, variogram_score
from mcdensity.metrics.outcomes import (
    cde_loss,
    coverage,
    crps,
    hpd_coverage,
    interval_score,
    log_likelihood,
    pinball_loss,
    pit_chi2,
    pit_ks,
    rps,
)

__all__ = ["Scorer", "get_scorer", "list_scorers"]


class Scorer:
    """Score an estimator by a metric, signed so that higher is better, as scikit-learn wants it.

    Parameters
    ----------
    name : str
        Name of the metric.
    metric : callable
    sign : {1, -1}
    nominal : float, optional
        For coverages: the score is minus the distance from it.
    """

    def __init__(
        self, name: str, metric: Callable[..., float], sign: int, nominal: float | None = None
    ) -> None:
        self.name, self.metric, self.sign, self.nominal = name, metric, sign, nominal

    def __call__(
        self, estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Score the distributions that the estimator predicts for the rows of X."""
        value = self.metric(_predicted(estimator, X), y, sample_weight)
        return -abs(value - self.nominal) if self.nominal is not None else self.sign * value

    def __repr__(self) -> str:
        return f"get_scorer('mcdensity.{self.name}')"


def _predicted(estimator: Any, X: Any) -> ConditionalDistribution:
    """Predict distributions, through pipelines and searches too."""
    if hasattr(estimator, "predict_distribution"):
        return estimator.predict_distribution(X)
    if hasattr(estimator, "best_estimator_"):
        return _predicted(estimator.best_estimator_, X)
    if hasattr(estimator, "steps"):
        for _, step in estimator.steps[:-1]:
            X = X if step is None or step == "passthrough" else step.transform(X)
        return _predicted(estimator.steps[-1][1], X)
    raise TypeError(
        f"{type(estimator).__name__} has no predict_distribution; this scorer is for estimators of "
        "conditional distributions."
    )


_SCORERS = {
    "cde_loss": Scorer("cde_loss", cde_loss, -1),
    "coverage": Scorer("coverage", coverage, -1, nominal=0.9),
    "crps": Scorer("crps", crps, -1),
    "dawid_sebastiani": Scorer("dawid_sebastiani", dawid_sebastiani, -1),
    "energy_score": Scorer("energy_score", energy_score, -1),
    "hpd_coverage": Scorer("hpd_coverage", hpd_coverage, -1, nominal=0.9),
    "interval_score": Scorer("interval_score", interval_score, -1),
    "log_likelihood": Scorer("log_likelihood", log_likelihood, 1),
    "pinball_loss": Scorer("pinball_loss", pinball_loss, -1),
    "pit_chi2": Scorer("pit_chi2", pit_chi2, 1),
    "pit_ks": Scorer("pit_ks", pit_ks, -1),
    "rps": Scorer("rps", rps, -1),
    "variogram_score": Scorer("variogram_score", variogram_score, -1),
}


def list_scorers() -> list[str]:
    """Return the names that `get_scorer` understands."""
    return [f"mcdensity.{name}" for name in _SCORERS]


def get_scorer(name: str) -> Scorer:
    """Return a scorer for ``scoring=`` of scikit-learn; higher is always better.

    Losses come with a minus sign; coverages as minus the distance from 0.9.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from mcdensity import MCD
    >>> from mcdensity.metrics import get_scorer
    >>> X = np.random.default_rng(0).normal(size=(90, 1))
    >>> model = MCD(discriminator="quadratic", random_state=0)
    >>> scores = cross_val_score(model, X, X[:, 0] ** 3, cv=3, scoring=get_scorer("mcdensity.crps"))
    >>> bool((scores < 0).all())
    True
    """
    short = str(name).removeprefix("mcdensity.")
    if short not in _SCORERS:
        raise ValueError(f"Scorer {name!r} is not known; choose from {list_scorers()}.")
    return _SCORERS[short]
