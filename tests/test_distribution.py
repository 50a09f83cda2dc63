"""The distribution object, against closed forms."""

from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp
from scipy.stats import norm

from mcdensity.distribution import (
    DiscreteDistribution,
    GaussianMixtureDistribution,
    GridDistribution,
    MixedDistribution,
)
from mcdensity.marginals import KernelDensity


class NormalReference:
    logpdf = staticmethod(stats.norm.logpdf)
    cdf = staticmethod(stats.norm.cdf)
    ppf = staticmethod(stats.norm.ppf)


KNOTS = stats.norm.ppf(stats.norm.cdf(np.linspace(-7, 7, 225)))


def build(law, reference, knots=KNOTS):
    """Distributions of a frozen scipy law with one row a parameter."""
    n = len(np.ravel(law.mean()))

    def rowwise(rows, y):
        return law.logpdf(y.T).T if n == 1 else np.stack([
            _row(law, i).logpdf(y[k]) for k, i in enumerate(rows)
        ])  # fmt: skip

    return GridDistribution.from_log_density(rowwise, knots, n, reference=reference)


def _row(law, i):
    return law.dist(**{k: np.broadcast_to(v, np.shape(law.mean()))[i] for k, v in law.kwds.items()})


LOC = np.array([0.0, 0.3, -1.0, 2.5, -3.0])
REFERENCES = [None, NormalReference()]


@pytest.fixture(params=[1.0, 0.1, 0.01], ids=lambda s: f"scale {s}")
def scale(request):
    return request.param


@pytest.fixture(params=REFERENCES, ids=["on y", "on ranks"])
def normal(request, scale):
    law = stats.norm(loc=LOC, scale=scale)
    return build(law, request.param), law


def test_narrow_conditionals_integrate_to_one(normal, scale):
    distribution, _ = normal
    y = LOC[:, None] + scale * np.linspace(-9, 9, 20_001)
    integral = np.trapezoid(distribution.pdf(y), y, axis=1)
    np.testing.assert_allclose(integral, 1, atol=1e-4)


def test_narrow_conditionals_have_right_quantiles(normal, scale):
    distribution, law = normal
    q = np.array([0.001, 0.05, 0.3, 0.5, 0.8, 0.99])
    expected = law.ppf(q[:, None]).T
    assert np.abs(distribution.ppf_grid(q) - expected).max() < 5e-3 * scale
    y = expected
    assert np.abs(distribution.ppf(distribution.cdf(y)) - y).max() < 1e-3 * scale
    np.testing.assert_allclose(distribution.cdf(y), np.broadcast_to(q, y.shape), atol=1e-3)


def test_moments_mode_entropy(normal, scale):
    distribution, law = normal
    np.testing.assert_allclose(distribution.mean(), LOC, atol=2e-3 * scale)
    np.testing.assert_allclose(distribution.std(), scale, rtol=3e-3)
    np.testing.assert_allclose(distribution.var(), distribution.std() ** 2)
    np.testing.assert_allclose(distribution.skewness(), 0, atol=0.01)
    np.testing.assert_allclose(distribution.kurtosis(), 0, atol=0.03)
    np.testing.assert_allclose(distribution.median(), LOC, atol=2e-3 * scale)
    np.testing.assert_allclose(distribution.mode(), LOC, atol=0.02 * scale)
    np.testing.assert_allclose(distribution.entropy(), law.entropy(), atol=3e-3)


def test_hpd_of_a_normal_is_its_central_interval(normal, scale):
    distribution, law = normal
    for region, central in zip(distribution.hpd(0.9), np.array(law.interval(0.9)).T, strict=True):
        assert region.shape == (1, 2)
        np.testing.assert_allclose(region[0], central, atol=0.01 * scale)
    y = law.ppf(0.95)
    np.testing.assert_allclose(distribution.hpd_level(y), 0.9, atol=2e-3)
    np.testing.assert_allclose(distribution.hpd_level(LOC + 20 * scale), 1, atol=1e-6)


def test_samples_follow_the_law(normal):
    distribution, law = normal
    sample = distribution.sample(4000, random_state=0)
    uniform = law.cdf(sample.T).T
    assert all(stats.kstest(row, "uniform").pvalue > 1e-3 for row in uniform)


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize(
    "law",
    [
        stats.expon(loc=[-1.0, 0.5], scale=[0.5, 0.2]),
        stats.uniform(loc=[-1.0, 0.5], scale=[1.5, 0.1]),
        stats.laplace(loc=[-1.0, 0.5], scale=[0.5, 0.05]),
        stats.t(df=[3.0, 5.0], loc=[0.0, 1.0], scale=[0.5, 0.02]),
    ],
    ids=["exponential", "uniform", "laplace", "t"],
)
def test_other_shapes(law, reference):
    """Sharp edges, corners and tails heavier than the reference's."""
    knots = KNOTS if reference is not None else np.linspace(-30, 30, 400)
    distribution = build(law, reference, knots)
    width = law.std()[:, None]
    y = law.median()[:, None] + width * np.linspace(-4, 4, 81)
    np.testing.assert_allclose(distribution.cdf(y), law.cdf(y.T).T, atol=6e-3)
    np.testing.assert_allclose(distribution.sf(y) + distribution.cdf(y), 1, atol=1e-9)


