"""Several targets at once: the joint law, what follows from it, and estimators of it."""

import numpy as np
import pandas
import pytest
from scipy import stats

from mcdensity import MCD, TableEstimator, load, metrics, save
from mcdensity.baselines import get_estimator
from mcdensity.distribution import (
    DiscreteDistribution,
    JointDistribution,
    MixedDistribution,
    PooledDistribution,
    ScipyDistribution,
)
from mcdensity.distribution.pooled import pooled
from mcdensity.experts import distilled
from mcdensity.metrics import get_scorer

LINE = {"target": "continuous", "support": (None, None)}
COVARIANCE = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.3], [0.2, 0.3, 1.0]])
SLOPES = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])


def exact_logpdf(mean, covariance, points):
    pairs = zip(mean, points, strict=True)
    return np.array([stats.multivariate_normal(m, covariance).logpdf(p) for m, p in pairs])


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
    masses = np.array([[1.0, 0], [0, 1], [0.5, 0.5], [0.2, 0.8]])
    counts = pooled(DiscreteDistribution([0, 1], masses), weights)
    np.testing.assert_allclose(counts.pmf(1), [0.75, 0.65])
    mixed = pooled(MixedDistribution([0.0], masses[:, :1], normals), weights)
    np.testing.assert_allclose(mixed.pmf(0), [0.25, 0.35])
    # In the first row all of the rest is the second law's.
    np.testing.assert_allclose(mixed.mean(), [0.75 * 3, 0.5 * 0.8], rtol=1e-3)
    with pytest.raises(ValueError, match="weights must be of shape"):
        PooledDistribution(normals, np.ones((3, 2)))


# Estimators.


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X @ SLOPES + rng.normal(size=(n, 3)) @ np.linalg.cholesky(COVARIANCE).T


@pytest.fixture(scope="module")
def model():
    X, Y = table()
    return MCD("quadratic", random_state=0, **LINE).fit(X, pandas.DataFrame(Y, columns=list("abc")))


def test_shapes_of_predictions(model):
    X, Y = table(5, seed=1)
    assert model.target_names_ == ["a", "b", "c"]
    assert model.target_kind_ == ["continuous"] * 3
    assert model.predict(X).shape == (5, 3)
    assert model.predict_var(X).shape == (5, 3)
    assert model.predict_quantiles(X, (0.1, 0.9)).shape == (5, 3, 2)
    assert model.predict_interval(X).shape == (5, 3, 2)
    assert model.sample(X, 7, random_state=0).shape == (5, 7, 3)
    assert model.logpdf(X, Y).shape == (5,)
    densities = model.pdf_from_X(X, Y)
    assert densities.shape == (5, 5)
    np.testing.assert_allclose(np.log(np.diag(densities)), model.logpdf(X, Y), rtol=1e-8)
    assert np.isclose(model.score(X, Y), model.logpdf(X, Y).mean())
    assert "a: continuous" in repr(model)


def test_the_chain_learns_the_truth(model):
    X, Y = table(2000, seed=2)
    exact = exact_logpdf(X @ SLOPES, COVARIANCE, Y).mean()
    assert model.score(X, Y) > exact - 0.1
    apart = sum(
        MCD("quadratic", random_state=0, **LINE).fit(*(a for a in (table()[0], table()[1][:, j])))
        .score(X, Y[:, j])
        for j in range(3)
    )  # fmt: skip
    assert model.score(X, Y) > apart + 0.1


def held(intervals, y):
    return (y >= intervals[..., 0]) & (y <= intervals[..., 1])


def test_intervals_hold_one_by_one_and_together(model):
    X, Y = table(300, seed=3)
    each = model.predict_interval(X, 0.9)
    inside = held(each, Y)
    assert (np.abs(inside.mean(axis=0) - 0.9) < 0.06).all()
    together = model.predict_interval(X, 0.9, joint=True)
    all_inside = held(together, Y).all(axis=1)
    assert abs(all_inside.mean() - 0.9) < 0.06
    assert inside.all(axis=1).mean() < 0.85


