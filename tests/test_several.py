"""Estimators of several targets at once."""

import numpy as np
import pandas
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import StandardScaler

from mcdensity import MCD, TableEstimator, _joint_choice, as_estimator, chain, load, save
from mcdensity.baselines import get_estimator
from mcdensity.experts import distilled
from mcdensity.metrics import get_scorer
from mcdensity.pipelines import PreparedEstimator
from samples import COVARIANCE, SLOPES, exact_logpdf

LINE = {"target": "continuous", "support": (None, None), "joint": "chain"}


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X @ SLOPES + rng.normal(size=(n, 3)) @ np.linalg.cholesky(COVARIANCE).T


@pytest.fixture(scope="module")
def model():
    X, Y = table()
    return MCD("quadratic", random_state=0, **LINE).fit(X, pandas.DataFrame(Y, columns=list("abc")))


def test_shapes_of_predictions(model):
    X, Y = table(5, seed=1)
    assert model.target_names_ == ["a", "b", "c"]
    assert model.target_kind_ == ["continuous"] * 3
    assert model.predict(X).shape == (5, 3)
    assert model.predict_var(X).shape == (5, 3)
    assert model.predict_quantiles(X, (0.1, 0.9)).shape == (5, 3, 2)
    assert model.predict_interval(X).shape == (5, 3, 2)
    assert model.sample(X, 7, random_state=0).shape == (5, 7, 3)
    assert model.logpdf(X, Y).shape == (5,)
    densities = model.pdf_from_X(X, Y)
    assert densities.shape == (5, 5)
    np.testing.assert_allclose(np.log(np.diag(densities)), model.logpdf(X, Y), rtol=1e-8)
    assert np.isclose(model.score(X, Y), model.logpdf(X, Y).mean())
    assert "a: continuous" in repr(model)


def test_the_chain_learns_the_truth(model):
    X, Y = table(2000, seed=2)
    exact = exact_logpdf(X @ SLOPES, COVARIANCE, Y).mean()
    assert model.score(X, Y) > exact - 0.1
    apart = sum(
        MCD("quadratic", random_state=0, **LINE).fit(*(a for a in (table()[0], table()[1][:, j])))
        .score(X, Y[:, j])
        for j in range(3)
    )  # fmt: skip
    assert model.score(X, Y) > apart + 0.1


def held(intervals, y):
    return (y >= intervals[..., 0]) & (y <= intervals[..., 1])


def test_intervals_hold_one_by_one_and_together(model):
    X, Y = table(300, seed=3)
    each = model.predict_interval(X, 0.9)
    inside = held(each, Y)
    assert (np.abs(inside.mean(axis=0) - 0.9) < 0.06).all()
    together = model.predict_interval(X, 0.9, joint=True)
    all_inside = held(together, Y).all(axis=1)
    assert abs(all_inside.mean() - 0.9) < 0.06
    assert inside.all(axis=1).mean() < 0.85


def test_conformal_intervals_hold_together():
    X, Y = table(500, seed=4)
    poor = MCD("quadratic", discriminator_params={"C": 1e-6}, random_state=0, **LINE)
    poor.fit(X[:100], Y[:100]).conformalize(X[100:300], Y[100:300])
    for joint in (False, True):
        found = poor.predict_interval(X[300:], 0.8, conformal=True, joint=joint)
        inside = held(found, Y[300:])
        share = inside.all(axis=1).mean() if joint else inside.mean()
        assert 0.68 < share < 0.92


def test_one_column_is_one_target_to_the_last_bit():
    X, Y = table(150)
    flat, column = (
        MCD("quadratic", random_state=0).fit(X, y) for y in (Y[:, 0], Y[:, :1])
    )  # fmt: skip
    np.testing.assert_array_equal(flat.predict_quantiles(X), column.predict_quantiles(X))
    assert column.predict(X).shape == (150,)
    several = MCD("quadratic", random_state=0).fit(X, Y)
    several.fit(X, Y[:, 0])  # nothing of the earlier fit remains
    np.testing.assert_array_equal(several.predict(X), flat.predict(X))
    assert not hasattr(several, "links_")


