"""Distributions, one per row: what a prediction is here. Nothing here knows of estimators."""

from mcdensity.distribution.base import Distribution
from mcdensity.distribution.grid import GridDistribution, Reference
from mcdensity.distribution.mixture import GaussianMixtureDistribution
from mcdensity.distribution.scipy import ScipyDistribution
from mcdensity.distribution.univariate import ConditionalDistribution, check_coverage

__all__ = [
    "ConditionalDistribution",
    "Distribution",
    "GaussianMixtureDistribution",
    "GridDistribution",
    "Reference",
    "ScipyDistribution",
    "check_coverage",
]
