"""Laws with atoms: distributions, metrics, and models of discrete, mixed and bounded targets."""

import numpy as np
import pytest
from scipy import stats

from mcdensity import MCD, TableEstimator, load, metrics, save
from mcdensity.baselines import get_estimator
from mcdensity.distribution import (
    DiscreteDistribution,
    MixedDistribution,
    ScipyDistribution,
)
from mcdensity.experts.registry import get_expert

rng = np.random.default_rng(0)


def exponential(scale):
    scale = np.reshape(scale, (-1, 1))
    return ScipyDistribution(stats.expon, np.zeros_like(scale), scale)


@pytest.fixture
def counts():
    masses = rng.dirichlet(np.ones(6), size=4)
    masses[0, 2] = 0
    return DiscreteDistribution(np.arange(6.0), masses)


@pytest.fixture
def mixed():
    return MixedDistribution(
        [0.0, 5.0],
        [[0.6, 0.1], [0.0, 0.3], [0.3, 0.0]],
        exponential(np.array([2.0, 1.0, 3.0])),
    )


@pytest.fixture(params=["counts", "mixed"])
def law(request):
    return request.getfixturevalue(request.param)


# What any law with jumps obeys.


def test_cdf_and_sf_have_jumps_of_the_masses(law):
    for a in law.atoms:
        jump = law.cdf(a) - law.cdf(np.nextafter(a, -np.inf))
        np.testing.assert_allclose(jump, law.pmf(a), atol=1e-12)
    for y in (-1.0, 0.0, 0.3, 5.0, 5.5):
        np.testing.assert_allclose(law.cdf(y) + law.sf(y), 1)
    assert (law.pmf(0.123) == 0).all()
    assert (law.logpmf(0.123) == -np.inf).all()


def test_quantiles_are_the_least_values_that_reach_their_level(law):
    level = np.concatenate([np.linspace(0.001, 0.999, 97), [0.1, 0.3, 0.6, 0.7, 0.9]])
    quantile = law.ppf_grid(level)
    n = len(law)
    assert (law.cdf(quantile) >= level - 1e-9).all()
    below = law.cdf(quantile - 1e-6 * np.maximum(np.abs(quantile), 1))
    assert (below <= level + 1e-9).all()
    assert (np.diff(quantile[:, :97], axis=1) >= 0).all()
    assert law.ppf_grid([0, 1]).shape == (n, 2)


def test_draws_follow_the_law(law):
    draws = law.sample(20_000, random_state=0)
    for a in law.atoms:
        np.testing.assert_allclose((draws == a).mean(axis=1), law.pmf(a), atol=0.015)
    np.testing.assert_allclose(draws.mean(axis=1), law.mean(), rtol=0.05, atol=0.03)
    np.testing.assert_allclose(draws.var(axis=1), law.var(), rtol=0.1, atol=0.03)
    found = stats.skew(draws, axis=1), stats.kurtosis(draws, axis=1)
    np.testing.assert_allclose(found[0], law.skewness(), rtol=0.15, atol=0.15)
    np.testing.assert_allclose(found[1], law.kurtosis(), rtol=0.35, atol=0.6)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_intervals_and_regions_hold_at_least_their_coverage(law, coverage):
    low, high = law.interval(coverage).T
    held = law.cdf(high) - law.cdf(low) + law.pmf(low)
    assert (held >= coverage - 1e-9).all()
    for i, region in enumerate(law.hpd(coverage)):
        row = law[i]
        mass = sum(row.cdf(b)[0] - row.cdf(a)[0] + row.pmf(a)[0] for a, b in region)
        assert mass >= coverage - 1e-3
        assert (np.diff(region.ravel()) >= 0).all()


def test_the_level_of_a_region_is_that_of_its_outermost_value(law):
    draws = law.sample(4000, random_state=1)
    level = law.hpd_level(draws)
    # The smallest region that holds y has a probability above q at most 1 - q of the time.
    for q in (0.5, 0.9):
        inside = (level - law.pmf(draws) <= q).mean(axis=1)
        assert (inside >= q - 0.03).all()
    assert ((level >= 0) & (level <= 1 + 1e-12)).all()


