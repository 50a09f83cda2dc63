"""Series, kernels, forests and least squares: what each must be, by its mathematics."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.neighbors import KNeighborsRegressor

from mcdensity.baselines import (
    LSCDE,
    NNKCDE,
    RFCDE,
    DeepCDE,
    FlexCode,
    FunctionalRFCDE,
    MarginalBaseline,
    get_estimator,
)
from mcdensity.baselines.kernels import cde_losses
from mcdensity.baselines.lscde import normal_equations
from mcdensity.baselines.series import cosine_basis, repair
from mcdensity.marginals import KernelDensity
from samples import bent

# Series.


def test_cosines_are_orthonormal():
    z = (np.arange(4000) + 0.5) / 4000
    basis = cosine_basis(z, 12)
    np.testing.assert_allclose(basis.T @ basis / len(z), np.eye(12), atol=1e-6)


def test_repair_makes_densities():
    rng = np.random.default_rng(0)
    z = np.linspace(0, 1, 513)
    coefficients = np.column_stack([np.ones(20), rng.normal(size=(20, 9))])
    raw = coefficients @ cosine_basis(z, 10).T
    for bump, sharpen in ((0, 1), (0.2, 1), (0, 2)):
        density = repair(raw, bump, sharpen)
        assert (density >= 0).all()
        np.testing.assert_allclose(np.trapezoid(density, z, axis=1), 1, rtol=1e-9)
    # A density stays as it is; where all is negative, the uniform density is left.
    good = 1 + 0.5 * np.cos(np.pi * z)[None]
    np.testing.assert_allclose(repair(good), good, rtol=1e-6)
    np.testing.assert_allclose(repair(np.full((1, 513), -1.0)), 1)


def test_repair_drops_small_bumps_and_keeps_the_largest():
    z = np.linspace(0, 1, 513)
    two = norm.pdf(z, 0.25, 0.03) + 0.05 * norm.pdf(z, 0.75, 0.03) - 0.01
    assert repair(two[None])[0, z > 0.6].sum() > 0
    assert repair(two[None], bump=0.1)[0, z > 0.6].sum() == 0
    assert repair(two[None], bump=0.99)[0, z < 0.6].sum() > 0


def test_flexcode_with_one_term_is_uniform():
    X, y = bent(200)
    inside = np.linspace(y.min(), y.max(), 52)[1:-1]
    flat = FlexCode(n_basis=1, floor=0.0).fit(X, y)
    np.testing.assert_allclose(flat.pdf_from_X(X[:4], inside), 1 / np.ptp(y), rtol=1e-3)
    outside = np.array([y.min() - 0.1, y.max() + 0.1])
    assert flat.pdf_from_X(X[:4], outside).max() < 1e-9
    # By default a share of the marginal is mixed in.
    mixed = FlexCode(n_basis=1).fit(X, y)
    share = 2 / 201
    assert mixed.floor_ == pytest.approx(share)
    expected = (1 - share) / np.ptp(y) + share * np.exp(
        mixed._marginal.logpdf((inside - mixed.y_mean_) / mixed.y_scale_)
    ) / mixed.y_scale_
    np.testing.assert_allclose(mixed.pdf_from_X(X[:1], inside)[0], expected, rtol=1e-3)


def test_deepcde_with_one_term_is_uniform():
    X, y = bent(100)
    flat = DeepCDE(n_basis=1, floor=0.0).fit(X, y)
    inside = np.linspace(y.min(), y.max(), 12)[1:-1]
    np.testing.assert_allclose(flat.pdf_from_X(X[:2], inside), 1 / np.ptp(y), rtol=1e-3)


@pytest.mark.parametrize(
    "regressor",
    [RandomForestRegressor(20, min_samples_leaf=10), GradientBoostingRegressor(n_estimators=20)],
    ids=["several targets", "one target"],
)
def test_flexcode_takes_any_regressor(regressor):
    X, y = bent(200)
    X_new, y_new = bent(200, seed=1)
    model = FlexCode(regressor, n_basis=15, random_state=0).fit(X, y, sample_weight=1 + (y > 0))
    assert model.score(X_new, y_new) > MarginalBaseline().fit(X, y).score(X_new, y_new) + 0.2


def test_flexcode_seeds_what_the_user_did_not():
    X, y = bent(80)
    inner = GradientBoostingRegressor(n_estimators=5, subsample=0.5)
    first, second = (
        FlexCode(inner, n_basis=5, random_state=0).fit(X, y).logpdf(X, y) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    own = FlexCode(RandomForestRegressor(5, random_state=7), n_basis=5, random_state=0).fit(X, y)
    assert own.regressor_.random_state == 7


@pytest.mark.parametrize("name", ["flexcode-nn", "deepcde"])
@pytest.mark.parametrize("outlier", [30.0, 1e4])
def test_series_survive_an_outlier(name, outlier):
    X, y = bent(400)
    X_new, y_new = bent(400, seed=1)
    y[0] = outlier
    model = get_estimator(name, random_state=0).fit(X, y)
    low, high = model.predict_interval(X_new).T
    assert 0.8 < np.mean((y_new > low) & (y_new < high)) < 0.99
    assert model.score(X_new, y_new) > MarginalBaseline("tailed").fit(X, y).score(X_new, y_new)
    # The outlier itself keeps a chance.
    assert model.predict_distribution(X[:1]).sf(outlier / 2)[0] > 1e-4


def test_refitting_starts_anew():
    X, y = bent(100)
    model = DeepCDE(sharpen=None, random_state=0, steps=40).fit(X, y)
    model.set_params(sharpen=1.5, bump_threshold=0.1).fit(X[:9], y[:9])
    assert (model.sharpen_, model.bump_threshold_) == (1.5, 0.1)
    fixed = NNKCDE().fit(X, y).set_params(n_neighbors=5, bandwidth=0.2).fit(X, y)
    assert not hasattr(fixed, "cde_loss_")


def test_flexcode_refuses_what_it_cannot_use():
    X, y = bent(50)
    with pytest.raises(ValueError, match="KNeighborsRegressor does not take weights"):
        FlexCode(KNeighborsRegressor()).fit(X, y, sample_weight=1 + (y > 0))
    with pytest.raises(ValueError, match=r"regressor must be .nn., .* got 'forest'"):
        FlexCode("forest").fit(X, y)
    with pytest.raises(TypeError, match="regressor must be a name or a scikit-learn regressor"):
        FlexCode(3).fit(X, y)


# Kernels: neighbours and forests.


def test_cde_losses_are_those_of_quadrature():
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(0)
    y, at = rng.normal(size=30), rng.normal(size=5)
    weights = rng.dirichlet(np.ones(30), size=5)
    grid = np.linspace(-8, 8, 8001)
    for h, loss in zip(
        (0.1, 0.5), cde_losses([csr_matrix(weights)], y, at, np.array([0.1, 0.5]), None)[0],
        strict=True,
    ):  # fmt: skip
        density = weights @ norm.pdf(grid, y[:, None], h)
        own = np.diag(weights @ norm.pdf(at, y[:, None], h))
        losses = np.trapezoid(density**2, grid, axis=1) - 2 * own
        assert loss == pytest.approx(np.mean(losses), rel=1e-6)
        share = np.array([1.0, 2.0, 0.5, 3.0, 1.0])
        weighted = cde_losses([csr_matrix(weights)], y, at, np.array([h]), share)[0, 0]
        assert weighted == pytest.approx(np.average(losses, weights=share), rel=1e-6)
        other = cde_losses([csr_matrix(weights)], y, at, np.array([h]), None, logarithmic=True)
        assert other[0, 0] == pytest.approx(-np.log(own + 2 / 31 * norm.pdf(at, 0, 2)).mean())


def test_nnkcde_with_all_neighbors_is_the_kernel_density():
    X, y = bent(300)
    model = NNKCDE(n_neighbors=300, bandwidth=0.3).fit(X, y)
    kde = KernelDensity(bandwidth=0.3 * y.std()).fit(y)
    grid = np.linspace(-3, 3, 200)
    density = model.pdf_from_X(X[:3], grid)
    expected = np.exp(kde.logpdf(grid))
    np.testing.assert_allclose(density, [expected] * 3, atol=1e-3 * expected.max())


def test_gathered_targets_change_next_to_nothing():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 2)), rng.normal(size=3000)
    model = NNKCDE(n_neighbors=400, bandwidth=0.3).fit(X, y)
    assert len(model._nodes) < 1000
    grid = np.linspace(-5, 5, 100)
    index = model._neighbors.kneighbors((X[:5] - X.mean(0)) / X.std(0), 400, False)
    exact = norm.pdf(grid, y[index][:, :, None], 0.3 * y.std()).mean(axis=1)
    np.testing.assert_allclose(model.pdf_from_X(X[:5], grid), exact, atol=2e-3 * exact.max())


def test_a_row_is_not_its_own_neighbor_in_the_choice():
    # Copies of x with their own targets: only their spread tells the bandwidth.
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(20, 1)), 20, axis=0)
    y = X[:, 0] + rng.normal(size=400)
    model = NNKCDE().fit(X, y)
    assert model.n_neighbors_ >= 15
    assert model.bandwidth_ > 0.1


def test_one_distinct_target_among_the_neighbors():
    X = np.repeat([[0.0], [1.0]], 50, axis=0)
    y = np.repeat([1.0, 2.0], 50) + np.repeat([0.0, 1e-9], 50) * np.arange(100)
    for name in ("nnkcde", "rfcde", "flexcode-nn"):
        model = get_estimator(name).fit(X, y)
        quantiles = model.predict_quantiles([[0.0], [1.0]])
        assert np.isfinite(quantiles).all()
        assert (np.diff(quantiles, axis=1) > 0).all()
        assert np.isfinite(model.logpdf([[0.0], [1.0]], [1.0, 2.0])).all()


def test_forest_weights_come_from_the_leaves():
    X, y = bent(80)
    weight = np.random.default_rng(0).uniform(0.5, 2, size=80)
    model = RFCDE(n_trees=7, bandwidth=0.3, random_state=0).fit(X, y, sample_weight=weight)
    scaled = (X - model.x_mean_) / model.x_scale_
    weights = model._row_weights(scaled[:6]).toarray()
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    # The same by definition: in each tree, the rows of the leaf by how often they were drawn.
    rng = np.random.default_rng(0)
    expected = np.zeros((6, 80))
    for tree in model.trees_:
        count = np.bincount(rng.integers(80, size=80), minlength=80) * weight
        rng.integers(2**31)
        rng.integers(2**63)
        together = tree.apply(scaled[:6])[:, None] == tree.apply(scaled)
        expected += together * count / (together * count).sum(axis=1, keepdims=True) / 7
    np.testing.assert_allclose(weights, expected)


def test_rows_of_a_forest_do_not_depend_on_each_other():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=700)
    model = RFCDE(random_state=0).fit(X, y)
    np.testing.assert_allclose(model.logpdf(X[:5], y[:5]), model.logpdf(X, y)[:5], atol=1e-10)


@pytest.mark.parametrize("flambda", [1e-17, 1e19, 1e300])
def test_extreme_lambdas(flambda):
    X, y = bent(60, p=5)
    model = FunctionalRFCDE(flambda, n_trees=5, random_state=0).fit(X, y)
    assert {len(first) for first in model.groups_} == {5 if flambda < 1 else 1}


@pytest.mark.parametrize("name", ["nnkcde", "rfcde"])
def test_rounded_targets_do_not_become_spikes(name):
    X, y = bent(400)
    X_new, y_new = bent(400, seed=1)
    model = get_estimator(name).fit(X, y.round(2))
    assert model.bandwidth_ > 0.01
    assert model.score(X_new, y_new) > MarginalBaseline().fit(X, y).score(X_new, y_new) + 0.35


def test_bandwidths_can_be_small():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=2000)
    model = NNKCDE().fit(x[:, None], x + 0.002 * rng.normal(size=2000))
    assert model.bandwidth_ < 0.006


def test_splits_are_those_of_the_cde_loss():
    # One split: of all thresholds the tree takes that with the largest gain of the series' loss.
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(60, 1))
    y = np.where(X[:, 0] > 0.6, rng.normal(size=60), rng.choice([-2, 2], size=60))
    model = RFCDE(n_trees=1, min_samples_leaf=15, n_basis=8, bandwidth=0.3, random_state=0)
    model.fit(X, y)
    tree = model.trees_[0].tree_
    rng = np.random.default_rng(0)
    drawn = rng.integers(60, size=60)
    x, z = X[drawn, 0], (y[drawn] - y.min()) / np.ptp(y)
    basis = cosine_basis(z, 8)
    gains = {}
    for cut in np.unique(x)[:-1]:
        left = x <= cut
        if min(len(np.unique(drawn[left])), len(np.unique(drawn[~left]))) >= 15:
            sides = [basis[side] for side in (left, ~left)]
            gains[cut] = sum(len(s) * (s.mean(axis=0) ** 2).sum() for s in sides)
    best = max(gains, key=gains.get)
    after = np.unique(x)[np.searchsorted(np.unique(x), best) + 1]
    threshold = tree.threshold[0] * model.x_scale_[0] + model.x_mean_[0]
    assert best <= threshold <= after


def functional(n, seed):
    """Smooth curves seen with much noise at 100 points; y depends on their level in a stretch."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, 100)
    size, phase = rng.normal(size=(n, 1)), rng.uniform(0, 2 * np.pi, size=(n, 1))
    curves = size * np.exp(-((t - 0.5) ** 2) / 0.02) + 0.5 * np.sin(2 * np.pi * t + phase)
    y = size[:, 0] + 0.2 * rng.normal(size=n)
    return curves + 1.5 * rng.normal(size=(n, 100)), y


