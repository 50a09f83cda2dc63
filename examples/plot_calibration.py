"""
Calibration in two pictures
===========================

Two estimators on the same held-out rows. One of them cannot use x, and is calibrated all the same,
as long as all rows are taken together.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt

from mcdensity import MCD, metrics
from mcdensity.plotting import plot_calibration, plot_pit
from mcdensity.simulators import get_simulator

X, y = get_simulator("EconDensity").sample(1500, random_state=0)
X_train, y_train, X_test, y_test = X[:500], y[:500], X[500:], y[500:]

# %%
# "elastic-net" is a logistic regression without products of x and y. It cannot learn how y depends
# on x, so its densities are the marginal's: calibrated over all rows together, and useless for
# each. "quadratic" has the products. Calibration alone does not tell them apart; the log-likelihood
# does.

models = {name: MCD(name, random_state=0) for name in ("quadratic", "elastic-net")}
predicted = {
    name: model.fit(X_train, y_train).predict_distribution(X_test) for name, model in models.items()
}
for name, distribution in predicted.items():
    coverage = metrics.coverage(distribution, y_test, level=0.9)
    score = metrics.log_likelihood(distribution, y_test)
    print(f"{name:12} in the 90 % interval: {coverage:.1%}, mean log-likelihood: {score:.3f}")

# %%
# Above all held-out rows, below those with a large x alone. There the marginal is too low: nearly
# all outcomes lie in its upper part.

figure, axes = plt.subplots(2, 3, figsize=(13, 8), layout="constrained")
large = X_test[:, 0] > 1.5
for row, (rows, words) in zip(axes, ((slice(None), "all rows"), (large, "x > 1.5")), strict=True):
    for ax, (name, distribution) in zip(row, predicted.items(), strict=False):
        plot_pit(distribution[rows], y_test[rows], ax=ax)
        ax.set_title(f"{name}, {words}")
    plot_calibration(predicted["elastic-net"][rows], y_test[rows], ax=row[2])
    row[2].set_title(f"elastic-net, {words}")

# %%
# As a script it writes the picture to a folder.

parser = argparse.ArgumentParser(description="PIT and calibration of two estimators.")
parser.add_argument("--output", default="demo", help="folder to write to; empty: write nothing")
folder = parser.parse_args().output
if folder:
    Path(folder).mkdir(parents=True, exist_ok=True)
    figure.savefig(Path(folder) / "calibration.png", dpi=100)