def test_density_integrates_to_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    Y = np.column_stack([X[:, 0] + rng.normal(size=300), rng.normal(size=300)])
    Y[:, 1] += Y[:, 0] ** 2
    model = MCD("quadratic", random_state=0, **LINE).fit(X, Y)
    a, b = np.linspace(-8, 8, 201), np.linspace(-12, 45, 401)
    points = np.stack(np.meshgrid(a, b, indexing="ij"), axis=2).reshape(-1, 2)
    total = model.pdf_from_X(X[:2], points).sum(axis=1) * (a[1] - a[0]) * (b[1] - b[0])
    np.testing.assert_allclose(total, 1, atol=0.02)


def test_counts_beside_a_density():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    count = rng.poisson(np.exp(0.5 + 0.4 * X[:, 0]))
    price = np.exp(0.3 * count + 0.5 * X[:, 1] + 0.3 * rng.normal(size=500))
    both = pandas.DataFrame({"visits": count, "price": price})
    for order in (["visits", "price"], ["price", "visits"]):
        model = MCD("quadratic", random_state=0, joint=order).fit(X, both)
        assert model.target_kind_ == ["discrete", "continuous"]
        assert [model.target_names_[j] for j in model.order_] == order
        law = model.predict_distribution(X[:3])
        draws = law.sample(200, random_state=0)
        assert (draws[..., 0] == np.round(draws[..., 0])).all()
        assert (draws > -1e-12).all()
        assert law.marginal("visits").is_discrete
        np.testing.assert_allclose(law.marginal("visits").masses.sum(axis=1), 1)
        assert law.marginal("price").cdf(0.0).max() == 0
        few, many = (law.conditional({"visits": v}).mean() for v in (0, 4))
        assert (many > 1.5 * few).all()
        cheap, dear = (law.conditional({"price": v}).mean() for v in (0.7, 6.0))
        assert (dear > cheap).all()


def test_an_order_that_is_given(model):
    X, Y = table()
    other = MCD("quadratic", random_state=0, **(LINE | {"joint": [2, 0, 1]})).fit(X, Y)
    assert other.order_ == [2, 0, 1]
    X, Y = table(500, seed=5)
    assert abs(other.score(X, Y) - model.score(X, Y)) < 0.05
    with pytest.raises(ValueError, match="each target once"):
        MCD(joint=[0, 0, 1]).fit(X, Y)


def test_each_target_has_its_own_kind_and_support():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(200, 1)), rng.random((200, 2))
    model = MCD(
        "quadratic", target=["continuous", "auto"], support=[(None, None), (0, 2)], random_state=0
    ).fit(X, Y)
    assert model.support_ == [(-np.inf, np.inf), (0.0, 2.0)]
    with pytest.raises(ValueError, match="target has 1 entries; y has 2 columns"):
        MCD(target=["auto"]).fit(X, Y)
    with pytest.raises(ValueError, match="y has one"):
        MCD(target=["auto", "auto"]).fit(X, Y[:, 0])


def test_models_of_several_targets_are_saved(model, tmp_path):
    X, Y = table(4, seed=6)
    save(model, tmp_path / "m.mcd")
    again = load(tmp_path / "m.mcd")
    np.testing.assert_array_equal(again.logpdf(X, Y), model.logpdf(X, Y))
    np.testing.assert_array_equal(
        again.sample(X, 3, random_state=1), model.sample(X, 3, random_state=1)
    )


def test_tables_with_several_targets():
    X, Y = table()
    frame = pandas.DataFrame({"x": X[:, 0], "kind": np.where(X[:, 1] > 0, "one", "two")})
    model = TableEstimator(MCD("quadratic", random_state=0, **LINE))
    model.fit(frame, pandas.DataFrame(Y, columns=list("abc")))
    assert model.predict(frame[:4]).shape == (4, 3)
    assert model.predict_distribution(frame[:4]).names == ["a", "b", "c"]
    assert np.isfinite(model.score(frame, pandas.DataFrame(Y, columns=list("abc"))))


@pytest.mark.parametrize("name", ["mdn", "nf", "nnkcde"])
def test_other_methods_learn_several_targets(name):
    X, Y = table(200)
    small = {"nnkcde": {}}.get(name, {"steps": 50})
    model = (
        get_estimator(name, **small, random_state=0) if name != "nnkcde" else get_estimator(name)
    )
    model.fit(X, Y)
    assert model.sample(X[:2], 3, random_state=0).shape == (2, 3, 3)
    assert np.isfinite(model.score(X, Y))


