"""Speed of the discriminators trained by the exact contrast, and coverage of conformal intervals.

Run with ``OMP_NUM_THREADS=1 .venv/bin/python benchmarks/exact_contrast.py``; the last run is in
`exact_contrast.txt`. Ratios are of one run. Real data are found through MCDENSITY_DATA.
"""

import subprocess
import sys
import time

import numpy as np
import torch

from mcdensity import MCD
from mcdensity.datasets import load_dataset
from mcdensity.simulators import get_simulator

SETS = (
    "BostonHousing", "Concrete", "NYCTaxiLongitude", "NYCTaxiLatitude", "Power", "Protein", "Yacht",
    "SDSSBoss", "InverseSinusoid", "Ring",
)  # fmt: skip


def seconds(function, repeats=3):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def speed():
    simulator = get_simulator("BasicLinear")
    X, y = simulator.sample(1000, random_state=0)
    rows, grid = simulator.sample_x(100, random_state=1), simulator.marginal_grid(10_000)
    MCD("mlp", discriminator_params={"steps": 5}).fit(X[:50], y[:50])  # torch's own first step
    fits, grids = {}, {}
    for name in ("mlp", "two-tower", "mixture", "auto"):
        model = MCD(name, random_state=0)
        fits[name] = seconds(lambda m=model: m.fit(X, y), 1 if name == "auto" else 2)
        Z = (rows - model.x_mean_) / model.x_scale_
        points = model._target_map((grid - model.y_mean_) / model.y_scale_)
        grids[name] = seconds(lambda m=model, z=Z, p=points: m.discriminator_.logit_grid(z, p))
        print(f"{name:10s} fit n=1000 p=10: {fits[name]:6.2f} s, {fits[name] / fits['mlp']:.2f} "
              f"times mlp; log-ratio of 100 rows at 10,000 points: {1000 * grids[name]:7.1f} ms, "
              f"1/{grids['mlp'] / grids[name]:.1f} of mlp")  # fmt: skip
        if name == "two-tower":
            many = simulator.sample_x(100_000, random_state=2)
            took = seconds(lambda m=model, r=many: m.predict_quantiles(r), 1)
            print(f"           predict_quantiles of 100,000 rows: {took:.1f} s")


def conformal(splits=20, coverage=0.9):
    print(f"\nconformal {coverage:.0%} intervals, {splits} splits: 199 rows to fit (quadratic),")
    print("199 to calibrate (of small sets less than a third), up to 1000 to test")
    for name in SETS:
        data = load_dataset(name)
        X, y = np.asarray(data.X, dtype=float), np.asarray(data.y, dtype=float)
        # A tenth of the calibration rows and one more is whole: else intervals hold a little more.
        size = min(200, len(y) // 30 * 10) - 1
        plain, held = [], []
        for split in range(splits):
            order = np.random.default_rng(split).permutation(len(y))
            fit, calibrate = order[:size], order[size : 2 * size]
            test = order[2 * size : 2 * size + 1000]
            model = MCD("quadratic", random_state=0).fit(X[fit], y[fit])
            model.conformalize(X[calibrate], y[calibrate])
            for out, sure in ((plain, False), (held, True)):
                low, high = model.predict_interval(X[test], coverage, conformal=sure).T
                out.append(np.mean((y[test] >= low) & (y[test] <= high)))
        # Coverage of one split: a beta distribution of the calibration, and the test rows.
        noise = np.sqrt(coverage * (1 - coverage) * (1 / (size + 2) + 1 / len(test)))
        error = noise / np.sqrt(splits)
        off = (np.mean(held) - coverage) / error
        print(f"{name:18s} plain {np.mean(plain):.3f}  conformal {np.mean(held):.3f}  "
              f"({off:+.1f} standard errors of {error:.4f})")  # fmt: skip


def start_up():
    print()
    code = {"sklearn.ensemble": "import sklearn.ensemble", "mcdensity": "import mcdensity",
            "mcdensity --help": "import sys; sys.argv = ['mcdensity', '--help']\n"
            "from mcdensity.cli import main\nmain()"}  # fmt: skip
    took = {
        name: seconds(
            lambda text=text: subprocess.run(
                [sys.executable, "-c", text], capture_output=True, check=False
            ),
            7,
        )
        for name, text in code.items()
    }
    for name, value in took.items():
        print(f"{name:18s} {value:.3f} s, {value / took['sklearn.ensemble']:.2f} of the import of "
              "sklearn.ensemble")  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    speed()
    conformal()
    start_up()
