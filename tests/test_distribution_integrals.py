"""Moments, entropies and regions agree with the density and the quantiles of the same law."""

import numpy as np
import pytest
from scipy import stats

from distributions import DISTRIBUTIONS, HEAVY
from mcdensity.baselines import FlexCode
from mcdensity.distribution import GaussianMixtureDistribution, GridDistribution


def midpoints(count):
    return (np.arange(count) + 0.5) / count


def held(law, coverage):
    """Probability in the highest-density regions, from the distribution function."""
    regions = law.hpd(coverage)
    return np.array([
        np.diff(law[i].cdf_grid(region.ravel())[0])[::2].sum() for i, region in enumerate(regions)
    ])  # fmt: skip


def agrees_with_quantiles(law, rtol, count):
    for i in range(len(law)):
        y = law[i].ppf_grid(midpoints(count))
        spread = y.std()
        assert abs(law[i].mean()[0] - y.mean()) < rtol * spread
        np.testing.assert_allclose(law[i].std()[0], spread, rtol=rtol)
        entropy = -law[i].logpdf(y).mean()
        np.testing.assert_allclose(law[i].entropy()[0], entropy, atol=max(rtol, 2e-3))


@pytest.mark.parametrize("kind", [k for k in DISTRIBUTIONS if k not in HEAVY])
def test_moments_are_those_of_the_quantiles(kind):
    agrees_with_quantiles(DISTRIBUTIONS[kind](), 3e-3, 50_000)


@pytest.mark.parametrize("kind", list(HEAVY))
def test_moments_of_heavy_tails_are_those_of_the_quantiles(kind):
    # Beyond the last of the midpoints t3 has 2.5e-6 of its mass, and 2 % of its variance.
    agrees_with_quantiles(HEAVY[kind](), 0.02, 200_000)


def test_moments_of_a_law_that_is_its_reference():
    law = GridDistribution(np.array([[0.0, 1.0]]), np.zeros((1, 2)), reference=stats.t(5))
    np.testing.assert_allclose(law.mean(), 0, atol=1e-9)
    np.testing.assert_allclose(law.std(), np.sqrt(5 / 3), rtol=2e-3)
    np.testing.assert_allclose(law.entropy(), stats.t(5).entropy(), atol=1e-3)


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("kind", list(DISTRIBUTIONS))
def test_regions_hold_what_they_promise(kind, coverage):
    np.testing.assert_allclose(held(DISTRIBUTIONS[kind](), coverage), coverage, atol=1e-3)


@pytest.fixture(scope="module")
def skewed_series():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    y = np.exp(X[:, 0] + rng.normal(size=300))
    return FlexCode(random_state=0).fit(X, y).predict_distribution(X[:4])


def test_series_agree_with_themselves(skewed_series):
    """Some of the mass lies outside of the range of the series."""
    agrees_with_quantiles(skewed_series, 3e-3, 200_000)
    for coverage in (0.5, 0.9, 0.99):
        np.testing.assert_allclose(held(skewed_series, coverage), coverage, atol=1e-3)


def test_rows_of_a_mixture_get_knots_of_their_own():
    """Rows of one kernel beside rows of many, with bandwidths far below the range."""
    weights = np.zeros((8, 200))
    weights[np.arange(7), np.arange(0, 70, 10)] = 1
    weights[7] = 1
    centers = np.random.default_rng(0).lognormal(sigma=1.5, size=(1, 200))
    law = GaussianMixtureDistribution(weights, centers, np.full((1, 1), 0.02))
    np.testing.assert_allclose(held(law, 0.9)[:7], 0.9, atol=1e-3)
    np.testing.assert_allclose(law.entropy()[:7], stats.norm(0, 0.02).entropy(), atol=4e-3)


@pytest.mark.parametrize("kind", ["mixture", "mixture of shared kernels"])
def test_moments_of_mixtures_have_closed_forms(kind):
    law = DISTRIBUTIONS[kind]()
    grid = law.as_grid()
    for order in (3, 4):
        np.testing.assert_allclose(
            law._standardised_moment(order), grid._standardised_moment(order), atol=0.02
        )
    normal = GaussianMixtureDistribution(
        np.ones((1, 1)), np.full((1, 1), 2.0), np.full((1, 1), 3.0)
    )
    np.testing.assert_allclose(normal.kurtosis(), 0, atol=1e-12)
    np.testing.assert_allclose(normal.skewness(), 0, atol=1e-12)
