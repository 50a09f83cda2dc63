"""The exact contrast: its limit, the towers, the automatic choice, conformal intervals."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, logit, logsumexp

from mcdensity import MCD, build_contrast, load, save, stack_targets
from mcdensity._mixing import mixture_weights
from mcdensity.baselines import MarginalBaseline
from mcdensity.discriminators import get_discriminator
from mcdensity.discriminators.adapters import TargetMarginal
from mcdensity.marginals import KernelDensity, TailedDensity
from mcdensity.mcd import _TargetMap
from mcdensity.networks.towers import FlowTower, MixtureTower, NormalScores, TwoTower, spline
from mcdensity.simulators import get_simulator

RNG = np.random.default_rng(0)
LEVEL = (np.arange(2000) + 0.5) / 2000


def sample(n=200, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + noise * rng.normal(size=n)


def target_marginal(y):
    """The marginal of targets that are not mapped."""
    law = TailedDensity().fit(y)
    limits = float(y.min()), float(y.max())
    reach = 2 * limits[0] - limits[1], 2 * limits[1] - limits[0]
    return TargetMarginal(law.ppf, law.cdf, law.logpdf, limits, reach)


# The limit.


def test_the_scaled_loss_tends_to_the_exact_one():
    joint, broken = RNG.normal(size=500), RNG.normal(size=2000) - 0.5
    limit = -joint.mean() + np.exp(broken).mean()
    errors = []
    for r in (0.1, 0.01, 0.001, 0.0001):
        # q has the logit T + logit r; the loss is r E_joint[-log q] + (1 - r) E_broken[-log(1-q)].
        shift = logit(r)
        loss = r * np.logaddexp(0, -(joint + shift)).mean()
        loss += (1 - r) * np.logaddexp(0, broken + shift).mean()
        scaled = loss / r + shift  # without a constant that does not depend on T
        errors.append(abs(scaled - limit))
    assert all(b < 0.2 * a for a, b in pairwise(errors))
    assert errors[-1] < 1e-3


def test_estimates_approach_the_exact_one_as_the_ratio_falls():
    """T = b x y - b² x²/2 + ..., fitted by cross-entropy with all pairs, and by its limit."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=120)
    y = 0.7 * x + rng.normal(size=120)
    features = np.stack([np.outer(x, y), np.outer(x**2, np.ones(120)), np.outer(np.ones(120), y**2),
                         np.ones((120, 120))])  # fmt: skip
    joint, others = np.eye(120, dtype=bool), ~np.eye(120, dtype=bool)

    def fit(r):
        def loss(theta):
            T = np.tensordot(theta, features, 1)
            if r == 0:
                value = -T[joint].mean() + np.exp(T[others]).mean()
                slope_j, slope_b = -np.ones(120), np.exp(T[others])
            else:
                L = T + logit(r)
                value = np.logaddexp(0, -L[joint]).mean()
                value += (1 - r) / r * np.logaddexp(0, L[others]).mean()
                slope_j, slope_b = -expit(-L[joint]), (1 - r) / r * expit(L[others])
            gradient = [
                (slope_j * f[joint]).mean() + (slope_b * f[others]).mean() for f in features
            ]
            return value, np.array(gradient)

        return minimize(loss, np.zeros(4), jac=True, method="BFGS").x

    exact = fit(0)
    distance = [np.linalg.norm(fit(r) - exact) for r in (0.5, 0.1, 0.02, 0.004)]
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] < 0.05 * distance[0]


@pytest.mark.parametrize("name", ["mlp", "two-tower", "mixture"])
def test_exact_losses_recover_a_known_density(name):
    X, y = sample(600)
    params = {"loss": "exact"} if name == "mlp" else None
    model = MCD(name, discriminator_params=params, random_state=0).fit(X, y)
    grid = np.linspace(-4, 4, 400)
    truth = np.exp(-((grid - X[:50, :1]) ** 2) / 0.5) / np.sqrt(0.5 * np.pi)
    estimate = model.pdf_from_X(X[:50], grid)
    error = np.abs(truth - estimate).sum(axis=1) * (grid[1] - grid[0]) / 2
    assert error.mean() < 0.12


