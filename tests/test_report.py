"""The report: numbers that are right, warnings that are due, a page that works."""

import html
import re
from importlib import resources

import numpy as np
import pandas as pd
import pytest
from scipy import stats

pytest.importorskip("matplotlib")

from browser import ask
from mcdensity import MCD, TableEstimator, metrics
from mcdensity.distribution import GaussianMixtureDistribution
from mcdensity.estimator import ConditionalEstimator
from mcdensity.report import build_report, evaluate, evaluate_joint, write_report
from mcdensity.report.groups import by_feature, by_level, misses
from mcdensity.target import TargetSpace

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
NOISE = RNG.normal(size=600)
Y = 20 + 5 * X[:, 0] + 2 * NOISE


class Known(ConditionalEstimator):
    """Says that y given x is normal; the spread and the shift are ours to choose."""

    def __init__(self, spread=2.0, shift=0.0, slope=5.0):
        self.spread = spread
        self.shift = shift
        self.slope = slope

    def fit(self, X, y, sample_weight=None):
        self.n_features_in_ = np.asarray(X).shape[1]
        self.target_space_ = TargetSpace(0.0, 1.0)
        self._knots = np.zeros(1)
        return self

    def _check_predict(self, X):
        return np.asarray(X, dtype=np.float64)

    def _distribution(self, X):
        mean = 20 + self.shift + self.slope * X[:, :1]
        spread = np.asarray(self.spread(mean) if callable(self.spread) else self.spread)
        return GaussianMixtureDistribution(
            np.ones_like(mean), mean, np.broadcast_to(spread, mean.shape)
        )


def known(**parameters):
    return Known(**parameters).fit(X, Y)


def test_numbers_are_those_of_the_metrics():
    model = known()
    result = evaluate(model, X, Y, importances=True)
    d = model.predict_distribution(X)
    assert result.log_likelihood == pytest.approx(metrics.log_likelihood(d, Y))
    assert result.crps == pytest.approx(metrics.crps(d, Y))
    assert result.coverage[0.9] == pytest.approx(metrics.coverage(d, Y, level=0.9))
    assert result.mae == pytest.approx(np.abs(2 * NOISE).mean())
    low, high = result.chance(0.9)
    assert low < 0.9 < high
    # Only the first feature matters; half of log(1 + 25 / 4) is what it is worth.
    assert result.importance[0][0] == 0
    assert [loss for _, loss in result.importance][1:] == [0, 0]
    assert result.gain == pytest.approx(0.5 * np.log(1 + 25 / 4), abs=0.1)
    assert result.warnings == []


@pytest.mark.parametrize(
    ("parameters", "warning"),
    [
        ({"spread": 1.0}, "Intervals are too narrow: the 90 % intervals hold only"),
        ({"spread": 4.0}, "Intervals are too wide: the 90 % intervals hold"),
        ({"shift": 2.0}, "Outcomes tend to be lower than predicted"),
        ({"shift": -2.0}, "Outcomes tend to be higher than predicted"),
        (
            {"spread": lambda mean: np.where(mean > 22, 0.9, 2.3)},
            "Intervals are too narrow where the predicted median is above",
        ),
        ({"slope": 0.0, "spread": 6.0}, "The features tell nothing about the target"),
    ],
    ids=["narrow", "wide", "high", "low", "narrow above", "nothing"],
)
def test_warnings_in_plain_words(parameters, warning):
    found = evaluate(known(**parameters), X, Y).warnings
    assert any(text.startswith(warning) for text in found), found


def test_warnings_about_the_data():
    assert "only 30 held-out rows" in evaluate(known(), X[:30], Y[:30]).warnings[0]
    rounded = evaluate(known(), X, np.round(Y / 5) * 5).warnings
    assert any("different values, like counts" in text for text in rounded)
    outlier = Y.copy()
    outlier[7] = 200
    assert any("all but impossible" in text for text in evaluate(known(), X, outlier).warnings)
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    model = TableEstimator(MCD("quadratic", random_state=0)).fit(table[:300], Y[:300])
    assert "were used to fit the model" in evaluate(model, table[:300], Y[:300]).warnings[0]
    far = evaluate(model, table[300:] + 5, Y[300:]).warnings
    assert any("'a' outside of what was seen in training" in text for text in far)


