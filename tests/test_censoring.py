"""Right-censored targets."""

import numpy as np
import pytest
from scipy import stats

from mcdensity import MCD, TableEstimator, load, metrics, save
from mcdensity._bounds import Bounds
from mcdensity._censoring import _completed, jumps
from mcdensity._mixing import pooling_exponents, survivor_exponent
from mcdensity.data import OutOfTimeError
from mcdensity.distribution import ScipyDistribution
from mcdensity.experts.density.durations import DurationFamilies, _log_distance
from mcdensity.experts.density.network import NetworkDensity


def durations(n, seed=0):
    """Log-normal durations, and random times at which half of them are censored."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.exp(X[:, 0] + 0.5 * rng.normal(size=n))
    end = np.exp(rng.normal(size=n))
    return X, y, np.minimum(y, end), y > end


def test_jumps_are_those_of_kaplan_and_meier():
    """By hand: 1 of 4, then 1 of 2 that are left after one was lost, then the last."""
    y, censored = np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, False])
    np.testing.assert_allclose(jumps(y, censored), [0.25, 0, 0.375, 0.375])
    # At equal times the lost row is still at risk; a weight of 2 is a row twice.
    tied = jumps(np.array([1.0, 1.0, 2.0]), np.array([False, True, False]))
    np.testing.assert_allclose(tied, [1 / 3, 0, 2 / 3])
    double = jumps(y[[0, 1, 1, 2, 3]], censored[[0, 1, 1, 2, 3]])
    weighted = jumps(y, censored, np.array([1.0, 2.0, 1.0, 1.0]))
    np.testing.assert_allclose(double[[0, 1, 3, 4]], weighted)
    # What is left beyond the last outcome is shared by the rows there.
    np.testing.assert_allclose(jumps(y, ~censored), [0, 1 / 3, 1 / 3, 1 / 3])


def test_jumps_agree_with_lifelines():
    lifelines = pytest.importorskip("lifelines")
    _, _, y, censored = durations(300)
    y = np.round(y, 1) + 0.1
    censored &= y < y[~censored].max()
    fitter = lifelines.KaplanMeierFitter().fit(y, ~censored)
    mass = jumps(y, censored)
    for t in (0.3, 0.6, 1.2, 2.5):
        survival = fitter.survival_function_at_times(t).iloc[0]
        assert mass[y > t].sum() == pytest.approx(survival, abs=1e-9)


@pytest.mark.parametrize("tower", ["mixture", "flow"])
def test_survivors_of_towers_are_integrals_of_their_densities(tower):
    torch = pytest.importorskip("torch")
    from mcdensity.networks.scores import NormalScores
    from mcdensity.networks.towers import TOWERS

    knots = np.linspace(-6, 6, 400)
    scores = NormalScores(knots, stats.logistic.cdf(knots), stats.logistic.logpdf(knots))
    torch.manual_seed(0)
    module = TOWERS[tower](scores, 1, 2, 8, 1).double()
    parameters = module.parameters_of(torch.randn(1, 3, 2, dtype=torch.float64))
    at = torch.linspace(-5.9, 5.9, 4001, dtype=torch.float64)
    log_f = scores.both(at)[1]
    density = module.log_density(parameters, at, log_f).exp()
    mass = ((density[..., 1:] + density[..., :-1]) / 2 * (at[1] - at[0]))[0]
    for place in (1500, 2000, 2400):
        y = at[place].expand(1, 3)
        inside = (
            module.survival(parameters, y).exp()
            - module.survival(parameters, at[-1].expand(1, 3)).exp()
        )
        np.testing.assert_allclose(inside[0].detach(), mass[:, place:].sum(1).detach(), atol=5e-3)


def divergence(model, X):
    law, total = model.predict_distribution(X), 0.0
    for level in (np.arange(20) + 0.5) / 20:
        y = stats.lognorm.ppf(level, 0.5, scale=np.exp(X[:, 0]))
        truth = stats.lognorm.logpdf(y, 0.5, scale=np.exp(X[:, 0]))
        total += np.mean(truth - law.logpdf(y)) / 20
    return total


def test_half_of_the_outcomes_censored():
    """Close to the fit to what would have been seen, and far from ignoring it."""
    X, y, bound, censored = durations(600)
    assert 0.4 < censored.mean() < 0.6
    new = durations(300, seed=1)[0]
    options = {"effort": "fast", "random_state": 0, "n_jobs": 1}
    full = divergence(MCD("mixture", **options).fit(X, y), new)
    model = MCD("mixture", **options).fit(X, bound, censored=censored)
    found = divergence(model, new)
    ignored = divergence(MCD("mixture", **options).fit(X, bound), new)
    assert found < 1.5 * full + 0.03
    assert found < 0.3 * ignored
    # The survival function is that of the truth.
    at = np.array([[0.0, 0.0], [1.0, 0.0]])
    survival = model.predict_distribution(at).sf(1.0)
    np.testing.assert_allclose(survival, stats.norm.cdf([0.0, 2.0]), atol=0.12)
    # Nothing is censored: as if nothing had been said.
    plain, same = (
        MCD("mixture", **options).fit(X[:100], y[:100], censored=c) for c in (None, np.zeros(100))
    )
    np.testing.assert_array_equal(plain.predict(new[:5]), same.predict(new[:5]))


def test_mass_stays_where_laws_can_have_it():
    """Where next to nothing is seen, the likelihood of bounds alone would move mass without end."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    y = rng.weibull(np.exp(0.5 + 0.4 * X[:, 1])) * np.exp(0.7 * X[:, 0])
    end = np.median(y) * np.exp(rng.normal(size=1000))
    model = MCD("flow", random_state=0, n_jobs=1).fit(X, np.minimum(y, end), censored=y > end)
    law = model.predict_distribution([[2.0, 0.0], [2.5, 1.0]])
    # The truth is 3.2 and 5.0; the median of all outcomes is 0.8.
    assert np.all(law.median() > 1.5)


