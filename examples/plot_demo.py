"""
The whole distribution, in one minute
=====================================

Two cases: the diabetes data that come with scikit-learn, and a simulated one whose answer is
known, where y given x has up to five modes. The script prints predictions and writes a picture.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from mcdensity import MCD
from mcdensity.baselines import MarginalBaseline
from mcdensity.simulators import get_simulator

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"


def compare(name, model, X_train, X_test, y_train, y_test):
    """Fit, and print the held-out log-likelihood beside that of the marginal alone."""
    model.fit(X_train, y_train)
    marginal = MarginalBaseline().fit(X_train, y_train)
    ours, alone = model.score(X_test, y_test), marginal.score(X_test, y_test)
    print(f"{name}: {len(y_train)} rows to learn from, {len(y_test)} held out")
    print(f"  mean log-likelihood of held-out rows: {ours:.3f}; marginal alone: {alone:.3f}")
    low, high = model.predict_interval(X_test, 0.9).T
    inside = np.mean((y_test >= low) & (y_test <= high))
    print(f"  90 % intervals hold {inside:.0%} of the held-out targets\n")
    return model


def show_densities(ax, model, X, y, title, unit, truth=None):
    """Draw the densities of a few rows, one above the other, with interval and outcome."""
    distribution = model.predict_distribution(X)
    low, high = np.min(distribution.ppf(0.001)), np.max(distribution.ppf(0.999))
    grid = np.linspace(low, high, 1000)
    densities = distribution.pdf_grid(grid)
    exact = np.zeros_like(densities) if truth is None else truth.pdf_grid(X, grid)
    step = 1.1 * max(densities.max(), exact.max())
    for i, density in enumerate(densities):
        base = -i * step
        ax.fill_between(grid, base, base + density, color=BLUE, alpha=0.25, lw=0)
        ax.plot(grid, base + density, color=BLUE, lw=1.5, label="estimate" if i == 0 else None)
        if truth is not None:
            ax.plot(
                grid, base + exact[i], color=GREY, lw=1, ls="--", label="truth" if i == 0 else None
            )
        interval = distribution[i].interval(0.9)[0]
        ax.plot(interval, [base, base], color=GREEN, lw=4, solid_capstyle="butt",
                label="90 % interval" if i == 0 else None)  # fmt: skip
        ax.plot(y[i], base, "v", color=ORANGE, ms=8, label="outcome" if i == 0 else None)
    ax.set(title=title, xlabel=unit, yticks=[], ylabel="density, one row above the other")
    ax.set_ylim(top=1.35 * step)  # the legend is above all curves
    ax.legend(frameon=False, fontsize=8, loc="upper right", ncols=4)


def show_calibration(ax, model, X, y, title):
    """Draw how often the outcome lies below each predicted quantile."""
    level = np.sort(model.predict_distribution(X).cdf(y))
    share = (np.arange(len(level)) + 0.5) / len(level)
    band = 1.36 / np.sqrt(len(level))  # 95 % band of Kolmogorov and Smirnov
    ax.fill_between([0, 1], [-band, 1 - band], [band, 1 + band], color=GREY, alpha=0.15, lw=0,
                    label="95 % band of chance")  # fmt: skip
    ax.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--")
    ax.plot(level, share, color=BLUE, lw=2, label="held-out rows")
    ax.set(title=title, xlabel="predicted probability", ylabel="observed share",
           xlim=(0, 1), ylim=(0, 1), aspect="equal")  # fmt: skip
    ax.legend(frameon=False, fontsize=8, loc="upper left")


def main(folder="demo"):
    data = load_diabetes()
    split = train_test_split(data.data, data.target, test_size=0.3, random_state=0)
    diabetes = compare("Diabetes (disease progression)", MCD(random_state=0), *split)
    _, X, _, y = split
    rows = np.argsort(diabetes.predict(X))[:: len(X) // 4][:5]
    print("  row    5 %    median    95 %    P(y > 200)   outcome")
    distribution = diabetes.predict_distribution(X[rows])
    for i, (quantiles, above) in enumerate(
        zip(distribution.ppf_grid([0.05, 0.5, 0.95]), distribution.sf(200), strict=True)
    ):
        low, median, high = quantiles
        print(f"  {rows[i]:3d}{low:7.0f}{median:10.0f}{high:8.0f}{above:14.2f}{y[rows[i]]:10.0f}")
    print()

    # x is a function of y, and not the other way: y given x has up to five modes.
    simulator = get_simulator("InverseSinusoid")
    X_toy, y_toy = simulator.sample(2000, random_state=0)
    toy_split = train_test_split(X_toy, y_toy, test_size=0.3, random_state=0)
    toy = compare("Inverse sinusoid (simulated)", MCD(random_state=0), *toy_split)
    X_chosen = np.array([[-7.0], [-3.0], [0.0], [3.0], [7.0]])
    y_chosen = [toy_split[3][np.argmin(np.abs(toy_split[1][:, 0] - x))] for x in X_chosen[:, 0]]

    figure, axes = plt.subplots(2, 2, figsize=(12, 9), layout="constrained")
    show_densities(axes[0, 0], diabetes, X[rows], y[rows], "Diabetes: five held-out patients",
                   "disease progression after one year")  # fmt: skip
    show_calibration(axes[0, 1], diabetes, X, y, "Diabetes: calibration")
    show_densities(axes[1, 0], toy, X_chosen, y_chosen, "Inverse sinusoid at x = -7, -3, 0, 3, 7",
                   "y", truth=simulator)  # fmt: skip
    show_calibration(axes[1, 1], toy, toy_split[1], toy_split[3], "Inverse sinusoid: calibration")
    if not folder:
        return None
    path = Path(folder) / "demo.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"Picture: {path}")
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Fit two data sets, print predictions, and draw them."
    )
    parser.add_argument("--output", default="demo", help="folder to write to; empty: write nothing")
    main(parser.parse_args().output)
