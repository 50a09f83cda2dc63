"""Distributions, one per row, are what estimators predict. Nothing here depends on estimators."""

from mcdensity.distribution.base import Distribution
from mcdensity.distribution.discrete import DiscreteDistribution
from mcdensity.distribution.grid import GridDistribution, Reference
from mcdensity.distribution.joint import JointDistribution
from mcdensity.distribution.mixed import MixedDistribution
from mcdensity.distribution.mixture import GaussianMixtureDistribution
from mcdensity.distribution.pooled import PooledDistribution
from mcdensity.distribution.scipy import ScipyDistribution
from mcdensity.distribution.tilted import TiltedDistribution
from mcdensity.distribution.univariate import ConditionalDistribution, check_coverage

__all__ = [
    "ConditionalDistribution",
    "DiscreteDistribution",
    "Distribution",
    "GaussianMixtureDistribution",
    "GridDistribution",
    "JointDistribution",
    "MixedDistribution",
    "PooledDistribution",
    "Reference",
    "ScipyDistribution",
    "TiltedDistribution",
    "check_coverage",
]
