"""Density models: densities, distribution functions and samples agree."""

import numpy as np
import pytest
from scipy import stats

from mcdensity.distribution import GaussianMixtureDistribution
from mcdensity.metrics import kl, log_likelihood
from mcdensity.simulators import get_simulator, list_simulators

NAMES = list_simulators()


@pytest.fixture(scope="module", params=NAMES)
def case(request):
    """A simulator, five different x, and a fine grid over their support."""
    simulator = get_simulator(request.param)
    X = simulator.sample(1000, random_state=0)[0][::200]
    distribution = simulator.distribution(X)
    low, high = distribution.ppf(1e-9), distribution.ppf(1 - 1e-9)
    margin = 1e-9 * (high - low)
    y = (low - margin)[:, None] + (high - low + 2 * margin)[:, None] * np.linspace(0, 1, 200_001)
    return simulator, X, distribution, y


def test_names():
    paper = {
        "ARMAJump", "AsymmetricLinear", "BasicLinear", "EconDensity", "GaussianMixture",
        "JumpDiffusion", "LinearGauss", "LinearStudentT", "SkewNormal",
    }  # fmt: skip
    assert paper < set(NAMES)
    assert set(NAMES) - paper == {"InverseSinusoid", "Ring"}


def test_density_integrates_to_one(case):
    simulator, _, distribution, y = case
    integral = np.trapezoid(distribution.pdf(y), y, axis=1)
    # The trapezoidal rule meets a sharp edge with half a step.
    sharp = {"AsymmetricLinear": 5e-5, "InverseSinusoid": 5e-5, "JumpDiffusion": 1e-5}
    np.testing.assert_allclose(integral, 1, atol=sharp.get(type(simulator).__name__, 1e-6))


def test_cdf_is_the_integral_of_the_density(case):
    simulator, X, distribution, y = case
    density = distribution.pdf(y)
    integral = np.cumsum((density[:, 1:] + density[:, :-1]) / 2 * np.diff(y, axis=1), axis=1)
    some = slice(9, None, 1000)
    cdf = distribution.cdf(y[:, 1:][:, some])
    np.testing.assert_allclose(cdf, integral[:, some], atol=1e-4)
    np.testing.assert_allclose(distribution.sf(y[:, 1:][:, some]), 1 - cdf, atol=1e-9)
    np.testing.assert_allclose(simulator.cdf(X, y[:, 5000]), distribution.cdf(y[:, 5000]))
    np.testing.assert_allclose(simulator.pdf(X, y[:, 5000]), density[:, 5000])


def test_samples_follow_the_cdf(case):
    simulator, X, distribution, _ = case
    for i in range(5):
        draws = simulator.sample_y(X[i : i + 1], 100_000, random_state=i)[0]
        assert stats.kstest(draws, lambda q, i=i: distribution[i].cdf_grid(q)[0]).pvalue > 1e-3


def test_mean_and_variance(case):
    simulator, X, distribution, y = case
    if type(simulator).__name__ == "LinearStudentT":
        X = simulator._check(X)
        m = X.mean(axis=1)
        df = 2 + 8 / (1 + np.exp(2 * m))
        scale = 0.01 + 0.002 * np.abs(X).mean(axis=1)
        np.testing.assert_allclose(simulator.mean(X), 0.005 * m)
        np.testing.assert_allclose(simulator.var(X), scale**2 * df / (df - 2))
        return
    density = distribution.pdf(y)
    mean = np.trapezoid(density * y, y, axis=1)
    var = np.trapezoid(density * (y - mean[:, None]) ** 2, y, axis=1)
    np.testing.assert_allclose(simulator.mean(X), mean, atol=2e-4 * np.sqrt(var).max())
    np.testing.assert_allclose(simulator.var(X), var, rtol=2e-3)


def test_quantiles_invert(case):
    _, _, distribution, _ = case
    q = np.array([0.01, 0.3, 0.5, 0.9, 0.999])
    cdf = distribution.cdf(distribution.ppf_grid(q))
    np.testing.assert_allclose(cdf, np.tile(q, (5, 1)), atol=1e-7)


