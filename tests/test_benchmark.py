"""The experiments: store, methods, protocols, tables, export, page."""

import json
import os
import sqlite3
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from browser import ask
from mcdensity._files import write_file
from mcdensity.benchmark.claims import this_process
from mcdensity.benchmark.export import export, read_results
from mcdensity.benchmark.kinds import KINDS, NotForThisTargetError, run_kind, simulated_kind
from mcdensity.benchmark.methods import COUNTS, SEVERAL, check_method, list_methods, make_method
from mcdensity.benchmark.page import build_page
from mcdensity.benchmark.page.summary import standing
from mcdensity.benchmark.protocols import PROTOCOLS, get_protocol, run_cell
from mcdensity.benchmark.runner import plan
from mcdensity.benchmark.store import FORMAT, Cell, Result, Store
from mcdensity.benchmark.tables import summarize
from mcdensity.metrics import pit_ks


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


def held_by(store, cell, host, pid, born, expires):
    store._db.execute(
        "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*cell, host, pid, born, expires),
    )
    store._db.commit()


def test_claims_of_processes(tmp_path):
    me, later = this_process(), time.time() + 1000
    cell = result().cell
    with Store(tmp_path / "results.db") as store, Store(tmp_path / "results.db") as other:
        assert store.claim(cell, None, 60)
        assert not other.claim(cell, None, 60)
        assert other.count_claims(cell.protocol) == 1
        store.release([cell])
        assert other.claim(cell, None, 60)
        # Its process has ended, or its number was given to another one.
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        for pid in (child, os.getpid()):
            held_by(store, cell, me.host, pid, "another", later)
            assert store.claim(cell, None, 60)
        # Another machine's processes cannot be asked.
        held_by(store, cell, "elsewhere", 1, "1", later)
        assert not store.claim(cell, None, 60)
        store.release([cell])
        assert not store.claim(cell, None, 60)  # not this process's to release
        held_by(store, cell, "elsewhere", 1, "1", time.time() - 1)
        assert store.claim(cell, None, -1)
        assert store.count_claims(cell.protocol) == 0
        store.renew(60)
        assert store.count_claims(cell.protocol) == 1


def test_claims_end_with_a_result(tmp_path):
    cell = result().cell
    with Store(tmp_path / "results.db") as store:
        assert store.claim(cell, None, 60)
        store.record(result(status="failed", finished="noon"))
        assert store.count_claims(cell.protocol) == 0
        # A result that came since the run was planned is not replaced.
        assert not store.claim(cell, None, 60)
        assert not store.claim(cell, "morning", 60)
        assert store.claim(cell, "noon", 60)


def test_a_store_of_before_claims(tmp_path):
    path = tmp_path / "results.db"
    with Store(path) as store:
        store.record(result())
        store._db.execute("DROP TABLE claims")
        store._db.commit()
    with Store(path) as store:
        assert store.claim(result(seed=1).cell, None, 60)
        assert store.results() == [result()]


# Methods and protocols.


def test_methods():
    assert check_method("mcd:mlp") == "MCD:MLP"
    assert len(list_methods()) == len(set(list_methods()))
    for name in list_methods():
        if name in (*COUNTS, *SEVERAL):
            with pytest.raises(ValueError, match=r"only the protocol (target-kinds|joint-data)"):
                make_method(name, 0)
        else:
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


@pytest.mark.parametrize("problem", KINDS[9:])
def test_simulated_kinds_follow_their_laws(problem):
    X, y, truth = simulated_kind(problem, 4000, 0)
    assert X.shape == (4000, 4)
    assert pit_ks(truth, y) < 0.03
    assert truth.logpdf(y).mean() == pytest.approx(-truth.entropy().mean(), abs=0.06)


def test_cells_of_kinds():
    pytest.importorskip("statsmodels")
    for problem, method in (("Poisson", "Poisson"), ("HurdleLognormal", "MCD:Quadratic")):
        found = run_kind(problem, method, 0, quick=True)["metrics"]
        assert found["below"] == 0
        assert found["kl"] < 0.1
        assert found["mass_error"] < 0.1
    with pytest.raises(NotForThisTargetError, match="law of counts"):
        run_kind("Beta", "Poisson", 0, quick=True)


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


def test_protocols_about_sizes(monkeypatch):
    data = SimpleNamespace(X=np.random.default_rng(0).normal(size=(300, 2)), y=np.arange(300.0))
    data.y = data.X[:, 0] + 0.1 * data.y / 300
    monkeypatch.setattr("mcdensity.datasets.load_dataset", lambda name: data)
    for protocol, problem in (("cde39", "Kin8nm 1000"), ("frontier", "1000")):
        monkeypatch.setattr("mcdensity.benchmark.sizes._TEST_ROWS", 100)
        found = run_cell(protocol, problem, "MCD:fast", 0, True)["metrics"]
        plain = run_cell(protocol, problem, "Marginal", 0, True)["metrics"]
        assert found["log_likelihood"] > plain["log_likelihood"] + 0.3
        assert found["crps"] < plain["crps"]


