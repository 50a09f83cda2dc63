"""Pictures of conditional distributions. Each function draws on `ax` and returns it.

The colours are those of Okabe and Ito, which colour-blind readers can tell apart; lines differ in
style too, so that they can be told apart in print.
"""

from mcdensity.plotting.calibration import plot_calibration, plot_pit
from mcdensity.plotting.densities import plot_comparison, plot_densities, plot_fan, plot_hpd
from mcdensity.plotting.features import plot_heatmap, sweep
from mcdensity.plotting.joint import plot_contours, plot_pairs

__all__ = [
    "plot_calibration",
    "plot_comparison",
    "plot_contours",
    "plot_densities",
    "plot_fan",
    "plot_heatmap",
    "plot_hpd",
    "plot_pairs",
    "plot_pit",
    "sweep",
]