def test_the_law_of_several_targets_alone():
    X, Y = table(150)
    alone = get_estimator("marginal").fit(X, Y[:, :2])
    Y = Y[:, :2]
    np.testing.assert_array_equal(alone.logpdf(X[:5], Y[:5]), alone.logpdf(X[5:10], Y[:5]))
    law = alone.predict_distribution(X[:1])
    exact = np.cov(Y.T)
    np.testing.assert_allclose(law.cov()[0], exact, atol=0.4)


def test_scorers_of_several_targets(model):
    X, Y = table(60, seed=7)
    for name in ("log_likelihood", "energy_score", "variogram_score", "dawid_sebastiani"):
        assert np.isfinite(get_scorer(name)(model, X, Y))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda Y: np.tile(Y, (1, 20)), "60 columns; at most 50"),
        (lambda Y: np.column_stack([Y, np.ones(len(Y))]), "'y3' of y is constant"),
        (lambda Y: np.column_stack([Y, 3 - 2 * Y[:, 1]]), "'y3' of y is determined by 'y1'"),
        (lambda Y: np.where(np.arange(len(Y))[:, None] == 5, np.nan, Y), "row 5"),
    ],
)
def test_targets_that_are_refused(change, message):
    X, Y = table(40)
    with pytest.raises(ValueError, match=message):
        MCD("quadratic").fit(X, change(Y))


def test_columns_that_do_not_match_at_prediction(model):
    X, Y = table(5, seed=8)
    with pytest.raises(ValueError, match=r"shape \(5, 3\)"):
        model.logpdf(X, Y[:, :2])
    with pytest.raises(ValueError, match="fitted with a, b, c"):
        model.logpdf(X, pandas.DataFrame(Y, columns=["a", "b", "d"]))
    shuffled = pandas.DataFrame(Y, columns=list("abc"))[["c", "a", "b"]]
    np.testing.assert_array_equal(model.logpdf(X, shuffled), model.logpdf(X, Y))
    with pytest.raises(ValueError, match=r"y_grid must be of shape \(m, 3\)"):
        model.pdf_from_X(X, [0.0, 1.0])


def test_a_distilled_chain(monkeypatch):
    monkeypatch.setattr(distilled, "_BUDGETS", ((0, 4000, 300),))
    X, Y = table(150)
    model = MCD("quadratic", random_state=0, **LINE).fit(X, Y[:, :2])
    small = model.distill(random_state=0)
    assert np.isfinite(small.distill_loss_)
    assert abs(small.score(X, Y[:, :2]) - model.score(X, Y[:, :2])) < 0.3


def test_missing_values_and_weights():
    X, Y = table(200)
    X[::7, 0] = np.nan
    weight = np.ones(200)
    weight[:50] = 0
    Y[:50] = 1e3  # rows of no weight say nothing
    model = MCD("quadratic", random_state=0, **LINE).fit(X, Y, weight)
    assert np.abs(model.predict(X[:10])).max() < 10
    assert np.isnan(X[:10]).any()


def test_more_x_and_more_y():
    X, Y = table(150)
    more = table(60, seed=9)
    model = MCD("quadratic", random_state=0, **LINE)
    model.fit(X, Y, X_unlabeled=more[0], y_marginal=more[1])
    assert model.links_[0].construction_ == 4
    assert np.isfinite(model.score(*more))
    with pytest.raises(ValueError, match=r"y_marginal must be of shape \(m, 3\)"):
        model.fit(X, Y, y_marginal=more[1][:, 0])
    grouped = model.fit(np.repeat(X, 2, axis=0), np.vstack([Y, Y]), groups=np.repeat(range(150), 2))
    assert grouped.links_[0].construction_ == 5


def test_a_time_budget_is_shared():
    X, Y = table(100)
    model = MCD(random_state=0, time_budget=8.0, **LINE).fit(X, Y[:, :2])
    assert [link.time_budget for link in model.links_] == [4.0, 4.0]
    assert np.isfinite(model.score(X, Y[:, :2]))


