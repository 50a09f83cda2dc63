"""The automatic portfolio: pooling, time budgets, few rows."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from mcdensity import MCD, load, save, stack_targets
from mcdensity._mixing import mixture_weights, pool_gains, pooling_exponents
from mcdensity.baselines import MarginalBaseline
from mcdensity.experts import get_expert, register, unregister
from mcdensity.portfolio import Portfolio


def sample(n=200, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + noise * rng.normal(size=n)


# Weights of a mixture, and exponents of a log-linear pool.


def test_mixture_weights_are_the_optimum():
    rng = np.random.default_rng(0)
    gains = rng.normal(size=(400, 3)) + np.array([0.3, 0.0, -1.0])
    w = mixture_weights(gains, np.ones(400))
    assert w.sum() == pytest.approx(1)
    # At the optimum of the likelihood no part would gain from more weight.
    ratio = np.exp(np.column_stack([gains, np.zeros(400)]))
    slope = (ratio / (ratio @ w)[:, None]).mean(axis=0)
    assert (slope < 1.02).all()
    np.testing.assert_allclose(slope[w > 0.05], 1, atol=0.02)
    assert mixture_weights(gains, np.ones(400), least=0.05)[2] == 0


def test_a_row_of_weight_two_is_two_rows():
    gains = np.random.default_rng(0).normal(size=(200, 2))
    twice = mixture_weights(np.concatenate([gains, gains]), np.ones(400))
    np.testing.assert_allclose(mixture_weights(gains, np.full(200, 2.0)), twice, atol=0.01)


def normal_ratios(scale, n=4000, seed=0):
    """Log-ratios of N(x, scale) to the marginal N(0, sqrt(1.25)), for y given x of N(x, 0.5)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = x + 0.5 * rng.normal(size=n)
    marginal = stats.norm(0, np.sqrt(1.25))
    points = marginal.ppf((np.arange(200) + 0.5) / 200)
    own = stats.norm(x, scale).logpdf(y) - marginal.logpdf(y)
    grid = stats.norm(x[:, None], scale).logpdf(points) - marginal.logpdf(points)
    return own[:, None], grid[:, None]


def test_a_density_that_is_too_wide_is_sharpened_and_one_too_sharp_is_tempered():
    for scale, least, most in ((0.7, 1.3, 2.6), (0.5, 0.9, 1.1), (0.35, 0.3, 0.75)):
        own, grid = normal_ratios(scale)
        exponent = pooling_exponents(own, grid, np.ones(len(own)), np.ones(1))
        assert least < exponent[0] < most
        before, after = (pool_gains(own, grid, e).mean() for e in (np.ones(1), exponent))
        assert after >= before


def test_the_gains_of_a_pool_are_log_likelihoods():
    """One part, exponent one, a normal density: the gain is that of the density itself."""
    own, grid = normal_ratios(0.5)
    gains = pool_gains(own, grid, np.ones(1))
    assert gains.mean() == pytest.approx(own.mean(), abs=0.01)
    assert np.median(np.abs(gains - own[:, 0])) < 0.01


def test_exponents_of_useless_parts_are_small():
    rng = np.random.default_rng(0)
    own, grid = normal_ratios(0.5, n=1000)
    useless = rng.normal(size=(1000, 1)), rng.normal(size=(1000, 1, 200))
    own, grid = np.hstack([own, useless[0]]), np.concatenate([grid, useless[1]], axis=1)
    exponents = pooling_exponents(own, grid, np.ones(1000), np.array([0.5, 0.5]))
    assert exponents[0] > 0.8
    assert exponents[1] < 0.1


# The automatic choice.


@pytest.fixture(scope="module")
def automatic():
    X, y = sample(150)
    return MCD(random_state=0).fit(X, y), X, y


def test_auto_is_the_default_and_shows_its_weights(automatic):
    model, _, _ = automatic
    assert MCD().discriminator == "auto"
    assert sum(model.weights_.values()) == pytest.approx(1)
    assert set(model.discriminator_.experts_) == set(model.weights_) - {"marginal"}
    assert model.discriminator_.sharpness_ > 0
    found = model.discriminator_.scores_
    # The exponents are held near those of the best mixture: a small part of a nat may be missed.
    assert found["auto"] >= max(v for n, v in found.items() if n != "auto") - 0.01


