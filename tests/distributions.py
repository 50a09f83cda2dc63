"""Distributions of every kind, for tests that hold for all of them."""

import numpy as np
from scipy import stats

from mcdensity.distribution import (
    GaussianMixtureDistribution,
    GridDistribution,
    ScipyDistribution,
)
from mcdensity.marginals import AdaptiveDensity

LOC = np.array([[0.0], [0.3], [-1.0], [2.5], [-0.5]])
# Some rows need knots of their own, others do not.
SCALE = np.array([[1.0], [0.003], [0.8], [0.05], [0.3]])
SCORES = stats.norm.cdf(np.linspace(-7, 7, 190))


def skewed(rows, y):
    """Log-densities of skew normal laws, up to a constant, of very different widths."""
    z = (y - LOC[rows]) / SCALE[rows]
    return -0.5 * z**2 + stats.norm.logcdf(2 * z)


def on_reference(reference):
    """The laws as ratios to a reference."""
    knots = reference.ppf(SCORES)
    return GridDistribution.from_log_density(skewed, np.unique(knots), 5, reference=reference)


def heavy_tails(reference):
    """Laws that follow a reference far out: in an outer cell, or everywhere."""
    u = np.concatenate([[0.0, 0.04], np.linspace(0.05, 0.95, 300), [0.96, 1.0]])
    bump = np.stack([np.zeros_like(u), 2 * np.sin(6 * u), np.where(u > 0.9, 1.0, -1.0)])
    return GridDistribution(np.broadcast_to(u, bump.shape), bump, reference=reference)


def adaptive():
    """A marginal with kernels, and with two outliers far out."""
    y = np.random.default_rng(0).normal(size=300)
    return AdaptiveDensity().fit(np.concatenate([y, [12.0, 15.0]]))


def mixture(*, shared):
    """Mixtures of twelve normals, with kernels of their own or the same for all rows."""
    rng = np.random.default_rng(1)
    size = (1 if shared else 5, 12)
    return GaussianMixtureDistribution(
        rng.random((5, 12)) ** 4, 3 * rng.normal(size=size), rng.uniform(0.02, 1, size=size)
    )


HEAVY = {
    "heavy t3": lambda: heavy_tails(stats.t(3)),
    "heavy skewed": lambda: heavy_tails(stats.lognorm(0.8)),
    "heavy adaptive": lambda: on_reference(adaptive())._joined([]),
}

DISTRIBUTIONS = {
    "grid": lambda: GridDistribution.from_log_density(skewed, np.linspace(-9, 11, 300), 5),
    "grid on a normal": lambda: on_reference(stats.norm()),
    "grid on t3": lambda: on_reference(stats.t(3)),
    "grid on a uniform": lambda: on_reference(stats.uniform(-9, 20)),
    "grid on an adaptive marginal": lambda: on_reference(adaptive()),
    "mixture": lambda: mixture(shared=False),
    "mixture of shared kernels": lambda: mixture(shared=True),
    "scipy": lambda: ScipyDistribution(stats.skewnorm, LOC, SCALE, a=np.full((5, 1), 2.0)),
    **HEAVY,
}
