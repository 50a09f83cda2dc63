"""Recalibration: the map of levels, and laws that have gone through it."""

import numpy as np
import pytest
from scipy import stats

from mcdensity import MCD, TableEstimator, load, save
from mcdensity._levels import LevelMap, learn_levels
from mcdensity.baselines import NNKCDE
from mcdensity.distribution import (
    DiscreteDistribution,
    GaussianMixtureDistribution,
    GridDistribution,
    ScipyDistribution,
)
from mcdensity.distribution.recalibrated import recalibrated

BOWL = LevelMap(np.array([[1.0, 1.0], [1.0, 6.0], [6.0, 1.0]]), np.array([0.5, 0.3, 0.2]))


def sample(n, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + noise * rng.normal(size=n)


def test_levels_are_learned():
    """The map comes near the true law of the levels; uniform levels change next to nothing."""
    rng = np.random.default_rng(0)
    at = np.linspace(0, 1, 401)
    law = stats.beta(0.6, 0.8)
    u = law.rvs(2000, random_state=rng)
    found = learn_levels(u, u)
    assert np.abs(found.cdf(at) - law.cdf(at)).max() < 0.03
    assert np.diff(found.cdf(at)).min() > 0
    assert found.cdf(np.array([0.0, 1.0])).tolist() == [0.0, 1.0]
    slope = np.diff(found.cdf(at)) / np.diff(at)
    middle = np.exp(found.log_slope((at[1:] + at[:-1]) / 2))
    np.testing.assert_allclose(slope[5:-5], middle[5:-5], rtol=0.02)
    u = rng.random(2000)
    even = learn_levels(u, u)
    assert even is None or np.abs(even.cdf(at) - at).max() < 0.03
    assert learn_levels(u[:10], u[:10]) is None


def test_levels_of_single_values_are_intervals():
    """Masses (0.2, 0.5, 0.3) that are taken for thirds: the map brings the right ones back."""
    y = np.random.default_rng(0).choice(3, size=3000, p=[0.2, 0.5, 0.3])
    found = learn_levels(y / 3, (y + 1) / 3)
    masses = recalibrated(DiscreteDistribution([0, 1, 2], np.full((1, 3), 1 / 3)), found).masses
    np.testing.assert_allclose(masses[0], np.bincount(y) / 3000, atol=0.01)


def laws():
    grid = np.linspace(-8, 8, 300)
    scale = np.array([[1.0], [0.05]])
    yield GridDistribution.from_log_density(
        lambda rows, y: -0.5 * (y / scale[rows]) ** 2, grid, n_rows=2
    )
    yield GridDistribution.from_log_density(
        lambda rows, y: -0.5 * ((y - 1) / scale[rows]) ** 2,
        grid,
        n_rows=2,
        reference=stats.t(5),
    )
    two = np.array([[0.3, 0.7], [0.5, 0.5]])
    yield GaussianMixtureDistribution(two, np.array([[-2.0, 1.0], [0.0, 4.0]]), two)
    yield ScipyDistribution(stats.norm, loc=np.array([[0.0], [3.0]]), scale=np.ones((2, 1)))


@pytest.mark.parametrize("law", list(laws()), ids=lambda law: type(law).__name__)
def test_recalibrated_laws_agree_with_themselves(law):
    """All that a law says is of the distribution function G(F(y)) and its slope."""
    new = recalibrated(law, BOWL)
    points = law.ppf_grid(np.linspace(0.005, 0.995, 61))
    np.testing.assert_allclose(new.cdf(points), BOWL.cdf(law.cdf(points)), atol=2e-3)
    np.testing.assert_allclose(new.cdf(points) + new.sf(points), 1, atol=1e-9)
    np.testing.assert_allclose(new.cdf(new.ppf_grid([0.1, 0.5, 0.9])), [[0.1, 0.5, 0.9]] * 2)
    expected = law.logpdf(points) + BOWL.log_slope(law.cdf(points))
    np.testing.assert_allclose(new.logpdf(points), expected, atol=0.05)
    # Moments by a Riemann sum over quantiles.
    even = law.ppf_grid((np.arange(20_000) + 0.5) / 20_000)
    weight = np.exp(BOWL.log_slope((np.arange(20_000) + 0.5) / 20_000)) / 20_000
    mean = even @ weight
    np.testing.assert_allclose(new.mean(), mean, atol=3e-3 * law.std().max())
    spread = np.sqrt((even**2) @ weight - mean**2)
    np.testing.assert_allclose(new.std(), spread, rtol=0.01)
    draws = new.sample(4000, random_state=0)
    assert all(stats.kstest(new[[i]].cdf(draws[[i]])[0], "uniform").pvalue > 1e-3 for i in (0, 1))
    for i, region in enumerate(new.hpd(0.8)):
        inside = sum(new[[i]].cdf(high) - new[[i]].cdf(low) for low, high in region)
        np.testing.assert_allclose(inside, 0.8, atol=5e-3)


def distance(model, X, y):
    law = model.predict_distribution(X)
    u = law.cdf(y) - np.random.default_rng(0).random(len(y)) * law.pmf(y)
    return stats.kstest(u, "uniform").statistic


def test_a_model_that_is_too_sure_is_corrected(tmp_path):
    X, y = sample(300, noise=0.4)
    model = MCD("quadratic", random_state=0).fit(X, y)
    X, y = sample(3000, seed=1)
    before, score = distance(model, X, y), model.score(X, y)
    assert before > 0.1
    model.conformalize(X, y)
    assert model.recalibrate(X[:1000], y[:1000]) is model
    assert not hasattr(model, "conformal_levels_")
    assert distance(model, X[1000:], y[1000:]) < 0.3 * before
    assert model.score(X[1000:], y[1000:]) > score + 0.2
    # Quantiles, densities and intervals are those of the corrected law.
    law = model.predict_distribution(X[:5])
    np.testing.assert_allclose(model.predict_quantiles(X[:5], 0.9)[:, 0], law.ppf(0.9))
    np.testing.assert_allclose(model.pdf_from_X(X[:5], [0.0, 1.0]), law.pdf_grid([0.0, 1.0]))
    low, high = model.predict_interval(X[1000:], 0.8).T
    assert 0.76 < np.mean((low <= y[1000:]) & (y[1000:] <= high)) < 0.84
    # Files hold it, and a distilled copy has it too.
    save(model, tmp_path / "model.mcd")
    np.testing.assert_array_equal(load(tmp_path / "model.mcd").predict(X), model.predict(X))
    small = model.distill(random_state=0)
    assert small.score(X[1000:], y[1000:]) > score + 0.2
    # A second call starts from the model as it was fitted; a new fit forgets it.
    again = model.predict_quantiles(X[:5])
    model.recalibrate(X[:1000], y[:1000])
    np.testing.assert_allclose(model.predict_quantiles(X[:5]), again)
    assert not hasattr(model.fit(X[:100], y[:100]), "calibration_")


@pytest.mark.parametrize("kind", ["bounded", "discrete", "mixed"])
def test_other_targets_are_corrected(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 1))
    noise = rng.normal(size=2400)

    def outcome(noise, scale):
        value = X[:, 0] + scale * noise
        if kind == "bounded":
            return np.exp(value)
        return np.clip(np.round(value + 4), 0, 9) if kind == "discrete" else np.maximum(value, 0)

    sure, y = outcome(noise, 0.4), outcome(rng.normal(size=2400), 1.0)
    model = MCD("quadratic", random_state=0).fit(X[:400], sure[:400])
    assert model.target_kind_ == {"bounded": "continuous"}.get(kind, kind)
    part = slice(400, 1400)
    before, score = distance(model, X[1400:], y[1400:]), model.score(X[1400:], y[1400:])
    model.recalibrate(X[part], y[part])
    assert distance(model, X[1400:], y[1400:]) < 0.7 * before
    assert model.score(X[1400:], y[1400:]) > score + 0.1
    assert model.predict_distribution(X[:5]).support[0] == 0


