"""Files beyond memory: sources, sketches, fitting, continuing, clusters."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from mcdensity import MCD, TableEstimator, fit_files, load, metrics, save
from mcdensity.data import TrainingData
from mcdensity.experts.base import FitReport
from mcdensity.streaming import training
from mcdensity.streaming.leaves import leaves_of
from mcdensity.streaming.rows import Layout
from mcdensity.streaming.shuffle import ShuffledRows
from mcdensity.streaming.sketch import ColumnSketch, FrequentValues, QuantileSketch, Sketch
from mcdensity.streaming.sources import SourceError, open_source, parse_memory
from mcdensity.streaming.training import Budget, Preparer, sketch_pieces, take_over

LINE = {"target": "continuous", "support": (None, None)}


def draw(n, seed, shift=0.0):
    """A table with text and missing values, and the log-density of its targets."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n))
    kind = rng.choice(["bike", "car", "van"], n)
    gap = rng.random(n) < 0.1
    mean = np.sin(2 * x) + np.where(kind == "van", 1.5, 0.0) + shift
    scale = 0.4 * np.exp(0.3 * np.where(gap, 1.0, z))
    y = mean + scale * rng.normal(size=n)
    table = pd.DataFrame({"id": np.arange(n) + 10 * n * seed, "x": x, "z": np.where(gap, np.nan, z),
                          "kind": kind, "y": y})  # fmt: skip
    return table, stats.norm.logpdf(y, mean, scale)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    for i in range(4):
        draw(1500, i)[0].to_parquet(path / f"{i}.parquet", row_group_size=400, index=False)
    return path


@pytest.fixture
def small(monkeypatch):
    """Stream although there are few rows."""
    monkeypatch.setattr(training, "_MOST_SAMPLE", 800)
    monkeypatch.setattr(training, "_MOST_BUFFER", 2000)
    monkeypatch.setattr("mcdensity.experts.density.streamed._WIDTHS", (32, 32))
    monkeypatch.setattr("mcdensity.experts.distilled._BUDGETS", ((0, 1000, 30),))


def quick(**more):
    portfolio = {"portfolio": ["quadratic", "mixture"]}
    return MCD(discriminator_params=portfolio, random_state=0, effort="fast", **(LINE | more))


# Sources.


def test_sources_have_the_same_rows(tmp_path, folder):
    import pyarrow.dataset as arrow_dataset
    from dask import dataframe

    whole = pd.concat([pd.read_parquet(p) for p in sorted(folder.iterdir())], ignore_index=True)
    text = tmp_path / "text"
    text.mkdir()
    whole[:2500].to_csv(text / "a.csv", index=False)
    whole[2500:].to_csv(text / "b.csv.gz", index=False)
    sources = (
        folder,
        str(folder / "*.parquet"),
        [folder / f"{i}.parquet" for i in range(4)],
        arrow_dataset.dataset(folder),
        text,
        dataframe.from_pandas(whole, npartitions=3),
    )
    for source in sources:
        opened = open_source(source)
        parts = [t for piece in opened.pieces for t in opened.read(piece, ["y", "kind"], 700)]
        assert all(len(part) <= 700 for part in parts)
        found = pd.concat(parts, ignore_index=True)
        assert list(found.columns) == ["y", "kind"]
        np.testing.assert_allclose(found["y"], whole["y"])
        assert (found["kind"].astype(str) == whole["kind"]).all()


def test_folders_may_name_columns(tmp_path):
    for month in (1, 2):
        (tmp_path / f"month={month}").mkdir()
        draw(50, month)[0].to_parquet(tmp_path / f"month={month}" / "a.parquet")
    source = open_source(tmp_path)
    months = [t["month"].iloc[0] for piece in source.pieces for t in source.read(piece)]
    assert [int(month) for month in months] == [1, 2]