def test_plan_respects_the_number_of_splits():
    cells = plan(get_protocol("uci-splits"), ["MDN"])
    count = {p: sum(c.problem == p for c in cells) for p in ("Yacht", "Naval", "Protein")}
    assert count == {"Yacht": 10, "Naval": 5, "Protein": 2}


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
            store.record(r._replace(versions='{"commit": "c0ffee", "numpy": "2.4.6"}'))
        written = export(store, tmp_path / "out", "some command")
    assert {p.name for p in written} == {"density-models.csv", "curves.csv", "manifest.json"}
    again = read_results(tmp_path / "out")
    assert len(again) == 81
    before = summarize(made_up(), get_protocol("density-models")).markdown()
    assert summarize(again, get_protocol("density-models")).markdown() == before
    curves = {r.cell: r.curves for r in again}
    assert curves == {r.cell: r.curves for r in made_up()}
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["command"] == "some command"
    assert manifest["commits"] == ["c0ffee"]
    assert manifest["versions"] == ['{"numpy": "2.4.6"}']


COMMITTED = Path(__file__).parent.parent / "benchmarks" / "results"


@pytest.mark.parametrize("path", sorted(COMMITTED.glob("*.md")), ids=lambda path: path.stem)
def test_committed_tables_come_from_the_committed_results(path):
    own = [name for name in PROTOCOLS if path.stem.startswith(name)]
    protocol = get_protocol(max(own, key=len))
    metric = path.stem.removeprefix(protocol.name).lstrip("-").replace("-", "_") or None
    results = read_results(COMMITTED, protocol.name)
    assert summarize(results, protocol, metric).markdown() == path.read_text(encoding="utf-8")


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


def test_summary_says_who_is_ahead_and_by_how_much():
    protocol = get_protocol("uci-splits")
    numbers = {"Concrete": (-2.0, -2.5, -2.2), "Power": (-3.0, -2.6, -2.4), "Yacht": (1.0, 0.5, 0)}
    cells = [
        Result(Cell("uci-splits", problem, method, seed), "done",
               {"log_likelihood": value + 0.1 * (-1) ** seed}, fit_seconds=seconds)
        for problem, values in numbers.items()
        for method, value, seconds in zip(("MCD", "MDN", "NF"), values, (1, 2, 3), strict=True)
        for seed in range(4)
    ]  # fmt: skip
    found = standing(cells, protocol)
    assert found.gains == pytest.approx({"Concrete": 0.2, "Power": -0.6, "Yacht": 0.5})
    assert (found.first, found.gain) == (2, "+0.200 nats")
    [loss] = found.losses
    assert (loss.problem, loss.method) == ("Power", "NF")
    assert loss.errors == pytest.approx(0.6 / (0.1 * np.sqrt(2 / 3)))
    assert (found.next_method, found.seconds) == ("NF", {"MCD": 1.0, "NF": 3.0})
    text = build_page(cells, ["c0ffee"])
    assert "<b>2 of 3</b> problems" in text
    assert "commit c0ffee" in text
    assert "MC dropout, published" in text  # beside ours, and ranked nowhere
    assert summarize(cells, protocol).average_ranks().keys() == {"MCD", "MDN", "NF"}
    # Variants of MCD alone are no others to be ahead of, and one method alone is not the best.
    alone = [c for c in cells if c.cell.method == "MCD"]
    assert standing(alone, protocol) is None
    marked = ["| **" in summarize(part, protocol).markdown() for part in (cells, alone)]
    assert marked == [True, False]


QUESTION = """
  const table = document.querySelector("table");
  const column = () => [...table.tBodies[0].rows].map(r => r.cells[1].dataset.v);
  const names = () => [...table.tBodies[0].rows].map(r => r.cells[0].textContent);
  const press = i => table.tHead.rows[0].cells[i].querySelector("button").click();
  press(1);
  const falling = column();
  press(0);
  const reversed = names();
  const charts = [...document.querySelectorAll("svg.chart")];
  return { falling, reversed, charts: charts.length,
    empty: charts.filter(c => c.getBoundingClientRect().height < 20 || !c.children.length).length,
    outside: document.querySelectorAll("[src], link[href^=http], a[href^=http]").length };
"""


@pytest.mark.parametrize("width", [1400, 500], ids=["wide", "narrow"])
def test_page_in_a_browser(tmp_path, width):
    seen = ask(build_page(made_up()), QUESTION, tmp_path, width)
    values = [float(v) for v in seen["falling"]]
    assert values == sorted(values, reverse=True)
    assert seen["reversed"] == sorted(get_protocol("density-models").problems, reverse=True)
    assert seen["charts"] == 1 + 2 * 9
    assert seen["empty"] == 0
    assert seen["outside"] == 0