def test_other_estimators_and_tables_and_chains_are_corrected():
    pandas = pytest.importorskip("pandas")
    X, y = sample(200, noise=0.4)
    new, outcomes = sample(1000, seed=1)
    table = TableEstimator(MCD("quadratic", random_state=0)).fit(pandas.DataFrame(X), y)
    kernels = NNKCDE().fit(X, y)
    for model, rows in ((table, pandas.DataFrame(new)), (kernels, new)):
        before = model.score(rows[500:], outcomes[500:])
        assert model.recalibrate(rows[:500], outcomes[:500]) is model
        assert model.score(rows[500:], outcomes[500:]) > before
    two = np.column_stack([y, X[:, 1] + 0.1 * y])
    two[:, 1] += 0.05 * np.random.default_rng(3).normal(size=200)
    chain = MCD("quadratic", random_state=0, joint="chain").fit(X, two)
    later = np.column_stack([outcomes, new[:, 1] + 0.1 * outcomes])
    later[:, 1] += 0.3 * np.random.default_rng(2).normal(size=1000)
    before = chain.score(new[500:], later[500:])
    assert chain.recalibrate(new[:500], later[:500]).score(new[500:], later[500:]) > before
    chain.contrast_ = None
    with pytest.raises(ValueError, match="joint='chain'"):
        chain.recalibrate(new, later)


