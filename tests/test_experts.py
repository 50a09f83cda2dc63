"""Experts: the registry, conditioning once, holding out."""

import numpy as np
import pytest
from scipy import stats
from sklearn.neighbors import NearestNeighbors

from mcdensity import MCD, load, save
from mcdensity.data import Folds, TrainingData
from mcdensity.experts import (
    ConditionedDensity,
    ConditionedRatio,
    DensityExpert,
    Expert,
    FitReport,
    RatioExpert,
    get_expert,
    list_experts,
    portfolio_names,
    register,
    unregister,
)
from mcdensity.experts.tables import RatioTable
from mcdensity.marginals import KernelDensity
from mcdensity.target import InnerMarginal, TargetSpace


def sample(n=200, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + noise * rng.normal(size=n)


# A new expert: one class, one line.


class Neighbours(DensityExpert):
    """Kernels of one width at the targets of the nearest rows."""

    def __init__(self, k=20, width=0.3):
        self.k = k
        self.width = width

    def fit(self, data):
        self.index_ = NearestNeighbors(n_neighbors=min(self.k, len(data))).fit(data.X)
        self.targets_ = data.Y[:, 0]
        return FitReport.empty()

    def condition(self, X):
        centers = self.targets_[self.index_.kneighbors(X, return_distance=False)]

        def log_density(y, rows):
            at = centers if rows is None else centers[rows]
            y = np.broadcast_to(y, (len(at), y.shape[-1]))
            kernels = stats.norm(at[:, None, :], self.width).pdf(y[:, :, None])
            return np.log(kernels.mean(axis=2) + 1e-300)

        return ConditionedDensity(len(X), log_density)


@pytest.fixture
def neighbours():
    yield register("neighbours", portfolio=5)(Neighbours)
    unregister("neighbours")


def test_a_density_expert_in_thirty_lines(neighbours, tmp_path):
    assert "neighbours" in list_experts()
    assert "neighbours" in portfolio_names()
    X, y = sample()
    X_new, y_new = sample(400, seed=1)
    alone = MCD("neighbours", random_state=0).fit(X, y)
    truth = stats.norm(X_new[:, 0], 0.5).logpdf(y_new).mean()
    assert alone.score(X_new, y_new) > truth - 0.5
    params = {"portfolio": ("neighbours", "quadratic")}
    pooled = MCD(discriminator_params=params, random_state=0).fit(X, y)
    assert pooled.weights_["quadratic"] > pooled.weights_.get("neighbours", 0)
    assert set(pooled.discriminator_.scores_) == {"neighbours", "quadratic", "auto"}
    for model in (alone, pooled):
        save(model, tmp_path / "model.mcd")
        again = load(tmp_path / "model.mcd")
        np.testing.assert_array_equal(again.predict(X_new), model.predict(X_new))


def test_the_new_expert_passes_the_contract(neighbours):
    from checks import check_everything

    check_everything(MCD("neighbours", random_state=0))


@pytest.mark.parametrize("name", [n for n in list_experts() if n != "auto"])
def test_every_expert_is_of_one_kind(name):
    expert = get_expert(name)
    assert isinstance(expert, RatioExpert) != isinstance(expert, DensityExpert)
    assert expert.target_kinds == {"continuous", "discrete"}
    assert expert.max_targets >= 1
    assert hasattr(expert, "ratio_") is False


def test_unknown_names():
    with pytest.raises(ValueError, match="'perceptron' is not known; choose from"):
        get_expert("perceptron")
    with pytest.raises(TypeError, match="discriminator_params do not fit 'flow'"):
        get_expert("flow", colour="red")


# Conditioning.


@pytest.mark.parametrize("name", ["quadratic", "mlp", "flow", "mixture", "two-tower"])
def test_networks_are_asked_once_for_a_row(name, monkeypatch):
    """However often a grid is refined, what depends on x alone is computed once per block."""
    X, y = sample(150, noise=0.02)
    params = {} if name == "quadratic" else {"steps": 60}
    model = MCD(name, discriminator_params=params, random_state=0).fit(X, y)
    asked = []
    original = type(model.discriminator_).condition

    def condition(self, X):
        asked.append(len(X))
        return original(self, X)

    monkeypatch.setattr(type(model.discriminator_), "condition", condition)
    model.predict_quantiles(X)
    assert sum(asked) == len(X)


@pytest.mark.parametrize("name", ["quadratic", "mlp", "hist-gradient-boosting"])
def test_normalised_ratios_integrate_to_one(name):
    X, y = sample(200)
    model = MCD(name, random_state=0).fit(X, y)
    space, Z = model.target_space_, (X[:6] - model.x_mean_) / model.x_scale_
    conditioned = model.discriminator_.condition(Z)
    assert isinstance(conditioned, ConditionedRatio)
    t = space.inner(np.linspace(-6, 6, 20_001), clip=False)
    z, _ = space.outer(t)
    log_f = model.marginal_.logpdf(z) - space.log_slope(z)
    density = np.exp(conditioned.relative(t, log_f) + log_f)
    np.testing.assert_allclose(np.trapezoid(density, t, axis=1), 1, atol=0.01)


def test_a_spline_reproduces_a_parabola():
    points = np.linspace(-3, 3, 49)
    table = RatioTable(points, stats.norm.cdf, smooth=True)
    center = np.array([[-1.0], [0.0], [0.7]])
    value, bend = table.normalize(-0.5 * ((points - center) / 0.3) ** 2)
    y = np.linspace(-2, 2, 1001)
    truth = -0.5 * ((y - center) / 0.3) ** 2
    found = table.interpolate(value, bend, y)
    near = truth > -15  # further down log-ratios are kept within limits
    shift = np.array([(f - t)[n].mean() for f, t, n in zip(found, truth, near, strict=True)])
    np.testing.assert_allclose((found - shift[:, None])[near], truth[near], atol=0.02)
    own = table.interpolate(value, bend, np.broadcast_to(y, (3, 1001)).copy())
    np.testing.assert_allclose(own, found, atol=1e-12)


@pytest.mark.parametrize(("width", "least", "most"), [(1.0, 10, 40), (0.1, 80, 200)])
def test_a_table_is_as_fine_as_the_ratio_bends(width, least, most):
    """Two peaks on a normal marginal: few points follow wide ones, many are needed for narrow."""
    y = np.random.default_rng(0).normal(size=2000)
    space = TargetSpace.learn(y)
    law = InnerMarginal(space, KernelDensity().fit(space.standardize(y)))

    def log_ratio(X, t):
        peaks = stats.norm(np.stack([X, -X]), width).pdf(t).sum(axis=0) + 0.05
        return np.log(peaks)

    X = np.linspace(0.2, 1, 7)[:, None]
    table = RatioTable.chosen(law, log_ratio, X, len(y), smooth=True)
    assert least < len(table.points) < most
    t = np.linspace(-2, 2, 3001)
    found = table.interpolate(*table.normalize(log_ratio(X, table.points)), t)
    truth = log_ratio(X, t)
    mass = np.exp(law.logpdf(t) + truth)
    mass /= mass.sum(axis=1, keepdims=True)
    off = found - truth - (mass * (found - truth)).sum(axis=1, keepdims=True)
    assert (mass * np.abs(off)).sum(axis=1).max() < 5e-3


def test_beyond_the_outermost_point_a_ratio_fades():
    points = np.linspace(-3, 3, 25)
    table = RatioTable(points, stats.norm.cdf, smooth=True, fade=2.0)
    value, bend = np.array([points, -points]), np.zeros((2, 25))
    found = table.interpolate(value, bend, np.array([-5.0, 3.0, 5.0]))
    faded = 3 / np.e
    np.testing.assert_allclose(found, [[-3, 3, faded], [faded, -3, -3]])
    own = table.interpolate(value, bend, np.array([[5.0, 0.0], [-5.0, 0.0]]))
    np.testing.assert_allclose(own, [[faded, 0], [faded, 0]], atol=1e-12)


# The target's space.


def test_inner_coordinates_and_back():
    y = 7 + 3 * np.random.default_rng(0).standard_t(2, size=300)
    space = TargetSpace.learn(y)
    z = space.standardize(y)
    np.testing.assert_allclose(space.location + space.scale * z, y)
    points = np.concatenate([z, [-50.0, 60.0]])
    back, log_slope = space.outer(space.inner(points, clip=False))
    np.testing.assert_allclose(back, points)
    np.testing.assert_allclose(log_slope, -space.log_slope(points), atol=1e-9)
    step = 1e-6
    change = space.inner(points + step, clip=False) - space.inner(points - step, clip=False)
    np.testing.assert_allclose(np.exp(-log_slope), change / (2 * step), rtol=1e-4)
    assert space.inner(np.array([1e9]))[0] == space.inner(z).max()
    assert (space.kind, space.bounds) == ("continuous", None)


def test_the_marginal_in_inner_coordinates_is_a_density():
    y = np.random.default_rng(0).standard_t(2, size=300)
    space = TargetSpace.learn(y)
    law = InnerMarginal(space, KernelDensity().fit(space.standardize(y)))
    grid = np.linspace(*law.reach, 200_001)
    total = np.exp(law.logpdf(grid)).sum() * (grid[1] - grid[0])
    assert total == pytest.approx(1, abs=1e-3)
    _, mass = law.knots()
    assert mass.sum() == pytest.approx(1)
    assert (mass >= 0).all()


def test_grades_are_spread_over_their_cells():
    rng = np.random.default_rng(0)
    y = rng.integers(3, 9, size=400).astype(float)
    space = TargetSpace.learn(y)
    t = space.inner(space.standardize(y))
    law = InnerMarginal(space, KernelDensity().fit(space.standardize(y)))
    spread, marginal = law.spread_ties(t, rng, len(t))
    values = np.unique(t)
    nearest = values[np.abs(spread[:, None] - values).argmin(axis=1)]
    np.testing.assert_allclose(nearest, t)
    # The densities of the marginal are masses over the widths of the cells.
    width = np.diff(values).mean()
    masses = np.array([np.exp(marginal.held_out[t == v][0]) * width for v in values])
    assert masses.sum() == pytest.approx(1, abs=0.1)
    assert law.spread_ties(rng.normal(size=400), rng, 400) is None


# Holding out.


def training_data(n=50, groups=None):
    X, y = sample(n)
    return TrainingData(X, y[:, None], groups=groups, random_state=np.random.default_rng(0))


def test_members_hold_out_all_rows_once():
    held_out = training_data(50).held_out(5)
    assert held_out.members == 5
    assert (held_out.held.sum(axis=0) == 1).all()
    np.testing.assert_array_equal(held_out.scored, np.arange(50))
    assert len(training_data(50).held_out(5, most=20).scored) == 20
    assert training_data(2).held_out(1) is None


def test_groups_stay_on_one_side():
    groups = np.repeat(np.arange(10), 5)
    held = training_data(50, groups).held_out(5).held
    for group in range(10):
        assert (held[:, groups == group].mean(axis=1) % 1 == 0).all()


def test_folds_decide_who_holds_out():
    data = training_data(20)
    fold = np.stack([np.arange(20) % 4, np.arange(20) // 5])
    fold[0, :4] = -1
    scored = np.arange(20) < 10
    held_out = data.but(folds=Folds(fold, scored)).held_out(99)
    assert held_out.members == 8
    np.testing.assert_array_equal(held_out.held[1], fold[0] == 1)
    np.testing.assert_array_equal(held_out.held[6], fold[1] == 2)
    np.testing.assert_array_equal(held_out.scored, np.arange(10))


def test_pairs_are_made_when_asked_for_and_shared():
    data = training_data(40)
    assert "_contrast" not in vars(data)
    contrast = data.contrast()
    assert data.but(deadline=3.0).contrast() is contrast
    part = data.part(np.arange(40) < 25)
    assert len(part) == 25
    assert part.contrast().n_observations == 25
    assert "_contrast" not in vars(data.but(X=data.X + 1))


def test_batches_are_all_rows_once():
    batches = list(training_data(23).batches(5))
    assert [len(b) for b in batches] == [5, 5, 5, 5, 3]
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(23))


def test_experts_declare_themselves_without_torch():
    """Names and capabilities are known before torch is imported."""
    import subprocess
    import sys

    code = (
        "import sys; from mcdensity.experts import list_experts, portfolio_names; "
        "assert 'flow' in list_experts() and 'mlp' in portfolio_names(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_experts_are_experts():
    assert issubclass(RatioExpert, Expert)
    assert issubclass(DensityExpert, Expert)