def test_other_discriminators_have_weights():
    X, y, bound, censored = durations(600)
    new = durations(300, seed=1)[0]
    full = divergence(MCD("quadratic", random_state=0).fit(X, y), new)
    model = MCD("quadratic", random_state=0).fit(X, bound, censored=censored)
    dropped = MCD("quadratic", random_state=0).fit(X[~censored], bound[~censored])
    assert divergence(model, new) < 0.5 * (full + divergence(dropped, new))


def test_the_tail_of_the_marginal_goes_on():
    """After the last outcomes that were seen, the law falls as fast as it did before."""
    rng = np.random.default_rng(0)
    y, end = rng.exponential(size=2000), np.minimum(rng.exponential(size=2000), 2.5)
    values, mass, last = _completed(np.minimum(y, end), y > end, None)
    assert last == pytest.approx(-np.log(1e-3), abs=2.5)
    assert mass.sum() == pytest.approx(1)
    order = np.argsort(values)
    below = np.cumsum(mass[order])
    for level in (0.5, 0.9, 0.95, 0.99):
        found = values[order][np.searchsorted(below, level)]
        assert found == pytest.approx(stats.expon.ppf(level), rel=0.2)
    assert mass.max() < 0.01  # Kaplan and Meier's estimate has 8 % at its last outcome
    # Weights are numbers of rows; where nothing is censored nothing changes.
    bound, flags, twice = np.minimum(y, end)[:200], (y > end)[:200], np.repeat(np.arange(200), 2)
    weighted = _completed(bound, flags, np.full(200, 2.0))[1]
    np.testing.assert_allclose(weighted, _completed(bound, flags, None)[1])
    assert _completed(bound[twice], flags[twice], None)[1].sum() == pytest.approx(1)
    plain = _completed(y, np.zeros(2000, dtype=bool), None)
    np.testing.assert_array_equal(plain[0], y)


