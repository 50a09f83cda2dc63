"""The command line, as a user meets it."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from mcdensity import MCD, load, save
from mcdensity.cli import app, main
from mcdensity.persistence import FORMAT
from model_files import change_head

RUNNER = CliRunner()


def run(*arguments):
    out = RUNNER.invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert out.exit_code == 0, out.output
    return out


def leave(arguments, monkeypatch):
    """Run the program until it leaves, and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["mcdensity", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code


def started(*arguments, cwd, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "mcdensity.cli", *map(str, arguments)],
        cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def make_table(n=400):
    rng = np.random.default_rng(0)
    kind = rng.choice(["car", "van", "bus"], n)
    size = rng.normal(size=n)
    table = pd.DataFrame({"kind": kind, "size": size, "id": [f"number {i}" for i in range(n)]})
    table["price"] = np.where(kind == "bus", 9.0, 3.0) + size + rng.normal(size=n)
    table.loc[::9, "kind"] = None
    table.loc[::11, "size"] = np.nan
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    make_table().to_csv(folder / "data.csv", index=False)
    run("fit", folder / "data.csv", "--target", "price", "--model", "mcd:quadratic",
        "--hold-out", 0.25, "-o", folder / "model.mcd")  # fmt: skip
    return folder


def test_three_commands(folder):
    held_out = pd.read_csv(folder / "model-held-out.csv")
    assert len(held_out) == 100
    run("predict", folder / "model.mcd", folder / "model-held-out.csv", "--quantiles", "0.1,0.9",
        "--interval", "0.8", "--above", "5", "--density-grid", "0:10:3", "--samples", "2",
        "--keep", "price", "-o", folder / "out.csv")  # fmt: skip
    out = pd.read_csv(folder / "out.csv")
    assert list(out.columns) == [
        "price", "q0.1", "q0.9", "lower_80", "upper_80", "above_5", "density_0", "density_5",
        "density_10", "sample_1", "sample_2",
    ]  # fmt: skip
    model = load(folder / "model.mcd")
    d = model.predict_distribution(held_out)
    np.testing.assert_allclose(out[["lower_80", "upper_80"]], d.interval(0.8))
    np.testing.assert_allclose(out["q0.1"], out["lower_80"])
    np.testing.assert_allclose(out["above_5"], d.sf(5.0))
    np.testing.assert_allclose(out["density_5"], d.pdf(5.0))
    said = run("report", folder / "model.mcd", folder / "model-held-out.csv",
               "-o", folder / "report.html").output  # fmt: skip
    assert "Report on 100 rows" in said
    assert "used to fit" not in said
    assert "price: report" in (folder / "report.html").read_text()


def test_what_fit_says(folder):
    out = run("fit", folder / "data.csv", "--target", "price", "--model", "marginal",
              "-o", folder / "other.mcd")  # fmt: skip
    assert "Column 'id' is left out: it has 400 different texts" in out.output
    assert "Fitted marginal to 400 rows" in out.output
    said = json.loads(
        run("fit", folder / "data.csv", "--target", "price", "--model", "mcd:quadratic",
            "--drop", "id", "--json", "-o", folder / "other.mcd").stdout
    )  # fmt: skip
    assert said["features"] == ["kind", "size"]
    assert said["rows"] == 400


def test_weights_and_missing_targets(tmp_path):
    table = make_table().drop(columns="id")
    table["weight"] = np.where(table.index < 200, 1.0, 0.0)
    table.loc[300:, "price"] = None
    table.to_parquet(tmp_path / "data.parquet")
    out = run("fit", tmp_path / "data.parquet", "--target", "price", "--model", "mcd:quadratic",
              "--weight", "weight", "-o", tmp_path / "a.mcd")  # fmt: skip
    assert "100 rows without 'price' are left out." in out.output
    assert "weight" not in load(tmp_path / "a.mcd").feature_names_in_
    run("predict", tmp_path / "a.mcd", tmp_path / "data.parquet", "-o", tmp_path / "out.parquet")
    assert list(pd.read_parquet(tmp_path / "out.parquet")) == ["mean", "q0.05", "q0.5", "q0.95"]


def test_seeds(folder):
    for seed, name in ((0, "a"), (0, "b"), (1, "c")):
        run("fit", folder / "data.csv", "--target", "price", "--model", "mcd:quadratic",
            "--seed", seed, "-o", folder / f"{name}.mcd")  # fmt: skip
    a, b, c = (load(folder / f"{n}.mcd").predict(make_table()) for n in "abc")
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_evaluate(folder):
    text = run("evaluate", folder / "model.mcd", folder / "model-held-out.csv").output
    assert "in the 90% interval" in text
    said = json.loads(
        run("evaluate", folder / "model.mcd", folder / "model-held-out.csv", "--json").stdout
    )
    held_out = pd.read_csv(folder / "model-held-out.csv")
    score = load(folder / "model.mcd").score(held_out, held_out["price"])
    assert said["log_likelihood"] == pytest.approx(score)
    assert "were used to fit" in run("evaluate", folder / "model.mcd", folder / "data.csv").output


@pytest.fixture
def not_numbers(folder, monkeypatch):
    """Let the model predict no mean for three rows."""
    kind = type(load(folder / "model.mcd").predict_distribution(make_table(10)))
    mean = kind.mean

    def broken(self):
        out = np.array(mean(self))
        if len(out) > 7:  # not the few rows that a model predicts when it is loaded
            out[[2, 5, 7]] = np.nan
        return out

    monkeypatch.setattr(kind, "mean", broken)


@pytest.mark.parametrize("more", [("-o", "out.csv"), ("-o", "out.parquet"), ("--json",), ()])
def test_predictions_that_are_no_numbers_are_not_written(
    folder, not_numbers, tmp_path, monkeypatch, capsys, more
):
    monkeypatch.chdir(tmp_path)
    arguments = ["predict", str(folder / "model.mcd"), str(folder / "data.csv"), *more]
    assert leave(arguments, monkeypatch) == 1
    out, said = capsys.readouterr()
    assert "no number for 3 of 400 rows (the first is row 2, mean); nothing is written" in said
    assert out == ""
    assert list(tmp_path.iterdir()) == []
    # What was not asked for does no harm.
    run(*arguments[:3], "--quantiles", "0.5", "-o", "quantiles.csv")


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_nothing_is_measured_by_what_is_no_number(
    folder, not_numbers, tmp_path, monkeypatch, capsys, command
):
    monkeypatch.chdir(tmp_path)
    held_out = str(folder / "model-held-out.csv")
    assert leave([command, str(folder / "model.mcd"), held_out], monkeypatch) == 1
    out, said = capsys.readouterr()
    assert "no number for 3 of 100 rows (the first is row 2)" in " ".join(said.split())
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_few_rows_have_no_gain(folder, tmp_path):
    """JSON has no NaN: what is not known of few rows is null."""
    make_table(8).to_csv(tmp_path / "few.csv", index=False)
    said = run("evaluate", folder / "model.mcd", tmp_path / "few.csv", "--json").stdout
    assert json.loads(said, parse_constant=pytest.fail)["gain"] is None


def test_time_budget(folder, tmp_path, monkeypatch):
    """It is given to MCD, and only where it was asked for."""
    import mcdensity.mcd

    given = []

    def recorded(**options):
        given.append(options)
        return MCD(**{name: v for name, v in options.items() if name != "time_budget"})

    monkeypatch.setattr(mcdensity.mcd, "MCD", recorded)
    fit = ("fit", folder / "data.csv", "--target", "price", "-o", tmp_path / "m.mcd", "--model")
    run(*fit, "mcd:quadratic", "--time-budget", 2.5)
    run(*fit, "mcd:quadratic")
    assert [options.get("time_budget") for options in given] == [2.5, None]
    assert "time_budget" not in given[1]


def test_predict_to_standard_output(folder):
    arguments = ("predict", folder / "model.mcd", folder / "data.csv", "--above", "5")
    assert run(*arguments).stdout.splitlines()[0] == "above_5"
    rows = json.loads(run(*arguments, "--json").stdout)
    assert len(rows) == 400
    assert 0 <= rows[0]["above_5"] <= 1


@pytest.mark.parametrize("kind", ["densities", "hpd", "fan", "heatmap", "pit", "calibration"])
def test_plot(kind, folder, tmp_path):
    more = ["--feature", "kind"] if kind == "heatmap" else []
    more += ["--rows", "3,4"] if kind in ("densities", "hpd") else []
    out = tmp_path / "picture.png"
    run("plot", folder / "model.mcd", folder / "data.csv", "--kind", kind, "-o", out, *more)
    assert out.read_bytes().startswith(b"\x89PNG")


def test_info(folder):
    text = run("info", folder / "model.mcd").output
    assert "TableEstimator" in text
    assert "kind, size" in text
    assert json.loads(run("info", folder / "model.mcd", "--json").stdout)["format"] == FORMAT


def test_models_that_python_made(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    save(MCD("quadratic", random_state=0).fit(X, X[:, 0]), tmp_path / "model.mcd")
    pd.DataFrame(X, columns=["a", "b"]).to_csv(tmp_path / "x.csv", index=False)
    run("predict", tmp_path / "model.mcd", tmp_path / "x.csv", "-o", tmp_path / "out.csv")
    assert len(pd.read_csv(tmp_path / "out.csv")) == 100


def test_demo(tmp_path):
    text = run("demo", "-o", tmp_path).output
    assert "$ mcdensity report" in text
    page = (tmp_path / "report.html").read_text()
    assert len(page) > 50_000
    assert "mcdensity report" in page.split("how to repeat it")[1]
    assert "explore.html in a browser" in " ".join(text.split())
    assert "progression" in (tmp_path / "explore.html").read_text()
    assert {"lower_90", "above_200"} <= set(pd.read_csv(tmp_path / "predictions.csv").columns)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("fit nothing.csv --target y -o m", 1, "There is no file nothing.csv"),
        ("fit data.cvs --target y -o m", 1, "did you mean 'data.csv'"),
        ("fit empty.csv --target y -o m", 1, "empty.csv is empty"),
        ("fit data.csv --target prize -o m", 1, "no column 'prize' (the target) (did you mean"),
        ("fit data.csv --target kind -o m", 1, "The target 'kind' holds text, such as"),
        ("fit data.csv --target price --model mdm -o m", 1, "did you mean 'mdn'"),
        ("fit data.csv --target price --model mcd:cat -o m", 1, "'mcd:cat' is not known"),
        ("fit data.csv --target price --drop sise -o m", 1, "no column 'sise' (to drop)"),
        ("fit data.csv --target price --hold-out 2 -o m", 1, "--hold-out must lie in [0, 1)"),
        ("fit data.csv --target price --time-budget 0 -o m", 1, "--time-budget must be a positive"),
        ("fit data.csv --target price --model mdn --time-budget 9 -o m", 1, "is for mcd; --model"),
        ("fit data.csv --target price --model mdn --effort fast -o m", 1, "--effort is for mcd"),
        ("fit data.csv --target price --effort most -o m", 1, "--effort must be one of fast"),
        ("fit data.csv --target price -o .", 1, "is a folder"),
        ("fit data.csv --target price -o /dev/null", 1, "is a device or a pipe"),
        ("fit data.csv --target price --weight kind -o m", 1, "the column 'kind' must hold num"),
        ("fit data.csv --target price --weight price -o m", 1, "'price' is the target; it can"),
        ("fit data.csv --target price --drop price -o m", 1, "'price' is the target; it can"),
        ("fit data.csv --target price --seed -1 -o m", 1, "--seed must not be negative"),
        ("fit data.csv --target price --n-jobs 0 -o m", 1, "--n-jobs must not be 0"),
        ("fit data.csv --target price --hold-out 0.99 -o m", 1, "and 1 to learn from"),
        (
            "fit data.csv --target price --model mcd:mlp --time-budget 1e-6 -o m",
            1,
            "allow more time_budget",
        ),
        ("fit dates.csv --target price -o m", 1, "The column 'when' holds dates"),
        ("fit data.csv -o m", 2, "Missing option '--target'"),
        ("predict data.csv data.csv", 1, "is not a model file of mcdensity"),
        ("predict later.mcd data.csv", 1, "it has format 99"),
        ("predict model.mcd lacking.csv", 1, "lacks columns"),
        ("predict model.mcd data.csv -o out.xlsx", 1, "has the ending '.xlsx'"),
        ("predict model.mcd data.csv -o /proc/no/out.csv", 1, "Error: "),
        ("predict model.mcd data.csv --quantiles 0,1", 1, "must lie strictly between 0 and 1"),
        ("predict model.mcd data.csv --quantiles a", 1, "takes numbers separated by commas"),
        ("predict model.mcd data.csv --density-grid 1:2", 1, "takes LOW:HIGH:COUNT"),
        ("predict model.mcd data.csv --keep nothing", 1, "no column 'nothing' (to keep)"),
        ("evaluate model.mcd lacking.csv", 1, "no column 'price' (the target)"),
        ("explore model.mcd lacking.csv", 1, "lacks columns"),
        ("explore model.mcd data.csv --target none", 1, "no column 'none' (the target)"),
        ("plot model.mcd data.csv --kind heat", 1, "'heat' is not known"),
        ("plot model.mcd data.csv --kind heatmap", 1, "needs a --feature"),
        ("plot model.mcd none.csv --kind heatmap --feature sise", 1, "did you mean 'size'?"),
        ("plot model.mcd none.csv --feature size", 1, "--feature is for --kind heatmap"),
        ("plot model.mcd data.csv --rows 1000", 1, "there is no row 1000"),
        ("plot model.mcd data.csv -o out.txt", 1, "must end in .png, .svg or .pdf"),
        ("info nothing.mcd", 1, "There is no file nothing.mcd"),
        ("fi data.csv", 2, "No such command 'fi'"),
    ],
)
def test_mistakes_at_the_keyboard(arguments, code, message, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = make_table(60)
    table.to_csv("data.csv", index=False)
    table[["size"]].to_csv("lacking.csv", index=False)
    table.assign(when=[f"2020-01-{1 + i % 28}" for i in range(60)]).to_csv("dates.csv", index=False)
    (tmp_path / "empty.csv").write_text("")
    good = (folder / "model.mcd").read_bytes()
    (tmp_path / "model.mcd").write_bytes(good)
    later = change_head(good, lambda head: head.update(format=99))
    (tmp_path / "later.mcd").write_bytes(later)
    before = sorted(os.listdir())
    assert leave(arguments.split(), monkeypatch) == code
    said = " ".join(capsys.readouterr().err.split())
    assert message in said
    assert "Traceback" not in said
    assert sorted(os.listdir()) == before


def heed_interrupts():
    """What a shell starts in the background ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interruption_leaves_no_file(tmp_path):
    make_table(4000).to_csv(tmp_path / "data.csv", index=False)
    process = started("fit", "data.csv", "--target", "price", "-o", "model.mcd",
                      cwd=tmp_path, start_new_session=True, preexec_fn=heed_interrupts)  # fmt: skip
    time.sleep(6)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "no file is half written" in said
    assert "Traceback" not in said
    assert [p.name for p in tmp_path.iterdir()] == ["data.csv"]


def test_help_loads_nothing_heavy():
    code = (
        "import sys; sys.argv = ['mcdensity', '--help']\nfrom mcdensity.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('numpy', 'sklearn', 'torch', 'pandas', 'scipy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip().splitlines()[-1] == "[]"
    assert "predict" in out.stdout


# Kinds of targets.


def rough_table(n=300):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    day = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 500, n), unit="D")
    count = rng.poisson(np.exp(0.5 + 0.5 * x))
    return pd.DataFrame({
        "number": np.arange(n), "x": x, "z": np.where(rng.random(n) < 0.1, "?", "1.5"),
        "day": day.strftime("%Y-%m-%d"), "visits": count,
        "grade": np.array(["low", "medium", "high"])[np.digitize(x, [-0.5, 0.7])],
        "flag": rng.random(n) < 0.4,
    })  # fmt: skip


def test_fit_says_what_it_decided(tmp_path):
    rough_table().to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "--model", "mcd:quadratic", "-o", tmp_path / "m.mcd")
    out = run(*fit, "--target", "visits", "--dates", "month,elapsed").output
    assert "Column 'number' is left out" in out
    assert "Column 'z': '?' is taken as missing." in out
    assert "The target 'visits' is discrete, " in out
    assert "discrete" in run("info", tmp_path / "m.mcd").output
    found = run("predict", tmp_path / "m.mcd", tmp_path / "t.csv", "--quantiles", "0.05").output
    assert min(float(line) for line in found.split()[1:]) >= 0
    out = run(*fit, "--target", "visits", "--drop", "day", "--target-kind", "continuous",
              "--support", "-5,").output  # fmt: skip
    assert "The target 'visits' is continuous, -5 or more." in out


def test_levels_are_grades(tmp_path):
    rough_table().to_csv(tmp_path / "t.csv", index=False)
    out = run(
        "fit", tmp_path / "t.csv", "--target", "grade", "--levels", "low,medium,high", "--drop",
        "day,visits", "--model", "mcd:quadratic", "-o", tmp_path / "m.mcd",
    ).output  # fmt: skip
    assert "discrete, 3 values from 0 to 2" in out
    found = json.loads(run("predict", tmp_path / "m.mcd", tmp_path / "t.csv", "--json").output)
    assert list(found[0]) == ["p_low", "p_medium", "p_high"]
    assert sum(found[0].values()) == pytest.approx(1)
    assert "log-likelihood" in run("evaluate", tmp_path / "m.mcd", tmp_path / "t.csv").output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "grade"], "--levels"),
        (["--target", "flag", "--drop", "day"], "classifier"),
        (["--target", "grade", "--drop", "day", "--levels", "low,mid,high"], "'medium'"),
        (["--target", "visits"], "--dates"),
        (["--target", "visits", "--drop", "day", "--support", "3,9"], "outside of support"),
        (
            ["--target", "visits", "--drop", "day", "--support", "abc"],
            "--support takes two numbers",
        ),
        (
            ["--target", "visits", "--drop", "day", "--target-kind", "count"],
            "--target-kind must be",
        ),
        (["--target", "visits", "--dates", "century"], "dates must name"),
    ],
)
def test_wrong_kinds_are_answered_by_name(options, message, tmp_path, monkeypatch, capsys):
    rough_table().to_csv(tmp_path / "t.csv", index=False)
    model = tmp_path / "m.mcd"
    arguments = ["fit", str(tmp_path / "t.csv"), "--model", "mcd:quadratic", "-o", str(model)]
    assert leave([*arguments, *options], monkeypatch) == 1
    assert message in " ".join(capsys.readouterr().err.split())
    assert not model.exists()


def test_several_targets(tmp_path, monkeypatch, capsys):
    table = make_table(200).assign(weight=lambda t: 2 * t["price"] + np.arange(200) % 7)
    data, model = tmp_path / "t.csv", tmp_path / "m.mcd"
    table.to_csv(data, index=False)
    options = ("--model", "mcd:quadratic", "--drop", "id", "--hold-out", 0.2)
    out = run("fit", data, "--target", "price,weight", "-o", model, *options)
    assert "price: continuous" in out.output
    assert "weight: continuous" in out.output
    held_out = tmp_path / "m-held-out.csv"
    assert {"price", "weight"} <= set(pd.read_csv(held_out).columns)
    run("predict", model, held_out, "-o", tmp_path / "p.csv")
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found.columns) == [
        f"{name}_{what}" for name in ("price", "weight") for what in ("mean", "q05", "q50", "q95")
    ]
    run("predict", model, held_out, "-o", tmp_path / "p.csv", "--samples", 3, "--interval", 0.8)
    found = pd.read_csv(tmp_path / "p.csv")
    assert {"price_lower_80", "weight_upper_80", "weight_sample_3"} <= set(found.columns)
    assert np.corrcoef(found["price_sample_1"], found["weight_sample_1"])[0, 1] > 0.8
    wrong = [
        (["plot", str(model), str(held_out), "--kind", "fan"], "choose from pairs, contours"),
        (["plot", str(model), str(held_out), "--rows", "1,2"], "the joint law of one row"),
        (["predict", str(model), str(held_out), "--density-grid", "0,1"], "for one target"),
        (["fit", str(data), "--target", "price,prise", "-o", str(model)], "did you mean 'price'"),
        (["fit", str(data), "--target", "price,price", "-o", str(model)], "a column twice"),
    ]
    report = tmp_path / "r.html"
    assert leave(["report", str(model), str(held_out), "-o", str(report)], monkeypatch) == 0
    assert "How they belong together" in report.read_text()
    assert leave(["evaluate", str(model), str(held_out)], monkeypatch) == 0
    assert "joint log-likelihood" in capsys.readouterr().out
    for kind in ("pairs", "contours"):
        picture = tmp_path / f"{kind}.png"
        options = ["--kind", kind, "-o", str(picture)]
        assert leave(["plot", str(model), str(held_out), *options], monkeypatch) == 0
        assert picture.stat().st_size > 5000
    for arguments, message in wrong:
        assert leave(arguments, monkeypatch) == 1
        assert message in capsys.readouterr().err.replace("\n", " ")
