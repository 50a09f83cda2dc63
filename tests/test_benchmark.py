"""The experiments: store, runner, tables, page, command line."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from browser import ask
from mcdensity._files import write_file
from mcdensity.benchmark.export import export, read_results
from mcdensity.benchmark.methods import check_method, list_methods, make_method
from mcdensity.benchmark.page import build_page
from mcdensity.benchmark.protocols import PROTOCOLS, get_protocol
from mcdensity.benchmark.runner import plan, run
from mcdensity.benchmark.store import FORMAT, Cell, Result, Store
from mcdensity.benchmark.tables import summarize

METHODS = """
import time
import numpy as np
from mcdensity.baselines import MarginalBaseline


def good(seed):
    return MarginalBaseline()


def slow(seed):
    time.sleep(0.3)
    return MarginalBaseline()


def raises(seed):
    raise RuntimeError("on purpose")


def hangs(seed):
    time.sleep(600)


def dies(seed):
    import os
    os._exit(3)


class NaN(MarginalBaseline):
    def pdf_from_X(self, X, y_grid):
        return np.full((len(X), len(y_grid)), np.nan)


def nan(seed):
    return NaN()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own_methods.py").write_text(METHODS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_methods", None)


def result(problem="EconDensity", method="MDN", seed=0, value=1.0, status="done", **more):
    metrics = {"kl_grid": value} if status == "done" else {}
    return Result(Cell("density-models", problem, method, seed), status, metrics, **more)


# Store.


def test_store_keeps_what_it_is_given(tmp_path):
    path = tmp_path / "new" / "results.db"
    full = result(fit_seconds=1.5, predict_seconds=0.5, peak_mb=100.0, parameters="p", error="e",
                  curves=[{"y": [1.0], "truth": [0.5], "estimate": [0.4]}])  # fmt: skip
    with Store(path) as store:
        store.record(full)
        store.record(result(seed=1, status="failed"))
    with Store(path) as store:
        assert store.results("density-models")[0] == full
        assert set(store.status("density-models").values()) == {"done", "failed"}
        store.record(result(seed=1, value=3.0))  # in the place of the failure
        assert [r.status for r in store.results()] == ["done", "done"]
        assert store.results("ratio") == []
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def test_store_of_a_later_version_is_left_alone(tmp_path):
    path = tmp_path / "results.db"
    Store(path).close()
    database = sqlite3.connect(path)
    database.execute("UPDATE meta SET value = ?", (str(FORMAT + 1),))
    database.commit()
    database.close()
    before = path.read_bytes()
    with pytest.raises(ValueError, match="written by a later version of mcdensity"):
        Store(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_store(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, not results" * 100)
    with pytest.raises(OSError, match="it is not a results file"):
        Store(path)
    assert path.read_text().startswith("these are my notes")


def test_a_full_disk_is_said(tmp_path):
    with Store(tmp_path / "results.db") as store:
        store.record(result())
        store._db.execute("PRAGMA max_page_count = 1")  # sqlite keeps at least what it has
        with pytest.raises(OSError, match="the disk is full"):
            store.record(result(seed=1, error="x" * 1_000_000))
        kept = store.results()
    assert kept[0] == result()


# Methods and protocols.


def test_methods():
    assert check_method("mcd:mlp") == "MCD:MLP"
    assert len(list_methods()) == len(set(list_methods()))
    for name in list_methods():
        assert hasattr(make_method(name, 0, quick=True), "fit")
    for wrong in ("MDM", "no_such_module:function"):
        with pytest.raises(ValueError, match=f"'{wrong}' is not known; choose from MCD, .*MDN"):
            check_method(wrong)
    with pytest.raises(ValueError, match="'os:no_such_function' cannot be loaded"):
        check_method("os:no_such_function")
    twice = plan(get_protocol("density-models"), ["MDN", "mdn"], 1, ["EconDensity"] * 2)
    assert len(twice) == 1


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("NGBoost", "ngboost"),
        ("QuantileForest", "quantile_forest"),
        ("CatBoostUncertainty", "catboost"),
    ],
)
def test_methods_of_other_packages(name, package):
    pytest.importorskip(package)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = 3 + 10 * X[:, 0] + 2 * rng.normal(size=200)
    model = make_method(name, 0, quick=True).fit(X[:150], y[:150])
    grid = np.linspace(-150, 150, 30_001)
    density = model.pdf_from_X(X[150:], grid)
    np.testing.assert_allclose(density.sum(axis=1) * (grid[1] - grid[0]), 1, atol=0.01)
    assert np.corrcoef(model.predict(X[150:]), y[150:])[0, 1] > 0.7