@pytest.mark.parametrize("discriminator", ["quadratic", "auto"])
def test_calibrate_learns_from_training_rows(discriminator):
    """A linear model of a bent mean is off; held-out rows of its own training data show it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(1500, 1))
    y = X[:, 0] ** 3 + rng.gamma(0.5, size=1500)
    options = {"random_state": 0, "n_jobs": 1}
    if discriminator == "auto":
        options["discriminator_params"] = {"portfolio": ["quadratic"]}
    plain, model = (
        MCD(discriminator, calibrate=c, **options).fit(X[:600], y[:600]) for c in (False, True)
    )
    assert hasattr(model, "calibration_")
    assert not hasattr(plain, "calibration_")
    assert not hasattr(model.discriminator_, "held_out_levels_")
    assert distance(model, X[600:], y[600:]) < 0.8 * distance(plain, X[600:], y[600:])
    assert model.score(X[600:], y[600:]) > plain.score(X[600:], y[600:])


def test_calibrate_takes_atoms():
    """Both parts of a mixed target are corrected, also where one label says "atom or not"."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 1))
    y = np.maximum(X[:, 0] ** 3 + rng.normal(size=900), 0)
    options = {"random_state": 0, "n_jobs": 1}
    plain, model = (
        MCD("quadratic", calibrate=c, **options).fit(X[:500], y[:500]) for c in (False, True)
    )
    assert model.target_kind_ == "mixed"
    assert any(hasattr(part, "calibration_") for part in model.parts_)
    assert model.score(X[500:], y[500:]) > plain.score(X[500:], y[500:]) - 0.02


def grouped(n, seed):
    """Outcomes of two groups: too wide a law for "calm", too low a one for "high"."""
    rng = np.random.default_rng(seed)
    X, group = rng.normal(size=(n, 2)), rng.choice(["calm", "high"], size=n)
    calm, high = 0.4 * rng.normal(size=n), 0.8 + rng.normal(size=n)
    return X, X[:, 0] + np.where(group == "calm", calm, high), group


