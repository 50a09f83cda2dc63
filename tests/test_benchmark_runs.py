"""Running the experiments: failures, kills, several processes, the command line."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from mcdensity.benchmark.export import read_results
from mcdensity.benchmark.protocols import get_protocol
from mcdensity.benchmark.runner import plan, run
from mcdensity.benchmark.source import source_commit
from mcdensity.benchmark.store import Store
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


def counted(seed):
    with open("ran.txt", "a") as file:
        file.write(f"{seed}\\n")
    time.sleep(0.1)
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
        assert json.loads(r.versions)["commit"] == source_commit()
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


def start(folder, seeds, methods="own_methods:slow,own_methods:good", *more):
    return subprocess.Popen(
        [sys.executable, "-m", "mcdensity.cli", "bench", "run", "density-models", "--quick",
         "--methods", methods, "--seeds", str(seeds), *more],
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


def test_two_processes_share_the_cells(folder):
    """Each cell is run once, failures too where both are told to try them again."""
    problems, methods = ["EconDensity", "LinearGauss", "SkewNormal"], ["own_methods:counted"]
    arguments = folder, 4, *methods, "--problems", ",".join(problems)
    processes = [start(*arguments) for _ in range(2)]
    assert [p.wait(timeout=200) for p in processes] == [0, 0]
    cells = plan(get_protocol("density-models"), methods, 4, problems, quick=True)
    with Store(folder / "results.db") as store:
        assert store.status("density-models-quick") == dict.fromkeys(cells, "done")
        failed = [r._replace(status="failed") for r in store.results()[:6]]
        for r in failed:
            store.record(r)
    assert len((folder / "ran.txt").read_text().split()) == len(cells)
    processes = [start(*arguments, "--retry-failed") for _ in range(2)]
    assert [p.wait(timeout=200) for p in processes] == [0, 0]
    assert len((folder / "ran.txt").read_text().split()) == len(cells) + len(failed)
    with Store(folder / "results.db") as store:
        assert set(store.status("density-models-quick").values()) == {"done"}
        assert store._db.execute("SELECT COUNT(*) FROM claims").fetchone() == (0,)


def test_what_another_process_runs_is_left_to_it(folder):
    options = {"problems": ["EconDensity"], "quick": True, "seeds": 2}
    name, other = "own_methods:good", Store("results.db")
    mine, theirs = plan(get_protocol("density-models"), [name], **options)
    assert other.claim(theirs, None, 600)
    seen = []
    with Store("results.db") as store:
        ran = run("density-models", store, methods=[name], **options,
                  report=lambda r, done, total: seen.append((done, total)))  # fmt: skip
    assert [r.cell for r in ran] == [mine]
    assert seen == [(0, 2), (1, 2)]
    other.release([theirs])
    with Store("results.db") as store:
        assert [r.cell for r in run("density-models", store, methods=[name], **options)] == [theirs]
    other.close()


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


# The command line.


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
