"""
Parameters of a simulator: two moons
====================================

A simulator turns two parameters into two numbers. What do the numbers say of the parameters? Pairs
of both are all that is needed: the joint law of the parameters given what was observed has the
shape of two moons, which no mean and no interval of each one could tell.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from mcdensity import MCD
from mcdensity.plotting import plot_contours

rng = np.random.default_rng(0)
y = rng.uniform(-1, 1, (2000, 2))  # parameters, drawn from their prior
angle, radius = rng.uniform(-np.pi / 2, np.pi / 2, 2000), rng.normal(0.1, 0.01, 2000)
x = np.column_stack([
    radius * np.cos(angle) + 0.25 - np.abs(y[:, 0] + y[:, 1]) / np.sqrt(2),
    radius * np.sin(angle) + (y[:, 1] - y[:, 0]) / np.sqrt(2),
])  # fmt: skip
model = MCD("mixture", joint="chain", support=(-1, 1), random_state=0).fit(x, y)

# %%
# Observe the origin. Left, the joint law, with the smallest regions that hold the parameters with
# 50 and 90 %. Right, what is left of it once the first parameter is known: one moon, or two.

observed = np.zeros((1, 2))
law = model.predict_distribution(observed)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
plot_contours(law, ax=left).set(xlabel="first parameter", ylabel="second parameter")
grid = np.linspace(-1, 1, 300)
for value, style in ((-0.2, "-"), (0.0, "--"), (0.2, ":")):
    density = law.conditional({"y0": value}).pdf_grid(grid)[0]
    right.plot(grid, density, style, label=f"first parameter {value:g}")
right.set(xlabel="second parameter", ylabel="density")
right.legend(frameon=False)

# %%
# As a script it writes the picture to a folder.

parser = argparse.ArgumentParser(description="Parameters of a simulator.")
parser.add_argument("--output", default="demo", help="folder to write to; empty: write nothing")
folder = parser.parse_args().output
if folder:
    Path(folder).mkdir(parents=True, exist_ok=True)
    figure.savefig(Path(folder) / "two_moons.png", dpi=100)