def test_groups_are_corrected_by_maps_of_their_own(tmp_path):
    X, y = sample(300)
    model = MCD("quadratic", random_state=0).fit(X, y)
    X, y, group = grouped(1000, 1)
    model.recalibrate(X, y, groups=group)
    X, y, group = grouped(3000, 2)

    def distances(law):
        return {
            name: stats.kstest(law.cdf(y)[group == name], "uniform").statistic
            for name in ("calm", "high")
        }

    common, law = model.predict_distribution(X), model.predict_distribution(X, groups=group)
    before, after = distances(common), distances(law)
    assert all(before[name] > 0.1 and after[name] < 0.06 for name in before)
    assert law.logpdf(y).mean() > common.logpdf(y).mean() + 0.1
    # Quantiles, densities and draws are those of one law.
    some = law[:40]
    quantiles = some.ppf_grid(np.linspace(0.02, 0.98, 7))
    np.testing.assert_allclose(some.cdf(quantiles), [np.linspace(0.02, 0.98, 7)] * 40, atol=1e-6)
    step = 1e-4 * some.std()[:, None]
    slope = (some.cdf(quantiles + step) - some.cdf(quantiles - step)) / (2 * step)
    np.testing.assert_allclose(some.pdf(quantiles), slope, rtol=0.02)
    draws = some.sample(500, random_state=0)
    assert stats.kstest(some.cdf(draws).ravel(), "uniform").pvalue > 1e-3
    # Each row has the law that it would have alone; a group that was not seen the common one.
    np.testing.assert_allclose(
        model.predict_distribution(X[7:8], groups=group[7:8]).ppf(0.9), law[[7]].ppf(0.9)
    )
    other = model.predict_distribution(X[:9], groups=["new"] * 9)
    np.testing.assert_allclose(other.ppf(0.9), common[:9].ppf(0.9), rtol=1e-6)
    np.testing.assert_allclose(model.predict_quantiles(X[:9], 0.9)[:, 0], common[:9].ppf(0.9))
    # Intervals and regions know the groups, conformal ones too; and so does a file.
    low, high = model.predict_interval(X, 0.8, groups=group).T
    np.testing.assert_allclose(low, law.ppf(0.1))
    assert len(model.predict_region(X[:3], 0.8, groups=group[:3])) == 3
    save(model, tmp_path / "model.mcd")
    again = load(tmp_path / "model.mcd").predict_distribution(X[:9], groups=group[:9])
    np.testing.assert_array_equal(again.ppf(0.9), law[:9].ppf(0.9))
    model.conformalize(X[:1000], y[:1000], groups=group[:1000])
    low, high = model.predict_interval(X, 0.8, conformal=True, groups=group).T
    inside = ((low <= y) & (y <= high))[1000:]
    assert all(0.75 < inside[group[1000:] == name].mean() < 0.85 for name in before)
    # The next call without groups forgets them.
    assert not hasattr(model.recalibrate(X[:200], y[:200]), "group_calibration_")


def test_groups_of_tables_and_of_grades_and_of_few_rows():
    """Few rows of a group leave it the common map; masses of grades are corrected, too."""
    pandas = pytest.importorskip("pandas")
    X, y = sample(300)
    table = TableEstimator(MCD("quadratic", random_state=0)).fit(pandas.DataFrame(X), y)
    X, y, group = grouped(600, 1)
    rows = pandas.DataFrame(X)
    group[:10] = "rare"
    table.recalibrate(rows, y, groups=group)
    law, common = table.predict_distribution(rows, groups=group), table.predict_distribution(rows)
    np.testing.assert_allclose(law[:10].ppf(0.9), common[:10].ppf(0.9), rtol=1e-6)
    assert law.logpdf(y)[10:].mean() > common.logpdf(y)[10:].mean() + 0.1
    X, y = sample(900)
    half = np.repeat(["as before", "higher"], 450)
    grade = np.clip(np.round(y + 3), 0, 6)
    grades = MCD("quadratic", random_state=0).fit(X[:300], grade[:300])
    assert grades.target_kind_ == "discrete"
    grade = np.where(half == "higher", np.minimum(grade + 1, 6), grade)
    grades.recalibrate(X[300:], grade[300:], groups=half[300:])
    law = grades.predict_distribution(X[300:], groups=half[300:])
    common = grades.predict_distribution(X[300:])
    assert np.log(law.pmf(grade[300:])).mean() > np.log(common.pmf(grade[300:])).mean() + 0.05
    np.testing.assert_allclose(law.masses.sum(axis=1), 1)


