"""What must hold for every estimator of the package."""

import pickle

import numpy as np
import pytest
from estimators import ESTIMATORS as QUICK
from estimators import FULL
from sklearn.base import clone

pytestmark = pytest.mark.filterwarnings("ignore:ratio=:UserWarning")


def data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = 50 + 10 * (X[:, 0] + 0.5 * rng.standard_t(5, size=n))
    return X, y


ESTIMATORS = QUICK | FULL
PARAMS = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in FULL)]


@pytest.fixture(scope="module", params=PARAMS, ids=str)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def fitted(name):
    return clone(ESTIMATORS[name]).fit(*data())


@pytest.fixture(scope="module")
def new_rows():
    return data(seed=1)[0][:7]


def test_density_integrates_to_one(fitted, new_rows):
    grid = np.linspace(-150, 250, 40_001)
    density = fitted.pdf_from_X(new_rows, grid)
    assert density.shape == (7, 40_001)
    assert (density >= 0).all()
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=1), 1, atol=1e-3)


def test_cdf_is_the_integral_of_the_density(fitted, new_rows):
    grid = np.linspace(-150, 250, 40_001)
    distribution = fitted.predict_distribution(new_rows)
    density = distribution.pdf_grid(grid)
    integral = np.cumsum((density[:, 1:] + density[:, :-1]) / 2, axis=1) * (grid[1] - grid[0])
    np.testing.assert_allclose(distribution.cdf_grid(grid[1:]), integral, atol=1e-3)
    np.testing.assert_allclose(distribution.sf(60) + distribution.cdf(60), 1, atol=1e-12)


def test_quantiles_invert_the_cdf(fitted, new_rows):
    distribution = fitted.predict_distribution(new_rows)
    y = np.random.default_rng(2).uniform(30, 70, size=(7, 20))
    back = distribution.ppf(distribution.cdf(y))
    np.testing.assert_allclose(back, y, atol=1e-3 * distribution.std().min())
    quantiles = fitted.predict_quantiles(new_rows, (0.05, 0.25, 0.5, 0.75, 0.95))
    assert quantiles.shape == (7, 5)
    assert (np.diff(quantiles, axis=1) > 0).all()


def test_shorthands_agree_with_the_distribution(fitted, new_rows):
    distribution = fitted.predict_distribution(new_rows)
    y = np.linspace(40, 60, 7)
    assert len(distribution) == 7
    np.testing.assert_allclose(fitted.logpdf(new_rows, y), distribution.logpdf(y))
    np.testing.assert_allclose(fitted.pdf_from_X(new_rows, y), distribution.pdf_grid(y))
    np.testing.assert_allclose(fitted.predict(new_rows), distribution.mean())
    np.testing.assert_allclose(fitted.predict_var(new_rows), distribution.var())
    np.testing.assert_allclose(fitted.predict_interval(new_rows, 0.8), distribution.interval(0.8))
    np.testing.assert_allclose(fitted.predict_quantiles(new_rows, 0.3)[:, 0], distribution.ppf(0.3))
    np.testing.assert_allclose(
        fitted.sample(new_rows, 5, random_state=3), distribution.sample(5, random_state=3)
    )
    assert fitted.score(new_rows, y) == pytest.approx(fitted.logpdf(new_rows, y).mean())


def test_rows_do_not_depend_on_each_other(fitted, new_rows):
    y = np.linspace(40, 60, 7)
    together = fitted.logpdf(new_rows, y)
    alone = np.concatenate([fitted.logpdf(new_rows[i : i + 1], y[i : i + 1]) for i in range(7)])
    # Up to the order in which matrix products are summed.
    np.testing.assert_allclose(together, alone, atol=2e-5)


def test_blocks_change_nothing(fitted, new_rows, monkeypatch):
    import mcdensity.estimator as module

    before = fitted.predict_quantiles(new_rows), fitted.predict_distribution(new_rows).mean()
    monkeypatch.setattr(module, "_BLOCK", 1)
    after = fitted.predict_quantiles(new_rows), fitted.predict_distribution(new_rows).mean()
    np.testing.assert_allclose(before[0], after[0], rtol=1e-5)
    np.testing.assert_allclose(before[1], after[1], rtol=1e-5)


def test_log_density_is_finite_far_away(fitted, new_rows):
    y = np.array([-1e6, -1e3, 0, 50, 1e3, 1e6, 1e8])
    assert np.isfinite(fitted.logpdf(new_rows, y)).all()


def test_same_seed_same_numbers(name, new_rows):
    X, y = data()
    first, second = (
        clone(ESTIMATORS[name]).fit(X, y).predict_quantiles(new_rows, 0.4) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_units_of_y(name, new_rows):
    X, y = data()
    plain = clone(ESTIMATORS[name]).fit(X, y)
    for factor, shift in ((1e-6, 0.0), (1e6, -3e6)):
        scaled = clone(ESTIMATORS[name]).fit(X, factor * y + shift)
        quantiles = (scaled.predict_quantiles(new_rows) - shift) / factor
        np.testing.assert_allclose(quantiles, plain.predict_quantiles(new_rows), rtol=2e-3)


def test_equal_weights_are_no_weights(name, new_rows):
    X, y = data()
    plain = clone(ESTIMATORS[name]).fit(X, y).predict_quantiles(new_rows)
    equal = clone(ESTIMATORS[name]).fit(X, y, sample_weight=np.full(len(y), 2.5))
    np.testing.assert_array_equal(equal.predict_quantiles(new_rows), plain)


def test_weight_zero_is_the_row_left_out(name, new_rows):
    X, y = data()
    weight = np.random.default_rng(4).uniform(0.5, 2, size=len(y))
    weight[:20] = 0
    left_out = clone(ESTIMATORS[name]).fit(X[20:], y[20:], sample_weight=weight[20:])
    weighted = clone(ESTIMATORS[name]).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(
        weighted.predict_quantiles(new_rows), left_out.predict_quantiles(new_rows)
    )


def test_pickle(fitted, new_rows):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(
        again.predict_quantiles(new_rows), fitted.predict_quantiles(new_rows)
    )


def test_constant_columns_and_duplicated_rows(name):
    X, y = data()
    X = np.column_stack([X, np.full(len(X), 7.0)])
    model = clone(ESTIMATORS[name]).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    assert np.isfinite(model.predict_quantiles(X[:3])).all()


def test_all_columns_constant(name):
    X, y = data()
    model = clone(ESTIMATORS[name]).fit(np.ones_like(X), y)
    assert np.isfinite(model.logpdf(np.ones((3, 3)), y[:3])).all()


def test_feature_names(name):
    pandas = pytest.importorskip("pandas")
    X, y = data()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = clone(ESTIMATORS[name]).fit(frame, pandas.Series(y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a", "c"]])
