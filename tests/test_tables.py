"""Tables with text and missing values, and files."""

import numpy as np
import pandas as pd
import pytest

from mcdensity import MCD, TableEstimator, load, save
from mcdensity.tables import TablePreparation, nearest, read_table, write_table

RNG = np.random.default_rng(0)


def table(n=200):
    kind = RNG.choice(["a", "b", "c"], n)
    size = RNG.normal(size=n)
    out = pd.DataFrame({"kind": kind, "size": size, "flag": RNG.random(n) < 0.5})
    out.loc[::7, "kind"] = None
    out.loc[::5, "size"] = np.nan
    y = np.where(kind == "a", 4.0, 0.0) + size + 0.5 * RNG.normal(size=n)
    return out, pd.Series(y, name="price")


def quadratic():
    return MCD("quadratic", random_state=0)


def test_preparation_makes_finite_numbers():
    X, _ = table()
    preparation = TablePreparation().fit(X)
    numbers = preparation.transform(X)
    assert np.isfinite(numbers).all()
    assert list(preparation.get_feature_names_out()) == [
        "size", "flag", "missingindicator_size", "kind_(missing)", "kind_a", "kind_b", "kind_c",
    ]  # fmt: skip
    # A missing value is the median, and said to be missing.
    missing = X["size"].isna().to_numpy()
    assert (numbers[missing, 0] == X["size"].median()).all()
    np.testing.assert_array_equal(numbers[:, 2], missing)
    np.testing.assert_array_equal(numbers[:, 3:].sum(axis=1), 1)


def test_what_was_never_seen():
    X, _ = table()
    preparation = TablePreparation().fit(X)
    new = pd.DataFrame({"kind": ["z"], "size": [1.0], "flag": [None], "more": [3]})
    with np.errstate(all="raise"):
        numbers = preparation.transform(new)
    np.testing.assert_array_equal(numbers[0, 3:], 0)
    assert np.isfinite(numbers).all()


def test_columns_that_are_left_out():
    X, _ = table()
    X["same"], X["empty"] = 1.0, np.nan
    X["name"] = [f"row number {i}" for i in range(len(X))]
    X["digits"] = [str(i) for i in range(len(X))]
    preparation = TablePreparation().fit(X)
    assert set(preparation.left_out_) == {"same", "empty", "name"}
    assert "like a name or a key" in preparation.left_out_["name"]
    assert "digits" in preparation.numbers_
    # They need not be there later.
    preparation.transform(X.drop(columns=["same", "empty", "name"]))


@pytest.mark.parametrize(
    "dates",
    [
        pd.date_range("2020-01-01", periods=4),
        ["2020-01-01", "2020-01-02", None, "2020-01-04"],
        ["1/2/2020 10:00", "3/4/2020 11:00", "5/6/2020 12:00", "7/8/2020 13:00"],
    ],
    ids=["dates", "text", "times"],
)
def test_dates_are_refused_with_advice(dates):
    with pytest.raises(ValueError, match=r"'when' holds dates.*elapsed"):
        TablePreparation().fit(pd.DataFrame({"when": dates, "x": range(4)}))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (pd.DataFrame({"size": [1.0]}), "lacks columns .*'kind', 'flag'"),
        (pd.DataFrame({"Kind": ["a"], "size": [1.0], "flag": [0]}), "did you mean 'Kind'"),
        (pd.DataFrame({"kind": ["a"], "size": ["big"], "flag": [0]}), "'size' held numbers"),
        (pd.DataFrame({"kind": ["a"], "size": [np.inf], "flag": [0]}), "'size' holds infinity"),
    ],
)
def test_mistakes_in_later_tables(X, message):
    preparation = TablePreparation().fit(table()[0])
    with pytest.raises(ValueError, match=message):
        preparation.transform(X)


def test_mistakes_in_the_first_table():
    with pytest.raises(TypeError, match="must be a pandas DataFrame, got ndarray"):
        TablePreparation().fit(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="No column is left to learn from: 'a': it never changes"):
        TablePreparation().fit(pd.DataFrame({"a": [1, 1, 1]}))
    double = pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
    with pytest.raises(ValueError, match="several columns named 'a'"):
        TablePreparation().fit(double)
    with pytest.raises(ValueError, match="max_categories must be an integer of at least 2"):
        TablePreparation(max_categories=1).fit(table()[0])


def test_rare_texts_are_put_together():
    X = pd.DataFrame({"kind": ["a"] * 50 + ["b"] * 45 + list("cdefg")})
    preparation = TablePreparation(max_categories=4).fit(X)
    assert list(preparation.get_feature_names_out()) == [
        "kind_a",
        "kind_b",
        "kind_infrequent_sklearn",
    ]


