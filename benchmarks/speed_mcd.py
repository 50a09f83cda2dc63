"""Speed of neural MCD beside the plain way of doing the same. All figures of one run.

Run with ``.venv/bin/python benchmarks/speed_mcd.py``; the last run is in `speed_mcd.txt`.
"""

import argparse
import subprocess
import sys
import time

import numpy as np
import torch
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mcdensity import MCD, build_contrast
from mcdensity.networks.mlp import mlp

PAPER_SECONDS = {100: 3.149, 1000: 3.296}
SLOPE = np.random.RandomState(0).uniform(size=10)


def basic_linear(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    return X, X @ SLOPE + rng.normal(size=n)


def kl(log_density, X, grid):
    log_f = stats.norm.logpdf(grid, (X @ SLOPE)[:, None])
    return float(np.trapezoid(np.exp(log_f) * (log_f - log_density), grid, axis=1).mean())


def plain_way(model, X, y, X_new, grid, seed):
    """The same network (one member) with a DataLoader, 100 epochs, and concatenated evaluation."""
    torch.manual_seed(seed)
    Xs, ys = (X - model.x_mean_) / model.x_scale_, (y - model.y_mean_) / model.y_scale_
    contrast = build_contrast(Xs, model._target_map(ys), ratio=0.05, random_state=seed)
    pairs = torch.as_tensor(contrast.materialize(), dtype=torch.float32)
    label = torch.as_tensor(contrast.label, dtype=torch.float32)
    small = len(X) < 500
    network = mlp(
        11, width=32 if small else 64, depth=2 if small else 3, dropout=0.1 if small else 0.02
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(pairs, label), batch_size=256, shuffle=True)
    for _ in range(100):
        for batch, z in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(network(batch[None])[0], z)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    network.eval()
    at = (grid - model.y_mean_) / model.y_scale_
    rows = (X_new - model.x_mean_) / model.x_scale_
    logits = concatenated(network, rows, model._target_map(at), 1 << 16)
    log_density = logits - np.log(0.05 / 0.95) + model.marginal_.logpdf(at)
    log_density -= np.log(np.trapezoid(np.exp(log_density), grid, axis=1))[:, None]
    return log_density


def concatenated(network, X, grid, block):
    """Evaluate on all pairs of rows and grid values, put side by side in one matrix a block."""
    X, grid = (torch.as_tensor(a, dtype=torch.float32) for a in (X, grid))
    members = network.first.weight.shape[0]
    rows = max(1, block // len(grid))
    columns = min(block, len(grid))
    out = torch.empty(len(X), len(grid))
    with torch.inference_mode():
        for i in range(0, len(X), rows):
            part = X[i : i + rows]
            for j in range(0, len(grid), columns):
                y = grid[j : j + columns]
                pairs = torch.cat(
                    [
                        part[:, None].expand(-1, len(y), -1),
                        y[None, :, None].expand(len(part), -1, -1),
                    ],
                    dim=-1,
                ).reshape(1, -1, X.shape[1] + 1)
                logit = network(pairs.expand(members, -1, -1)).mean(0)
                out[i : i + rows, j : j + columns] = logit.reshape(len(part), -1)
    return out.double().numpy()


def fit_and_evaluate(n, seeds):
    """Fit, and the density of 100 rows on 10,000 points: ours beside the plain way."""
    MCD(discriminator_params={"steps": 2}).fit(*basic_linear(50, 0))  # torch's own first-use cost
    ours, plain, kl_ours, kl_plain = [], [], [], []
    for seed in range(seeds):
        X, y = basic_linear(n, seed)
        X_new, _ = basic_linear(100, 1000 + seed)
        grid = np.linspace(-9, 9, 10_000)
        start = time.perf_counter()
        model = MCD(random_state=seed).fit(X, y)
        density = model.pdf_from_X(X_new, grid)
        ours.append(time.perf_counter() - start)
        with np.errstate(divide="ignore"):
            kl_ours.append(kl(np.log(density), X_new, grid))
        start = time.perf_counter()
        log_density = plain_way(model, X, y, X_new, grid, seed)
        plain.append(time.perf_counter() - start)
        kl_plain.append(kl(log_density, X_new, grid))
    a, b = np.mean(ours), np.mean(plain)
    print(
        f"n = {n}: ours {a:.2f} s, plain {b:.2f} s, {b / a:.1f} times faster "
        f"(the paper's GPU: {PAPER_SECONDS[n]} s); "
        f"KL ours {np.mean(kl_ours):.3f}, plain {np.mean(kl_plain):.3f}"
    )


def grid_evaluation():
    """Grid evaluation alone: the outer sum beside the concatenated pass in its best block size."""
    X, y = basic_linear(1000, 0)
    model = MCD(random_state=0).fit(X, y)
    network = model.discriminator_
    unfolded = mlp(11, members=3, width=64, depth=3, dropout=0.02).eval()
    X_new, grid = basic_linear(100, 1)[0], np.linspace(-3, 3, 10_000)

    def best(function, repeat=5):
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times)

    ours = best(lambda: network.logit_grid(X_new, grid))
    blocks = {b: best(lambda b=b: concatenated(unfolded, X_new, grid, b), 3)
              for b in (1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 16)}  # fmt: skip
    block, plain = min(blocks.items(), key=lambda item: item[1])
    print(
        f"grid of 100 x 10,000: outer sum {ours:.2f} s, concatenated {plain:.2f} s "
        f"(best block {block}), ratio {ours / plain:.2f}"
    )


def grid_memory():
    """1000 rows by 10,000 points: what the evaluation adds to the memory in use."""
    import resource

    X, y = basic_linear(1000, 0)
    model = MCD(random_state=0).fit(X, y)
    model.predict(X[:10])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model.discriminator_.logit_grid(X, np.linspace(-3, 3, 10_000))
    middle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model.pdf_from_X(X, np.linspace(-9, 9, 10_000))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"memory added by 1000 x 10,000: logits {(middle - before) / 1024:.0f} MB, "
        f"normalised densities {(after - before) / 1024:.0f} MB"
    )


def million_rows():
    """n = 10^6 rows, p = 20, default budget of steps."""
    import resource

    rng = np.random.default_rng(0)
    X = rng.normal(size=(10**6, 20))
    y = X[:, 0] + rng.normal(size=10**6)
    start = time.perf_counter()
    model = MCD(random_state=0).fit(X, y)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    score = model.score(X[:2000], y[:2000])
    print(
        f"n = 10^6, p = 20: fit {seconds:.0f} s, peak {peak:.2f} GB, "
        f"log-likelihood {score:.3f} (truth -1.419)"
    )


CASES = {
    "n100": lambda: fit_and_evaluate(100, 5),
    "n1000": lambda: fit_and_evaluate(1000, 2),
    "grid": grid_evaluation,
    "memory": grid_memory,
    "million": million_rows,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    chosen = parser.parse_args().cases
    if len(chosen) == 1:
        CASES[chosen[0]]()
    else:
        print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", flush=True)
        for name in chosen:
            subprocess.run([sys.executable, __file__, name], check=True)
