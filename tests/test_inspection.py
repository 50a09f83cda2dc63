"""Inspection: effects, importances and contributions against closed forms."""

import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats

pytest.importorskip("matplotlib")

from mcdensity import MCD, TableEstimator
from mcdensity.distribution import GaussianMixtureDistribution
from mcdensity.inspection import (
    accumulated_local_effects,
    nearest_rows,
    partial_dependence,
    permutation_importance,
    plot_contributions,
    plot_effects,
    plot_importance,
    plot_nearest,
    shapley,
)

RNG = np.random.default_rng(0)
SLOPES = np.array([2.0, -1.0, 0.0])
X = RNG.normal(size=(400, 3)) @ np.array([[1, 0.8, 0], [0, 0.6, 0.3], [0, 0, 1]])
Y = X @ SLOPES + RNG.normal(size=400)


class Gaussian:
    """A known law with the one method that inspection needs, and a count of its calls."""

    def __init__(self, mean, spread=lambda X: np.ones(len(X))):
        self.mean, self.spread, self.calls = mean, spread, 0

    def predict_distribution(self, X):
        self.calls += 1
        mean, spread = self.mean(X)[:, None], self.spread(X)[:, None]
        return GaussianMixtureDistribution(np.ones_like(mean), mean, spread)

    def logpdf(self, X, y):
        self.calls += 1
        return stats.norm.logpdf(y, self.mean(X), self.spread(X))


def linear(**more):
    return Gaussian(lambda X: X @ SLOPES, **more)


def product():
    return Gaussian(lambda X: X[:, 0] * X[:, 1])


def table_model():
    """A law of a table with text and missing values."""
    effect = {"a": 0.0, "b": 1.0, "c": 5.0, None: -2.0}

    def mean(table):
        kind = [effect[v if isinstance(v, str) else None] for v in table["kind"]]
        return np.array(kind) + 3 * table["count"].to_numpy()

    return Gaussian(mean)


def table(n=300):
    rng = np.random.default_rng(1)
    kinds = np.array(["a", "b", "c", None], dtype=object)
    return pd.DataFrame({
        "kind": kinds[rng.integers(0, 4, n)],
        "count": rng.poisson(2, n),
        "unused": rng.normal(size=n),
    })  # fmt: skip


# Effects.


@pytest.mark.parametrize("functional", ["mean", ("quantile", 0.9), "width", ("above", 0.5), "std"])
def test_local_effects_of_a_linear_gaussian(functional):
    model = linear()
    found = accumulated_local_effects(model, X, functional=functional)
    assert model.calls <= 2
    for j, part in found.groupby("feature"):
        at = part["value"].to_numpy()
        line = SLOPES[j] * (at - X[:, j].mean())
        if functional == ("above", 0.5):
            assert np.sign(np.diff(part["effect"])).sum() == np.sign(SLOPES[j]) * (len(at) - 1)
            assert (part["std_error"] > 0).all() == (SLOPES[j] != 0)
            continue
        expected = np.zeros(len(at)) if functional in ("width", "std") else line
        assert np.allclose(part["effect"], expected, atol=1e-9)
        assert np.allclose(part["std_error"], 0, atol=1e-9)
        assert part["rows"].sum() == len(X)
    assert list(found["feature"].unique()) == [0, 1, 2]


def test_local_effects_see_the_rows_as_they_are():
    """Where x2 is about x1, x1 * x2 moves with x1 as its own part of the product does."""
    rng = np.random.default_rng(2)
    independent = rng.normal(size=(4000, 2))
    found = accumulated_local_effects(product(), independent, 0, n_rows=None)
    assert (found["effect"].abs() < 4 * found["std_error"] + 1e-9).all()
    assert found["std_error"].max() < 0.3
    # x2 = x1: the local slope along x1 is x1, so that the effect is (x1^2 - 1) / 2.
    same = independent[:, [0, 0]]
    found = accumulated_local_effects(product(), same, 0, n_rows=None, n_points=100)
    at = found["value"].to_numpy()
    inner = np.abs(at) < 2
    assert np.allclose(found["effect"][inner], (at[inner] ** 2 - 1) / 2, atol=0.05)
    # Partial dependence asks about rows that do not exist: it is flat.
    flat = partial_dependence(product(), same, 0, n_rows=None)
    assert np.allclose(flat["effect"], flat["value"] * same[:, 1].mean())