def test_protocols():
    tables = {p.paper for p in PROTOCOLS.values() if p.paper}
    assert len(tables) == 8
    for protocol in PROTOCOLS.values():
        for problem, method in protocol.paper_numbers():
            assert problem in protocol.problems, (protocol.name, problem)
            assert method in protocol.methods, (protocol.name, method)
    assert len(get_protocol("density-models").problems) == 9
    assert len(get_protocol("density-models").methods) == 13
    with pytest.raises(ValueError, match="'density' is not known; choose from density-models"):
        get_protocol("density")
    with pytest.raises(ValueError, match="'Econ' is not one of density-models"):
        plan(get_protocol("density-models"), problems=["Econ"])
    with pytest.raises(ValueError, match="seeds must be at least 1"):
        plan(get_protocol("density-models"), seeds=0)


def test_plan_respects_the_number_of_splits():
    cells = plan(get_protocol("uci-splits"), ["MDN"])
    count = {p: sum(c.problem == p for c in cells) for p in ("Yacht", "Naval", "Protein")}
    assert count == {"Yacht": 10, "Naval": 5, "Protein": 2}


# Runner.


def test_run_and_resume(folder):
    with Store("results.db") as store:
        options = {"problems": ["EconDensity"], "quick": True}
        methods = ["own_methods:good", "NNKCDE"]
        seen = []
        first = run("density-models", store, methods=methods, seeds=2, **options,
                    report=lambda r, done, total: seen.append((done, total)))  # fmt: skip
        assert seen == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
        assert {r.status for r in first} == {"done"}
        assert run("density-models", store, methods=methods, seeds=2, **options) == []
        more = run("density-models", store, methods=methods, seeds=3, **options)
        assert {r.cell.seed for r in more} == {2}
        stored = store.results("density-models-quick")
    assert len(stored) == 6
    for r in stored:
        assert {"kl_grid", "kl", "log_likelihood", "crps", "seconds"} <= set(r.metrics)
        assert r.fit_seconds > 0
        assert r.peak_mb > 10
        assert "numpy" in r.versions
        assert r.parameters.startswith(("NNKCDE", "MarginalBaseline"))
    # A cell of its own gives the same numbers as the same thing done here.
    own = get_protocol("density-models").run("EconDensity", "NNKCDE", 1, True)
    [cell] = [r for r in stored if r.cell.method == "NNKCDE" and r.cell.seed == 1]
    assert cell.metrics["kl_grid"] == pytest.approx(own["metrics"]["kl_grid"], rel=1e-6)


def test_failures_are_recorded_and_do_not_stop_the_run(folder):
    methods = [f"own_methods:{name}" for name in ("raises", "nan", "hangs", "dies", "good")]
    with Store("results.db") as store:
        options = {"problems": ["EconDensity"], "seeds": 1, "quick": True, "time_limit": 8.0}
        ran = run("density-models", store, methods=methods, **options)
        status = {r.cell.method.split(":")[1]: r for r in ran}
        assert {n: r.status for n, r in status.items()} == {
            "raises": "failed", "nan": "failed", "hangs": "failed", "dies": "failed",
            "good": "done",
        }  # fmt: skip
        assert "RuntimeError: on purpose" in status["raises"].error
        assert "ValueError: estimate holds negative or NaN densities" in status["nan"].error
        assert "time limit of 8 s" in status["hangs"].error
        assert "without a result" in status["dies"].error
        assert run("density-models", store, methods=methods, **options) == []
        (folder / "own_methods.py").write_text(METHODS.replace("raise Runtime", "return good(0) #"))
        again = run("density-models", store, methods=methods[:2], retry_failed=True, **options)
        assert {r.cell.method: r.status for r in again} == {
            "own_methods:raises": "done", "own_methods:nan": "failed",
        }  # fmt: skip
    table = summarize(read_results(Path("results.db")), get_protocol("density-models"))
    assert table.text("EconDensity", "own_methods:nan") == "failed"


