"""The default of this version against committed results: the same protocols, problems and seeds.

    mcdensity bench run density-models --methods MCD --seeds 5
    mcdensity bench run real-data --methods MCD --seeds 5
    mcdensity bench run uci-splits --methods MCD --seeds 1
    mcdensity bench export after
    python benchmarks/before_after.py after [benchmarks/results]

A gain is a higher log-likelihood (log-mass where targets are discrete), or a lower KL. The paired
error is that of the differences over seeds, the other that of the earlier results over seeds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas

MEASURES = (
    ("density-models", "kl", -1),
    ("real-data", "log_likelihood", 1),
    ("real-data", "log_mass", 1),
    ("uci-splits", "log_likelihood", 1),
    ("uci-splits", "log_mass", 1),
)
DISCRETE = ("WineRed", "WineWhite", "Naval")


def error(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def compare(before: Path, after: Path, protocol: str, measure: str, sign: int) -> None:
    def read(folder: Path) -> pandas.DataFrame:
        table = pandas.read_csv(folder / f"{protocol}.csv")
        return table[(table.method == "MCD") & (table.status == "done")].dropna(subset=[measure])

    old, new = read(before), read(after)
    if measure == "log_likelihood":
        new = new[~new.problem.isin(DISCRETE)]
    print(f"{protocol}, {measure}")
    gains = []
    for problem, part in new.groupby("problem"):
        earlier = old[old.problem == problem].set_index("seed")[measure]
        later = part.set_index("seed")[measure]
        seeds = earlier.index.intersection(later.index)
        if len(seeds) == 0:
            continue
        gain = sign * (later[seeds] - earlier[seeds]).to_numpy()
        gains.append(gain.mean())
        print(
            f"  {problem:18}{len(seeds):3} seeds  before {earlier[seeds].mean():8.4f}"
            f"  after {later[seeds].mean():8.4f}  gain {gain.mean():+.4f}"
            f"  (paired error {error(gain):.4f}, error {error(earlier.to_numpy()):.4f})"
        )
    print(f"  mean gain {np.mean(gains):+.4f}")


def main() -> None:
    after = Path(sys.argv[1])
    before = Path(sys.argv[2] if len(sys.argv) > 2 else "benchmarks/results")
    for protocol, measure, sign in MEASURES:
        if (after / f"{protocol}.csv").exists():
            compare(before, after, protocol, measure, sign)


if __name__ == "__main__":
    main()
