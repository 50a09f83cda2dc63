"""What a target is: detection, bounds, and the errors that name what is wrong."""

import numpy as np
import pytest
from scipy import stats

from mcdensity import MCD
from mcdensity._bounds import Bounds, MappedReference
from mcdensity.datasets import DatasetUnavailableError, load_dataset
from mcdensity.marginals import Masses
from mcdensity.target_kind import decide

INF = np.inf
N = 400


def dataset(name):
    try:
        return load_dataset(name)
    except DatasetUnavailableError as error:
        pytest.skip(str(error))


def made(name, n=N, seed=0):
    r = np.random.default_rng(seed)
    return {
        "normal": lambda: r.normal(size=n),
        "lognormal": lambda: r.lognormal(size=n),
        "prices to 10": lambda: np.round(r.lognormal(5, 1, n), -1),
        "prices to 1000": lambda: np.round(r.lognormal(12, 0.4, n), -3),
        "ages": lambda: r.integers(18, 90, n),
        "ages, normal": lambda: np.clip(np.round(r.normal(45, 12, n)), 18, 95),
        "temperatures to 0.1": lambda: np.round(r.normal(5, 8, n), 1),
        "whole degrees": lambda: np.round(r.normal(5, 9, n)),
        "years": lambda: r.integers(1950, 2020, n),
        "times to 0.1": lambda: np.round(r.exponential(1, n), 1),
        "round numbers preferred": lambda: np.where(
            r.random(n) < 0.3,
            np.round(r.lognormal(7, 0.5, n), -2),
            np.round(r.lognormal(7, 0.5, n)),
        ),
        "Poisson": lambda: r.poisson(3, n),
        "negative binomial": lambda: r.negative_binomial(2, 0.3, n),
        "zero-inflated Poisson": lambda: r.poisson(3, n) * (r.random(n) < 0.6),
        "grades": lambda: r.integers(1, 6, n),
        "half points": lambda: r.integers(0, 5, n) / 2,
        "three levels": lambda: r.choice([0.1, 0.25, 0.9], n),
        "differences": lambda: r.integers(-3, 4, n),
        "hurdle lognormal": lambda: r.lognormal(size=n) * (r.random(n) < 0.4),
        "tobit": lambda: np.maximum(r.normal(size=n), 0),
        "capped": lambda: np.minimum(r.normal(2, 1, n), 3),
        "shares with ends": lambda: np.clip(r.normal(0.5, 0.4, n), 0, 1),
        "beta": lambda: r.beta(2, 5, n),
    }[name]().astype(float)


CASES = [
    ("normal", "continuous", (-INF, INF), []),
    ("lognormal", "continuous", (0, INF), []),
    ("prices to 10", "continuous", (0, INF), []),
    ("prices to 1000", "continuous", (0, INF), []),
    ("ages", "continuous", (0, INF), []),
    ("ages, normal", "continuous", (0, INF), []),
    ("temperatures to 0.1", "continuous", (-INF, INF), []),
    ("whole degrees", "continuous", (-INF, INF), []),
    ("years", "continuous", (0, INF), []),
    ("times to 0.1", "continuous", (0, INF), []),
    ("round numbers preferred", "continuous", (0, INF), []),
    ("beta", "continuous", (0, 1), []),
    ("Poisson", "discrete", (0, INF), []),
    ("negative binomial", "discrete", (0, INF), []),
    ("zero-inflated Poisson", "discrete", (0, INF), []),
    ("grades", "discrete", (0, INF), []),
    ("half points", "discrete", (0, INF), []),
    ("three levels", "discrete", (0, INF), []),
    ("differences", "discrete", (-INF, INF), []),
    ("hurdle lognormal", "mixed", (0, INF), [0]),
    ("tobit", "mixed", (0, INF), [0]),
    ("capped", "mixed", (-INF, 3), [3]),
    ("shares with ends", "mixed", (0, 1), [0, 1]),
]
REAL = [
    ("kin8nm", "continuous", (0, INF), []),
    ("power", "continuous", (0, INF), []),
    ("concrete", "continuous", (0, INF), []),
    ("boston_housing", "mixed", (0, 50), [50]),
    ("protein", "mixed", (0, INF), [0]),
    ("wine_red", "discrete", (0, INF), []),
    ("wine_white", "discrete", (0, INF), []),
    ("sdss_boss_photoz", "continuous", (-INF, INF), []),
]


