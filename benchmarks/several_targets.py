"""Joint laws of several targets: divergence from known ones, and C2ST of simulators' parameters.

    python benchmarks/several_targets.py truth SEED            # KL, 5000 rows, 4000 new ones
    python benchmarks/several_targets.py sbi TASK PAIRS SEED [JOINT]   # C2ST, five observations

`sbi` needs the data (MCDENSITY_DATA). The protocols `joint-data` and `sbi` of `mcdensity bench run`
have others beside it; here C2ST is of 3000 draws each, for the sake of time. Results:
several_targets.txt.
"""

from __future__ import annotations

import sys
import time

import joblib
import numpy as np
from scipy import stats

from mcdensity import MCD
from mcdensity.benchmark.sbi import simulate
from mcdensity.datasets import load_simulation
from mcdensity.metrics import c2st

ROWS, NEW, DRAWS = 5000, 4000, 3000
COVARIANCE = np.array([[1.0, 0.5, 0.3], [0.5, 1.2, -0.2], [0.3, -0.2, 0.8]])


def model(seed: int, joint: str = "auto") -> MCD:
    return MCD(random_state=seed, target="continuous", support=(None, None), joint=joint)


def truth(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS + NEW, 3))
    mean = X @ np.random.default_rng(7).normal(size=(3, 3)) * 0.7
    noise = rng.multivariate_normal(np.zeros(3), COVARIANCE, len(X))
    exact = stats.multivariate_normal(np.zeros(3), COVARIANCE).logpdf(noise)
    report("normal in R^3", X, mean + noise, exact, seed)
    first = X[:, 0] + rng.normal(size=len(X))
    centre = 0.5 * first**2 + 0.3 * X[:, 2]
    Y = np.column_stack([first, centre + 0.5 * rng.normal(size=len(X))])
    exact = stats.norm.logpdf(first, X[:, 0]) + stats.norm.logpdf(Y[:, 1], centre, 0.5)
    report("banana, bent around 0", X, Y, exact, seed)
    away = rng.normal(size=len(X))
    Y = np.column_stack([X[:, 0] + away, away**2 + 0.3 * rng.normal(size=len(X))])
    exact = stats.norm.logpdf(away) + stats.norm.logpdf(Y[:, 1], away**2, 0.3)
    report("banana that moves with x", X, Y, exact, seed)


def report(name: str, X: np.ndarray, Y: np.ndarray, exact: np.ndarray, seed: int) -> None:
    start = time.perf_counter()
    found = model(seed).fit(X[:ROWS], Y[:ROWS])
    seconds = time.perf_counter() - start
    kl = float((exact[ROWS:] - found.logpdf(X[ROWS:], Y[ROWS:])).mean())
    way = f"{found.joint_way_} {found.order_}"
    print(f"{name:26} seed {seed}  KL {kl:.4f}  {way}  {seconds:.0f} s", flush=True)


def sbi(task: str, pairs: int, seed: int, joint: str = "auto") -> None:
    observed, reference = load_simulation(task)
    x, y = simulate(task, pairs, np.random.default_rng(seed))
    start = time.perf_counter()
    found = model(seed, joint).fit(x, y)
    seconds = time.perf_counter() - start
    draws = [found.sample(row[None], DRAWS, 0)[0] for row in observed]
    every = zip(draws, reference, strict=True)
    score = joblib.Parallel(n_jobs=-1)(joblib.delayed(c2st)(a, b[:DRAWS]) for a, b in every)
    print(
        f"{task} {pairs} seed {seed} {joint}  C2ST {np.mean(score):.3f}  {np.round(score, 3)}",
        end="  ",
    )
    print(f"fit {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["truth"]:
        truth(int(sys.argv[2]))
    elif sys.argv[1:2] == ["sbi"]:
        sbi(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
    else:
        print(__doc__)
