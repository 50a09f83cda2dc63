"""`stacked`: what other learners tell about a row comes from models that have not seen it."""

import numpy as np
import pytest

from mcdensity import MCD
from mcdensity._effort import EFFORTS
from mcdensity.data import TrainingData
from mcdensity.experts import get_expert
from mcdensity.experts.density.columns import Boosted, Neighbours


def rows(n=300, seed=0, groups=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return TrainingData(X, rng.normal(size=(n, 1)), groups=groups, random_state=rng)


def test_a_row_is_not_its_own_neighbour():
    data = rows()
    neighbours, columns = Neighbours.learn(data)
    # The targets are noise: their own would correlate perfectly.
    assert abs(np.corrcoef(columns[:, 0], data.Y[:, 0])[0, 1]) < 0.25
    np.testing.assert_allclose(neighbours(data.X)[:, 0], data.Y[:, 0])


def test_neighbours_are_near_in_x_and_in_its_principal_components():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[:, 2] = X[:, 0] + 0.01 * X[:, 2]  # small differences of columns count as much as others
    y = rng.normal(size=200)
    neighbours, _ = Neighbours.learn(TrainingData(X, y[:, None], random_state=rng))
    _, _, vectors = np.linalg.svd(X, full_matrices=False)
    z = X @ vectors.T
    z /= np.sqrt((z**2).mean(axis=0))
    new = 0.9 * X[:50] + 0.1 * X[50:100]
    z_new = new @ np.linalg.lstsq(X, z, rcond=None)[0]
    distance = ((new[:, None] - X) ** 2).sum(-1) + ((z_new[:, None] - z) ** 2).sum(-1)
    np.testing.assert_allclose(neighbours(new)[:, 0], y[distance.argmin(axis=1)])
    np.testing.assert_allclose(
        neighbours(new)[:, 6], np.log(np.sqrt(distance.min(axis=1)) + 0.01), rtol=1e-6
    )


def test_damaged_neighbours_are_refused():
    """As a forged file may have them."""
    short, _ = Neighbours.learn(rows())
    short._y = short._y[:5]
    far, _ = Neighbours.learn(rows())
    far._X = 1e200 * far._X
    del far._tree
    for damaged in (short, far):
        with pytest.raises(ValueError, match="damaged"):
            damaged(np.zeros((2, 3)))


def test_copies_of_a_row_are_found_and_groups_are_not():
    X = np.repeat(np.random.default_rng(1).normal(size=(60, 3)), 2, axis=0)
    y = np.repeat(np.random.default_rng(2).normal(size=60), 2)
    data = TrainingData(X, y[:, None], random_state=np.random.default_rng(0))
    np.testing.assert_allclose(Neighbours.learn(data)[1][:, 0], y)
    grouped = data.but(groups=np.repeat(np.arange(60), 2))
    assert (Neighbours.learn(grouped)[1][:, 0] != y).mean() > 0.9


def test_a_row_is_not_found_instead_of_its_copy():
    X = np.repeat(np.random.default_rng(1).normal(size=(60, 3)), 2, axis=0)
    y = np.random.default_rng(2).normal(size=120)
    data = TrainingData(X, y[:, None], random_state=np.random.default_rng(0))
    other = y.reshape(-1, 2)[:, ::-1].ravel()
    np.testing.assert_allclose(Neighbours.learn(data)[1][:, 0], other)


def test_boosted_means_are_those_of_models_without_the_row():
    data = rows(2000)
    boosted, columns = Boosted.learn(data)
    assert abs(np.corrcoef(columns[:, 0], data.Y[:, 0])[0, 1]) < 0.1
    assert np.corrcoef(boosted(data.X)[:, 0], data.Y[:, 0])[0, 1] > 0.5
    assert Boosted.learn(rows(200)) is None


def test_columns_of_the_forest_are_those_of_trees_without_the_row():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)), rng.normal(size=400)
    seen = {}

    class Spy(type(get_expert("forest"))):
        def fit(self, data):
            report = super().fit(data)
            seen["columns"], seen["y"] = report.columns, data.Y[:, 0]
            seen["after"] = self.condition(data.X).columns
            return report

    from mcdensity.experts import register, unregister

    register("spy")(Spy)
    try:
        MCD("spy", discriminator_params={"n_trees": 50}, random_state=0).fit(X, y)
    finally:
        unregister("spy")
    assert abs(np.corrcoef(seen["columns"][:, 0], seen["y"])[0, 1]) < 0.2
    assert np.corrcoef(seen["after"][:, 0], seen["y"])[0, 1] > 0.5