def test_rows_stay_rows(law):
    whole, part = law.ppf_grid([0.2, 0.9]), law[1:3].ppf_grid([0.2, 0.9])
    np.testing.assert_array_equal(whole[1:3], part)
    joined = law[:1]._joined([law[1:]])
    np.testing.assert_allclose(joined.mean(), law.mean())
    moved = law._rescaled(3.0, 2.0)
    np.testing.assert_allclose(moved.mean(), 3 + 2 * law.mean())
    np.testing.assert_allclose(moved.cdf(7.0), law.cdf(2.0))
    assert type(law).__name__ in repr(law)


def test_entropy_is_the_mean_of_minus_the_log_density(law):
    draws = law.sample(20_000, random_state=2)
    np.testing.assert_allclose(-law.logpdf(draws).mean(axis=1), law.entropy(), atol=0.03)


def test_crps_is_exact(law):
    y = np.array([0.0, 2.0, 5.0, 1.5])[: len(law)]
    draws = law.sample(4000, random_state=3)
    other = law.sample(4000, random_state=4)
    truth = np.abs(draws - y[:, None]).mean(axis=1) - np.abs(draws - other).mean(axis=1) / 2
    assert metrics.crps(law, y) == pytest.approx(truth.mean(), rel=0.03)


def test_the_randomised_pit_is_uniform(law):
    rows = np.repeat(np.arange(len(law)), 3000)
    many = law[rows]
    y = many.sample(1, random_state=5)[:, 0]
    assert stats.kstest(metrics.pit(many, y), "uniform").pvalue > 0.005
    assert metrics.coverage(many, y) >= 0.89
    np.testing.assert_array_equal(metrics.pit(many, y), metrics.pit(many, y))


# Discrete laws.


def test_crps_equals_rps_on_integers(counts):
    y = np.array([0.0, 5.0, 3.0, 9.0])
    below = np.cumsum(counts.masses, axis=1)
    truth = ((below - (y[:, None] <= np.arange(6))) ** 2).sum(axis=1)
    truth[3] += 9 - 5 - 1  # beyond the largest value
    assert metrics.crps(counts, y) == pytest.approx(truth.mean())
    assert metrics.rps(counts[:3], y[:3]) == pytest.approx(metrics.crps(counts[:3], y[:3]))


def test_rps_is_for_single_values(mixed):
    with pytest.raises(TypeError, match="rps is for laws of single values"):
        metrics.rps(mixed, np.zeros(3))


def test_densities_are_masses(counts):
    np.testing.assert_allclose(counts.pdf_grid(np.arange(6.0)), counts.masses)
    assert counts.is_discrete
    assert counts.atoms.tolist() == [0, 1, 2, 3, 4, 5]
    assert counts.support == (0, 5)
    np.testing.assert_array_equal(counts.mode(), counts.masses.argmax(axis=1))
    loss = (counts.masses**2).sum(axis=1).mean() - 2 * counts.masses[:, 1].mean()
    assert metrics.cde_loss(counts, np.ones(4)) == pytest.approx(loss)


@pytest.mark.parametrize(
    ("values", "masses", "message"),
    [
        ([1, 0], [[0.5, 0.5]], "ascending"),
        ([0, 1], [[0.5, 0.5, 0]], "shape"),
        ([0, 1], [[-0.5, 0.5]], "negative"),
        ([0, 1], [[0, 0]], "positive sum"),
    ],
)
def test_masses_that_are_none(values, masses, message):
    with pytest.raises(ValueError, match=message):
        DiscreteDistribution(values, masses)


# Mixed laws.


