"""Metrics, against closed forms."""

import pickle

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mcdensity import MCD, metrics
from mcdensity.distribution import GaussianMixtureDistribution
from mcdensity.simulators import get_simulator

MEAN = np.array([[0.0], [1.0], [-2.0], [0.5]])
SCALE = np.array([[1.0], [0.2], [3.0], [1.5]])
Y = np.array([0.3, 0.9, -5.0, 4.0])
GRID = np.linspace(-25, 25, 20_001)


def normal(mean=MEAN, scale=SCALE):
    return GaussianMixtureDistribution(np.ones_like(mean), mean, scale)


def kl_normals(m0, s0, m1, s1):
    return np.log(s1 / s0) + (s0**2 + (m0 - m1) ** 2) / (2 * s1**2) - 0.5


@pytest.mark.parametrize("grid", [None, GRID])
def test_kl_of_normals(grid):
    other = normal(MEAN + 0.3, SCALE * 1.2)
    expected = kl_normals(MEAN, SCALE, MEAN + 0.3, SCALE * 1.2).mean()
    assert metrics.kl(normal(), other, grid) == pytest.approx(expected, abs=1e-6)
    assert metrics.kl(normal(), normal(), grid) == 0


def test_kl_works_in_logs():
    """Far apart, the densities underflow where the logarithms do not."""
    near, far = (
        normal(np.zeros((1, 1)), np.ones((1, 1))),
        normal(np.full((1, 1), 60.0), np.ones((1, 1))),
    )
    assert metrics.kl(near, far) == pytest.approx(1800, abs=1e-3)
    assert metrics.kl(near, far, floor=1e-6) < 20


def test_kl_of_matrices():
    truth, other = normal(), normal(MEAN + 0.3, SCALE * 1.2)
    matrices = truth.pdf_grid(GRID), other.pdf_grid(GRID)
    assert metrics.kl(*matrices, GRID, floor=1e-300) == pytest.approx(
        metrics.kl(truth, other, GRID), abs=1e-6
    )
    floored = [np.maximum(m, 1e-6) for m in matrices]
    expected = (floored[0] * np.log(floored[0] / floored[1])).mean()
    assert metrics.kl_grid(*matrices) == pytest.approx(expected)
    assert metrics.kl_grid(*matrices, floor=1e-3) != metrics.kl_grid(*matrices)


def test_other_distances_of_normals():
    """One normal beside another of the same scale s at distance d."""
    d, s = 0.7, 1.3
    first = normal(np.zeros((1, 1)), np.full((1, 1), s))
    second = normal(np.full((1, 1), d), np.full((1, 1), s))
    variation = 2 * stats.norm.cdf(d / (2 * s)) - 1
    assert metrics.total_variation(first, second, GRID) == pytest.approx(variation, abs=1e-6)
    hellinger = np.sqrt(1 - np.exp(-(d**2) / (8 * s**2)))
    assert metrics.hellinger(first, second, GRID) == pytest.approx(hellinger, abs=1e-6)
    f, g = first.pdf_grid(GRID)[0], second.pdf_grid(GRID)[0]
    m = (f + g) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.nan_to_num(f * np.log(f / m)) + np.nan_to_num(g * np.log(g / m))
    expected = np.trapezoid(terms, GRID) / 2
    assert metrics.jensen_shannon(first, second, GRID) == pytest.approx(expected, abs=1e-6)
    far = normal(np.full((1, 1), 20.0), np.ones((1, 1)) * 0.1)
    assert metrics.jensen_shannon(first, far, GRID) == pytest.approx(np.log(2), abs=1e-5)


def test_distances_far_apart_and_of_unequal_width():
    """Without a grid: where either of the two has mass."""
    unit = normal(np.zeros((1, 1)), np.ones((1, 1)))
    far = normal(np.full((1, 1), 100.0), np.ones((1, 1)))
    wide = normal(np.zeros((1, 1)), np.full((1, 1), 30.0))
    assert metrics.total_variation(unit, far) == pytest.approx(1, abs=1e-6)
    assert metrics.hellinger(unit, far) == pytest.approx(1, abs=1e-6)
    assert metrics.jensen_shannon(unit, far) == pytest.approx(np.log(2), abs=1e-6)
    grid = np.linspace(-250, 250, 200_001)
    assert metrics.total_variation(unit, wide) == pytest.approx(
        metrics.total_variation(unit, wide, grid), abs=1e-4
    )


