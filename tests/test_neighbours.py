"""Laws and models in the hands of other libraries: scipy, skpro, sktime, mlflow, ONNX."""

import json
import runpy
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from mcdensity import MCD, TableEstimator, save
from mcdensity.distribution import (
    DiscreteDistribution,
    GaussianMixtureDistribution,
    MixedDistribution,
)


def skewed(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + rng.gamma(2.0, 1 + 0.3 * np.abs(X[:, 1]))


@pytest.fixture(scope="module")
def law():
    X, y = skewed()
    return MCD("quadratic", random_state=0).fit(X, 1000 + y).predict_distribution(X[:4])


@pytest.fixture(scope="module")
def mixture():
    return GaussianMixtureDistribution([[1, 2], [1, 0]], [[-1, 3], [0, 1]], [[1, 2], [0.5, 1]])


@pytest.fixture(params=["law", "mixture"])
def any_law(request):
    return request.getfixturevalue(request.param)


def points_of(law):
    low, high = law.ppf(0.01).min(), law.ppf(0.99).max()
    return np.linspace(low, high, 7)


# scipy.


@pytest.mark.skipif(not hasattr(stats, "make_distribution"), reason="scipy is older")
def test_scipy(any_law):
    found, at, q = any_law.to_scipy(), points_of(any_law), np.array([0.001, 0.3, 0.99])
    near = {"rtol": 1e-6, "atol": 1e-6}
    assert isinstance(found, stats.make_distribution(stats.norm).__mro__[1])
    np.testing.assert_allclose(found.pdf(at[0]), any_law.pdf(at[0]), **near)
    np.testing.assert_allclose(found.pdf(at[:, None]), any_law.pdf_grid(at).T, **near)
    np.testing.assert_allclose(found.cdf(at[:, None]), any_law.cdf_grid(at).T, **near)
    np.testing.assert_allclose(found.ccdf(at[3]), any_law.sf(at[3]), **near)
    np.testing.assert_allclose(found.icdf(q[:, None]), any_law.ppf_grid(q).T, **near)
    for theirs, ours in (
        ("mean", "mean"), ("variance", "var"), ("standard_deviation", "std"),
        ("skewness", "skewness"), ("median", "median"), ("entropy", "entropy"), ("mode", "mode"),
    ):  # fmt: skip
        expected = getattr(any_law, ours)()
        np.testing.assert_allclose(getattr(found, theirs)(), expected, err_msg=ours, **near)
    np.testing.assert_allclose(found.kurtosis(convention="excess"), any_law.kurtosis(), **near)
    np.testing.assert_allclose(found.moment(2, kind="central"), any_law.var(), **near)
    second = any_law.var() + any_law.mean() ** 2
    np.testing.assert_allclose(found.moment(2, kind="raw"), second, **near)
    drawn = found.sample(500, rng=np.random.default_rng(0))
    assert drawn.shape == (500, len(any_law))
    assert stats.kstest(any_law.cdf(drawn.T).ravel(), "uniform").pvalue > 1e-4
    # scipy integrates the density itself to the same moments.
    np.testing.assert_allclose(
        (found - any_law.mean()).mean(), 0, atol=1e-6 * np.abs(any_law.mean()).max() + 1e-6
    )


def test_older_scipy(any_law, monkeypatch):
    monkeypatch.delattr(stats, "make_distribution", raising=False)
    found, at = any_law.to_scipy(), points_of(any_law)
    near = {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(found.pdf(at[2]), any_law.pdf(at[2]), **near)
    np.testing.assert_allclose(found.cdf(at[:, None]), any_law.cdf_grid(at).T, **near)
    np.testing.assert_allclose(found.sf(at[4]), any_law.sf(at[4]), **near)
    np.testing.assert_allclose(found.ppf(0.2), any_law.ppf(0.2), **near)
    for name in ("mean", "var", "std", "median", "entropy"):
        np.testing.assert_allclose(getattr(found, name)(), getattr(any_law, name)(), **near)
    third = any_law.skewness(), any_law.kurtosis()
    np.testing.assert_allclose(found.stats("sk"), third, **near)


def test_counts_in_scipy():
    counts = DiscreteDistribution([0, 1, 4], [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    found = counts.to_scipy()
    for k in (0, 1, 3, 4, 7):
        np.testing.assert_allclose(found.pmf(k), counts.pmf(k))
        np.testing.assert_allclose(found.cdf(k), counts.cdf(k))
    np.testing.assert_allclose(found.mean(), counts.mean())
    np.testing.assert_allclose(found.var(), counts.var())
    np.testing.assert_allclose(found.ppf(0.75), counts.ppf(0.75))
    with pytest.raises(ValueError, match=r"whole numbers.* such as 0\.5"):
        DiscreteDistribution([0, 0.5], [[0.5, 0.5]]).to_scipy()


def test_what_scipy_does_not_have(mixture):
    with pytest.raises(ValueError, match="mixed"):
        MixedDistribution([0.0], [[0.5], [0.2]], mixture).to_scipy()
    with pytest.raises(ValueError, match="no rows"):
        mixture[:0].to_scipy()


# skpro and sktime.


def test_laws_in_skpro(any_law):
    pytest.importorskip("skpro")
    names = [f"row {i}" for i in range(len(any_law))]
    found = any_law.to_skpro(index=names, columns=["price"])
    assert found.shape == (len(any_law), 1)
    at = float(points_of(any_law)[2])
    for theirs, ours in (("pdf", "pdf"), ("log_pdf", "logpdf"), ("cdf", "cdf"), ("surv", "sf")):
        table = getattr(found, theirs)(at)
        assert list(table.index) == names
        np.testing.assert_allclose(table["price"], getattr(any_law, ours)(at), rtol=1e-12)
    np.testing.assert_allclose(found.ppf(0.3)["price"], any_law.ppf(0.3))
    np.testing.assert_allclose(found.mean()["price"], any_law.mean())
    np.testing.assert_allclose(found.var()["price"], any_law.var())
    one = found.iloc[1, 0]
    assert one.shape == ()
    assert one.cdf(at) == pytest.approx(any_law.cdf(at)[1])
    np.testing.assert_allclose(found.loc[["row 1"]].mean(), any_law.mean()[[1]][:, None])
    with pytest.raises(ValueError, match="must name the"):
        any_law.to_skpro(index=[1])


def test_atoms_in_skpro(mixture):
    pytest.importorskip("skpro")
    counts = DiscreteDistribution([0, 1], [[0.25, 0.75]] * 2).to_skpro()
    assert counts.get_tag("distr:measuretype") == "discrete"
    assert (counts.pmf(1) == 0.75).all(axis=None)
    assert (counts.pdf(1) == 0).all(axis=None)
    mixed = MixedDistribution([0.0], [[0.5], [0.2]], mixture).to_skpro()
    assert mixed.get_tag("distr:measuretype") == "mixed"
    np.testing.assert_allclose(mixed.pmf(0)[0], [0.5, 0.2])
    np.testing.assert_allclose(mixed.pdf(1.0)[0], mixture.pdf(1.0) * [0.5, 0.8])
    assert mixture.to_skpro().get_tag("distr:measuretype") == "continuous"


@pytest.mark.filterwarnings("ignore")
def test_checks_of_skpro():
    pytest.importorskip("skpro")
    from skpro.utils import check_estimator

    from mcdensity.skpro import MCDRegressor

    found = check_estimator(MCDRegressor, raise_exceptions=True, verbose=False)
    assert len(found) > 30
    assert set(found.values()) == {"PASSED"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_checks_of_skpro_for_laws():
    pytest.importorskip("skpro")
    from skpro.utils import check_estimator

    from mcdensity.skpro import LawDistribution

    found = check_estimator(LawDistribution, raise_exceptions=True, verbose=False)
    assert len(found) > 50
    assert set(found.values()) == {"PASSED"}


def test_regressor_of_skpro_with_text():
    pytest.importorskip("skpro")
    import pandas as pd

    from mcdensity.skpro import MCDRegressor

    X, y = skewed()
    table = pd.DataFrame({"a": X[:, 0], "kind": np.where(X[:, 1] > 0, "x", "y")})
    regressor = MCDRegressor(MCD("quadratic", random_state=0))
    regressor.fit(table, pd.DataFrame({"y": y}))
    assert isinstance(regressor.estimator_, TableEstimator)
    q = regressor.predict_quantiles(table[:5], alpha=[0.1, 0.9])
    expected = regressor.estimator_.predict_quantiles(table[:5], [0.1, 0.9])
    np.testing.assert_allclose(q.to_numpy(), expected)
    interval = regressor.predict_interval(table[:5], coverage=0.8)
    np.testing.assert_allclose(interval.to_numpy(), expected)


@pytest.mark.filterwarnings("ignore")
def test_forecasts_of_sktime():
    pytest.importorskip("skpro")
    pytest.importorskip("sktime")
    import pandas as pd
    from sktime.forecasting.compose import YfromX

    from mcdensity.skpro import MCDRegressor

    rng = np.random.default_rng(0)
    months = pd.period_range("2000-01", periods=240, freq="M")
    X = pd.DataFrame({"angle": np.sin(np.arange(240) * np.pi / 6)}, index=months)
    y = pd.Series(10 + 3 * X["angle"] + rng.normal(size=240), index=months, name="sales")
    forecaster = YfromX(MCDRegressor(MCD("quadratic", random_state=0)))
    forecaster.fit(y[:200], X=X[:200], fh=months[200:])
    interval = forecaster.predict_interval(X=X[200:], coverage=0.9)["sales"][0.9]
    inside = (y[200:] > interval["lower"]) & (y[200:] < interval["upper"])
    assert 0.75 < inside.mean() <= 1
    assert forecaster.predict_proba(X=X[200:]).shape == (40, 1)


# mlflow.


@pytest.mark.filterwarnings("ignore")
def test_models_in_mlflow(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")  # before it is imported
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("mlflow.sklearn")
    import pandas as pd

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    X, y = skewed(100)
    table = pd.DataFrame(X, columns=["a", "b"])
    model = MCD("quadratic", random_state=0).fit(table, y)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        with mlflow.start_run():
            logged = mlflow.sklearn.log_model(
                model,
                name="model",
                signature=mlflow.models.infer_signature(table, model.predict(table)),
                serialization_format="cloudpickle",
                pip_requirements=["mcdensity"],  # to find them out starts another process
            )
        again = mlflow.pyfunc.load_model(logged.model_uri)
    finally:
        mlflow.set_tracking_uri(before)
    # By name: the order of the columns does not matter.
    np.testing.assert_allclose(again.predict(table[["b", "a"]]), model.predict(table))
    with pytest.raises(mlflow.exceptions.MlflowException):
        again.predict(table[["a"]])


# ONNX.


@pytest.fixture
def quick_distilling(monkeypatch):
    monkeypatch.setattr("mcdensity.experts.distilled._BUDGETS", ((0, 1000, 60),))


def ask(path, model, X):
    """Outputs of a file, by name, and its description."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["mcdensity"])
    core = model.estimator_ if isinstance(model, TableEstimator) else model
    inner = model._prepare(X) if isinstance(model, TableEstimator) else X
    x = core._check_predict(inner).astype(np.float32)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": x}), strict=True)), about


def densities(found, about):
    """Densities at the knots, and these."""
    log_marginal = np.array([-np.inf if v is None else v for v in about["log_marginal"]])
    y = np.array([np.nan if v is None else v for v in about["y"]])
    return np.exp(found["log_ratio"].astype(float) + log_marginal), y


@pytest.mark.parametrize("support", [(None, None), (0, None)])
def test_onnx_of_densities(support, tmp_path, quick_distilling):
    pytest.importorskip("onnx")
    from mcdensity.exporting import export_onnx

    X, y = skewed()
    y = y if support[0] is None else np.exp(y / 4)
    small = MCD("quadratic", target="continuous", support=support, random_state=0).fit(X, y)
    small = small.distill(random_state=0)
    path = tmp_path / "model.onnx"
    about = export_onnx(small, path)
    new = np.vstack([X[:20], 5 * X[:5]])
    found, described = ask(path, small, new)
    assert described == about
    density, at = densities(found, about)
    inside = np.isfinite(at)
    inside[[0, -1]] = False
    expected = small.predict_distribution(new).pdf_grid(at[inside])
    np.testing.assert_allclose(density[:, inside], expected, rtol=1e-4, atol=1e-4)
    # The exponential is linear in u on a log scale: its integral is 1.
    u, ratio = np.array(about["u"]), found["log_ratio"].astype(float)
    fine = np.linspace(0, 1, 200_001)
    total = [np.trapezoid(np.exp(np.interp(fine, u, row)), fine) for row in ratio[:3]]
    np.testing.assert_allclose(total, 1, atol=1e-3)
    # What the description says of the inputs makes them.
    mean, scale = (np.array([entry[k] for entry in about["inputs"]]) for k in ("mean", "scale"))
    np.testing.assert_allclose((new - mean) / scale, small._check_predict(new), rtol=1e-12)


def test_onnx_of_counts_and_atoms(tmp_path, quick_distilling):
    pytest.importorskip("onnx")
    pd = pytest.importorskip("pandas")
    from mcdensity.exporting import export_onnx

    X, _ = skewed()
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"a": X[:, 0], "kind": np.where(X[:, 1] > 0, "x", "y")})
    table.loc[::7, "a"] = np.nan
    counts = rng.poisson(np.exp(0.5 * X[:, 0]))
    small = TableEstimator(MCD("quadratic", random_state=0)).fit(table, counts)
    small = small.distill(random_state=0)
    export_onnx(small, tmp_path / "a.onnx")
    found, about = ask(tmp_path / "a.onnx", small, table[:9])
    law = small.predict_distribution(table[:9])
    np.testing.assert_allclose(about["values"], law.atoms)
    np.testing.assert_allclose(found["masses"], law.masses, atol=1e-4)
    assert [entry["kind"] for entry in about["inputs"]] == ["value", "missing", "is", "is"]
    assert about["inputs"][3]["text"] == "y"

    rain = np.where(rng.random(300) < 0.4, 0.0, np.exp(X[:, 0] + rng.normal(size=300)))
    small = MCD("quadratic", target="mixed", random_state=0).fit(X, rain).distill(random_state=0)
    export_onnx(small, tmp_path / "b.onnx")
    found, about = ask(tmp_path / "b.onnx", small, X[:9])
    law = small.predict_distribution(X[:9])
    assert about["values"] == [0.0, None]
    np.testing.assert_allclose(found["masses"][:, :1], law.masses, atol=1e-4)
    np.testing.assert_allclose(found["masses"].sum(axis=1), 1, atol=1e-6)
    density, at = densities(found, about)
    inner = slice(5, -5)
    expected = law.rest.pdf_grid(at[inner])
    np.testing.assert_allclose(density[:, inner], expected, rtol=1e-4, atol=1e-4)


def test_export_of_the_command_line(tmp_path, quick_distilling):
    pytest.importorskip("onnx")
    pytest.importorskip("skops")
    testing = pytest.importorskip("typer.testing")
    from mcdensity.cli import app

    X, y = skewed(100)
    save(MCD("quadratic", random_state=0).fit(X, y), tmp_path / "model.mcd")
    words = ["export", str(tmp_path / "model.mcd"), "-o", str(tmp_path / "model.onnx")]
    result = testing.CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert "2 standardised columns (x0, x1)" in result.output
    assert (tmp_path / "model.onnx").stat().st_size > 1000


def test_what_cannot_be_exported(tmp_path, quick_distilling):
    pytest.importorskip("onnx")
    from mcdensity.baselines import get_estimator
    from mcdensity.exporting import export_onnx

    X, y = skewed(100)
    model = MCD("quadratic", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="distilled first"):
        export_onnx(model, tmp_path / "x.onnx")
    with pytest.raises(TypeError, match="MarginalBaseline"):
        export_onnx(get_estimator("marginal").fit(X, y), tmp_path / "x.onnx")
    both = MCD("quadratic", random_state=0).fit(X, np.column_stack([y, y + X[:, 0] ** 2]))
    with pytest.raises(ValueError, match="2 targets"):
        export_onnx(both.distill(random_state=0), tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())


# ScoringBench.


@dataclass
class Prediction:
    """What ScoringBench's DistributionPrediction asks for."""

    bin_edges: np.ndarray
    probas: np.ndarray
    mean: np.ndarray
    train_range: tuple
    is_grid_native: bool

    @classmethod
    def from_histogram(cls, bin_edges, probas, mean=None, *, train_range, is_grid_native=False):
        assert np.isfinite(train_range).all()
        assert train_range[0] < train_range[1]
        return cls(bin_edges, probas, mean, train_range, is_grid_native)


class Wrapper:
    """What ScoringBench's ProbabilisticWrapper offers."""

    def _set_train_range(self, y):
        self._y_train_range = float(np.min(y)), float(np.max(y))


@pytest.fixture
def wrapper(monkeypatch):
    path = "scoringbench.univariate.wrappers.base"
    module = types.ModuleType(path)
    module.DistributionPrediction, module.ProbabilisticWrapper = Prediction, Wrapper
    monkeypatch.setitem(sys.modules, path, module)
    for name in ("scoringbench", "scoringbench.univariate", "scoringbench.univariate.wrappers"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    file = Path(__file__).parents[1] / "benchmarks/scoringbench_wrapper.py"
    return runpy.run_path(str(file))["MCDWrapper"]


def test_wrapper_for_scoringbench(wrapper):
    pd = pytest.importorskip("pandas")
    X, y = skewed()
    y[3] = np.nan
    quick = MCD("quadratic", random_state=0)
    table = pd.DataFrame({"a": X[:, 0], "kind": np.where(X[:, 1] > 0, "x", "y")})
    for rows in (X, pd.DataFrame(X, columns=["a", "b"]), table):
        model = wrapper(quick, n_bins=300).fit(rows, y)
        found = model.predict_distribution(rows[:20])
        law = model.model_.predict_distribution(rows[:20])
        assert found.probas.shape == (20, 300)
        assert found.bin_edges.shape == (20, 301)
        assert (np.diff(found.bin_edges, axis=1) > 0).all()
        np.testing.assert_allclose(found.probas.sum(axis=1), 1)
        np.testing.assert_allclose(found.mean, model.predict(rows[:20]))
        middle = (found.bin_edges[:, 1:] + found.bin_edges[:, :-1]) / 2
        np.testing.assert_allclose((found.probas * middle).sum(axis=1), law.mean(), atol=0.02)
        density = found.probas / np.diff(found.bin_edges, axis=1)
        inner = slice(1, -1)
        np.testing.assert_allclose(density[:, inner], law.pdf(middle)[:, inner], atol=0.03)
        assert found.is_grid_native
