"""KL divergence (integral, normalised) on the nine density models, n = 100, mean over seeds.

Run with ``.venv/bin/python benchmarks/density_models.py``; the last run is in `density_models.txt`.
Training and test rows come from `sample` with different seeds: for the two time series they are
two different paths.
"""

import argparse
import warnings

import numpy as np
from joblib import Parallel, delayed

from mcdensity import MCD
from mcdensity.baselines import MarginalBaseline
from mcdensity.simulators import get_simulator

MODELS = {
    "ARMAJump": {},
    "AsymmetricLinear": {"sigma": 1.0},
    "BasicLinear": {"sigma": 1.0},
    "EconDensity": {},
    "GaussianMixture": {},
    "JumpDiffusion": {},
    "LinearGauss": {},
    "LinearStudentT": {},
    "SkewNormal": {},
}
METHODS = {
    "marginal (kde)": lambda seed: MarginalBaseline("kde"),
    "marginal (tailed)": lambda seed: MarginalBaseline("tailed"),
    **{
        name: lambda seed, name=name: MCD(discriminator=name, random_state=seed)
        for name in ("mlp", "mlp-plain", "resnet", "glu", "snn", "quadratic")
    },
    "mlp, marginal kde": lambda seed: MCD(marginal="kde", random_state=seed),
}


def divergence(model, method, seed, n):
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    simulator = get_simulator(model, **MODELS[model])
    X, y = simulator.sample(n, random_state=seed)
    X_new, _ = simulator.sample(100, random_state=10_000 + seed)
    grid = simulator.marginal_grid(2000)
    log_f = simulator.distribution(X_new).logpdf_grid(grid)
    log_g = METHODS[method](seed).fit(X, y).predict_distribution(X_new).logpdf_grid(grid)
    f = np.exp(log_f)
    gap = np.where(f > 0, np.where(f > 0, log_f, 0) - log_g, 0)
    return float(np.trapezoid(f * gap, grid, axis=1).mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=100)
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    cells = [(m, k, s) for m in args.models for k in args.methods for s in seeds]
    values = Parallel(n_jobs=2)(delayed(divergence)(*cell, args.rows) for cell in cells)
    table = dict(zip(cells, values, strict=True))
    print(f"n = {args.rows}, seeds {seeds[0]} to {seeds[-1]}: mean KL and its standard error")
    print(f"{'':20}" + "".join(f"{m[:4] + m[-5:]:>16}" for m in args.models))
    for method in args.methods:
        row = [np.array([table[m, method, s] for s in seeds]) for m in args.models]
        text = [f"{r.mean():.3f} ({r.std() / np.sqrt(args.seeds):.3f})" for r in row]
        print(f"{method:20}" + "".join(f"{t:>16}" for t in text))