def test_bad_sources_are_named(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match="data"):
        open_source(tmp_path / "dat")
    with pytest.raises(SourceError, match="No file is named like"):
        open_source(str(tmp_path / "*.csv"))
    with pytest.raises(TypeError, match="source must be"):
        open_source(3)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SourceError, match="has no files that end in"):
        open_source(empty)
    (folder / "2a.parquet").write_bytes(b"PAR1 no parquet file")
    with pytest.raises(SourceError, match=r"2a\.parquet.*skip_bad_files"):
        open_source(folder)
    draw(30, 9)[0].drop(columns="y").to_parquet(folder / "7.parquet")
    table = draw(30, 9)[0].assign(x="text")
    table.to_parquet(folder / "8.parquet")
    skipping = open_source(folder, skip_bad_files=True)
    assert [name.split("/")[-1] for name in skipping.skipped] == [
        "2a.parquet", "7.parquet", "8.parquet"
    ]  # fmt: skip
    (folder / "2a.parquet").unlink()
    with pytest.raises(SourceError, match=r"7\.parquet lacks 'y'"):
        open_source(folder)
    (folder / "7.parquet").unlink()
    with pytest.raises(SourceError, match=r"8\.parquet: the column 'x' holds text, and numbers in"):
        open_source(folder)
    (folder / "8.parquet").unlink()
    (folder / "9.csv").write_text("x,y\n1,2\n")
    with pytest.raises(SourceError, match="CSV and Parquet"):
        open_source(folder)


@pytest.mark.parametrize(
    ("text", "found"), [("2GB", 2**31), ("500 mb", 500 * 2**20), ("1.5G", 3 * 2**29), (1e6, 10**6)]
)
def test_sizes_of_memory(text, found):
    assert parse_memory(text) == found


@pytest.mark.parametrize("text", ["much", -1, "0", None, True])
def test_sizes_that_are_none(text):
    with pytest.raises(ValueError, match="memory must be a size"):
        parse_memory(text)


# Sketches.


def test_quantiles_have_a_known_error():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(size=200_000), np.full(50_000, 0.3)])
    parts = np.array_split(rng.permutation(values), 20)
    one, two = QuantileSketch(2048), QuantileSketch(2048)
    for i, part in enumerate(parts):
        (one if i % 3 else two).add(part)
    one.merge(two)
    assert one.count == len(values)
    assert 0 < one.error < 0.01
    ordered = np.sort(values)
    for level in (0.001, 0.1, 0.5, 0.9, 0.999):
        found = one.quantile(level)
        low, high = np.searchsorted(ordered, found), np.searchsorted(ordered, found, side="right")
        slack = (one.error + 1e-4) * len(values)
        assert low - slack <= level * len(values) <= high + slack


def test_frequent_values_are_found():
    rng = np.random.default_rng(0)
    counts = FrequentValues(20)
    values = np.concatenate([rng.integers(1000, 100_000, 30_000), np.repeat([1, 2, 3], 4000)])
    for part in np.array_split(rng.permutation(values), 10):
        counts.add(*np.unique(part, return_counts=True))
    top = sorted(counts.counts, key=counts.counts.get)[-3:]
    assert sorted(top) == [1, 2, 3]
    for value in top:
        assert counts.counts[value] <= 4000 <= counts.counts[value] + counts.error


def test_sketches_do_not_depend_on_who_looked(folder):
    source = open_source(folder)
    layout = Layout(("y",), ("x", "z", "kind"), seed=3)
    whole = pd.concat([pd.read_parquet(p) for p in sorted(folder.iterdir())], ignore_index=True)
    one, many = Sketch(500, 1), [Sketch(500, 1) for _ in range(3)]
    for i, piece in enumerate(source.pieces):
        for rows in layout.read(source, piece, 333 if i % 2 else 400):
            one.add(rows)
            many[i % 3].add(rows)
    first, *others = many
    for other in others:
        first.merge(other)
    for sketch in (one, first):
        assert sketch.rows == 6000
        column = sketch.columns["z"].summary()
        assert column["missing"] == whole["z"].isna().sum()
        assert column["mean"] == pytest.approx(whole["z"].mean())
        assert column["std"] == pytest.approx(whole["z"].std(ddof=0))
        assert (column["min"], column["max"]) == (whole["z"].min(), whole["z"].max())
        assert sketch.columns["kind"].texts.counts == whole["kind"].value_counts().to_dict()
        assert sketch.extremes[0, "low"].Y[0, 0] == whole["y"].min()
    a, b = one.sample.rows(), first.sample.rows()
    np.testing.assert_array_equal(a.Y, b.Y)
    pd.testing.assert_frame_equal(
        a.table.reset_index(drop=True), b.table.reset_index(drop=True), check_dtype=False
    )
    assert stats.kstest(a.key / a.key.max(), "uniform").pvalue > 0.01


