"""What can be moved on the page: features as a user knows them, and what networks see of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity.tables import TableEstimator, nearest

__all__ = ["Column", "Control", "controls_of", "data_values", "limits_of", "scaled", "values_of"]

Array = NDArray[np.float64]

# What texts that training rarely saw are called.
_OTHER = "other"
# A range so many times as wide as the central 99 % is drawn without its outliers.
_WILD = 5.0
# Sliders have at least so many steps.
_LEAST_STEPS = 100


@dataclass(frozen=True)
class Control:
    """A feature: a number, or one of several texts.

    Parameters
    ----------
    name : str
    options : tuple of str
        Texts, whose number is the value; none for a number.
    missing : bool
        Whether training had rows without this number.
    """

    name: str
    options: tuple[str, ...] = ()
    missing: bool = False


@dataclass(frozen=True)
class Column:
    """One number that a network sees: ``(value - mean) / scale``.

    Parameters
    ----------
    source : int
        Number of the control or, for "before", of the target that comes earlier in the chain.
    kind : {"value", "missing", "is", "before"}
        The number itself, whether it is missing, or whether a text is that number `code`.
    code : int
    fill : float
        What stands for a missing number.
    mean, scale : float
    """

    source: int
    kind: str = "value"
    code: int = 0
    fill: float = np.nan
    mean: float = 0.0
    scale: float = 1.0


def controls_of(model: Any) -> tuple[list[Control], list[Column]]:
    """Return the features of a model, and the columns that its inner estimator takes."""
    if isinstance(model, TableEstimator):
        return _table_controls(model.preparation_)
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = [f"x{j}" for j in range(model.n_features_in_)]
    first = model.links_[0] if hasattr(model, "links_") else model
    missing = set(first.missing_columns_ or ())
    controls = [Control(str(name), missing=j in missing) for j, name in enumerate(names)]
    return controls, [Column(j) for j in range(len(controls))]


def _table_controls(preparation: Any) -> tuple[list[Control], list[Column]]:
    numbers, texts = preparation.numbers_, preparation.texts_
    controls, columns = [], []
    if numbers:
        indicator = preparation.imputer_.indicator_
        marked = [int(j) for j in indicator.features_]
        for j, (name, fill) in enumerate(
            zip(numbers, preparation.imputer_.statistics_, strict=True)
        ):
            controls.append(Control(name, missing=j in marked))
            columns.append(Column(j, fill=float(fill)))
        columns += [Column(j, "missing") for j in marked]
    for name, options in zip(texts, _options(preparation), strict=True):
        columns += [Column(len(controls), "is", code) for code in range(len(options))]
        controls.append(Control(name, tuple(options)))
    return controls, columns


def _options(preparation: Any) -> list[list[str]]:
    """Texts that have a column of their own, in the order of these; rare ones share the last."""
    if not preparation.texts_:
        return []
    encoder = preparation.encoder_
    out = []
    for texts, rare in zip(encoder.categories_, encoder.infrequent_categories_, strict=True):
        seldom = set() if rare is None else set(rare)
        out.append([str(t) for t in texts if t not in seldom] + [_OTHER] * bool(seldom))
    return out


def scaled(model: Any, columns: Sequence[Column]) -> list[Column]:
    """Columns as a fitted model standardises them, with those that mark missing numbers."""
    shape = len(columns)
    mean, scale = (np.broadcast_to(a, shape) for a in (model.x_mean_, model.x_scale_))
    out = []
    for column, m, s in zip(columns, mean.tolist(), scale.tolist(), strict=True):
        new = replace(
            column, mean=column.mean + column.scale * m, scale=column.scale * min(s, 1e300)
        )
        if column.kind == "value" and np.isnan(column.fill):
            new = replace(new, fill=new.mean)
        out.append(new)
    for j in model.missing_columns_ or ():
        out.append(Column(columns[j].source, "missing"))
    return out


def values_of(rows: Array, columns: Sequence[Column], controls: Sequence[Control]) -> Array:
    """Return what the controls must be for a network to see these rows; NaN is missing.

    A text that has no column is -1.
    """
    out = np.full((len(rows), len(controls)), np.nan)
    for j, control in enumerate(controls):
        if control.options:
            out[:, j] = -1
    missing = np.zeros(out.shape, dtype=bool)
    for column, value in zip(columns, rows.T, strict=True):
        raw = column.mean + column.scale * value
        if column.kind == "value":
            # Kept rows have single precision: the digits beyond it are noise.
            whole = np.abs(raw - np.round(raw)) < 1e-5 * column.scale
            out[:, column.source] = (
                np.round(raw) if whole.all() else [float(f"{v:.7g}") for v in raw]
            )
        elif column.kind == "is":
            out[raw > 0.5, column.source] = column.code
        elif column.kind == "missing":
            missing[raw > 0.5, column.source] = True
    out[missing] = np.nan
    return out


def data_values(model: Any, X: Any, controls: Sequence[Control]) -> Array:
    """Return the values of the controls in the rows of a user's table, shape (n, controls)."""
    if isinstance(model, TableEstimator):
        preparation = model.preparation_
        prepared = preparation.transform(X)
        out = np.full((len(prepared), len(controls)), np.nan)
        count = len(preparation.numbers_)
        if count:
            out[:, :count] = preparation.numbers_of(X)
        start = prepared.shape[1]
        for j in range(len(controls) - 1, count - 1, -1):
            start -= len(controls[j].options)
            block = prepared[:, start : start + len(controls[j].options)]
            out[:, j] = np.where(block.any(axis=1), block.argmax(axis=1), -1)
        return out
    return np.asarray(model._check_x(with_columns(model, X), "X"))


def with_columns(model: Any, X: Any) -> Any:
    """Return the columns of a table that a model was fitted with, or say which it lacks."""
    names = getattr(model, "feature_names_in_", None)
    if names is None or not hasattr(X, "columns") or isinstance(model, TableEstimator):
        return X
    absent = [name for name in names if name not in X.columns]
    if absent:
        known = ", ".join(f"{name!r}{nearest(name, X.columns)}" for name in absent)
        raise ValueError(f"X lacks columns that the model was fitted with: {known}.")
    return X[list(names)]


def limits_of(values: Array) -> tuple[float, float, float]:
    """Lowest and highest position of a slider, and its step: a power of ten, or 1."""
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return 0.0, 1.0, 0.01
    low, high = float(known.min()), float(known.max())
    inner = np.quantile(known, [0.005, 0.995])
    if high - low > _WILD * (inner[1] - inner[0]) > 0:
        low, high = (float(v) for v in inner)
    if high <= low:
        reach = max(abs(low), 1.0) / 2
        low, high = low - reach, high + reach
    whole = bool((known == np.round(known)).all()) and high - low <= 10 * _LEAST_STEPS
    step = 1.0 if whole else float(10.0 ** np.floor(np.log10((high - low) / _LEAST_STEPS)))
    # Ends are multiples of the step, so that positions are round numbers.
    return _multiple(np.floor(low / step), step), _multiple(np.ceil(high / step), step), step


def _multiple(count: float, step: float) -> float:
    """A multiple of a power of ten, without the noise of the product."""
    return float(f"{count * step:.12g}")
