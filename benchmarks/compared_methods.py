"""The compared methods with more rows: KL on EconDensity, and time and memory for 10^5 rows.

Run with ``.venv/bin/python benchmarks/compared_methods.py``; the last run is in
`compared_methods.txt`. Every measurement has a process of its own, with one thread.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings

import numpy as np

from mcdensity.baselines import get_estimator, list_estimators


def seeded(name, seed):
    model = get_estimator(name)
    return model.set_params(random_state=seed) if "random_state" in model.get_params() else model


def divergence(name, n, seeds):
    """Mean KL (integral) on EconDensity, over seeds."""
    from mcdensity.metrics import kl
    from mcdensity.simulators import get_simulator

    values = []
    for seed in range(seeds):
        simulator = get_simulator("EconDensity")
        X, y = simulator.sample(n, random_state=seed)
        X_new, _ = simulator.sample(200, random_state=10_000 + seed)
        model = seeded(name, seed).fit(X, y)
        values.append(kl(simulator.distribution(X_new), model.predict_distribution(X_new)))
    return {"kl": float(np.mean(values)), "worst": float(np.max(values))}


def speed(name, n):
    """Seconds to fit n rows with 10 features and to predict quantiles of 1000."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * np.exp(0.3 * X[:, 2]) * rng.normal(size=n)
    start = time.perf_counter()
    model = seeded(name, 0).fit(X, y)
    fitted = time.perf_counter()
    quantiles = model.predict_quantiles(X[:1000])
    stop = time.perf_counter()
    inside = float(((y[:1000] > quantiles[:, 0]) & (y[:1000] < quantiles[:, 2])).mean())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"fit": fitted - start, "predict": stop - fitted, "GB": memory, "in 90 %": inside}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", default=list_estimators())
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        import torch

        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        task, name = args.worker
        result = divergence(name, 2000, args.seeds) if task == "kl" else speed(name, 100_000)
        print(json.dumps(result))
        sys.exit()
    for task, title in (
        ("kl", f"EconDensity, n = 2000, {args.seeds} seeds"),
        ("speed", "n = 100,000, p = 10; seconds to fit, and for quantiles of 1000 rows"),
    ):
        print(title)
        for name in args.methods:
            out = subprocess.run(
                [sys.executable, __file__, "--worker", task, name, "--seeds", str(args.seeds)],
                capture_output=True,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                check=False,
            )
            try:
                numbers = json.loads(out.stdout.splitlines()[-1])
            except (IndexError, ValueError):
                print(f"  {name:18} failed: {out.stderr.strip().splitlines()[-1:]}", flush=True)
                continue
            shown = "".join(f"{k:>10} {v:8.3f}" for k, v in numbers.items())
            print(f"  {name:18}{shown}", flush=True)