def test_many_rows_without_a_target_leave_the_sample_as_large(tmp_path):
    rng = np.random.default_rng(0)
    y = np.where(rng.random(30_000) < 0.03, rng.normal(size=30_000), np.nan)
    pd.DataFrame({"x": rng.normal(size=30_000), "y": y}).to_parquet(tmp_path / "a.parquet")
    source = open_source(tmp_path)
    sketch = sketch_pieces(source, Layout(("y",), ("x",), seed=0), source.pieces, 500)
    assert sketch.rows == np.isfinite(y).sum() > 600
    assert sketch.unlabeled == 30_000 - sketch.rows
    assert len(sketch.sample.rows()) == 500


def test_small_files_are_no_numbers_of_rows():
    """Too few values to tell that a column numbers the rows do not say so."""
    rng = np.random.default_rng(0)
    few, number, neither = ColumnSketch(), ColumnSketch(), ColumnSketch()
    for i in range(5):
        few.add(pd.Series(rng.normal(size=12)))
        number.add(pd.Series(np.arange(100 * i, 100 * (i + 1))))
        neither.add(pd.Series(rng.normal(size=100)))
    assert [bool(sketch.key) for sketch in (few, number, neither)] == [False, True, False]
    few.merge(number)
    number.merge(neither)
    assert [few.key, number.key] == [True, False]


def test_shuffled_rows_are_all_rows_once(folder):
    source = open_source(folder)
    layout = Layout(("y",), ("x", "z", "kind"), seed=1)
    every = [rows for piece in source.pieces for rows in layout.read(source, piece)]
    preparer = Preparer.of(TableEstimator(quick()).fit(every[0].table, every[0].Y).preparation_,
                           every[0].table)  # fmt: skip
    kept = np.concatenate([r.Y[r.key > 0.1, 0] for r in every])

    def some(seed):
        stream = ShuffledRows(
            source, source.pieces, layout, preparer, held_out=0.1, buffer=1000, seed=seed
        )
        batches = stream.batches(100)
        found: list[float] = []
        while len(found) < 2 * len(kept):
            batch = next(batches)
            assert 50 < len(batch) < 150
            found += batch.Y[:, 0].tolist()
        batches.close()
        return np.array(found)

    found = some(5)
    np.testing.assert_array_equal(found, some(5))
    assert not np.array_equal(found, some(6))
    first = found[: len(kept)]
    np.testing.assert_array_equal(np.sort(first), np.sort(kept))
    order = np.searchsorted(np.sort(kept), kept)
    mine = np.searchsorted(np.sort(kept), first)
    assert abs(stats.spearmanr(order, mine).statistic) < 0.1


# Fitting.


def test_few_rows_give_the_model_of_memory(folder):
    whole = pd.concat([pd.read_parquet(p) for p in sorted(folder.iterdir())], ignore_index=True)
    model = MCD("quadratic", random_state=0, **LINE)
    found = fit_files(folder, "y", model, drop=["id"])
    plain = TableEstimator(model).fit(whole[["x", "z", "kind"]], whole["y"])
    new = draw(50, 77)[0]
    np.testing.assert_array_equal(found.predict_quantiles(new), plain.predict_quantiles(new))
    assert found.source_["rows"] == 6000
    assert found.source_["files"] == 4


def test_a_stream_learns_the_law(folder, small, tmp_path):
    model = fit_files(folder, "y", quick())
    again = fit_files(folder, "y", quick())
    new, truth = draw(1500, 50)
    np.testing.assert_array_equal(
        model.predict_quantiles(new[:9]), again.predict_quantiles(new[:9])
    )
    loss = truth.mean() - model.score(new, new["y"])
    assert 0 < loss < 0.1
    assert model.weights_["mixture"] > 0.5
    assert model.source_["streamed"] == ["mixture"]
    assert abs(model.source_["held_out_log_likelihood"] - model.score(new, new["y"])) < 0.1
    # Numbers of rows are no feature, although they are in no order in the sample.
    assert "whole numbers in order" in model.preparation_.left_out_["id"]
    assert model.get_params()["estimator__discriminator_params"] == quick().discriminator_params
    save(model, tmp_path / "model.mcd")
    np.testing.assert_array_equal(
        load(tmp_path / "model.mcd").predict_quantiles(new[:9]), model.predict_quantiles(new[:9])
    )
    assert model.distill(random_state=0).predict_quantiles(new[:9]).shape == (9, 3)


def test_categories_of_all_files_are_known(tmp_path, small):
    for i in range(3):
        table = draw(1200, i)[0].drop(columns="id")
        table["place"] = f"town {i}"
        table.to_csv(tmp_path / f"{i}.csv", index=False)
    model = fit_files(tmp_path, "y", quick())
    names = model.preparation_.get_feature_names_out()
    assert {f"place_town {i}" for i in range(3)} <= set(names)
    assert model.preparation_.ranges_["x"][1] > 3


