"""Tables as people have them: text columns, missing values, files.

`TableEstimator` puts a preparation before any estimator of the package and keeps both together, so
that what was done to the training table is done to every later one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted

from mcdensity._columns import (
    as_levels,
    check_dates,
    date_numbers,
    dates_of,
    has_day_first,
    is_key,
    refuse_times,
    without_signs,
)
from mcdensity._delegate import DelegatingEstimator
from mcdensity._inputs import all_or_nothing, as_pandas, is_foreign_frame
from mcdensity._table_files import nearest, read_table, write_table
from mcdensity._validation import as_numbers, check_integer, require
from mcdensity.estimator import ConditionalEstimator

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TableEstimator", "TablePreparation", "nearest", "read_table", "write_table"]

Array = NDArray[np.float64]

_MISSING = "(missing)"
# Hashes of training rows that are kept.
_SKETCH = 2000
# A text column with more distinct values than this, and than half its rows, is a name or a key.
_NAMES = 50


class TablePreparation(TransformerMixin, BaseEstimator):
    """Turns a table with text and missing values into numbers.

    Numbers stay as they are. A missing number becomes the median of its column; if the training
    table had missing values there, an indicator column is added. Text becomes one column for each
    of the most frequent values, and one for all other values. Text that holds only numbers counts
    as numbers, and "?" is a missing value. Columns that never change, columns without values, text
    that is a name or a key, and numbers of rows are left out.

    Parameters
    ----------
    max_categories : int, default 20
        Largest number of columns that a text column becomes.
    dates : sequence of str, optional
        What dates become, each a column of numbers: some of "year", "month", "day", "weekday"
        (Monday is 0), "hour" and "elapsed" (days since 2000). Without it a column of dates is an
        error.

    Attributes
    ----------
    numbers_, texts_ : list of str
        The columns that are used.
    left_out_ : dict
        Column to the reason why it is not used.
    signs_ : dict
        Column to a sign, such as "?", that is taken as a missing value.
    ranges_ : dict
        Smallest and largest value of each column of numbers.
    feature_names_in_ : ndarray of str
        The columns that a table must have.

    Examples
    --------
    >>> import pandas as pd
    >>> from mcdensity.tables import TablePreparation
    >>> table = pd.DataFrame({"size": [1.0, None, 3.0, 4.0], "kind": ["a", "b", "a", "b"]})
    >>> TablePreparation().fit_transform(table).astype(int)
    array([[1, 0, 1, 0],
           [3, 1, 0, 1],
           [3, 0, 1, 0],
           [4, 0, 0, 1]])
    """

    def __init__(self, max_categories: int = 20, dates: Sequence[str] | None = None) -> None:
        self.max_categories = max_categories
        self.dates = dates

    def fit(self, X: pd.DataFrame, y: Any = None) -> Self:
        """Learn what the columns are."""
        check_integer("max_categories", self.max_categories, 2)
        table = _check_table(X)
        parts = check_dates(self.dates)
        # Columns of dates, and whether they begin with the day.
        self.date_columns_ = {
            n: has_day_first(table[n])
            for n in table.columns
            if parts and dates_of(table[n]) is not None
        }
        self.signs_: dict[str, str] = {}
        given = [str(name) for name in table.columns]
        table = self._plain(table, learn=True)
        self.numbers_: list[str] = []
        self.texts_: list[str] = []
        self.left_out_: dict[str, str] = {}
        for name in table.columns:
            kind = self._kind(table[name], name)
            if kind == "number":
                self.numbers_.append(name)
            elif kind == "text":
                self.texts_.append(name)
            else:
                self.left_out_[name] = kind
        if not self.numbers_ and not self.texts_:
            raise ValueError(
                f"No column is left to learn from: {_reasons(self.left_out_) or 'there is none'}."
            )
        names = [n for n in given if n not in self.left_out_]
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)
        values = self._numbers(table)
        with np.errstate(all="ignore"):
            low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        self.ranges_ = {
            n: (float(a), float(b)) for n, a, b in zip(self.numbers_, low, high, strict=True)
        }
        self.imputer_ = SimpleImputer(strategy="median", add_indicator=True)
        self.encoder_ = OneHotEncoder(
            handle_unknown="infrequent_if_exist",
            max_categories=self.max_categories,
            min_frequency=min(5, max(1, len(table) // 20)),
            sparse_output=False,
        )
        if self.numbers_:
            self.imputer_.fit(values)
        if self.texts_:
            self.encoder_.fit(self._texts(table))
        return self

    def learn_from_all(
        self,
        counts: Mapping[str, Mapping[str, int]],
        missing: Mapping[str, int],
        ranges: Mapping[str, tuple[float, float]],
    ) -> None:
        """Take over what is known of more rows than those of `fit`, without these rows.

        Parameters
        ----------
        counts : mapping
            Of columns of text: how often each text occurs.
        missing : mapping
            How many values each column lacks.
        ranges : mapping
            Of columns of numbers: the smallest and the largest.
        """
        self.ranges_ |= {name: ranges[name] for name in self.numbers_ if name in ranges}
        columns = []
        for name in self.texts_:
            known = {_MISSING: missing.get(name, 0), **counts.get(name, {})}
            often = sorted(known, key=lambda text: (-known[text], text))
            # As the encoder sees it: counts matter up to the least frequency, then their order.
            rank = {text: self.max_categories - i for i, text in enumerate(often)}
            least = self.encoder_.min_frequency
            columns.append([
                text for text in often for _ in range(min(known[text], least + max(rank[text], 0)))
            ])  # fmt: skip
        if columns:
            longest = max(map(len, columns))
            filled = [column + column[:1] * (longest - len(column)) for column in columns]
            self.encoder_.fit(np.array(filled, dtype=object).T)

    def transform(self, X: pd.DataFrame) -> Array:
        """Return the table as numbers, shape (n, columns)."""
        check_is_fitted(self)
        table = _check_table(X)
        absent = [n for n in self.feature_names_in_ if n not in table.columns]
        if absent:
            known = ", ".join(f"{n!r}{nearest(n, table.columns)}" for n in absent)
            raise ValueError(f"The table lacks columns that the model was fitted with: {known}.")
        table = self._plain(table)
        parts = []
        if self.numbers_:
            parts.append(self.imputer_.transform(self._numbers(table)))
        if self.texts_:
            parts += self._encoded(table)
        return np.concatenate(parts, axis=1, dtype=np.float64)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns that `transform` returns."""
        check_is_fitted(self)
        numbers = self.imputer_.get_feature_names_out(self.numbers_) if self.numbers_ else []
        texts = self.encoder_.get_feature_names_out(self.texts_) if self.texts_ else []
        return np.array([*numbers, *texts], dtype=object)

    def numbers_of(self, X: pd.DataFrame) -> Array:
        """Return the columns of numbers, NaN where a value is missing; see `ranges_`."""
        return self._numbers(self._plain(_check_table(X)))

    def _plain(self, table: Any, *, learn: bool = False) -> Any:
        """Put numbers in the place of dates, and nothing in that of signs for missing values."""
        table = table.copy(deep=False)
        dates = getattr(self, "date_columns_", {})  # files of earlier versions have none
        for name, day_first in dates.items():
            found = dates_of(table[name], day_first=day_first)
            if found is None:
                raise ValueError(f"The column {name!r} held dates in training, and now holds none.")
            for part in check_dates(self.dates):
                table[f"{name} {part}"] = date_numbers(found, part)
        for name in [n for n in table.columns if learn or n in getattr(self, "signs_", {})]:
            table[name], sign = without_signs(table[name])
            if learn and sign is not None:
                self.signs_[name] = sign
        return table.drop(columns=list(dates))

    def _kind(self, column: Any, name: str) -> str:
        """Return "number", "text", or the reason to leave the column out."""
        pandas = require("pandas", "cli")
        types = pandas.api.types
        refuse_times(column, name)
        known = column.dropna()
        if len(known) == 0:
            return "it has no values"
        if types.is_complex_dtype(column):
            raise ValueError(f"The column {name!r} holds complex numbers; split or drop it.")
        if known.nunique() == 1 and len(known) == len(column):
            return "it never changes"
        if types.is_numeric_dtype(column) and is_key(column):
            return "it holds different whole numbers in order, like numbers of rows"
        if types.is_bool_dtype(column) or types.is_numeric_dtype(column):
            return "number"
        if pandas.to_numeric(known, errors="coerce").notna().all():
            return "number"
        text = known.astype(str)
        different = text.nunique()
        if different > max(_NAMES, len(column) / 2):
            return f"it has {different} different texts in {len(column)} rows, like a name or a key"
        return "text"

    def _numbers(self, table: Any) -> Array:
        pandas = require("pandas", "cli")
        out = np.empty((len(table), len(self.numbers_)))
        for j, name in enumerate(self.numbers_):
            column = table[name]
            refuse_times(column, name)
            try:
                values = pandas.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"The column {name!r} held numbers in training, and now something else: "
                    f"{error}."
                ) from error
            if np.isinf(values).any():
                row = int(np.flatnonzero(np.isinf(values))[0])
                raise ValueError(
                    f"The column {name!r} holds infinity (first in row {row}); replace it."
                )
            out[:, j] = values
        return out

    def _texts(self, table: Any) -> NDArray[Any]:
        parts = [table[n].astype(object).where(table[n].notna(), _MISSING) for n in self.texts_]
        return np.array([[str(v) for v in part] for part in parts], dtype=object).T

    def _encoded(self, table: Any) -> list[Array]:
        """Columns of each text: different texts are encoded once, whatever the number of rows."""
        pandas = require("pandas", "cli")
        found = [_different(table[name]) for name in self.texts_]
        longest = max(len(texts) for _, texts in found)
        different = pandas.DataFrame({
            name: [*texts, *[_MISSING] * (longest - len(texts))]
            for name, (_, texts) in zip(self.texts_, found, strict=True)
        })  # fmt: skip
        with warnings.catch_warnings():  # texts that were never seen are expected
            warnings.filterwarnings("ignore", "Found unknown categories")
            encoded = self.encoder_.transform(different.to_numpy(dtype=object))
        rare = self.encoder_.infrequent_categories_
        widths = [
            len(known) - (0 if few is None else len(few) - 1)
            for known, few in zip(self.encoder_.categories_, rare, strict=True)
        ]
        blocks = np.split(encoded, np.cumsum(widths)[:-1], axis=1)
        return [block[place] for block, (place, _) in zip(blocks, found, strict=True)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


class TableEstimator(DelegatingEstimator):
    """An estimator for tables with text columns and missing values.

    Parameters
    ----------
    estimator : ConditionalEstimator, optional
        What learns from the prepared numbers; by default `MCD()`.
    max_categories : int, default 20
        See `TablePreparation`.
    dates : sequence of str, optional
        See `TablePreparation`.
    levels : sequence of str, optional
        The values of a text target in their order, such as ("low", "medium", "high"): the target
        is then their number, from 0 up.

    Attributes
    ----------
    preparation_ : TablePreparation
    estimator_ : ConditionalEstimator
    target_ : str or None
        Name of the target, where y was a named column; names of several, with commas between.
    seen_ : ndarray of uint64
        Hashes of some of the training rows, for `share_seen`.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from mcdensity import MCD, TableEstimator
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"kind": rng.choice(["car", "van"], 300)})
    >>> y = np.where(table["kind"] == "van", 7.0, 2.0) + rng.normal(size=300)
    >>> model = TableEstimator(MCD("quadratic", random_state=0)).fit(table, y)
    >>> model.predict(pd.DataFrame({"kind": ["car", "van"]})).round()
    array([2., 7.])
    """

    def __init__(
        self,
        estimator: ConditionalEstimator | None = None,
        max_categories: int = 20,
        dates: Sequence[str] | None = None,
        levels: Sequence[str] | None = None,
    ) -> None:
        self.estimator = estimator
        self.max_categories = max_categories
        self.dates = dates
        self.levels = levels

    @all_or_nothing
    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, **extra: Any
    ) -> Self:
        """Learn the preparation, and the distribution of y given what it makes of the table.

        Parameters
        ----------
        X : DataFrame
            Of pandas, or of a library that pandas can read, such as polars.
        y : array-like of shape (n,) or (n, k)
        sample_weight : array-like of shape (n,), optional
        **extra
            More for the estimator's `fit`; an `X_unlabeled` is a table too.

        Returns
        -------
        self
        """
        preparation = TablePreparation(self.max_categories, self.dates).fit(X)
        return self._fit_prepared(preparation, X, y, sample_weight, **extra)

    def _fit_prepared(
        self,
        preparation: TablePreparation,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        **extra: Any,
    ) -> Self:
        """Learn from what a fitted preparation makes of the table."""
        from mcdensity.mcd import MCD

        if self.estimator is not None and not isinstance(self.estimator, ConditionalEstimator):
            raise TypeError(f"estimator must be an estimator of mcdensity, got {self.estimator!r}.")
        if extra.get("X_unlabeled") is not None:
            extra["X_unlabeled"] = preparation.transform(extra["X_unlabeled"])
        estimator = MCD() if self.estimator is None else clone(self.estimator)
        columns: Any = getattr(y, "columns", [])
        name = columns[0] if len(columns) == 1 else getattr(y, "name", None)
        if self.levels is not None:
            y = as_levels(y, self.levels)
            if isinstance(estimator, MCD) and estimator.target == "auto":
                estimator.set_params(target="discrete", support=(0, len(self.levels) - 1))
        inputs = preparation.transform(X)
        estimator.fit(inputs, y, sample_weight, **extra)
        self.preparation_ = preparation
        self._adopt(estimator)
        several = getattr(estimator, "target_names_", None)
        self.target_ = ",".join(several) if several else None if name is None else str(name)
        self.feature_names_in_ = preparation.feature_names_in_
        self.n_features_in_ = preparation.n_features_in_
        self.seen_ = np.sort(_row_hashes(inputs, y))[:_SKETCH]
        return self

    def share_seen(self, X: pd.DataFrame, y: ArrayLike) -> float:
        """Estimate the share of these rows that were used in `fit`.

        Only the smallest hashes of the training rows are kept: among rows with hashes that small,
        it is known which were seen.
        """
        check_is_fitted(self)
        found = _row_hashes(self.preparation_.transform(X), y)
        if len(self.seen_) == _SKETCH:
            found = found[found <= self.seen_[-1]]
        return float(np.isin(found, self.seen_).mean()) if len(found) else 0.0

    def _prepare(self, X: Any) -> Array:
        return self.preparation_.transform(X)


