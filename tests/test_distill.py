"""`distill`: one small network with the densities of a model; threads that change no number."""

import os
import time

import joblib
import numpy as np
import pandas
import pytest
import torch

from mcdensity import MCD, TableEstimator, _distilling, _parallel, explore, load, save
from mcdensity._distilling import network_only
from mcdensity._parallel import in_parallel, worker_count
from mcdensity.experts import distilled
from mcdensity.experts.density.shares import TreeShares
from mcdensity.experts.density.stacked import forest_of, neighbours_of
from mcdensity.exporting import export_onnx


def rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + (0.3 + 0.2 * (X[:, 1] > 0)) * rng.normal(size=n)


@pytest.fixture(scope="module")
def pair():
    X, y = rows()
    model = MCD("quadratic", random_state=0).fit(X, y)
    return model, model.distill(random_state=0)


def test_the_distilled_law_is_that_of_the_model(pair):
    model, small = pair
    X, y = rows(2000, seed=1)
    lost = model.logpdf(X, y) - small.logpdf(X, y)
    assert abs(lost.mean()) < 0.02
    assert small.distill_loss_ < 0.02
    levels = [0.05, 0.5, 0.95]
    inside = (np.abs(X) < 1.5).all(axis=1)
    far = np.abs(model.predict_quantiles(X, levels) - small.predict_quantiles(X, levels))
    assert far[inside].mean() < 0.05 * y.std()


def test_it_behaves_like_any_other_model(pair, tmp_path):
    model, small = pair
    X, y = rows(50, seed=2)
    law = small.predict_distribution(X)
    np.testing.assert_allclose(law.cdf(law.ppf(0.3)), 0.3, atol=1e-6)
    alone = np.concatenate([small.predict_quantiles(X[i : i + 1]) for i in range(len(X))])
    np.testing.assert_allclose(small.predict_quantiles(X), alone, rtol=1e-5, atol=1e-5)
    assert not hasattr(small, "ratio_")
    assert hasattr(model, "ratio_")
    save(small, tmp_path / "small.mcd")
    again = load(tmp_path / "small.mcd")
    np.testing.assert_allclose(again.logpdf(X, y), small.logpdf(X, y), rtol=1e-6)
    assert again.distill_loss_ == small.distill_loss_
    raw = small.set_params(normalize=False).pdf_from_X(X[:3], np.linspace(-4, 4, 9))
    small.set_params(normalize=True)
    np.testing.assert_allclose(raw, small.pdf_from_X(X[:3], np.linspace(-4, 4, 9)), atol=0.02)


def test_the_same_seed_gives_the_same_network(pair, monkeypatch):
    monkeypatch.setattr(distilled, "_BUDGETS", ((0, 2000, 50),))
    X, _ = rows(20, seed=3)
    once, again, other = (pair[0].distill(random_state=seed).predict(X) for seed in (0, 0, 1))
    np.testing.assert_array_equal(once, again)
    assert np.abs(once - other).max() > 1e-6


def test_tables_are_distilled_too(monkeypatch):
    monkeypatch.setattr(distilled, "_BUDGETS", ((0, 2000, 50),))
    X, y = rows(200)
    table = pandas.DataFrame({"kind": np.where(X[:, 0] > 0, "a", "b"), "size": X[:, 1]})
    model = TableEstimator(MCD("quadratic", random_state=0)).fit(table, y)
    small = model.distill(table, random_state=0)
    assert small.distill_loss_ == small.estimator_.distill_loss_
    assert small.predict(table[:3]).shape == (3,)
    assert not hasattr(model, "distill_loss_")


