"""What estimators accept, what they refuse, and what the refusal says."""

import datetime
import decimal
import re

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from mcdensity import MCD
from mcdensity._inputs import location_and_scale
from mcdensity.baselines import get_estimator
from mcdensity.simulators import Oracle, get_simulator


def data(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + 0.5 * rng.normal(size=n)


def quadratic():
    return MCD("quadratic", random_state=0)


@pytest.fixture(scope="module")
def fitted():
    return quadratic().fit(*data())


# A fit that fails.


class Failing(LogisticRegression):
    """Fails to learn when told so."""

    def __init__(self, fails=True):
        super().__init__()
        self.fails = fails

    def fit(self, X, y, sample_weight=None):
        if self.fails:
            raise RuntimeError("nothing learned")
        return super().fit(X, y, sample_weight)


def test_a_first_fit_that_fails_leaves_nothing():
    X, y = data()
    model = MCD(Failing(), random_state=0)
    with pytest.raises(RuntimeError, match="nothing learned"):
        model.fit(X, y)
    assert not [name for name in vars(model) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_later_fit_that_fails_leaves_all_as_it_was():
    X, y = data()
    model = MCD(Failing(fails=False), random_state=0).fit(X, y)
    before, state = model.predict_quantiles(X), dict(vars(model))
    model.discriminator.fails = True
    with pytest.raises(RuntimeError, match="nothing learned"):
        model.fit(np.column_stack([X, X]), 100 * y)
    assert vars(model) == state
    np.testing.assert_array_equal(model.predict_quantiles(X), before)
    with pytest.raises(ValueError, match="y is constant"):
        model.fit(X[:, :1], np.ones(len(X)))
    np.testing.assert_array_equal(model.predict_quantiles(X), before)


# Masked arrays.


@pytest.mark.parametrize("name", ["X", "y", "sample_weight", "y_marginal", "X_unlabeled", "groups"])
def test_masked_entries_are_refused(name):
    X, y = data()
    arguments = {"X": X, "y": y, "sample_weight": np.ones(80), "y_marginal": y, "X_unlabeled": X,
                 "groups": np.arange(80)}  # fmt: skip
    values = np.asarray(arguments[name])
    mask = np.zeros(values.shape, dtype=bool)
    plain = np.ma.MaskedArray(values, mask)
    quadratic().fit(**arguments | {name: plain})
    mask[:20] = True
    masked = np.ma.MaskedArray(np.where(mask, 1e6, values), mask)
    advice = "filled" if name.startswith("X") else "leave these rows out"
    with pytest.raises(ValueError, match=f"^{name} is a masked array with .* masked .*{advice}"):
        quadratic().fit(**arguments | {name: masked})


def test_masked_entries_are_refused_when_predicting(fitted):
    X, y = data()
    with pytest.raises(ValueError, match=r"^X is a masked array with 160 masked"):
        fitted.predict(np.ma.masked_less(X, 10))
    with pytest.raises(ValueError, match=r"^y is a masked array with 80 masked"):
        fitted.score(X, np.ma.masked_less(y, 10))


# Kinds of values.

DAYS = np.arange("2020-01-01", "2020-03-21", dtype="datetime64[D]")
KINDS = [
    (DAYS, "holds dates; turn them into numbers"),
    (list(DAYS.astype(object)), "holds dates; turn them into numbers"),
    (DAYS - DAYS[0], "holds durations .*np.timedelta64"),
    (list((DAYS - DAYS[0]).astype(object)), "holds durations"),
    (np.arange(80) + 1j, "holds complex numbers.*real part"),
    ([1j] * 80, "holds complex numbers"),
    (np.array([b"1"] * 80), "holds bytes; decode them"),
    ([b"1", 2.0] * 40, "holds bytes"),
    (np.zeros(80, dtype=[("a", float)]), "holds records"),
]


@pytest.mark.parametrize(("values", "message"), KINDS)
def test_kinds_of_targets_that_are_refused(values, message, fitted):
    X, y = data()
    with pytest.raises((TypeError, ValueError), match=f"^y {message}"):
        quadratic().fit(X, values)
    with pytest.raises((TypeError, ValueError), match=f"^y {message}"):
        fitted.logpdf(X, values)
    with pytest.raises((TypeError, ValueError), match=f"^y_marginal {message}"):
        quadratic().fit(X, y, y_marginal=values)
    with pytest.raises((TypeError, ValueError), match=f"^sample_weight {message}"):
        quadratic().fit(X, y, sample_weight=values)


@pytest.mark.parametrize(("values", "message"), KINDS)
def test_kinds_of_features_that_are_refused(values, message):
    _, y = data()
    X = np.column_stack([values, values]) if isinstance(values, np.ndarray) else values
    X = X if isinstance(X, np.ndarray) else [[value, value] for value in values]
    with pytest.raises((TypeError, ValueError), match=f"^X {message}"):
        quadratic().fit(X, y)


def test_columns_of_tables_are_named():
    pandas = pytest.importorskip("pandas")
    X, y = data()
    days = pandas.Series(DAYS)
    for column, message in (
        (days, "X holds dates.*the column 'when'"),
        (days.dt.tz_localize("UTC"), "X holds dates.*the column 'when'"),
        (days - days[0], "X holds durations.*the column 'when'"),
        (days.map(lambda d: d.date()), "X holds dates.*the column 'when'"),
    ):
        with pytest.raises(TypeError, match=message):
            quadratic().fit(pandas.DataFrame({"a": X[:, 0], "when": column}), y)
        with pytest.raises(TypeError, match="y holds d"):
            quadratic().fit(X, column)


def test_text_is_referred_to_the_table_estimator():
    pandas = pytest.importorskip("pandas")
    X, y = data()
    for kind in (object, "category", "string"):
        frame = pandas.DataFrame({"a": X[:, 0], "kind": pandas.Series(["u", "v"] * 40, dtype=kind)})
        with pytest.raises(ValueError, match=r"X holds text .*mcdensity\.TableEstimator takes"):
            quadratic().fit(frame, y)


def test_other_objects():
    X, y = data()
    with pytest.raises(TypeError, match="X holds values that are not numbers"):
        quadratic().fit([[object(), 1.0]] * 80, y)
    with pytest.raises(TypeError, match=r"y holds other values .*must hold numbers"):
        quadratic().fit(X, [object()] * 80)
    with pytest.raises(ValueError, match="y holds other values"):
        quadratic().fit(X, [[1.0], [1.0, 2.0]] * 40)
    with pytest.raises(ValueError, match="y holds other values"):
        quadratic().fit(X, [10**400] * 80)


def test_numbers_in_other_clothes():
    pandas = pytest.importorskip("pandas")
    X, y = data()
    y = y.round(3)
    expected = quadratic().fit(X, y).predict(X)
    for values in (
        [str(value) for value in y],
        [decimal.Decimal(str(value)) for value in y],
        pandas.Series(y, dtype="Float64"),
        pandas.Series(y, dtype=object),
    ):
        np.testing.assert_array_equal(quadratic().fit(X, values).predict(X), expected)
    with pytest.raises(ValueError, match="y contains NaN or infinity in 1 of 80 rows"):
        quadratic().fit(X, pandas.Series([None, *y[1:]], dtype="Float64"))


# Range of the targets.


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (lambda y: 1e300 * y, r"y has absolute values up to .*must not exceed 1e\+150.*Divide y"),
        (lambda y: 1e-200 * y, "y has a spread .* at least 1e-150.*Multiply y"),
        (lambda y: 1 + 1e-16 * y, "y has a spread .*rounding error"),
    ],
)
def test_targets_out_of_range(y, message):
    X, targets = data()
    with pytest.raises(ValueError, match=message):
        quadratic().fit(X, y(targets))


