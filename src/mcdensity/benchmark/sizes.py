"""Cells of the protocols about the number of rows: a published benchmark, and cost against gain."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity.benchmark.methods import make_method

__all__ = ["CDE39", "FRONTIER", "PUBLISHED", "run_cde39", "run_frontier", "smooth_law"]

Array = NDArray[np.float64]

CDE39 = (
    "Kin8nm 1000", "Kin8nm 5000", "Protein 1000", "Protein 5000", "Protein 20000",
)  # fmt: skip
FRONTIER = ("200", "1000", "5000", "20000", "50000")
PUBLISHED = (
    "Published: arXiv 2603.26611; pretrained models ran on a GPU. Their CRPS: Kin8nm 1000 "
    "TabPFN-2.5 0.0521, TabICL 0.0474; Kin8nm 5000 0.0388, 0.0395; Protein 1000 2.249, 2.128; "
    "Protein 5000 1.721, 1.683; Protein 20000 1.340, 1.299.",
    "There densities are read off a grid of 200 points and normalised on it; ours are exact. Which "
    "rows each repetition divides how is not published: compare to within a few hundredths.",
)
# The published benchmark's lowest density.
_FLOOR = 1e-10
_TEST_ROWS = 3000


def run_cde39(problem: str, method: str, seed: int, quick: bool) -> dict[str, Any]:
    """Three quarters of n rows to learn from, the others to measure on; in the units of y."""
    from mcdensity.datasets import load_dataset

    name, count = problem.split()
    data = load_dataset(name)
    X, y = np.asarray(data.X, dtype=np.float64), np.asarray(data.y, dtype=np.float64)
    rows = np.random.RandomState(42).permutation(len(y))
    rows = rows[: 200 if quick else int(count)]
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    cut = round(0.75 * len(rows))
    return _measured(make_method(method, seed, quick), X, y, rows[:cut], rows[cut:])


def run_frontier(problem: str, method: str, seed: int, quick: bool) -> dict[str, Any]:
    """Rows of a smooth law with ten features, some without effect, and heavy tails."""
    n = 200 if quick else int(problem)
    X, y = smooth_law(n + _TEST_ROWS, np.random.default_rng(seed))
    # A small fit first: what a process pays once is not the method's.
    make_method(method, 0, True).fit(X[:60], y[:60])
    rows = np.arange(len(y))
    return _measured(make_method(method, seed, quick), X, y, rows[:n], rows[n:])


def smooth_law(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw rows of a law with ten features, some without effect, and heavy tails."""
    X = rng.normal(size=(n, 10))
    scale = 0.3 + 0.2 * np.abs(X[:, 4])
    mean = X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * X[:, 2] * X[:, 3]
    return X, mean + scale * rng.standard_t(5, size=n)


def _measured(
    estimator: Any, X: Array, y: Array, train: NDArray[np.intp], test: NDArray[np.intp]
) -> dict[str, Any]:
    from mcdensity import metrics

    start, cpu = time.perf_counter(), time.process_time()
    estimator.fit(X[train], y[train])
    cpu = time.process_time() - cpu
    middle = time.perf_counter()
    law = estimator.predict_distribution(X[test])
    density = law.logpdf(y[test])
    values = {
        "log_likelihood": np.maximum(density, np.log(_FLOOR)).mean(),
        "crps": metrics.crps(law, y[test]),
        "coverage_90": metrics.coverage(law, y[test], level=0.9),
        "cpu_seconds": cpu,
    }
    return {
        "metrics": {name: float(value) for name, value in values.items()},
        "fit_seconds": middle - start,
        "predict_seconds": time.perf_counter() - middle,
        "parameters": repr(estimator),
    }