def start(folder, seeds):
    return subprocess.Popen(
        [sys.executable, "-m", "mcdensity.cli", "bench", "run", "density-models", "--quick",
         "--methods", "own_methods:slow,own_methods:good", "--seeds", str(seeds)],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def stored_cells(folder):
    if not (folder / "results.db").exists():
        return 0
    database = sqlite3.connect(folder / "results.db", timeout=30)
    try:
        return database.execute("SELECT COUNT(*) FROM cells").fetchone()[0]
    except sqlite3.OperationalError:  # the table is about to be made
        return 0
    finally:
        database.close()


@pytest.mark.parametrize(
    "kills", [2, pytest.param(10, marks=pytest.mark.slow)], ids=["twice", "ten times"]
)
def test_killed_runs_resume(folder, kills):
    seeds, draw = (2, random.Random(0)) if kills < 5 else (6, random.Random(1))
    counts = []
    for _ in range(kills):
        process = start(folder, seeds)
        # Somewhere after the next few cells, before the last.
        enough, deadline = (counts or [0])[-1] + draw.randint(1, 3), time.time() + 60
        while stored_cells(folder) < enough and time.time() < deadline:
            time.sleep(0.05)
        time.sleep(draw.uniform(0, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait()
        counts.append(stored_cells(folder))
    assert counts == sorted(counts)
    assert 0 < counts[0] <= counts[-1] < 9 * 2 * seeds
    assert start(folder, seeds).wait(timeout=500) == 0
    cells = plan(
        get_protocol("density-models"), ["own_methods:slow", "own_methods:good"], seeds, quick=True
    )
    with Store(folder / "results.db") as store:
        stored = store.results()
    assert sorted(r.cell for r in stored) == sorted(cells)
    assert {r.status for r in stored} == {"done"}
    database = sqlite3.connect(folder / "results.db")
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_killed_run_leaves_no_processes(folder):
    process = start(folder, 3)
    deadline = time.time() + 60
    while not _children(process.pid) and time.time() < deadline:
        time.sleep(0.2)
    servers = _children(process.pid)
    assert servers
    process.kill()
    process.wait()
    deadline = time.time() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in servers) and time.time() < deadline:
        time.sleep(0.1)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in servers)


def _children(pid):
    tasks = Path(f"/proc/{pid}/task")
    return [int(c) for t in tasks.glob("*/children") for c in t.read_text().split()]


def test_dask_cluster_with_a_worker_that_dies(folder):
    distributed = pytest.importorskip("distributed")
    methods, options = ["own_methods:slow", "NNKCDE"], {"seeds": 1, "quick": True}
    problems = ["EconDensity", "LinearGauss", "SkewNormal", "BasicLinear"]
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Store("dask.db") as store,
    ):
        killed = []

        def report(result, done, total):
            if not killed:
                pid = next(iter(cluster.workers.values())).process.pid
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

        ran = run("density-models", store, methods=methods, problems=problems,
                  scheduler=cluster.scheduler_address, report=report, **options)  # fmt: skip
    assert killed
    assert {r.status for r in ran} == {"done"}
    with Store("local.db") as store:
        local = run("density-models", store, methods=methods, problems=problems, **options)

    def numbers(results):
        return {r.cell: {k: v for k, v in r.metrics.items() if k != "seconds"} for r in results}

    assert len(ran) == 8
    assert numbers(ran) == numbers(local)