@pytest.mark.parametrize("n", [150, 400, 3000])
@pytest.mark.parametrize(("name", "kind", "support", "atoms"), CASES, ids=[c[0] for c in CASES])
def test_auto_decides(name, kind, support, atoms, n):
    for seed in range(3):
        found = decide(made(name, n, seed), "auto", None)
        assert (found.kind, found.support, found.atoms.tolist()) == (kind, support, atoms)


@pytest.mark.parametrize(("name", "kind", "support", "atoms"), REAL, ids=[c[0] for c in REAL])
def test_auto_decides_on_real_targets(name, kind, support, atoms):
    y = dataset(name)[1]
    found = decide(y, "auto", None)
    assert (found.kind, found.support, found.atoms.tolist()) == (kind, support, atoms)


def test_the_caller_overrules():
    y = made("Poisson")
    assert decide(y, "continuous", (None, None)).support == (-INF, INF)
    assert decide(y, "continuous", None).kind == "continuous"
    assert decide(y, "auto", (0, 40)).support == (0, 40)
    assert decide(made("normal"), "auto", (-9, None)).support == (-9, INF)
    mixed = decide(made("round numbers preferred"), "mixed", None)
    assert mixed.kind == "mixed"
    assert len(mixed.atoms) == 1


@pytest.mark.parametrize(
    ("y", "target", "support", "message"),
    [
        (
            [0.5, -1, 2, -3, 4],
            "auto",
            (0, None),
            r"2 of 5 targets outside of support=\(0.0",
        ),
        ([0.5, -1, 2, -3, 4], "auto", (0, None), "first is row 1 with -1"),
        ([1, 2, 3], "auto", (2, 2), "low < high"),
        ([1, 2, 3], "auto", (5, 1), "low < high"),
        ([1, 2, 3], "auto", 5, "pair"),
        ([1, 2, 3], "auto", (0, 1, 2), "pair"),
        ([0, 1] * 40, "auto", None, "classifier"),
        ([0, 1] * 20, "discrete", None, "classifier"),
        (np.arange(10_000.0), "discrete", None, "at most 1000 different values, got 10000"),
        (np.arange(50.0), "mixed", None, "all targets differ"),
    ],
)
def test_what_does_not_fit_is_refused(y, target, support, message):
    with pytest.raises(ValueError, match=message):
        decide(np.asarray(y, dtype=float), target, support)


def test_two_values_of_few_rows_may_be_chance():
    assert decide(np.array([1.0, 2.0] * 10), "auto", None).kind == "continuous"


def test_supports_hold_numbers():
    with pytest.raises(TypeError, match="support must hold numbers"):
        decide(made("normal"), "auto", ("a", None))
    X = np.zeros((N, 1))
    with pytest.raises(ValueError, match="target"):
        MCD("quadratic", target="count").fit(X, made("Poisson"))


SAMPLES = [
    (0, INF, stats.lognorm(1)),
    (0, INF, stats.norm(300, 5)),
    (-2, INF, stats.expon(-2)),
    (-INF, 3, stats.norm(0, 0.5)),
    (0, 1, stats.beta(0.5, 0.7)),
    (0, 100, stats.beta(20, 30, scale=100)),
]


