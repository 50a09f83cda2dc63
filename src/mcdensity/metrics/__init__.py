"""How good a conditional density is: against outcomes, and against a known truth.

Metrics against outcomes have the form ``metric(distribution, y, sample_weight=None)``. In place of
a `ConditionalDistribution` they take a matrix of densities, shape (n, G), with ``grid=`` the G
points it stands for. Each says whether higher or lower is better.
"""

from mcdensity.metrics.joint import c2st, dawid_sebastiani, energy_score, variogram_score
from mcdensity.metrics.outcomes import (
    cde_loss,
    coverage,
    crps,
    hpd_coverage,
    interval_score,
    log_likelihood,
    pinball_loss,
    pit,
    pit_chi2,
    pit_ks,
    rps,
)
from mcdensity.metrics.scorers import Scorer as Scorer
from mcdensity.metrics.scorers import get_scorer, list_scorers
from mcdensity.metrics.survival import brier_score, concordance
from mcdensity.metrics.truth import hellinger, jensen_shannon, kl, kl_grid, total_variation

__all__ = [
    "brier_score",
    "c2st",
    "cde_loss",
    "concordance",
    "coverage",
    "crps",
    "dawid_sebastiani",
    "energy_score",
    "get_scorer",
    "hellinger",
    "hpd_coverage",
    "interval_score",
    "jensen_shannon",
    "kl",
    "kl_grid",
    "list_scorers",
    "log_likelihood",
    "pinball_loss",
    "pit",
    "pit_chi2",
    "pit_ks",
    "rps",
    "total_variation",
    "variogram_score",
]
