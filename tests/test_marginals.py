"""Marginal densities."""

import numpy as np
import pytest
from scipy import stats

from mcdensity.marginals import (
    AdaptiveDensity,
    KernelDensity,
    Marginal,
    TailedDensity,
    fit_held_out,
    get_marginal,
    list_marginals,
)


def exact_log_density(y, points, h):
    kernel = stats.norm.logpdf((points[:, None] - y) / h)
    return np.logaddexp.reduce(kernel, axis=1) - np.log(len(y) * h)


@pytest.mark.parametrize("law", ["normal", "heavy", "two"])
def test_binned_density_is_the_kernel_density(law):
    rng = np.random.default_rng(0)
    y = {
        "normal": rng.normal(size=500),
        "heavy": rng.standard_t(2, size=500),
        "two": np.concatenate([rng.normal(size=250), 1000 + rng.normal(size=250)]),
    }[law]
    kde = KernelDensity().fit(y)
    points = np.concatenate([np.linspace(-8, 8, 400), [990, 1000, 1003], y[:50]])
    exact = exact_log_density(y, points, kde.bandwidth_)
    near = exact > exact.max() - 25
    np.testing.assert_allclose(np.exp(kde.logpdf(points)), np.exp(exact), rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(kde.logpdf(points)[near], exact[near], atol=0.05)
    cdf = stats.norm.cdf((points[:, None] - y) / kde.bandwidth_).mean(axis=1)
    np.testing.assert_allclose(kde.cdf(points), cdf, atol=1e-4)
    assert np.isfinite(kde.logpdf([-1e9, 1e9])).all()


def test_bandwidths():
    y = np.random.default_rng(0).normal(size=1000)
    quartiles = np.quantile(y, [0.25, 0.75], method="inverted_cdf")
    spread = min(y.std(), np.diff(quartiles)[0] / 1.349)
    reference = (4 / 3) ** 0.2 * spread * 1000**-0.2
    assert KernelDensity().fit(y).bandwidth_ == pytest.approx(reference)
    silverman = KernelDensity("silverman").fit(y).bandwidth_
    assert silverman == pytest.approx(reference * 0.9 / (4 / 3) ** 0.2)
    assert KernelDensity(0.3).fit(y).bandwidth_ == 0.3
    # Two narrow modes: the normal reference smooths them away, Sheather-Jones does not.
    two = np.concatenate([y, y + 20])
    assert KernelDensity("isj").fit(two).bandwidth_ < 0.3 * KernelDensity().fit(two).bandwidth_


def test_sheather_jones_falls_back():
    with pytest.warns(UserWarning, match="found no solution"):
        kde = KernelDensity("isj").fit(np.repeat([0.0, 1.0], 50))
    assert kde.bandwidth_ > 0


def test_quantiles_and_samples():
    kde = KernelDensity().fit(np.random.default_rng(0).normal(size=1000))
    q = np.array([[1e-9, 0.1, 0.5], [0.9, 0.999, 1 - 1e-9]])
    np.testing.assert_allclose(kde.cdf(kde.ppf(q)), q, rtol=1e-6)
    sample = kde.sample(5000, random_state=1)
    assert stats.kstest(sample, kde.cdf).pvalue > 1e-3
    np.testing.assert_array_equal(sample, kde.sample(5000, random_state=1))


def test_weights():
    y = np.array([0.0, 1.0, 3.0, 4.0, 9.0])
    points = np.linspace(-3, 12, 50)
    plain = KernelDensity(0.5).fit(np.repeat(y, [1, 2, 3, 1, 1])).logpdf(points)
    weighted = KernelDensity(0.5).fit(y, sample_weight=[1, 2, 3, 1, 1]).logpdf(points)
    np.testing.assert_allclose(weighted, plain, atol=1e-6)
    left_out = KernelDensity().fit(y, sample_weight=[1, 1, 1, 1, 0]).logpdf(points)
    np.testing.assert_array_equal(left_out, KernelDensity().fit(y[:4]).logpdf(points))


def test_tailed_density():
    y = np.random.default_rng(0).normal(size=200)
    kde, tailed = KernelDensity().fit(y), TailedDensity().fit(y)
    assert tailed.tail_weight_ == pytest.approx(2 / 201)
    points = np.linspace(-2, 2, 50)
    difference = np.exp(tailed.logpdf(points)) - np.exp(kde.logpdf(points))
    assert np.abs(difference).max() < 0.01
    # Far out it is w times the density of the Student t.
    far = np.array([-30.0, 30.0, 1000.0])
    spread = np.diff(np.quantile(y, [0.05, 0.95]))[0] / 3.29
    expected = stats.t.logpdf(far, 3, np.median(y), spread) - np.log(201 / 2)
    np.testing.assert_allclose(tailed.logpdf(far), expected, atol=0.02)
    grid = np.linspace(-50, 50, 100_001)
    assert np.trapezoid(np.exp(tailed.logpdf(grid)), grid) == pytest.approx(1, abs=1e-4)
    heavier = TailedDensity(tail_weight=0.2, degrees_of_freedom=2).fit(y)
    assert (heavier.logpdf(far) > tailed.logpdf(far)).all()
    for bad in ({"tail_weight": 1.5}, {"degrees_of_freedom": -1.0}):
        with pytest.raises(ValueError, match="tail_weight must lie"):
            TailedDensity(**bad).fit(y)


def test_scattered_targets_take_bounded_memory():
    y = np.concatenate(
        [np.linspace(0, 1e-6, 40_000), np.random.default_rng(0).exponential(size=8000)]
    )
    assert KernelDensity().fit(y)._law.knots.shape[1] < 2**20


def test_shapes():
    kde = KernelDensity().fit([0.0, 1.0, 2.0])
    for function in (kde.logpdf, kde.cdf, kde.ppf):
        assert np.shape(function(0.5)) == ()
        assert function(np.full((2, 3), 0.5)).shape == (2, 3)


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: KernelDensity("no").fit([1, 2]), "bandwidth must be"),
        (lambda: KernelDensity(-1.0).fit([1, 2]), "bandwidth must be positive"),
        (lambda: KernelDensity().fit([1, 1, 1]), "y is constant"),
        (lambda: KernelDensity().fit([1, np.nan]), "NaN or infinity"),
        (lambda: get_marginal("no"), "choose from"),
        (lambda: get_marginal(3), "marginal must be"),
    ],
)
def test_bad_input(fit, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit()


def test_registry():
    assert all(isinstance(get_marginal(name), Marginal) for name in list_marginals())
    mine = KernelDensity(bandwidth=0.2)
    assert get_marginal(mine) is not mine
    assert get_marginal(mine).bandwidth == 0.2


# The adaptive one.


def mean_gain(draw, n, seeds=10):
    """Mean log-likelihood of new targets above that of the kernel density with tails."""
    gains = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        y, new = draw(rng, n), draw(rng, 2000)
        ours, other = AdaptiveDensity().fit(y), TailedDensity().fit(y)
        gains.append(ours.logpdf(new).mean() - other.logpdf(new).mean())
    return np.mean(gains)


@pytest.mark.parametrize(
    ("draw", "least"),
    [
        (lambda rng, n: rng.normal(size=n), 0.0),
        (lambda rng, n: rng.standard_t(3, size=n), 0.005),
        (lambda rng, n: np.where(rng.random(n) < 0.5, 0, 5) + 0.1 * rng.normal(size=n), 0.5),
    ],
)
def test_the_adaptive_density_is_the_better_one(draw, least):
    assert mean_gain(draw, 100) > least


def test_the_adaptive_density_is_a_density():
    y = np.random.default_rng(0).gamma(2.0, size=150)
    density = AdaptiveDensity().fit(y)
    assert sum(density.weights_.values()) == pytest.approx(1)
    grid = np.linspace(-60, 80, 400_001)
    pdf = np.exp(density.logpdf(grid))
    assert pdf.sum() * (grid[1] - grid[0]) == pytest.approx(1, abs=2e-3)
    q = np.array([1e-4, 0.1, 0.5, 0.9, 0.9999])
    np.testing.assert_allclose(density.cdf(density.ppf(q)), q, rtol=1e-6)
    assert np.isfinite(density.logpdf([-1e6, 1e6])).all()


def test_targets_held_out_of_the_adaptive_density():
    y = np.random.default_rng(0).normal(size=120)
    density = AdaptiveDensity()
    held_out = density.fit_held_out(y)
    in_sample_bias = density.logpdf(y) - held_out
    assert np.isfinite(in_sample_bias).all()
    assert 0 < in_sample_bias.mean() < 0.2
    # Of many targets only some are held out.
    y, many = np.random.default_rng(0).normal(size=6000), AdaptiveDensity()
    held_out = many.fit_held_out(y)
    assert np.sum(held_out != many.logpdf(y)) == 1200


def test_targets_held_out_of_any_marginal():
    """Another marginal is fitted again without each part of the targets."""
    y = np.random.default_rng(0).normal(size=120)
    density = KernelDensity()
    held_out = fit_held_out(density, y, None)
    assert 0 < (density.logpdf(y) - held_out).mean() < 0.2
    few = KernelDensity()
    np.testing.assert_array_equal(fit_held_out(few, y[:5], None), few.logpdf(y[:5]))


def test_weights_of_the_adaptive_density():
    rng = np.random.default_rng(0)
    y, weight = rng.normal(size=80), rng.integers(0, 3, size=80).astype(float)
    density = AdaptiveDensity().fit(y, weight)
    without = AdaptiveDensity().fit(y[weight > 0], weight[weight > 0])
    points = np.linspace(-4, 4, 50)
    np.testing.assert_array_equal(density.logpdf(points), without.logpdf(points))


def test_the_adaptive_density_of_few_or_tied_targets():
    few = AdaptiveDensity()
    np.testing.assert_array_equal(few.fit_held_out([0.0, 1.0, 3.0]), few.logpdf([0.0, 1.0, 3.0]))
    assert few.weights_["kernel 1"] == pytest.approx(0.75)
    grades = np.random.default_rng(0).integers(3, 9, size=300).astype(float)
    assert "kernel 0.25" not in AdaptiveDensity().fit(grades).weights_
    outlier = AdaptiveDensity().fit(np.r_[np.zeros(30), 1.0])
    assert np.isfinite(outlier.logpdf([0.0, 0.5, 1.0])).all()


def test_a_bandwidth_far_wider_than_the_targets():
    y = np.random.default_rng(0).normal(size=50)
    kde = KernelDensity(100.0).fit(y)
    at = np.array([-50.0, 0.0, 80.0])
    exact = stats.norm(0, 100).logpdf(at[:, None] - y)
    np.testing.assert_allclose(kde.logpdf(at), np.log(np.exp(exact).mean(axis=1)), atol=2e-3)
