"""Draw time against accuracy: what a protocol `frontier` measured, as a picture of the docs.

    mcdensity bench run frontier --seeds 1 --jobs 1 -r frontier.db \
        --methods MCD:fast,MCD,MCD:best,MDN,NF,NGBoost,QuantileForest
    mcdensity bench export frontier -r frontier.db
    python benchmarks/frontier.py frontier/frontier.csv docs/images/frontier.png
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import pandas as pd

# Of MCD the three efforts are points of one curve.
EFFORTS = ["MCD:fast", "MCD", "MCD:best"]
COLORS = {"MDN": "#0072b2", "NF": "#56b4e9", "NGBoost": "#e69f00", "QuantileForest": "#009e73"}


def main(source: str, target: str) -> None:
    table = pd.read_csv(source)
    mean = table.groupby(["problem", "method"])[["cpu_seconds", "log_likelihood"]].mean()
    sizes = sorted(mean.index.get_level_values(0).unique())
    figure, axes = plt.subplots(1, len(sizes), figsize=(3.1 * len(sizes), 3.2), squeeze=False)
    for axis, n in zip(axes[0], sizes, strict=True):
        part = mean.loc[n]
        own = part.loc[[name for name in EFFORTS if name in part.index]]
        axis.plot(own.cpu_seconds, own.log_likelihood, "o-", color="#d55e00", label="MCD")
        for name, point in own.iterrows():
            text = "normal" if name == "MCD" else str(name).split(":")[1]
            where = (point.cpu_seconds, point.log_likelihood)
            axis.annotate(text, where, xytext=(0, 6), textcoords="offset points", ha="center",
                          fontsize=8)  # fmt: skip
        for name, color in COLORS.items():
            if name in part.index:
                axis.plot(*part.loc[name], "s", color=color, label=name)
        axis.set(xscale="log", title=f"{int(n):,} rows", xlabel="CPU seconds to fit")
        axis.margins(0.2)
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("log-likelihood of new rows")
    handles, labels = axes[0, -1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(target, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