def test_conformal_intervals_hold_together():
    X, Y = table(500, seed=4)
    poor = MCD("quadratic", discriminator_params={"C": 1e-6}, random_state=0, **LINE)
    poor.fit(X[:100], Y[:100]).conformalize(X[100:300], Y[100:300])
    for joint in (False, True):
        found = poor.predict_interval(X[300:], 0.8, conformal=True, joint=joint)
        inside = held(found, Y[300:])
        share = inside.all(axis=1).mean() if joint else inside.mean()
        assert 0.68 < share < 0.92


def test_one_column_is_one_target_to_the_last_bit():
    X, Y = table(150)
    flat, column = (
        MCD("quadratic", random_state=0).fit(X, y) for y in (Y[:, 0], Y[:, :1])
    )  # fmt: skip
    np.testing.assert_array_equal(flat.predict_quantiles(X), column.predict_quantiles(X))
    assert column.predict(X).shape == (150,)
    several = MCD("quadratic", random_state=0).fit(X, Y)
    several.fit(X, Y[:, 0])  # nothing of the earlier fit remains
    np.testing.assert_array_equal(several.predict(X), flat.predict(X))
    assert not hasattr(several, "links_")


def test_density_integrates_to_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    Y = np.column_stack([X[:, 0] + rng.normal(size=300), rng.normal(size=300)])
    Y[:, 1] += Y[:, 0] ** 2
    model = MCD("quadratic", random_state=0, **LINE).fit(X, Y)
    a, b = np.linspace(-8, 8, 201), np.linspace(-12, 45, 401)
    points = np.stack(np.meshgrid(a, b, indexing="ij"), axis=2).reshape(-1, 2)
    total = model.pdf_from_X(X[:2], points).sum(axis=1) * (a[1] - a[0]) * (b[1] - b[0])
    np.testing.assert_allclose(total, 1, atol=0.02)


def test_counts_beside_a_density():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    count = rng.poisson(np.exp(0.5 + 0.4 * X[:, 0]))
    price = np.exp(0.3 * count + 0.5 * X[:, 1] + 0.3 * rng.normal(size=500))
    both = pandas.DataFrame({"visits": count, "price": price})
    for order in (["visits", "price"], ["price", "visits"]):
        model = MCD("quadratic", random_state=0, joint=order).fit(X, both)
        assert model.target_kind_ == ["discrete", "continuous"]
        assert [model.target_names_[j] for j in model.order_] == order
        law = model.predict_distribution(X[:3])
        draws = law.sample(200, random_state=0)
        assert (draws[..., 0] == np.round(draws[..., 0])).all()
        assert (draws > -1e-12).all()
        assert law.marginal("visits").is_discrete
        np.testing.assert_allclose(law.marginal("visits").masses.sum(axis=1), 1)
        assert law.marginal("price").cdf(0.0).max() == 0
        few, many = (law.conditional({"visits": v}).mean() for v in (0, 4))
        assert (many > 1.5 * few).all()
        cheap, dear = (law.conditional({"price": v}).mean() for v in (0.7, 6.0))
        assert (dear > cheap).all()


def test_an_order_that_is_given(model):
    X, Y = table()
    other = MCD("quadratic", random_state=0, joint=[2, 0, 1], **LINE).fit(X, Y)
    assert other.order_ == [2, 0, 1]
    X, Y = table(500, seed=5)
    assert abs(other.score(X, Y) - model.score(X, Y)) < 0.05
    with pytest.raises(ValueError, match="each target once"):
        MCD(joint=[0, 0, 1]).fit(X, Y)


def test_each_target_has_its_own_kind_and_support():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(200, 1)), rng.random((200, 2))
    model = MCD(
        "quadratic", target=["continuous", "auto"], support=[(None, None), (0, 2)], random_state=0
    ).fit(X, Y)
    assert model.support_ == [(-np.inf, np.inf), (0.0, 2.0)]
    with pytest.raises(ValueError, match="target has 1 entries; y has 2 columns"):
        MCD(target=["auto"]).fit(X, Y)
    with pytest.raises(ValueError, match="y has one"):
        MCD(target=["auto", "auto"]).fit(X, Y[:, 0])


