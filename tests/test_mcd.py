"""MCD: recovers known truth, uses all kinds of data, refuses bad input."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats
from scipy.special import logit
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import mcdensity
from mcdensity import MCD, stack_targets
from mcdensity._ratios import score_ratios
from mcdensity.baselines import MarginalBaseline
from mcdensity.data import OutOfTimeError
from mcdensity.marginals import KernelDensity

pytestmark = pytest.mark.filterwarnings("ignore:ratio=:UserWarning")


def normal_data(n=2000, rho=0.8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    return X, rho * X[:, 0] + np.sqrt(1 - rho**2) * rng.normal(size=n)


def kl_to_truth(model, truth, X, grid):
    """Integral of f log(f / g) over y, averaged over the rows of X."""
    estimate = model.predict_distribution(X).logpdf_grid(grid)
    log_f = truth(X, grid)
    return np.trapezoid(np.exp(log_f) * (log_f - estimate), grid, axis=1).mean()


@pytest.mark.parametrize(
    ("discriminator", "rho", "bound"),
    [
        ("quadratic", 0.8, 0.005),
        ("hist-gradient-boosting", 0.8, 0.07),
        ("quadratic", 0.0, 0.02),
        ("hist-gradient-boosting", 0.0, 0.02),
    ],
)
def test_recovers_the_bivariate_normal(discriminator, rho, bound):
    """Y given x is N(rho x, 1 - rho²)."""

    def truth(X, grid):
        return stats.norm.logpdf(grid, rho * X, np.sqrt(1 - rho**2))

    divergences = []
    for seed in range(5):
        X, y = normal_data(rho=rho, seed=seed)
        model = MCD(discriminator=discriminator, random_state=seed).fit(X, y)
        X_new = np.random.default_rng(100 + seed).normal(size=(200, 1))
        divergences.append(kl_to_truth(model, truth, X_new, np.linspace(-8, 8, 4001)))
    assert np.mean(divergences) < bound


def test_the_formula():
    """Unnormalised: log f_Y + logit q - logit r, with q from the learner itself."""
    X, y = normal_data(300)
    model = MCD(discriminator=LogisticRegression(), normalize=False, random_state=0).fit(X, y)
    z = (y - model.y_mean_) / model.y_scale_
    pairs = np.column_stack([(X - model.x_mean_) / model.x_scale_, model.target_space_.inner(z)])
    q = model.discriminator_.learner_.predict_proba(pairs)[:, 1]
    expected = model.marginal_.logpdf(z) - np.log(model.y_scale_) + logit(q) - logit(model.ratio_)
    np.testing.assert_allclose(model.logpdf(X, y), expected, rtol=1e-6)
    np.testing.assert_allclose(
        np.diag(model.pdf_from_X(X[:20], y[:20])), np.exp(expected[:20]), rtol=1e-6
    )


def test_normalising_divides_by_the_integral():
    X, y = normal_data(300)
    raw = MCD(discriminator="quadratic", normalize=False, random_state=0).fit(X, y)
    normalized = MCD(discriminator="quadratic", random_state=0).fit(X, y)
    grid = np.linspace(-8, 8, 8001)
    density = raw.pdf_from_X(X[:10], grid)
    integral = np.trapezoid(density, grid, axis=1)
    assert np.abs(integral - 1).max() > 1e-3
    np.testing.assert_allclose(
        normalized.pdf_from_X(X[:10], grid), density / integral[:, None], rtol=5e-3, atol=5e-4
    )
    assert normalized.score(X, y) != raw.score(X, y)


def test_epsilon_bounds_the_ratio():
    """A learner that is always sure: q = 1, or q = 0."""

    class Sure(LogisticRegression):
        def predict_proba(self, pairs):
            q = (pairs[:, -1] > 0).astype(float)
            return np.column_stack([1 - q, q])

    X, y = normal_data(200)
    for epsilon in (1e-6, 1e-3):
        model = MCD(discriminator=Sure(), epsilon=epsilon, normalize=False, random_state=0)
        model.fit(X, y)
        log_ratio = model.logpdf(X, y) - MarginalBaseline("adaptive").fit(X, y).logpdf(X, y)
        upper = np.log((1 - epsilon) / epsilon) - logit(model.ratio_)
        z = model.target_space_.inner((y - model.y_mean_) / model.y_scale_) > 0
        np.testing.assert_allclose(log_ratio[z], upper, atol=0.02)
        np.testing.assert_allclose(log_ratio[~z], np.log(epsilon), atol=0.02)


def test_fitted_attributes():
    X, y = normal_data(100)
    model = MCD(discriminator="quadratic", ratio=0.15, random_state=0).fit(X, y)
    assert model.contrast_size_ == 666
    assert model.ratio_ == pytest.approx(100 / 666)
    assert model.construction_ == 2
    assert model.n_features_in_ == 1
    assert isinstance(model.marginal_, KernelDensity)
    iid = MCD(discriminator="quadratic", construction="iid", ratio=0.5, random_state=0).fit(X, y)
    assert (iid.contrast_size_, iid.construction_) == (50, 1)


def test_marginal_is_a_parameter():
    X, y = normal_data(200)
    wide = MCD(discriminator="quadratic", marginal=KernelDensity(3.0), random_state=0).fit(X, y)
    usual = MCD(discriminator="quadratic", random_state=0).fit(X, y)
    assert (wide.predict_var(X[:5]) > usual.predict_var(X[:5])).all()


def test_automatic_ratio():
    X, y = normal_data(200)
    model = MCD(discriminator="quadratic", ratio="auto", random_state=0).fit(X, y)
    assert set(model.ratio_scores_) == {0.02, 0.05, 0.15, 0.5}
    best = max(model.ratio_scores_, key=model.ratio_scores_.get)
    assert model.ratio_ == pytest.approx(best, rel=0.01)
    X, y, groups = stack_targets(X[:40], np.column_stack([y[:40], y[:40] + 0.1]))
    grouped = MCD(discriminator="quadratic", ratio="auto", random_state=0).fit(X, y, groups=groups)
    assert 0.02 not in grouped.ratio_scores_  # 26 groups in a fold allow no less than 1/26


# Extra data.


def test_extra_y_feed_the_marginal():
    X, y = normal_data(100)
    more = np.random.default_rng(5).normal(size=5000)
    plain = MCD(discriminator="quadratic", random_state=0).fit(X, y)
    fed = MCD(discriminator="quadratic", random_state=0).fit(X, y, y_marginal=more)
    assert fed.construction_ == 4
    assert fed.marginal_.n_effective_ == 5100
    assert fed.marginal_.bandwidth_ < plain.marginal_.bandwidth_


def test_extra_x_reach_the_discriminator():
    X, y = normal_data(100)
    X_more = np.random.default_rng(6).normal(size=(300, 1))
    fitted = MCD(discriminator="quadratic", random_state=0).fit(X, y, X_unlabeled=X_more)
    assert fitted.construction_ == 4
    iid = MCD(discriminator="quadratic", construction="iid", ratio=0.5, random_state=0)
    assert iid.fit(X, y, X_unlabeled=X_more).contrast_size_ == 100


def test_groups():
    X, _ = normal_data(80)
    rng = np.random.default_rng(0)
    X, y, groups = stack_targets(X, 0.8 * X + 0.6 * rng.normal(size=(80, 5)))
    model = MCD(discriminator="quadratic", random_state=0).fit(X, y, groups=groups)
    assert model.construction_ == 5
    assert model.contrast_size_ == 8000


def test_unequal_groups_carry_no_factor_of_x():
    """y does not depend on x, but rows with x = 1 have many more targets: still the marginal."""
    rng = np.random.default_rng(0)
    sizes = np.where(np.arange(400) < 200, 1, 9)
    groups = np.repeat(np.arange(400), sizes)
    X = (groups >= 200).astype(float)[:, None]
    y = rng.normal(size=len(X))
    model = MCD(discriminator="quadratic", ratio=0.2, normalize=False, random_state=0)
    model.fit(X, y, groups=groups)
    grid = np.linspace(-8, 8, 2001)
    integral = np.trapezoid(model.pdf_from_X([[0.0], [1.0]], grid), grid, axis=1)
    np.testing.assert_allclose(integral, 1, atol=0.1)


# Weights.


def test_weight_k_is_like_k_copies():
    """Over many draws of pairs the two give the same mean quantiles, to a part of one draw's noise.

    Exactly the same they are not: a row is never paired with itself, but its copies are.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    y = X[:, 0] + rng.normal(size=300)
    weight = np.where(X[:, 0] + y > 0, 3, 1)
    copies = np.repeat(np.arange(300), weight)
    new_rows = np.array([[-1.0], [0.0], [1.0]])

    def quantiles(*args, **kwargs):
        model = MCD(discriminator="quadratic", marginal=KernelDensity(0.4))
        return np.array([
            clone(model).set_params(random_state=seed).fit(*args, **kwargs)
            .predict_quantiles(new_rows)
            for seed in range(20)
        ])  # fmt: skip

    weighted = quantiles(X, y, sample_weight=weight)
    copied = quantiles(X[copies], y[copies])
    plain = quantiles(X, y)
    noise = np.sqrt(weighted.var(axis=0) + copied.var(axis=0))
    gap = np.abs(weighted.mean(axis=0) - copied.mean(axis=0))
    assert (gap < 2 * noise).all()
    assert gap.max() < 0.2 * np.abs(plain.mean(axis=0) - copied.mean(axis=0)).max()


