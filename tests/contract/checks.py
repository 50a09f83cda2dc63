"""What must hold for every estimator: checks of a fitted one, and checks that fit it again."""

import pickle
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone

CHECKS_OF_FITTED, CHECKS_OF_FITTING = [], []


def data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = 50 + 10 * (X[:, 0] + 0.5 * rng.standard_t(5, size=n))
    return X, y


NEW_ROWS = data(seed=1)[0][:7]
# One estimator is fitted once to the data above, and shared by the checks.
fitted_once = cache(lambda estimator: clone(estimator).fit(*data()))


def of_fitted(check):
    CHECKS_OF_FITTED.append(check)
    return check


def of_fitting(check):
    CHECKS_OF_FITTING.append(check)
    return check


def check_everything(estimator):
    """Run all checks on one estimator."""
    for check in (*CHECKS_OF_FITTED, *CHECKS_OF_FITTING):
        check(estimator)


@of_fitted
def density_integrates_to_one(estimator):
    grid = np.linspace(-150, 250, 40_001)
    density = fitted_once(estimator).pdf_from_X(NEW_ROWS, grid)
    assert density.shape == (7, 40_001)
    assert (density >= 0).all()
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=1), 1, atol=1e-3)


@of_fitted
def cdf_is_the_integral_of_the_density(estimator):
    grid = np.linspace(-150, 250, 40_001)
    distribution = fitted_once(estimator).predict_distribution(NEW_ROWS)
    density = distribution.pdf_grid(grid)
    integral = np.cumsum((density[:, 1:] + density[:, :-1]) / 2, axis=1) * (grid[1] - grid[0])
    np.testing.assert_allclose(distribution.cdf_grid(grid[1:]), integral, atol=1e-3)
    np.testing.assert_allclose(distribution.sf(60) + distribution.cdf(60), 1, atol=1e-12)


@of_fitted
def quantiles_invert_the_cdf(estimator):
    fitted = fitted_once(estimator)
    distribution = fitted.predict_distribution(NEW_ROWS)
    y = np.random.default_rng(2).uniform(30, 70, size=(7, 20))
    back = distribution.ppf(distribution.cdf(y))
    np.testing.assert_allclose(back, y, atol=1e-3 * distribution.std().min())
    quantiles = fitted.predict_quantiles(NEW_ROWS, (0.05, 0.25, 0.5, 0.75, 0.95))
    assert quantiles.shape == (7, 5)
    assert (np.diff(quantiles, axis=1) > 0).all()


@of_fitted
def shorthands_agree_with_the_distribution(estimator):
    fitted = fitted_once(estimator)
    distribution = fitted.predict_distribution(NEW_ROWS)
    y = np.linspace(40, 60, 7)
    assert len(distribution) == 7
    np.testing.assert_allclose(fitted.logpdf(NEW_ROWS, y), distribution.logpdf(y))
    np.testing.assert_allclose(fitted.pdf_from_X(NEW_ROWS, y), distribution.pdf_grid(y))
    np.testing.assert_allclose(fitted.predict(NEW_ROWS), distribution.mean())
    np.testing.assert_allclose(fitted.predict_var(NEW_ROWS), distribution.var())
    np.testing.assert_allclose(fitted.predict_interval(NEW_ROWS, 0.8), distribution.interval(0.8))
    np.testing.assert_allclose(fitted.predict_quantiles(NEW_ROWS, 0.3)[:, 0], distribution.ppf(0.3))
    np.testing.assert_allclose(
        fitted.sample(NEW_ROWS, 5, random_state=3), distribution.sample(5, random_state=3)
    )
    assert fitted.score(NEW_ROWS, y) == pytest.approx(fitted.logpdf(NEW_ROWS, y).mean())


def answers(fitted, X, y):
    """All that can be asked about rows, one array with an entry per row each."""
    d = fitted.predict_distribution(X)
    grid = np.linspace(20, 80, 5)
    region = [np.array([np.ptp(r), len(r)]) for r in d.hpd(0.9)]
    return {
        "logpdf": fitted.logpdf(X, y),
        "pdf_from_X": fitted.pdf_from_X(X, grid),
        "predict": fitted.predict(X),
        "predict_quantiles": fitted.predict_quantiles(X, (0.01, 0.5, 0.99)),
        "predict_interval": fitted.predict_interval(X, 0.8),
        "predict_var": fitted.predict_var(X),
        "cdf": d.cdf(y),
        "sf": d.sf(y),
        "skewness": d.skewness(),
        "kurtosis": d.kurtosis(),
        "entropy": d.entropy(),
        "mode": d.mode(),
        "hpd": np.array(region),
        "hpd_level": d.hpd_level(y),
    }


