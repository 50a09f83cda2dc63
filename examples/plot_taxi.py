"""
Where will the ride end?
========================

A taxi is hailed at a corner of New York: where does it go? Longitude and latitude of the drop-off
belong together; their joint law has the shape of Manhattan. The data (24,000 rides of March 2016)
are downloaded where they are not on the machine; without them, made-up rides stand in.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from mcdensity import MCD
from mcdensity.datasets import DatasetUnavailableError, load_dataset
from mcdensity.plotting import plot_contours

try:
    X, Y, _ = load_dataset("NYCTaxi")
    X = X.to_numpy(float)
except DatasetUnavailableError as error:
    print(f"Made-up rides: {error}")
    rng = np.random.default_rng(0)
    along, across = rng.normal(0, 0.03, (2, 6000)), rng.normal(0, 0.006, (2, 6000))
    start, stop = np.stack([-73.98 + 0.5 * along + across, 40.75 + along], axis=-1)
    hour = rng.uniform(0, 2 * np.pi, 6000)
    X, Y = np.column_stack([start, np.sin(hour), np.cos(hour)]), 0.6 * stop + 0.4 * start

train, test = np.arange(2500), np.arange(2500, 6000)
model = MCD("mixture", joint="chain", target="continuous", support=(None, None), random_state=0)
model.fit(X[train], Y[train])

# %%
# Two rides that the model has not seen, with the smallest regions that hold the drop-off with 50
# and 90 %. The grey points, drop-offs of other rides, draw the map.

south, north = (test[np.argmin(np.abs(X[test, 1] - at))] for at in (40.71, 40.79))
figure, axes = plt.subplots(1, 2, figsize=(10, 7), layout="constrained")
for ax, ride in zip(axes, (south, north), strict=True):
    law = model.predict_distribution(X[[ride]])
    plot_contours(law, Y[ride], background=Y[train], geographic=True, ax=ax)
    ax.plot(*X[ride, :2], "k^", ms=8, label="pick-up")
    ax.set(xlim=(-74.04, -73.84), ylim=(40.66, 40.86), xlabel="longitude", ylabel="latitude")
    ax.legend(frameon=False, fontsize="small")

# %%
# What is the chance that the ride ends north of where it began?

for ride in (south, north):
    law = model.predict_distribution(X[[ride]])
    north_of = law.probability(lambda y, start=X[ride, 1]: y[..., 1] > start)
    print(f"{north_of.estimate[0]:.0%} (± {north_of.standard_error[0]:.0%})")

# %%
# As a script it writes the picture to a folder.

parser = argparse.ArgumentParser(description="Where taxi rides end.")
parser.add_argument("--output", default="demo", help="folder to write to; empty: write nothing")
folder = parser.parse_args().output
if folder:
    Path(folder).mkdir(parents=True, exist_ok=True)
    figure.savefig(Path(folder) / "taxi.png", dpi=100)