HOSTILE = "</td><script>console.error('in')</script><img src=x onerror=console.error(1)>&\"'"


def hostile_report():
    """Return a report on a table whose names and texts are markup."""
    table = pd.DataFrame(X, columns=["a", "b", HOSTILE])
    table["kind"] = np.where(X[:, 1] > 0, f"{HOSTILE} high", "<!-- body -->")
    target = pd.Series(Y, name=f"price {HOSTILE}")
    model = TableEstimator(MCD("quadratic", random_state=0)).fit(table[:400], target[:400])
    said = []
    text, result = build_report(
        model,
        table[400:].reset_index(drop=True),
        Y[400:],
        commands=["mcdensity report <model>"],
        progress=said.append,
    )
    assert len(said) == 4
    return text, result


# The least contrast of any text with what is behind it, in what the page computes.
CONTRAST = """
  const light = c => { const v = c.map(x => x / 255).map(
      x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  let contrast = 99;
  for (const e of document.body.querySelectorAll("*")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest("script") || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const front = parse(e.closest("svg") ? style.fill : style.color);
    let back = e;
    while (back && (parse(getComputedStyle(back).backgroundColor)[3] ?? 1) === 0)
      back = back.parentElement;
    const behind = back ? parse(getComputedStyle(back).backgroundColor) : [255, 255, 255];
    const [low, high] = [light(front), light(behind)].sort((p, q) => p - q);
    contrast = Math.min(contrast, (high + 0.05) / (low + 0.05));
  }"""


@pytest.mark.parametrize(
    ("width", "scheme"), [(1400, "light"), (400, "light"), (1000, "dark")], ids=str
)
def test_report_in_a_browser(tmp_path, width, scheme):
    text, result = hostile_report()
    assert f"{result.log_likelihood:.3f}" in text
    assert "<img src=x" not in text
    assert text.count("<script>") == 1
    assert "mcdensity report &lt;model&gt;" in text
    dark = "@media (prefers-color-scheme: dark)"
    assert dark in text
    text = text.replace(dark, "@media all" if scheme == "dark" else "@media not all")
    question = """
      %s
      const drawn = [...document.querySelectorAll("svg[role=img]")];
      const table = document.querySelector("#groups table");
      const column = k => [...table.tBodies[0].rows].map(r => Number(r.cells[k].dataset.v));
      const before = column(4);
      table.querySelectorAll("th button")[4].click();
      const down = column(4);
      table.querySelectorAll("th button")[4].click();
      return { contrast, before, down, up: column(4),
        sorted: table.querySelectorAll("th")[4].getAttribute("aria-sort"),
        charts: document.querySelectorAll("svg.chart").length,
        named: drawn.every(e => e.getAttribute("aria-label")),
        sections: [...document.querySelectorAll("section")].map(e => e.id),
        links: [...document.querySelectorAll("nav a")].every(a => document.querySelector(a.hash)),
        outside: document.querySelectorAll("link[href^=http], script[src], img, iframe").length,
        asked: performance.getEntriesByType("resource").length,
        smallest: Math.min(...drawn.map(e => e.getBoundingClientRect().width)) };"""
    seen = ask(text, question % CONTRAST, tmp_path, width)
    assert seen["contrast"] >= 4.5
    assert seen["down"] == sorted(seen["before"], reverse=True)
    assert seen["up"] == sorted(seen["before"])
    assert seen["sorted"] == "ascending"
    # Calibration 3, errors 1, two for each of four features, the target 1.
    assert seen["charts"] == 3 + 1 + 2 * 4 + 1
    assert seen["named"]
    assert seen["links"]
    assert seen["outside"] == seen["asked"] == 0
    assert seen["smallest"] > 50
    assert seen["sections"] == [
        "calibration", "groups", "wrong", "rows", "importance", "features", "target", "recipe",
    ]  # fmt: skip


