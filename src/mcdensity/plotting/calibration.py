"""Pictures of calibration: do outcomes fall where the distributions say?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from mcdensity import metrics
from mcdensity._validation import check_integer
from mcdensity.distribution import ConditionalDistribution
from mcdensity.plotting._drawing import BLUE, GREY, add_legend, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_calibration", "plot_pit"]


def plot_pit(
    distribution: ConditionalDistribution,
    y: ArrayLike,
    *,
    bins: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Draw the histogram of F(y|x), which is flat where the distributions are right.

    The band holds a bar with probability 0.95 if they are. A hump: the distributions are too wide;
    a bowl: too narrow; a slope: they lie too low or too high.

    Parameters
    ----------
    distribution : ConditionalDistribution
    y : array-like of shape (n,)
        Outcomes.
    bins : int, default 10
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    bins = check_integer("bins", bins, 2)
    value = metrics.pit(distribution, y)
    n = len(value)
    ax = new_axes(ax)
    low, high = (stats.binom.ppf(q, n, 1 / bins) * bins / n for q in (0.025, 0.975))
    ax.axhspan(low, high, color=GREY, alpha=0.2, lw=0, label="95 % band of chance")
    ax.axhline(1, color=GREY, lw=1, ls="--")
    count, edges = np.histogram(value, bins=bins, range=(0, 1))
    ax.bar(edges[:-1], count * bins / n, width=0.95 / bins, align="edge", color=BLUE, alpha=0.85)
    ax.set(xlabel="F(y|x) of the outcomes", ylabel="relative frequency", xlim=(0, 1))
    add_legend(ax)
    return ax


def plot_calibration(
    distribution: ConditionalDistribution, y: ArrayLike, *, ax: Axes | None = None
) -> Axes:
    """Draw how often the outcome lies below each predicted quantile.

    The diagonal is perfect; the band holds the whole curve with probability 0.95 if the
    distributions are right (Kolmogorov and Smirnov).

    Parameters
    ----------
    distribution : ConditionalDistribution
    y : array-like of shape (n,)
        Outcomes.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    level = np.sort(metrics.pit(distribution, y))
    n = len(level)
    band = stats.kstwo.ppf(0.95, n)
    ax = new_axes(ax)
    ax.fill_between([0, 1], [-band, 1 - band], [band, 1 + band], color=GREY, alpha=0.15, lw=0,
                    label="95 % band of chance")  # fmt: skip
    ax.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--")
    ax.plot(np.r_[0, level, 1], np.r_[0, (np.arange(n) + 0.5) / n, 1], color=BLUE, lw=2,
            label="outcomes")  # fmt: skip
    ax.set(xlabel="predicted probability", ylabel="observed share", xlim=(0, 1), ylim=(0, 1),
           aspect="equal")  # fmt: skip
    add_legend(ax)
    return ax