@pytest.mark.parametrize(("low", "high", "law"), SAMPLES)
def test_bounds_are_maps_of_an_interval_onto_the_line(low, high, law):
    y = law.rvs(300, random_state=0)
    maps = list(Bounds.candidates(low, high, y))
    assert len(maps) > 1
    for bounds in maps:
        value = bounds.forward(y)
        np.testing.assert_allclose(bounds.backward(value), y, rtol=1e-9)
        assert (np.diff(bounds.forward(np.sort(y))) >= 0).all()
        step = 1e-6 * np.minimum(np.minimum(y - low, high - y), 1)
        slope = (bounds.forward(y + step) - bounds.forward(y - step)) / (2 * step)
        np.testing.assert_allclose(np.exp(bounds.log_slope(y)), slope, rtol=1e-5)
        far = bounds.backward(np.array([-1e6, 1e6]))
        assert far[0] >= low
        assert far[1] <= high
        ends = np.array([e for e in (low, high) if np.isfinite(e)])
        assert np.isfinite(bounds.forward(ends)).all()


def test_a_mapped_law_is_the_law_of_the_mapped_variable():
    bounds = Bounds(0, INF, INF, nearest=1e-3)
    law = MappedReference(stats.norm(), bounds, 0.5, 2.0)
    truth = stats.lognorm(2.0, scale=np.exp(0.5))
    y = np.array([0.01, 0.3, 1.0, 7.0, 200.0])
    np.testing.assert_allclose(law.logpdf(y), truth.logpdf(y))
    np.testing.assert_allclose(law.cdf(y), truth.cdf(y))
    np.testing.assert_allclose(law.ppf(truth.cdf(y)), y)
    assert law.logpdf(np.array([-1.0]))[0] == -INF
    assert law.cdf(np.array([-1.0, 0.0])).tolist() == [0, 0]


# Masses.


def test_masses_are_a_law_on_a_lattice():
    y = np.array([0.0] * 30 + [1] * 20 + [3] * 10 + [7])
    masses = Masses((0, INF)).fit(y)
    assert masses.masses_.sum() == pytest.approx(1)
    assert masses.values_[0] == 0
    np.testing.assert_allclose(np.diff(masses.values_), 1)
    assert masses.values_[-1] > 7
    assert (masses.masses_ > 0).all()
    # Values that were not seen are unlikely, and those seen have about their shares.
    assert masses.masses_[masses.values_ == 2][0] < 0.2
    assert masses.masses_[0] == pytest.approx(30 / 61, abs=0.03)
    assert Masses((0, 8)).fit(y).values_[-1] == 8
    np.testing.assert_allclose(masses.edges_[1:-1], stats.norm.ppf(np.cumsum(masses.masses_)[:-1]))


def test_masses_of_other_values_and_without_smoothing():
    y = np.repeat([0.1, 0.25, 0.9], [50, 30, 20])
    assert Masses().fit(y).values_.tolist() == [0.1, 0.25, 0.9]
    plain = Masses(smooth=False).fit(y)
    np.testing.assert_allclose(plain.masses_, [0.5, 0.3, 0.2])
    weighted = Masses(smooth=False).fit(y, np.repeat([1.0, 2.0, 5.0], [50, 30, 20]))
    np.testing.assert_allclose(weighted.masses_, np.array([50, 60, 100]) / 210)


@pytest.mark.parametrize(("shift", "scale"), [(0, 1), (2, 1), (-1.5, 0.5), (1, 0.4)])
def test_nodes_integrate_laws_over_the_cells(shift, scale):
    masses = Masses((0, INF)).fit(np.random.default_rng(0).poisson(2, 500).astype(float))
    ratio = stats.norm.logpdf(masses.nodes_, shift, scale) - masses.logpdf(masses.nodes_)
    found = np.add.reduceat(np.exp(ratio) * masses.weights_, masses.starts_)
    truth = np.diff(stats.norm.cdf(masses.edges_, shift, scale))
    np.testing.assert_allclose(found, truth, atol=2e-5)


def test_scores_are_spread_over_their_cells():
    masses = Masses((0, INF)).fit(np.random.default_rng(0).poisson(2, 500).astype(float))
    cell = np.repeat(np.arange(6), 200)
    score = masses.spread(cell, np.random.default_rng(1))
    np.testing.assert_array_equal(masses.cell_of_score(score), cell)
    level = stats.norm.cdf(score[cell == 1])
    low, high = stats.norm.cdf(masses.edges_[1:3])
    assert stats.kstest((level - low) / (high - low), "uniform").pvalue > 0.01