def test_score_takes_weights():
    X, y = normal_data(100)
    model = MCD(discriminator="quadratic", random_state=0).fit(X, y)
    weight = np.zeros(100)
    weight[7] = 2.0
    assert model.score(X, y, sample_weight=weight) == pytest.approx(model.logpdf(X, y)[7])


# Inside scikit-learn.


def test_grid_search_and_cross_validation():
    X, y = normal_data(150)
    model = MCD(discriminator="quadratic", random_state=0)
    assert np.isfinite(cross_val_score(model, X, y, cv=3)).all()
    search = GridSearchCV(model, {"ratio": [0.05, 0.5], "discriminator": ["quadratic"]}, cv=3)
    assert search.fit(X, y).best_params_["ratio"] in (0.05, 0.5)


def test_metadata_routing():
    """X_unlabeled goes through the transformers of a pipeline, and into a grid search."""
    X, y = normal_data(100)
    X_more = 1000 + 5 * np.random.default_rng(1).normal(size=(50, 1))
    X = 1000 + 5 * X
    with config_context(enable_metadata_routing=True):
        model = MCD(discriminator="quadratic", random_state=0).set_fit_request(X_unlabeled=True)
        pipeline = make_pipeline(StandardScaler(), model, transform_input=["X_unlabeled"])
        pipeline.fit(X, y, X_unlabeled=X_more)
        direct = MCD(discriminator="quadratic", random_state=0).fit(X, y, X_unlabeled=X_more)
        np.testing.assert_allclose(pipeline.predict(X), direct.predict(X), rtol=1e-4)
        assert pipeline[-1].construction_ == 4
        search = GridSearchCV(pipeline, {"mcd__ratio": [0.1, 0.5]}, cv=3)
        search.fit(X, y, X_unlabeled=X_more)
        assert search.best_estimator_[-1].construction_ == 4