def test_kl_of_heavy_tails_and_of_mixed_scales():
    from mcdensity.simulators.base import ScipyDistribution

    def student(scale):
        return ScipyDistribution(
            stats.t, np.zeros((1, 1)), np.full((1, 1), scale), df=np.full((1, 1), 2.5)
        )

    t = np.sinh(np.linspace(-18, 18, 400_001))
    log_f, log_g = stats.t.logpdf(t, 2.5), stats.t.logpdf(t, 2.5, 0, 2)
    expected = np.trapezoid(np.exp(log_f) * (log_f - log_g), t)
    assert metrics.kl(student(1.0), student(2.0)) == pytest.approx(expected, abs=1e-4)
    sharp = GaussianMixtureDistribution(
        np.array([[0.5, 0.5]]), np.array([[0.0, 10.0]]), np.array([[1e-3, 1.0]])
    )
    wide = normal(np.full((1, 1), 5.0), np.full((1, 1), 5.0))
    entropy = 0.5 * (stats.norm(0, 1e-3).entropy() + stats.norm(0, 1).entropy()) + np.log(2)
    cross = 0.5 * np.log(2 * np.pi * 25) + (25 + 25 + 1) / 2 / 50
    assert metrics.kl(sharp, wide) == pytest.approx(cross - entropy, abs=2e-3)


def test_scorers_through_pipelines_and_searches():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + rng.normal(size=60)
    scorer = metrics.get_scorer("mcdensity.crps")
    model = MCD(discriminator="quadratic", random_state=0)
    pipeline = make_pipeline(StandardScaler(), model)
    search = GridSearchCV(pipeline, {"mcd__ratio": [0.2]}, cv=2, scoring=scorer)
    for estimator in (pipeline, search):
        assert np.isfinite(cross_val_score(estimator, X, y, cv=2, scoring=scorer)).all()
    with pytest.raises(TypeError, match="Ridge has no predict_distribution"):
        scorer(Ridge().fit(X, y), X, y)


def test_crps_of_a_normal():
    z = (Y - MEAN[:, 0]) / SCALE[:, 0]
    exact = SCALE[:, 0] * (
        z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    )
    assert metrics.crps(normal(), Y) == pytest.approx(exact.mean(), abs=1e-6)
    one = np.array([0.0, 0.0, 1.0, 0.0])
    assert metrics.crps(normal(), Y, one) == pytest.approx(exact[2], abs=1e-6)
    scoringrules = pytest.importorskip("scoringrules")
    theirs = scoringrules.crps_normal(Y, MEAN[:, 0], SCALE[:, 0])
    np.testing.assert_allclose(exact, theirs)


def test_crps_of_a_heavy_tail():
    from mcdensity.simulators.base import ScipyDistribution

    law = ScipyDistribution(stats.t, np.zeros((1, 1)), np.ones((1, 1)), df=np.full((1, 1), 3.0))
    t = np.sinh(np.linspace(-12, 12, 400_001))
    integrand = (stats.t.cdf(t, 3) - (t >= 0.7)) ** 2
    expected = np.trapezoid(integrand, t)
    assert metrics.crps(law, [0.7]) == pytest.approx(expected, abs=1e-4)


def test_log_likelihood():
    exact = stats.norm.logpdf(Y, MEAN[:, 0], SCALE[:, 0])
    assert metrics.log_likelihood(normal(), Y) == pytest.approx(exact.mean())
    weight = np.array([1.0, 2.0, 0.0, 1.0])
    expected = np.average(exact, weights=weight)
    assert metrics.log_likelihood(normal(), Y, weight) == pytest.approx(expected)
    floored = metrics.log_likelihood(normal(), [1e3, 1e3, 1e3, 1e3], floor=1e-6)
    assert floored == pytest.approx(np.log(1e-6))