def test_functional_forest():
    X, y = functional(500, 0)
    X_new, y_new = functional(500, 1)
    plain = RFCDE(random_state=0).fit(X, y)
    same = FunctionalRFCDE(flambda=0, random_state=0).fit(X, y)
    np.testing.assert_array_equal(plain.logpdf(X_new, y_new), same.logpdf(X_new, y_new))
    grouped = FunctionalRFCDE(flambda=10, random_state=0).fit(X, y)
    chosen = FunctionalRFCDE(random_state=0).fit(X, y)
    assert chosen.flambda_ >= 5
    assert chosen.score(X_new, y_new) > plain.score(X_new, y_new) + 0.1
    assert np.abs(grouped.predict(X_new) - plain.predict(X_new)).mean() > 0.05
    assert grouped.score(X_new, y_new) > plain.score(X_new, y_new) + 0.1
    lengths = np.concatenate([np.diff(first) for first in grouped.groups_])
    assert 9 < lengths.mean() < 11


def test_groups_of_a_small_lambda():
    X, y = functional(60, 0)
    model = FunctionalRFCDE(flambda=0.1, n_trees=5, random_state=0).fit(X, y)
    lengths = np.concatenate([np.diff(first) for first in model.groups_])
    # Poisson numbers without their zeros: their mean is lambda / (1 - exp(-lambda)).
    assert lengths.min() == 1
    assert lengths.mean() == pytest.approx(0.1 / (1 - np.exp(-0.1)), abs=0.06)


