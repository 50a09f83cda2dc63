"""What all of inspection shares: rows mixed from other rows, and few large questions to a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mcdensity._inputs import as_pandas, is_foreign_frame
from mcdensity._validation import check_integer, check_number, check_probability, require
from mcdensity.distribution.joint import refuse_joint

if TYPE_CHECKING:
    from mcdensity.distribution import ConditionalDistribution

__all__ = ["Array", "Functional", "Named", "Rows", "answers", "as_functionals", "ask", "choose"]

Array: TypeAlias = NDArray[np.float64]
Functional: TypeAlias = "str | tuple[str, float] | Callable[[ConditionalDistribution], Any]"
Named: TypeAlias = "dict[str, Callable[[ConditionalDistribution], Any]]"

# Rows of one question: large enough that a model's fixed costs do not matter, small enough for
# memory.
_BATCH = 8192
_WORDS = (
    '"mean", "median", "std", "width", ("quantile", level), ("width", coverage), ("above", value) '
    "or a function of the distributions"
)


class Rows:
    """Rows of a table or an array, from whose columns new rows are mixed.

    All that inspection asks a model are rows whose columns come from different rows of the data.
    So values are always ones that occur, of the same types, and text stays text.
    """

    def __init__(self, X: Any, name: str = "X") -> None:
        given: Any = as_pandas(X) if is_foreign_frame(X) else X
        self.is_table = hasattr(given, "iloc") and hasattr(given, "columns")
        self.X: Any = given if self.is_table else np.asarray(given)
        if self.X.ndim != 2 or len(self.X) == 0:
            raise ValueError(
                f"{name} must be a table or an array of shape (n, p) with at least one row, got "
                f"shape {self.X.shape}."
            )
        if self.is_table:
            self.X = given.reset_index(drop=True)
            self.names: list[Any] = list(given.columns)
        else:
            self.names = list(range(self.X.shape[1]))

    def __len__(self) -> int:
        return len(self.X)

    def some(self, n_rows: int | None, rng: np.random.Generator) -> Rows:
        """Return at most so many of the rows, drawn at random, in their order."""
        return self.at(choose(len(self), n_rows, rng))

    def at(self, rows: NDArray[np.intp]) -> Rows:
        """Return the rows of these numbers."""
        return Rows(self.X.iloc[rows] if self.is_table else self.X[rows])

    def number(self, feature: Any) -> int:
        """Return the number of a feature's column, or say which features there are."""
        from mcdensity.tables import nearest

        if feature in self.names:
            return self.names.index(feature)
        number = isinstance(feature, int | np.integer) and not isinstance(feature, bool)
        if number and 0 <= feature < len(self.names):
            return int(feature)
        known = ", ".join(map(str, self.names)) if self.is_table else f"0 to {len(self.names) - 1}"
        like = nearest(feature, self.names) if isinstance(feature, str) else ""
        raise ValueError(f"There is no feature {feature!r}{like}; choose from {known}.")

    def used_by(self, estimator: Any, features: Sequence[Any] | None = None) -> list[int]:
        """Return the numbers of the columns that were chosen, or that the estimator uses."""
        if features is not None:
            if isinstance(features, str) or not isinstance(features, Iterable):
                features = [features]
            found = [self.number(feature) for feature in features]
            if not found:
                raise ValueError("features is empty; give at least one, or None for all.")
            return found
        used = getattr(estimator, "feature_names_in_", None) if self.is_table else None
        known = set(self.names) if used is None else {str(name) for name in used}
        return [j for j, name in enumerate(self.names) if used is None or str(name) in known]

    def column(self, number: int) -> Any:
        """Return the values of a column."""
        return self.X.iloc[:, number] if self.is_table else self.X[:, number]

    def numbers(self, number: int) -> Array | None:
        """Return a column as numbers, NaN where a value is missing; None if it holds text."""
        column = self.column(number)
        if not self.is_table:
            return np.asarray(column, dtype=np.float64)
        pandas = require("pandas", "cli")
        if pandas.api.types.is_datetime64_any_dtype(column):
            start = pandas.Timestamp(0, tz=column.dt.tz)
            return ((column - start) / pandas.Timedelta(days=1)).to_numpy(dtype=np.float64)
        if not pandas.api.types.is_numeric_dtype(column):
            found = pandas.to_numeric(column.astype(object), errors="coerce")
            # Numbers that were read as text, some with a sign for missing values among them.
            if found.notna().sum() < 0.5 * column.notna().sum() or not found.notna().any():
                return None
            column = found
        return column.to_numpy(dtype=np.float64, na_value=np.nan)

    def is_date(self, number: int) -> bool:
        """Whether a column holds dates; its numbers are then days since 1970."""
        return self.is_table and getattr(self.column(number).dtype, "kind", "O") == "M"

    def mixed(self, source: NDArray[np.intp]) -> Any:
        """Return rows whose column j has the value of row source[:, j]."""
        if not self.is_table:
            return self.X[source, np.arange(self.X.shape[1])]
        pandas = require("pandas", "cli")
        parts = [self.X.iloc[:, j].take(source[:, j]) for j in range(len(self.names))]
        parts = [part.reset_index(drop=True) for part in parts]
        return pandas.concat(parts, axis=1)

    def as_they_are(self) -> NDArray[np.intp]:
        """Return the source of each row: itself."""
        return np.tile(np.arange(len(self))[:, None], len(self.names))

    def with_value(self, number: int, source: Any) -> NDArray[np.intp]:
        """Return the source of the rows when one column comes from other rows."""
        out = self.as_they_are()
        out[:, number] = source
        return out


