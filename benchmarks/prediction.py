"""Predictions, coverage and time budgets of the default, against an older commit in one run.

    python benchmarks/prediction.py [--before 9085a0d]

Both versions run in processes of their own, in turn, with one thread. Seconds are CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

WORK = """
import json, sys, time
import numpy as np
from mcdensity import MCD

rng = np.random.default_rng(0)

def sample(n):
    X = rng.normal(size=(n, 5))
    scale = 0.3 + 0.2 * np.abs(X[:, 1])
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 2] + scale * rng.standard_t(5, size=n)

def cpu(work):
    start = time.process_time()
    result = work()
    return time.process_time() - start, result

X, y = sample(1000)
X_new, y_new = sample(10_000)
seconds, model = cpu(lambda: MCD(random_state=0).fit(X, y))
out = {"fit 1000 rows": seconds}
model.predict_quantiles(X_new[:100])
seconds, quantiles = min(
    (cpu(lambda: model.predict_quantiles(X_new, (0.05, 0.5, 0.95))) for _ in range(3)),
    key=lambda pair: pair[0],
)
out["predict_quantiles 10,000 rows"] = seconds
out["log-likelihood"] = model.score(X_new, y_new)
out["coverage of 90 % intervals"] = float(
    np.mean((y_new >= quantiles[:, 0]) & (y_new <= quantiles[:, 2]))
)
extreme = model.predict_quantiles(X_new[:500], (0.001, 0.999))
rows = [X_new[i : i + 1] for i in range(20)]
alone = np.concatenate([model.predict_quantiles(row, (0.001, 0.999)) for row in rows])
out["largest relative difference of a row alone"] = float(np.abs(alone / extreme[:20] - 1).max())
print(json.dumps(out))
"""


def measure(source: Path) -> dict[str, float]:
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WORK], env=environment, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", default="9085a0d", help="commit to compare with")
    before = parser.parse_args().before
    print("# python benchmarks/prediction.py --before", before)
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(old), before], check=True)
        try:
            first, second = measure(old / "src"), measure(ROOT / "src")
        finally:
            subprocess.run([*git, "remove", "--force", str(old)], check=True)
    print(f"{'':45}{'before':>12}{'now':>12}{'before / now':>14}")
    for name, value in first.items():
        print(f"{name:45}{value:12.4g}{second[name]:12.4g}{value / second[name]:14.2f}")


if __name__ == "__main__":
    main()