def test_mistakes_with_groups():
    X, y = sample(100)
    model = MCD("quadratic", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="recalibrate was given no groups"):
        model.predict_distribution(X, groups=np.zeros(100))
    with pytest.raises(ValueError, match="groups is for conformal=True, or for groups that recal"):
        model.predict_interval(X, groups=np.zeros(100))
    with pytest.raises(
        ValueError, match=r"groups must have one entry per row of X, shape \(100,\)"
    ):
        model.recalibrate(X, y, groups=np.zeros(3))
    model.recalibrate(X, y, groups=np.zeros(100))
    with pytest.raises(ValueError, match=r"shape \(100,\)"):
        model.predict_distribution(X, groups=[0])
    # What was learned stays where a second call fails.
    with pytest.raises(ValueError, match="groups must have one entry"):
        model.recalibrate(X, y, groups=np.zeros(3))
    assert hasattr(model, "group_calibration_")
    atoms = MCD("quadratic", random_state=0).fit(X, np.maximum(y, 0))
    with pytest.raises(ValueError, match="continuous or discrete"):
        atoms.recalibrate(X, np.maximum(y, 0), groups=np.zeros(100))
    two = MCD("quadratic", random_state=0, joint="chain").fit(X, np.column_stack([y, X[:, 0] - y]))
    with pytest.raises(ValueError, match="given no groups"):
        two.predict_distribution(X, groups=np.zeros(100))


def test_mistakes():
    X, y = sample(100)
    model = MCD("quadratic", random_state=0)
    with pytest.raises(ValueError, match="not fitted"):
        model.recalibrate(X, y)
    model.fit(X, y).recalibrate(X, y)
    with pytest.raises(ValueError, match="y must have one value per row"):
        model.recalibrate(X, y[:3])
    with pytest.raises(ValueError, match="y contains NaN"):
        model.recalibrate(X, np.where(y > 0, np.nan, y))
    with pytest.raises(ValueError, match="normalize=True"):
        MCD("quadratic", normalize=False, random_state=0).fit(X, y).recalibrate(X, y)
    with pytest.raises(ValueError, match="calibrate"):
        MCD("quadratic", calibrate="yes").fit(X, y)


def test_weighted_levels_are_corrected_as_repeated_ones():
    """Weights that depend on the outcome, as those of cases and controls."""
    u = np.random.default_rng(0).uniform(size=4000)
    twice = np.repeat(u, 1 + 2 * (u > 0.5))
    kept = np.random.default_rng(1).random(4000) < np.where(u > 0.5, 1.0, 1 / 3)
    uniform = learn_levels(u[kept], u[kept], row_weight=np.where(u > 0.5, 1.0, 3.0)[kept])
    if uniform is not None:
        np.testing.assert_allclose(
            uniform.cdf(np.array([0.25, 0.5, 0.75])), [0.25, 0.5, 0.75], atol=0.03
        )
    found = learn_levels(u, u, row_weight=np.where(u > 0.5, 3.0, 1.0))
    repeated = learn_levels(twice, twice)
    at = np.array([0.25, 0.5, 0.75])
    np.testing.assert_allclose(found.cdf(at), repeated.cdf(at), atol=0.02)
    np.testing.assert_allclose(found.cdf(at), [0.125, 0.25, 0.625], atol=0.03)


def test_calibrating_keeps_to_the_weights():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 1))
    y = X[:, 0] + rng.normal(size=2500)
    weight = np.where(y > X[:, 0], 4.0, 1.0)
    train, new = slice(1000), slice(1000, None)
    model = MCD("quadratic", calibrate=True, support=(None, None), random_state=0, n_jobs=1)
    model.fit(X[train], y[train], weight[train])
    below = y[new] <= model.predict_quantiles(X[new], [0.5])[:, 0]
    assert abs(np.average(below, weights=weight[new]) - 0.5) < 0.06
