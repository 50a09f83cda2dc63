"""The models that are served: what they take, their files, and the explorer of each."""

from __future__ import annotations

import html
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from mcdensity._validation import require
from mcdensity.serve._describe import page
from mcdensity.serve._requests import Column, RequestError
from mcdensity.tables import TableEstimator

__all__ = ["Served", "Shelf", "say"]

# Rows that can be picked in the explorer.
_EXPLORER_ROWS = 300
# Single values, and texts, of a schema that are listed.
_MOST_LISTED = 200
# What the preparation of tables writes for a text that is missing.
_MISSING = "(missing)"


def say(text: str) -> None:
    """Tell whoever runs the server."""
    print(text, file=sys.stderr, flush=True)


class Served:
    """A loaded model, under its name.

    Parameters
    ----------
    name : str
    estimator : ConditionalEstimator
        Fitted.
    """

    def __init__(self, name: str, estimator: Any) -> None:
        self.name, self.estimator = name, estimator
        self.levels = getattr(estimator, "levels", None)
        self.several = bool(getattr(estimator, "_several", False))
        self._named = hasattr(estimator, "feature_names_in_")
        self.columns = self._columns()

    def _columns(self) -> list[Column]:
        names = getattr(self.estimator, "feature_names_in_", None)
        if names is None:
            return [Column(f"x{j}") for j in range(self.estimator.n_features_in_)]
        if not isinstance(self.estimator, TableEstimator):
            # A pipeline may take text.
            kind = "any" if hasattr(self.estimator, "preparation_") else "number"
            return [Column(str(name), kind) for name in names]
        preparation = self.estimator.preparation_
        dates = set(getattr(preparation, "date_columns_", ()))
        texts = set(preparation.texts_)
        return [
            Column(n, "date" if n in dates else "text" if n in texts else "number")
            for n in map(str, names)
        ]

    def table(self, values: Mapping[str, NDArray[Any]]) -> Any:
        """Return rows as the model takes them."""
        if not self._named:
            return np.column_stack(list(values.values()))
        pandas = require("pandas", "cli")
        out = {}
        for column in self.columns:
            given = values[column.name]
            if column.kind == "date":
                # As dates even where all are missing, or one of them is none.
                given = self._dates(column.name, given)
            out[column.name] = given
        return pandas.DataFrame(out)

    def _dates(self, name: str, given: NDArray[Any]) -> Any:
        from mcdensity._columns import dates_of

        pandas = require("pandas", "cli")
        day_first = self.estimator.preparation_.date_columns_[name]
        column = pandas.Series(given, dtype=object)
        if column.isna().all():
            return pandas.to_datetime(column)
        with warnings.catch_warnings():  # of formats that are not the same in all rows
            warnings.simplefilter("ignore", UserWarning)
            found = dates_of(column, day_first=day_first)
        return column if found is None else found

    def check_dates(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Refuse texts that are no dates, by row and column."""
        for column in self.columns:
            if column.kind != "date":
                continue
            given = values[column.name]
            found = self._dates(column.name, given)
            known = np.array([value is not None for value in given])
            if found.dtype != object and not (found.isna().to_numpy() & known).any():
                continue
            for i in np.flatnonzero(known).tolist():  # one by one, to find the first
                if np.isnat(self._one_date(column.name, given[i])):
                    raise RequestError(
                        f"Row {i}, column {column.name!r}: expected a date such as 2024-05-31, got "
                        f"{given[i][:60]!r}.",
                        row=i,
                        column=column.name,
                    )

    def _one_date(self, name: str, value: str) -> Any:
        found = self._dates(name, np.array([value], dtype=object))
        return np.datetime64("NaT") if found.dtype == object else found.to_numpy()[0]

    # What is known of the model.

    def schema(self) -> dict[str, Any]:
        """Return features, their types and ranges, and what the target is."""
        ranges = self._ranges()
        features = []
        for column in self.columns:
            feature: dict[str, Any] = {"name": column.name, "type": column.kind}
            if column.kind in ("number", "any"):
                feature["range"] = ranges.get(column.name)
            if column.kind == "text":
                feature["texts"] = self._texts(column.name)[:_MOST_LISTED]
            features.append(feature)
        estimator = self.estimator
        return {
            "model": self.name,
            "class": type(estimator).__name__,
            "distilled": hasattr(estimator, "distill_loss_"),
            "features": features,
            "targets": self._targets(),
        }

    def _targets(self) -> list[dict[str, Any]]:
        model = self.estimator
        kinds, supports, atoms = (
            getattr(model, name, default)
            for name, default in (
                ("target_kind_", "continuous"), ("support_", (-np.inf, np.inf)), ("atoms_", ()),
            )
        )  # fmt: skip
        if not self.several:
            name = getattr(model, "target_", None)
            found = [_target(name or "y", kinds, supports, atoms)]
            if self.levels:
                found[0]["levels"] = [str(level) for level in self.levels]
            return found
        names = [str(name) for name in model.target_names_]
        count = range(len(names))
        each = [v if isinstance(v, list) else [v] * len(names) for v in (kinds, supports, atoms)]
        return [_target(names[j], *(v[j] for v in each)) for j in count]

    def _texts(self, name: str) -> list[str]:
        preparation = self.estimator.preparation_
        known = preparation.encoder_.categories_[preparation.texts_.index(name)]
        return [str(text) for text in known if text != _MISSING]

    def _ranges(self) -> dict[str, list[float]]:
        """Smallest and largest value of each number in training, as far as the model knows."""
        if isinstance(self.estimator, TableEstimator):
            return {n: list(ends) for n, ends in self.estimator.preparation_.ranges_.items()}
        rows = self._known_rows()
        if rows is None:
            return {}
        names = [column.name for column in self.columns]
        ends = zip(names, np.nanmin(rows, axis=0), np.nanmax(rows, axis=0), strict=True)
        return {n: [float(a), float(b)] for n, a, b in ends if np.isfinite([a, b]).all()}

    def _known_rows(self) -> Any:
        """Rows that the model kept from training, as values of the explorer's controls."""
        from mcdensity.explorer._controls import controls_of, scaled, values_of

        outer = self.estimator
        core = outer.estimator_ if isinstance(outer, TableEstimator) else outer
        if hasattr(core, "estimator_"):  # a pipeline
            return None
        first = core.links_[0] if hasattr(core, "links_") else core
        rows = getattr(first, "_kept_rows", None)
        if rows is None:
            return None
        controls, columns = controls_of(outer)
        return values_of(rows.astype(np.float64), scaled(first, columns), controls)

    # The explorer.

    def page(self) -> str:
        """Return the HTML of the explorer, or a page that says why there is none."""
        try:
            return self._explorer()
        except (ValueError, TypeError, ImportError) as error:
            return _no_explorer(self.name, str(error).rstrip("."))

    def _explorer(self) -> str:
        from mcdensity.explorer import explore
        from mcdensity.explorer._controls import controls_of

        values = self._known_rows()
        if values is None:
            raise ValueError("the model has kept no rows of its training data")
        if any(column.kind == "date" for column in self.columns):
            raise ValueError("the model takes dates, which the explorer cannot move")
        chosen = np.unique(np.linspace(0, len(values) - 1, _EXPLORER_ROWS).astype(int))
        controls, _ = controls_of(self.estimator)
        rows: dict[str, NDArray[Any]] = {}
        for control, column in zip(controls, values[chosen].T, strict=True):
            rows[control.name] = column
            if control.options:
                texts = [*control.options, None]  # the last, -1, stands for texts without a column
                known = [texts[int(code)] for code in column]
                rows[control.name] = np.array(
                    [None if text == _MISSING else text for text in known], dtype=object
                )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "explore.html"
            explore(self.estimator, self.table(rows), path, random_state=0)
            return path.read_text(encoding="utf-8")


def _target(name: str, kind: Any, support: Any, atoms: Any) -> dict[str, Any]:
    low, high = (float(end) if np.isfinite(end) else None for end in support)
    known = np.asarray(atoms, dtype=float).tolist()[:_MOST_LISTED]
    return {"name": name, "kind": str(kind), "support": [low, high], "atoms": known}


def _no_explorer(name: str, reason: str) -> str:
    """Say on a page why there is no explorer, and what there is."""
    return page(
        name,
        f"<p>This model has no explorer: {html.escape(reason)}.</p><p>It answers requests: see "
        "<a href='docs'>how to ask</a> and its "
        f"<a href='schema?model={quote(name)}'>features</a>.</p>",
    )


class Shelf:
    """Models by name; a file that is replaced is loaded again.

    Parameters
    ----------
    sources : mapping
        Name to a model file, or to a fitted estimator.
    load : callable
        From a path to an estimator.
    told : callable, optional
        Called with the name and whether loading went well, each time a file was loaded again.
    """

    def __init__(
        self,
        sources: Mapping[str, Any],
        load: Callable[[Path], Any],
        told: Callable[[str, bool], Any] = lambda name, good: None,
    ) -> None:
        self._load, self._told = load, told
        self._files: dict[str, Path] = {}
        self._stamps: dict[str, Any] = {}
        self._models: dict[str, Served] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        for name, source in sources.items():
            if isinstance(source, str | Path):
                path = Path(source)
                # Before loading: a file that is replaced meanwhile is loaded once more.
                self._stamps[name] = _stamp(path)
                self._files[name] = path
                source = load(path)
            self._models[name] = Served(name, source)

    @property
    def names(self) -> list[str]:
        """Names of the models."""
        return list(self._models)

    def get(self, name: Any) -> Served:
        """Return the model of this name; without a name, the only one."""
        if name is None and len(self._models) == 1:
            return next(iter(self._models.values()))
        if isinstance(name, str) and name in self._models:
            return self._models[name]
        known = ", ".join(self._models)
        if name is None:
            raise RequestError(f'"model" must name one of {known}.', column="model")
        raise RequestError(f"There is no such model; there are {known}.", column="model")

    def watch(self, seconds: float) -> None:
        """Look for new files, again and again, until `close`."""
        if self._files and self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._watch, args=(seconds,), daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            self.look()

    def look(self) -> None:
        """Load the files that have changed; a file that cannot be loaded changes nothing."""
        for name, path in self._files.items():
            stamp = _stamp(path)
            if stamp is None or stamp == self._stamps[name]:
                continue
            self._stamps[name] = stamp
            try:
                served = Served(name, self._load(path))
            except Exception as error:  # whatever a file does, the old model goes on
                say(f"{name}: the new file is not used, and the old model goes on: {error}")
                self._told(name, False)
                continue
            self._models[name] = served
            say(f"{name}: the new file is in use.")
            self._told(name, True)


def _stamp(path: Path) -> Any:
    """What changes when a file is replaced or written; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
