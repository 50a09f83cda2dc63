"""Our versions of the compared methods against the original packages, on the same data.

Run with ``.venv/bin/python benchmarks/against_originals.py``; the last run is in
`against_originals.txt`. The original packages (`cde` and `flexcode`; `rfcde`, with numpy 1) are
installed in virtual environments of their own, which this script makes in `.venv-originals`. They
run with their defaults, or where they have none with the settings of their tutorials. Each method
has a process of its own with one thread, and a fit to warm up; time is that of the fit and of the
densities of 100 rows at 10,000 points. KL is the integral with both densities raised to 1e-6, since
some originals return zeros.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

MODELS = [
    "ARMAJump",
    "AsymmetricLinear",
    "BasicLinear",
    "EconDensity",
    "GaussianMixture",
    "JumpDiffusion",
    "LinearGauss",
    "LinearStudentT",
    "SkewNormal",
]
METHODS = ["mdn", "kmn", "nf", "lscde", "flexcode-nn", "flexcode-xgboost", "rfcde"]
VENV = Path(__file__).parents[1] / ".venv-originals"
FLOOR = 1e-6


def density_of_cde(method, X, y, X_new, grid, seed):
    from cde import density_estimator as de

    p = X.shape[1]
    if method == "mdn":
        model = de.MixtureDensityNetwork("m", p, 1, random_seed=seed)
    elif method == "kmn":
        model = de.KernelMixtureNetwork("m", p, 1, random_seed=seed)
    elif method == "nf":
        model = de.NormalizingFlowEstimator("m", p, 1, random_seed=seed)
    else:
        model = de.LSConditionalDensityEstimation("m", p, 1, random_seed=seed, n_jobs=1)
    model.fit(X, y[:, None])
    rows, points = np.repeat(X_new, len(grid), axis=0), np.tile(grid, len(X_new))[:, None]
    return np.asarray(model.pdf(rows, points)).reshape(len(X_new), -1)


def density_of_flexcode(method, X, y, X_new, grid, seed):
    import flexcode
    from flexcode.regression_models import NN, XGBoost

    order = np.random.default_rng(seed).permutation(len(X))
    tune, train = order[: len(X) // 4], order[len(X) // 4 :]
    if method == "flexcode-nn":
        # Neighbours as its own cross-validation chooses them.
        model = flexcode.FlexCodeModel(NN, 31, regression_params={"k": [5, 10, 20]})
    else:
        model = flexcode.FlexCodeModel(XGBoost, 31, regression_params={"max_depth": 3})
    model.fit(X[train], y[train])
    model.tune(X[tune], y[tune], bump_threshold_grid=np.linspace(0, 0.2, 5))
    density, points = model.predict(X_new, n_grid=1000)
    return np.stack([np.interp(grid, np.ravel(points), g, left=0, right=0) for g in density])


def density_of_rfcde(method, X, y, X_new, grid, seed):
    import rfcde

    forest = rfcde.RFCDE(n_trees=100, mtry=min(4, X.shape[1]), node_size=20, n_basis=15)
    forest.train(X, y)
    return forest.predict(X_new, grid, "normal_reference")


def density_of_ours(method, X, y, X_new, grid, seed):
    from mcdensity.baselines import get_estimator

    model = get_estimator(method)
    if "random_state" in model.get_params():
        model.set_params(random_state=seed)
    return model.fit(X, y).pdf_from_X(X_new, grid)


def original(method):
    if method.startswith("flexcode"):
        return density_of_flexcode
    return density_of_rfcde if method == "rfcde" else density_of_cde


def work(side, methods, folder):
    """Run one side on all prepared data; print a line of JSON for each cell."""
    warnings.simplefilter("ignore")
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        pass
    files = sorted(Path(folder).glob("*.npz"))
    for method in methods:
        function = density_of_ours if side == "ours" else original(method)
        for i, file in enumerate([files[0], *files]):
            data = np.load(file)
            model, seed = file.stem.split("--")
            X, y, X_new, grid, log_f = (data[k] for k in ("X", "y", "X_new", "grid", "log_f"))
            start = time.perf_counter()
            try:
                g = function(method, X, y, X_new, grid, int(seed))
            except Exception as error:
                print(json.dumps([side, method, model, int(seed), None, None, None, repr(error)]))
                continue
            seconds = time.perf_counter() - start
            f = np.maximum(np.exp(log_f), FLOOR)
            bad = not np.isfinite(g).all()
            gap = f * np.log(f / np.maximum(np.nan_to_num(g), FLOOR))
            width = np.diff(grid)  # numpy < 2, which rfcde needs, has no np.trapezoid
            integral = float(((gap[:, 1:] + gap[:, :-1]) / 2 @ width).mean())
            if i:  # the first only warmed up
                cell = [side, method, model, int(seed), integral, float(gap.mean()), seconds]
                print(json.dumps([*cell, "NaN" if bad else ""]), flush=True)


def prepare(folder, models, seeds, rows):
    from mcdensity.simulators import get_simulator

    sigma = {"AsymmetricLinear": {"sigma": 1.0}, "BasicLinear": {"sigma": 1.0}}
    for model in models:
        for seed in seeds:
            simulator = get_simulator(model, **sigma.get(model, {}))
            X, y = simulator.sample(rows, random_state=seed)
            X_new, _ = simulator.sample(100, random_state=10_000 + seed)
            grid = simulator.marginal_grid(10_000)
            log_f = simulator.distribution(X_new).logpdf_grid(grid)
            arrays = {"X": X, "y": y, "X_new": X_new, "grid": grid, "log_f": log_f}
            np.savez(Path(folder) / f"{model}--{seed}.npz", **arrays)


def make_originals():
    """Install the originals, where that was not done before."""
    constraints = Path(__file__).parents[1] / "constraints.txt"
    torch = [line for line in constraints.read_text().splitlines() if line.startswith("torch==")]
    steps = {
        "cde": [[*torch, "cde", "progressbar2", "flexcode"]],
        "rfcde": [
            ["cython", "numpy<2", "setuptools<81", "wheel", "statsmodels"],
            ["--no-build-isolation", "--no-cache-dir", "rfcde"],
        ],
    }
    for name, installs in steps.items():
        folder = VENV / name
        if (folder / "ready").exists():
            continue
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        for packages in installs:
            pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", *packages]
            subprocess.run(pip, check=True)
        (folder / "ready").touch()


def run(side, method, folder):
    """Run a method on all data, in a process of its own."""
    theirs = VENV / ("rfcde" if method == "rfcde" else "cde") / "bin" / "python"
    python = sys.executable if side == "ours" else theirs
    command = [python, __file__, "--worker", side, folder, "--methods", method]
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    out = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | single, check=False
    )
    cells = [json.loads(line) for line in out.stdout.splitlines() if line.startswith('["')]
    if out.returncode:
        print(out.stderr[-2000:])
    return cells


def report(cells, methods, models):
    table = {}
    for side, method, model, _seed, *numbers, note in cells:
        if numbers[0] is None:
            print(f"failed: {side} {method} {model}: {note}")
        else:
            table.setdefault((side, method, model), []).append(numbers)
    for method in methods:
        print(f"\n{method:18}{'KL':>10}{'KL orig.':>10}{'ratio':>8}{'grid KL':>10}{'orig.':>10}")
        held = counted = 0
        seconds = {"ours": 0.0, "original": 0.0}
        for model in models:
            ours, theirs = (
                np.array(table.get((side, method, model), [[np.nan] * 3])).mean(axis=0)
                for side in ("ours", "original")
            )
            seconds["ours"] += ours[2]
            seconds["original"] += theirs[2]
            ratio = ours[0] / theirs[0]
            counted += 1
            held += bool(ratio <= 1.05)
            print(
                f"{model:18}{ours[0]:10.4f}{theirs[0]:10.4f}{ratio:8.2f}"
                f"{ours[1]:10.4f}{theirs[1]:10.4f}"
            )
        mean = {side: value / len(models) for side, value in seconds.items()}
        print(
            f"at most 1.05 times on {held} of {counted}; seconds {mean['ours']:.2f} against "
            f"{mean['original']:.2f}: {mean['original'] / mean['ours']:.1f} times less"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", nargs=2, metavar=("SIDE", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=100)
    args = parser.parse_args()
    if args.worker:
        work(args.worker[0], args.methods, args.worker[1])
    else:
        make_originals()
        with tempfile.TemporaryDirectory() as folder:
            seeds = range(args.first_seed, args.first_seed + args.seeds)
            prepare(folder, args.models, seeds, args.rows)
            print(f"n = {args.rows}, seeds {seeds[0]} to {seeds[-1]}")
            for method in args.methods:
                cells = [c for side in ("original", "ours") for c in run(side, method, folder)]
                report(cells, [method], args.models)
                sys.stdout.flush()
