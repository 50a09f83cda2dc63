"""The compared methods: what each must be, by its mathematics."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

from mcdensity import MCD
from mcdensity.baselines import (
    KMN,
    LSCDE,
    MDN,
    NNKCDE,
    RFCDE,
    DeepCDE,
    FlexCode,
    FunctionalRFCDE,
    MarginalBaseline,
    NormalizingFlow,
    get_estimator,
    list_estimators,
)
from mcdensity.baselines.kernels import cde_losses, evaluation_rows
from mcdensity.baselines.lscde import normal_equations
from mcdensity.baselines.series import cosine_basis, repair
from mcdensity.distribution import GaussianMixtureDistribution
from mcdensity.marginals import KernelDensity

QUICK = {"steps": 60, "width": 8, "members": 2, "random_state": 0}


def bent(n, seed=0, p=2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p))
    return X, np.sin(3 * X[:, 0]) + (0.1 + 0.2 * (X[:, 0] > 0)) * rng.normal(size=n)


# Registry.


def test_registry():
    names = {"nnkcde", "nf", "lscde", "mdn", "kmn", "deepcde", "rfcde", "f-rfcde", "flexcode-nn"}
    assert names | {"flexcode-xgboost", "flexcode-mlp", "marginal"} == set(list_estimators())
    assert get_estimator("flexcode-nn", n_basis=5).get_params()["n_basis"] == 5
    with pytest.raises(ValueError, match=r"'nkcde' is not known; choose from .*'nnkcde'"):
        get_estimator("nkcde")


def test_listing_loads_no_torch():
    code = (
        "import sys, mcdensity.baselines as b; b.list_estimators(); print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


@pytest.mark.parametrize("name", sorted(set(list_estimators()) - {"marginal"}))
def test_each_learns_from_x(name):
    X, y = bent(300)
    X_new, y_new = bent(300, seed=1)
    model = get_estimator(name)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    gain = model.fit(X, y).score(X_new, y_new) - MarginalBaseline().fit(X, y).score(X_new, y_new)
    assert gain > 0.35  # of about 0.9 that there is


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


# Networks.


def test_mdn_with_one_component_is_least_squares():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.5 * rng.normal(size=1000)
    model = MDN(n_components=1, noise=0.0, random_state=0).fit(X, y)
    line = LinearRegression().fit(X, y)
    X_new = rng.normal(size=(500, 3))
    error = model.predict(X_new) - line.predict(X_new)
    assert np.sqrt(np.mean(error**2)) < 0.1
    residual = np.std(y - line.predict(X))
    np.testing.assert_allclose(np.median(np.sqrt(model.predict_var(X_new))), residual, rtol=0.1)


@pytest.mark.parametrize(
    "model", [MDN(**QUICK), KMN(**QUICK), NNKCDE(), RFCDE(5), LSCDE()], ids=str
)
def test_mixtures_keep_their_closed_form(model):
    X, y = bent(100)
    distribution = model.fit(X, y).predict_distribution(X[:4])
    assert isinstance(distribution, GaussianMixtureDistribution)
    draws = distribution.sample(20_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), distribution.mean(), atol=0.05)
    np.testing.assert_allclose(distribution.cdf(distribution.ppf(0.3)), 0.3, atol=1e-12)


def test_kmn_shares_its_kernels():
    X, y = bent(200)
    model = KMN(n_centers=20, scales=(0.5, 0.2), **QUICK).fit(X, y)
    assert model.scales_.shape == (2, 2)
    assert np.abs(np.log(model.scales_ / [0.5, 0.2])).max() > 1e-3  # they were trained
    assert model.predict_distribution(X).means.strides[0] == 0
    fixed = KMN(n_centers=20, scales=(0.5, 0.2), train_scales=False, **QUICK).fit(X, y)
    np.testing.assert_allclose(fixed.scales_, [[0.5, 0.2]] * 2, rtol=1e-6)


@pytest.mark.parametrize("cls", [MDN, KMN, NormalizingFlow, DeepCDE])
def test_the_level_of_noise_is_chosen_and_shown(cls):
    X, y = bent(150)
    model = cls(**QUICK).fit(X, y)
    assert model.noise_ in np.array([0.05, 0.15, 0.4]) * 1.5 ** (-1 / 6)
    assert np.isfinite(model.validation_score_)
    assert next(model.module_.parameters()).shape[0] == 2
    assert cls(noise=0.3, **QUICK).fit(X, y).noise_ == 0.3


def test_kmn_predicts_with_the_scales_it_trained():
    X, y = bent(200)
    model = KMN(scales=(0.01,), train_scales=False, noise=0.0, **QUICK).fit(X, y)
    distribution = model.predict_distribution(X)
    np.testing.assert_allclose(distribution.scales / model.y_scale_, 0.01, rtol=1e-5)


def test_noise_widens_the_density():
    # With noise on x and y, of standard deviation 1, nothing narrower than 1 can be learned.
    X, y = bent(300)
    plain, noisy = (
        MDN(noise=noise, steps=200, random_state=0).fit(X, y).predict_var(X).mean() / y.var()
        for noise in (0.0, 1.0)
    )
    assert plain < 0.4
    assert 1.2 < noisy < 2.5


def test_numpy_numbers_are_numbers():
    X, y = bent(60)
    MDN(steps=np.int64(5), width=np.int32(4), members=2, batch_size=np.float64(64)).fit(X, y)
    KMN(train_scales=np.bool_(True), steps=np.int64(5)).fit(X, y)
    NNKCDE(n_neighbors=np.int64(5)).fit(X, y)
    RFCDE(n_trees=np.int64(5), max_features=np.int64(1)).fit(X, y)


@pytest.mark.parametrize("name", sorted(set(list_estimators()) - {"marginal"}))
def test_extreme_weights(name):
    X, y = bent(60)
    model = get_estimator(name)
    if "steps" in model.get_params():
        model.set_params(steps=20, width=8)
    for weight in ([1e-200] * 30 + [1e200] * 30, [1e30] + [1.0] * 59):
        quantiles = model.fit(X, y, sample_weight=weight).predict_quantiles(X[:3])
        assert np.isfinite(quantiles).all()


@pytest.mark.parametrize("flow", ["spline", "radial"])
def test_flows_are_densities_point_by_point(flow):
    # Before any grid: the formula itself integrates to one.
    X, y = bent(200)
    model = NormalizingFlow(flow, **QUICK).fit(X, y)
    grid = np.linspace(-40, 40, 80_001)
    density = np.exp(model._log_density_grid((X[:3] - model.x_mean_) / model.x_scale_, grid))
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=1), 1, atol=1e-4)


def test_networks_stay_sane_far_from_the_training_rows():
    X, y = bent(200)
    far = np.array([[1e6, -1e6], [1e300, 0.0]])
    for name in ("mdn", "kmn", "nf", "deepcde", "nnkcde", "rfcde", "lscde", "flexcode-nn"):
        model = get_estimator(name)
        if "steps" in model.get_params():
            model.set_params(**QUICK)
        quantiles = model.fit(X, y).predict_quantiles(far)
        assert np.isfinite(quantiles).all()
        assert np.abs(quantiles).max() < 50


def test_torch_is_left_as_it_was():
    import torch

    X, y = bent(60)
    torch.manual_seed(3)
    before = torch.rand(1)
    torch.manual_seed(3)
    MDN(**QUICK).fit(X, y).predict(X)
    assert torch.rand(1) == before


# Bad input.


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (NNKCDE(n_neighbors=51), "n_neighbors must be an integer from 1 to 50, got 51"),
        (NNKCDE(n_neighbors=0), "n_neighbors must be an integer from 1"),
        (NNKCDE(n_neighbors=True), "n_neighbors must be an integer from 1"),
        (NNKCDE(n_neighbors="many"), 'n_neighbors must be "cv" or an integer'),
        (NNKCDE(bandwidth=0), 'bandwidth must .* or be "cv", got 0'),
        (NNKCDE(bandwidth=1e200), 'bandwidth must .* or be "cv", got 1e\\+200'),
        (RFCDE(bandwidth=0.0), 'bandwidth must .* or be "cv", got 0.0'),
        (RFCDE(bandwidth="auto"), "bandwidth must .* or be \"cv\", got 'auto'"),
        (RFCDE(bandwidth=None), 'bandwidth must .* or be "cv", got None'),
        (RFCDE(min_samples_leaf=60), "min_samples_leaf must be an integer from 1 to 50"),
        (RFCDE(n_trees=0), "n_trees must be an integer of at least 1"),
        (RFCDE(n_trees=float("nan")), "n_trees must be an integer of at least 1, got nan"),
        (RFCDE(n_trees=None), "n_trees must be an integer of at least 1, got None"),
        (RFCDE(n_basis=51), "n_basis must be an integer from 2 to 50"),
        (FunctionalRFCDE(flambda=-1), 'flambda must be a number .* or be "cv", got -1'),
        (LSCDE(bandwidth=0), 'bandwidth must .* or be "cv"'),
        (LSCDE(x_bandwidth=0), "x_bandwidth must lie in"),
        (LSCDE(x_bandwidth="cv"), "x_bandwidth must lie in"),
        (LSCDE(regularization=0), 'regularization must be .* or be "cv"'),
        (LSCDE(n_centers=0), "n_centers must be an integer of at least 1"),
        (FlexCode(n_basis=51), "n_basis must be an integer from 1 to 50"),
        (FlexCode(floor=1), r"floor must lie in \[0, 1\)"),
        (FlexCode(floor="auto"), r"floor must lie in \[0, 1\), got 'auto'"),
        (FlexCode(bump_threshold=-1), r"bump_threshold must lie in \[0, 1\)"),
        (FlexCode(sharpen=0), "sharpen must lie in"),
        (DeepCDE(n_basis=51), "n_basis must be an integer from 1 to 50"),
        (MDN(n_components=0), "n_components must be an integer of at least 1"),
        (MDN(noise=-0.1), 'noise must be a number .* or be "cv"'),
        (MDN(noise="auto"), 'noise must be a number .* or be "cv"'),
        (MDN(steps=0), "steps must be an integer of at least 1"),
        (MDN(steps="x"), "steps must be an integer of at least 1, got 'x'"),
        (MDN(batch_size=None), "batch_size must be an integer of at least 1, got None"),
        (MDN(learning_rate=0), "learning_rate must be a number larger than 0"),
        (MDN(weight_decay=-1), "weight_decay must be a number that is not less than 0"),
        (MDN(device="tpu"), "device"),
        (MDN(device=None), 'device must be "auto", "cpu" or "cuda", got None'),
        (KMN(scales=()), "scales must hold numbers between"),
        (KMN(scales=(0.0,)), "scales must hold numbers between"),
        (KMN(scales="wide"), "scales must hold numbers between"),
        (NormalizingFlow("planar"), 'flow must be "spline" or "radial"'),
        (NormalizingFlow(n_bins=0), "n_bins must be an integer of at least 1"),
    ],
    ids=str,
)
def test_bad_parameters(model, message):
    X, y = bent(50)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


def test_missing_library_is_named(monkeypatch):
    X, y = bent(50)
    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(ImportError, match=r"pip install 'mcdensity\[flow\]'"):
        NormalizingFlow(**QUICK).fit(X, y)
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ImportError, match=r"pip install 'mcdensity\[boosting\]'"):
        FlexCode("xgboost").fit(X, y)


@pytest.mark.parametrize("name", list_estimators())
def test_four_rows_are_enough(name):
    X, y = bent(4)
    model = get_estimator(name).fit(X, y)
    assert np.isfinite(model.predict_quantiles(X)).all()
    assert np.isfinite(model.logpdf(X, y)).all()


def test_rows_that_judge():
    np.testing.assert_array_equal(evaluation_rows(5), np.arange(5))
    rows = evaluation_rows(100_000)
    assert len(rows) == 1000
    assert rows[0] == 0
    assert rows[-1] == 99_999


def test_mcd_and_baselines_share_one_interface():
    X, y = bent(80)
    for model in (MCD("quadratic", random_state=0), NNKCDE(), MarginalBaseline()):
        assert model.fit(X, y).predict_interval(X[:3], 0.5).shape == (3, 2)
