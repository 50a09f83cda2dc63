"""What constants of the package change: held-out log-likelihoods with other values of them.

    MCDENSITY_DATA=... python benchmarks/constants.py [budget._STEPS ...]

Real sets: 300 training rows, up to 1000 test rows; simulated ones: 300 and 2000. Mean over seeds.
Constants of the marginal are scored by the marginal alone.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from mcdensity import MCD, target
from mcdensity.baselines import MarginalBaseline
from mcdensity.datasets import load_dataset
from mcdensity.experts.density import budget, network
from mcdensity.experts.ratio import trees
from mcdensity.marginals import adaptive
from mcdensity.networks import training
from mcdensity.simulators import get_simulator

SEEDS = range(2)


def split(name: str, seed: int):
    try:
        simulator = get_simulator(name)
    except ValueError:
        data = load_dataset(name)
        X, y = data.X.to_numpy(), data.y
        order = np.random.default_rng(seed).permutation(len(y))
        n = min(300, len(y) * 4 // 5)
        train, test = order[:n], order[n : n + 1000]
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
                model: Any = MCD(random_state=seed, **mcd) if mcd else MarginalBaseline("adaptive")
                found.append(model.fit(X, y).score(X_new, y_new))
            seconds = (time.process_time() - start) / len(found)
            label = round(float(np.sum(value)), 2) if np.ndim(value) else value
            cells.append(f"{label}: {np.mean(found):.4f} ({seconds:.1f} s)")
        setattr(module, name, usual)
        print(f"  {problem:16}" + "   ".join(cells), flush=True)


# What is tried: module, name of the constant, values, problems, settings of MCD.
SHARP = ("Concrete", "Yacht", "Kin8nm", "SDSSBoss", "ARMAJump")
MIXTURE: dict[str, Any] = {"discriminator": "mixture"}
TREES: dict[str, Any] = {"discriminator": "hist-gradient-boosting"}
MARGINAL = ("SkewNormal", "JumpDiffusion", "LinearStudentT", "EconDensity", "Protein")
TRIALS: list[tuple[Any, str, tuple[Any, ...], tuple[str, ...], dict[str, Any]]] = [
    (budget, "_STEPS", tuple({"mixture": n} for n in (200, 400, 800)), SHARP, MIXTURE),
    (budget, "_BATCH", tuple({"mixture": n} for n in (64, 128, 256)), SHARP, MIXTURE),
    (network, "_MEMBERS", tuple({"mixture": n} for n in (3, 5, 8)), SHARP, MIXTURE),
    (network, "_LEAST_WEIGHT", (0.0, 0.02, 0.1), SHARP, MIXTURE),
    (training, "_EVALUATIONS", (6, 12, 24), SHARP, MIXTURE),
    (training, "_PATIENCE", (3, 6, 12), SHARP, MIXTURE),
    (adaptive, "_DEGREES_OF_FREEDOM", (2.0, 4.0, 8.0), MARGINAL, {}),
    (adaptive, "_PRIOR", tuple(adaptive._PRIOR * f for f in (0.2, 1.0, 5.0)), MARGINAL, {}),
    (adaptive, "_PARTS", (5, 20, 50), MARGINAL, {}),
    (target, "_LINEAR", (3.0, 4.0, 6.0), ("LinearStudentT", "ARMAJump"), MIXTURE),
    (trees, "_PATIENCE", (10, 20, 50), ("Concrete", "Power"), TREES),
]


def main() -> None:
    chosen = sys.argv[1:]
    for module, name, values, problems, mcd in TRIALS:
        if not chosen or f"{module.__name__.split('.')[-1]}.{name}" in chosen:
            scores(module, name, values, problems, **mcd)


if __name__ == "__main__":
    main()
