"""Conformal intervals."""

import numpy as np
import pytest

from mcdensity import MCD, shift
from mcdensity._conformal import ConformalScores
from mcdensity.baselines import MarginalBaseline
from mcdensity.simulators import get_simulator


def sample(n=200, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + noise * rng.normal(size=n)


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
    with pytest.raises(ValueError, match="y must have one value per row of X"):
        model.conformalize(X, y[:3])
    model.conformalize(X[:8], y[:8])
    with pytest.raises(ValueError, match=r"coverage=0\.9 needs at least 9 rows .* got 8"):
        model.predict_interval(X, 0.9, conformal=True)
    assert np.isfinite(model.predict_interval(X, 0.8, conformal=True)).all()
    # What was learned for one fit does not stay for the next.
    model.fit(X, y)
    with pytest.raises(ValueError, match="needs conformalize"):
        model.predict_interval(X, conformal=True)


def test_weights_and_ranks_agree():
    """Thresholds of equal weights are those of ranks; a weight of 2 is a row twice."""
    rng = np.random.default_rng(0)
    score = rng.random(60)
    plain = ConformalScores(score[:, None])
    for coverage in (0.5, 0.8, 0.9, 0.95):
        rank = int(np.floor(61 * (1 - coverage) + 1e-9))
        expected = np.sort(score)[rank - 1]
        assert plain.thresholds(0, coverage, 2).tolist() == [expected] * 2
        equal = ConformalScores(score[:, None], np.full(60, 3.0))
        assert equal.thresholds(0, coverage, 1)[0] == expected
        twice = ConformalScores(np.repeat(score, 2)[:, None], np.ones(120))
        double = ConformalScores(score[:, None], np.full(60, 2.0))
        one = double.thresholds(0, coverage, 1, np.ones(1))
        assert one == twice.thresholds(0, coverage, 1, np.ones(1))
    # A new row that counts more than all others may be anything.
    assert equal.thresholds(0, 0.9, 1, np.array([1e6]))[0] == 0


def shifted(n, middle, rng):
    """Noise that grows with x: intervals that hold 90 % for small x hold less for large ones."""
    X = rng.normal(middle, 1.0, size=(n, 1))
    return X, np.exp(0.5 * X[:, 0]) * rng.normal(size=n)


def covered(interval, y):
    return (interval[:, 0] <= y) & (y <= interval[:, 1])


def test_weighted_intervals_hold_under_a_shift():
    """A model without x: its intervals are right on average where it was calibrated only."""
    rng = np.random.default_rng(0)
    X, y = shifted(300, 0.0, rng)
    model = MarginalBaseline().fit(X, y)
    share = {"plain": [], "known": [], "learned": []}
    for _ in range(12):
        X, y = shifted(1500, 0.0, rng)
        new, outcome = shifted(1500, 1.0, rng)
        interval = model.conformalize(X, y).predict_interval(new, conformal=True)
        share["plain"].append(covered(interval, outcome).mean())
        true, own = np.exp(X[:, 0] - 0.5), np.exp(new[:, 0] - 0.5)
        model.conformalize(X, y, sample_weight=true)
        interval = model.predict_interval(new, conformal=True, sample_weight=own)
        share["known"].append(covered(interval, outcome).mean())
        model.conformalize(X, y, sample_weight=shift.weights(X, new))
        interval = model.predict_interval(new, conformal=True)
        share["learned"].append(covered(interval, outcome).mean())
    mean = {name: np.mean(values) for name, values in share.items()}
    error = {name: np.std(values) / np.sqrt(11) for name, values in share.items()}
    assert mean["plain"] < 0.85
    assert abs(mean["known"] - 0.9) < 2 * error["known"] + 0.002
    assert abs(mean["learned"] - 0.9) < 2 * error["learned"] + 0.01


def test_each_group_gets_its_coverage():
    rng = np.random.default_rng(0)
    X, y = sample(300)
    model = MCD("quadratic", random_state=0).fit(X, y)
    X, y = sample(4000, seed=1)
    group = np.where(rng.random(4000) < 0.3, "loud", "calm")
    y = np.where(group == "loud", X[:, 0] + 3 * (y - X[:, 0]), y)
    half = slice(0, 2000), slice(2000, 4000)
    model.conformalize(X[half[0]], y[half[0]])
    together = covered(model.predict_interval(X[half[1]], conformal=True), y[half[1]])
    model.conformalize(X[half[0]], y[half[0]], groups=group[half[0]])
    apart = model.predict_interval(X[half[1]], conformal=True, groups=group[half[1]])
    apart = covered(apart, y[half[1]])
    loud = group[half[1]] == "loud"
    assert together[loud].mean() < 0.8
    for part in (loud, ~loud):
        assert abs(apart[part].mean() - 0.9) < 0.04
    with pytest.raises(ValueError, match="groups has 'new', which conformalize has not seen"):
        model.predict_interval(X[:2], conformal=True, groups=["calm", "new"])
    with pytest.raises(ValueError, match="conformalize was given groups"):
        model.predict_interval(X[:2], conformal=True)
    with pytest.raises(ValueError, match=r"groups must have one entry per row of X, shape \(2,\)"):
        model.predict_interval(X[:2], conformal=True, groups=["calm"])
    model.conformalize(X[:12], y[:12], groups=["a"] * 10 + ["b"] * 2)
    with pytest.raises(ValueError, match="needs at least 9 rows in conformalize of the group 'b'"):
        model.predict_interval(X[:2], conformal=True, groups=["a", "b"])


def test_sides_and_regions():
    X, y = sample(300, noise=0.3)
    model = MCD("quadratic", random_state=0).fit(X, y)
    X, y = sample(3000, seed=1)
    model.conformalize(X[:1000], y[:1000])
    new, outcome = X[1000:], y[1000:]
    for side, free, value in (("lower", 1, np.inf), ("upper", 0, -np.inf)):
        plain = model.predict_interval(new, 0.8, side=side)
        interval = model.predict_interval(new, 0.8, conformal=True, side=side)
        assert (interval[:, free] == value).all()
        assert covered(plain, outcome).mean() < 0.77
        assert abs(covered(interval, outcome).mean() - 0.8) < 0.04
    assert (model.predict_interval(new, 0.8, side="upper")[:, 1] > model.predict(new)).all()
    plain, regions = (model.predict_region(new, 0.8, conformal=c) for c in (False, True))
    law = model.predict_distribution(new[:3])
    for found, expected in zip(plain, law.hpd(0.8), strict=False):
        np.testing.assert_allclose(found, expected)
    inside = [covered(r, v).any() for r, v in zip(regions, outcome, strict=True)]
    assert abs(np.mean(inside) - 0.8) < 0.04
    assert np.mean([covered(r, v).any() for r, v in zip(plain, outcome, strict=True)]) < 0.7
    with pytest.raises(ValueError, match="side must be one of"):
        model.predict_interval(X, side="left")
    for name in ("sample_weight", "groups"):
        with pytest.raises(ValueError, match=f"{name} is for conformal=True"):
            model.predict_interval(X, **{name: np.ones(3000)})
        with pytest.raises(ValueError, match=f"{name}: conformalize was given no"):
            model.predict_interval(X, conformal=True, **{name: np.ones(3000)})


def test_bad_weights():
    X, y = sample(200)
    model = MCD("quadratic", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="one has nearly all the weight"):
        model.conformalize(X, y, sample_weight=np.eye(200)[0])
    with pytest.raises(ValueError, match=r"one weight per row of X, shape \(200,\)"):
        model.conformalize(X, y, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match="finite and not negative"):
        model.conformalize(X, y, sample_weight=-np.ones(200))
    with pytest.raises(ValueError, match="zero for all rows"):
        model.conformalize(X, y, sample_weight=np.zeros(200))
    with pytest.warns(UserWarning, match="tell as much as 10 of equal weight"):
        model.conformalize(X, y, sample_weight=np.arange(200) < 10)
    assert not hasattr(MCD("quadratic", random_state=0).fit(X, y), "conformal_")


def test_weights_of_a_shift():
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(2000, 2)), rng.normal([1.0, 0.0], size=(1500, 2))
    found, own = shift.weights(X, new, return_new=True)
    true = np.exp(X[:, 0] - 0.5)
    assert np.corrcoef(np.log(found), np.log(true))[0, 1] > 0.95
    assert found.mean() == pytest.approx(1)
    # The mean weight of new rows is that of the square: exp(1).
    assert own.mean() == pytest.approx(np.e, rel=0.25)
    assert shift.effective_size(found) == pytest.approx(2000 / np.e, rel=0.25)
    same = shift.weights(X, rng.normal(size=(1500, 2)))
    assert shift.effective_size(same) > 1900
    with pytest.raises(ValueError, match="X_new has 1 columns and X_train has 2"):
        shift.weights(X, new[:, :1])
    with pytest.raises(ValueError, match="X_new has 3 rows"):
        shift.weights(X, new[:3])
    with pytest.warns(UserWarning, match="rows of X_train about"):
        shift.weights(X[:300], new[:300] + 3)


