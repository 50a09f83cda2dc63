"""Pictures: each draws what it says on the axes it is given."""

import numpy as np
import pandas as pd
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib.figure import Figure  # noqa: E402

from mcdensity import MCD, TableEstimator, plotting  # noqa: E402
from mcdensity.baselines import get_estimator  # noqa: E402
from mcdensity.simulators import get_simulator  # noqa: E402

SIMULATOR = get_simulator("EconDensity")
X, Y = SIMULATOR.sample(300, random_state=0)
MODEL = MCD("quadratic", random_state=0).fit(X[:200], Y[:200])
D, OUTCOMES = MODEL.predict_distribution(X[200:]), Y[200:]


@pytest.fixture
def ax():
    return Figure(layout="constrained").subplots()


def drawn(ax):
    ax.figure.savefig("/dev/null", format="png")
    return ax


def test_densities(ax):
    truth = SIMULATOR.distribution(X[200:203])
    assert plotting.plot_densities(D[:3], OUTCOMES[:3], truth=truth, ax=ax) is ax
    texts = [t.get_text() for t in drawn(ax).get_legend().get_texts()]
    assert texts == ["estimate", "truth", "outcome", "90 % interval"]
    # The curve of the first row is its density, up to the scale of the picture.
    line = ax.get_lines()[0]
    y, height = line.get_data()
    density = D[:1].pdf_grid(y)[0]
    np.testing.assert_allclose(height / height.max(), density / density.max(), rtol=1e-9)
    intervals = [x.get_xdata() for x in ax.get_lines() if x.get_linewidth() == 4]
    np.testing.assert_allclose(intervals, D[:3].interval(0.9))


def test_comparison(ax):
    other = get_estimator("nnkcde").fit(X[:200], Y[:200]).predict_distribution(X[200:204])
    plotting.plot_comparison({"MCD": D[:4], "NNKCDE": other}, OUTCOMES[:4], ax=ax)
    texts = [t.get_text() for t in drawn(ax).get_legend().get_texts()]
    assert texts == ["MCD", "NNKCDE", "outcome"]
    styles = {line.get_linestyle() for line in ax.get_lines() if line.get_label() in texts}
    assert len(styles) >= 2, "lines must differ in print too"


def test_fan(ax):
    plotting.plot_fan(D, OUTCOMES, coverages=(0.9, 0.5), ax=ax)
    texts = [t.get_text() for t in drawn(ax).get_legend().get_texts()]
    assert texts == ["90 %", "50 %", "median", "outcome"]
    median = next(x for x in ax.get_lines() if x.get_label() == "median").get_ydata()
    np.testing.assert_array_equal(median, np.sort(D.median()))


def test_fan_along_x(ax):
    plotting.plot_fan(D, OUTCOMES, x=X[200:, 0], ax=ax)
    at = next(x for x in drawn(ax).get_lines() if x.get_label() == "median").get_xdata()
    np.testing.assert_array_equal(at, np.sort(X[200:, 0]))


def test_heatmap(ax):
    plotting.plot_heatmap(MODEL, X, 0, y=Y, n_points=30, ax=ax)
    [mesh] = [
        c for c in drawn(ax).collections if hasattr(c, "get_array") and c.get_array() is not None
    ]
    assert mesh.get_array().shape == (300, 30)
    values, rows = plotting.sweep(X, 0, 30)
    median = next(x for x in ax.get_lines() if x.get_linestyle() == "-").get_ydata()
    np.testing.assert_allclose(median, MODEL.predict_distribution(rows).median())
    assert values[0] == pytest.approx(np.quantile(X[:, 0], 0.01))


def test_heatmap_of_text(ax):
    table = pd.DataFrame({"x": X[:, 0], "kind": np.where(X[:, 0] > 1, "high", "low")})
    model = TableEstimator(MCD("quadratic", random_state=0)).fit(table, Y)
    plotting.plot_heatmap(model, table, "kind", y=Y, ax=ax)
    assert [t.get_text() for t in drawn(ax).get_xticklabels()] == ["high", "low"]
    with pytest.raises(ValueError, match=r"no feature 'kin' \(did you mean 'kind'\?\)"):
        plotting.plot_heatmap(model, table, "kin")


def test_hpd(ax):
    toy = get_simulator("InverseSinusoid").distribution(np.array([[0.0]]))
    plotting.plot_hpd(toy, [0.0], coverages=(0.9,), ax=ax)
    bars = drawn(ax).patches
    assert len(bars) == len(toy.hpd(0.9)[0]) > 1
    np.testing.assert_allclose(bars[0].get_x(), toy.hpd(0.9)[0][0, 0])


def test_pit(ax):
    plotting.plot_pit(D, OUTCOMES, bins=8, ax=ax)
    bars = [b for b in drawn(ax).patches if b.get_width() < 0.2]
    assert len(bars) == 8
    assert np.mean([b.get_height() for b in bars]) == pytest.approx(1)


def test_calibration(ax):
    plotting.plot_calibration(D, OUTCOMES, ax=ax)
    line = next(x for x in drawn(ax).get_lines() if x.get_label() == "outcomes")
    np.testing.assert_array_equal(line.get_xdata()[1:-1], np.sort(D.cdf(OUTCOMES)))