def test_cde_loss_of_a_normal():
    squared = 1 / (2 * SCALE[:, 0] * np.sqrt(np.pi))
    exact = (squared - 2 * stats.norm.pdf(Y, MEAN[:, 0], SCALE[:, 0])).mean()
    assert metrics.cde_loss(normal(), Y) == pytest.approx(exact, rel=2e-3)


def test_quantile_scores():
    q = np.array([0.1, 0.6])
    gap = Y[:, None] - stats.norm.ppf(q, MEAN, SCALE)
    expected = np.where(gap > 0, q * gap, (q - 1) * gap).mean()
    assert metrics.pinball_loss(normal(), Y, quantiles=q) == pytest.approx(expected)
    low, high = stats.norm.interval(0.8, MEAN[:, 0], SCALE[:, 0])
    penalty = np.where(low > Y, low - Y, 0) + np.where(high < Y, Y - high, 0)
    winkler = (high - low + 10 * penalty).mean()
    assert metrics.interval_score(normal(), Y, level=0.8) == pytest.approx(winkler)


@pytest.fixture(scope="module")
def oracle():
    simulator = get_simulator("SkewNormal")
    X, y = simulator.sample(4000, random_state=0)
    return simulator.distribution(X), y


def test_oracle_is_calibrated(oracle):
    distribution, y = oracle
    error = np.sqrt(0.8 * 0.2 / len(y))
    assert metrics.coverage(distribution, y, level=0.8) == pytest.approx(0.8, abs=4 * error)
    assert metrics.hpd_coverage(distribution, y, level=0.8) == pytest.approx(0.8, abs=4 * error)
    assert stats.kstest(metrics.pit(distribution, y), "uniform").pvalue > 1e-3
    assert metrics.pit_chi2(distribution, y) > 1e-3
    expected = stats.kstest(metrics.pit(distribution, y), "uniform").statistic
    assert metrics.pit_ks(distribution, y) == pytest.approx(expected)


def test_what_is_too_narrow_shows(oracle):
    distribution, y = oracle
    narrow = GaussianMixtureDistribution(
        np.ones((len(y), 1)), distribution.mean()[:, None], distribution.std()[:, None] / 2
    )
    assert metrics.coverage(narrow, y) < 0.75
    assert metrics.pit_chi2(narrow, y) < 1e-6
    assert metrics.pit_ks(narrow, y) > 0.05
    for metric in (metrics.crps, metrics.interval_score, metrics.pinball_loss, metrics.cde_loss):
        assert metric(narrow, y) > metric(distribution, y)


def test_weights_are_like_copies(oracle):
    distribution, y = oracle[0][:60], oracle[1][:60]
    weight = np.arange(60) % 3
    copies = np.repeat(np.arange(60), weight)
    for metric in (
        metrics.log_likelihood, metrics.crps, metrics.cde_loss, metrics.pinball_loss,
        metrics.interval_score, metrics.coverage, metrics.hpd_coverage, metrics.pit_ks,
    ):  # fmt: skip
        weighted = metric(distribution, y, weight.astype(float))
        assert weighted == pytest.approx(
            metric(distribution[copies], y[copies]), rel=2e-3, abs=2e-3
        )
    assert 0 <= metrics.pit_chi2(distribution, y, weight.astype(float)) <= 1
    truth, other = normal(), normal(MEAN + 0.3)
    for distance in (
        metrics.kl,
        metrics.jensen_shannon,
        metrics.hellinger,
        metrics.total_variation,
    ):
        one = distance(truth, other, GRID, sample_weight=[0, 1, 0, 0])
        assert one == pytest.approx(distance(truth[1], other[1], GRID))


def test_densities_on_a_grid():
    density = normal().pdf_grid(GRID)
    for metric in (metrics.log_likelihood, metrics.crps, metrics.pinball_loss, metrics.cde_loss):
        matrix = metric(density, Y, grid=GRID)
        assert matrix == pytest.approx(metric(normal(), Y), rel=3e-3)


