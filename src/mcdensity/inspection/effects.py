"""How a functional of the law moves with one feature: partial dependence and local effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._validation import as_generator, check_integer, require
from mcdensity.inspection._asking import Array, Functional, Rows, answers, as_functionals, ask

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["accumulated_local_effects", "partial_dependence"]

Index = NDArray[np.intp]

# Of text that is missing, as `TablePreparation` has it.
_MISSING = "(missing)"


def partial_dependence(
    estimator: Any,
    X: Any,
    features: Any = None,
    functional: Functional | list[Functional] = "mean",
    *,
    n_points: int = 20,
    n_rows: int | None = 200,
    random_state: Any = None,
) -> pd.DataFrame:
    r"""Average a functional over rows whose feature is set to one value after the other.

    .. math:: PD_j(v) = \frac{1}{n} \sum_i g(v, x_{i, -j})

    Where features are correlated, this asks about rows that do not exist (a flat of 200 square
    metres with one room): prefer `accumulated_local_effects` there.

    Parameters
    ----------
    estimator : ConditionalEstimator
        Fitted; anything with `predict_distribution`.
    X : DataFrame or array of shape (n, p)
        Rows to average over.
    features : str, int or list of these, optional
        Names or numbers of columns; by default all that the estimator uses.
    functional : str, tuple, callable or list of these, default "mean"
        g: "mean", "median", "std", "width" (of the 90 % interval), ("quantile", level),
        ("width", coverage), ("above", value) for P(y > value), or a function that takes a
        `ConditionalDistribution` and returns one number per row.
    n_points : int, default 20
        Values of a feature: quantiles of it, or its most frequent texts.
    n_rows : int or None, default 200
        At most so many rows are used, drawn at random; None for all.
    random_state : int, Generator, RandomState or None
        For drawing rows.

    Returns
    -------
    DataFrame
        With the columns feature, functional, value, effect (the average), std_error (over rows)
        and rows (how many rows are nearest to this value).

    Examples
    --------
    >>> from mcdensity.inspection import partial_dependence
    >>> from mcdensity.simulators import Oracle, get_simulator
    >>> simulator = get_simulator("EconDensity")
    >>> X, y = simulator.sample(300, random_state=0)
    >>> table = partial_dependence(Oracle(simulator).fit(X, y), X, functional="std")
    >>> bool(table["effect"].is_monotonic_increasing)
    True
    """
    rows, functionals, columns = _prepared(estimator, X, features, functional, n_rows, random_state)
    n_points = check_integer("n_points", n_points, 2)
    points = {j: _points(rows, j, n_points) for j in columns}
    blocks = (rows.with_value(j, i) for j in columns for i in points[j].sources)
    found = ask(rows, blocks, answers(estimator, functionals))
    parts = []
    for j in columns:
        own = points[j]
        value = np.stack([next(found) for _ in own.sources])  # (points, rows, functionals)
        error = value.std(axis=1, ddof=min(1, len(rows) - 1)) / np.sqrt(len(rows))
        parts.append(_table(rows, j, own, list(functionals), value.mean(axis=1), error))
    return require("pandas", "cli").concat(parts, ignore_index=True)


def accumulated_local_effects(
    estimator: Any,
    X: Any,
    features: Any = None,
    functional: Functional | list[Functional] = "mean",
    *,
    n_points: int = 20,
    n_rows: int | None = 1000,
    random_state: Any = None,
) -> pd.DataFrame:
    r"""Accumulate how a functional changes along a feature, over the rows as they are.

    Each row is moved only to the ends of the short interval (z_{k-1}, z_k] that it lies in, so that
    no row is asked about that could not exist. The mean changes of the intervals are added up:

    .. math:: ALE_j(z_k) = \sum_{l \le k} \frac{1}{n_l} \sum_{i \in l}
              [g(z_l, x_{i,-j}) - g(z_{l-1}, x_{i,-j})] - c

    with c such that the mean over the rows is zero. Texts are put into an order in which
    neighbours have similar other features, and each row is moved to the texts beside its own.
    Rows whose number is missing are left out.

    Parameters
    ----------
    estimator : ConditionalEstimator
        Fitted; anything with `predict_distribution`.
    X : DataFrame or array of shape (n, p)
    features : str, int or list of these, optional
        Names or numbers of columns; by default all that the estimator uses.
    functional : str, tuple, callable or list of these, default "mean"
        g, see `partial_dependence`.
    n_points : int, default 20
        Ends of intervals, or most frequent texts.
    n_rows : int or None, default 1000
        At most so many rows are used, drawn at random; None for all.
    random_state : int, Generator, RandomState or None
        For drawing rows.

    Returns
    -------
    DataFrame
        With the columns feature, functional, value, effect, std_error and rows (how many are
        nearest to this value). The standard error says how much the curve would differ with
        other rows; it is zero where all rows agree about the change.

    References
    ----------
    Apley, Zhu: Visualizing the effects of predictor variables in black box supervised learning
    models, Journal of the Royal Statistical Society B, 2020.

    Examples
    --------
    >>> from mcdensity.inspection import accumulated_local_effects
    >>> from mcdensity.simulators import Oracle, get_simulator
    >>> simulator = get_simulator("EconDensity")
    >>> X, y = simulator.sample(300, random_state=0)
    >>> model = Oracle(simulator).fit(X, y)
    >>> table = accumulated_local_effects(model, X, functional=["mean", ("quantile", 0.95)])
    >>> list(table.columns)
    ['feature', 'functional', 'value', 'effect', 'std_error', 'rows']
    """
    rows, functionals, columns = _prepared(estimator, X, features, functional, n_rows, random_state)
    n_points = check_integer("n_points", n_points, 2)
    points = {j: _points(rows, j, n_points, local=True) for j in columns}
    parts = []
    for j, change, used in _changes(rows, points, answers(estimator, functionals)):
        effect, error = _accumulated(points[j], change, used)
        parts.append(_table(rows, j, points[j], list(functionals), effect, error))
    return require("pandas", "cli").concat(parts, ignore_index=True)


def _changes(
    rows: Rows, points: dict[int, _Points], evaluate: Callable[[Any], Array]
) -> Iterator[tuple[int, Array, NDArray[np.bool_]]]:
    """Move each row to both ends of its steps.

    For each feature: how the functionals change, (rows, steps, functionals), and which rows are in
    which step.
    """
    steps = {j: _steps(own) for j, own in points.items()}
    blocks = (
        rows.with_value(j, points[j].sources[end])[moved]
        for j, own in steps.items()
        for moved, ends in own
        for end in ends
    )
    found = ask(rows, blocks, evaluate)
    for j, own in steps.items():
        used = np.zeros((len(rows), len(own)), dtype=bool)
        parts = []
        for moved, (low, _) in own:
            used[moved, low] = True
            before, after = next(found), next(found)
            parts.append(np.zeros((len(rows), before.shape[1])))
            parts[-1][moved] = after - before
        yield j, np.stack(parts, axis=1), used


class _Points:
    """The values of a feature at which effects are computed.

    Attributes
    ----------
    sources : which row has each of the values
    at : of numbers, the values
    numbers : of numbers, the values of all rows
    place : which value each row is nearest to; -1 for rows that are left out
    share : (rows, points): the value of a row as a mean of those at the points
    """

    def __init__(
        self, sources: Index, at: Array | None, numbers: Array | None, place: Index, share: Array
    ) -> None:
        self.sources, self.at, self.numbers = sources, at, numbers
        self.place, self.share = place, share


def _prepared(
    estimator: Any, X: Any, features: Any, functional: Any, n_rows: int | None, random_state: Any
) -> tuple[Rows, Any, list[int]]:
    rows = Rows(X)
    columns = rows.used_by(estimator, features)
    functionals = as_functionals(functional)
    return rows.some(n_rows, as_generator(random_state)), functionals, columns


def _points(rows: Rows, j: int, n_points: int, local: bool = False) -> _Points:
    numbers = rows.numbers(j)
    if numbers is None:
        return _texts(rows, j, n_points, local)
    known = np.flatnonzero(np.isfinite(numbers))
    different = np.unique(numbers[known])
    if len(different) < 2:
        what = "no values" if len(different) == 0 else "one value only"
        raise ValueError(
            f"The feature {rows.names[j]!r} has {what} in these rows; give other rows, or leave it "
            "out."
        )
    if local:  # the change between two points is a mean of several rows
        n_points = max(2, min(n_points, len(known) // 5))
    if len(different) > n_points:
        levels = np.linspace(0, 1, n_points)
        # Values that occur, so that a count stays a count.
        different = np.unique(np.quantile(numbers[known], levels, method="inverted_cdf"))
    order = known[np.argsort(numbers[known], kind="stable")]
    sources = order[np.searchsorted(numbers[order], different)]
    value = np.where(np.isfinite(numbers), numbers, different[0])
    share = np.stack([np.interp(value, different, unit) for unit in np.eye(len(different))], axis=1)
    place = np.where(np.isfinite(numbers), share.argmax(axis=1), -1)
    share[place < 0] = 0
    return _Points(sources, different, numbers, place, share)


def _texts(rows: Rows, j: int, n_points: int, local: bool) -> _Points:
    """Points of a column of text: its most frequent values."""
    text = _as_text(rows, j)
    names, first, code, count = np.unique(
        text, return_index=True, return_inverse=True, return_counts=True
    )
    kept = np.sort(np.argsort(-count, kind="stable")[:n_points])
    if len(kept) < 2:
        raise ValueError(
            f"The feature {rows.names[j]!r} has the one value {names[0]!r} in these rows; give "
            "other rows, or leave it out."
        )
    if local:
        kept = kept[_order(rows, j, [code == k for k in kept])]
    place = np.full(len(names), -1)
    place[kept] = np.arange(len(kept))
    place = place[code]
    share = (place[:, None] == np.arange(len(kept))).astype(float)
    return _Points(first[kept], None, None, place, share)


def _as_text(rows: Rows, j: int) -> NDArray[Any]:
    column = rows.column(j)
    return np.array([_MISSING if v is None or v != v else str(v) for v in column.astype(object)])


def _order(rows: Rows, j: int, members: Sequence[NDArray[np.bool_]]) -> Index:
    """Order texts so that neighbours have similar other features.

    As Apley and Zhu do: distances between the laws of each other feature, added up, and put on a
    line by classical scaling. Where nothing else differs, or nothing else is there, the order is
    that of the alphabet.
    """
    distance = np.zeros((len(members), len(members)))
    for other in range(len(rows.names)):
        if other == j:
            continue
        numbers = rows.numbers(other)
        if numbers is None:
            _, code = np.unique(_as_text(rows, other), return_inverse=True)
            shares = np.stack([np.bincount(code[m], minlength=code.max() + 1) for m in members])
            law = shares / shares.sum(axis=1, keepdims=True)
            distance += np.abs(law[:, None] - law[None]).sum(axis=-1) / 2
        else:
            known = np.unique(numbers[np.isfinite(numbers)])
            law = np.stack([_cdf(numbers[m], known) for m in members])
            if len(known):
                distance += np.abs(law[:, None] - law[None]).max(axis=-1)
    middle = np.eye(len(members)) - 1 / len(members)
    value, vector = np.linalg.eigh(-0.5 * middle @ distance**2 @ middle)
    if value[-1] <= 1e-12:
        return np.arange(len(members))
    line = vector[:, -1] * np.sign(vector[np.abs(vector[:, -1]).argmax(), -1])
    return np.argsort(line, kind="stable")


def _cdf(values: Array, at: Array) -> Array:
    values = np.sort(values[np.isfinite(values)])
    return np.searchsorted(values, at, side="right") / max(1, len(values))


def _steps(points: _Points) -> list[tuple[Index, tuple[int, int]]]:
    """Which rows are moved between which neighbouring points."""
    out = []
    for k in range(len(points.sources) - 1):
        if points.at is None or points.numbers is None:
            moved = np.flatnonzero((points.place == k) | (points.place == k + 1))
        else:
            above = points.numbers > points.at[k] if k else points.numbers >= points.at[0]
            moved = np.flatnonzero(above & (points.numbers <= points.at[k + 1]))
        out.append((moved, (k, k + 1)))
    return out


def _accumulated(points: _Points, change: Array, used: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Add up mean changes, and say how uncertain the sums are.

    The effect at point k is sum over l of A[k, l] m_l, with m_l the mean change of step l. A row's
    influence on it is sum of A[k, l] (d_il - m_l) / n_l; the variance is the sum of its squares.
    """
    count = np.maximum(used.sum(axis=0), 1)
    mean = change.sum(axis=0) / count[:, None]  # (steps, functionals)
    n_points = len(points.sources)
    add = np.tri(n_points, n_points - 1, -1)
    weight = points.share.sum(axis=0) / max(1, int((points.place >= 0).sum()))
    centred = add - weight @ add
    rest = np.where(used[..., None], change - mean, 0.0)
    scale = np.sqrt(count / np.maximum(count - 1, 1)) / count
    influence = np.einsum("kl,ilf->ikf", centred * scale, rest)
    return centred @ mean, np.sqrt((influence**2).sum(axis=0))


def _table(
    rows: Rows, j: int, points: _Points, names: list[str], effect: Array, error: Array
) -> pd.DataFrame:
    pandas = require("pandas", "cli")
    value = rows.column(j)
    at: Any = [value.iloc[i] if rows.is_table else value[i] for i in points.sources]
    if points.at is None:
        at = [_MISSING if v is None or v != v else v for v in at]
    near = np.bincount(points.place[points.place >= 0], minlength=len(points.sources))
    parts = [
        pandas.DataFrame({
            "feature": rows.names[j],
            "functional": name,
            "value": at,
            "effect": effect[:, k],
            "std_error": error[:, k],
            "rows": near,
        })
        for k, name in enumerate(names)
    ]  # fmt: skip
    return pandas.concat(parts, ignore_index=True)