def test_estimator_is_what_its_parts_are():
    X, y = table()
    model = TableEstimator(quadratic()).fit(X, y)
    inner = quadratic().fit(TablePreparation().fit_transform(X), y)
    numbers = model.preparation_.transform(X)
    grid = np.linspace(-3, 8, 50)
    np.testing.assert_array_equal(model.pdf_from_X(X, grid), inner.pdf_from_X(numbers, grid))
    np.testing.assert_array_equal(model.logpdf(X, y), inner.logpdf(numbers, y))
    np.testing.assert_array_equal(model.predict_quantiles(X), inner.predict_quantiles(numbers))
    assert model.target_ == "price"
    raw = TableEstimator(quadratic().set_params(normalize=False)).fit(X, y)
    expected = inner.set_params(normalize=False).pdf_from_X(numbers, grid)
    np.testing.assert_array_equal(raw.pdf_from_X(X, grid), expected)
    # A category tells what it should.
    new = pd.DataFrame({"kind": ["a", "b"], "size": [0.0, 0.0], "flag": [True, True]})
    np.testing.assert_allclose(model.predict(new), [4, 0], atol=0.5)


def test_unlabelled_tables_and_weights():
    X, y = table()
    model = TableEstimator(quadratic()).fit(X, y, np.ones(len(y)), X_unlabeled=X)
    assert model.estimator_.construction_ != quadratic().fit(np.eye(9), np.arange(9)).construction_
    with pytest.raises(TypeError, match="must be an estimator of mcdensity"):
        TableEstimator("mcd").fit(X, y)


def test_rows_that_were_seen_are_known():
    X, y = table(300)
    model = TableEstimator(quadratic()).fit(X[:200], y[:200])
    assert model.share_seen(X[:200], y[:200]) == 1
    assert model.share_seen(X[200:], y[200:]) == 0
    assert model.share_seen(X[100:], y[100:]) == pytest.approx(0.5)
    # Of many rows only a sketch is kept.
    big = pd.DataFrame({"x": RNG.normal(size=6000)})
    y = big["x"] + RNG.normal(size=6000)
    model = TableEstimator(quadratic()).fit(big[:5000], y[:5000])
    assert len(model.seen_) == 2000
    assert model.share_seen(big[4000:], y[4000:]) == pytest.approx(0.5, abs=0.06)


# Files.


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.parquet"])
def test_files_come_back(name, tmp_path):
    X, _ = table()
    write_table(X, tmp_path / name)
    pd.testing.assert_frame_equal(read_table(tmp_path / name), X, check_dtype=False)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_semicolons_and_decimal_commas(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1,5;x\n2,5;y\n")
    assert read_table(tmp_path / "t.csv")["a"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"a,b\n", "has no rows"),
        ("t.csv", b"a,b\n1,2\n3,4,5,6\n", "cannot be read as a table"),
        ("t.csv", b"\xff\xfe\x00a", "is not text in UTF-8"),
        ("t.parquet", b"nothing", "cannot be read as a table"),
        ("t.csv.gz", b"nothing", "cannot be read as a table"),
        ("t.xlsx", b"", "has the ending '.xlsx'; tables are read and written as .csv"),
    ],
)
def test_files_that_are_no_tables(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / name)


def test_files_that_are_not_there(tmp_path):
    (tmp_path / "table.csv").write_text("a\n1\n")
    with pytest.raises(FileNotFoundError, match=r"did you mean 'table\.csv'"):
        read_table(tmp_path / "tabel.csv")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        read_table(tmp_path)


def test_nearest():
    assert nearest("prise", ["price", "size"]) == " (did you mean 'price'?)"
    assert nearest("PRICE", ["price"]) == " (did you mean 'price'?)"
    assert nearest("xyz", ["price"]) == ""


# Tables of other libraries, and times.


class OtherFrame:
    """A table of another library, with its way to pandas."""

    def __init__(self, table):
        self.table = table
        self.columns = list(table.columns)

    def to_pandas(self):
        return self.table


def test_tables_of_other_libraries():
    X, y = table()
    model = TableEstimator(quadratic()).fit(OtherFrame(X), y)
    assert list(model.feature_names_in_) == ["kind", "size", "flag"]
    expected = TableEstimator(quadratic()).fit(X, y)
    np.testing.assert_array_equal(model.predict(OtherFrame(X)), expected.predict(X))
    assert model.share_seen(OtherFrame(X), y) == 1


def test_polars():
    polars = pytest.importorskip("polars")
    X, y = table()
    other = polars.DataFrame({name: X[name].tolist() for name in X.columns})
    model = TableEstimator(quadratic()).fit(other, polars.Series("price", y.to_numpy()))
    assert model.target_ == "price"
    expected = TableEstimator(quadratic()).fit(X, y)
    np.testing.assert_allclose(model.predict(other), expected.predict(X))