def test_two_modes_have_two_intervals():
    def rowwise(rows, y):
        return np.logaddexp(stats.norm.logpdf(y, -2, 0.1), stats.norm.logpdf(y, 2, 0.1) - 0.2)

    distribution = GridDistribution.from_log_density(rowwise, np.linspace(-8, 8, 200), 1)
    (region,) = distribution.hpd(0.9)
    assert region.shape == (2, 2)
    inside = np.diff(distribution.cdf_grid(region.ravel())[0])[::2].sum()
    assert inside == pytest.approx(0.9, abs=1e-3)
    np.testing.assert_allclose(distribution.mode(), -2, atol=0.01)


def test_isolated_outliers_need_no_knots():
    """Between the outliers of a heavy-tailed reference there is no mass to be invented."""
    y = np.concatenate([np.random.default_rng(0).normal(size=300), [40.0, 80.0, 120.0]])
    kde = KernelDensity().fit(y)
    knots = kde.ppf(stats.norm.cdf(np.linspace(-7, 7, 225)))
    same = GridDistribution.from_log_density(
        lambda rows, at: kde.logpdf(at), knots, 2, reference=kde
    )
    points = np.linspace(-5, 130, 500)
    np.testing.assert_allclose(same.cdf_grid(points)[0], kde.cdf(points), atol=1e-9)
    np.testing.assert_allclose(same.logpdf_grid(points)[1], kde.logpdf(points), atol=1e-6)


@pytest.mark.parametrize(("middle", "scale"), [(0.0, 0.01), (3.0, 0.5), (5.0, 0.5), (-5.5, 0.3)])
def test_a_floor_adds_next_to_nothing_wherever_the_mass_is(middle, scale):
    """Beyond the middle of a law far out its ratio to the reference grows like a parabola."""
    law, floor = norm(middle, scale), 1e-6
    found = GridDistribution.from_log_density(
        lambda rows, y: law.logpdf(y),
        np.linspace(-8, 8, 200),
        1,
        reference=norm(),
        floor=np.log(floor),
    )
    y = np.concatenate([law.ppf(np.linspace(0.01, 0.99, 25)), [-3.0, 3.0]])
    np.testing.assert_allclose(found.cdf_grid(y)[0], law.cdf(y), atol=1e-3)
    # Nothing that the reference expects is impossible.
    assert (found.logpdf_grid(y)[0] > norm.logpdf(y) + np.log(floor) - 1e-3).all()
    far = found.logpdf_grid([-3.0 if middle > 0 else 3.0])[0]
    np.testing.assert_allclose(far, norm.logpdf(3) + np.log(floor), atol=0.01)


def test_each_row_is_resolved_alone():
    law = stats.norm(loc=LOC, scale=[1.0, 0.01, 0.3, 0.05, 0.001])
    together = build(law, NormalReference())
    alone = build(stats.norm(loc=LOC[:2], scale=[1.0, 0.01]), NormalReference())
    np.testing.assert_array_equal(together.ppf(0.3)[:2], alone.ppf(0.3))


def test_slicing():
    law = stats.norm(loc=LOC, scale=0.5)
    distribution = build(law, NormalReference())
    median = distribution.median()
    assert len(distribution) == 5
    np.testing.assert_array_equal(distribution[1].median(), median[1:2])
    np.testing.assert_array_equal(distribution[-1].median(), median[-1:])
    np.testing.assert_array_equal(distribution[1:4].median(), median[1:4])
    np.testing.assert_array_equal(distribution[median > 0].median(), median[median > 0])
    with pytest.raises(IndexError):
        distribution[5]


def test_no_rows():
    empty = build(stats.norm(loc=LOC, scale=0.5), NormalReference())[:0]
    assert len(empty) == 0
    assert empty.median().shape == (0,)
    assert empty.interval().shape == (0, 2)
    assert empty.pdf_grid([0.0, 1.0]).shape == (0, 2)
    assert "0 rows" in repr(empty)


def test_shapes_are_never_confused():
    distribution = build(stats.norm(loc=LOC, scale=0.5), NormalReference())
    for method in (distribution.pdf, distribution.logpdf, distribution.cdf, distribution.sf):
        assert method(0.3).shape == (5,)
        assert method(np.zeros(5)).shape == (5,)
        assert method(np.zeros((5, 3))).shape == (5, 3)
        with pytest.raises(ValueError, match="use pdf_grid"):
            method(np.zeros(3))
    assert distribution.ppf(0.3).shape == (5,)
    assert distribution.ppf(np.full((5, 2), 0.3)).shape == (5, 2)
    assert distribution.pdf_grid(np.zeros(3)).shape == (5, 3)
    assert distribution.cdf_grid(np.zeros(5)).shape == (5, 5)
    assert distribution.ppf_grid([0.1, 0.9]).shape == (5, 2)
    with pytest.raises(ValueError, match="one-dimensional"):
        distribution.pdf_grid(np.zeros((5, 3)))


