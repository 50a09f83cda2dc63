"""Several targets by pairs: a law of y alone times a ratio; and which way is chosen."""

import numpy as np
import pytest
from scipy import stats
from sklearn.ensemble import HistGradientBoostingClassifier

from mcdensity import MCD, load, save
from mcdensity._joint_choice import choose_way
from mcdensity.distribution.tilted import TiltedDistribution
from samples import COVARIANCE, SLOPES, exact_logpdf

LINE = {"target": "continuous", "support": (None, None)}
SPREAD = np.array([[1.0, 0.5], [0.5, 1.0]])


class Normal:
    """A link: y_j given the targets before it, of a standard normal vector; x is one column."""

    def __init__(self, place):
        self.place = place

    def _law(self, X):
        if self.place == 0:
            return stats.norm(np.zeros((len(X), 1)), 1)
        return stats.norm(0.5 * X[:, 1:2], np.sqrt(0.75))

    def logpdf(self, X, y):
        return self._law(X).logpdf(y[:, None])[:, 0]

    def ppf(self, X, q):
        return self._law(X).ppf(q)

    def draw(self, X, q):
        y = self.ppf(X, q)
        return y, self._law(X).logpdf(y)

    def laws(self, X):
        from mcdensity.distribution import ScipyDistribution

        mean = np.zeros((len(X), 1)) if self.place == 0 else 0.5 * X[:, 1:2]
        return ScipyDistribution(stats.norm, mean, np.full_like(mean, self._law(X).std()[0, 0]))


def log_ratio(X, Y, log_common):
    return X[:, 0] * Y[:, 0] - 0.5 * Y[:, 1] ** 2


@pytest.fixture(params=[True, False], ids=["blind", "own draws"])
def tilted(request):
    X = np.array([[0.0], [0.7], [-1.5]])
    links = [Normal(0), Normal(1)]
    return TiltedDistribution(
        links, X, [0, 1], ["a", "b"], log_ratio=log_ratio, blind=request.param
    )


def truth(x):
    """The law of the fixture: a normal tilted by a linear and a quadratic term is a normal."""
    precision = np.linalg.inv(SPREAD) + np.diag([0.0, 1.0])
    cov = np.linalg.inv(precision)
    return cov @ [x, 0.0], cov


def test_a_tilted_normal_is_a_normal(tilted):
    more = 1 if tilted._blind else 3  # with an eighth of the draws
    points = np.random.default_rng(0).normal(size=(3, 50, 2))
    for i, x in enumerate((0.0, 0.7, -1.5)):
        mean, cov = truth(x)
        exact = stats.multivariate_normal(mean, cov).logpdf(points[i])
        np.testing.assert_allclose(tilted.logpdf(points)[i], exact, atol=0.02 * more)
        np.testing.assert_allclose(tilted.mean()[i], mean, atol=0.03 * more)
        np.testing.assert_allclose(tilted.cov()[i], cov, atol=more * (0.02 + 0.03 * abs(x)))
        draws = tilted.sample(20_000, 0)[i]
        np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.04)
        np.testing.assert_allclose(np.cov(draws.T), cov, atol=0.05)
        marginal = tilted.marginal("b")
        assert np.isclose(marginal.mean()[i], mean[1], atol=0.03 * more)
        assert np.isclose(marginal.std()[i], np.sqrt(tilted.cov()[i, 1, 1]), rtol=0.01)
    assert len(np.unique(tilted.sample(2000, 1)[2, :, 0])) > 1000  # refined, not only chosen
    np.testing.assert_array_equal(tilted.sample(5, 3), tilted.sample(5, 3))
    assert tilted[:0].sample(5, 3).shape == (0, 5, 2)


def test_conditionals_and_levels_of_a_tilted_law(tilted):
    given = tilted.conditional({"a": 0.8})
    for i, x in enumerate((0.0, 0.7, -1.5)):
        mean, cov = truth(x)
        slope = cov[0, 1] / cov[0, 0]
        assert np.isclose(given.mean()[i], mean[1] + slope * (0.8 - mean[0]), atol=0.01)
        spread = np.sqrt(cov[1, 1] - slope * cov[0, 1])
        np.testing.assert_allclose(given.std()[i], spread, atol=0.01)
    first = tilted.conditional({"b": -0.3})
    mean, cov = truth(0.7)
    slope = cov[0, 1] / cov[1, 1]
    assert np.isclose(first.mean()[1], mean[0] + slope * (-0.3 - mean[1]), atol=0.01)
    level = tilted.hpd_level(np.array([truth(x)[0] for x in (0.0, 0.7, -1.5)]))
    assert (level < 0.05).all()
    few, many = tilted.effective_draws()[[2, 0]]
    assert 40 < few < many < 2048


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X @ SLOPES + rng.normal(size=(n, 3)) @ np.linalg.cholesky(COVARIANCE).T


