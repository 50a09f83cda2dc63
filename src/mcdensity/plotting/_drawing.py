"""What the pictures share: colours, axes, legends, and checks of their input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity._validation import require
from mcdensity.distribution import ConditionalDistribution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "BLUE", "GREEN", "GREY", "LINES", "ORANGE", "Array", "add_legend", "check_rows", "new_axes",
    "one_per_row", "percent",
]  # fmt: skip

Array = NDArray[np.float64]

# Okabe and Ito's colours, and line styles that differ in print.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
LINES = (
    (BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), ("#CC79A7", ":"), ("#000000", (0, (5, 1))),
    ("#E69F00", (0, (3, 1, 1, 1))), ("#56B4E9", (0, (1, 1))),
)  # fmt: skip
# With more rows on a page of the usual height, labels overlap.
_MOST_ROWS = 25


def new_axes(ax: Axes | None) -> Axes:
    """Return the given axes, or new ones."""
    if ax is not None:
        return ax
    return require("matplotlib.pyplot", "plot").subplots(layout="constrained")[1]


def add_legend(ax: Axes) -> None:
    """Add the legend where it covers least."""
    ax.legend(frameon=False, fontsize="small", loc="best")


def percent(share: float) -> str:
    """Return a share as text, such as 90 %."""
    return f"{100 * share:.3g} %"


def check_rows(distributions: Mapping[str, ConditionalDistribution]) -> int:
    """Return the number of rows, equal in all and few enough to draw."""
    sizes = {name: len(d) for name, d in distributions.items()}
    n = next(iter(sizes.values()))
    if len(set(sizes.values())) > 1:
        raise ValueError(f"The distributions have different numbers of rows: {sizes}.")
    if not 1 <= n <= _MOST_ROWS:
        raise ValueError(
            f"{n} rows cannot be told apart in one picture; choose 1 to {_MOST_ROWS}, such as "
            "distribution[:5], or use plot_fan."
        )
    return n


def one_per_row(y: ArrayLike, n: int, name: str = "y") -> Array:
    """Return the values as an array, checked to be one per row."""
    values = np.asarray(y, dtype=np.float64).ravel()
    if len(values) != n:
        raise ValueError(f"{name} must have one value per row ({n}), got {len(values)}.")
    return values
