"""Laws of several targets at once, what follows from them, and their scores."""

import numpy as np
import pytest
from scipy import stats

from mcdensity import metrics
from mcdensity.distribution import (
    DiscreteDistribution,
    JointDistribution,
    MixedDistribution,
    PooledDistribution,
    ScipyDistribution,
)
from mcdensity.distribution.pooled import pooled
from samples import COVARIANCE, SLOPES


class NormalLink:
    """The law of target `place` of a normal vector given those before it: the exact chain."""

    def __init__(self, order, place):
        self.before, self.own = order[:place], order[place]
        inner = COVARIANCE[np.ix_(self.before, self.before)]
        cross = COVARIANCE[self.own, self.before]
        self.slope = np.linalg.solve(inner, cross) if place else np.empty(0)
        self.scale = np.sqrt(COVARIANCE[self.own, self.own] - self.slope @ cross)

    def laws(self, X):
        x, y = X[:, :2], X[:, 2:]
        mean = x @ SLOPES[:, self.own] + (y - x @ SLOPES[:, self.before]) @ self.slope
        scale = np.full((len(X), 1), self.scale)
        return ScipyDistribution(stats.norm, loc=mean[:, None], scale=scale)

    def logpdf(self, X, y):
        return self.laws(X).logpdf(y)

    def ppf(self, X, q):
        return self.laws(X).ppf(q)

    def moments(self, X):
        law = self.laws(X)
        return law.mean(), law.std()


@pytest.fixture(params=[(0, 1, 2), (2, 0, 1)])
def normal(request):
    """The exact joint law of three rows, in two orders of the chain."""
    order = list(request.param)
    X = np.array([[0.0, 0.0], [1.0, -1.0], [0.3, 2.0]])
    links = [NormalLink(order, place) for place in range(3)]
    return X @ SLOPES, JointDistribution(links, X, order, ["a", "b", "c"])


def test_density_is_that_of_the_normal_vector(normal):
    mean, law = normal
    points = np.random.default_rng(0).normal(size=(3, 5, 3))
    exact = [
        stats.multivariate_normal(m, COVARIANCE).logpdf(p)
        for m, p in zip(mean, points, strict=True)
    ]
    np.testing.assert_allclose(law.logpdf(points), exact, atol=1e-9)
    np.testing.assert_allclose(law.pdf(points[:, 0]), np.exp(exact)[:, 0], rtol=1e-9)


def test_moments_and_samples(normal):
    mean, law = normal
    np.testing.assert_allclose(law.mean(), mean, atol=0.01)
    np.testing.assert_allclose(law.cov(), np.tile(COVARIANCE, (3, 1, 1)), atol=0.02)
    np.testing.assert_allclose(law.correlation()[0], COVARIANCE, atol=0.02)
    draws = law.sample(20_000, random_state=0)
    assert draws.shape == (3, 20_000, 3)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(draws[1].T), COVARIANCE, atol=0.04)


def test_marginals(normal):
    mean, law = normal
    for j, name in enumerate("abc"):
        one = law.marginal(name)
        np.testing.assert_allclose(one.mean(), mean[:, j], atol=0.02)
        np.testing.assert_allclose(one.std(), 1, atol=0.02)
        exact = stats.norm.ppf([0.05, 0.5, 0.95]) + mean[:, [j]]
        np.testing.assert_allclose(one.ppf_grid([0.05, 0.5, 0.95]), exact, atol=0.05)
        np.testing.assert_allclose(law.marginal(j).cdf(0.0), one.cdf(0.0), atol=1e-12)


def test_conditionals_of_rows_far_apart_are_as_exact():
    """What is known is later in the chain: each row's grid starts from its own quantiles."""
    X = 100 * np.random.default_rng(0).normal(size=(300, 2))
    order = [0, 1, 2]
    law = JointDistribution([NormalLink(order, j) for j in order], X, order, ["a", "b", "c"])
    mean = X @ SLOPES
    values = mean[:, 1:] + 0.5
    slope = np.linalg.solve(COVARIANCE[1:, 1:], COVARIANCE[1:, 0])
    exact = mean[:, 0] + (values - mean[:, 1:]) @ slope
    scale = np.sqrt(COVARIANCE[0, 0] - slope @ COVARIANCE[1:, 0])
    found = law.conditional({"b": values[:, 0], "c": values[:, 1]})
    np.testing.assert_allclose(found.mean(), exact, atol=2e-3)
    np.testing.assert_allclose(found.std(), scale, rtol=5e-3)