def test_the_standard_error_is_that_of_other_rows():
    """Effects of many samples spread as the standard error of one says."""
    rng = np.random.default_rng(3)
    edge = np.linspace(-1, 1, 6)
    effects, errors = [], []
    for _ in range(200):
        rows = np.column_stack([rng.choice(edge, 300), rng.normal(size=300)])
        found = accumulated_local_effects(product(), rows, 0)
        effects.append(found["effect"].to_numpy())
        errors.append(found["std_error"].to_numpy())
    ratio = np.std(effects, axis=0) / np.mean(errors, axis=0)
    assert (np.abs(ratio - 1) < 0.25).all()


def test_effects_of_text_and_counts():
    rows, model = table(), table_model()
    found = accumulated_local_effects(model, rows, ["kind", "count"])
    kind = found[found["feature"] == "kind"].set_index("value")["effect"]
    assert set(kind.index) == {"a", "b", "c", "(missing)"}
    assert np.isclose(kind["c"] - kind["a"], 5)
    assert np.isclose(kind["b"] - kind["(missing)"], 3)
    share = rows["kind"].fillna("(missing)").value_counts(normalize=True)
    assert np.isclose((kind * share).sum(), 0)
    count = found[found["feature"] == "count"]
    assert np.allclose(count["effect"], 3 * (count["value"].astype(float) - rows["count"].mean()))
    assert all(isinstance(v, int | np.integer) for v in count["value"])
    average = partial_dependence(model, rows, "kind", n_rows=None).set_index("value")["effect"]
    assert np.isclose(average["c"], 5 + 3 * rows["count"].mean())


def test_partial_dependence_of_a_linear_gaussian():
    model = linear()
    found = partial_dependence(model, X, [0], ["mean", ("quantile", 0.9)], n_rows=None)
    assert model.calls == 1
    rest = X[:, 1:] @ SLOPES[1:]
    for name, part in found.groupby("functional"):
        shift = stats.norm.ppf(0.9) if name == "quantile 0.9" else 0
        assert np.allclose(part["effect"], 2 * part["value"] + rest.mean() + shift)
        assert np.allclose(part["std_error"], rest.std(ddof=1) / np.sqrt(len(X)))


def test_missing_numbers_are_left_out():
    rows = X.copy()
    rows[::3, 0] = np.nan
    known = rows[~np.isnan(rows[:, 0])]
    model = Gaussian(lambda X: np.nan_to_num(X) @ SLOPES)
    found = accumulated_local_effects(model, rows, 0)
    assert np.allclose(found["effect"], 2 * (found["value"] - known[:, 0].mean()))
    assert found["rows"].sum() == len(known)


# Importance.


def test_importance_has_a_closed_form():
    """Shuffling an independent feature adds a_j^2 (x - x')^2 / 2: a_j^2 var(x) on average."""
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(4000, 3))
    y = rows @ SLOPES + rng.normal(size=4000)
    model = linear()
    found = permutation_importance(model, rows, y, n_rows=None, random_state=0)
    assert list(found["feature"]) == [0, 1, 2]
    assert np.allclose(found["importance"], [4, 1, 0], atol=0.25)
    assert found["importance"][2] == found["std_error"][2] == 0
    assert (found["std_error"][:2] > 0).all()
    assert model.calls <= 16
    again = permutation_importance(model, rows, y, n_rows=None, random_state=0)
    pd.testing.assert_frame_equal(found, again)
    # The CRPS of N(0, 1) under an error of standard deviation s, less that with none.
    crps = permutation_importance(
        model, rows[:1000], y[:1000], [0, 2], score="crps", n_repeats=2, random_state=0
    )
    spread = np.sqrt(1 + 8)
    expected = spread * np.sqrt(2 / np.pi) * np.sqrt(1 + 1 / spread**2) - 1 / np.sqrt(np.pi)
    expected -= np.sqrt(2 / np.pi) * np.sqrt(2) - 1 / np.sqrt(np.pi)
    assert crps["importance"][0] == pytest.approx(expected, rel=0.15)
    assert crps["importance"][1] == 0


def test_importance_for_the_width():
    model = linear(spread=lambda X: np.exp(X[:, 2]))
    found = permutation_importance(model, X, score="width", random_state=0)
    assert found["feature"][0] == 2
    assert np.allclose(found["importance"][1:], 0, atol=1e-12)


# Contributions.


@pytest.mark.parametrize("functional", ["mean", ("quantile", 0.95)])
def test_contributions_of_a_linear_gaussian(functional):
    found = shapley(linear(), X[:2], X[100:], functional, n_background=None, method="sampling")
    for i, part in found.groupby("row"):
        expected = SLOPES * (X[i] - X[100:].mean(axis=0))
        assert np.allclose(part["contribution"], expected, atol=1e-9)
        assert (part["std_error"] == 0).all()
        gap = part["prediction"].iloc[0] - part["baseline"].iloc[0]
        assert np.isclose(part["contribution"].sum(), gap)
    assert np.allclose(shapley(linear(), X[:1], X, "width", method="sampling")["contribution"], 0)