# Least squares.


def test_lscde_solves_its_normal_equations():
    X, y = bent(60)
    weight = np.random.default_rng(0).uniform(0.5, 2, size=60)
    model = LSCDE(bandwidth=0.4, x_bandwidth=0.7, regularization=0.1).fit(
        X, y, sample_weight=weight
    )
    x, t = (X - model.x_mean_) / model.x_scale_, (y - model.y_mean_) / model.y_scale_
    share = weight / weight.sum()
    # The matrix by quadrature, from its definition.
    grid = np.linspace(-8, 8, 4001)
    u, v = model.centers_[:, :-1], model.centers_[:, -1]
    of_x = np.exp(-((x[:, None] - u) ** 2).sum(axis=2) / (2 * 0.7**2))
    of_y = np.exp(-((grid[:, None] - v) ** 2) / (2 * 0.4**2))
    between = of_y.T @ of_y * (grid[1] - grid[0])
    H = between * np.einsum("i,ij,ik->jk", share, of_x, of_x)
    b = share @ (of_x * np.exp(-((t[:, None] - v) ** 2) / (2 * 0.4**2)))
    np.testing.assert_allclose(H @ model.solution_ + 0.1 * model.solution_, b, atol=1e-8)
    np.testing.assert_array_equal(model.weights_, np.maximum(model.solution_, 0))
    np.testing.assert_allclose(
        normal_equations(x, t, share, model.centers_, 0.4, 0.7)[0], H, atol=1e-8
    )


def test_lscde_chooses_by_held_out_rows():
    X, y = bent(300)
    X_new, y_new = bent(300, seed=1)
    chosen = LSCDE(random_state=0).fit(X, y)
    fixed = LSCDE(bandwidth=0.5, regularization=1.0).fit(X, y)
    assert (fixed.bandwidth_, fixed.x_bandwidth_, fixed.regularization_) == (0.5, 0.5, 1.0)
    assert chosen.score(X_new, y_new) > fixed.score(X_new, y_new) + 0.1


def test_lscde_with_fewer_centers_than_rows():
    X, y = bent(400)
    model = LSCDE(n_centers=40, random_state=0).fit(X, y)
    assert model.centers_.shape == (40, 3)
    assert model.score(X, y) > MarginalBaseline().fit(X, y).score(X, y) + 0.2