@pytest.fixture(scope="module")
def rough():
    """A model whose law jumps from row to row, distilled with trees."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 2))
    y = rng.normal(size=(12, 12))[tuple((12 * X).astype(int).T)] + 0.1 * rng.normal(size=600)
    model = MCD("forest", discriminator_params={"n_trees": 40}, random_state=0).fit(X, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distilled, "_BUDGETS", ((0, 6000, 400),))
        return X, y, model, model.distill(random_state=0)


def test_what_trees_say_is_divided_between_centres(rough):
    X, _, model, _ = rough
    forest = forest_of(model.discriminator_)
    inner = model._check_predict(X[:50])
    shares = TreeShares(forest)
    found = shares(inner)
    count = len(shares._centres)
    assert found.shape == (50, 2 * count + 2)
    np.testing.assert_allclose(found[:, :count].sum(axis=1), 1)
    assert found[:, :count].min() >= 0
    alone = np.concatenate([shares(inner[i : i + 1]) for i in range(50)])
    np.testing.assert_allclose(found, alone, rtol=1e-10)
    # The mean place among the centres, from the shares and from the trees.
    np.testing.assert_allclose(found[:, :count] @ np.arange(count), found[:, -2] * count)
    # Trees of the model still predict targets.
    leaves = np.concatenate([t.tree_.value.ravel() for f in forest.forests_ for t in f.estimators_])
    assert np.abs(leaves).max() < 6


def test_trees_are_kept_where_a_network_alone_is_not_close(rough, tmp_path):
    X, y, model, small = rough
    expert = small.discriminator_
    assert expert.alone_.loss_ > distilled._CLOSE
    assert small.distill_loss_ == expert.loss_ < expert.alone_.loss_ / 2
    new = np.random.default_rng(1).uniform(size=(500, 2))
    truth, kept, lost = (
        m.predict_quantiles(new, [0.1, 0.5, 0.9]) for m in (model, small, network_only(small))
    )
    assert np.abs(kept - truth).mean() < 0.7 * np.abs(lost - truth).mean()
    save(small, tmp_path / "small.mcd")
    again = load(tmp_path / "small.mcd")
    np.testing.assert_allclose(again.logpdf(X, y), small.logpdf(X, y), rtol=1e-6)
    np.testing.assert_allclose(
        small.predict(new), np.concatenate([small.predict(new[:7]), small.predict(new[7:])]),
        rtol=1e-5, atol=1e-5,
    )  # fmt: skip


def test_pages_and_files_of_other_programs_use_the_network_alone(rough, tmp_path):
    X, _, model, small = rough
    plain = network_only(small)
    assert plain.distill_loss_ == small.discriminator_.alone_.loss_ > small.distill_loss_
    assert plain.discriminator_.trees is None
    assert network_only(plain).distill_loss_ == plain.distill_loss_
    page = explore(small, X, tmp_path / "page.html")
    assert page.loss == plain.distill_loss_
    pytest.importorskip("onnx", reason="needs the extra onnx")
    assert export_onnx(small, tmp_path / "x.onnx")["distill_loss"] == plain.distill_loss_
    table = TableEstimator(model).fit(pandas.DataFrame(X), np.arange(len(X)) / 100.0)
    table._replace_inner(small)
    assert network_only(table).distill_loss_ == plain.distill_loss_


def test_losses_are_measured_between_knots():
    u = distilled.thinned(np.linspace(0, 1, 101))
    fine = distilled.finer(u)
    assert np.isin(np.round(u, 12), np.round(fine, 12)).all()
    assert len(fine) == distilled._FINER * (len(u) - 3) + 3
    assert np.all(np.diff(fine) > 0)

    # A peak between two knots, where nobody who looks at the knots alone sees it.
    peak = 3.0 * (np.arange(len(fine)) == distilled._FINER * (len(u) // 2) + 3)
    assert not np.isin(np.round(fine[peak > 0], 12), np.round(u, 12)).any()
    flat = distilled.Distilled()
    flat._u = u
    flat.at_knots = lambda X: np.zeros((len(X), len(u)), dtype=np.float32)
    X = np.zeros((5, 1))
    same = distilled._Lesson(X, distilled.Knots(u, u, lambda X: np.zeros((len(X), len(u)))))
    assert abs(flat.measure(same).loss_) < 1e-6
    peaks = np.tile(peak, (len(X), 1))
    sharp = distilled._Lesson(X, distilled.Knots(fine, fine, lambda X: peaks))
    even = distilled._masses(fine)
    share = even * np.exp(peak) / (even * np.exp(peak)).sum()
    truth = (share * np.log(share / (even / even.sum()))).sum()
    np.testing.assert_allclose(flat.measure(sharp).loss_, truth, rtol=1e-3)


def test_without_a_forest_a_second_network_learns_for_longer(pair, monkeypatch):
    model, _ = pair
    monkeypatch.setattr(distilled, "_BUDGETS", ((0, 2000, 60),))
    monkeypatch.setattr(distilled, "_CLOSE", 0.0)
    taken = []

    def learn(self, known, judge, steps, seed, rate=0.0):
        taken.append((len(known.X), steps))
        self.loss_ = 0.1 / len(taken)
        return self

    monkeypatch.setattr(distilled.Distilled, "learn", learn)
    monkeypatch.setattr(distilled.Distilled, "measure", lambda self, test: self)
    assert model.distill(random_state=0).distill_loss_ == 0.05
    assert taken == [(2000, 60), (4000, 180)]
    assert network_only(model).distill_loss_ == 0.1 / 3  # one network, in little time
    assert len(taken) == 3


def test_models_that_use_neighbours_are_saved_after_predictions(tmp_path):
    X, y = rows(120)
    params = {"n_trees": 10, "network_params": {"steps": 20}}
    model = MCD("stacked", discriminator_params=params, random_state=0).fit(X, y)
    before = model.predict(X[:5])
    save(model, tmp_path / "m.mcd")
    np.testing.assert_allclose(load(tmp_path / "m.mcd").predict(X[:5]), before, rtol=1e-10)


def test_neighbours_are_kept_with_the_trees(rough, tmp_path, monkeypatch):
    """A law that copies its neighbours' targets is learned with them, hardly without."""
    X, y, *_ = rough
    params = {"n_trees": 20, "network_params": {"steps": 300}}
    model = MCD("stacked", discriminator_params=params, random_state=0).fit(X, y)
    monkeypatch.setattr(distilled, "_BUDGETS", ((0, 6000, 400),))
    small = model.distill(random_state=0)
    assert small.discriminator_.neighbours is neighbours_of(model.discriminator_)
    assert network_only(small).discriminator_.neighbours is None
    monkeypatch.setattr(_distilling, "neighbours_of", lambda expert: None)
    without = model.distill(random_state=0)
    assert without.discriminator_.neighbours is None
    assert small.distill_loss_ < 0.8 * without.distill_loss_
    save(small, tmp_path / "small.mcd")
    new = np.random.default_rng(1).uniform(size=(50, 2))
    np.testing.assert_allclose(
        load(tmp_path / "small.mcd").logpdf(new, y[:50]), small.logpdf(new, y[:50]), rtol=1e-6
    )


