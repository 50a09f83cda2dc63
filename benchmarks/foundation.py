"""Time and memory of the foundation, each case in a process of its own.

Run with ``.venv/bin/python benchmarks/foundation.py``.
"""

import resource
import subprocess
import sys
import time

import numpy as np


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def pairs() -> str:
    """Build the 2 * 10^7 pairs of Construction 2 for n = 10^6, ratio 0.05."""
    from mcdensity import build_contrast

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10**6, 2)), rng.normal(size=10**6)
    start = time.perf_counter()
    contrast = build_contrast(X, y, ratio=0.05, random_state=0)
    return f"{len(contrast):,} pairs in {time.perf_counter() - start:.2f} s"


def kernel_density() -> str:
    """Fit a kernel density to 10^6 targets and evaluate it at 10^5 points."""
    from mcdensity.marginals import KernelDensity

    rng = np.random.default_rng(0)
    y, points = rng.normal(size=10**6), rng.normal(size=10**5)
    start = time.perf_counter()
    kde = KernelDensity().fit(y)
    middle = time.perf_counter()
    kde.logpdf(points)
    return f"fit {middle - start:.2f} s, evaluation {time.perf_counter() - middle:.3f} s"


def quantiles() -> str:
    """predict_quantiles on 10^5 rows with the quadratic discriminator."""
    from mcdensity import MCD

    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 10))
    model = MCD(discriminator="quadratic", random_state=0).fit(X, X[:, 0] + rng.normal(size=2000))
    rows = rng.normal(size=(10**5, 10))
    start = time.perf_counter()
    model.predict_quantiles(rows)
    return f"10^5 rows in {time.perf_counter() - start:.1f} s"


CASES = {f.__name__: f for f in (pairs, kernel_density, quantiles)}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(f"{CASES[sys.argv[1]]()}, peak memory {peak_mb():.0f} MB")
    else:
        for name, case in CASES.items():
            out = subprocess.run(
                [sys.executable, __file__, name], check=True, capture_output=True, text=True
            )
            print(f"{case.__doc__}\n    {out.stdout.strip()}")
