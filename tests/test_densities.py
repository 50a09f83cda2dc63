"""Densities of networks: the exact contrast and its limit, the towers."""

from itertools import pairwise, repeat

import numpy as np
import pytest
import torch
from scipy.special import logit
from torch import nn

from mcdensity import MCD, build_contrast
from mcdensity.baselines import MarginalBaseline
from mcdensity.data import TrainingData
from mcdensity.discriminators import get_discriminator
from mcdensity.experts.tables import Fade
from mcdensity.marginals import TailedDensity
from mcdensity.networks.pairs import PairLosses
from mcdensity.networks.scores import NormalScores
from mcdensity.networks.towers import FlowTower, MixtureTower, TwoTower, spline
from mcdensity.target import InnerMarginal, TargetSpace

RNG = np.random.default_rng(0)


def sample(n=200, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + noise * rng.normal(size=n)


def target_marginal(y):
    """The marginal of targets whose inner coordinate is y itself."""
    space = TargetSpace(0.0, 1.0, limits=(float(y.min()), float(y.max())))
    space.inner = lambda z, clip=True: np.clip(z, *space.limits) if clip else np.asarray(z)
    space.outer = lambda t: (t, np.zeros_like(t))
    return InnerMarginal(space, TailedDensity().fit(y))


# The limit.


class FixedPairs:
    """All joint and all broken pairs of a sample, in place of random batches."""

    def __init__(self, x, y):
        n = len(x)
        i, j = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
        joint = np.column_stack([x, y])
        broken = np.column_stack([x[i[i != j]], y[j[i != j]]])
        self.n_joint = n
        self.pairs = torch.as_tensor(np.concatenate([joint, broken])[None])

    def batches(self, n_joint, n_broken):
        return repeat((self.pairs, None))


class Bilinear(nn.Module):
    """T = a x y + b x² + c y² + d, as a logit with the share r of joint pairs."""

    def __init__(self, ratio):
        super().__init__()
        self.theta, self.shift = nn.Parameter(torch.zeros(4, dtype=torch.float64)), logit(ratio)

    def forward(self, pairs):
        x, y = pairs.unbind(-1)
        features = torch.stack([x * y, x**2, y**2, torch.ones_like(x)], -1)
        return features @ self.theta + self.shift


def cross_entropy(pairs, ratio):
    losses = PairLosses(Bilinear(ratio), pairs, ratio, 4, None, None)
    losses.n_joint = pairs.n_joint
    return losses


def exact_loss(module, pairs):
    T = module(pairs.pairs)[0] - module.shift
    return -T[: pairs.n_joint].mean() + T[pairs.n_joint :].exp().mean()


def sample_of_pairs(n=60):
    rng = np.random.default_rng(1)
    x = rng.normal(size=n)
    return FixedPairs(x, 0.7 * x + rng.normal(size=n))


def test_the_loss_of_the_classifier_tends_to_the_exact_one():
    pairs, errors = sample_of_pairs(), []
    for r in (0.1, 0.01, 0.001, 0.0001):
        losses = cross_entropy(pairs, r)
        with torch.no_grad():
            losses.module.theta.copy_(torch.tensor([0.5, -0.2, -0.1, 0.1]))
            limit = exact_loss(losses.module, pairs)
            # Without a constant that does not depend on T.
            errors.append(abs(losses.cross_entropy() + logit(r) - limit).item())
    assert all(b < 0.2 * a for a, b in pairwise(errors))
    assert errors[-1] < 2e-3


def test_estimates_approach_the_exact_one_as_the_ratio_falls():
    pairs = sample_of_pairs()

    def optimum(module, loss):
        optimizer = torch.optim.LBFGS(
            module.parameters(), max_iter=300, line_search_fn="strong_wolfe", tolerance_grad=1e-9
        )

        def closure():
            optimizer.zero_grad()
            value = loss()
            value.backward()
            return value

        optimizer.step(closure)
        return module.theta.detach().numpy()

    module = Bilinear(0.5)
    exact = optimum(module, lambda: exact_loss(module, pairs))
    distance = []
    for r in (0.5, 0.1, 0.02, 0.004):
        losses = cross_entropy(pairs, r)
        distance.append(np.linalg.norm(optimum(losses.module, losses.cross_entropy) - exact))
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] < 0.1 * distance[0]


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
    data = TrainingData.of_contrast(build_contrast(X, y, random_state=0), 0)
    with pytest.raises(ValueError, match="fit the discriminator through MCD"):
        get_discriminator("mlp", loss="exact").fit(data)
    with pytest.raises(ValueError, match="fit it through MCD"):
        get_discriminator("two-tower").fit(data)


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
    torch.testing.assert_close(found.inverse(found(inside)), inside)
    step = found(found.inverse(found(inside) + 0.3)) - found(inside)
    torch.testing.assert_close(step, torch.full((3,), 0.3), atol=1e-3, rtol=0)


POINTS = torch.linspace(-4, 4, 4001)