def test_axes_are_made_where_none_are_given():
    import matplotlib.pyplot as plt

    ax = plotting.plot_pit(D, OUTCOMES)
    assert len(ax.patches) > 5
    plt.close(ax.figure)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plotting.plot_densities(D), "100 rows cannot be told apart"),
        (lambda: plotting.plot_densities(D[:2], [1.0]), "y must have one value per row"),
        (lambda: plotting.plot_densities(D[:2], coverage=1.5), "coverage"),
        (lambda: plotting.plot_densities(D[:2], labels=["a"]), "labels must have one entry"),
        (lambda: plotting.plot_comparison({}), "distributions is empty"),
        (lambda: plotting.plot_comparison({"a": D[:1], "b": D[:2]}), "different numbers of rows"),
        (lambda: plotting.plot_heatmap(MODEL, X, "a"), "feature must be a column number"),
        (lambda: plotting.plot_heatmap(MODEL, X, 7), "feature must be a column number from 0 to 0"),
        (lambda: plotting.plot_pit(D, OUTCOMES, bins=1), "bins must be an integer of at least 2"),
        (lambda: plotting.sweep(X, 0, 1), "n_points must be an integer of at least 2"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_counts_are_bars_and_atoms_are_stems(ax):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 1))
    counts = MCD("quadratic", random_state=0).fit(x, rng.poisson(np.exp(x[:, 0])))
    law = counts.predict_distribution([[0.0], [1.0]])
    plotting.plot_densities(law, [1.0, 2.0], ax=ax)
    bars = [patch for patch in drawn(ax).patches if patch.get_height() > 0]
    assert len(bars) == 2 * len(law.atoms)
    heights = np.array([bar.get_height() for bar in bars[: len(law.atoms)]])
    np.testing.assert_allclose(heights / heights.max(), law.masses[0] / law.masses[0].max())
    zeros = np.where(rng.random(300) < 0.5, 0, rng.lognormal(size=300))
    mixed = MCD("quadratic", random_state=0).fit(x, zeros)
    law = mixed.predict_distribution([[0.0]])
    other = Figure(layout="constrained").subplots()
    plotting.plot_densities(law, ax=other)
    assert f"{law.masses[0, 0]:.0%}" in [text.get_text() for text in drawn(other).texts]
    for model in (counts, mixed):
        third = Figure(layout="constrained").subplots()
        drawn(plotting.plot_heatmap(model, x, 0, ax=third))
        assert third.get_title().startswith("probability" if model is counts else "density beside")


@pytest.fixture(scope="module")
def joint():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    a = x[:, 0] + rng.normal(size=200)
    table = pd.DataFrame({"a": a, "b": -0.8 * a + 0.5 * rng.normal(size=200)})
    table["count"] = rng.poisson(np.exp(0.5 + 0.3 * x[:, 0]))
    options = {"random_state": 0, "joint": "chain"}
    two = MCD("quadratic", support=(None, None), **options).fit(x, table[["a", "b"]])
    three = MCD("quadratic", **options).fit(x, table)
    return two.predict_distribution(x[:3]), three.predict_distribution(x[:3])


def test_contours_hold_what_they_say(ax, joint):
    law, _ = joint
    background = np.random.default_rng(0).normal(size=(50, 2))
    plotting.plot_contours(law, [0.5, -0.5], row=1, background=background, geographic=True, ax=ax)
    texts = [t.get_text() for t in drawn(ax).get_legend().get_texts()]
    assert texts == ["90 % region", "50 % region", "outcome"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")
    assert np.isclose(
        ax.get_aspect(), 1 / np.cos(np.radians(np.median(law.sample(999, 1)[1, :, 1]))), atol=1e-3
    )
    draws = law.sample(2000, 5)[1]
    regions = [c for c in ax.collections if c.get_label().startswith("_") and len(c.get_paths())]
    shares = [
        np.mean(sum(p.contains_points(draws) for p in c.get_paths()) % 2) for c in regions[1:]
    ]
    np.testing.assert_allclose(shares, [0.9, 0.5], atol=0.04)


def test_pairs(joint):
    two, three = joint
    axes = plotting.plot_pairs(three, [0.0, 0.0, 2.0], figure=Figure(figsize=(7, 7)))
    assert axes.shape == (3, 3)
    assert not axes[0, 2].get_visible()
    assert [ax.get_xlabel() for ax in axes[2]] == ["a", "b", "count"]
    assert len(axes[2, 2].patches) > 3  # bars
    assert axes[1, 0].collections  # regions
    drawn(axes[0, 0])
    flipped = plotting.plot_contours(two, columns=("b", "a"), ax=Figure().subplots())
    assert flipped.get_xlabel() == "b"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: plotting.plot_contours(D), "must be a JointDistribution"),
        (lambda d: plotting.plot_contours(d, row=3), "has 3 rows"),
        (lambda d: plotting.plot_contours(d, columns=("a", "a")), "two different targets"),
        (lambda d: plotting.plot_contours(d, columns=("a", "c")), "'c'"),
        (lambda d: plotting.plot_contours(d, [1.0]), "y must be the outcome of the row, 2 numbers"),
        (lambda d: plotting.plot_contours(d, background=[1.0]), r"must be of shape \(m, 2\)"),
        (lambda d: plotting.plot_pairs(d, coverages=(2,)), "coverage"),
    ],
)
def test_mistakes_with_joint_laws(joint, call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(joint[0])
