"""The protocols about several targets: parameters of simulators, and joint data."""

import numpy as np
import pytest

from mcdensity.benchmark.joint_data import LinearGaussian, true_law
from mcdensity.benchmark.protocols import PROTOCOLS, run_cell
from mcdensity.benchmark.sbi import simulate
from mcdensity.benchmark.tables import _LOWER
from mcdensity.datasets.simulations import SIMULATIONS
from samples import COVARIANCE, SLOPES, exact_logpdf


def test_protocol_about_simulators(monkeypatch):
    observed, exact = simulate("gaussian_mixture", 2, np.random.default_rng(1))
    around = exact[:, None] + 0.7 * np.random.default_rng(2).normal(size=(2, 400, 2))
    monkeypatch.setattr("mcdensity.benchmark.sbi.load_simulation", lambda task: (observed, around))
    found = run_cell("sbi", "gaussian_mixture 1000", "MCD:fast", 0, True)["metrics"]
    plain = run_cell("sbi", "gaussian_mixture 1000", "Marginal", 0, True)["metrics"]
    assert 0.4 < found["c2st"] < plain["c2st"] - 0.05
    for task, k in zip(SIMULATIONS, (2, 2, 10, 10, 5), strict=True):
        x, y = simulate(task, 2000, np.random.default_rng(0))
        assert y.shape == (2000, k)
        assert np.isfinite(x).all()
    with pytest.raises(ValueError, match="is no task"):
        simulate("moons", 5, np.random.default_rng(0))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_tables_know_which_side_of_a_metric_is_better(name):
    protocol = PROTOCOLS[name]
    assert (protocol.metric in _LOWER) == protocol.lower_is_better


def test_protocol_about_joint_data():
    found = {
        method: run_cell("joint-data", "Banana", method, 0, True)["metrics"]
        for method in ("MCD:fast", "Independent", "LinearGaussian")
    }
    assert found["MCD:fast"]["log_likelihood"] > found["Independent"]["log_likelihood"] + 0.05
    for metrics in found.values():
        assert metrics["kl"] > 0
        assert 0 < metrics["energy"] < 3


def test_true_laws_of_joint_data_integrate_to_one():
    X = np.random.default_rng(0).normal(size=(1, 4))
    at = np.linspace(-9, 9, 61)
    for problem, k in (("Banana", 2), ("Normal3", 3)):
        points = np.stack(np.meshgrid(*[at if k == 3 else np.linspace(-9, 30, 400)] * k), -1)
        points = points.reshape(-1, k)
        step = (18 / 60) ** 3 if k == 3 else (39 / 399) ** 2
        total = np.exp(true_law(problem, np.repeat(X, len(points), axis=0), points)).sum() * step
        assert np.isclose(total, 1, atol=1e-3)


def test_a_linear_gaussian_is_exact_on_lines():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    Y = X @ SLOPES + rng.normal(size=(3000, 3)) @ np.linalg.cholesky(COVARIANCE).T
    model = LinearGaussian().fit(X[:2000], Y[:2000])
    exact = exact_logpdf(X[2000:] @ SLOPES, COVARIANCE, Y[2000:]).mean()
    assert abs(model.score(X[2000:], Y[2000:]) - exact) < 0.01