def test_models_of_several_targets_are_saved(model, tmp_path):
    X, Y = table(4, seed=6)
    save(model, tmp_path / "m.mcd")
    again = load(tmp_path / "m.mcd")
    np.testing.assert_array_equal(again.logpdf(X, Y), model.logpdf(X, Y))
    np.testing.assert_array_equal(
        again.sample(X, 3, random_state=1), model.sample(X, 3, random_state=1)
    )


def test_tables_with_several_targets():
    X, Y = table()
    frame = pandas.DataFrame({"x": X[:, 0], "kind": np.where(X[:, 1] > 0, "one", "two")})
    model = TableEstimator(MCD("quadratic", random_state=0, **LINE))
    model.fit(frame, pandas.DataFrame(Y, columns=list("abc")))
    assert model.predict(frame[:4]).shape == (4, 3)
    assert model.predict_distribution(frame[:4]).names == ["a", "b", "c"]
    assert np.isfinite(model.score(frame, pandas.DataFrame(Y, columns=list("abc"))))


@pytest.mark.parametrize("name", ["mdn", "nf", "nnkcde"])
def test_other_methods_learn_several_targets(name):
    X, Y = table(200)
    small = {"nnkcde": {}}.get(name, {"steps": 50})
    model = (
        get_estimator(name, **small, random_state=0) if name != "nnkcde" else get_estimator(name)
    )
    model.fit(X, Y)
    assert model.sample(X[:2], 3, random_state=0).shape == (2, 3, 3)
    assert np.isfinite(model.score(X, Y))


def test_the_law_of_several_targets_alone():
    X, Y = table(150)
    alone = get_estimator("marginal").fit(X, Y[:, :2])
    Y = Y[:, :2]
    np.testing.assert_array_equal(alone.logpdf(X[:5], Y[:5]), alone.logpdf(X[5:10], Y[:5]))
    law = alone.predict_distribution(X[:1])
    exact = np.cov(Y.T)
    np.testing.assert_allclose(law.cov()[0], exact, atol=0.4)


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


def test_scorers_of_several_targets(model):
    X, Y = table(60, seed=7)
    for name in ("log_likelihood", "energy_score", "variogram_score", "dawid_sebastiani"):
        assert np.isfinite(get_scorer(name)(model, X, Y))


def test_samples_are_told_apart():
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 600, 2))
    assert metrics.c2st(one, two) < 0.56
    assert metrics.c2st(one + 2, two) > 0.85
    with pytest.raises(ValueError, match="same k"):
        metrics.c2st(one, two[:, :1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda Y: np.tile(Y, (1, 20)), "60 columns; at most 50"),
        (lambda Y: np.column_stack([Y, np.ones(len(Y))]), "'y3' of y is constant"),
        (lambda Y: np.column_stack([Y, 3 - 2 * Y[:, 1]]), "'y3' of y is determined by 'y1'"),
        (lambda Y: np.where(np.arange(len(Y))[:, None] == 5, np.nan, Y), "row 5"),
    ],
)
def test_targets_that_are_refused(change, message):
    X, Y = table(40)
    with pytest.raises(ValueError, match=message):
        MCD("quadratic").fit(X, change(Y))


def test_columns_that_do_not_match_at_prediction(model):
    X, Y = table(5, seed=8)
    with pytest.raises(ValueError, match=r"shape \(5, 3\)"):
        model.logpdf(X, Y[:, :2])
    with pytest.raises(ValueError, match="fitted with a, b, c"):
        model.logpdf(X, pandas.DataFrame(Y, columns=["a", "b", "d"]))
    shuffled = pandas.DataFrame(Y, columns=list("abc"))[["c", "a", "b"]]
    np.testing.assert_array_equal(model.logpdf(X, shuffled), model.logpdf(X, Y))
    with pytest.raises(ValueError, match=r"y_grid must be of shape \(m, 3\)"):
        model.pdf_from_X(X, [0.0, 1.0])


def test_a_distilled_chain(monkeypatch):
    monkeypatch.setattr(distilled, "_BUDGETS", ((0, 4000, 300),))
    X, Y = table(150)
    model = MCD("quadratic", random_state=0, **LINE).fit(X, Y[:, :2])
    small = model.distill(random_state=0)
    assert np.isfinite(small.distill_loss_)
    assert abs(small.score(X, Y[:, :2]) - model.score(X, Y[:, :2])) < 0.3