def test_weights_stand_for_copies(tmp_path, small):
    table, _ = draw(4000, 0)
    table["y"] = np.where(np.arange(4000) % 2, 3.0, 0.0) + 0.3 * table["y"]
    table["w"] = np.where(np.arange(4000) % 2, 3.0, 1.0)
    table.to_parquet(tmp_path / "a.parquet", row_group_size=500)
    model = fit_files(tmp_path, "y", quick(), weight="w", drop="id")
    above = model.predict_distribution(table[:300]).sf(1.9).mean()
    assert above == pytest.approx(0.75, abs=0.05)
    assert "w" not in model.feature_names_in_


def test_several_targets_and_targets_with_atoms_stream(tmp_path, small):
    rng = np.random.default_rng(0)
    x = rng.normal(size=5000)
    a = x + rng.normal(size=5000)
    b = np.where(rng.random(5000) < 0.4, 0.0, np.exp(0.3 * a + 0.5 * rng.normal(size=5000)))
    table = pd.DataFrame({"x": x, "a": a, "b": b})
    table[:4000].to_parquet(tmp_path / "a.parquet", row_group_size=500)
    new = table[4000:]
    model = fit_files(tmp_path, "a,b", quick(target="auto", support=None))
    assert model.target_kind_ == ["continuous", "mixed"]
    assert model.source_["streamed"] == ["mixture"] * 3
    truth = stats.norm.logpdf(new["a"], new["x"]) + np.where(
        new["b"] == 0, np.log(0.4),
        np.log(0.6) + stats.lognorm.logpdf(new["b"].where(new["b"] > 0, 1.0), 0.5,
                                           scale=np.exp(0.3 * new["a"])),
    )  # fmt: skip
    assert truth.mean() - model.score(new[["x"]], new[["a", "b"]]) < 0.12


def test_counts_stream(tmp_path, small):
    rng = np.random.default_rng(0)
    x = rng.normal(size=5000)
    table = pd.DataFrame({"x": x, "y": rng.poisson(np.exp(0.5 + 0.5 * x))})
    table[:4000].to_parquet(tmp_path / "a.parquet", row_group_size=500)
    model = fit_files(tmp_path, "y", quick(target="auto", support=None))
    assert model.target_kind_ == "discrete"
    new = table[4000:]
    truth = stats.poisson.logpmf(new["y"], np.exp(0.5 + 0.5 * new["x"])).mean()
    assert truth - model.score(new[["x"]], new["y"]) < 0.05


def test_what_cannot_stream_learns_from_the_sample(folder, small):
    with pytest.warns(UserWarning, match=r"learns from a sample of 8\d\d of 6,000 rows"):
        model = fit_files(folder, "y", MCD("quadratic", random_state=0, **LINE))
    assert model.source_["streamed"] == []


def test_a_time_budget_shortens_training(folder, small, monkeypatch):
    monkeypatch.setattr("mcdensity.networks.training._affordable_steps", lambda *_: 70)
    model = MCD("mixture", random_state=0, effort="fast", time_budget=600.0, **LINE)
    short = fit_files(folder, "y", model)
    assert short.estimator_.discriminator_.n_steps_ == 70
    assert short.estimator_.time_budget == 600.0


def test_networks_alone_stream(folder, small):
    model = fit_files(folder, "y", MCD("mixture", random_state=0, effort="fast", **LINE))
    new, truth = draw(1500, 50)
    assert 0 < truth.mean() - model.score(new, new["y"]) < 0.1
    assert model.estimator_.discriminator_params is None


def test_a_damaged_file_can_be_left_out(folder):
    (folder / "2a.parquet").write_bytes(b"nothing")
    with pytest.raises(SourceError, match=r"2a\.parquet"):
        fit_files(folder, "y", MCD("quadratic"))
    with pytest.warns(UserWarning, match=r"2a\.parquet is left out"):
        model = fit_files(folder, "y", MCD("quadratic"), skip_bad_files=True)
    assert len(model.source_["skipped"]) == 1


def test_a_file_that_breaks_off_can_be_left_out(folder):
    path = folder / "1.parquet"
    data = bytearray(path.read_bytes())
    data[2000:9000] = bytes(7000)  # pages are damaged, the end of the file is not
    path.write_bytes(bytes(data))
    with pytest.raises(SourceError, match=r"1\.parquet cannot be read"):
        fit_files(folder, "y", MCD("quadratic"))
    with pytest.warns(UserWarning, match=r"1\.parquet is left out"):
        model = fit_files(folder, "y", MCD("quadratic"), skip_bad_files=True)
    assert model.source_["rows"] == 4500
    assert model.source_["files"] == 3