def test_auto_and_tables_and_caps(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y, _, _ = durations(200)
    # A study that ends at one time for all: many equal bounds are no atom.
    bound, censored = np.minimum(y, 1.5), y > 1.5
    model = TableEstimator(MCD(effort="fast", random_state=0, n_jobs=1))
    model.fit(pandas.DataFrame(X), bound, censored=censored)
    assert model.target_kind_ == "continuous"
    share = model.weights_["families"]
    assert 0.2 < share < 0.9  # log-normal, and the first of them
    shares = dict.fromkeys(("mixture", "mixture of four", "flow"), (1 - share) / 3)
    assert model.weights_ == shares | {"families": share, "marginal": 0.0}
    families = model.discriminator_.families.family_weights_
    assert sum(families.values()) == pytest.approx(1)
    law = model.predict_distribution(pandas.DataFrame(X[:50]))
    assert law.sf(1.5).mean() == pytest.approx((y[:50] > 1.5).mean(), abs=0.15)
    # The weighted mean of the densities, relative to the marginal or not.
    expert, at, own = model.discriminator_, X[:5, :1], np.full((5, 1), -0.7)
    parts = [part.condition(X[:5]) for part in (*expert.experts.values(), expert.families)]
    both, weights = expert.condition(X[:5]), [*3 * [(1 - share) / 3], share]
    found = [np.exp(part.log_density(at)) for part in parts]
    mean = np.average(found, axis=0, weights=weights)
    np.testing.assert_allclose(np.exp(both.log_density(at)), mean)
    found = [np.exp(part.log_ratio(at, own)) for part in parts]
    mean = np.average(found, axis=0, weights=weights)
    np.testing.assert_allclose(np.exp(both.relative(at, own)), mean)
    save(model, tmp_path / "model.mcd")
    again = load(tmp_path / "model.mcd").predict_distribution(pandas.DataFrame(X[:50]))
    np.testing.assert_array_equal(again.sf(1.5), law.sf(1.5))
    only = MCD(discriminator_params={"portfolio": ["mixture"]}, effort="fast", random_state=0)
    assert only.fit(X, bound, censored=censored).weights_ == {"mixture": 1.0, "marginal": 0.0}


@pytest.mark.parametrize("name", ["normal", "weibull", "logistic", "exponentiated weibull", "burr"])
def test_families_have_densities_and_survivors(name):
    torch = pytest.importorskip("torch")
    from mcdensity.networks.families import FAMILIES, log_density, log_survivor

    assert name in FAMILIES
    known = {"normal": stats.norm, "weibull": stats.gumbel_l, "logistic": stats.logistic}
    at = torch.linspace(-60, 60, 120_001, dtype=torch.float64)
    for shape in (-1.0, 0.0, 2.0):
        parameters = torch.tensor([0.5, 0.3, shape], dtype=torch.float64).expand(len(at), 3)
        density = log_density(name, at, parameters).exp().numpy()
        survivor = log_survivor(name, at, parameters).exp().numpy()
        mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * 1e-3)])
        assert mass[-1] == pytest.approx(1, abs=1e-4)
        np.testing.assert_allclose(1 - mass, survivor, atol=1e-4)
        if name in known:
            law = known[name](0.5, np.exp(0.3))
            np.testing.assert_allclose(density, law.pdf(at.numpy()), atol=1e-6)
    # Gradients are finite far out, too.
    far = torch.tensor([-400.0, -40.0, 0.0, 40.0, 400.0])
    parameters = torch.zeros(5, 3, requires_grad=True)
    (log_density(name, far, parameters) + log_survivor(name, far, parameters)).sum().backward()
    assert torch.isfinite(parameters.grad).all()


def weibull(X):
    return stats.weibull_min(np.exp(0.5 + 0.4 * X[:, 1]), scale=np.exp(0.7 * X[:, 0]))