def test_contributions_of_an_interaction():
    """Of x1 x2 against a background of mean zero each feature has one half."""
    corners = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    found = shapley(product(), np.array([[3.0, 2.0]]), corners, method="sampling")
    assert np.allclose(found["contribution"], [3, 3])
    assert found["baseline"][0] == 0
    assert found["prediction"][0] == 6
    # Six more features that do nothing: permutations are drawn, and each pair is exact.
    wide = np.hstack([corners, RNG.normal(size=(4, 6))])
    found = shapley(product(), np.hstack([[3.0, 2.0], np.ones(6)])[None], wide, method="sampling")
    assert np.allclose(found["contribution"], [3, 3, 0, 0, 0, 0, 0, 0])
    assert np.allclose(found["std_error"], 0)


def test_drawn_permutations_say_their_error():
    """Three features that matter together have known values; the error is as large as said."""
    rng = np.random.default_rng(5)
    model = Gaussian(lambda X: X[:, 0] * X[:, 1] * X[:, 2] + X[:, 3])
    row, background = np.full((1, 7), 2.0), rng.normal(size=(40, 7))
    model.calls = 0
    exact = shapley(model, row[:, :4], background[:, :4], method="sampling")
    estimates = []
    for seed in range(60):
        found = shapley(model, row, background, method="sampling", random_state=seed)
        assert np.isclose(
            found["contribution"].sum(), found["prediction"][0] - found["baseline"][0]
        )
        estimates.append(found["contribution"].to_numpy())
    off = np.array(estimates)[:, :4] - exact["contribution"].to_numpy()
    assert np.abs(off.mean(axis=0)).max() < 0.1
    ratio = off.std(axis=0)[:3] / found["std_error"].to_numpy()[:3]
    assert (np.abs(ratio - 1) < 0.5).all()
    assert np.allclose(off[:, 3], 0)


def test_contributions_in_a_table():
    rows, model = table(), table_model()
    one = pd.DataFrame({"kind": ["c"], "count": [4], "unused": [0.0]})
    found = shapley(model, one, rows, n_background=None, method="sampling").set_index("feature")
    effect = rows["kind"].map({"a": 0.0, "b": 1.0, "c": 5.0}).fillna(-2.0)
    assert np.isclose(found.loc["kind", "contribution"], 5 - effect.mean())
    assert np.isclose(found.loc["count", "contribution"], 3 * (4 - rows["count"].mean()))
    assert found.loc["unused", "contribution"] == 0
    assert found.loc["kind", "value"] == "c"


@pytest.mark.parametrize("p", [3, 7])
def test_shap_says_the_same(p):
    pytest.importorskip("shap")
    rng = np.random.default_rng(6)
    model = Gaussian(lambda X: X[:, 0] * X[:, 1] + 2 * X[:, 2])
    row, background = rng.normal(size=(1, p)), rng.normal(size=(150, p))
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    ours, theirs = (
        shapley(model, row, background, method=method, n_background=None, random_state=0)
        for method in ("sampling", "auto")
    )
    assert "shap" in sys.modules
    assert np.allclose(ours["contribution"], theirs["contribution"])
    assert np.allclose(ours["baseline"], theirs["baseline"])
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    rows, one = table(150), table(3)[:1]
    found = [
        shapley(table_model(), one, rows, method=m, n_background=None) for m in ("sampling", "shap")
    ]
    assert np.allclose(found[0]["contribution"], found[1]["contribution"])


# Nearest rows, and fitted models.


def fitted():
    rows = table(300)
    y = table_model().mean(rows) + np.random.default_rng(7).normal(size=300)
    model = TableEstimator(MCD("quadratic", random_state=0, target="continuous"))
    return model.fit(rows, y), rows, y


