"""Work on several cores."""

import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mcdensity import MCD
from mcdensity._parallel import in_parallel, limited_threads
from mcdensity.experts.density.budget import usual_steps


def threads_of_algebra(_=None):
    time.sleep(0.05)
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


def test_linear_algebra_has_one_thread_beside_processes_and_all_of_them_afterwards():
    before = threads_of_algebra()
    found = []

    def work():
        found.extend(in_parallel(threads_of_algebra, range(4), 2, processes=True))

    several = [threading.Thread(target=work) for _ in range(3)]
    for thread in several:
        thread.start()
        time.sleep(0.03)
    for thread in several:
        thread.join()
    assert len(found) == 12
    assert {count for one in found for count in one} == {1}
    assert threads_of_algebra() == before


def openmp_threads():
    import torch  # its OpenMP is the one that counts

    return torch.get_num_threads(), [
        one["num_threads"] for one in threadpool_info() if one["user_api"] == "openmp"
    ]


def test_limits_of_threads_only_lower_what_is_set():
    openmp_threads()
    with threadpool_limits(2, user_api="openmp"):
        before = openmp_threads()
        with limited_threads(1):
            assert set(openmp_threads()[1]) == {1}
            with limited_threads(8):
                assert set(openmp_threads()[1]) == {1}
        with limited_threads(8):
            assert openmp_threads() == before
        assert openmp_threads() == before


@pytest.mark.parametrize("name", ["mlp", "mixture"])
def test_one_job_trains_networks_in_one_thread(name, monkeypatch):
    from mcdensity.networks import ensemble, training

    seen = []

    def train(module, loss, *args, **kwargs):
        seen.append(openmp_threads()[1])
        return training_loop(module, loss, *args, **kwargs)

    training_loop = training.train
    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(ensemble, "train", train)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    few = {"members": 1, "steps": 20}
    with threadpool_limits(2, user_api="openmp"):
        before = openmp_threads()
        for jobs in (1, 2):
            MCD(name, discriminator_params=few, random_state=0, n_jobs=jobs).fit(X, X[:, 0])
        assert openmp_threads() == before
    assert [set(one) for one in seen] == [{1}, {2}]


def test_steps_grow_with_rows_but_for_those_of_the_wide_networks():
    counts = [usual_steps("mixture", n, 1.0) for n in (100, 300, 1000, 5000, 10_000)]
    assert counts == sorted(counts)
    assert usual_steps("mixture", 20_000, 1.0) <= 1.05 * counts[-1]
    assert usual_steps("mixture", 50_000, 1.0) > usual_steps("mixture", 25_000, 1.0)