@pytest.mark.parametrize("factor", [1e148, 1e-148])
def test_targets_within_range(factor, fitted):
    X, y = data()
    model = quadratic().fit(X, factor * y)
    np.testing.assert_allclose(model.predict_quantiles(X) / factor, fitted.predict_quantiles(X))
    np.testing.assert_allclose(
        model.predict_var(X) / factor / factor, fitted.predict_var(X), rtol=1e-6
    )


# Arguments of the methods.

X80, Y80 = data()
BAD_CALLS = [
    ("predict_interval", (X80, "a"), "coverage must lie strictly between 0 and 1, got 'a'. Give"),
    ("predict_interval", (X80, None), "coverage must lie strictly between 0 and 1"),
    ("predict_interval", (X80, [0.5, 0.9]), "coverage must lie .*one number"),
    ("predict_interval", (X80, np.nan), "coverage must lie"),
    ("predict_interval", (X80, 0.9, "yes"), "conformal must be True or False, got 'yes'"),
    ("predict_interval", (X80, 0.9, 1), "conformal must be True or False"),
    ("predict_quantiles", (X80, "a"), "quantiles must lie strictly between 0 and 1, got 'a'. Give"),
    ("predict_quantiles", (X80, []), "quantiles is empty; give at least one"),
    ("predict_quantiles", (X80, [[0.1], [0.2]]), "quantiles must lie .*list such as"),
    ("predict_quantiles", (X80, [0.5, np.nan]), "quantiles must lie"),
    ("pdf_from_X", (X80, []), "y_grid is empty; give at least one value of y"),
    ("pdf_from_X", (X80, "a"), "y_grid holds text"),
    ("sample", (X80, 0), "n_samples must be an integer of at least 1, got 0"),
    ("sample", (X80, -1), "n_samples must be an integer of at least 1, got -1"),
    ("sample", (X80, 1.5), "n_samples must be an integer of at least 1, got 1.5"),
    ("sample", (X80, "a"), "n_samples must be an integer of at least 1, got 'a'"),
    (
        "score",
        (X80, Y80[:5]),
        r"y must have one value per row of X, shape \(80,\), got shape \(5,\)",
    ),
    ("score", (X80, np.ones((40, 2))), r"y must have one value per row .*got shape \(40, 2\)"),
    ("logpdf", (X80, Y80[:5]), "y must have one value per row of X.*pdf_from_X"),
    ("conformalize", (X80, Y80[:5]), "y must have one value per row of X"),
    ("score", (X80, Y80, ["a"] * 80), "sample_weight holds text .*must hold numbers"),
    ("fit", (X80, Y80, ["a"] * 80), "sample_weight holds text .*must hold numbers"),
    ("fit", (X80, Y80, [None] * 80), "sample_weight must be finite"),
]


