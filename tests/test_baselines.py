"""The compared methods: all of them together, the neural ones, and bad input."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

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
from mcdensity.baselines.kernels import evaluation_rows
from mcdensity.distribution import GaussianMixtureDistribution
from samples import QUICK, bent

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


# Networks.


def test_mdn_with_one_component_is_least_squares():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.5 * rng.normal(size=1000)
    model = MDN(n_components=1, noise=0.0, random_state=0).fit(X, y)
    line = LinearRegression().fit(X, y)
    X_new = rng.normal(size=(500, 3))
    error = model.predict(X_new) - line.predict(X_new)
    # Of four seeds the largest was 0.12; the noise of y has a standard deviation of 0.5.
    assert np.sqrt(np.mean(error**2)) < 0.2
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