def test_stacked_learns_a_law_of_near_copies():
    # A step function of hidden cells: neighbours and trees see it, a smooth network hardly.
    rng = np.random.default_rng(0)
    level = rng.normal(size=200)
    cell = rng.integers(200, size=1600)
    X = np.column_stack([cell / 200, rng.normal(scale=1e-3, size=1600)])
    y = level[cell] + 0.1 * rng.normal(size=1600)
    train, test = slice(0, 1200), slice(1200, None)
    params = {"steps": 300, "noise": 0.01}
    alone = MCD("mixture", discriminator_params=params, random_state=0)
    stacked = MCD("stacked", discriminator_params={"network_params": params}, random_state=0)
    scores = [m.fit(X[train], y[train]).score(X[test], y[test]) for m in (alone, stacked)]
    assert scores[1] > scores[0] + 0.3


def test_less_effort_means_fewer_experts_and_steps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = X[:, 0] + 0.3 * rng.normal(size=120)
    fast = MCD(effort="fast", random_state=0).fit(X, y)
    assert set(fast.discriminator_.scores_) == {"quadratic", "mixture", "auto"}
    network = MCD("mixture", effort="fast", random_state=0).fit(X, y).discriminator_
    usual = MCD("mixture", random_state=0).fit(X, y).discriminator_
    assert network.n_steps_ < usual.n_steps_
    assert len(network.noise_weights_) == 1
    with pytest.raises(ValueError, match="effort"):
        MCD(effort="some").fit(X, y)
    assert list(EFFORTS) == ["fast", "normal", "best"]


@pytest.mark.parametrize("n", [101, 102, 103])
def test_every_row_is_held_out_by_some_trees(n):
    X = np.random.default_rng(0).normal(size=(n, 2))
    params = {"n_trees": 10, "network_params": {"steps": 20}}
    model = MCD("stacked", discriminator_params=params, random_state=0).fit(X, X[:, 0] ** 2)
    assert np.isfinite(model.logpdf(X, X[:, 0] ** 2)).all()


@pytest.mark.parametrize("groups", [4, 7])
def test_few_groups(groups):
    rng = np.random.default_rng(0)
    group = np.arange(60) % groups
    X = rng.normal(size=(groups, 2))[group]
    params = {"n_trees": 10, "network_params": {"steps": 20}}
    model = MCD("stacked", discriminator_params=params, random_state=0)
    model.fit(X, rng.normal(size=60), groups=group)
    assert np.isfinite(model.predict(X[:3])).all()


def test_the_order_of_a_portfolio_does_not_matter():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = X[:, 0] + rng.normal(size=120)
    small = {
        "forest": {"n_trees": 10},
        "stacked": {"n_trees": 10, "network_params": {"steps": 20}},
    }
    forward, backward = (
        MCD(discriminator_params={"portfolio": dict(order)}, random_state=0, n_jobs=1).fit(X, y)
        for order in (small.items(), reversed(small.items()))
    )
    stacked = backward.discriminator_.experts_.get("stacked")
    assert stacked is None or stacked.forest_ is None
    # Each expert has a seed of its own, by its place.
    np.testing.assert_allclose(forward.logpdf(X, y), backward.logpdf(X, y), rtol=1e-12)


def test_an_expert_with_a_forest_of_its_own_does_not_use_another():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    params = {"n_trees": 10, "network_params": {"steps": 20}}
    expert = MCD("stacked", discriminator_params=params, random_state=0).fit(X, X[:, 0])
    inner = expert.discriminator_
    y = np.zeros(1)
    own = inner.condition(X[:5]).log_density(y)
    told = inner.condition(X[:5], np.full((5, 7), 9.0)).log_density(y)
    np.testing.assert_array_equal(own, told)
