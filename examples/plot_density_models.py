"""
Nine models with a known answer
===============================

The density models of the paper: the true density of y given x, and a sample on it. Models with
several features are shown along the direction that moves them.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from mcdensity.simulators import get_simulator, list_simulators


def along(simulator, X):
    """A coordinate of x to draw along, and the rows of x at 200 places of it."""
    middle = X.mean(axis=0)
    if hasattr(simulator, "slope"):
        direction, label = simulator.slope / np.linalg.norm(simulator.slope) ** 2, "x'b"
        position = X @ simulator.slope
    elif simulator.n_features == 1:
        direction, label, position, middle = np.ones(1), "x", X[:, 0], np.zeros(1)
    elif simulator.n_features == 3:
        direction, label, position = np.array([1.0, 0, 0]), "variance V", X[:, 0]
        middle = middle * [0, 1, 1]
    else:
        direction, label = np.ones(simulator.n_features), "mean of x"
        position, middle = X.mean(axis=1), np.zeros(simulator.n_features)
    places = np.linspace(*np.quantile(position, [0.01, 0.99]), 200)
    return position, places, middle + places[:, None] * direction, label


def main(folder="demo"):
    figure, axes = plt.subplots(3, 3, figsize=(12, 10), layout="constrained")
    for ax, name in zip(axes.flat, list_simulators()[:9], strict=True):
        simulator = get_simulator(name)
        X, y = simulator.sample(400, random_state=1)
        position, places, rows, label = along(simulator, X)
        grid = simulator.marginal_grid(300)
        density = simulator.pdf_grid(rows, grid)
        ax.pcolormesh(places, grid, np.sqrt(density.T), cmap="Blues", shading="nearest",
                      rasterized=True)  # fmt: skip
        ax.plot(position, y, ".", color="#D55E00", ms=2.5, alpha=0.7)
        ax.set(title=name, xlabel=label, ylabel="y", xlim=places[[0, -1]], ylim=grid[[0, -1]])
    if not folder:
        return None
    path = Path(folder) / "density_models.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    print(f"Picture: {path}")
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw the nine density models of the paper.")
    parser.add_argument("--output", default="demo", help="folder to write to; empty: write nothing")
    main(parser.parse_args().output)
