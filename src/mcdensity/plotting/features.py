"""How the density moves along a feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity._validation import check_integer
from mcdensity.distribution import ConditionalDistribution, MixedDistribution
from mcdensity.distribution.joint import refuse_joint
from mcdensity.estimator import ConditionalEstimator
from mcdensity.plotting._drawing import ORANGE, new_axes, one_per_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["feature_column", "plot_heatmap", "sweep"]


def plot_heatmap(
    estimator: ConditionalEstimator,
    X: Any,
    feature: str | int,
    *,
    y: ArrayLike | None = None,
    n_points: int = 100,
    ax: Axes | None = None,
) -> Axes:
    """Draw the density of y along one feature, all others held at a typical value.

    Parameters
    ----------
    estimator : ConditionalEstimator
        Fitted.
    X : DataFrame or array of shape (n, p)
        Rows that say which values the features have; see `sweep`.
    feature : str or int
        Its name, or the number of its column.
    y : array-like of shape (n,), optional
        Outcomes of the rows, drawn as points.
    n_points : int, default 100
        Values of the feature.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    values, rows = sweep(X, feature, n_points)
    distribution = estimator.predict_distribution(rows)
    refuse_joint(distribution, "This picture")
    low, high = float(distribution.ppf(0.005).min()), float(distribution.ppf(0.995).max())
    grid, density, what = _image(distribution, low, high)
    ax = new_axes(ax)
    numeric = values.dtype.kind == "f"
    across = values if numeric else np.arange(len(values))
    # The top percent share a colour: otherwise one sharp peak would hide all else.
    mesh = ax.pcolormesh(
        across, grid, density, cmap="Blues", vmin=0, vmax=np.quantile(density, 0.99),
        shading="nearest", rasterized=True,
    )  # fmt: skip
    ax.figure.colorbar(mesh, ax=ax, label=what, extend="max")
    for level, style in ((0.05, ":"), (0.5, "-"), (0.95, ":")):
        line = distribution.ppf(level)
        if numeric:
            ax.plot(across, line, color=ORANGE, ls=style, lw=1.3)
        else:
            ax.plot(across, line, "_", color=ORANGE, ms=18, mew=2 if level == 0.5 else 1)
    if y is not None:
        at = feature_column(X, feature)
        if numeric:
            ax.plot(np.asarray(at, dtype=np.float64), one_per_row(y, len(at)), ".", color="black",
                    ms=2, alpha=0.35)  # fmt: skip
            ax.set_xlim(float(across[0]), float(across[-1]))
        ax.set_ylim(low, high)
    if not numeric:
        ax.set_xticks(across, [str(v) for v in values], rotation=30, ha="right")
    name = feature if isinstance(feature, str) else f"feature {feature}"
    ax.set(xlabel=name, ylabel="y", title=f"{what}; lines: 5 %, 50 %, 95 %")
    return ax


def _image(
    distribution: ConditionalDistribution, low: float, high: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    """Values of y, what the laws of the rows are there, shape (values, rows), and its name."""
    if distribution.is_discrete:
        atoms = distribution.atoms
        grid = atoms[(atoms >= low) & (atoms <= high)]
        return grid, distribution.pdf_grid(grid).T, "probability"
    grid = np.linspace(low, high, 300)
    if isinstance(distribution, MixedDistribution):
        share = 1 - distribution.masses.sum(axis=1)
        return grid, distribution.rest.pdf_grid(grid).T * share, "density beside the atoms"
    return grid, distribution.pdf_grid(grid).T, "density"


def sweep(X: Any, feature: str | int, n_points: int = 100) -> tuple[NDArray[Any], Any]:
    """Return values of one feature, and rows that have them and are otherwise typical.

    Typical is the median of a column of numbers, and the most frequent value of other columns. The
    values go from the 1 % to the 99 % quantile; of text, they are its most frequent values.

    Parameters
    ----------
    X : DataFrame or array of shape (n, p)
    feature : str or int
    n_points : int

    Returns
    -------
    values : ndarray of shape (k,)
    rows : DataFrame or array of shape (k, p)
    """
    n_points = check_integer("n_points", n_points, 2)
    column = feature_column(X, feature)
    numeric = _is_numeric(column)
    if numeric:
        known = np.asarray(column, dtype=np.float64)
        known = known[np.isfinite(known)]
        if len(known) == 0:
            raise ValueError(f"The feature {feature!r} has no values.")
        different = np.unique(known)
        values: NDArray[Any] = (
            different
            if len(different) <= 10
            else np.linspace(np.quantile(known, 0.01), np.quantile(known, 0.99), n_points)
        )
    else:
        frequent = column.dropna().astype(str).value_counts().index[:12]
        values = np.sort(np.array(list(frequent), dtype=object))
    if hasattr(X, "iloc"):
        typical = {}
        for name in X.columns:
            own = X[name]
            typical[name] = (
                float(own.median()) if _is_numeric(own) else next(iter(own.mode()), None)
            )
        rows = X.iloc[[0] * len(values)].reset_index(drop=True).astype(object)
        for name, value in typical.items():
            rows[name] = value
        rows[feature if isinstance(feature, str) else X.columns[feature]] = values
        return values, rows.infer_objects()
    rows = np.tile(np.nanmedian(np.asarray(X, dtype=np.float64), axis=0), (len(values), 1))
    rows[:, int(feature)] = values
    return values, rows


def _is_numeric(column: Any) -> bool:
    return np.asarray(column).dtype.kind in "biuf"


def feature_column(X: Any, feature: str | int) -> Any:
    """Return the column of a feature, or say which features there are."""
    if hasattr(X, "iloc"):
        from mcdensity.tables import nearest

        if isinstance(feature, str):
            if feature not in X.columns:
                raise ValueError(
                    f"There is no feature {feature!r}{nearest(feature, X.columns)}; choose from "
                    f"{', '.join(map(str, X.columns))}."
                )
            return X[feature]
        return X.iloc[:, feature]
    values = np.asarray(X, dtype=np.float64)
    if not isinstance(feature, int | np.integer) or not 0 <= feature < values.shape[1]:
        raise ValueError(
            f"feature must be a column number from 0 to {values.shape[1] - 1} where X is an array, "
            f"got {feature!r}."
        )
    return values[:, feature]
