"""A forest as a density."""

import time

import numpy as np
import pytest
from scipy import stats

import mcdensity.experts.density.forest as forest
import mcdensity.portfolio as portfolio
from mcdensity import MCD
from mcdensity.baselines import MarginalBaseline
from mcdensity.data import OutOfTimeError, TrainingData


def sample(n, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + noise * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = sample(400)
    return MCD("forest", random_state=0).fit(X, y)


def test_the_density_integrates_to_one(fitted):
    conditioned = fitted.discriminator_.condition(sample(20, seed=1)[0])
    grid = fitted.discriminator_._grid
    density = np.exp(conditioned.log_density(grid))
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=1), 1, atol=2e-3)


def test_beyond_all_targets_a_part_of_the_marginal_is_left(fitted):
    """Not a constant, whose ratio to the marginal would grow without end."""
    law = fitted.predict_distribution(sample(50, seed=1)[0])
    assert np.abs(law.ppf(0.9999)).max() < 20
    far = law.logpdf_grid(np.array([30.0, 60.0]))
    assert (far[:, 1] < far[:, 0] - 1).all()


def test_shared_and_own_points_give_the_same(fitted):
    conditioned = fitted.discriminator_.condition(sample(30, seed=1)[0])
    y = np.linspace(-2, 2, 40)
    shared = conditioned.log_density(y)
    own = conditioned.log_density(np.tile(y, (30, 1)))
    np.testing.assert_allclose(shared, own, atol=1e-10)
    rows = np.array([7, 3])
    np.testing.assert_allclose(conditioned.log_density(y, rows), shared[rows], atol=1e-10)


def test_it_learns_a_known_law(fitted):
    X, y = sample(2000, seed=1)
    truth = stats.norm(np.sin(2 * X[:, 0]), 0.3).logpdf(y).mean()
    assert fitted.score(X, y) > truth - 0.3
    interval = fitted.predict_interval(X, 0.9)
    held = np.mean((y >= interval[:, 0]) & (y <= interval[:, 1]))
    assert 0.86 < held < 0.96


def test_it_finds_near_copies():
    """Each x comes three times with nearly the same y, which no smooth function of x predicts."""
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.normal(size=(300, 3)), 3, axis=0), np.repeat(rng.normal(size=300), 3)
    y = y + 0.01 * rng.normal(size=900)
    new = np.arange(900) % 3 == 0
    model = MCD("forest", random_state=0).fit(X[~new], y[~new])
    marginal = MarginalBaseline().fit(X[~new], y[~new])
    assert model.score(X[new], y[new]) > marginal.score(X[new], y[new]) + 1
    # Trees agree about copies: their rows are in the groups that trust narrow kernels.
    weights = model.discriminator_.width_weights_
    assert weights.shape == (4, 16)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    narrow = weights[:, :-1].reshape(4, 3, 5)[:, :, :2].sum(axis=(1, 2))
    assert narrow[0] > 0.5


def test_large_tables_get_fewer_trees(monkeypatch):
    X, y = sample(200)
    monkeypatch.setattr(forest, "_MOST_NODES", 20_000)
    model = MCD("forest", random_state=0).fit(X, y).discriminator_
    assert sum(len(f.estimators_) for f in model.forests_) == 50
    nodes = sum(tree.tree_.node_count for f in model.forests_ for tree in f.estimators_)
    assert nodes <= 20_000


def test_the_default_asks_it_from_two_hundred_rows_on(monkeypatch):
    monkeypatch.setattr(portfolio, "portfolio_names", lambda: ["quadratic", "forest"])
    for n, asked in ((199, False), (200, True)):
        model = MCD(random_state=0).fit(*sample(n))
        assert ("forest" in model.discriminator_.scores_) is asked
    params = {"portfolio": ("forest",)}
    assert "forest" in MCD(discriminator_params=params).fit(*sample(50)).discriminator_.scores_


def test_without_time_it_says_so(fitted):
    X, y = sample(300)
    from mcdensity.target import InnerMarginal

    marginal = InnerMarginal(fitted.target_space_, fitted.marginal_)
    data = TrainingData(X, y[:, None], marginal=marginal, deadline=time.monotonic())
    with pytest.raises(OutOfTimeError, match="forest"):
        forest.ForestDensity().fit(data)


def test_parameters_are_checked():
    for parameters in ({"n_trees": 0}, {"min_samples_leaf": 0}):
        with pytest.raises(ValueError, match="must be an integer of at least 1"):
            MCD("forest", discriminator_params=parameters).fit(*sample(40))


def test_parameters_change_the_density():
    X, y = sample(100)
    usual = MCD("forest", random_state=0).fit(X, y).predict_quantiles(X[:5])
    for parameters in ({"n_trees": 20}, {"min_samples_leaf": 5}, {"max_features": 0.5}):
        other = MCD("forest", discriminator_params=parameters, random_state=0).fit(X, y)
        assert np.abs(other.predict_quantiles(X[:5]) - usual).max() > 1e-3


def test_trees_see_principal_components():
    """A target that depends on a difference of correlated features: one split along it suffices."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(600, 1))
    X = common + 0.1 * rng.normal(size=(600, 2))
    y = np.sign(X[:, 0] - X[:, 1]) + 0.05 * rng.normal(size=600)
    model = MCD("forest", discriminator_params={"n_trees": 30}, random_state=0).fit(X, y)
    new = common + 0.1 * rng.normal(size=(600, 2))
    truth = np.sign(new[:, 0] - new[:, 1])
    clear = np.abs(new[:, 0] - new[:, 1]) > 0.03
    assert (np.sign(model.predict(new)) == truth)[clear].mean() > 0.97
    axes = model.discriminator_._axes
    assert axes.shape == (2, 2)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(np.cov((scaled @ axes).T), np.eye(2), atol=0.01)


def test_copies_of_a_feature_have_no_component_of_their_own():
    X = np.random.default_rng(0).normal(size=(60, 1))
    model = MCD("forest", discriminator_params={"n_trees": 10}, random_state=0)
    model.fit(np.hstack([X, X]), X[:, 0])
    assert model.discriminator_._axes.shape == (2, 1)


def test_many_rows_are_told_what_each_is_told_alone(fitted, monkeypatch):
    """They are asked in another order."""
    X = sample(50, seed=1)[0]
    alone = fitted.discriminator_._ask(X)
    monkeypatch.setattr(forest, "_MANY_ROWS", 50)
    for together, one in zip(fitted.discriminator_._ask(X), alone, strict=True):
        np.testing.assert_array_equal(together, one)
        assert not np.array_equal(one, np.sort(one, axis=1))