def test_what_is_for_one_target():
    X, Y = table(60)
    with pytest.raises(ValueError, match="normalize=False"):
        MCD("quadratic", normalize=False).fit(X, Y)
    with pytest.raises(ValueError, match="transformer of y is for one target"):
        PreparedEstimator(MCD("quadratic"), target_transformer=StandardScaler()).fit(X, Y)
    scaled = TransformedTargetRegressor(
        MCD("quadratic", random_state=0), transformer=StandardScaler()
    )
    with pytest.raises(ValueError, match="transformer of y is for one target"):
        as_estimator(scaled.fit(X, Y))
    with pytest.raises(ValueError, match="LSCDE learns one target"):
        get_estimator("lscde").fit(X, Y)
    with pytest.raises(ValueError, match="at least 4"):
        MCD("quadratic").fit(X[:3], Y[:3])


def test_the_name_of_a_table_with_one_target():
    X, Y = table(60)
    frame = pandas.DataFrame({"x": X[:, 0]})
    model = TableEstimator(MCD("quadratic")).fit(frame, pandas.DataFrame({"price": Y[:, 0]}))
    assert model.target_ == "price"


def test_links_in_the_middle_try_what_helped_at_the_ends():
    X, Y = table(120)
    Y = np.column_stack([Y, Y.sum(axis=1) + np.random.default_rng(1).normal(size=120)])
    model = MCD(random_state=0, effort="fast", **LINE).fit(X, Y)
    ends = [{n for n, w in model.weights_[j].items() if w > 0.02} for j in (0, 3)]
    useful = (ends[0] | ends[1]) - {"marginal"}
    for link in model.links_[1:3]:
        assert set(link.discriminator_params["portfolio"]) >= useful
        assert set(link.weights_) <= {*link.discriminator_params["portfolio"], "marginal"}
    assert "portfolio" not in model.links_[3].discriminator_params
    again = MCD(random_state=0, effort="fast", **LINE).fit(X, Y)
    np.testing.assert_array_equal(again.logpdf(X, Y), model.logpdf(X, Y))


@pytest.mark.parametrize(("gain", "factor"), [(0.5, 4.0), (0.05, None)])
def test_networks_train_longer_where_held_out_rows_gain(monkeypatch, gain, factor):
    """Links with known densities stand for those that were trained for some steps."""
    asked = []

    class Link:
        def __init__(self, steps):
            self.steps = steps

        def logpdf(self, X, y):
            assert X.shape == (len(y), 4)  # x, and the targets before the last
            return gain * (self.steps > 2000) + np.sin(self.steps * y)

    def fit_steps(model, X, Y, weight, steps, settings, **extra):
        asked.append((model.discriminator, [j for j, _ in steps], len(X)))
        assert len(steps) > 1 or (weight > 0).all()
        options = model.get_params()["discriminator_params"]
        return [Link(options.get("steps", 1)) for _ in steps] if len(steps) == 1 else [options]

    monkeypatch.setattr(chain, "fit_steps", fit_steps)
    X, Y = table(1000)
    weight = np.ones(1000)
    weight[:100] = 0  # these neither teach nor judge
    shared = MCD(random_state=0)
    settings = [{}] * 3
    options = chain._longer_training(shared, X, Y, weight, (2, (0, 1)), settings)
    assert options == ({"steps": factor} if factor else {})
    assert asked == [("mixture", [2], 600)] * 2
    counts = np.floor(Y)
    assert chain._longer_training(shared, X, counts, weight, (2, (0, 1)), settings) == {}
    chain.fit_links(MCD(time_budget=9.0), X, Y, weight, [0, 1, 2], settings)
    chain.fit_links(MCD(effort="fast"), X, Y, weight, [0, 1, 2], settings)
    assert [a[0] for a in asked[2:]] == ["auto", "auto"]  # no trial


def test_missing_values_in_rows_that_no_trial_sees(monkeypatch):
    """The law of x given y, which has no use for them, is then not tried at all."""
    tried = []
    monkeypatch.setattr(_joint_choice, "_gain_by_bayes", lambda *arguments: tried.append(1))
    X, Y = table(900)
    MCD("quadratic", random_state=0).fit(X, Y)
    assert tried == [1]
    for row in (0, 450, 899):
        some = X.copy()
        some[row, 0] = np.nan
        model = MCD("quadratic", random_state=0).fit(some, Y)
        assert np.isfinite(model.logpdf(some[row : row + 1], Y[row : row + 1])).all()
    assert tried == [1]