@pytest.mark.parametrize(("method", "arguments", "message"), BAD_CALLS)
def test_messages_name_the_argument(method, arguments, message, fitted):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        getattr(fitted, method)(*arguments)


def test_arguments_of_numpy_types(fitted):
    X, y = data(5)
    expected = fitted.predict_interval(X, 0.8)
    np.testing.assert_array_equal(fitted.predict_interval(X, np.array(0.8), np.False_), expected)
    assert fitted.sample(X, np.int64(3), random_state=0).shape == (5, 3)
    assert fitted.score(X, y[:, None]) == fitted.score(X, y)


# Missing values.


def with_holes(X, share=0.3, seed=5):
    holes = np.random.default_rng(seed).random(len(X)) < share
    return np.column_stack([np.where(holes, np.nan, X[:, 0]), X[:, 1]]), holes


@pytest.mark.parametrize("name", ["nnkcde", "marginal", "lscde"])
def test_missing_values_are_means_and_indicators(name):
    """As if the caller had given standardised columns, and an indicator, of their own."""
    X, y = data()
    X, holes = with_holes(X)
    model = get_estimator(name).fit(X, y)
    assert model.missing_columns_ == [0]
    assert model.n_features_in_ == 2
    mean, scale = np.nanmean(X[:, 0]), np.nanstd(X[:, 0])
    expected = np.column_stack(
        [np.where(holes, 0, (X[:, 0] - mean) / scale), (X[:, 1] - X[:, 1].mean()) / X[:, 1].std()]
    )
    np.testing.assert_allclose(model._check_predict(X), np.column_stack([expected, holes]))
    assert np.isfinite(model.predict(X)).all()