@pytest.mark.parametrize("name", metrics.list_scorers())
def test_scorers_in_cross_validation(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 1))
    y = X[:, 0] + rng.normal(size=90)
    if name == "mcdensity.rps":
        y = np.round(y)
    if name == "mcdensity.variogram_score":  # it compares targets with each other
        y = np.column_stack([y, X[:, 0] + rng.normal(size=90)])
    scorer = metrics.get_scorer(name)
    model = MCD(discriminator="quadratic", random_state=0)
    assert np.isfinite(cross_val_score(model, X, y, cv=3, scoring=scorer)).all()
    assert repr(pickle.loads(pickle.dumps(scorer))) == repr(scorer)
    search = GridSearchCV(model, {"ratio": [0.1, 0.5]}, cv=2, scoring=scorer).fit(X, y)
    assert search.best_params_["ratio"] in (0.1, 0.5)


def test_scorers_prefer_the_better(oracle):
    simulator = get_simulator("EconDensity")
    X, y = simulator.sample(2000, random_state=0)
    best = simulator.oracle().fit(X, y)
    from mcdensity.baselines import MarginalBaseline

    marginal = MarginalBaseline().fit(X, y)
    for name in ("log_likelihood", "crps", "cde_loss", "pinball_loss", "interval_score"):
        scorer = metrics.get_scorer(f"mcdensity.{name}")
        assert scorer(best, X, y) > scorer(marginal, X, y)
    assert metrics.get_scorer("coverage")(best, X, y) > -0.05


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.get_scorer("no"), "'no' is not known; choose from .*mcdensity.crps"),
        (lambda: metrics.crps(np.ones((4, 3)), Y), "together with its grid"),
        (lambda: metrics.crps(normal(), Y[:2]), "one outcome per row"),
        (lambda: metrics.crps(normal(), [np.nan] * 4), "y contains NaN"),
        (lambda: metrics.crps(-np.ones((4, 3)), Y, grid=[0, 1, 2]), "negative or NaN densities"),
        (lambda: metrics.crps(np.ones((4, 3)), Y, grid=[0, 1, 2]), "integrates to 2 on average"),
        (lambda: metrics.crps(np.ones((4, 3)), Y, grid=[0, 2, 1]), "strictly ascending"),
        (lambda: metrics.crps(np.ones((4, 3)), Y, grid=[0, 1]), r"shape \(n, 2\)"),
        (lambda: metrics.crps(normal(), Y, np.ones(3)), "one weight per row"),
        (lambda: metrics.kl(normal(), normal()[:2], GRID), "truth has 4 rows, estimate 2"),
        (lambda: metrics.kl(normal(), normal()[:2]), "truth has 4 rows, estimate 2"),
        (lambda: metrics.kl(np.ones((4, 3)), normal()), "need the grid"),
        (lambda: metrics.kl_grid(np.ones((2, 3)), np.ones((2, 4))), "same shape"),
        (lambda: metrics.kl_grid(-np.ones((2, 3)), np.ones((2, 3))), "truth holds negative"),
        (lambda: metrics.log_likelihood(normal(), Y, floor=-1), "floor must be positive"),
        (lambda: metrics.pit_chi2(normal(), Y, bins=1), "bins must be at least 2"),
        (lambda: metrics.coverage(normal(), Y, level=2), "coverage must lie"),
        (lambda: metrics.hpd_coverage(normal(), Y, level=2), "coverage must lie"),
        (lambda: metrics.pinball_loss(normal(), Y, quantiles=[0]), "quantiles must lie"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_grid_that_misses_mass():
    short = np.linspace(-1, 1, 2001)
    first = normal(np.zeros((2, 1)), np.ones((2, 1)))
    missed = f"{1 - (stats.norm.cdf(1) - stats.norm.cdf(-1)):.1%}"
    with pytest.warns(UserWarning, match=f"misses {missed} of the mass of truth"):
        metrics.kl(first, first, short)
    with pytest.warns(UserWarning, match=f"misses {missed} of the mass"):
        metrics.log_likelihood(first.pdf_grid(short), [0.0, 0.0], grid=short)
