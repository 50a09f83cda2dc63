"""The report: numbers that are right, warnings that are due, a page that works."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib")

from browser import ask
from mcdensity import MCD, TableEstimator, metrics
from mcdensity.distribution import GaussianMixtureDistribution
from mcdensity.estimator import ConditionalEstimator
from mcdensity.report import build_report, evaluate, evaluate_joint, write_report
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


@pytest.mark.parametrize("width", [1200, 420], ids=["wide", "narrow"])
def test_report_in_a_browser(tmp_path, width):
    table = pd.DataFrame(X, columns=["a", "b", "long name <of> a & feature"])
    table["kind"] = np.where(X[:, 1] > 0, "high", "low")
    target = pd.Series(Y, name="price")
    model = TableEstimator(MCD("quadratic", random_state=0)).fit(table[:400], target[:400])
    said = []
    text, result = build_report(
        model, table[400:].reset_index(drop=True), Y[400:], progress=said.append
    )
    assert len(said) == 4
    assert "price: report on held-out rows" in text
    assert f"{result.log_likelihood:.3f}" in text
    assert "&lt;of&gt; a &amp; feature" in text
    question = """
      const images = [...document.images];
      return { images: images.length, alone: images.every(i => i.src.startsWith("data:")),
        broken: images.filter(i => !i.complete || i.naturalWidth < 50).length,
        named: images.every(i => i.alt), tables: document.querySelectorAll("table").length,
        outside: document.querySelectorAll("link[href^=http], script[src]").length };"""
    seen = ask(text, question, tmp_path, width)
    assert seen["images"] == 3 + 2 + 4
    assert seen["alone"]
    assert seen["named"]
    assert seen["broken"] == 0
    assert seen["tables"] == 5
    assert seen["outside"] == 0


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
        assert "e+0" not in text.split("<img")[0]
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