def test_one_row_and_many_points():
    distribution = build(stats.norm(loc=LOC, scale=0.5), NormalReference())[0]
    assert distribution.pdf(0.1).shape == (1,)
    assert distribution.pdf_grid([0.1, 0.2]).shape == (1, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.ppf(1.2), "between 0 and 1"),
        (lambda d: d.ppf_grid([-0.1]), "between 0 and 1"),
        (lambda d: d.pdf(np.nan), "contains NaN"),
        (lambda d: d.pdf_grid([np.nan]), "contains NaN"),
        (lambda d: d.interval(1.0), "coverage must lie"),
        (lambda d: d.hpd(0), "coverage must lie"),
    ],
)
def test_bad_input(call, message):
    distribution = build(stats.norm(loc=LOC, scale=0.5), None)
    with pytest.raises(ValueError, match=message):
        call(distribution)


def test_infinite_points_have_limits():
    distribution = build(stats.norm(loc=LOC, scale=0.5), None)
    assert (distribution.cdf(np.inf) == 1).all()
    assert (distribution.cdf(-np.inf) == 0).all()
    assert (distribution.pdf(np.inf) == 0).all()


def test_nan_log_density_is_refused():
    with pytest.raises(ValueError, match="log-density is NaN"):
        GridDistribution.from_log_density(lambda rows, y: y * np.nan, KNOTS, 1)


def test_what_people_see():
    distribution = build(stats.norm(loc=np.arange(8.0), scale=0.5), None, np.linspace(-5, 15, 200))
    text = repr(distribution)
    assert "8 rows" in text
    assert "[2.178, 3.822]" in text
    assert "3 more" in text
    assert "<td>2.178</td>" in distribution._repr_html_()


def test_notebooks_show_a_picture_of_each_row():
    rest = build(stats.norm(loc=np.arange(7.0), scale=0.5), None, np.linspace(-5, 15, 400))
    masses = stats.poisson(np.arange(1.0, 8.0)[:, None]).pmf(np.arange(12))
    laws = {
        "path": rest,
        "rect": DiscreteDistribution(np.arange(12), masses),
        "both": MixedDistribution([0.0], np.full((7, 1), 0.3), rest),
    }
    for name, law in laws.items():
        page = ElementTree.fromstring(law._repr_html_())
        pictures = page.findall(".//svg")
        assert len(pictures) == 5  # as many as rows
        assert all("median" in p.findtext("title") for p in pictures)
        counts = [len(pictures[0].findall(tag)) for tag in ("path", "rect")]
        assert (counts[0] > 1, counts[1] > 0) == (name != "rect", name != "path")
    # The line of the median moves to the right with the law.
    middles = [
        float(p.findall("path")[-1].get("d")[1:].split()[0])
        for p in ElementTree.fromstring(rest._repr_html_()).iter("svg")
    ]
    assert middles == sorted(middles)
    assert "svg" not in rest[:0]._repr_html_()


@pytest.mark.parametrize("shared", [True, False])
def test_mixture_quantiles_and_far_tails(shared):
    rng = np.random.default_rng(0)
    size = (1 if shared else 20, 30)
    mixture = GaussianMixtureDistribution(
        rng.random((20, 30)), rng.normal(size=size), rng.uniform(0.01, 1, size=size)
    )
    q = np.linspace(0, 1, 41)
    points = mixture.ppf_grid(q)
    np.testing.assert_allclose(mixture.cdf(points), np.broadcast_to(q, (20, 41)), atol=1e-12)
    grid = np.linspace(-50, 50, 300)
    terms = norm.logpdf(grid[:, None, None], mixture.means, mixture.scales)
    expected = logsumexp(terms, axis=2, b=mixture.weights).T
    np.testing.assert_allclose(mixture.logpdf_grid(grid), expected, rtol=1e-10)
    np.testing.assert_allclose(mixture.pdf_grid(grid), np.exp(expected), rtol=1e-9, atol=1e-300)
    both = mixture[:7]._joined([mixture[7:]])
    np.testing.assert_allclose(both.logpdf_grid(grid), mixture.logpdf_grid(grid), rtol=1e-12)
    assert (both.means.strides[0] == 0) == shared


def test_mixture_of_narrow_kernels_far_apart():
    mixture = GaussianMixtureDistribution(
        np.full((1, 2), 0.5), np.array([[-100.0, 100.0]]), np.full((1, 2), 1e-3)
    )
    low, high = mixture.ppf_grid([0.25, 0.75])[0]
    assert low == pytest.approx(-100, abs=1e-9)
    assert high == pytest.approx(100, abs=1e-9)
