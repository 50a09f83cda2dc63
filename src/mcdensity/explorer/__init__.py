"""`mcdensity.explore`: one HTML file in which features are moved, and the distribution follows."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from mcdensity._distilling import network_only
from mcdensity._files import write_file
from mcdensity._inputs import as_pandas, is_foreign_frame
from mcdensity._validation import as_numbers
from mcdensity.explorer._controls import (
    Column,
    Control,
    controls_of,
    data_values,
    limits_of,
    values_of,
    with_columns,
)
from mcdensity.explorer._measures import LIMIT, closeness, importance, neighbourhood
from mcdensity.explorer._networks import Net, export_model, nets_of, packed
from mcdensity.tables import TableEstimator

__all__ = ["ExplorerPage", "explore"]

Array = NDArray[np.float64]

# Features that the page can move at most; the others stay where they usually are.
_MOST_CONTROLS = 200
# Rows of the data that can be picked on the page.
_MOST_ROWS = 300
_BINS = 24


class ExplorerPage(NamedTuple):
    """What `explore` has written.

    Parameters
    ----------
    path : Path
    loss : float
        Nats that the page's network loses to the model, on average over the rows.
    notes : list of str
        What the page also says: features that cannot be moved, a network that is not close.
    """

    path: Path
    loss: float
    notes: list[str]


def explore(
    model: Any,
    X: Any,
    path: str | Path,
    y: ArrayLike | None = None,
    *,
    title: str | None = None,
    random_state: Any = None,
) -> ExplorerPage:
    """Write a page on which features are moved, and the distribution of y follows at once.

    The page is one HTML file that needs no server and no network. It holds the weights of the
    distilled model, some rows of `X` with their outcomes, and a sample of the training rows: give
    it only to those who may see these.

    Parameters
    ----------
    model : MCD or TableEstimator
        Fitted. It is distilled, see `MCD.distill`, unless it is the result of that already.
    X : array-like or DataFrame of shape (n, p)
        Rows that can be picked on the page, and on which the small network is compared with the
        model.
    path : str or Path
        The file to write, such as "explore.html".
    y : array-like of shape (n,) or (n, k), optional
        Their outcomes, as numbers: of a target with levels, their number from 0 up.
    title : str, optional
        Heading of the page.
    random_state : int, Generator, RandomState or None
        Seed of the small network; by default that of the model.

    Returns
    -------
    ExplorerPage

    Examples
    --------
    >>> from mcdensity import MCD, explore
    >>> from mcdensity.simulators import get_simulator
    >>> X, y = get_simulator("LinearGauss").sample(200, random_state=0)
    >>> model = MCD("quadratic", random_state=0).fit(X, y)
    >>> page = explore(model, X, "explore.html", y)  # doctest: +SKIP
    >>> page.loss  # doctest: +SKIP
    0.004
    """
    _check_model(model)
    controls, columns = controls_of(model)
    X = with_columns(model, as_pandas(X) if is_foreign_frame(X) else X)
    if hasattr(X, "__len__") and len(X) == 0:
        raise ValueError("X has no rows; give some that can be picked on the page.")
    rows = data_values(model, X, controls)
    outcomes = _outcomes(model, y, len(rows))
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(
            f"path {path} is a folder; name a file in it, such as explore.html."
        )
    given = hasattr(model, "distill_loss_")
    small = network_only(model, random_state)  # a page cannot compute trees
    core: Any = small.estimator_ if isinstance(small, TableEstimator) else small
    links = core.links_[:2] if hasattr(core, "links_") else [core]
    nets = [nets_of(link, columns, place) for place, link in enumerate(links)]
    loss, compared = (float(small.distill_loss_), 0) if given else closeness(model, small, X)
    payload = _Payload(controls, nets, rows, outcomes)
    notes = _notes(core, payload, loss, compared)
    content = payload.as_dict(links) | {
        "title": title or f"What will {' and '.join(_target_names(small)[: len(links)])} be?",
        "targets": [_target_names(small)[j] for j in _order(core)[: len(links)]],
        "levels": getattr(model, "levels", None) and [str(level) for level in model.levels],
        "loss": loss,
        "compared": compared,
        "notes": notes,
        "close": loss <= LIMIT,
    }
    write_file(path, _page(content))
    return ExplorerPage(path, loss, notes)


def _check_model(model: Any) -> None:
    core = model.estimator_ if isinstance(model, TableEstimator) else model
    if not hasattr(core, "distill") or hasattr(core, "estimator_"):
        raise TypeError(
            f"model must be a fitted MCD, or a TableEstimator with one inside, got "
            f"{type(core).__name__}. Only MCD can be distilled to a network that a page can "
            "compute; of a pipeline, give the MCD at its end and the rows that it sees."
        )
    check_is_fitted(model)


def _order(core: Any) -> list[int]:
    return list(core.order_) if hasattr(core, "links_") else [0]


def _target_names(model: Any) -> list[str]:
    core = model.estimator_ if isinstance(model, TableEstimator) else model
    if hasattr(core, "links_"):
        return list(core.target_names_)
    return [getattr(model, "target_", None) or "y"]


def _outcomes(model: Any, y: Any, n: int) -> Array | None:
    """Outcomes in the order of the chain, shape (n, targets); NaN where one is not known."""
    if y is None:
        return None
    core = model.estimator_ if isinstance(model, TableEstimator) else model
    if hasattr(core, "links_") and hasattr(y, "columns"):
        y = np.asarray(y[core.target_names_])
    values = as_numbers("y", y)
    k = len(_order(core))
    if values.shape not in ((n, k), (n,) if k == 1 else (n, k)):
        what = "one value" if k == 1 else f"{k} values"
        raise ValueError(f"y must have {what} per row of X, {n} rows; got shape {values.shape}.")
    return values.reshape(n, k)[:, _order(core)]


def _notes(core: Any, payload: _Payload, loss: float, compared: int) -> list[str]:
    notes = []
    hidden = len(payload.controls) - len(payload.shown)
    if hidden:
        notes.append(
            f"The {len(payload.shown)} features that matter most can be moved; the other "
            f"{hidden:,} stay at their medians."
        )
    if hasattr(core, "links_") and len(core.links_) > 2:
        names = " and ".join(core.target_names_[j] for j in core.order_[:2])
        notes.append(
            f"The model has {len(core.links_)} targets; the page shows the law of {names}, the "
            "first two of the chain."
        )
    if loss > LIMIT:
        where = (
            f"on {compared} row{'s' * (compared > 1)} of the data"
            if compared
            else "when it was distilled"
        )
        notes.append(
            f"The page's small network is not close to the model: it lost {loss:.2f} nats {where} "
            f"(more than {LIMIT:g}). Trust the shape of what you see, not its details."
        )
    return notes


class _Payload:
    """The numbers that the page needs.

    Parameters
    ----------
    controls : list of Control
    nets : list of list of Net
        Of each target.
    rows : ndarray of shape (n, controls)
        The caller's rows.
    outcomes : ndarray of shape (n, targets), optional
    """

    def __init__(
        self,
        controls: list[Control],
        nets: list[list[Net]],
        rows: Array,
        outcomes: Array | None,
    ) -> None:
        self.controls, self.nets, self.rows, self.outcomes = controls, nets, rows, outcomes
        first = nets[0][0]
        kept = first.kept()
        self.training = rows if kept is None else values_of(kept, first.columns, controls)
        self.importance = importance([net for group in nets for net in group], controls)
        order = np.argsort(-self.importance, kind="stable")
        self.shown = order[:_MOST_CONTROLS].tolist()
        self.usual = np.array(
            [_usual(c, v) for c, v in zip(controls, self.training.T, strict=True)]
        )

    def _fixed(self, column: Column) -> float | None:
        """What a network sees of a feature that cannot be moved, else None."""
        if column.kind == "before" or column.source in self.place:
            return None
        value = self.usual[column.source]
        seen = {"missing": 0.0, "is": float(value == column.code)}.get(column.kind, value)
        return (seen - column.mean) / column.scale

    def as_dict(self, links: list[Any]) -> dict[str, Any]:
        """Return what is written into the page."""
        self.place = {j: i for i, j in enumerate(self.shown)}
        models = []
        for link, nets in zip(links, self.nets, strict=True):
            models.append(export_model(link, nets, self._fixed))
            for network in _networks_in(models[-1]):
                for column in network["columns"]:
                    if column["kind"] != "before":
                        column["source"] = self.place[column["source"]]
        shown = [self.controls[j] for j in self.shown]
        near = neighbourhood(self.training[:, self.shown], shown)
        chosen = np.unique(np.linspace(0, len(self.rows) - 1, _MOST_ROWS).astype(int))
        return {
            "controls": [self._control(j) for j in self.shown],
            "models": models,
            "training": {"count": len(self.training)},
            "near": {
                "rows": packed(near["stored"], single=True),
                "scale": near["scale"].tolist(),
                "limit": near["limit"],
            },
            "rows": {
                "numbers": chosen.tolist(),
                "values": packed(self.rows[np.ix_(chosen, self.shown)]),
                "outcomes": None if self.outcomes is None else packed(self.outcomes[chosen]),
                "all": len(self.rows),
            },
        }

    def _control(self, j: int) -> dict[str, Any]:
        control, values = self.controls[j], self.training[:, j]
        out: dict[str, Any] = {"name": control.name, "importance": float(self.importance[j])}
        if control.options:
            counts = np.bincount(values[values >= 0].astype(int), minlength=len(control.options))
            return out | {"options": list(control.options), "counts": counts.tolist()}
        low, high, step = limits_of(values)
        known = np.clip(values[~np.isnan(values)], low, high)
        # A bar for each whole number, if these are few.
        whole = step == 1 and 1 <= high - low < 2 * _BINS
        bins, reach = (round(high - low) + 1, 0.5) if whole else (_BINS, 0.0)
        counts = np.histogram(known, bins=bins, range=(low - reach, high + reach))[0]
        return out | {
            "whole": whole,
            "low": low,
            "high": high,
            "step": step,
            "counts": counts.tolist(),
            "missing": control.missing,
        }


def _usual(control: Control, values: Array) -> float:
    """The most frequent text, or the median."""
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return 0.0
    if control.options:
        found, count = np.unique(known, return_counts=True)
        return float(found[count.argmax()])
    return float(np.median(known))


def _networks_in(model: dict[str, Any]) -> list[dict[str, Any]]:
    if model["kind"] == "mixed":
        return [model["labels"]["network"], model["rest"]["network"]]
    return [model["network"]]


def _page(content: dict[str, Any]) -> str:
    """Put the parts of the page together."""
    here = resources.files("mcdensity.explorer")
    template, style, *scripts = (
        here.joinpath(name).read_text(encoding="utf-8")
        for name in ("template.html", "page.css", "law.js", "charts.js", "page.js")
    )
    script = "\n".join(scripts)
    # Only this script may run, whatever a name in the data says.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Within a script element text ends at "</script", and "<!--" starts a comment.
    data = json.dumps(content, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e")
    parts = {
        "title": html.escape(content["title"]),
        "digest": digest,
        "style": style,
        "script": script,
        "data": data,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)