def test_density_and_mass_of_a_mixed_law(mixed):
    np.testing.assert_allclose(mixed.pdf(0.0), [0.6, 0, 0.3])
    rest = 1 - np.array([0.7, 0.3, 0.3])
    np.testing.assert_allclose(mixed.pdf(1.0), rest * stats.expon.pdf(1, scale=[2, 1, 3]))
    assert not mixed.is_discrete
    assert mixed.ppf(0.3).tolist()[0] == 0
    np.testing.assert_array_equal(mixed.mode()[:1], [0.0])
    assert (mixed.cdf(-1e-9) == 0).all()
    assert mixed.support == (0, np.inf)


def test_atoms_inside_an_interval_are_part_of_it(mixed):
    region = mixed.hpd(0.95)[0]
    assert region[0, 0] == 0
    assert len(region) <= 2


def test_a_law_that_is_nothing_but_an_atom():
    law = MixedDistribution([0.0], [[1.0]], exponential(np.ones(1)))
    assert law.mean()[0] == 0
    assert law.std()[0] == 0
    assert law.ppf_grid([0.01, 0.5, 1.0]).tolist() == [[0, 0, 0]]
    assert law.hpd(0.9)[0].tolist() == [[0, 0]]
    assert np.isfinite(law.entropy()).all()


# Models.


def simulated(kind, n=800, seed=0):
    r = np.random.default_rng(seed)
    X = r.normal(size=(n, 2))
    rate = np.exp(0.4 + 0.5 * X[:, 0])
    share = 1 / (1 + np.exp(-1.2 * X[:, 1]))
    y = {
        "counts": lambda: r.poisson(rate),
        "hurdle": lambda: np.where(r.random(n) < share, 0, r.lognormal(X[:, 0], 0.5)),
        "positive": lambda: r.gamma(2, rate),
        "shares": lambda: r.beta(rate, 2),
        "capped": lambda: np.minimum(r.normal(X[:, 0], 1), 1.0),
    }[kind]()
    return X, y.astype(float)


FITTED = {}


def model_of(kind, discriminator="quadratic"):
    if (kind, discriminator) not in FITTED:
        X, y = simulated(kind)
        FITTED[kind, discriminator] = MCD(discriminator, random_state=0).fit(X, y)
    return FITTED[kind, discriminator]