def _different(column: Any) -> tuple[NDArray[np.intp], list[str]]:
    """Return the place of each row's text among the different ones, and these."""
    pandas = require("pandas", "cli")
    if column.dtype == object and pandas.api.types.infer_dtype(column, skipna=True) != "string":
        column = column.where(column.isna(), column.map(str))  # 1 and True are different texts
    place, values = pandas.factorize(column)
    return place, [*map(str, values), _MISSING]  # -1, the last, stands for nothing


def _row_hashes(X: Array, y: ArrayLike) -> NDArray[np.uint64]:
    pandas = require("pandas", "cli")
    rows = np.column_stack([X, as_numbers("y", y)])
    return pandas.util.hash_pandas_object(pandas.DataFrame(rows), index=False).to_numpy()


def _reasons(left_out: dict[str, str]) -> str:
    return "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())


def _check_table(X: Any) -> Any:
    pandas = require("pandas", "cli")
    if is_foreign_frame(X):
        X = as_pandas(X)
    if not isinstance(X, pandas.DataFrame):
        raise TypeError(
            f"X must be a pandas DataFrame, got {type(X).__name__}. (A DataFrame of polars will do "
            "too.) For arrays of numbers use the estimator itself."
        )
    if not X.columns.is_unique:
        double = X.columns[X.columns.duplicated()][0]
        raise ValueError(f"The table has several columns named {double!r}; rename them.")
    return X.set_axis([str(c) for c in X.columns], axis=1)
