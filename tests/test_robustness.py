"""MCD on awkward data: wild targets, far rows, gaps, small spreads."""

import numpy as np
import pytest

from mcdensity import MCD
from mcdensity.baselines import MarginalBaseline
from mcdensity.experts.tables import Fade

pytestmark = pytest.mark.filterwarnings("ignore:ratio=:UserWarning")


def normal_data(n=2000, rho=0.8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    return X, rho * X[:, 0] + np.sqrt(1 - rho**2) * rng.normal(size=n)


@pytest.mark.parametrize("discriminator", ["quadratic", "mlp"])
def test_one_wild_target_changes_little(discriminator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 1))
    y = 2 * X[:, 0] + 0.5 * rng.normal(size=500)
    y[0] = 1e4
    model = MCD(discriminator=discriminator, random_state=0).fit(X, y)
    median = model.predict_quantiles([[-1.0], [1.0]], 0.5)[:, 0]
    np.testing.assert_allclose(median, [-2, 2], atol=0.5)


def test_rows_far_from_all_data_keep_their_side():
    """Every target is unlikely there, but some are less unlikely than others."""
    X, y = normal_data(500)
    model = MCD(discriminator="quadratic", random_state=0).fit(X, y)
    median = model.predict_quantiles([[4.0], [8.0], [20.0], [100.0]], 0.5)[:, 0]
    assert (median > 1.5).all()


@pytest.mark.parametrize("discriminator", ["xgboost", "random-forest", "hist-gradient-boosting"])
def test_steps_of_trees_are_resolved(discriminator):
    """The quantiles are those of the formula, by quadrature on a fine grid; its ratio fades."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    y = 2 * X[:, 0] + 0.5 * rng.normal(size=400)
    model = MCD(discriminator=discriminator, normalize=False, random_state=0).fit(X, y)
    grid = np.linspace(y.min() - 20, y.max() + 20, 100_001)
    z, ends = ((a - model.y_mean_) / model.y_scale_ for a in (grid, np.array([y.min(), y.max()])))
    inner, ends = (model.target_space_.inner(a, clip=False) for a in (z, ends))
    alone = model.marginal_.logpdf(z) - np.log(model.y_scale_)
    log_ratio = np.log(model.pdf_from_X(X[:15], grid)) - alone
    density = np.exp(Fade(*ends, 2000 / len(y))(log_ratio, inner) + alone)
    cumulated = np.cumsum(density, axis=1) / density.sum(axis=1, keepdims=True)
    for q in (0.05, 0.5, 0.95):
        quantile = model.predict_quantiles(X[:15], q)[:, 0]
        level = [np.interp(v, grid, c) for v, c in zip(quantile, cumulated, strict=True)]
        assert np.abs(np.array(level) - q).max() < 5e-3


def test_moments_across_gaps():
    """The mean of a kernel density is the mean of the targets, wherever they are."""
    y = np.concatenate([np.random.default_rng(0).normal(size=480), np.full(20, 1000.0)])
    model = MarginalBaseline().fit(np.zeros((500, 1)), y)
    h = model.marginal_.bandwidth_ * model.y_scale_
    assert model.predict([[0.0]])[0] == pytest.approx(y.mean(), rel=1e-3)
    assert model.predict_var([[0.0]])[0] == pytest.approx(y.var() + h**2, rel=1e-3)


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e9])
def test_small_spread_around_a_large_value(offset):
    X, y = normal_data(300)
    model = MCD(discriminator="quadratic", random_state=0).fit(X, offset + 1e-3 * y)
    quantiles = (model.predict_quantiles([[-1.0], [1.0]], 0.5)[:, 0] - offset) / 1e-3
    np.testing.assert_allclose(quantiles, [-0.8, 0.8], atol=0.25)


def test_automatic_ratio_falls_back_on_little_data():
    X, y = normal_data(60)
    model = MCD(discriminator="quadratic", ratio="auto", target="continuous", random_state=0)
    assert model.fit(X[:5], y[:5]).ratio_scores_ == {}
    almost_constant = np.zeros(60)
    almost_constant[3] = 1
    assert model.fit(X, almost_constant).ratio_scores_ == {}
    assert not hasattr(model.set_params(ratio=0.1).fit(X, y), "ratio_scores_")


def test_score_with_bad_weights():
    X, y = normal_data(60)
    model = MCD(discriminator="quadratic", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="one weight per row"):
        model.score(X, y, [1, 2])
    with pytest.raises(ValueError, match="zero for all rows"):
        model.score(X, y, np.zeros(60))