def test_conditionals(normal):
    """Given some targets, whether they come first in the chain or last."""
    mean, law = normal
    for known in ([0], [1], [2], [0, 1], [0, 2], [1, 2]):
        values = np.array([0.4, -0.3])[: len(known)]
        rest = [j for j in range(3) if j not in known]
        gain = np.linalg.solve(COVARIANCE[np.ix_(known, known)], COVARIANCE[np.ix_(known, rest)])
        exact = mean[:, rest] + (values - mean[:, known]) @ gain
        left = COVARIANCE[np.ix_(rest, rest)] - COVARIANCE[np.ix_(rest, known)] @ gain
        given = law.conditional(dict(zip([law.names[j] for j in known], values, strict=True)))
        if len(rest) == 1:
            np.testing.assert_allclose(given.mean(), exact[:, 0], atol=0.02)
            np.testing.assert_allclose(given.std(), np.sqrt(left[0, 0]), atol=0.02)
            continue
        assert given.names == [law.names[j] for j in rest]
        np.testing.assert_allclose(given.mean(), exact, atol=0.06)
        np.testing.assert_allclose(given.cov(), np.tile(left, (3, 1, 1)), atol=0.12)
        point = exact + 0.3
        density = [
            stats.multivariate_normal(m, left).logpdf(p) for m, p in zip(exact, point, strict=True)
        ]
        np.testing.assert_allclose(given.logpdf(point), density, atol=0.1)
        draws = given.sample(4000, random_state=0)
        np.testing.assert_allclose(draws.mean(axis=1), exact, atol=0.12)
        np.testing.assert_allclose(given.marginal(0).mean(), exact[:, 0], atol=0.06)


def test_levels_and_probabilities(normal):
    mean, law = normal
    np.testing.assert_allclose(law.hpd_level(mean), 0, atol=0.01)
    far = mean + np.linalg.cholesky(COVARIANCE) @ np.array([2.5, 0, 0])
    np.testing.assert_allclose(law.hpd_level(far), stats.chi2(3).cdf(2.5**2), atol=0.03)
    found = law.probability(lambda y: y[..., 0] > y[..., 1])
    gap = stats.norm.cdf((mean[:, 0] - mean[:, 1]) / 1.0)  # the variance of a - b is 1
    assert (np.abs(found.estimate - gap) < 4 * found.standard_error).all()
    with pytest.raises(ValueError, match="last axis"):
        law.probability(lambda y: y[0] > 0)


def test_slices_and_text(normal):
    _, law = normal
    assert len(law[1:]) == 2
    np.testing.assert_allclose(law[1:].mean(), law.mean()[1:])
    assert "mean b" in repr(law)
    both = law[:1]._joined([law[1:]])
    np.testing.assert_allclose(both.mean(), law.mean())


def test_what_a_joint_law_refuses(normal):
    _, law = normal
    with pytest.raises(ValueError, match=r"shape \(3, 3\)"):
        law.logpdf(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="no target 'd'; choose from a, b, c"):
        law.marginal("d")
    with pytest.raises(ValueError, match="no target 3"):
        law.marginal(3)
    with pytest.raises(ValueError, match="All targets are given"):
        law.conditional({"a": 0, "b": 0, "c": 0})
    with pytest.raises(TypeError, match="dict"):
        law.conditional(0.5)
    with pytest.raises(ValueError, match="'a' must be a finite number"):
        law.conditional({"a": np.nan})
    with pytest.raises(ValueError, match=r"n_samples=10,000,000,000 .* GB"):
        law.sample(10**10)
    with pytest.raises(TypeError, match="for one target"):
        metrics.crps(law, np.zeros((3, 3)))


