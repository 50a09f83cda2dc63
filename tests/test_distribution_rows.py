"""A row is the same alone, beside others, and after joining."""

import numpy as np
import pytest
from scipy import stats

import mcdensity
from distributions import DISTRIBUTIONS, SCORES, adaptive
from mcdensity.baselines import get_estimator
from mcdensity.distribution import (
    ConditionalDistribution,
    GaussianMixtureDistribution,
    GridDistribution,
)

POINTS = np.array([-3.0, -0.5, 0.0, 0.31, 2.4, 50.0])
LEVELS = np.array([0.0, 1e-6, 0.05, 0.5, 0.9, 0.9999, 1.0])
METHODS = {
    "pdf": lambda d: d.pdf(0.3),
    "pdf_grid": lambda d: d.pdf_grid(POINTS),
    "logpdf_grid": lambda d: d.logpdf_grid(POINTS),
    "cdf": lambda d: d.cdf(0.3),
    "cdf_grid": lambda d: d.cdf_grid(POINTS),
    "sf": lambda d: d.sf(np.tile(POINTS, (len(d), 1))),
    "ppf": lambda d: d.ppf(0.7),
    "ppf_grid": lambda d: d.ppf_grid(LEVELS),
    "interval": lambda d: d.interval(0.8),
    "median": lambda d: d.median(),
    "mean": lambda d: d.mean(),
    "var": lambda d: d.var(),
    "std": lambda d: d.std(),
    "skewness": lambda d: d.skewness(),
    "kurtosis": lambda d: d.kurtosis(),
    "entropy": lambda d: d.entropy(),
    "mode": lambda d: d.mode(),
    "hpd_level": lambda d: d.hpd_level(0.3),
    "mean density": lambda d: d.as_grid()._mean_density(),
}


@pytest.fixture(scope="module", params=list(DISTRIBUTIONS))
def law(request):
    return DISTRIBUTIONS[request.param]()


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", list(METHODS))
def test_rows_do_not_depend_on_each_other(law, method):
    together = METHODS[method](law)
    assert not np.isnan(together).any()
    joined = METHODS[method](law[:1]._joined([law[1:2], law[2:]]))
    backwards = METHODS[method](law[::-1])
    close(joined, together)
    close(backwards, together[::-1])
    for i in range(len(law)):
        close(METHODS[method](law[i]), together[i : i + 1])


def test_highest_density_regions_do_not_depend_on_other_rows(law):
    joined = law[:2]._joined([law[2:]]).hpd(0.9)
    for i, region in enumerate(law.hpd(0.9)):
        close(law[i].hpd(0.9)[0], region)
        close(joined[i], region)


def test_ends_of_the_support(law):
    low, high = law.ppf_grid([0.0, 1.0]).T
    assert law.support == (low.min(), high.max())
    assert np.isfinite(law.sample(500, random_state=0)).all()
    assert np.isfinite(law.ppf_grid([1e-15, 2.0**-54, 1 - 2.0**-53])).all()
    assert not law.is_discrete
    assert law.atoms.shape == (0,)


@pytest.mark.parametrize("kind", ["grid", "grid on a normal", "mixture", "heavy t3", "scipy"])
def test_unbounded_laws_have_infinite_ends(kind):
    law = DISTRIBUTIONS[kind]()
    assert (law.ppf(0.0) == -np.inf).all()
    assert (law.ppf(1.0) == np.inf).all()
    assert law[:0].support == (-np.inf, np.inf)


def test_bounded_laws_end_where_the_reference_does():
    law = DISTRIBUTIONS["grid on a uniform"]()
    np.testing.assert_allclose(law.ppf_grid([0.0, 1.0]), np.tile([-9.0, 11.0], (5, 1)))
    assert law.support == (-9.0, 11.0)
    skewed = DISTRIBUTIONS["heavy skewed"]()
    assert skewed.support == (0.0, np.inf)


def test_knots_beyond_what_a_probability_can_tell_give_no_nan():
    """The reference's distribution function is 0 or 1 at several of the knots."""
    knots = np.concatenate([[-60.0, -50.0], np.linspace(-8, 8, 100), [50.0, 60.0]])
    scale = np.array([[1.0], [0.01]])
    law = GridDistribution.from_log_density(
        lambda rows, y: -0.5 * (y / scale[rows]) ** 2, knots, 2, reference=stats.norm()
    )
    for method in METHODS.values():
        assert not np.isnan(method(law)).any()
    np.testing.assert_allclose(law.std(), [1.0, 0.01], rtol=2e-3)