def test_the_loss_is_checked():
    X, y = sample(50)
    with pytest.raises(ValueError, match='loss must be "bce" or "exact"'):
        MCD("mlp", discriminator_params={"loss": "hinge"}).fit(X, y)
    contrast = build_contrast(X, y, random_state=0)
    with pytest.raises(ValueError, match="fit the discriminator through MCD"):
        get_discriminator("mlp", loss="exact").fit(contrast, np.random.default_rng(0))
    with pytest.raises(ValueError, match="fit it through MCD"):
        get_discriminator("two-tower").fit(contrast, np.random.default_rng(0))


# Towers.


def scores(y):
    return NormalScores.of(target_marginal(y))


def test_normal_scores():
    y = np.random.default_rng(0).exponential(size=5000)
    found = scores(y)
    points = torch.linspace(-1, 8, 300)
    z = found(points)
    assert (z.diff() >= 0).all()
    law = target_marginal(y)
    inside = torch.as_tensor(law.quantile(np.array([0.1, 0.5, 0.9])), dtype=torch.float32)
    torch.testing.assert_close(
        found(inside), torch.tensor([-1.2816, 0.0, 1.2816]), atol=0.002, rtol=0
    )
    density = torch.as_tensor(law.logpdf(inside.double().numpy()), dtype=torch.float32)
    torch.testing.assert_close(found.both(inside)[1], density, atol=0.01, rtol=0)
    torch.testing.assert_close(found.shifted(inside, torch.zeros(3)), inside)
    step = found(found.shifted(inside, torch.full((3,), 0.3))) - found(inside)
    torch.testing.assert_close(step, torch.full((3,), 0.3), atol=1e-3, rtol=0)


@pytest.mark.parametrize("tower", [TwoTower, MixtureTower, FlowTower])
def test_towers_say_the_same_in_all_ways(tower):
    torch.manual_seed(0)
    module = tower(scores(RNG.normal(size=2000)), 3, 4, 8, 2)
    x, y = torch.randn(5, 4).expand(3, -1, -1), torch.randn(5)
    parameters = module.parameters_of(x)
    grid = module.grid(parameters, y)
    rows = module.grid(parameters, y.expand(5, -1))
    own = module.own(parameters, y.expand(3, -1))
    torch.testing.assert_close(grid, rows)
    torch.testing.assert_close(own, torch.diagonal(grid, dim1=1, dim2=2))


@pytest.mark.parametrize("tower", [MixtureTower, FlowTower])
def test_densities_need_no_normaliser(tower):
    """The integral of f_Y exp T over all y is 1, whatever the parameters."""
    torch.manual_seed(0)
    y = np.random.default_rng(0).gamma(3.0, size=20_000)
    marginal = target_marginal(y)
    module = tower(NormalScores.of(marginal), 2, 3, 8, 2)
    parameters = module.parameters_of(2 * torch.randn(1, 6, 3).expand(2, -1, -1))
    points = np.linspace(-20, 40, 60_001)
    ratio = module.grid(parameters, torch.as_tensor(points, dtype=torch.float32))
    density = np.exp(ratio.detach().double().numpy() + marginal.logpdf(points))
    np.testing.assert_allclose(density.sum(-1) * 0.001, 1, atol=0.02)


def test_a_row_that_the_marginal_has_seen():
    """What the marginal is too sure of is given back to the parts that do not rest on it."""
    torch.manual_seed(0)
    flow, y = FlowTower(scores(RNG.normal(size=500)), 2, 3, 8, 2), torch.randn(2, 6)
    parameters = flow.parameters_of(torch.randn(2, 6, 3))
    optimism = torch.rand(6)
    torch.testing.assert_close(
        flow.own(parameters, y, optimism), flow.own(parameters, y) + optimism, atol=1e-5, rtol=0
    )
    mixture = MixtureTower(scores(RNG.normal(size=500)), 2, 3, 8, 2)
    parameters = mixture.parameters_of(torch.randn(2, 6, 3))
    more = mixture.own(parameters, y, optimism) - mixture.own(parameters, y)
    assert (more > 0).all()
    assert (more < optimism).all()