# Mixtures of laws, of which marginals are made.


def test_pooled_laws_of_each_kind():
    weights = np.array([[0.25, 0.75], [0.5, 0.5]])
    loc = np.array([[-3.0], [3.0], [0.0], [1.0]])
    normals = ScipyDistribution(stats.norm, loc=loc, scale=np.ones((4, 1)))
    law = PooledDistribution(normals, weights)
    np.testing.assert_allclose(law.mean(), [1.5, 0.5])
    grid = pooled(normals, weights).as_grid()
    np.testing.assert_allclose(grid.mean(), law.mean(), atol=5e-3)
    np.testing.assert_allclose(grid.std(), law.std(), rtol=5e-3)
    points = np.linspace(-6, 6, 50)
    np.testing.assert_allclose(grid.cdf_grid(points), law.cdf_grid(points), atol=1e-3)
    np.testing.assert_allclose(grid.pdf_grid(points), law.pdf_grid(points), atol=2e-3)
    np.testing.assert_allclose(law[1:].ppf(0.5), 0.5, atol=2e-3)
    np.testing.assert_allclose(law[:1]._joined([law[1:]]).sf(0.4), 1 - law.cdf(0.4))
    np.testing.assert_allclose(law._rescaled(5.0, 2.0).cdf(5.8), law.cdf(0.4))
    masses = np.array([[1.0, 0], [0, 1], [0.5, 0.5], [0.2, 0.8]])
    counts = pooled(DiscreteDistribution([0, 1], masses), weights)
    np.testing.assert_allclose(counts.pmf(1), [0.75, 0.65])
    mixed = pooled(MixedDistribution([0.0], masses[:, :1], normals), weights)
    np.testing.assert_allclose(mixed.pmf(0), [0.25, 0.35])
    # In the first row all of the rest is the second law's.
    np.testing.assert_allclose(mixed.mean(), [0.75 * 3, 0.5 * 0.8], rtol=1e-3)
    with pytest.raises(ValueError, match="weights must be of shape"):
        PooledDistribution(normals, np.ones((3, 2)))


def test_metrics(normal):
    mean, law = normal
    draws = law.sample(50, random_state=1)
    right = metrics.energy_score(law, draws[:, 0])
    assert metrics.energy_score(law, draws[:, 0] + 3) > right + 1
    assert metrics.variogram_score(law, mean) < metrics.variogram_score(
        law, mean + np.array([0, 5, 0])
    )
    exact = np.linalg.slogdet(COVARIANCE)[1]
    assert abs(metrics.dawid_sebastiani(law, mean) - exact) < 0.1
    assert metrics.hpd_coverage(law, mean) == 1
    np.testing.assert_allclose(metrics.log_likelihood(law, mean), law.logpdf(mean).mean())
    # Of one target the energy score is the CRPS.
    one = np.random.default_rng(0).normal(size=(1, 4000, 1))
    exact = metrics.crps(ScipyDistribution(stats.norm, np.zeros((1, 1)), np.ones((1, 1))), [0.3])
    assert abs(metrics.energy_score(one, [[0.3]]) - exact) < 0.02
    law = ScipyDistribution(stats.norm, np.zeros((1, 1)), np.full((1, 1), 2.0))
    assert abs(metrics.energy_score(law, [0.6], n_samples=4000) - 2 * exact) < 0.04
    assert np.isclose(metrics.dawid_sebastiani(law, [2.0]), np.log(4) + 1, atol=0.01)
    with pytest.raises(ValueError, match="there is only one"):
        metrics.variogram_score(law, [0.6])
    with pytest.raises(TypeError, match="comes first"):
        metrics.crps([0.3], law)


def test_samples_are_told_apart():
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 600, 2))
    assert metrics.c2st(one, two) < 0.56
    assert metrics.c2st(one + 2, two) > 0.85
    with pytest.raises(ValueError, match="same k"):
        metrics.c2st(one, two[:, :1])