def test_mistakes_are_named(folder, tmp_path):
    with pytest.raises(ValueError, match=r"no column 'why' \(the target\)"):
        fit_files(folder, "why")
    with pytest.raises(ValueError, match="different columns"):
        fit_files(folder, ["y", "y"])
    with pytest.raises(ValueError, match="is the target; it is neither dropped"):
        fit_files(folder, "y", drop=["y"])
    with pytest.raises(TypeError, match="estimator must be"):
        fit_files(folder, "y", "mcd")
    with pytest.raises(ValueError, match=r"too small for one batch of 5 columns; allow at least"):
        fit_files(folder, "y", memory="1MB")
    with pytest.raises(SourceError, match=r"the target 'kind' holds '(bike|car|van)', which is no"):
        fit_files(folder, "kind")
    table = draw(100, 0)[0]
    table.assign(y=np.nan).to_parquet(tmp_path / "nothing.parquet")
    with pytest.raises(ValueError, match="No row of the source has a target"):
        fit_files(tmp_path / "nothing.parquet", "y")
    table.assign(w=-1.0).to_parquet(tmp_path / "weights.parquet")
    with pytest.raises(SourceError, match="weights in 'w' must be finite"):
        fit_files(tmp_path / "weights.parquet", "y", weight="w")
    with pytest.raises(TypeError, match="warm_start must be a fitted TableEstimator"):
        fit_files(folder, "y", warm_start=MCD())
    assert Budget.of("2GB", 20).sample == 50_000


# Going on.


def test_new_files_are_learned_beside_the_old(tmp_path, folder, small):
    model = fit_files(folder, "y", quick())
    for name, shift in (("same", 0.0), ("other", 0.8)):
        (tmp_path / name).mkdir()
        table = draw(3000, 20, shift)[0]
        table.to_parquet(tmp_path / name / "a.parquet", row_group_size=500, index=False)
    before = model.score(draw(500, 30)[0], draw(500, 30)[0]["y"])
    same = fit_files(tmp_path / "same", "y", warm_start=model)
    other = fit_files(tmp_path / "other", "y", warm_start=model)
    assert same.drift_["pit"]["y"] < 0.1 < 0.3 < other.drift_["pit"]["y"]
    assert same.drift_["y"]["y"] < 0.1 < other.drift_["y"]["y"]
    new, truth = draw(1000, 31, 0.8)
    assert other.score(new, new["y"]) > model.score(new, new["y"]) + 0.5
    assert truth.mean() - other.score(new, new["y"]) < 0.15
    assert other.drift_["log_likelihood_after"] > other.drift_["log_likelihood"] + 0.5
    assert "mixture 2" in other.weights_
    # A pool has the only exponents of its networks.
    networks = other.estimator_.discriminator_.experts_
    assert networks["mixture 2"].trust_ == 1.0
    # The model that was given stays as it is.
    assert model.score(draw(500, 30)[0], draw(500, 30)[0]["y"]) == before
    with pytest.raises(ValueError, match="was distilled"):
        fit_files(folder, "y", warm_start=model.distill(random_state=0))
    with pytest.raises(ValueError, match="not both"):
        fit_files(folder, "y", quick(), warm_start=model)
    with pytest.raises(ValueError, match="warm_start is a model of 'y'"):
        fit_files(folder, "x", warm_start=model)


def test_what_held_out_rows_told_of_other_laws_is_dropped(tmp_path, folder, small):
    model = fit_files(folder, "y", quick())
    table = draw(1500, 40)[0]
    wide = table["y"] + 2 * np.random.default_rng(0).normal(size=len(table))
    model.recalibrate(table, wide).conformalize(table, wide)
    assert hasattr(model.estimator_, "calibration_")
    new = tmp_path / "new"
    new.mkdir()
    draw(3000, 20)[0].to_parquet(new / "a.parquet", row_group_size=500, index=False)
    later = fit_files(new, "y", warm_start=model)
    assert not hasattr(later.estimator_, "calibration_")
    held, _ = draw(1000, 31)
    assert 0.85 < metrics.coverage(later.predict_distribution(held), held["y"], level=0.9) < 0.95
    with pytest.raises(ValueError, match="conformalize"):
        later.predict_interval(held, 0.9, conformal=True)
    assert model.predict_interval(held, 0.9, conformal=True).shape == (1000, 2)