def test_the_spline_is_monotone_and_its_slope_is_right():
    torch.manual_seed(0)
    parameters = torch.randn(4, 23, dtype=torch.float64)
    u = torch.linspace(-7, 7, 20_001, dtype=torch.float64).expand(4, -1)
    value, log_slope = spline(u, parameters)
    step = value.diff()
    assert (step > 0).all()
    middle = log_slope.exp()[:, 1:] + log_slope.exp()[:, :-1]
    np.testing.assert_allclose(step.sum(1), 14, rtol=1e-9)
    np.testing.assert_allclose((middle / 2 * 0.0007).sum(1), 14, rtol=1e-3)
    outside = u.abs() > 5
    torch.testing.assert_close(value[outside], u[outside])


def test_the_target_map_and_its_inverse():
    y = np.random.default_rng(0).standard_t(2, size=300)
    mapped = _TargetMap(y, None)
    points = np.concatenate([y, [-50.0, 60.0]])
    back, log_slope = mapped.inverse(mapped(points, beyond=True))
    np.testing.assert_allclose(back, points)
    step = 1e-6
    slope = (mapped(points + step, True) - mapped(points - step, True)) / (2 * step)
    np.testing.assert_allclose(np.exp(-log_slope), slope, rtol=1e-4)
    assert mapped(np.array([1e9]))[0] == mapped(y).max()
    law = KernelDensity().fit(y)
    density = mapped.marginal(law, 0.0)
    grid = np.linspace(*density.reach, 200_001)
    total = np.exp(density.logpdf(grid)).sum() * (grid[1] - grid[0])
    assert total == pytest.approx(1, abs=1e-3)


def test_densities_reach_beyond_the_targets():
    """A flow and a mixture know a trend to lead out of the range of the targets."""
    X, y = sample(300, noise=0.2)
    for name in ("flow", "mixture"):
        model = MCD(name, random_state=0).fit(X, y)
        high = model.predict_distribution([[y.max() + 0.3, 0.0]])
        assert high.sf(y.max())[0] > 0.4


@pytest.mark.parametrize("name", ["two-tower", "mixture", "flow", "auto"])
def test_where_x_tells_nothing_the_marginal_is_left(name):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(300, 5)), rng.gamma(2.0, size=300)
    model = MCD(name, random_state=0).fit(X[:150], y[:150])
    marginal = MarginalBaseline().fit(X[:150], y[:150])
    assert model.score(X[150:], y[150:]) > marginal.score(X[150:], y[150:]) - 0.08