def test_weights_of_tables():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)

    def table(n, share):
        kind = np.where(rng.random(n) < share, "a", "b")
        return pandas.DataFrame({"kind": kind, "x": rng.normal(size=n)})

    train, new = table(1000, 0.5), table(1000, 0.8)
    found = shift.weights(train, new)
    assert found[train["kind"] == "a"].mean() == pytest.approx(1.6, rel=0.1)
    assert found[train["kind"] == "b"].mean() == pytest.approx(0.4, rel=0.15)


@pytest.mark.parametrize("side", ["both", "lower", "upper"])
@pytest.mark.parametrize("coverage", [0.5, 0.7, 0.8, 0.9, 0.95])
def test_intervals_of_counts_hold_as_many_of_the_rows_they_learned_from(side, coverage):
    """Many rows have the same law, so that scores are equal: all of these count as inside."""
    rng = np.random.default_rng(0)
    X = rng.integers(2, size=(800, 1)).astype(float)
    y = rng.poisson(3 + X[:, 0])
    model = MCD("quadratic", random_state=0).fit(X[:300], y[:300]).conformalize(X[300:], y[300:])
    low, high = model.predict_interval(X[300:], coverage, conformal=True, side=side).T
    assert ((low <= y[300:]) & (y[300:] <= high)).mean() >= coverage