def test_held_out_counts_are_spread_alike_for_all(tmp_path, small, monkeypatch):
    """What a network says of them, and the marginal that it is compared with, are of one spread."""
    seen = []

    def spread(self, rng=None):
        found = without_ties(self, rng)
        if rng is not None:
            seen.append(found.Y[:, 0])
        return found

    without_ties = TrainingData.without_ties
    monkeypatch.setattr(TrainingData, "without_ties", spread)
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    table = pd.DataFrame({"x": x, "y": rng.poisson(np.exp(0.5 * x))})
    table.to_parquet(tmp_path / "a.parquet", row_group_size=500, index=False)
    model = fit_files(tmp_path, "y", quick(target="discrete", support=None))
    assert model.source_["streamed"]
    assert len(seen) == 2
    np.testing.assert_array_equal(*seen)
    assert len(np.unique(seen[0])) == len(seen[0])


def test_streamed_laws_are_corrected_by_rows_that_networks_have_not_seen(folder, small):
    told = []

    class Told(MCD):
        def recalibrate(self, X, y, **more):
            told.append(len(y))
            return super().recalibrate(X, y, **more)

    few = {"portfolio": ["quadratic", "mixture"]}
    model = Told(discriminator_params=few, random_state=0, effort="fast", calibrate=True, **LINE)
    fitted = fit_files(folder, "y", model)
    assert fitted.source_["streamed"]
    assert len(told) == 1
    assert 0 < told[0] < 6000


# A cluster.


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            dashboard_address=":0",
            memory_limit=0,
        ) as cluster,  # fmt: skip
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_cluster_learns_the_law(folder, small, client, monkeypatch):
    monkeypatch.setattr("mcdensity.streaming.cluster._SHARD_ROWS", 3000)
    one = fit_files(folder, "y", quick(), client=client)
    new, truth = draw(1500, 50)
    assert 0 < truth.mean() - one.score(new, new["y"]) < 0.1
    assert {"mixture 1", "mixture 2"} & set(one.weights_)
    # Which worker does what does not matter: one of them is enough for the same numbers.
    names = sorted(client.scheduler_info()["workers"])
    client.retire_workers(names[:1])
    two = fit_files(folder, "y", quick(), client=client)
    np.testing.assert_allclose(
        one.predict_quantiles(new[:20]), two.predict_quantiles(new[:20]), rtol=1e-6
    )


@pytest.mark.parametrize("name", ["auto", "mixture"])
def test_shards_that_gain_nothing_are_dropped(name, monkeypatch):
    """Where enough rows are held out, a pool of fewer networks that is about as good is taken."""
    monkeypatch.setattr("mcdensity.portfolio._NEGLIGIBLE_SHARE", 1.0)
    tables = [draw(600, seed)[0][["x", "y"]].to_numpy() for seed in range(4)]
    few = {"portfolio": ["mixture"], "negligible": 1.0} if name == "auto" else {}
    models = [
        MCD("mixture" if i else name, discriminator_params={} if i else few, effort="fast",
            random_state=i, **LINE).fit(table[:, :1], table[:, 1])
        for i, table in enumerate(tables[:3])
    ]  # fmt: skip
    [leaf] = leaves_of(models[0])
    rows = tables[3][:, :1], tables[3][:, 1:]
    data = leaf.data(*rows, None, leaf.law_of_y(*rows), random_state=np.random.default_rng(0))
    found = {}
    for i, model in enumerate(models[1:]):
        network = model.discriminator_
        report = FitReport.of(network.condition(data.X), data, np.arange(len(data)))
        found[f"mixture {i + 1}"] = network, report
    take_over(models[0], data, found)
    portfolio = models[0].discriminator_
    assert len(portfolio.scores_) == (4 if name == "auto" else 3)  # with that of the pool
    assert len(portfolio.experts_) < len(portfolio.scores_) - 1
    assert np.isfinite(models[0].score(rows[0], rows[1][:, 0]))


def test_a_cluster_that_is_gone_is_said(folder):
    distributed = pytest.importorskip("distributed")
    with pytest.raises(TypeError, match=r"client must be a dask\.distributed\.Client"):
        fit_files(folder, "y", quick(), client="tcp://here")
    cluster = distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    client = distributed.Client(cluster)
    client.close()
    cluster.close()
    with pytest.raises(ConnectionError, match="scheduler of client is gone"):
        fit_files(folder, "y", quick(), client=client)
