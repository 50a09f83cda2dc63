"""The explorer: a page whose numbers are Python's, and that works for everyone."""

import base64
import hashlib
import json
import re

import numpy as np
import pandas as pd
import pytest

from browser import PROBE, ask
from mcdensity import MCD, TableEstimator, explore
from mcdensity.experts import distilled
from mcdensity.explorer._controls import controls_of, limits_of

N = 400
LEVELS = [0.001, 0.05, 0.25, 0.5, 0.75, 0.95, 0.999]
QUICK = ((0, 3000, 150),)


def table(n=N, seed=0):
    """Numbers, one of them with gaps, and text with a rare value."""
    rng = np.random.default_rng(seed)
    out = pd.DataFrame(
        {
            "size": rng.normal(3, 2, n),
            "rooms": rng.integers(1, 9, n).astype(float),
            "age": rng.gamma(2, 10, n),
            "kind": rng.choice(["house", "flat", "barn", "boat"], n, p=[0.5, 0.3, 0.19, 0.01]),
        }
    )
    out.loc[rng.random(n) < 0.1, "age"] = np.nan
    return out


def targets(X, kind, seed=1):
    rng = np.random.default_rng(seed)
    mean = X["size"].to_numpy() + 2 * (X["kind"] == "house").to_numpy()
    if kind == "continuous":
        return mean + rng.normal(size=len(X))
    if kind == "bounded":
        return np.exp(0.2 * mean + 0.4 * rng.normal(size=len(X)))
    if kind == "discrete":
        return rng.poisson(np.exp(np.clip(0.2 * mean, 0, 2))).astype(float)
    if kind == "mixed":
        amount = np.exp(0.2 * mean + 0.4 * rng.normal(size=len(X)))
        return np.where(rng.random(len(X)) < 0.4, 0.0, amount)
    first = mean + rng.normal(size=len(X))
    return pd.DataFrame({"a": first, "b": 0.5 * first + rng.normal(size=len(X))})


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Distilled models of all kinds of targets, and their pages; each is made once."""
    made = {}

    def one(kind):
        if kind not in made:
            X = table()
            folder = tmp_path_factory.mktemp(kind)
            y = targets(X, kind)
            model = TableEstimator(MCD("quadratic", random_state=0, joint="chain")).fit(X, y)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(distilled, "_BUDGETS", QUICK)
                small = model.distill(random_state=0)
            page = explore(small, X, folder / "page.html", y)
            made[kind] = small, page.path.read_text(), X, y
        return made[kind]

    return one


def asked(text, question, folder, width=1200):
    """Ask a page; its policy lets no other script run, so that of the question is allowed."""
    script = (PROBE % question).split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "script-src 'sha256-" in text
    return ask(
        text.replace("script-src ", f"script-src 'sha256-{digest}' "), question, folder, width
    )


def payload(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


def on_the_page(text, X, small):
    """Rows of a table as the page counts them: numbers, codes of texts, null where missing."""
    columns, controls = [], {c.name: c for c in controls_of(small)[0]}
    for shown in payload(text)["controls"]:
        values = X[shown["name"]]
        if shown.get("options"):
            options = list(controls[shown["name"]].options)
            values = [options.index(v) if v in options else len(options) - 1 for v in values]
        columns.append([None if pd.isna(v) else float(v) for v in values])
    return [list(row) for row in zip(*columns, strict=True)]


def numbers(text, rows, points, folder):
    """What the page computes: log-densities and P(y > v) at points, and quantiles, of each row."""
    question = f"""
    const rows = {json.dumps(rows)}.map(r => r.map(v => v === null ? NaN : v));
    const points = {json.dumps(points)}, levels = {json.dumps(LEVELS)};
    const laws = rows.map(x => window.explorer.law(x));
    const each = f => laws.map((law, i) => points[i].map(v => f(law, v)));
    return {{ logpdf: each((law, v) => Math.max(law.logpdf(v), -1e9)),
              sf: each((law, v) => law.sf(v)),
              ppf: laws.map(law => levels.map(q => law.ppf(q))) }};
    """
    found = asked(text, question, folder)
    return [np.array(found[name]) for name in ("logpdf", "sf", "ppf")]


@pytest.mark.parametrize("kind", ["continuous", "bounded", "discrete", "mixed"])
def test_the_numbers_of_the_page_are_those_of_python(make, kind, tmp_path):
    small, text, _, y = make(kind)
    X = table(200, seed=5)
    law = small.predict_distribution(X)
    rng = np.random.default_rng(2)
    if kind == "discrete":
        points = rng.choice(law.atoms[:12], (200, 20))
    else:
        points = np.sort(rng.uniform(y.min() - 1, y.max() + 1, (200, 20)), axis=1)
        if kind != "continuous":
            points = np.maximum(points, 0.01)
        if kind == "mixed":
            points[:, 0] = 0.0
    logpdf, sf, ppf = numbers(text, on_the_page(text, X, small), points.tolist(), tmp_path)
    there = law.pdf(points)
    peak = there.max(axis=1, keepdims=True)
    seen = there > 1e-6 * peak
    assert seen.mean() > 0.3
    np.testing.assert_allclose(np.exp(logpdf)[seen], there[seen], rtol=1e-4)
    np.testing.assert_allclose(sf, law.sf(points), rtol=1e-4, atol=1e-12)
    quantiles = law.ppf_grid(LEVELS)
    if kind == "discrete":  # a level that falls on a step may go either way
        assert (ppf != quantiles).mean() < 0.01
    else:
        np.testing.assert_allclose(ppf, quantiles, rtol=1e-4, atol=1e-4 * y.std())


def test_two_targets_are_a_chain_on_the_page_too(make, tmp_path):
    small, text, _, _ = make("joint")
    assert payload(text)["targets"] == ["a", "b"]
    X = table(30, seed=5)
    points = targets(X, "joint", seed=9).to_numpy()
    question = f"""
    const rows = {json.dumps(on_the_page(text, X, small))};
    const points = {json.dumps(points.tolist())};
    rows.forEach(r => r.forEach((v, j) => {{ if (v === null) r[j] = NaN; }}));
    const found = rows.map((x, i) => window.explorer.law(x).logpdf(points[i][0])
      + window.explorer.law(x, 1, [points[i][0]]).logpdf(points[i][1]));
    return {{ found, shapes: document.querySelectorAll("#law-figure .inside").length }};
    """
    seen = asked(text, question, tmp_path)
    np.testing.assert_allclose(seen["found"], small.logpdf(X, points), atol=1e-4)
    assert seen["shapes"] == 4  # regions of four levels


def test_arrays_with_gaps_and_features_that_cannot_be_moved(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    X[rng.random(X.shape) < 0.1] = np.nan
    y = np.nan_to_num(X[:, 2]) * 2 + rng.normal(size=300)
    monkeypatch.setattr(distilled, "_BUDGETS", QUICK)
    monkeypatch.setattr("mcdensity.explorer._MOST_CONTROLS", 3)
    small = MCD("quadratic", random_state=0).fit(X, y).distill()
    page = explore(small, X, tmp_path / "page.html")
    assert "3 features that matter most" in page.notes[0]
    text = page.path.read_text()
    shown = [int(c["name"][1:]) for c in payload(text)["controls"]]
    assert shown[0] == 2  # the only one that matters
    assert payload(text)["controls"][0]["missing"]
    new = rng.normal(size=(20, 4))
    new[::3, 2] = np.nan
    (hidden,) = set(range(4)) - set(shown)
    kept = small._kept_rows[:, hidden] * small.x_scale_[hidden] + small.x_mean_[hidden]
    marked = small._kept_rows[:, 4 + small.missing_columns_.index(hidden)]
    new[:, hidden] = np.median(kept[marked == 0])
    rows = [[None if np.isnan(v) else v for v in row] for row in new[:, shown].tolist()]
    logpdf, sf, _ = numbers(text, rows, [[0.0, 1.0]] * 20, tmp_path)
    law = small.predict_distribution(new)
    np.testing.assert_allclose(logpdf, law.logpdf_grid([0.0, 1.0]), atol=1e-4)
    np.testing.assert_allclose(sf[:, 0], law.sf(0.0), rtol=1e-4)


# The page for those who use it.

LOOK = """
const visible = e => e.getClientRects().length > 0;
const all = (s, of = document) => [...of.querySelectorAll(s)].filter(visible);
const named = e => e.getAttribute("aria-label") || (e.labels && e.labels.length
  && [...e.labels].some(l => l.textContent.trim())) || e.textContent.trim();