def choose(n: int, n_rows: int | None, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the numbers of at most so many rows, drawn at random, in their order."""
    if n_rows is None or check_integer("n_rows", n_rows, 2) >= n:
        return np.arange(n)
    return np.sort(rng.permutation(n)[:n_rows])


def as_functionals(functional: Any) -> Named:
    """Return the functions of a distribution that are meant, by name."""
    chosen = functional if isinstance(functional, list) else [functional]
    if not chosen:
        raise ValueError(f"functional is empty; give {_WORDS}.")
    return dict(map(_one_functional, chosen))


def _one_functional(one: Any) -> tuple[str, Callable[[ConditionalDistribution], Any]]:
    if callable(one):
        return getattr(one, "__name__", "function"), one
    word, number = one if isinstance(one, tuple) and len(one) == 2 else (one, None)
    if word in ("mean", "median", "std") and number is None:
        return word, lambda d: getattr(_of_one_target(d), word)()
    if word == "quantile" and number is not None:
        level = check_probability("The level of a quantile", number)
        return f"quantile {level:g}", lambda d: _of_one_target(d).ppf(level)
    if word == "width":
        coverage = check_probability("The coverage of a width", 0.9 if number is None else number)
        return f"width {coverage:g}", lambda d: _width(d, coverage)
    if word == "above" and number is not None:
        value = check_number('The value of "above"', number, -np.inf)
        return f"P(y > {value:g})", lambda d: _of_one_target(d).sf(value)
    raise ValueError(f"functional must be {_WORDS}, got {one!r}.")


def _of_one_target(law: Any) -> Any:
    refuse_joint(law, "A functional that is given by its name")
    return law


def _width(law: Any, coverage: float) -> Array:
    return np.diff(_of_one_target(law).interval(coverage), axis=1)[:, 0]


def ask(
    rows: Rows,
    blocks: Iterable[NDArray[np.intp]],
    function: Callable[[Any], Array],
) -> Iterator[Array]:
    """Apply a function of rows to each block of sources, many blocks in one call."""
    pending: list[NDArray[np.intp]] = []

    def answered() -> Iterator[Array]:
        value = function(rows.mixed(np.concatenate(pending)))
        yield from np.split(value, np.cumsum([len(block) for block in pending])[:-1])

    for block in blocks:
        if pending and sum(map(len, pending)) + len(block) > _BATCH:
            yield from answered()
            pending = []
        pending.append(block)
    if pending:
        yield from answered()


def answers(estimator: Any, functionals: Named) -> Callable[[Any], Array]:
    """Return a function of rows: the functionals of their distributions, shape (n, functionals)."""
    if not hasattr(estimator, "predict_distribution"):
        raise TypeError(
            "estimator must be a fitted estimator of mcdensity (it has predict_distribution), got "
            f"{type(estimator).__name__}."
        )

    def function(X: Any) -> Array:
        n = len(X)
        out = np.empty((n, len(functionals)))
        for start in range(0, n, _BATCH):
            part = slice(start, start + _BATCH)
            law = estimator.predict_distribution(X.iloc[part] if hasattr(X, "iloc") else X[part])
            for k, (name, one) in enumerate(functionals.items()):
                value = np.asarray(one(law), dtype=np.float64)
                if value.shape != (len(law),):
                    raise ValueError(
                        f"The functional {name!r} must return one number per row, shape "
                        f"({len(law)},), got shape {value.shape}."
                    )
                out[part, k] = value
        return out

    return function