def test_a_scheduler_that_does_not_answer(folder):
    pytest.importorskip("distributed")
    with (
        Store("results.db") as store,
        pytest.raises(ConnectionError, match=r"No Dask scheduler answers at 'tcp://127.0.0.1:9'"),
    ):
        run("density-models", store, scheduler="tcp://127.0.0.1:9", seeds=1, quick=True)


# Tables.


def made_up(methods=("MCD:MLP", "MDN", "NNKCDE"), seeds=3):
    rng = np.random.default_rng(0)
    out = []
    for i, problem in enumerate(get_protocol("density-models").problems):
        for j, method in enumerate(methods):
            for seed in range(seeds):
                value = 0.1 * (i + 1) * (j + 1) + 0.001 * rng.random()
                curves = None
                if seed == 0:
                    y = np.linspace(-3, 3, 40)
                    truth = np.exp(-(y**2) / 2)
                    curves = [
                        {"y": y.tolist(), "truth": truth.tolist(),
                         "estimate": (truth * (1 + 0.1 * j)).tolist()}
                    ] * 2  # fmt: skip
                r = result(problem, method, seed, value, curves=curves, fit_seconds=1.0,
                           predict_seconds=0.1, peak_mb=200.0)  # fmt: skip
                out.append(r._replace(metrics={"kl_grid": value, "kl": 2 * value}))
    return out


def test_table_marks_and_ranks():
    table = summarize(made_up(), get_protocol("density-models"))
    assert table.methods == ["MCD:MLP", "NNKCDE", "MDN"]  # in the order of the protocol
    assert table.average_ranks() == {"MCD:MLP": 1.0, "NNKCDE": 3.0, "MDN": 2.0}
    assert table.wins() == {"MCD:MLP": 9, "NNKCDE": 0, "MDN": 0}
    assert table.p_values()["MDN"] == pytest.approx(2 / 2**9)
    text = table.markdown()
    row = next(line for line in text.splitlines() if line.startswith("| ARMAJump"))
    best, third, second = (part.strip() for part in row.split("|")[2:5])
    assert best.startswith("**0.1")
    assert best.endswith("[0.573]")  # the paper's
    assert second.startswith("<u>0.2")
    assert third.startswith("0.3")
    assert "LinearGauss: the paper's package" in text
    mean = np.mean([r.metrics["kl_grid"] for r in made_up() if r.cell[1:3] == ("ARMAJump", "MDN")])
    assert table.mean["ARMAJump", "MDN"] == pytest.approx(mean)
    lines = table.csv().splitlines()
    assert lines[0] == "problem,method,metric,mean,error,seeds,paper,note"
    assert len(lines) == 1 + 27


def test_table_of_another_metric_has_no_paper_numbers():
    table = summarize(made_up(), get_protocol("density-models"), "kl")
    assert table.paper == {}
    assert table.mean["ARMAJump", "MCD:MLP"] == pytest.approx(0.2, abs=0.01)
    with pytest.raises(ValueError, match="Metric 'crsp' is not among the results"):
        summarize(made_up(), get_protocol("density-models"), "crsp")


def test_tables_say_what_is_not_there():
    protocol = get_protocol("real-data")
    cells = [
        Result(Cell("real-data", "Teddy", "MDN", 0), "unavailable", {}, error="offline"),
        Result(Cell("real-data", "Yacht", "MDN", 0), "done", {"log_likelihood": -1.0}),
        Result(Cell("real-data", "WineRed", "MDN", 0), "done", {"log_likelihood": 3.0}),
    ]
    table = summarize(cells, protocol)
    assert table.text("Teddy", "MDN") == "not available"
    # A density of a discrete target ranks nothing.
    assert table.ranked_problems == ["Yacht"]
    assert "not available" in table.markdown()
    assert ",not available" in table.csv()