# Bad input.


def test_too_few_rows():
    for n in range(4):
        X, y = normal_data(4)
        with pytest.raises(ValueError, match=f"n_samples={n} rows.*needs at least 4"):
            MCD().fit(X[:n], y[:n])
    with pytest.raises(ValueError, match="n_samples=3 rows"):
        MCD().fit(X, y, sample_weight=[1, 1, 1, 0])


BAD_FITS = [
    ({"y": [np.nan, *range(19)]}, "y contains NaN or infinity in 1 of 20 rows .the first is row 0"),
    (
        {"y": [*range(19), np.inf]},
        "y contains NaN or infinity in 1 of 20 rows .the first is row 19",
    ),
    ({"y": np.ones(20)}, "y is constant"),
    ({"y": np.ones(19)}, "inconsistent numbers of samples"),
    ({"y": np.zeros((20, 2))}, "column 'y0' of y is constant"),
    ({"y": None}, "requires y to be passed"),
    ({"y": ["a"] * 20}, "y holds text"),
    ({"y": [None, *range(19)]}, "y contains NaN or infinity in 1 of 20 rows"),
    ({"X": np.full((20, 2), np.inf)}, "X contains infinity"),
    ({"X": [["a", 1]] * 20}, "X holds text .*OrdinalEncoder"),
    ({"X": np.zeros(20)}, "Expected 2D array, got 1D array"),
    ({"X_unlabeled": np.zeros((5, 3))}, "X_unlabeled does not fit X: X has 3 features"),
    ({"X_unlabeled": [[np.inf, 1.0]]}, "X_unlabeled does not fit X: Input X contains infinity"),
    ({"X_unlabeled": [["a", "b"]]}, "X_unlabeled holds text"),
    ({"y_marginal": [np.nan]}, "y_marginal contains NaN or infinity"),
    ({"y_marginal": ["a"]}, "y_marginal must hold numbers"),
    ({"y_marginal": np.zeros((5, 2))}, "y_marginal must be of shape"),
    ({"y_marginal": []}, "y_marginal must be of shape"),
    ({"groups": [None] * 10 + ["a"] * 10}, "groups must hold values of one kind"),
    ({"groups": np.zeros(20)}, "rows of group .* have different x"),
    ({"groups": np.zeros(3)}, "groups must have one entry per row of X"),
    ({"sample_weight": np.ones(3)}, "one weight per row of X"),
    ({"sample_weight": -np.ones(20)}, "not negative"),
    ({"sample_weight": np.zeros(20)}, "zero for all rows"),
]