@pytest.mark.parametrize("tower", [TwoTower, MixtureTower, FlowTower])
def test_towers_say_the_same_in_all_ways(tower):
    torch.manual_seed(0)
    module = tower(scores(RNG.normal(size=2000)), 3, 4, 8, 2)
    x, y = torch.randn(5, 4).expand(3, -1, -1), torch.randn(5)
    parameters = module.conditioned(x, POINTS)
    log_f = module.scores.both(y)[1]
    shared = module.log_density(parameters, y, log_f)
    rows = module.log_density(parameters, y.expand(5, -1), log_f.expand(5, -1))
    torch.testing.assert_close(shared, rows)
    at = (part.expand(3, -1) for part in (y, *module.scores.both(y)))
    own = module.own(module.outputs(x), *at, lambda: POINTS)
    torch.testing.assert_close(own, torch.diagonal(shared, dim1=1, dim2=2), atol=2e-3, rtol=0)


def test_the_slope_of_a_mixture_is_right():
    """The closed form is what automatic differentiation says, also where scales are at a limit."""
    torch.manual_seed(0)
    module = MixtureTower(scores(RNG.normal(size=500)), 2, 4, 8, 2)
    y = torch.randn(2, 6)
    z, log_f = module.scores.both(y)
    out, slopes = 3 * torch.randn(2, 6, 30), []
    for value in (
        lambda out: module.own(out, y, z, log_f, lambda: POINTS),
        lambda out: module._log_density(module.shaped(out), *(a[..., None] for a in (y, z, log_f))),
    ):
        of = out.clone().requires_grad_()
        said = value(of).reshape(2, 6)
        (said * torch.arange(6)).sum().backward()
        slopes.append((said, of.grad))
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert (slopes[0][1][..., 20:] == 0).any()


@pytest.mark.parametrize("tower", [TwoTower, MixtureTower, FlowTower])
def test_towers_are_densities(tower):
    """They integrate to 1, whatever the parameters."""
    torch.manual_seed(0)
    y = np.random.default_rng(0).gamma(3.0, size=20_000)
    marginal = target_marginal(y)
    module = tower(NormalScores.of(marginal), 2, 3, 8, 2)
    strata = torch.as_tensor(marginal.strata(4000), dtype=torch.float32)
    parameters = module.conditioned(0.5 * torch.randn(1, 6, 3).expand(2, -1, -1), strata)
    points = np.linspace(-20, 40, 60_001)
    log_f = torch.as_tensor(marginal.logpdf(points), dtype=torch.float32)
    value = module.log_density(parameters, torch.as_tensor(points, dtype=torch.float32), log_f)
    density = np.exp(value.detach().double().numpy())
    np.testing.assert_allclose(density.sum(-1) * 0.001, 1, atol=0.02)


def test_a_row_that_the_marginal_has_seen():
    """A density that rests on the marginal is less sure of a target by what the latter has seen."""
    torch.manual_seed(0)
    bias = torch.rand(6)
    for tower, least, most in ((FlowTower, 0, 0), (MixtureTower, 0, 1), (TwoTower, 1, 1)):
        module, y = tower(scores(RNG.normal(size=500)), 2, 3, 8, 2), torch.randn(2, 6)
        out, (z, log_f) = module.outputs(torch.randn(2, 6, 3)), module.scores.both(y)
        plain, biased = (module.own(out, y, z, log_f - b, lambda: POINTS) for b in (0, bias))
        lost = plain - biased
        assert (lost > least * bias - 1e-5).all()
        assert (lost < most * bias + 1e-5).all()


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


def test_positive_log_ratios_fade_beyond_the_targets():
    fade = Fade(-1.0, 2.0, 0.5)
    y = np.array([-2.0, -1.0, 0.0, 2.0, 2.5])
    value = np.array([[4.0, 4.0, 4.0, 4.0, 4.0], [-4.0, 1.0, -1.0, 2.0, -3.0]])
    expected = value.copy()
    expected[0, [0, -1]] = 4 * np.exp([-2.0, -1.0])
    np.testing.assert_allclose(fade(value.copy(), y), expected)
    np.testing.assert_allclose(fade(value.copy(), np.tile(y, (2, 1))), expected)


@pytest.mark.parametrize("name", ["auto", "mixture", "flow", "quadratic"])
def test_laws_of_extreme_rows_stay_near_the_data(name):
    """A ratio that stays high beyond the targets multiplies the marginal's heavy tail."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(3, size=(600, 1))
    y = X[:, 0] + 0.3 * rng.normal(size=600)
    few = {"members": 1, "steps": 300}
    params = {"auto": {"portfolio": {"mixture": few}}, "quadratic": None}.get(name, few)
    line = {"target": "continuous", "support": (None, None), "random_state": 0, "n_jobs": 1}
    model = MCD(name, discriminator_params=params, **line).fit(X, y)
    extreme = X[[X[:, 0].argmin(), X[:, 0].argmax()]]
    median = model.predict_quantiles(extreme, [0.5])[:, 0]
    assert (np.abs(median) < 1.5 * np.abs(y).max()).all()
    assert (np.abs(model.predict(extreme)) < 2 * np.abs(y).max()).all()
