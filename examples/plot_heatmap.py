"""
How the density moves with a feature
====================================

The diabetes data of scikit-learn: the density of disease progression along two of the features, the
others held at their median, and the fan of all held-out rows.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from mcdensity import MCD
from mcdensity.plotting import plot_fan, plot_heatmap, plot_hpd

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
model = MCD("quadratic", random_state=0).fit(X_train, y_train)

# %%
# Above, body mass index and blood pressure: dark is likely; points are held-out patients. Below,
# all of these ordered by their median, with intervals; and the highest-density regions of six.

figure, axes = plt.subplots(2, 2, figsize=(12, 9), layout="constrained")
for ax, feature in zip(axes[0], ("bmi", "bp"), strict=True):
    plot_heatmap(model, X_test, feature, y=y_test, ax=ax)
    ax.set_ylabel("progression")

order = np.argsort(model.predict_quantiles(X_test, [0.5])[:, 0])
distribution = model.predict_distribution(X_test.iloc[order])
outcomes = y_test.to_numpy()[order]
plot_fan(distribution, outcomes, ax=axes[1, 0])
axes[1, 0].set_ylabel("progression")
chosen = np.linspace(0, len(order) - 1, 6).astype(int)
plot_hpd(distribution[chosen], outcomes[chosen], ax=axes[1, 1])
axes[1, 1].set_xlabel("progression")

# %%
# As a script it writes the picture to a folder.

parser = argparse.ArgumentParser(description="Densities along features.")
parser.add_argument("--output", default="demo", help="folder to write to; empty: write nothing")
folder = parser.parse_args().output
if folder:
    Path(folder).mkdir(parents=True, exist_ok=True)
    figure.savefig(Path(folder) / "heatmap.png", dpi=100)