def test_colours_can_be_read():
    """All text colours on all backgrounds, in light and dark windows and in print."""
    css = resources.files("mcdensity.report").joinpath("style.css").read_text()
    schemes = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    assert len(schemes) == 3
    for scheme in schemes:
        colour = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", scheme))
        light = {name: luminance(value) for name, value in colour.items()}
        for front in ("ink", "muted", "blue", "orange", "green", "purple"):
            for back in ("page", "card", "soft", "good", "bad"):
                low, high = sorted((light[front], light[back]))
                assert (high + 0.05) / (low + 0.05) >= 4.5, (front, back)


def luminance(colour):
    """Relative luminance, as the Web Content Accessibility Guidelines define it."""
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def words_of(text):
    """Return the text of a page, without markup."""
    plain = re.sub(r"<(style|script)>.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(plain).replace("\xa0", " ").split())


def test_headline_in_plain_words():
    """y = 20 + 5 x + 2 e: intervals of 6.6, which are sqrt(29) / 2 = 2.7 times as sharp."""
    said = words_of(build_report(known(), X, Y)[0])
    found = re.search(
        r"90 % intervals hold (\d+) % of outcomes ; typically 6.6 wide ; (\S+) times as sharp as "
        "without features",
        said,
    )
    assert found, said[:500]
    assert 86 <= int(found[1]) <= 94
    assert float(found[2]) == pytest.approx(np.sqrt(29) / 2, rel=0.1)
    nothing = words_of(build_report(known(slope=0.0, spread=np.sqrt(29)), X, Y)[0])
    assert "about as sharp as without features" in nothing
    assert "less sharp than" in words_of(build_report(known(spread=20.0), X, Y)[0])


def test_where_it_is_wrong():
    """Rows of one group have twice the noise, and are shifted."""
    rng = np.random.default_rng(1)
    kind = rng.choice(["calm", "wild"], 600)
    table = pd.DataFrame({"x": X[:, 0], "kind": kind})
    y = 20 + 5 * X[:, 0] + np.where(kind == "wild", 3 + 4 * NOISE, 2 * NOISE)

    class OfTable(Known):
        def _check_predict(self, X):
            return X[["x"]].to_numpy()

    model = OfTable().fit(table, y)
    result = evaluate(model, table, y, importances=True)
    assert set(result.importance_error) == {"x", "kind"}
    parts = {(p.feature, p.label): p for p in by_feature(result, table, ["x", "kind"])}
    assert len(parts) == 5
    calm, wild = parts["kind", "calm"], parts["kind", "wild"]
    assert wild.off
    assert not calm.off
    assert wild.coverage < 0.7
    assert wild.bias == pytest.approx(3, abs=0.8)
    assert wild.error > calm.error
    assert calm.chance[0] < 0.9 < calm.chance[1]
    assert calm.width == pytest.approx(2 * 2 * stats.norm.ppf(0.95))
    levels = by_level(result)
    assert sum(p.n_rows for p in levels) == 600
    below, above = misses(result)
    assert below.n_rows + above.n_rows == round((1 - result.coverage[0.9]) * 600)
    assert below.expected == above.expected == 0.05
    assert above.n_rows > below.n_rows
    end = 20 + 5 * X[:, 0] + 2 * stats.norm.ppf(0.95)
    assert above.worst == pytest.approx((y - end).max())


def test_columns_of_all_kinds(tmp_path):
    """Truth values, nullable numbers, categories, dates and numbers as text, some missing."""
    rng = np.random.default_rng(2)
    days = pd.date_range("2020-01-01", periods=600, freq="D")[rng.permutation(600)]
    table = pd.DataFrame({
        "yes": X[:, 0] > 0,
        "count": pd.array(rng.integers(0, 9, 600), dtype="Int64"),
        "kind": pd.Categorical(rng.choice(list("abc"), 600)),
        "day": days,
        "text": [str(v) if v % 5 else "?" for v in rng.integers(1, 50, 600)],
    })  # fmt: skip
    table.loc[::9, "count"] = pd.NA
    model = TableEstimator(MCD("quadratic", random_state=0), dates=("month", "elapsed"))
    model.fit(table[:400], Y[:400])
    text, result = build_report(model, table[400:], Y[400:], n_features=5)
    assert next(name for name, _ in result.importance) == "yes"
    labels = [part.label for part in by_feature(result, table[400:], ["count", "day"])]
    assert labels[3] == "missing"
    assert re.fullmatch(r"below 202[01]-\d\d-\d\d", labels[4])
    # Of each feature what is, and what it does: truth values have two boxes in both.
    pictures = text.split("<h3>yes</h3>")[1].split("<h3>")[0].split("<figure>")[1:]
    assert [picture.count('class="area inner"') for picture in pictures] == [2, 2]


def test_report_of_an_array(tmp_path):
    result = write_report(known(), X, Y, tmp_path / "report.html", title="A <title>")
    text = (tmp_path / "report.html").read_text()
    assert "A &lt;title&gt;" in text
    assert "No warnings" in text
    assert result.as_dict()["n_rows"] == 600


def test_mistakes():
    with pytest.raises(ValueError, match="y contains NaN"):
        evaluate(known(), X, np.full(600, np.nan))
    with pytest.raises(ValueError, match="X has 600 rows and y has 5"):
        evaluate(known(), X, Y[:5])
    with pytest.raises(ValueError, match="at least 2 are needed"):
        evaluate(known(), X[:1], Y[:1])


def test_reports_on_counts_and_atoms(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    counts = rng.poisson(np.exp(0.5 + 0.5 * X[:, 0])).astype(float)
    zeros = np.where(rng.random(500) < 0.5, 0.0, 1000 * rng.lognormal(X[:, 0], 0.5))
    for y, word in ((counts, "log-mass"), (zeros, "log-density")):
        model = MCD("quadratic", random_state=0).fit(X[:300], y[:300])
        found = write_report(model, X[300:], y[300:], tmp_path / "report.html")
        text = (tmp_path / "report.html").read_text()
        assert f"mean {word}" in text
        assert model.target_kind_ in text
        assert not re.search(r"\de[+-]\d", words_of(text))
        assert "of predictions" in words_of(text).split("The target is")[1]
        # With atoms an interval holds more than it must.
        assert found.nominal[0.5] > 0.55
        low, high = found.chance(0.5)
        assert low < found.nominal[0.5] < high
        assert found.gain > 0


def test_report_of_several_targets(tmp_path):
    target = pd.DataFrame({"price": Y, "<b>size": 0.5 * Y + NOISE + RNG.normal(size=600)})
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    model = TableEstimator(
        MCD("quadratic", random_state=0, joint="chain", support=(None, None))
    ).fit(table[:400], target[:400])
    new, outcomes = table[400:460].reset_index(drop=True), target[400:460].reset_index(drop=True)
    result = write_report(model, new, outcomes, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "price, &lt;b&gt;size: report on held-out rows" in text
    assert "<b>size" not in text
    assert "How they belong together" in text
    assert np.isclose(result.log_likelihood, model.logpdf(new, outcomes).mean())
    assert list(result.targets) == ["price", "<b>size"]
    law = model.predict_distribution(new)
    assert np.isclose(
        result.targets["price"].crps, metrics.crps(law.marginal(0), outcomes["price"])
    )
    assert result.dependence > 0.3
    assert 0.8 < result.coverage[0.9] <= 1
    assert result.correlation[0, 1] > 0.5
    # The columns may come in another order.
    again = evaluate_joint(model, new, outcomes[["<b>size", "price"]])
    assert np.isclose(again.targets["price"].mae, result.targets["price"].mae)
    assert again.as_dict()["targets"]["price"]["n_rows"] == 60
    with pytest.raises(ValueError, match="at least 2"):
        evaluate_joint(model, new[:1], outcomes[:1])
    with pytest.raises(TypeError, match="is for models of one target"):
        evaluate(model, new, outcomes["price"])


def test_warnings_about_several_targets():
    target = np.column_stack([Y, 0.5 * Y + NOISE])
    model = MCD("quadratic", random_state=0, joint="chain", support=(None, None))
    model.fit(X[:400], target[:400] * 0.5)  # too small, and too narrow
    found = evaluate_joint(model, X[400:], target[400:])
    assert any(text.startswith("y0: Intervals are too narrow") for text in found.warnings)
    assert any("regions of all targets together are too narrow" in t for t in found.warnings)
    few = evaluate_joint(model, X[400:420], target[400:420]).warnings
    assert sum("only 20 held-out rows" in text for text in few) == 1