def test_durations_are_refused_with_advice():
    wait = pd.to_timedelta(np.arange(4), unit="h")
    with pytest.raises(ValueError, match=r"'wait' holds durations.*total_seconds"):
        TablePreparation().fit(pd.DataFrame({"wait": wait, "x": range(4)}))
    preparation = TablePreparation().fit(pd.DataFrame({"wait": range(4)}))
    with pytest.raises(ValueError, match="'wait' holds durations"):
        preparation.transform(pd.DataFrame({"wait": wait}))


def test_a_fit_that_fails_leaves_all_as_it_was():
    X, y = table()
    model = TableEstimator(quadratic()).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="y is constant"):
        model.fit(X[["size"]], np.ones(len(X)))
    np.testing.assert_array_equal(model.predict(X), before)


# Keys, signs for missing values, dates, levels.


def rough(n=120, seed=0):
    r = np.random.default_rng(seed)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(r.integers(0, 900, n), unit="D")
    return pd.DataFrame({
        "id": np.arange(1000, 1000 + n),
        "size": [str(v) for v in r.integers(1, 50, n)],
        "kind": r.choice(["a", "b", "?"], n),
        "day": day,
        "when": day.strftime("%d.%m.%Y"),
    })  # fmt: skip


def test_numbers_of_rows_are_left_out():
    table = rough().drop(columns=["day", "when"])
    preparation = TablePreparation().fit(table)
    assert "numbers of rows" in preparation.left_out_["id"]
    shuffled = table.sample(frac=1, random_state=0)
    assert "id" in TablePreparation().fit(shuffled).numbers_


def test_signs_are_missing_values():
    table = rough().drop(columns=["day", "when"])
    table.loc[3, "size"] = "?"
    preparation = TablePreparation().fit(table)
    assert preparation.signs_ == {"size": "?", "kind": "?"}
    assert preparation.numbers_ == ["size"]
    found = preparation.transform(table)
    assert np.isfinite(found).all()
    names = list(preparation.get_feature_names_out())
    assert found[3, names.index("missingindicator_size")] == 1
    assert "kind_?" not in names


@pytest.mark.parametrize("column", ["day", "when"])
def test_dates_become_numbers_on_request(column):
    table = rough()[["size", column]]
    with pytest.raises(ValueError, match=r"holds dates.*--dates.*--drop"):
        TablePreparation().fit(table)
    parts = ("year", "month", "weekday", "elapsed")
    preparation = TablePreparation(dates=parts).fit(table)
    assert preparation.numbers_ == ["size", *(f"{column} {part}" for part in parts)]
    assert list(preparation.feature_names_in_) == ["size", column]
    names = list(preparation.get_feature_names_out())
    found = preparation.transform(table)
    day = rough()["day"]
    np.testing.assert_array_equal(found[:, names.index(f"{column} month")], day.dt.month)
    np.testing.assert_array_equal(found[:, names.index(f"{column} weekday")], day.dt.day_of_week)
    np.testing.assert_array_equal(
        found[:, names.index(f"{column} elapsed")], (day - pd.Timestamp("2000-01-01")).dt.days
    )
    with pytest.raises(ValueError, match="dates must name some of"):
        TablePreparation(dates=("century",)).fit(table)


def test_text_targets_with_levels_are_grades(tmp_path):
    r = np.random.default_rng(0)
    x = r.normal(size=300)
    grade = np.digitize(x + 0.5 * r.normal(size=300), [-0.5, 0.8])
    levels = ["low", "medium", "high"]
    y = pd.Series(np.array(levels)[grade], name="grade")
    model = TableEstimator(MCD("quadratic", random_state=0), levels=levels)
    model.fit(pd.DataFrame({"x": x}), y)
    assert model.target_kind_ == "discrete"
    law = model.predict_distribution(pd.DataFrame({"x": [-2.0, 2.0]}))
    assert law.atoms.tolist() == [0, 1, 2]
    assert law.pmf(0.0)[0] > 0.8
    assert law.pmf(2.0)[1] > 0.8
    save(model, tmp_path / "model.mcd")
    assert load(tmp_path / "model.mcd").levels == levels
    with pytest.raises(ValueError, match="'medium', which is not among the levels"):
        model.set_params(levels=["low", "mid", "high"]).fit(pd.DataFrame({"x": x}), y)
    with pytest.raises(ValueError, match="at least three"):
        model.set_params(levels=["low", "high"]).fit(pd.DataFrame({"x": x}), y)
