"""The picture of the how-to page on kinds of targets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mcdensity import MCD
from mcdensity.plotting import plot_densities

OUT = Path(__file__).parent.parent / "docs" / "images" / "target_kinds.png"


def main() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2))
    rate, chance = np.exp(0.3 + 0.6 * X[:, 0]), 1 / (1 + np.exp(-X[:, 1]))
    late = rng.random(1500) < chance
    cases = {
        "visits, a count": rng.poisson(rate).astype(float),
        "delay, often zero": np.where(late, rng.lognormal(2 + 0.5 * X[:, 0], 0.5), 0.0),
        "share, from 0 to 1": rng.beta(1 + 2 * chance, 2),
        "score, capped at 100": np.minimum(rng.normal(80 + 10 * X[:, 0], 10), 100),
    }
    rows = np.array([[-1.5, -1.5], [0.0, 0.0], [1.5, 1.5]])
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    for ax, (name, y) in zip(figure.subplots(2, 2).flat, cases.items(), strict=True):
        model = MCD("quadratic", random_state=0).fit(X, y)
        law = model.predict_distribution(rows)
        plot_densities(law, labels=["x = -1.5", "x = 0", "x = 1.5"], ax=ax)
        ax.set(xlabel=name)
    figure.savefig(OUT, dpi=110)


if __name__ == "__main__":
    main()