def test_auto_is_a_log_linear_pool_with_a_little_of_the_marginal(automatic):
    model, X, _ = automatic
    auto, space = model.discriminator_, model.target_space_
    Z = (X[:5] - model.x_mean_) / model.x_scale_
    t = np.linspace(*space.inner(np.array([-3.0, 3.0])), 4001)
    z, _ = space.outer(t)
    log_f = model.marginal_.logpdf(z) - space.log_slope(z)
    rest = auto.weights_["marginal"]
    value = sum(
        auto.sharpness_ * auto.weights_[name] / (1 - rest)
        * expert.condition(Z).relative(t, log_f)
        for name, expert in auto.experts_.items()
    )  # fmt: skip
    density = np.exp(value + log_f)
    density /= density.sum(axis=1, keepdims=True) * (t[1] - t[0])
    density = (1 - rest) * density + rest * np.exp(log_f)
    found = np.exp(auto.condition(Z).relative(t, log_f) + log_f)
    inside = density > 1e-3
    np.testing.assert_allclose(found[inside], density[inside], rtol=0.02)


def test_auto_is_deterministic_and_can_be_saved(automatic, tmp_path):
    model, X, y = automatic
    again = MCD(random_state=0).fit(X, y)
    assert again.weights_ == model.weights_
    before = model.predict_quantiles(X)
    np.testing.assert_array_equal(again.predict_quantiles(X), before)
    save(model, tmp_path / "model.mcd")
    np.testing.assert_array_equal(load(tmp_path / "model.mcd").predict_quantiles(X), before)


def test_a_fitted_model_holds_no_number_for_every_row(automatic):
    """Held-out densities of all rows have no place in a fitted model, nor in its file."""
    model, X, _ = automatic
    seen = set()

    def look(thing, path):
        if id(thing) in seen:
            return
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            assert thing.ndim == 0 or len(thing) != len(X), path
        elif isinstance(thing, dict):
            for key, value in thing.items():
                if key != "_kept_rows":  # a sample of x for `distill`, of 5000 rows at the most
                    look(value, f"{path}[{key}]")
        elif isinstance(thing, list | tuple):
            for i, value in enumerate(thing):
                look(value, f"{path}[{i}]")
        elif hasattr(thing, "__dict__") and type(thing).__module__.startswith("mcdensity"):
            look(vars(thing), path)

    look(model, "model")


def test_auto_with_groups_weights_and_extra_rows():
    X, y = sample(60)
    X, y, groups = stack_targets(X, np.column_stack([y, y + 0.1, y - 0.1]))
    params = {"portfolio": ("quadratic", "mixture")}
    model = MCD(discriminator_params=params, random_state=0)
    weight = np.random.default_rng(0).uniform(0.5, 2, size=len(y))
    model.fit(X, y, weight, groups=groups)
    assert model.construction_ == 5
    model.fit(X, y, X_unlabeled=X, y_marginal=y)
    assert model.construction_ == 4
    assert model.score(X, y) > MarginalBaseline().fit(X, y).score(X, y)


def test_the_portfolio():
    X, y = sample(100)
    model = MCD(discriminator_params={"portfolio": "quadratic"}, random_state=0).fit(X, y)
    assert set(model.weights_) <= {"quadratic", "marginal"}
    for wrong in (("quadratik",), (), ("auto",)):
        with pytest.raises(ValueError, match="portfolio must name some of"):
            MCD(discriminator_params={"portfolio": wrong}).fit(X, y)


@pytest.mark.parametrize("budget", [-1, 0, "soon"])
def test_the_time_budget_is_checked(budget):
    with pytest.raises(ValueError, match="time_budget"):
        MCD(time_budget=budget).fit(*sample(50))


def test_with_little_time_the_quick_expert_is_there_and_with_much_all_are():
    X, y = sample(350)
    quick = MCD(time_budget=0.01, random_state=0).fit(X, y)
    assert set(quick.discriminator_.scores_) == {"quadratic", "auto"}
    assert np.isfinite(quick.predict_quantiles(X)).all()
    assert quick.score(*sample(300, seed=1)) > MarginalBaseline().fit(X, y).score(X, y)
    slow = MCD(time_budget=1e6, random_state=0, discriminator_params=SMALL).fit(X, y)
    unlimited = MCD(random_state=0, discriminator_params=SMALL).fit(X, y)
    assert set(slow.discriminator_.scores_) == set(unlimited.discriminator_.scores_)


SMALL = {"portfolio": ("quadratic", "mixture")}


@pytest.mark.parametrize("n", [8, 12])
def test_few_rows_obey_the_portfolio_and_take_missing_values(n):
    X, y = sample(n)
    model = MCD(random_state=0).fit(X, y)
    assert np.isfinite(model.predict_quantiles(X)).all()
    assert set(model.weights_) == {"quadratic", "marginal"}
    X[2, 1] = np.nan
    params = {"portfolio": ("hist-gradient-boosting",)}
    model = MCD(discriminator_params=params, random_state=0).fit(X, y)
    assert set(model.weights_) == {"hist-gradient-boosting", "marginal"}
    assert np.isfinite(model.predict_quantiles(X)).all()