def test_shapes_and_seeds(case):
    simulator = case[0]
    X, y = simulator.sample(50, random_state=1)
    assert X.shape == (50, simulator.n_features)
    assert y.shape == (50,)
    again = simulator.sample(50, random_state=1)
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(y, again[1])
    assert simulator.sample_x(7, random_state=2).shape == (7, simulator.n_features)
    assert simulator.sample_y(X, 3, random_state=2).shape == (50, 3)
    grid = simulator.marginal_grid(100)
    assert simulator.pdf_grid(X, grid).shape == (50, 100)
    np.testing.assert_array_equal(grid, get_simulator(type(simulator).__name__).marginal_grid(100))


def test_the_grid_of_the_protocol(case):
    simulator = case[0]
    draws = simulator._marginal_draws(np.random.default_rng(7))
    low, high = np.quantile(draws, [0.0005, 0.9995])
    grid = simulator.marginal_grid(11)
    margin = 0.05 * (high - low)
    np.testing.assert_allclose(
        grid[[0, -1]], [low - margin, high + margin], atol=0.1 * (high - low)
    )


def test_distributions_behave(case):
    """Slices, joins and rescaling of closed forms are consistent, and so is the grid version."""
    _, _, distribution, _ = case
    median = distribution.median()
    np.testing.assert_allclose(distribution[1:3].median(), median[1:3], atol=1e-9)
    joined = distribution[:2]._joined([distribution[2:]])
    np.testing.assert_allclose(joined.median(), median, atol=1e-9)
    np.testing.assert_allclose(distribution._rescaled(3.0, 2.0).median(), 3 + 2 * median)
    logpdf = distribution._rescaled(3.0, 2.0).logpdf(3 + 2 * median)
    np.testing.assert_allclose(logpdf, distribution.logpdf(median) - np.log(2))
    on_grid = distribution.as_grid()
    spread = np.ptp(distribution.interval(0.5), axis=1)
    assert (np.abs(on_grid.median() - median) < 0.01 * spread).all()
    assert np.isfinite(distribution.mode()).all()
    assert all(len(region) for region in distribution.hpd(0.8))


def test_oracle_is_the_best_possible_method(case):
    from mcdensity.baselines import MarginalBaseline

    simulator = case[0]
    X, y = simulator.sample(300, random_state=3)
    oracle = simulator.oracle().fit(X, y)
    assert oracle.score(X, y) == pytest.approx(log_likelihood(simulator.distribution(X), y))
    divergence = kl(simulator.distribution(X[:20]), oracle.predict_distribution(X[:20]))
    assert divergence == pytest.approx(0, abs=1e-12)
    X_new, y_new = simulator.sample(300, random_state=4)
    other = MarginalBaseline("tailed").fit(X, y)
    gap = oracle.logpdf(X_new, y_new) - other.logpdf(X_new, y_new)
    assert gap.mean() > -2 * gap.std() / np.sqrt(300)
    assert oracle.predict_quantiles(X_new).shape == (300, 3)


def test_jump_diffusion_agrees_with_its_histogram():
    """At states near the floor of the variance too, where the integrand has a kink."""
    simulator = get_simulator("JumpDiffusion")
    X = np.array([
        [0.0365, 0.171, 0.101], [0.12, 0.25, 0.05], [0.004, 0.15, 0.1], [0.0005, 0.17, 0.1],
        [0.0001, 0.171, 0.101],
    ])  # fmt: skip
    n = 500_000
    for i in range(len(X)):
        draws = simulator.sample_y(X[i : i + 1], n, random_state=i)[0]
        distribution = simulator.distribution(X[i : i + 1])
        assert stats.kstest(draws, lambda q, d=distribution: d.cdf_grid(q)[0]).pvalue > 1e-3
        edges = distribution.ppf_grid(np.linspace(0.001, 0.999, 200))[0]
        counts = np.histogram(draws, bins=edges)[0]
        expected = n * np.diff(distribution.cdf_grid(edges)[0])
        statistic = ((counts - expected) ** 2 / expected).sum()
        assert stats.chi2.sf(statistic, len(expected)) > 1e-3