def test_numbers_do_not_depend_on_the_number_of_threads():
    X, y = rows(300)
    small = {
        "quadratic": {},
        "mixture": {"steps": 30},
        "forest": {"n_trees": 20},
        "stacked": {"n_trees": 20, "network_params": {"steps": 30}},
        "mlp": {"steps": 30},
    }
    one, two = (
        MCD(discriminator_params={"portfolio": small}, random_state=0, n_jobs=k).fit(X, y)
        for k in (1, 2)
    )
    assert one.weights_.keys() == two.weights_.keys()
    np.testing.assert_allclose(one.logpdf(X, y), two.logpdf(X, y), atol=1e-3)
    # Predictions of one model are the same to the last digit.
    many = np.tile(X, (10, 1))
    found = [one.set_params(n_jobs=k).predict_quantiles(many) for k in (1, 2)]
    np.testing.assert_allclose(*found, rtol=1e-10)


def test_experts_in_processes_learn_what_they_learn_here(monkeypatch):
    monkeypatch.setattr("mcdensity.portfolio._MANY_OBSERVATIONS", 100)
    X, y = rows(150)
    small = {"quadratic": {}, "forest": {"n_trees": 10}, "mixture": {"steps": 20}}
    one, two = (
        MCD(discriminator_params={"portfolio": small}, random_state=0, n_jobs=k).fit(X, y)
        for k in (1, 2)
    )
    assert one.weights_.keys() == two.weights_.keys()
    np.testing.assert_allclose(one.logpdf(X, y), two.logpdf(X, y), atol=1e-3)


