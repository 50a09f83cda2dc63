"""Simulation-based inference: parameters y of a simulator given what it produced, x."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity.benchmark.methods import make_method
from mcdensity.datasets.simulations import SIMULATIONS, load_simulation

__all__ = ["SBI", "SBI_PUBLISHED", "run_sbi", "simulate"]

Array = NDArray[np.float64]

_SIZES = (1000, 10_000, 100_000)
SBI = tuple(f"{task} {size}" for task in SIMULATIONS for size in _SIZES)
SBI_PUBLISHED = (
    "0.5 is perfect, 1 useless; the mean over the five observations that `load_simulation` has.",
    "Published: Lueckmann et al. 2021, the mean over ten observations, of which ours are five.",
)
_DRAWS = 10_000


def simulate(task: str, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw parameters and what the simulator makes of them: x, (n, p), and y, (n, k)."""
    if task == "two_moons":
        y = rng.uniform(-1, 1, (n, 2))
        angle, radius = rng.uniform(-np.pi / 2, np.pi / 2, n), rng.normal(0.1, 0.01, n)
        x = np.column_stack([
            radius * np.cos(angle) + 0.25 - np.abs(y[:, 0] + y[:, 1]) / np.sqrt(2),
            radius * np.sin(angle) + (y[:, 1] - y[:, 0]) / np.sqrt(2),
        ])  # fmt: skip
        return x, y
    if task == "gaussian_mixture":
        y = rng.uniform(-10, 10, (n, 2))
        return y + rng.choice([1.0, 0.1], (n, 1)) * rng.normal(size=(n, 2)), y
    if task in ("gaussian_linear", "gaussian_linear_uniform"):
        y = rng.uniform(-1, 1, (n, 10)) if "uniform" in task else rng.normal(0, 0.1**0.5, (n, 10))
        return y + rng.normal(0, 0.1**0.5, (n, 10)), y
    if task == "slcp":
        y = rng.uniform(-3, 3, (n, 5))
        first, second = y[:, 2:3] ** 2, y[:, 3:4] ** 2
        correlation = np.tanh(y[:, 4:5])
        a, b = rng.normal(size=(2, n, 4))
        one = y[:, 0:1] + first * a
        two = y[:, 1:2] + second * (correlation * a + np.sqrt(1 - correlation**2) * b)
        return np.stack([one, two], axis=2).reshape(n, 8), y
    raise ValueError(f"{task!r} is no task; choose from {', '.join(SIMULATIONS)}.")


def run_sbi(problem: str, method: str, seed: int, quick: bool) -> dict[str, Any]:
    """Fit pairs of a simulator; tell draws given the observations from exact ones (C2ST)."""
    from mcdensity.metrics import c2st

    task, size = problem.split()
    observed, reference = load_simulation(task)
    rng = np.random.default_rng([seed, len(problem)])
    x, y = simulate(task, 300 if quick else int(size), rng)
    start = time.perf_counter()
    model = make_method(method, seed, quick).fit(x, y)
    seconds = time.perf_counter() - start
    draws = 300 if quick else _DRAWS
    start = time.perf_counter()
    found = [model.sample(row[None], draws, rng)[0] for row in observed[: 1 if quick else None]]
    predicting = time.perf_counter() - start
    scores = [c2st(mine, exact[:draws]) for mine, exact in zip(found, reference, strict=False)]
    return {
        "metrics": {"c2st": float(np.mean(scores)), "worst": float(np.max(scores))},
        "fit_seconds": seconds,
        "predict_seconds": predicting,
        "parameters": method,
    }