def test_raw_columns_stand_apart():
    cells = [
        result(p, "MCD:MLP", s)._replace(metrics={"kl_grid": 0.5, "kl_grid_raw": 0.1})
        for p in ("EconDensity", "SkewNormal")
        for s in range(2)
    ] + [result(p, "MDN", s, 0.4) for p in ("EconDensity", "SkewNormal") for s in range(2)]
    table = summarize(cells, get_protocol("density-models"))
    assert table.methods == ["MCD:MLP", "MDN", "MCD:MLP raw"]
    places = [table.place("EconDensity", m) for m in table.methods]
    assert places == [2, 1, 0]


def test_ties_and_failures_in_the_ranks():
    cells = [result("EconDensity", m, s, v) for m, v in (("MCD:MLP", 1.0), ("MDN", 1.0),
             ("KMN", 2.0), ("NF", 3.0)) for s in range(2)]  # fmt: skip
    table = summarize(cells, get_protocol("density-models"))
    assert [table.place("EconDensity", m) for m in ("MCD:MLP", "MDN", "KMN", "NF")] == [1, 1, 0, 0]
    assert set(table.wins().values()) == {0}
    # A method that failed on some seeds is shown, and ranked last; one that always failed is not.
    cells = [
        result("EconDensity", "MCD:MLP", 0, 1.0), result("EconDensity", "MCD:MLP", 1, 1.0),
        result("EconDensity", "MDN", 0, 0.1), result("EconDensity", "MDN", 1, status="failed"),
        result("EconDensity", "KMN", 0, status="failed"),
    ]  # fmt: skip
    table = summarize(cells, get_protocol("density-models"))
    assert table.text("EconDensity", "MDN") == "0.100, 1 failed"
    assert table.average_ranks() == {"MCD:MLP": 1.0, "MDN": 2.0}
    assert table.wins() == {"MCD:MLP": 1, "MDN": 0}
    assert table.text("EconDensity", "KMN") == "failed"


def test_coverage_has_no_better_side():
    cells = [result("EconDensity", m, 0)._replace(metrics={"coverage_90": 0.9}) for m in ("MDN",)]
    table = summarize(cells, get_protocol("density-models"), "coverage_90")
    assert table.ranked_problems == []
    assert table.average_ranks() == {}


# Export, page, command line.


def test_export_and_read_again(tmp_path):
    with Store(tmp_path / "results.db") as store:
        for r in made_up():
            store.record(r)
        written = export(store, tmp_path / "out", "some command")
    assert {p.name for p in written} == {"density-models.csv", "curves.csv", "manifest.json"}
    again = read_results(tmp_path / "out")
    assert len(again) == 81
    before = summarize(made_up(), get_protocol("density-models")).markdown()
    assert summarize(again, get_protocol("density-models")).markdown() == before
    curves = {r.cell: r.curves for r in again}
    assert curves == {r.cell: r.curves for r in made_up()}
    assert '"some command"' in (tmp_path / "out" / "manifest.json").read_text()


