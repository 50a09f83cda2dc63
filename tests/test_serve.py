"""`mcdensity serve`: what it answers is what the model says, and mistakes get a sentence."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx")
pd = pytest.importorskip("pandas")
pytest.importorskip("skops")

from starlette.testclient import TestClient  # noqa: E402

from mcdensity import MCD, TableEstimator, load, save  # noqa: E402
from mcdensity.serve import create_app  # noqa: E402
from mcdensity.serve._batching import Batcher, Job  # noqa: E402
from mcdensity.serve._models import Served, Shelf  # noqa: E402
from mcdensity.serve._requests import Limits, Question, RequestError  # noqa: E402


def make_table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"size": rng.normal(size=n), "kind": rng.choice(["car", "van"], n)})
    table.loc[::10, "size"] = np.nan
    y = np.where(table["kind"] == "van", 7.0, 2.0) + table["size"].fillna(0) + rng.normal(size=n)
    return table, pd.Series(y, name="price")


@pytest.fixture(scope="module")
def plain():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    return MCD("quadratic", random_state=0).fit(X, X[:, 0] + rng.normal(size=200))


@pytest.fixture(scope="module")
def tabled():
    return TableEstimator(MCD("quadratic", random_state=0)).fit(*make_table())


@pytest.fixture(scope="module")
def client(plain, tabled):
    with TestClient(create_app({"plain": plain, "tabled": tabled}, max_rows=50)) as found:
        yield found


def ask(client, status=200, **content):
    reply = client.post("/predict", json=content)
    assert reply.status_code == status, reply.text
    return reply.json()


def test_answers_are_those_of_the_model(client, plain):
    X = np.array([[0.5, -1.0], [1.0, 2.0], [0.0, np.nan]])
    rows = [{"x0": a, "x1": None if np.isnan(b) else b} for a, b in X.tolist()]
    reply = ask(
        client, model="plain", rows=rows, quantiles=[0.1, 0.5], interval=0.9, above=[0.0, 1.0],
        density=0.5, mean=True,
    )  # fmt: skip
    law = plain.predict_distribution(X)
    found = {k: np.array([p[k] for p in reply["predictions"]]) for k in reply["predictions"][0]}
    expected = {
        "mean": law.mean(), "quantiles": law.ppf_grid([0.1, 0.5]), "interval": law.interval(0.9),
        "above": np.column_stack([law.sf(0.0), law.sf(1.0)]), "density": law.pdf(0.5),
    }  # fmt: skip
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, err_msg=name)
    assert reply["model"] == "plain"
    assert reply["quantiles"] == [0.1, 0.5]


def test_tables_with_text_and_missing_values(client, tabled):
    rows = [{"size": None, "kind": "van", "more": 3}, {"size": 1, "kind": None}]
    reply = ask(client, model="tabled", rows=rows)
    expected = tabled.predict(pd.DataFrame({"size": [np.nan, 1.0], "kind": ["van", None]}))
    np.testing.assert_allclose([p["mean"] for p in reply["predictions"]], expected)
    assert reply["quantiles"] == [0.05, 0.5, 0.95]


GOOD = {"size": 1.0, "kind": "car"}


@pytest.mark.parametrize(
    ("content", "row", "column", "words"),
    [
        ({"rows": [GOOD, {"size": "big", "kind": "car"}]}, 1, "size", "number"),
        ({"rows": [GOOD, {"size": [1], "kind": "car"}]}, 1, "size", "a list"),
        ({"rows": [GOOD, {"size": 1, "kind": {"a": 1}}]}, 1, "kind", "an object"),
        ({"rows": [{**GOOD, "more": {}}]}, 0, "more", "an object"),
        ({"rows": [GOOD, {"size": 1}]}, 1, "kind", "null"),
        ({"rows": [GOOD, 3]}, 1, None, "object"),
        ({"rows": [GOOD, {"size": float("nan"), "kind": "car"}]}, 1, "size", "finite"),
        ({"rows": [GOOD, {"size": 10**400, "kind": "car"}]}, 1, "size", "finite"),
        ({"rows": [{"size": 1, "kind": "\ud800"}]}, 0, "kind", "text"),
        ({"rows": []}, None, None, "at least one"),
        ({"rows": "all"}, None, None, "list"),
        ({"rows": [GOOD], "quantiles": [0.5, 1.5]}, None, "quantiles", "between 0 and 1"),
        ({"rows": [GOOD], "quantiles": []}, None, "quantiles", "from 1"),
        ({"rows": [GOOD], "interval": "0.9"}, None, "interval", "finite numbers"),
        ({"rows": [GOOD], "above": float("inf")}, None, "above", "finite"),
        ({"rows": [GOOD], "above": True}, None, "above", "finite"),
        ({"rows": [GOOD], "density": [[1]]}, None, "density", "finite"),
        ({"rows": [GOOD], "mean": 1}, None, "mean", "true or false"),
        ({"rows": [GOOD], "quantile": [0.5]}, None, None, "quantiles"),
        ({"rows": [GOOD], "model": "other"}, None, "model", "plain, tabled"),
        ({"rows": [GOOD], "model": ["tabled"]}, None, "model", "no such"),
    ],
)
def test_mistakes_name_row_and_column(client, content, row, column, words):
    body = json.dumps({"model": "tabled"} | content)  # Python writes NaN, which is no JSON
    reply = client.post("/predict", content=body)
    assert reply.status_code == 422, reply.text
    found = reply.json()
    assert (found.get("row"), found.get("column")) == (row, column)
    assert words in found["error"]
    assert found["error"].endswith(".")
    assert "/" not in found["error"].replace("/schema", "")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"rows": 1e', b"9" * 5000]
)
def test_what_is_not_json(client, body):
    reply = client.post("/predict", content=body)
    assert reply.status_code == 422
    assert reply.json()["error"].endswith(".")


def test_too_much(plain):
    row = {"x0": 1, "x1": 2}
    with TestClient(create_app(plain, max_rows=100, max_bytes=5000)) as client:
        assert "100 rows" in ask(client, 413, rows=[row] * 101)["error"]
        assert "5,000 bytes" in ask(client, 413, rows=[row] * 1000)["error"]
        assert client.post("/predict", content=b" " * 1_000_000).status_code == 413
        assert ask(client, rows=[row])["predictions"]
    grid = np.linspace(0, 1, 1001).tolist()
    with TestClient(create_app(plain)) as client:
        assert "10,000 rows" in ask(client, 413, rows=[{}] * 10_001)["error"]
        assert "1000 numbers" in ask(client, 422, rows=[row], density=grid)["error"]
        assert "1,000,000" in ask(client, 413, rows=[row] * 1100, density=grid[:1000])["error"]


def test_other_paths(client):
    assert client.get("/healthz").json() == {"status": "ok", "models": 2}
    assert client.get("/nothing").status_code == 404
    assert client.get("/predict").status_code == 405
    assert all("error" in client.get(p).json() for p in ("/nothing", "/predict"))
    api = client.get("/openapi.json").json()
    assert set(api["paths"]) == {"/predict", "/schema", "/healthz", "/metrics"}
    page = client.get("/docs").text
    assert "http" not in page.replace("http-equiv", "").replace("http://127.0.0.1:8000", "")
    assert all(word in page for word in ("/predict", "quantiles", "openapi.json"))
    ask(client, rows=[{"x0": 1, "x1": 2}], model="plain")
    text = client.get("/metrics").text
    assert 'mcdensity_requests_total{path="/predict",status="200"}' in text
    assert 'path="other",status="404"' in text
    for line in text.splitlines():
        assert line.startswith("# TYPE ") or float(line.rpartition(" ")[2]) >= 0
    assert "explore" in client.get("/").text


def test_schema(client, plain):
    found = client.get("/schema", params={"model": "tabled"}).json()
    features = {f["name"]: f for f in found["features"]}
    table, _ = make_table()
    assert features["size"]["type"] == "number"
    np.testing.assert_allclose(
        features["size"]["range"], [table["size"].min(), table["size"].max()]
    )
    assert features["kind"] == {"name": "kind", "type": "text", "texts": ["car", "van"]}
    (target,) = found["targets"]
    assert (target["name"], target["kind"]) == ("price", "continuous")
    assert found["models"] == ["plain", "tabled"]
    low, high = client.get("/schema?model=plain").json()["features"][0]["range"]
    assert -5 < low < -1 < 1 < high < 5
    assert client.get("/schema").status_code == 422
    assert client.get("/schema?model=x").status_code == 422


def test_levels_several_targets_and_dates():
    table, y = make_table(120)
    graded = pd.cut(y, 3, labels=["low", "medium", "high"]).astype(str)
    levels = ("low", "medium", "high")
    days = pd.date_range("2024-01-01", periods=120, freq="3D").strftime("%Y-%m-%d")
    small = MCD("quadratic", random_state=0)
    models = {
        "graded": TableEstimator(small, levels=levels).fit(table, graded),
        "both": TableEstimator(small).fit(
            table, pd.DataFrame({"a": y, "b": -y + table["kind"].eq("van")})
        ),
        "dated": TableEstimator(small, dates=("month",)).fit(table.assign(day=days), y),
    }
    with TestClient(create_app(models)) as client:
        one = ask(client, model="graded", rows=[GOOD])["predictions"][0]["probabilities"]
        assert list(one) == list(levels)
        assert sum(one.values()) == pytest.approx(1)
        one = ask(client, model="both", rows=[GOOD] * 3, interval=0.5)["predictions"]
        law = models["both"].predict_distribution(pd.DataFrame([GOOD]))
        for name in "ab":
            np.testing.assert_allclose(
                one[2][name]["interval"], law.marginal(name).interval(0.5)[0]
            )
        assert "one target" in ask(client, 422, model="both", rows=[GOOD], density=[1.0])["error"]
        row = {**GOOD, "day": "2024-05-31"}
        expected = models["dated"].predict(pd.DataFrame([row]))[0]
        rows = [row, {**GOOD, "day": None}]
        found = ask(client, model="dated", rows=rows)["predictions"]
        assert found[0]["mean"] == pytest.approx(expected)
        alone = ask(client, model="dated", rows=rows[1:])["predictions"][0]
        assert alone["mean"] == pytest.approx(found[1]["mean"], rel=1e-10)
        assert alone["quantiles"] == pytest.approx(found[1]["quantiles"], rel=1e-10)
        wrong = ask(client, 422, model="dated", rows=[row, {**GOOD, "day": "soon"}])
        assert (wrong["row"], wrong["column"]) == (1, "day")
        kinds = [f["type"] for f in client.get("/schema?model=dated").json()["features"]]
        assert kinds == ["number", "text", "date"]
        assert "no explorer" in client.get("/?model=dated").text


def test_pipelines():
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    from mcdensity import as_estimator

    table, y = make_table(120)
    table = table.fillna({"size": 0.0})
    parts = make_column_transformer((OneHotEncoder(), ["kind"]), (StandardScaler(), ["size"]))
    model = as_estimator(make_pipeline(parts, MCD("quadratic", random_state=0)).fit(table, y))
    with TestClient(create_app(model)) as client:
        found = ask(client, rows=[GOOD])["predictions"][0]["mean"]
        assert found == pytest.approx(model.predict(pd.DataFrame([GOOD]))[0])
        # What is wrong is known only when the pipeline sees it; others are answered all the same.
        error = ask(client, 422, rows=[{**GOOD, "size": "big"}])["error"]
        assert error.startswith("The model does not take these rows: ")
        assert error.endswith(".")
        assert "no explorer" in client.get("/").text


def test_token(plain, monkeypatch):
    monkeypatch.setenv("MCDENSITY_TOKEN", "sesame")
    with TestClient(create_app(plain)) as client:
        assert client.get("/healthz").status_code == 200
        for path in ("/schema", "/", "/docs", "/metrics", "/openapi.json", "/nothing"):
            assert client.get(path).status_code == 401
        refused = client.post("/predict", json={}, headers={"Authorization": "Bearer Sesame"})
        assert refused.status_code == 401
        assert "token" in refused.json()["error"]
        for header in ("Basic !!", "Basic c2VzYW1l", "Digest sesame", "sesame", "Bearer é"):
            got = client.get("/schema", headers={"Authorization": header.encode("latin-1")})
            assert got.status_code == 401
        assert client.get("/schema", headers={"Authorization": "bearer sesame"}).status_code == 200
        assert client.get("/schema", auth=("anyone", "sesame")).status_code == 200
    monkeypatch.setenv("MCDENSITY_TOKEN", " ")
    with pytest.raises(ValueError, match="MCDENSITY_TOKEN is set, and empty"):
        create_app(plain)


@pytest.fixture
def quick_distilling(monkeypatch):
    monkeypatch.setattr("mcdensity.experts.distilled._BUDGETS", ((0, 1000, 40),))


def test_explorer(tabled, quick_distilling):
    small = tabled.distill(random_state=0)
    with TestClient(create_app(small)) as client:
        page = client.get("/").text
        assert "price" in page
        assert client.get("/").text == page
    with TestClient(create_app(small, explorer=False)) as client:
        assert len(client.get("/").text) < 5000


class Slow:
    """An estimator that waits, and notes how many rows it is asked about."""

    n_features_in_ = 1

    def __init__(self, model):
        self.model, self.gate, self.sizes = model, threading.Event(), []

    def predict_distribution(self, X):
        assert self.gate.wait(30)
        self.sizes.append(len(X))
        if (X > 100).any():
            raise ValueError("x0 is beyond everything.")
        if (X < -100).any():
            raise RuntimeError("broken in /home/someone")
        return self.model.predict_distribution(X)


@pytest.fixture
def slow():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 1))
    return Slow(MCD("quadratic", random_state=0).fit(X, X[:, 0] + rng.normal(size=100)))


def job(model, *x, question=None):
    values = {"x0": np.array(x, dtype=float)}
    return Job(model, values, len(x), question or Question(quantiles=(0.5,), mean=True))


def means(future):
    return [p["mean"] for p in json.loads(future.result(30))["predictions"]]


def test_requests_are_predicted_together(slow):
    served, batches = Served("slow", slow), []
    batcher = Batcher(Limits(), lambda *counts: batches.append(counts))
    first = batcher.submit(job(served, 0.0))
    while batcher.waiting:
        time.sleep(0.001)
    x = np.linspace(-1, 1, 12)
    median = Question(quantiles=(0.5,))
    others = [batcher.submit(job(served, v, v + 1)) for v in x]
    asked = batcher.submit(job(served, 0.5, question=median))
    bad = batcher.submit(job(served, 1.0, 1e6))
    broken = batcher.submit(job(served, -1e6))
    slow.gate.set()
    expected = slow.model.predict(np.column_stack([x, x + 1]).reshape(-1, 1)).reshape(-1, 2)
    np.testing.assert_allclose([means(f) for f in others], expected, rtol=1e-9)
    assert json.loads(asked.result(30))["predictions"][0].keys() == {"quantiles"}
    assert len(means(first)) == 1
    with pytest.raises(RequestError, match="beyond everything") as error:
        bad.result(30)
    assert error.value.status == 422
    with pytest.raises(RequestError, match="failed on these rows") as error:
        broken.result(30)
    assert error.value.status == 500
    batcher.close()
    assert batches == [(1, 1), (15, 28)]
    assert slow.sizes[:2] == [1, 28]


def test_a_full_queue_refuses_and_the_end_finishes(slow):
    served = Served("slow", slow)
    batcher = Batcher(Limits(rows=3, waiting=5))
    batcher.submit(job(served, 0.0))
    while batcher.waiting:
        time.sleep(0.001)
    waiting = [batcher.submit(job(served, 0.0)) for _ in range(5)]
    with pytest.raises(RequestError, match="try again") as error:
        batcher.submit(job(served, 0.0))
    assert error.value.status == 503
    closing = threading.Thread(target=batcher.close)
    closing.start()
    while not batcher._closed:
        time.sleep(0.001)
    with pytest.raises(RequestError, match="shutting down"):
        batcher.submit(job(served, 0.0))
    slow.gate.set()
    closing.join(30)
    assert all(len(means(f)) == 1 for f in waiting)


def test_a_full_queue_over_http(slow):
    with TestClient(create_app(slow, max_waiting=2)) as client, ThreadPoolExecutor(8) as pool:
        found = [pool.submit(client.post, "/predict", json={"rows": [{"x0": 1}]}) for _ in range(8)]
        while sum(f.done() for f in found) < 4:
            time.sleep(0.005)
        slow.gate.set()
        replies = [f.result() for f in found]
    assert {r.status_code for r in replies} == {200, 503}
    assert all(r.headers["Retry-After"] == "1" for r in replies if r.status_code == 503)


def test_a_replaced_file_is_taken_up(plain, slow, tmp_path):
    path = tmp_path / "model.mcd"
    save(plain, path)
    told = []
    shelf = Shelf({"model": path}, load, lambda *what: told.append(what))
    old = shelf.get(None)
    shelf.look()
    assert shelf.get("model") is old
    path.write_bytes(path.read_bytes()[:500])
    shelf.look()
    assert shelf.get("model") is old
    path.unlink()
    shelf.look()
    assert shelf.get("model") is old
    save(slow.model, path)
    shelf.look()
    new = shelf.get("model")
    assert [column.name for column in new.columns] == ["x0"]
    assert told == [("model", False), ("model", True)]
    # What was asked of the old model gets its answer from the old model.
    batcher = Batcher(Limits())
    values = {"x0": np.zeros(1), "x1": np.zeros(1)}
    asked = batcher.submit(Job(old, values, 1, Question(mean=True)))
    assert means(asked) == pytest.approx(plain.predict([[0.0, 0.0]]))
    batcher.close()


# The process.


def start(*words, **environment):
    """Start a server, and return it with its address."""
    server = subprocess.Popen(
        [sys.executable, "-m", "mcdensity.cli", "serve", *map(str, words), "--port", "0"],
        stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )  # fmt: skip
    for line in server.stderr:
        if "http://" in line:
            return server, line.split()[-1]
    raise AssertionError(server.wait())


def rows_of(address):
    """Number of rows that a server has begun to predict."""
    lines = httpx.get(f"{address}/metrics").text.splitlines()
    return next(int(v.split()[1]) for v in lines if v.startswith("mcdensity_rows_total "))


def test_the_process(plain, tmp_path, quick_distilling):
    path, new = tmp_path / "model.mcd", tmp_path / "new.mcd"
    save(plain, path)
    save(plain.distill(random_state=0), new)
    server, address = start(path)
    statuses, stop = [], threading.Event()

    def keep_asking():
        with httpx.Client(base_url=address, timeout=30) as client:
            while not stop.is_set():
                reply = client.post("/predict", json={"rows": [{"x0": 1, "x1": 2}]})
                statuses.append(reply.status_code)

    try:
        with ThreadPoolExecutor(2) as pool, httpx.Client(base_url=address, timeout=30) as client:
            asking = [pool.submit(keep_asking) for _ in range(2)]
            assert not client.get("/schema").json()["distilled"]
            shutil.copy(new, tmp_path / "copy.mcd")
            os.replace(tmp_path / "copy.mcd", path)
            while not client.get("/schema").json()["distilled"]:
                time.sleep(0.05)
            stop.set()
            for each in asking:
                each.result()
            assert set(statuses) == {200}
            # Told to end in the middle of a large request, it finishes this first.
            rows = [{"x0": i / 5000, "x1": 0.0} for i in range(5000)]
            last = pool.submit(client.post, "/predict", json={"rows": rows})
            while not last.done() and rows_of(address) < len(statuses) + 5000:
                time.sleep(0.005)
            server.send_signal(signal.SIGTERM)
            assert len(last.result().json()["predictions"]) == 5000
        assert server.wait(60) == 0
    finally:
        stop.set()
        server.kill()
        server.wait()
        server.stderr.close()


@pytest.fixture
def run(tmp_path):
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from mcdensity.cli import app

    def invoke(*words):
        return CliRunner().invoke(app, ["serve", *map(str, words)])

    return invoke


def test_mistakes_of_the_command(plain, tmp_path, run):
    path = tmp_path / "model.mcd"
    save(plain, path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        error = run(path, "--port", taken.getsockname()[1]).exception
        assert isinstance(error, OSError)
        assert "is in use; choose another" in str(error)
    (tmp_path / "text.mcd").write_text("no model")
    for words, expected in (
        ((tmp_path / "text.mcd",), "is not a model file"),
        ((tmp_path / "none.mcd",), "There is no file"),
        ((path, path), "Two models have the name"),
        ((path, "--max-rows", 0), "max_rows must be an integer"),
        ((path, "--host", "no.such.host.invalid"), "There is no host"),
    ):
        error = run(*words, "--port", 0).exception
        assert isinstance(error, ValueError | OSError), words
        assert expected in str(error)
        assert "\n" not in str(error)
    assert Path(path).exists()