def test_a_fitted_table():
    model, rows, y = fitted()
    found = permutation_importance(model, rows, y, random_state=0)
    assert set(found["feature"][:2]) == {"kind", "count"}
    effect = accumulated_local_effects(model, rows, "count", ["mean", ("quantile", 0.05)])
    slope = [np.polyfit(p["value"].astype(float), p["effect"], 1, w=p["rows"])[0]
             for _, p in effect.groupby("functional")]  # fmt: skip
    assert np.allclose(slope, 3, atol=0.5)
    near = nearest_rows(model, rows[5:7], rows, y, n_neighbors=3)
    assert list(near[near["rank"] == 1]["neighbor"]) == [5, 6]
    assert np.allclose(near[near["rank"] == 1]["distance"], 0)
    assert (near["y"] == y[near["neighbor"]]).all()
    assert (near["count"].to_numpy() == rows["count"].to_numpy()[near["neighbor"]]).all()
    # In units of the training rows' standard deviation.
    other = rows[:1].assign(unused=rows["unused"].iloc[0] + 2 * rows["unused"].std(ddof=0))
    assert nearest_rows(model, other, rows[:1], n_neighbors=1)["distance"][0] == pytest.approx(2)


def test_several_targets():
    both = np.column_stack([Y, Y + RNG.normal(size=400)])
    model = MCD("quadratic", random_state=0, joint="chain", support=(None, None)).fit(X, both)
    found = permutation_importance(model, X[:50], both[:50], n_repeats=2, random_state=0)
    assert found["feature"][0] == 0
    assert nearest_rows(model, X[:1], X)["neighbor"][0] == 0
    with pytest.raises(TypeError, match="is for models of one target"):
        partial_dependence(model, X[:5])
    own = accumulated_local_effects(model, X[:30], 0, lambda d: d.mean()[:, 1], n_points=4)
    assert own["effect"].is_monotonic_increasing


def test_pictures():
    model, rows, y = fitted()
    effect = accumulated_local_effects(model, rows, ["count", "kind"], ["mean", "width"])
    ax = plot_effects(effect)
    assert ax.get_xlabel() == "count"
    assert len(ax.get_legend().get_texts()) == 2
    assert [t.get_text() for t in plot_effects(effect, "kind").get_xticklabels()]
    found = permutation_importance(model, rows, y, random_state=0)
    assert len(plot_importance(found, most=2).get_yticks()) == 2
    ax = plot_contributions(shapley(model, rows[:1], rows, n_background=20))
    assert {"prediction", "baseline"} == {
        t.get_text().split()[0] for t in ax.get_legend().get_texts()
    }
    near = nearest_rows(model, rows[:1], rows, y)
    assert plot_nearest(near, distribution=model.predict_distribution(rows[:1])).get_xlabel() == "y"
    assert plot_nearest(near.drop(columns="y")).get_xlabel() == "distance"
    # Names are not taken for formulas.
    odd = found.assign(feature=["$x^{$", "b", "c"])
    plot_importance(odd).figure.canvas.draw()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: accumulated_local_effects(m, X, "a"), "There is no feature 'a'; choose from 0"),
        (lambda m: partial_dependence(m, X, 3), "There is no feature 3"),
        (lambda m: partial_dependence(m, X, []), "features is empty"),
        (lambda m: partial_dependence(m, X[0]), "X must be a table or an array of shape"),
        (lambda m: partial_dependence(m, X[:0]), "with at least one row"),
        (lambda m: partial_dependence(m, X, 0, "skew"), 'functional must be "mean"'),
        (lambda m: partial_dependence(m, X, 0, ("quantile", 2)), "level of a quantile must lie"),
        (lambda m: partial_dependence(m, X, 0, lambda d: 1.0), "must return one number per row"),
        (lambda m: accumulated_local_effects(m, X * 0, 0), "has one value only"),
        (lambda m: permutation_importance(m, X), "y is missing"),
        (lambda m: permutation_importance(m, X, Y[:5]), "X has 400 rows and y has 5"),
        (lambda m: permutation_importance(m, X, Y, score="r2"), "score must be one of"),
        (lambda m: shapley(m, X[:1], X, ["mean"]), "functional must be one"),
        (lambda m: shapley(m, X[:1], X[:, :2]), "X has 3 columns and background has 2"),
        (lambda m: shapley(m, X[:1], X, n_permutations=5), "must be even"),
        (lambda m: shapley(m, X[:1], X, method="tree"), "method must be one of"),
        (lambda m: plot_effects(pd.DataFrame({"a": [1]})), "table must be one that"),
    ],
)  # fmt: skip
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call(linear())


def test_without_shap(monkeypatch):
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(ImportError, match="pip install shap"):
        shapley(linear(), X[:1], X, method="shap")


def test_more_mistakes():
    with pytest.raises(TypeError, match="estimator must be a fitted estimator"):
        partial_dependence(object(), X)
    with pytest.raises(TypeError, match="both be tables"):
        shapley(linear(), X[:1], pd.DataFrame(X))
    with pytest.raises(ValueError, match=r"no feature 'knid' \(did you mean 'kind'"):
        partial_dependence(table_model(), table(), "knid")