const numbers = c => { const m = c.match(/[\\d.]+/g).map(Number);
  return m.length < 4 ? [...m, 1] : m; };
const light = c => { const [r, g, b] = c.map(v => v / 255).map(
  v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = e => { for (; e; e = e.parentElement) {
  const c = numbers(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; }
  return [255, 255, 255, 1]; };
const contrast = e => { const style = getComputedStyle(e);
  const a = light(numbers(e.namespaceURI.endsWith("svg") ? style.fill : style.color));
  const b = light(behind(e)); return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); };
const texts = () => all("body *").filter(e => !["OPTION", "PRE"].includes(e.tagName)
  && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
const least = () => Math.min(...texts().map(contrast));
const at = id => document.getElementById(id);
"""


@pytest.mark.parametrize("width", [1200, 500])
def test_everyone_can_use_the_page(make, tmp_path, width):
    _, text, _, _ = make("continuous")
    question = (
        LOOK
        + """
    const steps = {};
    at("pin").click();
    explorer.set(0, explorer.controls[0].high);
    at("theme").click();
    const first = least(), kind = document.documentElement.dataset.theme;
    at("theme").click();
    const second = least();
    const controls = all("button, select, input, [role=slider]");
    return {
      ranges: all("#list input[type=range]").length, first, second, kind, checked: texts().length,
      themes: kind !== document.documentElement.dataset.theme,
      unnamed: controls.filter(e => !named(e)).map(e => e.outerHTML),
      unreachable: controls.filter(e => e.tabIndex < 0).map(e => e.outerHTML),
      requests: performance.getEntriesByType("resource").length,
      pictures: all("svg[role=img]").map(e => e.getAttribute("aria-label")),
      pinned: all("#pins tbody tr").length,
    };"""
    )
    seen = asked(text, question, tmp_path, width)
    assert seen["ranges"] == 3  # one for each number
    assert seen["themes"]
    assert min(seen["first"], seen["second"]) >= 4.5
    assert seen["checked"] > 30
    assert seen["unnamed"] == seen["unreachable"] == []
    assert seen["requests"] == 0
    assert "median" in seen["pictures"][0]
    assert seen["pinned"] == 2


def test_controls_rows_and_warnings(make, tmp_path):
    small, text, X, y = make("continuous")
    question = (
        LOOK
        + """
    const press = (e, key) => e.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    const set = (e, v) => { e.value = v; e.dispatchEvent(new Event("input", {bubbles: true}));
                            e.dispatchEvent(new Event("change", {bubbles: true})); };
    const usual = at("far").hidden, near = explorer.state.row;
    set(at("row"), "7");
    const row = [...explorer.state.x], outcome = at("numbers").textContent;
    const handle = document.querySelector("[role=slider]"), before = explorer.state.limits[0];
    press(handle, "ArrowRight");
    const moved = explorer.state.limits[0] > before;
    const slider = document.querySelector("#list input[type=range]");
    set(slider, slider.max);
    const left = at("row").value, median = explorer.law(explorer.state.x).ppf(0.5);
    set(document.querySelector("#list input[type=number]"), 1e3);
    const far = at("far").textContent;
    at("reset").click();
    return { usual, row, outcome, moved, left, median, far, back: explorer.state.row === near };"""
    )
    seen = asked(text, question, tmp_path)
    assert seen["usual"]
    assert seen["moved"]
    assert seen["back"]
    number = payload(text)["rows"]["numbers"][7]
    (wanted,) = on_the_page(text, X.iloc[[number]], small)
    assert seen["row"] == wanted
    assert f"{y[number]:.4g}".replace("-", "\u2212") in seen["outcome"]
    assert seen["left"] == ""  # no row any more
    assert "outside of the range" in seen["far"]


def test_text_from_the_data_stays_text(tmp_path, monkeypatch):
    monkeypatch.setattr(distilled, "_BUDGETS", QUICK)
    evil = "</script><script>window.hacked = 1</script><!-- <img src=x onerror=hacked=1>"
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {evil: rng.normal(size=200), "{{script}}": rng.choice([evil, "b\u2028'\""], 200)}
    )
    y = pd.Series(X[evil] + rng.normal(size=200), name=evil)
    model = TableEstimator(MCD("quadratic", random_state=0)).fit(X, y)
    page = explore(model, X, tmp_path / "page.html", y, title=evil)
    question = """return { hacked: "hacked" in window, images: document.images.length,
      names: explorer.controls.map(c => c.name),
      labels: [...document.querySelectorAll("#list label")].map(e => e.textContent),
      title: document.title, head: document.querySelector("h1").textContent,
      scripts: document.scripts.length };"""
    seen = asked(page.path.read_text(), question, tmp_path)
    assert not seen["hacked"]
    assert seen["images"] == 0
    assert seen["scripts"] == 3  # the data, the page's own and the question
    assert seen["names"] == seen["labels"] == [evil, "{{script}}"]
    assert seen["title"] == seen["head"] == evil


def test_thirty_features_need_less_than_two_megabytes(tmp_path, monkeypatch):
    monkeypatch.setattr(distilled, "_BUDGETS", ((0, 1000, 20),))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 30))
    y = X[:, 0] + rng.normal(size=400)
    small = MCD("quadratic", random_state=0).fit(X, y).distill()
    page = explore(small, X, tmp_path / "page.html", y)
    assert page.path.stat().st_size < 2e6
    seen = asked(
        page.path.read_text(),
        LOOK
        + """
    const before = all("#list .control").length; at("more").click();
    return { before, after: all("#list input[type=range]").length };""",
        tmp_path,
    )
    assert seen["before"] == 12
    assert seen["after"] == 30


def test_a_network_that_is_not_close_is_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr(distilled, "_BUDGETS", ((0, 1000, 2),))
    X = table(200)
    y = targets(X, "continuous")
    model = TableEstimator(MCD("quadratic", random_state=0)).fit(X, y)
    page = explore(model, X, tmp_path / "page.html", y)
    assert page.loss > 0.1
    assert f"lost {page.loss:.2f} nats on 200 rows" in page.notes[-1]
    seen = asked(
        page.path.read_text(),
        'return {notes: document.getElementById("notes").textContent};',
        tmp_path,
    )
    assert page.notes[-1] in seen["notes"]


def test_what_cannot_be_explored_is_refused_in_one_sentence(make, tmp_path):
    small, _, X, y = make("continuous")
    out = tmp_path / "page.html"
    with pytest.raises(ValueError, match=r"lacks columns that the model was fitted with: 'size'"):
        explore(small, X.drop(columns="size"), out)
    plain = MCD("quadratic").fit(X[["size", "rooms"]], y)
    with pytest.raises(ValueError, match=r"X lacks columns .*'rooms' \(did you mean 'Rooms'"):
        explore(plain, X[["size", "rooms"]].rename(columns={"rooms": "Rooms"}), out)
    with pytest.raises(ValueError, match="X has no rows"):
        explore(small, X[:0], out)
    with pytest.raises(ValueError, match="one value per row of X, 400 rows"):
        explore(small, X, out, y[:10])
    with pytest.raises(TypeError, match="model must be a fitted MCD"):
        explore("model.mcd", X, out)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        explore(small, X, tmp_path)
    assert not out.exists()


def test_levels_have_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(distilled, "_BUDGETS", QUICK)
    X, levels = table(), ("low", "medium", "high")
    grade = np.array(levels)[np.digitize(targets(X, "continuous"), [2.0, 5.0])]
    model = TableEstimator(MCD("quadratic", random_state=0), levels=levels)
    page = explore(model.fit(X, pd.Series(grade, name="grade")), X, tmp_path / "page.html")
    question = """return { ticks: [...document.querySelectorAll("#law-figure text")]
        .map(e => e.textContent), median: document.querySelector("dd").textContent };"""
    seen = asked(page.path.read_text(), question, tmp_path)
    assert {*levels, "grade"} <= set(seen["ticks"])
    assert seen["median"] in levels


def test_positions_of_sliders_are_round_numbers():
    assert limits_of(np.array([1.0, 5.0, 3.0, np.nan])) == (1.0, 5.0, 1.0)
    low, high, step = limits_of(np.random.default_rng(0).uniform(0.123, 7.456, 1000))
    assert (step, low) == (0.01, 0.12)
    assert 7.4 < high <= 7.46
    wild = np.concatenate([np.random.default_rng(0).normal(size=1000), [1e6]])
    assert limits_of(wild)[1] < 10
    assert limits_of(np.full(5, 3.0))[0] < 3 < limits_of(np.full(5, 3.0))[1]


def test_the_command_writes_the_page(make, tmp_path):
    typer = pytest.importorskip("typer.testing")
    from mcdensity import save
    from mcdensity.cli import app

    small, _, X, y = make("continuous")
    save(small, tmp_path / "model.mcd")
    X.assign(y=y).to_csv(tmp_path / "data.csv", index=False)
    arguments = ["explore", "model.mcd", "data.csv", "-o", "page.html", "--target", "y"]
    paths = [str(tmp_path / a) if "." in a else a for a in arguments]
    found = typer.CliRunner().invoke(app, paths, catch_exceptions=False)
    assert found.exit_code == 0
    assert "page.html" in found.output
    content = payload((tmp_path / "page.html").read_text())
    assert content["rows"]["outcomes"] is not None
    assert sorted(c["name"] for c in content["controls"]) == ["age", "kind", "rooms", "size"]