def test_writing_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("before")

    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_file(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


QUESTION = """
  const table = document.querySelector("table");
  const column = () => [...table.tBodies[0].rows].map(r => r.cells[1].dataset.value);
  const names = () => [...table.tBodies[0].rows].map(r => r.cells[0].textContent);
  const first = names();
  const press = i => table.tHead.rows[0].cells[i].querySelector("button").click();
  press(1); press(1);
  const falling = column();
  press(1);
  const back = names();
  press(0); press(0);
  const reversed = names();
  const charts = [...document.querySelectorAll("svg.chart")];
  return { falling, first, back, reversed, charts: charts.length,
    empty: charts.filter(c => c.getBoundingClientRect().height < 20 || !c.children.length).length,
    outside: document.querySelectorAll("[src], link[href^=http], a[href^=http]").length };
"""


@pytest.mark.parametrize("width", [1400, 500], ids=["wide", "narrow"])
def test_page_in_a_browser(tmp_path, width):
    seen = ask(build_page(made_up()), QUESTION, tmp_path, width)
    values = [float(v) for v in seen["falling"]]
    assert values == sorted(values, reverse=True)
    assert seen["back"] == seen["first"]
    assert seen["reversed"] == sorted(seen["first"], reverse=True)
    assert seen["charts"] == 1 + 2 * 9
    assert seen["empty"] == 0
    assert seen["outside"] == 0


def test_command_line(folder):
    from mcdensity.cli import app

    runner = CliRunner()
    arguments = ["bench", "run", "density-models", "--quick", "--seeds", "1", "--jobs", "1",
                 "--methods", "own_methods:good,Marginal", "--problems", "EconDensity"]  # fmt: skip
    out = runner.invoke(app, arguments)
    assert out.exit_code == 0, out.output
    assert "density-models: 2 done; results in results.db." in out.output
    assert "nothing left to run" in runner.invoke(app, arguments).output
    assert "density-models-quick: 2 done" in runner.invoke(app, ["bench", "status"]).output
    table = runner.invoke(app, ["bench", "table", "density-models-quick"]).output
    assert "| EconDensity |" in table
    out = runner.invoke(app, ["bench", "table", "density-models-quick", "--csv", "-o", "t.csv"])
    assert out.exit_code == 0
    assert Path("t.csv").read_text().startswith("problem,method")


def test_what_a_method_says_is_no_markup(folder):
    with (folder / "own_methods.py").open("a") as file:
        file.write('\n\ndef brackets(seed):\n    raise ValueError("bad file [/tmp/x]")\n')
        file.write("\n\ndef leaves(seed):\n    raise SystemExit(4)\n")
    out = subprocess.run(
        [sys.executable, "-m", "mcdensity.cli", "bench", "run", "density-models", "--quick",
         "--seeds", "1", "--methods", "own_methods:brackets,own_methods:leaves,own_methods:good",
         "--problems", "EconDensity"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "bad file [/tmp/x]" in out.stderr
    assert "1 done, 2 failed" in out.stdout
    with Store("results.db") as store:
        errors = [r.error for r in store.results() if r.status == "failed"]
    assert any("SystemExit: 4" in error for error in errors)


def test_data_that_was_not_available_is_asked_for_again(folder, monkeypatch):
    monkeypatch.setenv("MCDENSITY_DATA", str(folder / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    options = {"methods": ["Marginal"], "problems": ["Yacht"], "seeds": 1, "quick": True}
    with Store("results.db") as store:
        [first] = run("real-data", store, **options)
        assert first.status == "unavailable"
        [second] = run("real-data", store, **options)
        assert second.status == "unavailable"
        assert "put the file yacht.csv.gz" in second.error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "run", "models"], "Protocol 'models' is not known"),
        (["bench", "run", "density-models", "--methods", "MDM"], "Method 'MDM' is not known"),
        (["bench", "run", "density-models", "--problems", "X"], "Problem 'X' is not one of"),
        (
            ["bench", "run", "density-models", "--jobs", "0", "--seeds", "1"],
            "jobs must be at least",
        ),
        (
            ["bench", "run", "density-models", "--time-limit", "inf"],
            "time_limit must be a positive",
        ),
        (["bench", "run", "density-models", "--scheduler", "nowhere"], "No Dask scheduler answers"),
        (["bench", "table", "ratio", "-r", "nowhere.db"], "There are no results at nowhere.db"),
        (["bench", "page", "-r", "nowhere.db"], "There are no results at nowhere.db"),
        (["bench", "export", "out", "-r", "nowhere.db"], "There is no results file nowhere.db"),
    ],
    ids=str,
)
def test_mistakes_at_the_command_line(tmp_path, arguments, message):
    out = subprocess.run(
        [sys.executable, "-m", "mcdensity.cli", *arguments],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert out.returncode == 1
    assert message in out.stderr.replace("\n", " ")
    assert "Traceback" not in out.stderr
    if not {"--jobs", "--time-limit", "--scheduler"} & set(arguments):
        assert list(tmp_path.iterdir()) == []