def test_families_know_tails_of_which_nothing_was_seen():
    """Where nine in ten outcomes are censored, laws come close to the truth."""
    rng = np.random.default_rng(10)
    X = rng.normal(size=(600, 2))
    y = weibull(X).rvs(random_state=rng)
    end = np.median(y) * np.exp(rng.normal(size=600))
    options = {"effort": "fast", "random_state": 0, "n_jobs": 1}
    model = MCD(**options).fit(X, np.minimum(y, end), censored=y > end)
    new = rng.normal(size=(300, 2))
    new[:, 0] = 1.5 + 0.3 * new[:, 0]
    truth, law = weibull(new), model.predict_distribution(new)
    free = MCD(discriminator_params={"portfolio": ["mixture", "flow"]}, **options)
    free.fit(X, np.minimum(y, end), censored=y > end)
    assert "families" not in free.weights_
    other, found = free.predict_distribution(new), np.zeros(2)
    for level in (np.arange(20) + 0.5) / 20:
        at = truth.ppf(level)
        found += [np.mean(truth.logpdf(at) - each.logpdf(at)) / 20 for each in (law, other)]
    assert found[0] < 0.1
    assert found[0] < 0.6 * found[1]
    assert np.isfinite(law.mean()).all()
    # Given the same random state they are the same.
    families, again = (
        MCD(**options).fit(X[:60], np.minimum(y, end)[:60], censored=(y > end)[:60])
        for _ in range(2)
    )
    np.testing.assert_array_equal(families.predict(new[:5]), again.predict(new[:5]))