@of_fitted
def rows_do_not_depend_on_each_other(estimator):
    fitted, y = fitted_once(estimator), np.linspace(40, 60, 7)
    together = answers(fitted, NEW_ROWS, y)
    alone = [answers(fitted, NEW_ROWS[i : i + 1], y[i : i + 1]) for i in range(7)]
    for name, value in together.items():
        parts = np.concatenate([a[name] for a in alone])
        np.testing.assert_allclose(parts, value, rtol=1e-10, atol=1e-12, err_msg=name)


@of_fitted
def log_density_is_finite_far_away(estimator):
    y = np.array([-1e6, -1e3, 0, 50, 1e3, 1e6, 1e8])
    fitted = fitted_once(estimator)
    low, high = getattr(fitted, "support_", (-np.inf, np.inf))
    inside = (y >= low) & (y <= high)
    value = fitted.logpdf(NEW_ROWS, y)
    assert np.isfinite(value[inside]).all()
    assert (value[~inside] == -np.inf).all()


@of_fitted
def pickled_and_back(estimator):
    fitted = fitted_once(estimator)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(
        again.predict_quantiles(NEW_ROWS), fitted.predict_quantiles(NEW_ROWS)
    )


# Checks that fit the estimator again.


@of_fitting
def same_seed_same_numbers(estimator):
    again = clone(estimator).fit(*data()).predict_quantiles(NEW_ROWS)
    np.testing.assert_array_equal(again, fitted_once(estimator).predict_quantiles(NEW_ROWS))


@of_fitting
def units_of_y(estimator):
    X, y = data()
    # Natural bounds, such as 0, depend on the units.
    bounds = [name for name in estimator.get_params() if name.rpartition("__")[2] == "support"]
    estimator = clone(estimator).set_params(**dict.fromkeys(bounds, (None, None)))
    plain = (clone(estimator).fit(X, y) if bounds else fitted_once(estimator)).predict_quantiles(
        NEW_ROWS
    )
    for factor, shift in ((1e-6, 0.0), (1e6, -3e6)):
        scaled = clone(estimator).fit(X, factor * y + shift)
        quantiles = (scaled.predict_quantiles(NEW_ROWS) - shift) / factor
        np.testing.assert_allclose(quantiles, plain, rtol=2e-3)


@of_fitting
def equal_weights_are_no_weights(estimator):
    X, y = data()
    equal = clone(estimator).fit(X, y, sample_weight=np.full(len(y), 2.5))
    np.testing.assert_array_equal(
        equal.predict_quantiles(NEW_ROWS), fitted_once(estimator).predict_quantiles(NEW_ROWS)
    )


@of_fitting
def weight_zero_is_the_row_left_out(estimator):
    X, y = data()
    weight = np.random.default_rng(4).uniform(0.5, 2, size=len(y))
    weight[:20] = 0
    left_out = clone(estimator).fit(X[20:], y[20:], sample_weight=weight[20:])
    weighted = clone(estimator).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(
        weighted.predict_quantiles(NEW_ROWS), left_out.predict_quantiles(NEW_ROWS)
    )


@of_fitting
def constant_columns_and_duplicated_rows(estimator):
    X, y = data(60)
    X = np.column_stack([X, np.full(len(X), 7.0)])
    model = clone(estimator).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    assert np.isfinite(model.predict_quantiles(X[:3])).all()


@of_fitting
def all_columns_constant(estimator):
    X, y = data(60)
    if getattr(estimator, "refuses_constants", False):
        with pytest.raises(ValueError, match="No column is left to learn from"):
            clone(estimator).fit(np.ones_like(X), y)
        return
    model = clone(estimator).fit(np.ones_like(X), y)
    assert np.isfinite(model.logpdf(np.ones((3, 3)), y[:3])).all()


@of_fitting
def feature_names_are_kept(estimator):
    pandas = pytest.importorskip("pandas")
    X, y = data(60)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = clone(estimator).fit(frame, pandas.Series(y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"feature names|columns"):
        model.predict(frame[["b", "a", "c"]].rename(columns={"b": "d"}))