def test_missing_values_are_passed_on_where_all_of_the_portfolio_take_them():
    X, y = sample(100)
    X[::7, 1] = np.nan
    params = {"portfolio": ("hist-gradient-boosting",)}
    model = MCD(discriminator_params=params, random_state=0).fit(X, y)
    assert model.missing_columns_ is None
    assert np.isfinite(model.predict(X)).all()
    params = {"portfolio": ("quadratic", "hist-gradient-boosting")}
    model = MCD(discriminator_params=params, random_state=0).fit(X, y)
    assert model.missing_columns_ == [1]
    assert np.isfinite(model.predict(X)).all()


def test_intervals_hold_what_they_say():
    """Of a linear pool of these experts they would hold more."""
    X, y = sample(300)
    X_new, y_new = sample(4000, seed=1)
    params = {"portfolio": ("quadratic", "mixture", "two-tower")}
    model = MCD(discriminator_params=params, random_state=0).fit(X, y)
    interval = model.predict_interval(X_new, 0.9)
    held = np.mean((y_new >= interval[:, 0]) & (y_new <= interval[:, 1]))
    assert 0.87 < held < 0.925


def test_extreme_quantiles_of_normal_data():
    """0.001 and 0.999: near the truth, and not far off where the tail lies beyond all targets.

    There a classifier knows nothing. With the ratio of the last target, times the marginal's heavy
    tail, the worst row was 9 standard deviations too far out.
    """
    X, y = sample(1000)
    X_new, _ = sample(300, seed=1)
    params = {"portfolio": ("quadratic", "mixture")}
    model = MCD(discriminator_params=params, random_state=0).fit(X, y)
    truth = X_new[:, :1] + 0.5 * stats.norm.ppf([0.001, 0.999])
    outward = (model.predict_quantiles(X_new, (0.001, 0.999)) - truth) / 0.5 * [-1, 1]
    assert np.abs(outward.mean(axis=0)).max() < 0.2
    assert np.quantile(outward, 0.95) < 0.5
    assert outward.max() < 3
    assert outward.min() > -1


def test_log_sums():
    """`pool_gains` against the sum written out."""
    rng = np.random.default_rng(0)
    own, grid, e = rng.normal(size=(5, 2)), rng.normal(size=(5, 2, 7)), np.array([0.3, 0.9])
    total = logsumexp(np.einsum("j,njg->ng", e, grid), axis=1)
    np.testing.assert_allclose(pool_gains(own, grid, e), own @ e - total + np.log(7))
    # A target in a peak that the points miss counts as one of them.
    assert pool_gains(own + 100, grid, e) == pytest.approx(np.log(7))


def test_learners_of_a_user_are_not_fitted_side_by_side():
    """Another process does not know them, and they may not be made for threads."""

    @register("mine", portfolio=99)
    class Mine(type(get_expert("quadratic"))):
        pass

    try:
        assert not Portfolio()._are_independent(["quadratic", "mine"])
    finally:
        unregister("mine")
    assert Portfolio()._are_independent(["quadratic", "mixture", "forest", "stacked"])


def test_what_a_smaller_pool_may_be_behind():
    line = SimpleNamespace(marginal=SimpleNamespace(cells=None))
    labels = SimpleNamespace(marginal=SimpleNamespace(cells=SimpleNamespace(masses_=np.ones(2))))
    portfolio = Portfolio(negligible=0.003)
    assert portfolio._negligible(line, 10.0) == 0.003
    assert portfolio._negligible(line, 0.05) == pytest.approx(0.001)  # a share of a small gain
    assert portfolio._negligible(labels, 0.05) == 0.003
    X = np.random.default_rng(0).normal(size=(60, 1))
    with pytest.raises(ValueError, match="negligible must be"):
        MCD(discriminator_params={"negligible": -1}).fit(X, X[:, 0] ** 2)


def test_a_factor_of_the_steps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 1))
    steps = []
    for factor in (0.5, 1.0):
        options = {"portfolio": "mixture", "steps": factor}
        model = MCD(discriminator_params=options, random_state=0).fit(X, np.sin(3 * X[:, 0]))
        steps.append(model.discriminator_.experts_["mixture"].n_steps_)
    assert steps[0] <= 200 < steps[1] <= 400
    with pytest.raises(ValueError, match="steps must be"):
        MCD(discriminator_params={"steps": 0}).fit(X, X[:, 0] ** 2)