KINDS = ["counts", "hurdle", "positive", "shares", "capped"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_mass_lies_outside_of_the_support(kind):
    model = model_of(kind)
    X, y = simulated(kind, 300, 1)
    law = model.predict_distribution(X)
    low, high = model.support_
    for end, value in ((low, law.cdf(np.nextafter(low, -np.inf))), (high, law.sf(high))):
        if np.isfinite(end):
            assert (value == 0).all()
    quantiles = model.predict_quantiles(X, [1e-6, 0.01, 0.5, 0.99, 1 - 1e-6])
    draws = model.sample(X, 50, random_state=0)
    for values in (quantiles, draws):
        assert (values >= low).all()
        assert (values <= high).all()
    assert np.isfinite(model.predict(X)).all()
    assert np.isfinite(model.predict_var(X)).all()
    assert np.isfinite(model.score(X, y))


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_calibrated(kind):
    model = model_of(kind)
    X, y = simulated(kind, 2000, 2)
    law = model.predict_distribution(X)
    assert metrics.pit_ks(law, y) < 0.1
    assert metrics.coverage(law, y) > 0.87


@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_depend_on_their_neighbours(kind):
    model = model_of(kind)
    X, y = simulated(kind, 40, 3)
    whole = model.predict_distribution(X)
    for i in (0, 7, 39):
        alone = model.predict_distribution(X[i : i + 1])
        for f in ("mean", "std", "median", "entropy", "mode"):
            np.testing.assert_allclose(getattr(whole, f)()[i], getattr(alone, f)()[0], rtol=1e-10)
        np.testing.assert_allclose(whole.logpdf(y)[i], alone.logpdf(y[i])[0], rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_models_predict_the_same(kind, tmp_path):
    model = model_of(kind)
    X, y = simulated(kind, 50, 4)
    save(model, tmp_path / "model.mcd")
    again = load(tmp_path / "model.mcd")
    np.testing.assert_array_equal(again.predict_quantiles(X), model.predict_quantiles(X))
    np.testing.assert_array_equal(again.logpdf(X, y), model.logpdf(X, y))
    assert again.target_kind_ == model.target_kind_
    assert again.support_ == model.support_
    np.testing.assert_array_equal(again.atoms_, model.atoms_)


@pytest.mark.parametrize("kind", ["counts", pytest.param("hurdle", marks=pytest.mark.slow)])
def test_distilled_models_have_the_same_atoms_and_bounds(kind, monkeypatch):
    monkeypatch.setattr("mcdensity.experts.distilled._BUDGETS", ((0, 3000, 400),))
    monkeypatch.setattr("mcdensity.experts.distilled._HELD_OUT", 300)
    model = model_of(kind)
    X, y = simulated(kind, 500, 5)
    small = model.distill(random_state=0)
    law, other = model.predict_distribution(X), small.predict_distribution(X)
    assert 0 < small.distill_loss_ < 0.1
    np.testing.assert_array_equal(law.atoms, other.atoms)
    assert (other.cdf(-1e-9) == 0).all()
    assert abs(law.logpdf(y).mean() - other.logpdf(y).mean()) < 0.1


def test_masses_of_counts_are_near_the_truth():
    model = model_of("counts")
    X, _ = simulated("counts", 300, 6)
    truth = stats.poisson.pmf(np.arange(8), np.exp(0.4 + 0.5 * X[:, :1]))
    found = model.predict_distribution(X).pdf_grid(np.arange(8.0))
    assert np.abs(found - truth).mean() < 0.03
    assert model.target_kind_ == "discrete"
    assert model.atoms_[0] == 0
    assert "discrete" in repr(model.target_kind_)


@pytest.mark.parametrize("by_value", [True, False])
def test_masses_have_a_floor_that_adds_next_to_nothing(by_value):
    y = np.random.default_rng(0).poisson(2.0, size=500)
    model = MCD("quadratic", random_state=0).fit(np.zeros((500, 1)) + y[:, None] % 2, y)
    space = model.target_space_
    masses, floor = space.masses.masses_, 1e-6
    # All mass at the rarest value, whose ratio is the largest that there may be.
    rarest = int(masses.argmin())
    log_ratio = np.full((1, len(masses)), -60.0)
    log_ratio[0, rarest] = 0.0
    if not by_value:
        place = np.searchsorted(space.masses.starts_, np.arange(len(space.masses.nodes_)), "right")
        log_ratio = log_ratio[:, place - 1]
    found = space.of_ratios(log_ratio, by_value=by_value, floor=floor).masses[0]
    expected = np.where(np.arange(len(masses)) == rarest, 1.0, floor * masses)
    assert masses[rarest] < floor / 10
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_the_share_of_zeros_is_near_the_truth():
    model = model_of("hurdle")
    X, _ = simulated("hurdle", 300, 6)
    share = 1 / (1 + np.exp(-1.2 * X[:, 1]))
    law = model.predict_distribution(X)
    assert np.abs(law.pmf(0.0) - share).mean() < 0.04
    assert np.abs(law.sf(0.0) - (1 - share)).mean() < 0.04
    assert model.target_kind_ == "mixed"
    assert model.atoms_.tolist() == [0]


@pytest.mark.parametrize(
    ("kind", "discriminator"),
    [("counts", "mixture"), ("counts", "mlp"), ("counts", "forest"), ("hurdle", "mixture")],
)
def test_experts_of_all_kinds_learn_laws_with_atoms(kind, discriminator):
    params = {"forest": {"n_trees": 50}}.get(discriminator, {"steps": 80})
    X, y = simulated(kind, 500)
    model = MCD(discriminator, discriminator_params=params, random_state=0).fit(X, y)
    new_X, new_y = simulated(kind, 1000, 7)
    plain = MCD("quadratic", random_state=0).fit(np.zeros((len(y), 1)), y)
    assert model.score(new_X, new_y) > plain.score(np.zeros((1000, 1)), new_y) + 0.02


def test_conformal_intervals_of_counts_cover():
    model = model_of("counts")
    X, y = simulated("counts", 400, 8)
    model.conformalize(X, y)
    new_X, new_y = simulated("counts", 3000, 9)
    low, high = model.predict_interval(new_X, 0.8, conformal=True).T
    assert ((new_y >= low) & (new_y <= high)).mean() > 0.77


def test_tables_pass_the_kind_on():
    pd = pytest.importorskip("pandas")
    X, y = simulated("counts", 300)
    table = TableEstimator(MCD("quadratic", random_state=0)).fit(pd.DataFrame(X), y)
    inner = MCD("quadratic", random_state=0).fit(X, y)
    assert table.target_kind_ == "discrete"
    np.testing.assert_allclose(table.predict(pd.DataFrame(X)), inner.predict(X))


def test_weights_groups_and_further_targets_are_used():
    X, y = simulated("counts", 300)
    many = MCD("quadratic", random_state=0).fit(X, y, y_marginal=np.full(3000, 2.0))
    few = MCD("quadratic", random_state=0).fit(X, y)
    assert many.marginal_.masses_[2] > 2 * few.marginal_.masses_[2]
    weighted = MCD("quadratic", random_state=0).fit(X, y, np.where(y == 0, 5.0, 1.0))
    assert weighted.marginal_.masses_[0] > 1.5 * few.marginal_.masses_[0]
    X, y = simulated("hurdle", 300)
    grouped = MCD("quadratic", random_state=0)
    grouped.fit(np.repeat(X[:100], 3, axis=0), y, groups=np.repeat(np.arange(100), 3))
    assert np.isfinite(grouped.score(X, y))


def test_the_formula_as_it_stands_needs_one_measure():
    X, y = simulated("hurdle", 200)
    with pytest.raises(ValueError, match="normalize=False"):
        MCD("quadratic", normalize=False).fit(X, y)
    X, y = simulated("counts", 300)
    raw = MCD("quadratic", normalize=False, random_state=0).fit(X, y)
    total = raw.pdf_from_X(X[:20], raw.atoms_).sum(axis=1)
    assert ((total > 0.3) & (total < 3)).all()
    assert (raw.pdf_from_X(X[:3], [0.5]) == 0).all()


def test_unbounded_and_continuous_is_what_it_was():
    X, y = simulated("positive", 200)
    model = MCD("quadratic", random_state=0, target="continuous", support=(None, None)).fit(X, y)
    assert model.support_ == (-np.inf, np.inf)
    assert model.target_space_.bounds is None
    assert model.predict_distribution(X[:5]).cdf(-1.0).min() > 0


def test_estimators_and_experts_declare_what_they_take():
    assert MCD.target_kinds == {"continuous", "discrete", "mixed"}
    assert get_estimator("mdn").target_kinds == {"continuous"}
    model = MCD("quadratic", random_state=0)
    expert = type(get_expert("quadratic"))
    kinds, expert.target_kinds = expert.target_kinds, frozenset({"continuous"})
    try:
        with pytest.raises(ValueError, match="takes no discrete target"):
            model.fit(*simulated("counts", 200))
    finally:
        expert.target_kinds = kinds


def test_counts_beyond_those_seen_are_possible():
    X, y = simulated("counts", 300)
    law = MCD("quadratic", random_state=0).fit(X, y).predict_distribution(X[:5])
    far = law.logpmf(y.max() + 40)
    assert np.isfinite(far).all()
    assert (far < -10).all()
    assert (law.sf(y.max()) < 0.05).all()


def test_targets_without_x_stay_within_the_support():
    X, y = simulated("positive", 200)
    with pytest.raises(ValueError, match="y_marginal has 1 of 2 targets outside of support"):
        MCD("quadratic", random_state=0).fit(X, y, y_marginal=[-1.0, 2.0])
