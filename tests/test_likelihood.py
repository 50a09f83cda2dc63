"""Several targets by the law of x given them, pooled with a chain."""

import numpy as np
import pytest
from scipy import stats

from mcdensity import MCD, load, save
from mcdensity._joint_choice import choose_way
from mcdensity.distribution.tilted import TiltedDistribution
from mcdensity.likelihood import looks_simulated

LINE = {"target": "continuous", "support": (None, None)}
NOISE = 0.5


def simulated(n, seed=0):
    """Parameters, and three measurements of them: x given y is simpler than y given x."""
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(n, 2))
    mean = np.column_stack([Y[:, 0], Y[:, 1], Y[:, 0] + Y[:, 1]])
    return mean + NOISE * rng.normal(size=(n, 3)), Y


def exact_logpdf(X, Y):
    A = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    cov = np.linalg.inv(np.eye(2) + A.T @ A / NOISE**2)
    mean = X @ A @ cov / NOISE**2
    return stats.multivariate_normal(np.zeros(2), cov).logpdf(Y - mean)


@pytest.fixture(scope="module")
def model():
    return MCD("quadratic", joint="likelihood", random_state=0, n_jobs=1, **LINE).fit(
        *simulated(600)
    )


def test_the_law_is_that_of_bayes_formula(model):
    assert model.joint_way_ == "likelihood"
    X, Y = simulated(60, seed=1)
    found, exact = model.logpdf(X, Y), exact_logpdf(X, Y)
    assert (exact - found).mean() < 0.15
    law = model.predict_distribution(X[:3])
    assert isinstance(law, TiltedDistribution)
    assert (law.effective_draws() > 50).all()
    # It integrates to one, and samples are its own.
    axis = np.linspace(-3, 3, 41)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    density = model.pdf_from_X(X[:1], grid)[0]
    assert density.sum() * (axis[1] - axis[0]) ** 2 == pytest.approx(1, abs=0.05)
    draws = model.sample(X[:1], 1000, 0)[0]
    mean = (density[:, None] * grid).sum(axis=0) / density.sum()
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.08)
    np.testing.assert_allclose(law.mean()[0], mean, atol=0.05)
    np.testing.assert_allclose(np.cov(draws.T), law.cov()[0], atol=0.05)


def test_the_unit_of_x_changes_nothing(model):
    X, Y = simulated(600)
    large = MCD("quadratic", joint="likelihood", random_state=0, n_jobs=1, **LINE).fit(1e25 * X, Y)
    X_new, Y_new = simulated(60, seed=1)
    found = large.logpdf(1e25 * X_new, Y_new)
    np.testing.assert_allclose(found, model.logpdf(X_new, Y_new), atol=0.01)


@pytest.mark.slow
def test_it_is_better_than_the_chain_where_x_is_made_from_y():
    X, Y = simulated(100, seed=1)
    options = {"effort": "fast", "random_state": 0, "n_jobs": 1, **LINE}
    found, plain = (
        MCD("mixture", joint=way, **options).fit(*simulated(600)).logpdf(X, Y)
        for way in ("likelihood", "chain")
    )
    assert found.mean() > plain.mean()


def noisy_mean(n, seed=0):
    """Four draws of a normal law: given its mean and spread simple, the other way round not."""
    rng = np.random.default_rng(seed)
    Y = rng.uniform(-2, 2, size=(n, 2))
    return Y[:, :1] + np.exp(Y[:, 1:]) * rng.normal(size=(n, 4)), Y


QUICK = {"discriminator_params": {"members": 1, "steps": 100}, "random_state": 0, "n_jobs": 1}


def test_auto_takes_it_where_it_is_far_better():
    model = MCD("mixture", **QUICK, **LINE)
    way, order, scores = choose_way(model, *noisy_mean(300), None, [LINE, LINE])
    assert way == "likelihood"
    assert sorted(order) == [0, 1]
    chains = [score for key, score in scores.items() if isinstance(key, tuple)]
    assert scores["likelihood"] > max(chains) + 0.2


def test_auto_leaves_it_where_it_gains_little():
    model = MCD("quadratic", random_state=0, n_jobs=1, **LINE).fit(*simulated(300))
    assert model.joint_way_ == "chain"
    # Within the error of 64 rows.
    assert abs(model.joint_scores_["likelihood"] - model.joint_scores_["y0, y1"]) < 0.2


@pytest.mark.parametrize(
    "change",
    [
        lambda X: np.where(X > 2, np.nan, X),
        lambda X: X.round(),
        lambda X: np.column_stack([X, np.ones(len(X))]),
        lambda X: np.tile(X, 6),
    ],
)
def test_auto_does_not_try_it_for_what_no_simulator_makes(change):
    assert not looks_simulated(change(simulated(300)[0]))
    assert looks_simulated(simulated(300)[0])


def test_auto_goes_on_where_x_has_no_joint_law():
    X, Y = simulated(300)
    way, _, scores = choose_way(
        MCD("quadratic", random_state=0, n_jobs=1), X[:, [0, 1, 0]], Y, None, [LINE, LINE]
    )
    assert way == "chain"
    assert "likelihood" not in scores


def test_files_and_rows_and_refusals(model, tmp_path):
    X, Y = simulated(5, seed=2)
    save(model, tmp_path / "model.mcd")
    again = load(tmp_path / "model.mcd")
    np.testing.assert_array_equal(again.logpdf(X, Y), model.logpdf(X, Y))
    one = [model.logpdf(X[i : i + 1], Y[i : i + 1])[0] for i in range(5)]
    np.testing.assert_allclose(one, model.logpdf(X, Y), rtol=1e-10)
    assert model.predict_quantiles(X, (0.1, 0.9)).shape == (5, 2, 2)
    with pytest.raises(ValueError, match="distill is for chains"):
        model.distill()
    with pytest.raises(ValueError, match="recalibrate is for one target and for chains"):
        model.recalibrate(*simulated(100, seed=3))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X: np.where(X > 2, np.nan, X), "X has missing values"),
        (lambda X: np.column_stack([X, np.ones(len(X))]), "column 3 of X is constant"),
        (lambda X: X[:, [0, 1, 0]], "with the columns of X as targets .* determined by 'y0'"),
        (lambda X: np.tile(X, 20), "X has 60 columns, and at most 50 can be learned"),
    ],
)
def test_features_without_a_law(change, words):
    X, Y = simulated(60)
    model = MCD("quadratic", joint="likelihood", random_state=0, n_jobs=1)
    with pytest.raises(ValueError, match=words):
        model.fit(change(X), Y)
    with pytest.raises(ValueError, match="time_budget is not for joint='likelihood'"):
        model.set_params(time_budget=10).fit(X, Y)


def test_one_feature():
    X, Y = simulated(200)
    model = MCD("quadratic", joint="likelihood", random_state=0, n_jobs=1, **LINE)
    assert np.isfinite(model.fit(X[:, :1], Y).logpdf(X[:9, :1], Y[:9])).all()
