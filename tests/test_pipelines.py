"""All methods behind pipelines, searches and scaled targets."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)

from mcdensity import MCD, as_estimator
from mcdensity.pipelines import PreparedEstimator

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
Y = 50 + 10 * (X[:, 0] + 0.5 * RNG.normal(size=200))
GRID = np.linspace(0, 100, 300)


def quadratic(**parameters):
    # Natural bounds depend on the units of the target.
    plain = {"target": "continuous", "support": (None, None)}
    return MCD("quadratic", random_state=0, **plain, **parameters)


def answers(model, rows=X):
    """What every method says, in a fixed order."""
    distribution = model.predict_distribution(rows)
    return [
        model.predict(rows),
        model.predict_var(rows),
        model.predict_quantiles(rows),
        model.predict_interval(rows, 0.8),
        model.logpdf(rows, Y),
        model.pdf_from_X(rows, GRID),
        model.sample(rows, 3, random_state=1),
        np.array(model.score(rows, Y)),
        distribution.mean(),
        distribution.entropy(),
        clone(model).fit(rows[:100], Y[:100]).conformalize(rows[100:], Y[100:])
        .predict_interval(rows, 0.8, conformal=True),
    ]  # fmt: skip


def same(first, second, rtol=1e-9):
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-9)


def test_a_pipeline_is_its_steps():
    pca = PCA(2).fit(X)
    pipeline = make_pipeline(PCA(2), quadratic()).fit(X, Y)
    model = as_estimator(pipeline)
    direct = quadratic().fit(pca.transform(X), Y)
    # PCA learns from half of the rows in the part that fits again, so that is left out.
    same(answers(model)[:-1], answers(direct, pca.transform(X))[:-1])
    np.testing.assert_array_equal(model.predict(X), pipeline.predict(X))
    assert model.n_features_in_ == 3
    assert model.estimator_ is pipeline[-1]
    raw = as_estimator(make_pipeline(PCA(2), quadratic(normalize=False)).fit(X, Y))
    inner = quadratic(normalize=False).fit(pca.transform(X), Y)
    np.testing.assert_allclose(raw.pdf_from_X(X, GRID), inner.pdf_from_X(pca.transform(X), GRID))
    np.testing.assert_allclose(raw.logpdf(X, Y), inner.logpdf(pca.transform(X), Y))


@pytest.mark.parametrize(
    "scaler",
    [
        StandardScaler(),
        StandardScaler(with_mean=False),
        StandardScaler(with_std=False),
        MinMaxScaler((-2, 3)),
        MaxAbsScaler(),
        RobustScaler(),
        RobustScaler(with_centering=False, with_scaling=False),
        None,
    ],
    ids=str,
)
def test_units_of_a_scaled_target_are_undone(scaler):
    """f(y|x) of y is f of the scaled target over the scale; MCD itself does not mind units."""
    scaled = TransformedTargetRegressor(quadratic(), transformer=scaler).fit(X, Y)
    model = as_estimator(scaled)
    same(answers(model), answers(quadratic().fit(X, Y)), rtol=1e-4)
    np.testing.assert_allclose(model.predict(X), scaled.predict(X), rtol=1e-9)
    density = model.pdf_from_X(X[:5], np.linspace(-50, 150, 20_001))
    np.testing.assert_allclose(density.sum(axis=1) * 0.01, 1, atol=1e-3)
    raw = TransformedTargetRegressor(quadratic(normalize=False), transformer=scaler).fit(X, Y)
    direct = quadratic(normalize=False).fit(X, Y)
    np.testing.assert_allclose(
        as_estimator(raw).pdf_from_X(X, GRID), direct.pdf_from_X(X, GRID), rtol=1e-4
    )


def test_nested():
    inner = make_pipeline(StandardScaler(), quadratic())
    scaled = TransformedTargetRegressor(inner, transformer=StandardScaler())
    outer = make_pipeline(SimpleImputer(), scaled)
    search = GridSearchCV(
        outer, {"transformedtargetregressor__regressor__mcd__ratio": [0.05, 0.2]}, cv=3
    )
    holes = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
    model = as_estimator(search.fit(holes, Y))
    np.testing.assert_allclose(model.predict(holes), search.predict(holes))
    assert model.predict_quantiles(holes).shape == (200, 3)


def test_a_search_over_an_estimator_is_its_best():
    search = GridSearchCV(quadratic(), {"ratio": [0.05, 0.2]}, cv=3).fit(X, Y)
    assert as_estimator(search) is search.best_estimator_
    assert as_estimator(search.best_estimator_) is search.best_estimator_


def test_intervals_with_a_guarantee_are_kept():
    scaled = TransformedTargetRegressor(quadratic(), transformer=MinMaxScaler()).fit(
        X[:100], Y[:100]
    )
    units = scaled.transformer_.transform(Y[100:, None])[:, 0]
    scaled.regressor_.conformalize(X[100:], units)
    model = as_estimator(scaled)
    kept = model.predict_interval(X, 0.8, conformal=True)
    again = model.conformalize(X[100:], Y[100:]).predict_interval(X, 0.8, conformal=True)
    np.testing.assert_allclose(kept, again, rtol=1e-6)


def test_it_is_an_estimator_itself():
    pipeline = make_pipeline(PCA(2), quadratic())
    scaled = TransformedTargetRegressor(pipeline, transformer=StandardScaler()).fit(X, Y)
    model = as_estimator(scaled)
    again = clone(model)
    with pytest.raises(NotFittedError):
        again.predict(X)
    again.fit(X, Y, X_unlabeled=X, y_marginal=Y)
    assert again.estimator_.estimator_.construction_ == 4
    np.testing.assert_allclose(clone(model).fit(X, Y).predict(X), model.predict(X))
    assert (cross_val_score(clone(model), X, Y, cv=3) > -5).all()
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))


def test_names_of_features():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = as_estimator(make_pipeline(StandardScaler(), quadratic()).fit(table, Y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    model.fit(X, Y)
    assert not hasattr(model, "feature_names_in_")


def test_weights_and_a_fit_that_fails():
    model = as_estimator(make_pipeline(StandardScaler(), quadratic()).fit(X, Y))
    before = model.predict(X)
    with pytest.raises(ValueError, match="y contains NaN"):
        model.fit(X[:, :2], np.full(200, np.nan))
    np.testing.assert_array_equal(model.predict(X), before)
    weight = np.where(np.arange(200) < 150, 1.0, 0.0)
    # The scaler does not see the weights, which changes units and no answer.
    np.testing.assert_allclose(
        model.fit(X, Y, weight).predict(X), quadratic().fit(X[:150], Y[:150]).predict(X), rtol=1e-3
    )


@pytest.mark.parametrize(
    ("fitted", "message"),
    [
        (lambda: LinearRegression().fit(X, Y), "estimator of mcdensity .* got LinearRegression"),
        (lambda: make_pipeline(PCA(2), LinearRegression()).fit(X, Y), "got LinearRegression"),
        (lambda: "mcd", "got str"),
        (lambda: make_pipeline(PCA(2), quadratic()), "Pipeline instance is not fitted yet"),
        (lambda: quadratic(), "MCD instance is not fitted yet"),
        (lambda: TransformedTargetRegressor(quadratic()), "is not fitted yet"),
        (
            lambda: GridSearchCV(quadratic(), {"ratio": [0.05]}, cv=2, refit=False).fit(X, Y),
            "fitted must have a best_estimator_.*refit=True",
        ),
        (
            lambda: TransformedTargetRegressor(quadratic(), transformer=PowerTransformer()).fit(
                X, Y
            ),
            "y is a PowerTransformer, and only a shift and a scale.*standardise y themselves",
        ),
        (
            lambda: TransformedTargetRegressor(
                quadratic(), func=np.cbrt, inverse_func=lambda v: v**3
            ).fit(X, Y),
            "y is a FunctionTransformer",
        ),
    ],
)
def test_what_is_refused(fitted, message):
    with pytest.raises((TypeError, ValueError), match=message):
        as_estimator(fitted())


def test_transformers_that_are_no_scale_are_refused_before_learning():
    model = PreparedEstimator(quadratic(), target_transformer=FunctionTransformer(np.exp))
    with pytest.raises(TypeError, match="FunctionTransformer, and only a shift"):
        model.fit(X, Y)


def test_model_files(tmp_path):
    pytest.importorskip("skops")
    from mcdensity import load, save

    pipeline = make_pipeline(StandardScaler(), PCA(2), quadratic())
    scaled = TransformedTargetRegressor(pipeline, transformer=StandardScaler()).fit(X, Y)
    model = as_estimator(scaled)
    save(model, tmp_path / "model.mcd")
    again = load(tmp_path / "model.mcd")
    np.testing.assert_array_equal(again.predict_quantiles(X), model.predict_quantiles(X))