@pytest.mark.parametrize("name", ["two-tower", "mixture", "flow"])
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"members": 0}, "members must be an integer of at least 1"),
        ({"size": 1.5}, "size must be an integer"),
        ({"noise": -1}, "noise must be a number that is not less than 0"),
        ({"learning_rate": 0}, "learning_rate must be a number larger than 0"),
        ({"depth": 0}, "depth must be an integer of at least 1"),
    ],
)
def test_parameters_are_checked(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        MCD(name, discriminator_params=parameters).fit(*sample(40))


# Weights of a mixture.


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
    found = model.discriminator_.scores_
    assert found["auto"] >= max(v for n, v in found.items() if n != "auto") - 1e-6


def test_auto_is_the_mixture_of_normalised_densities(automatic):
    model, X, _ = automatic
    grid = np.linspace(-3, 3, 7)
    auto = model.discriminator_
    Z = (X[:5] - model.x_mean_) / model.x_scale_
    mapped = model._target_map((grid - model.y_mean_) / model.y_scale_)
    parts = np.full((5, 7), auto.weights_["marginal"])
    for name, expert in auto.experts_.items():
        ratio = expert.logit_grid(Z, mapped) - logit(expert.ratio_)
        norm = expert.logit_grid(Z, auto._points) - logit(expert.ratio_)
        norm = 0 if getattr(expert, "normalised_", False) else logsumexp(norm, 1) - np.log(256)
        parts += auto.weights_[name] * np.exp(ratio - np.reshape(norm, (-1, 1)))
    np.testing.assert_allclose(np.exp(auto.logit_grid(Z, mapped)), parts, rtol=1e-5)


def test_auto_is_deterministic_and_can_be_saved(automatic, tmp_path):
    model, X, y = automatic
    again = MCD(random_state=0).fit(X, y)
    assert again.weights_ == model.weights_
    before = model.predict_quantiles(X)
    np.testing.assert_array_equal(again.predict_quantiles(X), before)
    save(model, tmp_path / "model.mcd")
    np.testing.assert_array_equal(load(tmp_path / "model.mcd").predict_quantiles(X), before)


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


def test_the_portfolio_and_the_budget():
    X, y = sample(100)
    model = MCD(discriminator_params={"time_budget": 0.0}, random_state=0).fit(X, y)
    assert set(model.weights_) <= {"flow", "marginal"}
    model = MCD(discriminator_params={"portfolio": "quadratic"}, random_state=0).fit(X, y)
    assert set(model.weights_) <= {"quadratic", "marginal"}
    for wrong in (("quadratik",), (), ("auto",)):
        with pytest.raises(ValueError, match="portfolio must name some of"):
            MCD(discriminator_params={"portfolio": wrong}).fit(X, y)
    with pytest.raises(ValueError, match="time_budget must be a number"):
        MCD(discriminator_params={"time_budget": -1}).fit(X, y)


def test_missing_values_where_all_of_the_portfolio_take_them():
    X, y = sample(100)
    X[::7, 1] = np.nan
    params = {"portfolio": ("hist-gradient-boosting",)}
    assert np.isfinite(MCD(discriminator_params=params, random_state=0).fit(X, y).predict(X)).all()
    with pytest.raises(ValueError, match="auto cannot take"):
        MCD().fit(X, y)


def test_few_rows():
    X, y = sample(12)
    model = MCD(random_state=0).fit(X, y)
    assert np.isfinite(model.predict_quantiles(X)).all()


# Conformal intervals.


def test_conformal_intervals_hold_what_they_promise():
    """Of many small calibrations of a model that is far too sure: the mean coverage is right."""
    simulator = get_simulator("EconDensity")
    X, y = simulator.sample(200, random_state=0)
    model = MCD("quadratic", random_state=0).fit(X, 0.3 * (y - y.mean()) + y.mean())
    X, y = simulator.sample(3000, random_state=1)
    plain = model.predict_interval(X, 0.8)
    assert np.mean((y >= plain[:, 0]) & (y <= plain[:, 1])) < 0.7
    d = model.predict_distribution(X)
    level, rng = np.minimum(d.cdf(y), d.sf(y)), np.random.default_rng(0)
    held = []
    for _ in range(300):
        order = rng.permutation(3000)
        calibration, test = order[:60], order[60:]
        model.conformal_levels_ = np.sort(level[calibration])
        threshold = model.conformal_levels_[int(61 * 0.2 + 1e-9) - 1]
        held.append(np.mean(level[test] >= threshold))
    # Between 0.8 and 0.8 + 1/61.
    assert 0.795 < np.mean(held) < 0.825
    model.conformalize(X[:60], y[:60])
    interval = model.predict_interval(X[60:], 0.8, conformal=True)
    inside = np.mean((y[60:] >= interval[:, 0]) & (y[60:] <= interval[:, 1]))
    threshold = model.conformal_levels_[int(61 * 0.2 + 1e-9) - 1]
    assert inside == pytest.approx(np.mean(level[60:] >= threshold), abs=0.002)


def test_conformal_mistakes():
    X, y = sample(100)
    model = MCD("quadratic", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"needs conformalize\(X, y\) on held-out rows"):
        model.predict_interval(X, conformal=True)
    with pytest.raises(ValueError, match="X has 100 rows and y has 3"):
        model.conformalize(X, y[:3])
    model.conformalize(X[:8], y[:8])
    with pytest.raises(ValueError, match=r"coverage=0\.9 needs at least 9 rows .* got 8"):
        model.predict_interval(X, 0.9, conformal=True)
    assert np.isfinite(model.predict_interval(X, 0.8, conformal=True)).all()
    # What was learned for one fit does not stay for the next.
    model.fit(X, y)
    with pytest.raises(ValueError, match="needs conformalize"):
        model.predict_interval(X, conformal=True)