@pytest.mark.parametrize("name", ["quadratic", "mlp", HistGradientBoostingClassifier()])
def test_any_classifier_learns_pairs(name, tmp_path):
    X, Y = table(400)
    X_new, Y_new = table(300, seed=5)
    model = MCD(name, joint="contrast", random_state=0, **LINE).fit(X, Y)
    assert model.joint_way_ == "contrast"
    assert model.effective_draws_ > 30
    alone = MCD("quadratic", joint="chain", random_state=0, **LINE).fit(np.zeros((400, 1)), Y)
    gain = model.score(X_new, Y_new) - alone.score(np.zeros((300, 1)), Y_new)
    possible = exact_logpdf(X_new @ SLOPES, COVARIANCE, Y_new).mean() - alone.score(
        np.zeros((300, 1)), Y_new
    )
    assert gain > (0.85 if name == "quadratic" else 0.4) * possible
    np.testing.assert_allclose(model.predict(X_new[:20]), X_new[:20] @ SLOPES, atol=1.0)
    low, high = np.moveaxis(model.predict_interval(X_new[:100], 0.8, joint=True), 2, 0)
    held = ((Y_new[:100] >= low) & (Y_new[:100] <= high)).all(axis=1).mean()
    assert 0.65 < held < 0.97
    if not isinstance(name, str):
        return
    with pytest.raises(ValueError, match="distill is for chains"):
        model.distill()
    save(model, tmp_path / "model.mcd")
    again = load(tmp_path / "model.mcd")
    np.testing.assert_array_equal(again.logpdf(X_new, Y_new), model.logpdf(X_new, Y_new))
    # Rows do not depend on each other.
    np.testing.assert_allclose(
        model.logpdf(X_new[:3], Y_new[:3]), model.logpdf(X_new, Y_new)[:3], atol=1e-9
    )


def test_pairs_with_counts_missing_values_and_more_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    count = rng.poisson(np.exp(0.5 + 0.6 * X[:, 0]))
    Y = np.column_stack([count, 0.5 * count + X[:, 0] + rng.normal(size=300)])
    X[::10] = np.nan
    model = MCD("mlp", joint="contrast", random_state=0, support=[None, (None, None)])
    model.fit(X, Y, X_unlabeled=X[:50], y_marginal=Y[:40])
    law = model.predict_distribution([[1.0], [np.nan]])
    assert model.target_kind_ == ["discrete", "continuous"]
    assert law.marginal(0).is_discrete
    assert np.isclose(law.marginal(0).masses.sum(axis=1), 1).all()
    assert set(np.unique(law.sample(50, 0)[..., 0])) <= set(range(30))
    assert model.predict([[1.0], [-1.0]])[0, 0] > model.predict([[-1.0]])[0, 0]
    mixed = Y.copy()
    mixed[:150, 1] = 0.0
    with pytest.raises(ValueError, match="has a density and atoms; use joint='chain'"):
        model.set_params(support=None).fit(X, np.abs(mixed))


def test_a_time_budget_is_for_both_parts():
    X, Y = table(300)
    model = MCD("mlp", joint="contrast", time_budget=6.0, random_state=0, **LINE).fit(X, Y[:, :2])
    assert model.contrast_.time_budget == 6.0
    assert [link.time_budget for link in model.links_] == [1.5, 1.5]
    assert np.isfinite(model.score(X, Y[:, :2]))


def test_few_draws_are_said():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 3))
    Y = X + 0.01 * rng.normal(size=(400, 3))
    model = MCD("quadratic", joint="contrast", discriminator_params={"C": 1e6}, **LINE)
    with pytest.warns(UserWarning, match=r"only \d+ of the draws .* Use joint='chain'"):
        model.fit(X, Y)
    assert model.effective_draws_ < 30


def test_the_better_way_is_chosen():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 1))
    cause = X[:, 0] + rng.normal(size=900)
    # A sharp parabola one way, two modes the other.
    Y = np.column_stack([cause, cause**2 + 0.1 * rng.normal(size=900)])
    model = MCD("mixture", random_state=0, **LINE).fit(X, Y)
    scores = model.joint_scores_
    assert list(scores) == ["y0, y1", "y1, y0", "contrast"]
    best = max(scores, key=scores.get)
    assert scores[best] > min(scores.values()) + 0.1
    assert best == ("y1, y0" if model.joint_way_ == "chain" else "contrast")
    assert model.order_ == ([1, 0] if model.joint_way_ == "chain" else [0, 1])
    # No trial where there is too little to choose by.
    few = MCD("quadratic", random_state=0, **LINE).fit(X[:100], Y[:100])
    assert few.order_ == [0, 1]
    assert few.joint_scores_ == {}


def test_orders_that_are_level_stay_as_they_are():
    X, Y = table(300)
    settings = [{}] * 3
    model = MCD("quadratic", random_state=0, **LINE)
    way, order, scores = choose_way(model, X, Y, np.linspace(0.5, 1.5, 300), settings)
    assert (way, order) == ("chain", [0, 1, 2])
    assert len(scores) == 8  # six orders, pairs, and the law of x given y