@pytest.mark.parametrize("factor", [1e-300, 1e-150, 1e100, 1e150, 1e300, 1e306])
def test_rescaled_laws_have_finite_numbers(law, factor):
    scaled = law._rescaled(0.0, factor)
    inner = LEVELS[1:-1]
    np.testing.assert_allclose(scaled.ppf_grid(inner), law.ppf_grid(inner) * factor, rtol=1e-9)
    for name in ("mean", "std", "median", "mode"):
        expected = getattr(law, name)() * factor
        np.testing.assert_allclose(getattr(scaled, name)(), expected, rtol=1e-9)
    for name in ("skewness", "kurtosis"):
        np.testing.assert_allclose(getattr(scaled, name)(), getattr(law, name)(), rtol=1e-7)
    points = law.ppf_grid([0.1, 0.5])
    np.testing.assert_allclose(scaled.cdf(points * factor), law.cdf(points), rtol=1e-9)
    with np.errstate(over="ignore"):
        assert not np.isnan(scaled.pdf(points * factor)).any()
    assert not np.isnan(scaled.var()).any()
    assert not np.isnan(scaled.entropy()).any()


def test_mixtures_near_the_largest_number():
    law = GaussianMixtureDistribution(
        np.array([[0.5, 0.5]]), np.array([[-1e307, 1e307]]), np.full((1, 2), 1e306)
    )
    assert np.isfinite(law.ppf_grid([1e-9, 0.25, 0.75, 1 - 1e-9])).all()
    np.testing.assert_allclose(law.std(), 1e307 * np.sqrt(1.01), rtol=1e-12)
    assert len(law.hpd(0.9)[0]) == 2


def test_names_of_the_package():
    assert mcdensity.ConditionalDistribution is ConditionalDistribution
    law = DISTRIBUTIONS["mixture"]()
    assert isinstance(law, ConditionalDistribution)
    assert isinstance(law.as_grid(), GridDistribution)


@pytest.mark.parametrize("reference", [None, stats.norm(), stats.t(3), adaptive()])
def test_rows_that_are_resolved_apart(reference):
    """Rows with few knots, beside rows with many, or joined to them, stay what they are."""
    loc = np.array([[0.0], [0.3], [0.1]])
    scale = np.array([[1.0], [1e-5], [0.4]])
    knots = np.linspace(-8, 8, 150) if reference is None else np.unique(reference.ppf(SCORES))

    def build(chosen):
        def rowwise(rows, y):
            return stats.t(3).logpdf((y - loc[chosen[rows]]) / scale[chosen[rows]])

        return GridDistribution.from_log_density(rowwise, knots, len(chosen), reference=reference)

    together = build(np.arange(3))
    alone = [build(np.array([i])) for i in range(3)]
    joined = alone[0]._joined(alone[1:])
    for method in METHODS.values():
        expected = np.concatenate([method(law) for law in alone])
        assert not np.isnan(expected).any()
        close(method(together), expected)
        close(method(joined), expected)
    for i, region in enumerate(joined.hpd(0.8)):
        close(alone[i].hpd(0.8)[0], region)
        close(together.hpd(0.8)[i], region)


@pytest.mark.parametrize("name", ["rfcde", "kmn", "lscde", "mdn"])
def test_ties_do_not_make_rows_depend_on_each_other(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = np.where(rng.random(120) < 0.8, 0, rng.lognormal(size=120))
    model = get_estimator(name)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    if "steps" in model.get_params():
        model.set_params(steps=30)
    model.fit(X, y)
    law = model.predict_distribution(X[:40])
    alone = [model.predict_distribution(X[i : i + 1]) for i in range(40)]
    for method in ("entropy", "mode", "mean", "var"):
        one = np.concatenate([getattr(a, method)() for a in alone])
        np.testing.assert_allclose(getattr(law, method)(), one, rtol=1e-10, atol=1e-10)
    for together, a in zip(law.hpd(0.9), alone, strict=True):
        np.testing.assert_allclose(together, a.hpd(0.9)[0], rtol=1e-10, atol=1e-10)
