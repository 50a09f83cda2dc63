"""What constants of the package change: held-out log-likelihoods with other values of them.

    MCDENSITY_DATA=... python benchmarks/constants.py

Real sets: 300 training rows, up to 1000 test rows; simulated ones: 300 and 2000. Mean over seeds.
"""

from __future__ import annotations

import time

import numpy as np

import mcdensity.experts.ratio.trees as trees
import mcdensity.experts.tables as tables
import mcdensity.target as target
from mcdensity import MCD
from mcdensity.datasets import load_dataset
from mcdensity.simulators import get_simulator

SEEDS = range(3)


def split(name: str, seed: int):
    try:
        simulator = get_simulator(name)
    except ValueError:
        data = load_dataset(name)
        X, y = data.X.to_numpy(), data.y
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[:300], order[300:1300]
        return X[train], y[train], X[test], y[test]
    return *simulator.sample(300, random_state=seed), *simulator.sample(
        2000, random_state=99 + seed
    )


def scores(module, name, values, problems, **mcd):
    """Print the mean test log-likelihood and the seconds of a fit for each value."""
    usual = getattr(module, name)
    print(f"{module.__name__}.{name}")
    for problem in problems:
        cells = []
        for value in values:
            setattr(module, name, value)
            start, found = time.process_time(), []
            for seed in SEEDS:
                X, y, X_new, y_new = split(problem, seed)
                found.append(MCD(random_state=seed, **mcd).fit(X, y).score(X_new, y_new))
            seconds = (time.process_time() - start) / len(found)
            label = np.shape(value) if np.ndim(value) else value
            cells.append(f"{label}: {np.mean(found):.4f} ({seconds:.1f} s)")
        setattr(module, name, usual)
        print(f"  {problem:16}" + "   ".join(cells), flush=True)


def main() -> None:
    scores(target, "_LINEAR", (3.0, 4.0, 6.0), ("LinearStudentT", "ARMAJump"),
           discriminator="mixture")  # fmt: skip
    scores(trees, "_PATIENCE", (10, 20, 50), ("Concrete", "Power"),
           discriminator="hist-gradient-boosting")  # fmt: skip
    fine = np.concatenate([[-7.0, -6.0, -5.25], np.linspace(-4.5, 4.5, 145), [5.25, 6.0, 7.0]])
    coarse = np.concatenate([[-7.0, -6.0, -5.25], np.linspace(-4.5, 4.5, 37), [5.25, 6.0, 7.0]])
    only = {"discriminator_params": {"portfolio": ("mlp",)}}
    scores(target, "_TABLE_SCORES", (coarse, target._TABLE_SCORES, fine), ("Concrete", "Kin8nm"),
           **only)  # fmt: skip
    scores(tables, "_FINER", (2, 4, 8), ("Concrete",), **only)


if __name__ == "__main__":
    main()
