"""
Several methods, the same rows
==============================

What three estimators say of four x of a ring, where y given x has two modes, and the truth beside
them.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from mcdensity import MCD
from mcdensity.baselines import get_estimator
from mcdensity.plotting import plot_comparison
from mcdensity.simulators import get_simulator

simulator = get_simulator("Ring")
X, y = simulator.sample(800, random_state=0)
X_test, y_test = simulator.sample(300, random_state=1)

# %%
# "quadratic" knows products of x and y only, so that it cannot tell one x from another here.
# Boosted trees find both modes, in steps; a kernel density of the nearest neighbours is smooth.

models = {
    "MCD, boosted trees": MCD("hist-gradient-boosting", random_state=0),
    "MCD, quadratic": MCD("quadratic", random_state=0),
    "nearest neighbours": get_estimator("nnkcde"),
}
truth = simulator.oracle().fit(X, y)
for name, model in models.items():
    model.fit(X, y)
    print(f"{name:20} mean log-likelihood of new rows: {model.score(X_test, y_test):.3f}")
print(f"{'truth':20} mean log-likelihood of new rows: {truth.score(X_test, y_test):.3f}")

# %%
# One row below the other, from the middle of the ring outwards.

X_chosen = np.array([[1.0], [2.0], [3.0], [4.5]])
predicted = {name: model.predict_distribution(X_chosen) for name, model in models.items()}
predicted["truth"] = simulator.distribution(X_chosen)
figure, ax = plt.subplots(figsize=(9, 8), layout="constrained")
plot_comparison(predicted, labels=[f"x = {x:g}" for x in X_chosen[:, 0]], ax=ax)
ax.set_xlabel("y")

# %%
# As a script it writes the picture to a folder.

parser = argparse.ArgumentParser(description="Densities of several estimators.")
parser.add_argument("--output", default="demo", help="folder to write to; empty: write nothing")
folder = parser.parse_args().output
if folder:
    Path(folder).mkdir(parents=True, exist_ok=True)
    figure.savefig(Path(folder) / "comparison.png", dpi=100)
