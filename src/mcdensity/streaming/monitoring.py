"""`evaluate_files`: how good a model is on files, as a whole and by file, month or the like."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._progress import counting
from mcdensity._validation import check_probability, require
from mcdensity.distribution import JointDistribution
from mcdensity.metrics import pit
from mcdensity.streaming.predicting import features_of, loaded
from mcdensity.streaming.rows import Layout, Rows
from mcdensity.streaming.sources import Piece, Source, SourceError, open_source

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["evaluate_files"]

Array = NDArray[np.float64]

# Bins of the probability integral transform: its distance from uniform is known to 0.001.
_BINS = 1000
# Rows evaluated at a time, of one and of several targets.
_BLOCK, _JOINT_BLOCK = 20_000, 500
# Values of `by` at most: more would be a table of rows.
_MOST_GROUPS = 10_000


def evaluate_files(
    model: Any,
    source: Any,
    *,
    target: Any = None,
    by: str | None = "file",
    coverage: float = 0.9,
    weight: str | None = None,
    skip_bad_files: bool = False,
    verbose: bool = False,
) -> pd.DataFrame:
    """Measure a model on files with known outcomes, by file or by a column.

    Parameters
    ----------
    model : ConditionalEstimator or path
    source
        See `fit_files`.
    target : str or sequence of str, optional
        Columns with the outcomes, if they are not the model's own.
    by : str or None, default "file"
        "file", or the name of a column such as the month; None for all rows together.
    coverage : float, default 0.9
        Of the intervals whose share of outcomes is measured.
    weight : str, optional
        Column with weights of the rows.
    skip_bad_files : bool, default False
    verbose : bool, default False

    Returns
    -------
    DataFrame
        A row for each group and a last one, "all": number of rows, mean log-likelihood and its
        standard error, the share of outcomes in the interval, its mean width, and the distance of
        the probability integral transform from uniform. Of several targets: log-likelihood, and
        the coverage of the region of highest density.

    Examples
    --------
    >>> import tempfile, pandas as pd
    >>> from pathlib import Path
    >>> from mcdensity import MCD, TableEstimator, evaluate_files
    >>> from mcdensity.simulators import get_simulator
    >>> X, y = get_simulator("EconDensity").sample(600, random_state=0)
    >>> table = pd.DataFrame({"x": X[:, 0], "y": y, "month": [1, 2, 3] * 200})
    >>> model = TableEstimator(MCD("quadratic", random_state=0)).fit(table[["x"]], table["y"])
    >>> path = Path(tempfile.mkdtemp()) / "new.parquet"
    >>> table.to_parquet(path)
    >>> evaluate_files(model, path, by="month")["rows"].tolist()
    [200, 200, 200, 600]
    """
    pandas = require("pandas", "cli")
    estimator, opened = loaded(model), open_source(source, skip_bad_files=skip_bad_files)
    coverage = check_probability("coverage", coverage)
    layout = _layout(estimator, opened, target, by, weight)
    groups: dict[Any, _Totals] = {}
    with counting(verbose, "Evaluating", opened.rows) as advance:
        for piece in opened.pieces:
            try:
                for found, names in _measured(estimator, opened, layout, piece, by, coverage):
                    for name in pandas.unique(names):
                        chosen = np.asarray(names == name)
                        groups.setdefault(name, _Totals(coverage)).add(found, chosen)
                    if len(groups) > _MOST_GROUPS:
                        raise ValueError(
                            f"by={by!r} has more than {_MOST_GROUPS:,} different values; choose a "
                            "column with fewer."
                        )
                    advance(len(names))
            except SourceError as error:
                if not skip_bad_files:
                    raise
                warnings.warn(f"The rest of {piece.name} is left out: {error}.", stacklevel=2)
    if not groups:
        raise ValueError("No row of the source has an outcome; check the name of the target.")
    return _as_table(groups, by, coverage)


def _as_table(groups: dict[Any, _Totals], by: str | None, coverage: float) -> pd.DataFrame:
    every = _Totals(coverage)
    for one in groups.values():
        every.merge(one)
    out = {} if by is None else {name: groups[name].row() for name in _sorted(groups)}
    rows = {**out, "all": every.row()}
    table = require("pandas", "cli").DataFrame.from_dict(rows, orient="index")
    table.index.name = by or "rows"
    return table.astype({"rows": int})


def _measured(
    model: Any, source: Source, layout: Layout, piece: Piece, by: str | None, coverage: float
) -> Iterator[tuple[dict[str, Array], Any]]:
    """Yield what is measured of the rows of a piece, and the names of their groups."""
    size = _JOINT_BLOCK if len(layout.targets) > 1 else _BLOCK
    for rows in layout.read(source, piece, size):
        if len(rows):
            yield _measure(model, rows, coverage), _names(rows, by, piece.name)


class _Totals:
    """Sums over the rows of a group."""

    def __init__(self, coverage: float) -> None:
        self.coverage, self.rows = coverage, 0
        self.weight = self.weight_squares = 0.0
        self.gain = self.squares = self.inside = self.width = 0.0
        self.bins = np.zeros(_BINS)

    def add(self, found: dict[str, Array], chosen: NDArray[np.bool_]) -> None:
        """Add some of the rows that were measured."""
        w, value = found["weight"][chosen], found["log_likelihood"][chosen]
        self.rows += int(chosen.sum())
        self.weight += float(w.sum())
        self.weight_squares += float(w @ w)
        self.gain += float(w @ value)
        self.squares += float(w @ value**2)
        self.inside += float(w @ found["inside"][chosen])
        if "width" in found:
            self.width += float(w @ found["width"][chosen])
            place = np.clip((found["pit"][chosen] * _BINS).astype(int), 0, _BINS - 1)
            self.bins += np.bincount(place, w, minlength=_BINS)

    def merge(self, other: _Totals) -> None:
        """Add the rows of another group."""
        sums = ("rows", "weight", "weight_squares", "gain", "squares", "inside", "width", "bins")
        for name in sums:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def row(self) -> dict[str, float]:
        """What is reported."""
        mean = self.gain / self.weight
        spread = np.sqrt(max(self.squares / self.weight - mean**2, 0.0))
        out = {"rows": self.rows, "log_likelihood": mean,
               "standard_error": spread * np.sqrt(self.weight_squares) / self.weight,
               f"coverage_{100 * self.coverage:g}": self.inside / self.weight}  # fmt: skip
        if self.bins.any():
            share = np.cumsum(self.bins) / self.bins.sum()
            even = np.arange(1, _BINS + 1) / _BINS
            out["width"] = self.width / self.weight
            out["pit_distance"] = float(np.abs(share - even).max())
        return out


def _measure(model: Any, rows: Rows, coverage: float) -> dict[str, Array]:
    """Measure each row."""
    law = model.predict_distribution(features_of(model, rows.table))
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    if isinstance(law, JointDistribution):
        inside = (law.hpd_level(rows.Y) <= coverage).astype(float)
        return {"log_likelihood": law.logpdf(rows.Y), "inside": inside, "weight": weight}
    y = rows.Y[:, 0]
    low, high = law.interval(coverage).T
    return {
        "log_likelihood": law.logpdf(y),
        "inside": ((y >= low) & (y <= high)).astype(float),
        "width": high - low,
        "pit": pit(law, y),
        "weight": weight,
    }


def _layout(model: Any, source: Any, target: Any, by: str | None, weight: str | None) -> Layout:
    name = getattr(model, "target_", None) if target is None else target
    if name is None:
        raise ValueError("The model does not know the name of its target; give target.")
    names = [name] if isinstance(name, str) else list(name)
    if len(names) == 1 and names[0] not in source.kinds:
        names = [part.strip() for part in names[0].split(",")]
    source.check_columns(names, "the target")
    if weight is not None:
        source.check_columns([weight], "the weights")
    known = getattr(model, "feature_names_in_", None)
    features = (
        [n for n in source.columns if n not in names] if known is None else [*map(str, known)]
    )
    source.check_columns(features, "a feature of the model")
    if by not in (None, "file"):
        source.check_columns([str(by)], "to group by")
        if by in names:
            raise ValueError(f"by={by!r} is the target; group by something else.")
        features = list(dict.fromkeys([*features, str(by)]))
    levels = getattr(model, "levels", None)
    return Layout(tuple(names), tuple(features), weight, None if levels is None else tuple(levels))


def _names(rows: Rows, by: str | None, file: str) -> Any:
    pandas = require("pandas", "cli")
    if by is None or (by == "file" and "file" not in rows.table.columns):
        return pandas.Series([file] * len(rows))
    column = rows.table[by]
    return column.where(column.notna(), "(missing)") if column.isna().any() else column


def _sorted(groups: dict[Any, Any]) -> list[Any]:
    try:
        return sorted(groups)
    except TypeError:
        return sorted(groups, key=str)
