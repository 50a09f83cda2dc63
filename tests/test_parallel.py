"""Work on several cores."""

import threading
import time

from threadpoolctl import threadpool_info

from mcdensity._parallel import in_parallel
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


def test_steps_grow_with_rows_but_for_those_of_the_wide_networks():
    counts = [usual_steps("mixture", n, 1.0) for n in (100, 300, 1000, 5000, 10_000)]
    assert counts == sorted(counts)
    assert usual_steps("mixture", 20_000, 1.0) <= 1.05 * counts[-1]
    assert usual_steps("mixture", 50_000, 1.0) > usual_steps("mixture", 25_000, 1.0)