@pytest.mark.parametrize(("change", "message"), BAD_FITS)
def test_bad_fit(change, message):
    rng = np.random.default_rng(0)
    arguments = {"X": rng.normal(size=(20, 2)), "y": rng.normal(size=20)} | change
    with pytest.raises((ValueError, TypeError), match=message):
        MCD(discriminator="quadratic").fit(**arguments)


def test_dates_are_refused_with_advice():
    pandas = pytest.importorskip("pandas")
    X, y = normal_data(20)
    frame = pandas.DataFrame({"a": X[:, 0], "day": pandas.Timestamp("2020-01-01")})
    with pytest.raises(TypeError, match="X holds dates; turn them into numbers first"):
        MCD(discriminator="quadratic").fit(frame, y)


def test_iid_with_groups():
    X, y = normal_data(20)
    with pytest.raises(ValueError, match='construction="iid" cannot use groups'):
        MCD(discriminator="quadratic", construction="iid").fit(X, y, groups=np.arange(20))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"ratio": 0.0}, "'ratio' parameter of MCD must be"),
        ({"ratio": 1.5}, "'ratio' parameter of MCD must be"),
        ({"ratio": "best"}, "'ratio' parameter of MCD must be"),
        ({"construction": "x"}, "'construction' parameter of MCD must be"),
        ({"normalize": 3}, "'normalize' parameter of MCD must be"),
        ({"epsilon": 0}, "'epsilon' parameter of MCD must be"),
        ({"marginal": "x"}, "marginal='x' is not known; choose from"),
        ({"marginal": 3}, "marginal must be a name"),
        ({"random_state": "x"}, "'random_state' parameter of MCD must be"),
    ],
)
def test_bad_parameters(parameters, message):
    X, y = normal_data(20)
    with pytest.raises((ValueError, TypeError), match=message):
        MCD(**{"discriminator": "quadratic"} | parameters).fit(X, y)


