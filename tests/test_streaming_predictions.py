"""Predictions and measurements of files: parts, resuming, Dask, the command line."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from mcdensity import (
    MCD,
    TableEstimator,
    evaluate_files,
    load,
    predict_dask,
    predict_files,
    save,
)
from mcdensity.cli import app, fitting
from mcdensity.streaming import predicting

LINE = {"target": "continuous", "support": (None, None)}


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    kind = rng.choice(["a", "b"], n)
    y = x + (kind == "b") + 0.5 * rng.normal(size=n)
    return pd.DataFrame({"x": x, "kind": kind, "y": y, "month": rng.integers(1, 4, n)})


@pytest.fixture(scope="module")
def model():
    table = draw(400)
    return TableEstimator(MCD("quadratic", random_state=0, **LINE)).fit(
        table[["x", "kind"]], table["y"]
    )


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    for i in range(3):
        table = draw(700, i + 1).assign(id=np.arange(700) + 700 * i)
        table.to_parquet(path / f"{i}.parquet", row_group_size=200, index=False)
    return path


def whole(folder):
    return pd.concat([pd.read_parquet(p) for p in sorted(folder.iterdir())], ignore_index=True)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_files_are_predicted_in_order(model, folder, tmp_path, monkeypatch, n_jobs):
    monkeypatch.setattr(predicting, "_PART_ROWS", 450)
    out = tmp_path / "out"
    rows = predict_files(
        model, folder, out, quantiles=(0.1, 0.9), interval=0.5, above=[0.0, 1.5], n_jobs=n_jobs
    )
    assert rows == 2100
    parts = sorted(out.glob("*.parquet"))
    assert len(parts) == 6  # two row groups each
    found, table = pd.concat(map(pd.read_parquet, parts), ignore_index=True), whole(folder)
    assert found["id"].tolist() == table["id"].tolist()
    law = model.predict_distribution(table)
    np.testing.assert_allclose(found[["q0.1", "q0.9"]], law.ppf_grid([0.1, 0.9]), rtol=1e-9)
    np.testing.assert_allclose(found[["lower_50", "upper_50"]], law.interval(0.5), rtol=1e-9)
    np.testing.assert_allclose(found["above_1.5"], law.sf(1.5), rtol=1e-9)
    assert "x" not in found.columns
    assert "month" in found.columns


def test_a_run_goes_on_where_it_stopped(model, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(predicting, "_PART_ROWS", 250)
    out = tmp_path / "out"
    predict_files(model, folder, out, n_jobs=1)
    first = {p.name: p.read_bytes() for p in out.glob("*.parquet")}
    removed = sorted(first)[2]
    (out / removed).unlink()
    stamps = {p.name: p.stat().st_mtime_ns for p in out.glob("*.parquet")}
    assert predict_files(model, folder, out, n_jobs=1) == 2100
    assert {p.name for p in out.glob("*.parquet")} == set(first)
    for name, stamp in stamps.items():
        assert (out / name).stat().st_mtime_ns == stamp
    pd.testing.assert_frame_equal(
        pd.read_parquet(out / removed), pd.concat([pd.read_parquet(out / removed)])
    )
    with pytest.raises(ValueError, match="predictions of another model"):
        predict_files(model, folder, out, quantiles=(0.2,))
    other = TableEstimator(MCD("quadratic", random_state=0, **LINE)).fit(
        draw(300, 9)[["x", "kind"]], draw(300, 9)["y"]
    )
    with pytest.raises(ValueError, match="predictions of another model"):
        predict_files(other, folder, out)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
def test_killed_runs_leave_no_half_part(model, folder, tmp_path):
    save(model, tmp_path / "model.mcd")
    out = tmp_path / "out"
    code = (
        "import sys, time\n"
        "from mcdensity.streaming import predicting\n"
        "predicting._PART_ROWS = 200\n"
        "write = predicting._Job.write\n"
        "def slow(self, part, output):\n"
        "    time.sleep(0.05)\n"
        "    return write(self, part, output)\n"
        "predicting._Job.write = slow\n"
        "predicting.predict_files(sys.argv[1], sys.argv[2], sys.argv[3], n_jobs=1)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model.mcd"), str(folder), str(out)]
    for wanted in (3,):
        process = subprocess.Popen(command)
        limit = time.monotonic() + 120
        while len(list(out.glob("part-*.parquet"))) < wanted and process.poll() is None:
            assert time.monotonic() < limit
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for path in out.glob("part-*.parquet"):
            assert len(pd.read_parquet(path)) in (100, 200)
    subprocess.run(command, check=True, timeout=120)
    found = pd.concat(map(pd.read_parquet, sorted(out.glob("*.parquet"))))
    assert found["id"].tolist() == list(range(2100))


def test_outputs_that_are_refused(model, folder, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(NotADirectoryError, match="is a file"):
        predict_files(model, folder, file)
    with pytest.raises(ValueError, match="is not empty"):
        predict_files(model, folder, tmp_path)
    with pytest.raises(ValueError, match="lies in the folder that is read"):
        predict_files(model, folder, folder / "out")
    with pytest.raises(ValueError, match="Ask for something"):
        predict_files(model, folder, tmp_path / "out", quantiles=None)
    with pytest.raises(ValueError, match="interval must lie strictly"):
        predict_files(model, folder, tmp_path / "out", interval=90)
    with pytest.raises(ValueError, match=r"no column 'idd' \(to keep\) \(did you mean 'id'\?\)"):
        predict_files(model, folder, tmp_path / "out", keep=["idd"])
    with pytest.raises(TypeError, match="model must be a fitted model"):
        predict_files(3, folder, tmp_path / "out")
    draw(50).drop(columns="x").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(ValueError, match=r"no column 'x' \(a feature of the model\)"):
        predict_files(model, tmp_path / "less.csv", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/dev/full"), reason="no full device")
def test_a_full_disk_is_said(model, folder, tmp_path, monkeypatch):
    def full(self, pieces):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(predicting._Job, "fingerprint", lambda self: "x")
    monkeypatch.setattr(predicting._Job, "tables", full)
    with pytest.raises(OSError, match=r"no space left to write .*part-00000"):
        predict_files(model, folder, tmp_path / "out", n_jobs=1)
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_dask_predicts_lazily(model):
    from dask import dataframe

    table = draw(300, 5).set_index(np.arange(300) * 2)
    frame = dataframe.from_pandas(table, npartitions=4)
    lazy = predict_dask(model, frame, quantiles=(0.5,), above=1.0)
    assert list(lazy.columns) == ["q0.5", "above_1"]
    found = lazy.compute()
    assert found.index.equals(table.index)
    np.testing.assert_allclose(found["q0.5"], model.predict_quantiles(table, 0.5)[:, 0])
    assert len(predict_dask(model, frame[frame["x"] > 99]).compute()) == 0
    with pytest.raises(TypeError, match="frame must be a Dask DataFrame"):
        predict_dask(model, table)


def test_files_are_measured_by_group(model, folder):
    table = whole(folder)
    found = evaluate_files(model, folder, by="month")
    for month in (1, 2, 3):
        some = table[table["month"] == month]
        row = found.loc[month]
        assert row["rows"] == len(some)
        assert row["log_likelihood"] == pytest.approx(model.score(some, some["y"]))
        low, high = model.predict_interval(some, 0.9).T
        assert row["coverage_90"] == pytest.approx(
            ((some["y"] >= low) & (some["y"] <= high)).mean()
        )
        assert row["width"] == pytest.approx((high - low).mean())
    assert found.loc["all", "rows"] == 2100
    assert found.loc["all", "pit_distance"] < 0.06
    by_file = evaluate_files(model, folder)
    assert by_file["rows"].tolist() == [700, 700, 700, 2100]
    moved = evaluate_files(model, folder, by=None, target="month")
    assert moved.loc["all", "pit_distance"] > 0.3
    with pytest.raises(ValueError, match="no column 'moth'"):
        evaluate_files(model, folder, by="moth")


def test_rows_of_next_to_no_weight_do_not_make_means_surer(model, tmp_path):
    table = draw(400, 7)
    table["weight"] = np.where(np.arange(400) < 20, 1.0, 1e-9)
    for name, part in (("all", table), ("few", table[:20])):
        (tmp_path / name).mkdir()
        part.to_parquet(tmp_path / name / "a.parquet", index=False)
    every, few = (
        evaluate_files(model, tmp_path / name, by=None, weight="weight").loc["all"]
        for name in ("all", "few")
    )
    assert every["standard_error"] == pytest.approx(few["standard_error"], rel=1e-3)


def test_several_targets_are_predicted_and_measured(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    table = pd.DataFrame({"x": x, "a": x + rng.normal(size=60), "b": rng.normal(size=60)})
    model = TableEstimator(MCD("quadratic", random_state=0, **LINE)).fit(
        table[["x"]], table[["a", "b"]]
    )
    table.to_parquet(tmp_path / "a.parquet")
    assert predict_files(model, tmp_path / "a.parquet", tmp_path / "out", n_jobs=1) == 60
    columns = pd.read_parquet(tmp_path / "out").columns
    assert {"a_q05", "b_q95"} <= set(columns)
    found = evaluate_files(model, tmp_path / "a.parquet", by=None)
    expected = model.score(table[["x"]], table[["a", "b"]])
    assert found.loc["all", "log_likelihood"] == pytest.approx(expected)


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def test_folders_on_the_command_line(folder, tmp_path):
    path = tmp_path / "model.mcd"
    done = run("fit", folder, "--target", "y", "-o", path, "--model", "mcd:quadratic",
               "--drop", "id,month", "--support", "none")  # fmt: skip
    assert done.exit_code == 0
    assert "Fitted to 2,100 rows of 3 files" in done.output
    table = whole(folder)
    plain = TableEstimator(MCD("quadratic", random_state=0, support=(None, None)))
    plain.fit(table[["x", "kind"]], table["y"])
    np.testing.assert_array_equal(load(path).predict(table[:5]), plain.predict(table[:5]))
    out = tmp_path / "predictions"
    done = run("predict", path, folder, "-o", out, "--interval", "0.9", "--keep", "id")
    assert "Predicted 2,100 rows" in done.output
    assert list(pd.read_parquet(out).columns) == ["id", "lower_90", "upper_90"]
    done = run("evaluate", path, folder, "--by", "month", "--json")
    rows = json.loads(done.output.strip().splitlines()[-1])
    assert [row["month"] for row in rows] == [1, 2, 3, "all"]
    with pytest.raises(ValueError, match="A folder is predicted into a folder"):
        run("predict", path, folder)
    with pytest.raises(ValueError, match="--hold-out is for one file"):
        run("fit", folder, "--target", "y", "-o", path, "--hold-out", "0.2")


def test_a_small_file_is_fitted_as_ever(folder, tmp_path):
    file = folder / "0.parquet"
    options = ["--target", "y", "--model", "mcd:quadratic", "--drop", "id,month"]
    run("fit", file, "-o", tmp_path / "a.mcd", *options)
    table = pd.read_parquet(file)
    model = MCD("quadratic", random_state=0)
    plain = TableEstimator(model).fit(table[["x", "kind"]], table["y"])
    np.testing.assert_array_equal(load(tmp_path / "a.mcd").predict(table), plain.predict(table))
    # With less memory than its copies take, the same file would be read in parts.
    assert fitting._is_large(file, "0.2MB")
    assert not fitting._is_large(file, "2GB")
