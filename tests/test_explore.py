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
from mcdensity.explorer._controls import controls_of, limits_of, scaled, values_of

RNG = np.random.default_rng(0)
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
    small, text, _, y = make("joint")
    assert payload(text)["targets"] == ["a", "b"]
    X = table(30, seed=5)
    points = targets(X, "joint", seed=9).to_numpy()
    question = f"""
    const rows = {json.dumps(on_the_page(text, X, small))}.map(r => r.map(v => v === null ? NaN : v));
    const points = {json.dumps(points.tolist())};
    const found = rows.map((x, i) => window.explorer.law(x).logpdf(points[i][0])
      + window.explorer.law(x, 1, [points[i][0]]).logpdf(points[i][1]));
    return {{ found, shapes: document.querySelectorAll("#law-figure .inside").length }};
    """
    seen = asked(text, question, tmp_path)
    np.testing.assert_allclose(seen["found"], small.logpdf(X, points), atol=1e-4)
    assert seen["shapes"] == 4  # regions of four levels