@pytest.mark.slow
def test_jump_diffusion_agrees_with_ten_million_draws():
    simulator = get_simulator("JumpDiffusion")
    X = np.array([[0.0365, 0.171, 0.101]])
    n = 10_000_000
    edges = simulator.distribution(X).ppf_grid(np.linspace(0.0005, 0.9995, 500))[0]
    draws = np.concatenate([simulator.sample_y(X, n // 10, random_state=i)[0] for i in range(10)])
    counts = np.histogram(draws, bins=edges)[0]
    expected = n * np.diff(simulator.distribution(X).cdf_grid(edges)[0])
    assert stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(expected)) > 1e-3


def test_parameters_of_the_linear_models():
    for name in ("BasicLinear", "AsymmetricLinear"):
        simulator = get_simulator(name, n_features=3, sigma=2.0)
        X, _ = simulator.sample(10, random_state=0)
        assert X.shape == (10, 3)
        assert simulator.var(X)[0] > get_simulator(name, n_features=3).var(X)[0]
        np.testing.assert_allclose(simulator.slope, np.random.RandomState(0).uniform(size=3))


def test_mixture_against_scipy():
    mixture = GaussianMixtureDistribution(
        np.array([[1.0], [2.0]]), np.array([[0.0], [3.0]]), np.array([[1.0], [0.5]])
    )
    normal = stats.norm([0.0, 3.0], [1.0, 0.5])
    y = np.array([0.3, 2.2])
    np.testing.assert_allclose(mixture.logpdf(y), normal.logpdf(y))
    np.testing.assert_allclose(mixture.cdf(y), normal.cdf(y))
    np.testing.assert_allclose(mixture.sf([12.0, 9.0]), normal.sf([12.0, 9.0]), rtol=1e-9)
    np.testing.assert_allclose(mixture.ppf(0.9), normal.ppf(0.9))
    np.testing.assert_allclose(mixture.mean(), [0, 3])
    np.testing.assert_allclose(mixture.std(), [1, 0.5])
    np.testing.assert_allclose(mixture.entropy(), normal.entropy(), atol=4e-3)
    assert (mixture.ppf(1.0) == np.inf).all()
    with pytest.raises(ValueError, match="scales must be positive"):
        GaussianMixtureDistribution(np.ones((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_simulator("No"), "'No' is not known; choose from .*'EconDensity'"),
        (lambda: get_simulator("BasicLinear", sigma=-1), "sigma positive"),
        (lambda: get_simulator("EconDensity").sample(0), "positive integer"),
        (lambda: get_simulator("EconDensity").pdf([[1.0, 2.0]], [0.0]), r"shape \(n, 1\)"),
        (lambda: get_simulator("EconDensity").pdf([[np.nan]], [0.0]), "X contains NaN"),
        (lambda: get_simulator("EconDensity").pdf([[-2.0]], [0.0]), "larger than -1"),
        (lambda: get_simulator("LinearGauss").pdf([[-6.0]], [0.0]), "larger than -5"),
        (lambda: get_simulator("JumpDiffusion").pdf([[-1.0, 0.1, 0.1]], [0.0]), "states"),
        (lambda: get_simulator("EconDensity").pdf_grid([[1.0]], [[0.0]]), "one-dimensional"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_beyond_the_support_the_density_is_small_not_missing():
    d = get_simulator("InverseSinusoid").distribution([[0.0]])
    for y in (-30.0, -11.0, 11.0, 30.0):
        assert 0 <= d.pdf(y)[0] < 1e-6
        assert d.cdf(y)[0] == pytest.approx(float(y > 0), abs=1e-6)
        assert d.sf(y)[0] == pytest.approx(float(y < 0), abs=1e-6)