def test_worker_count_obeys_the_environment_and_joblib(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert worker_count(None) == 1
    assert worker_count(2) == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert worker_count(None) == joblib.cpu_count()
    assert in_parallel(lambda i: i * i, range(5), 2) == [0, 1, 4, 9, 16]
    inside = joblib.Parallel(n_jobs=2, backend="threading")(
        joblib.delayed(worker_count)(None) for _ in range(2)
    )
    assert inside == [1, 1]


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_work_waits_for_what_it_needs(processes, backend):
    def work(item, told):
        return item, told

    with joblib.parallel_config(backend):
        found = in_parallel(
            work,
            ["a", "b", "c"],
            2,
            processes=processes,
            after=[None, 0, None],
            told=lambda pair: pair[0],
        )
    assert found == [("a", None), ("b", "a"), ("c", None)]


@pytest.mark.parametrize("processes", [False, True])
def test_errors_of_others_are_raised_here(processes):
    def work(item):
        if item > 1:
            raise ValueError(f"item {item}")
        return item

    with pytest.raises(ValueError, match=r"item [23]"):
        in_parallel(work, range(4), 2, processes=processes)
    assert in_parallel(work, [], 2) == []


def test_processes_that_died_are_replaced():
    def where(item):
        time.sleep(0.3)
        return os.getpid()

    first = set(in_parallel(where, range(4), 2, processes=True)) - {os.getpid()}
    assert len(first) == 1
    with pytest.raises(Exception, match=r"terminated|died|abruptly"):
        in_parallel(lambda item: os._exit(1) if os.getpid() in first else time.sleep(1),
                    range(2), 2, processes=True)  # fmt: skip
    later = set(in_parallel(where, range(4), 2, processes=True)) - {os.getpid()}
    assert len(later) == 1
    assert later != first


def test_levels_of_noise_are_trained_side_by_side():
    """With many rows; the numbers do not depend on how many work."""
    X, y = rows(6000)
    small = {"steps": 25, "width": 16}
    one, two = (
        MCD("mixture", discriminator_params=small, random_state=0, n_jobs=k).fit(X, y)
        for k in (1, 2)
    )
    assert len(one.discriminator_.noise_weights_) == 2
    np.testing.assert_allclose(one.logpdf(X, y), two.logpdf(X, y), atol=1e-3)
    assert one.score(X, y) > one.marginal_.logpdf(y).mean() + 0.1


def test_a_model_keeps_a_bounded_sample_of_rows(monkeypatch):
    monkeypatch.setattr("mcdensity.mcd._MOST_KEPT", 30)
    monkeypatch.setattr(distilled, "_BUDGETS", ((0, 2000, 50),))
    X, y = rows(100)
    model = MCD("quadratic", random_state=0).fit(X, y)
    assert model._kept_rows.shape == (30, 2)
    assert np.isfinite(model.distill(random_state=0).distill_loss_)


def test_missing_values_are_refused_by_name(monkeypatch):
    monkeypatch.setattr(distilled, "_BUDGETS", ((0, 500, 20),))
    monkeypatch.setattr(distilled, "_HELD_OUT", 200)
    X, y = rows(100)
    holes = X.copy()
    holes[3, 0] = np.nan
    with pytest.raises(ValueError, match="training data have missing values"):
        MCD("hist-gradient-boosting", random_state=0).fit(holes, y).distill()
    model = MCD("hist-gradient-boosting", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="X have missing values"):
        model.distill(holes)
    with pytest.raises(ValueError, match="NaN"):
        model.distill().predict(holes)


def test_processes_predict_what_threads_predict(monkeypatch):
    X, y = rows(100)
    model = MCD("quadratic", random_state=0, n_jobs=2).fit(X, y)
    many = np.tile(X, (60, 1))
    here = model.predict_quantiles(many)
    monkeypatch.setattr("mcdensity.estimator._LONG", 0.0)
    monkeypatch.setattr("mcdensity.estimator._BLOCK", 1 << 14)
    used = []

    def spy(count):
        used.append(count)
        return processes(count)

    processes = _parallel._processes
    monkeypatch.setattr(_parallel, "_processes", spy)
    np.testing.assert_allclose(model.predict_quantiles(many), here, rtol=1e-10)
    assert used == [1]  # the second half, in one other process


def test_wrong_numbers_of_jobs():
    X, y = rows(60)
    with pytest.raises(ValueError, match="n_jobs"):
        MCD("quadratic", n_jobs=0).fit(X, y)
    with joblib.parallel_config(n_jobs=1):
        assert worker_count(None) == 1


@pytest.mark.parametrize("discriminator", ["snn", torch.nn.Linear])
def test_a_seed_fixes_the_model_in_any_thread(discriminator):
    X, y = rows(60)
    params = {"steps": 10}
    if discriminator != "snn":
        params["module_params"] = {"out_features": 1}

    def fitted():
        model = MCD(discriminator, discriminator_params=params, random_state=0, n_jobs=1)
        return model.fit(X, y).predict(X)

    here = fitted()
    there = joblib.Parallel(n_jobs=2, backend="threading")(
        joblib.delayed(fitted)() for _ in range(4)
    )
    for found in there:
        np.testing.assert_allclose(found, here, rtol=1e-10)