def test_bad_prediction():
    X, y = normal_data(50)
    model = MCD(discriminator="quadratic", random_state=0)
    for method in ("predict", "predict_quantiles", "predict_distribution", "sample"):
        with pytest.raises(ValueError, match="not fitted yet"):
            getattr(model, method)(X)
    with pytest.raises(ValueError, match="not fitted yet"):
        model.logpdf(X, y)
    model.fit(X, y)
    for call, message in (
        (lambda: model.predict(np.zeros((3, 2))), "X has 2 features, but MCD is expecting 1"),
        (lambda: model.predict([[np.inf]]), "X contains infinity"),
        (lambda: model.predict([["a"]]), "X holds text"),
        (lambda: model.logpdf(X, y[:5]), "y must have one value per row of X"),
        (lambda: model.logpdf(X, np.full(50, np.nan)), "y contains NaN"),
        (lambda: model.pdf_from_X(X, np.zeros((2, 2))), "y_grid must be one-dimensional"),
        (lambda: model.pdf_from_X(X, [np.nan]), "y_grid contains NaN"),
        (lambda: model.predict_quantiles(X, 1.2), "quantiles must lie strictly between 0 and 1"),
        (lambda: model.predict_quantiles(X, [0, 0.5]), "quantiles must lie strictly between"),
        (lambda: model.predict_interval(X, 2), "coverage must lie strictly between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_four_rows_are_enough():
    X, y = normal_data(4)
    model = MCD(discriminator="quadratic", random_state=0).fit(X, y)
    assert np.isfinite(model.predict_quantiles(X)).all()


def test_import_is_light():
    code = (
        "import sys, mcdensity; from mcdensity import MCD; "
        "assert 'torch' not in sys.modules, 'torch'; "
        "assert mcdensity.MCD is MCD; assert 'MCD' in dir(mcdensity)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mcdensity.nothing


# The paper's claims on extra data, on its AsymmetricLinear: y = x'b + sigma |e|.


def asymmetric_linear(n, rng, m=1):
    slope = np.random.RandomState(0).uniform(size=10)
    X = rng.normal(size=(n, 10))
    return X, (X @ slope)[:, None] + 0.5 * np.abs(rng.normal(size=(n, m)))


def asymmetric_truth(X, grid):
    slope = np.random.RandomState(0).uniform(size=10)
    e = (grid - (X @ slope)[:, None]) / 0.5
    return np.where(e >= 0, np.log(2 / 0.5) + stats.norm.logpdf(e), -60)


def asymmetric_kl(seed, **extra):
    rng = np.random.default_rng(1000 + seed)
    X_new = asymmetric_linear(100, rng)[0]
    learner = make_pipeline(PolynomialFeatures(2), LogisticRegression(C=0.1, max_iter=1000))
    model = MCD(discriminator=learner, random_state=seed, **extra.pop("parameters"))
    model.fit(**extra)
    return kl_to_truth(model, asymmetric_truth, X_new, np.linspace(-12, 14, 3001))


@pytest.mark.slow
def test_extra_data_help():
    """iid, n = 100, r = 0.5: 100 extra x, and 100 extra y, give a lower KL; so do 10 targets."""
    results = {"none": [], "x": [], "y": [], "m=1": [], "m=10": []}
    for seed in range(30):
        rng = np.random.default_rng(seed)
        X, Y = asymmetric_linear(100, rng)
        X_more = rng.normal(size=(100, 10))
        y_more = asymmetric_linear(100, rng)[1][:, 0]
        iid = {"parameters": {"construction": "iid", "ratio": 0.5}, "X": X, "y": Y[:, 0]}
        results["none"].append(asymmetric_kl(seed, **iid))
        results["x"].append(asymmetric_kl(seed, **iid, X_unlabeled=X_more))
        results["y"].append(asymmetric_kl(seed, **iid, y_marginal=y_more))
        X, Y = asymmetric_linear(100, rng, m=10)
        for m in (1, 10):
            X_m, y_m, groups = stack_targets(X, Y[:, :m])
            results[f"m={m}"].append(
                asymmetric_kl(seed, parameters={}, X=X_m, y=y_m, groups=groups)
            )
    mean = {name: np.mean(values) for name, values in results.items()}
    print("mean KL over 30 seeds:", {name: round(value, 4) for name, value in mean.items()})
    assert mean["x"] < mean["none"]
    assert mean["y"] < mean["none"]
    assert mean["m=10"] < mean["m=1"]


def test_fits_that_choose_a_ratio_share_the_time_budget():
    budgets = []

    class Spy(MCD):
        def fit(self, X, y, *args, **kwargs):
            budgets.append(self.time_budget)
            return super().fit(X, y, *args, **kwargs)

    X, y = normal_data(60)
    model = Spy("quadratic", ratio="auto", time_budget=1000.0, random_state=0).fit(X, y)
    assert budgets[0] == 1000.0
    assert len(budgets) == 1 + 3 * len(model.ratio_scores_)
    assert max(budgets[1:]) < 1000.0 / len(model.ratio_scores_)


def test_a_ratio_without_time_to_choose_is_the_usual_one(monkeypatch):
    X, y = normal_data(60)

    def out_of_time(*args, **kwargs):
        raise OutOfTimeError

    monkeypatch.setattr(MCD, "fit", out_of_time)
    assert score_ratios(MCD("quadratic"), X, y, None, None, 0, 0.0) == {}