def test_a_missing_value_can_tell():
    """Where values are missing because y is large, the indicator carries the news."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    X = np.where(y > 0.5, np.nan, rng.normal(size=400))[:, None]
    model = quadratic().fit(X, y)
    missing, known = model.predict([[np.nan], [0.0]])
    assert missing > 0.9
    assert known < 0


def test_holes_that_training_did_not_have_are_means(fitted):
    X, _ = data()
    assert fitted.missing_columns_ == []
    mean = X.mean(axis=0)
    np.testing.assert_allclose(
        fitted.predict_quantiles([[np.nan, 0.3], [np.nan, np.nan]]),
        fitted.predict_quantiles([[mean[0], 0.3], mean]),
    )


def test_a_column_without_values_tells_nothing(fitted):
    X, y = data()
    empty = np.column_stack([X, np.full(len(X), np.nan)])
    model = quadratic().fit(empty, y)
    assert model.missing_columns_ == []
    wild = np.column_stack([X, np.linspace(-1e6, 1e6, len(X))])
    np.testing.assert_array_equal(model.predict(wild), model.predict(empty))
    # All columns may be so.
    nothing = quadratic().fit(np.full((80, 2), np.nan), y)
    assert np.isfinite(nothing.predict_quantiles(X)).all()


def test_a_row_of_weight_zero_has_no_holes():
    X, y = data()
    X[0, 0] = np.nan
    weight = np.ones(len(y))
    weight[0] = 0
    model = quadratic().fit(X, y, weight)
    assert model.missing_columns_ == []
    left_out = quadratic().fit(X[1:], y[1:])
    np.testing.assert_array_equal(model.predict(X), left_out.predict(X))


def test_missing_values_elsewhere():
    X, y = data()
    holes, _ = with_holes(X)
    assert np.isfinite(quadratic().fit(X, y, X_unlabeled=holes).predict(X)).all()
    assert np.isfinite(quadratic().fit(holes, y, X_unlabeled=holes).predict(X)).all()
    with pytest.raises(ValueError, match="X contains infinity"):
        quadratic().fit(np.where(np.isnan(holes), np.inf, holes), y)
    for model in (MCD(), quadratic(), get_estimator("mdn"), get_estimator("marginal")):
        assert model.__sklearn_tags__().input_tags.allow_nan


def test_missing_values_reach_a_learner_that_takes_them():
    X, y = data()
    holes, _ = with_holes(X)
    model = MCD("hist-gradient-boosting", random_state=0).fit(holes, y)
    assert model.missing_columns_ is None
    assert np.isnan(model._check_predict(holes)).any()
    # What was learned goes by the fit, not by parameters that changed since.
    model.set_params(discriminator="quadratic")
    assert np.isnan(model._check_predict(holes)).any()


def test_the_default_takes_missing_values():
    X, y = data(60)
    holes, _ = with_holes(X)
    portfolio = {"portfolio": ("quadratic", "hist-gradient-boosting")}
    model = MCD(discriminator_params=portfolio, random_state=0).fit(holes, y)
    assert np.isfinite(model.predict_quantiles(holes)).all()


def test_the_truth_has_no_answer_for_what_is_missing():
    simulator = get_simulator("EconDensity")
    X, y = simulator.sample(20, random_state=0)
    with pytest.raises(ValueError, match=r"X contains NaN, which Oracle cannot take. Impute"):
        Oracle(simulator).fit(X, y).predict([[np.nan]])


def test_location_and_scale_of_an_empty_column():
    mean, scale = location_and_scale(np.array([[1.0, np.nan], [3.0, np.nan]]), None)
    np.testing.assert_array_equal(mean, [2, 0])
    np.testing.assert_array_equal(scale, [1, np.inf])


# Tables of other libraries.


class Frame:
    """A table of another library: what `MCD` may rely on is its way to pandas."""

    def __init__(self, table):
        self.table = table

    @property
    def columns(self):
        return list(self.table.columns)

    def to_pandas(self):
        return self.table


class ArrowFrame:
    def __init__(self, table):
        self.table = table

    column_names = ("a", "b")

    def __arrow_c_stream__(self, requested_schema=None):
        import pyarrow

        return pyarrow.Table.from_pandas(self.table).__arrow_c_stream__(requested_schema)


class InterchangeFrame:
    def __init__(self, table):
        self.table = table

    def __dataframe__(self, nan_as_null=False, allow_copy=True):
        return self.table.__dataframe__(nan_as_null, allow_copy)


@pytest.mark.filterwarnings("ignore:.*[Ii]nterchange")
@pytest.mark.parametrize("kind", [Frame, ArrowFrame, InterchangeFrame])
def test_tables_of_other_libraries(kind):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    X, y = data()
    table = pandas.DataFrame(X, columns=["a", "b"])
    model = quadratic().fit(kind(table), y)
    assert list(model.feature_names_in_) == ["a", "b"]
    np.testing.assert_array_equal(model.predict(kind(table)), quadratic().fit(X, y).predict(X))
    swapped = table.rename(columns={"a": "b", "b": "a"})
    with pytest.raises(ValueError, match="feature names"):
        model.predict(Frame(swapped))
    with pytest.raises(TypeError, match=r"X holds dates.*'a'"):
        quadratic().fit(kind(table.assign(a=DAYS.astype("datetime64[ns]"))), y)


def test_polars():
    polars = pytest.importorskip("polars")
    X, y = data()
    table = polars.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    model = quadratic().fit(table, polars.Series("target", y))
    assert list(model.feature_names_in_) == ["a", "b"]
    np.testing.assert_array_equal(model.predict(table), quadratic().fit(X, y).predict(X))
    holes = table.with_columns(a=polars.when(polars.col("a") > 1).then(None).otherwise("a"))
    assert quadratic().fit(holes, y).missing_columns_ == [0]


def test_dates_and_times_of_python_are_dates():
    X, _ = data()
    for value in (datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), datetime.time(12)):
        with pytest.raises(TypeError, match=re.escape("y holds dates")):
            quadratic().fit(X, [value] * 80)