def test_what_is_not_fitted_in_time_is_left_out(monkeypatch, tmp_path):
    def late(self, data):
        raise OutOfTimeError("too late")

    X, _, y, censored = durations(60)
    model = MCD(effort="fast", random_state=0, n_jobs=1)
    with monkeypatch.context() as change:
        change.setattr(DurationFamilies, "fit", late)
        model.fit(X, y, censored=censored)
        assert sorted(model.weights_) == ["flow", "marginal", "mixture", "mixture of four"]
        change.setattr(NetworkDensity, "fit", late)
        with pytest.raises(TimeoutError, match="too late"):
            MCD(effort="fast", random_state=0, n_jobs=1).fit(X, y, censored=censored)
    monkeypatch.setattr(NetworkDensity, "fit", late)
    model.fit(X, y, censored=censored)
    assert model.weights_ == {"families": 1.0, "marginal": 0.0}
    save(model, tmp_path / "model.mcd")
    again = load(tmp_path / "model.mcd")
    assert np.isfinite(again.predict(X)).all()
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_families_that_fit_badly_have_little_weight():
    """Two peaks are of no family, and y may be negative."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    y = X[:, 0] + np.where(rng.random(400) < 0.5, -3.0, 3.0) + 0.2 * rng.normal(size=400)
    end = rng.normal(scale=4, size=400)
    options = {"effort": "fast", "random_state": 0, "n_jobs": 1}
    model = MCD(**options).fit(X, np.minimum(y, end), censored=y > end)
    assert model.weights_["families"] < 0.15


@pytest.mark.parametrize("scale", [np.inf, 0.7])
def test_logarithms_of_distances_from_a_bound(scale):
    bounds = Bounds(2.0, np.inf, scale, 1e-3, 5.0 if np.isinf(scale) else np.inf)
    w = np.linspace(-4, 8, 100)
    value, log_slope = _log_distance(bounds, w)
    np.testing.assert_allclose(value, np.log(bounds.backward(w) - 2))
    slope = (_log_distance(bounds, w + 1e-6)[0] - _log_distance(bounds, w - 1e-6)[0]) / 2e-6
    np.testing.assert_allclose(np.exp(log_slope), slope, rtol=1e-5)
    # Far below the distance itself is 0.
    far = _log_distance(bounds, np.array([-2000.0, -1999.0]))[0]
    assert far[1] - far[0] == pytest.approx(1.0 if np.isinf(scale) else 1 / scale)


def exponential(scale):
    return ScipyDistribution(stats.expon, loc=np.zeros((len(scale), 1)), scale=scale[:, None])


def test_scores_with_and_without_censoring_agree():
    rng = np.random.default_rng(0)
    scale = np.exp(rng.normal(size=20_000))
    y, end = scale * rng.exponential(size=20_000), 2 * rng.exponential(size=20_000)
    bound, censored = np.minimum(y, end), y > end
    law = exponential(scale)
    times = np.array([0.3, 1.0, 2.0])
    full = metrics.brier_score(law, y, times)
    # The mean of S(1 - S): what the truth scores.
    survival = np.exp(-times / scale[:, None])
    np.testing.assert_allclose(full, (survival * (1 - survival)).mean(axis=0), atol=0.005)
    np.testing.assert_allclose(metrics.brier_score(law, bound, times, censored), full, atol=0.01)
    assert metrics.brier_score(law, y, 1.0) == pytest.approx(full[1])
    part = slice(0, 3000)
    c = metrics.concordance(law[part], bound[part], censored[part])
    assert 0.6 < c < 0.9
    lifelines = pytest.importorskip("lifelines")
    expected = lifelines.utils.concordance_index(bound[part], scale[part], ~censored[part])
    assert c == pytest.approx(expected, abs=1e-9)
    assert metrics.concordance(exponential(np.ones(50)), y[:50]) == 0.5


def test_mistakes():
    X, y, bound, censored = durations(100)
    model = MCD("mixture", effort="fast", random_state=0)
    with pytest.raises(ValueError, match=r"censored must have one entry per row of X.* \(100,\)"):
        model.fit(X, bound, censored=censored[:50])
    with pytest.raises(ValueError, match="censored is True for all rows"):
        model.fit(X, bound, censored=np.ones(100, dtype=bool))
    with pytest.raises(ValueError, match="censored is False for 3 rows"):
        model.fit(X, bound, censored=np.arange(100) > 2)
    with pytest.raises(ValueError, match="True, where y is a lower bound"):
        model.fit(X, bound, censored=np.full(100, 2))
    with pytest.raises(ValueError, match="for continuous targets, and y is discrete"):
        model.fit(X, np.round(y).clip(0, 3), censored=censored)
    with pytest.raises(ValueError, match="calibrate=False"):
        MCD("mixture", calibrate=True).fit(X, bound, censored=censored)
    with pytest.raises(ValueError, match="censored is for one target"):
        model.fit(X, X, censored=censored)
    law = exponential(np.ones(3))
    with pytest.raises(ValueError, match="censored must hold True or False for each row"):
        metrics.concordance(law, [1.0, 2.0, 3.0], [True])
    with pytest.raises(ValueError, match="No two rows can be compared"):
        metrics.concordance(law, [1.0, 2.0, 3.0], [True] * 3)
    with pytest.raises(ValueError, match="by when all rows are censored"):
        metrics.brier_score(law, [1.0, 2.0, 3.0], 3.5, [False, True, True])


def test_exponents_see_lower_bounds():
    """A law of z that is half as wide as it should be: with and without bounds it is widened."""
    rng = np.random.default_rng(0)
    points = stats.norm.ppf((np.arange(256) + 0.5) / 256)
    middle = 0.5 * rng.normal(size=2000)
    z = middle + rng.normal(size=2000) * 0.5
    end = rng.normal(size=2000)
    censored, bound = z > end, np.minimum(z, end)

    def log_ratio(at):
        return stats.norm.logpdf(at, middle[:, None], 0.25) - stats.norm.logpdf(at)

    own, grid = log_ratio(bound[:, None])[:, 0], log_ratio(points)
    level, ones = stats.norm.cdf(bound), np.ones(2000)
    found = survivor_exponent(own, grid, ones, level, censored)[0]
    seen = log_ratio(z[:, None])[:, 0]
    expected = pooling_exponents(seen[:, None], grid[:, None], ones, np.ones(1))[0]
    ignored = pooling_exponents(own[:, None], grid[:, None], ones, np.ones(1))[0]
    assert found == pytest.approx(expected, abs=0.05)
    assert abs(found - expected) < abs(ignored - expected)
