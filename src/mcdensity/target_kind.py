"""What a target is: continuous, discrete or mixed; where its bounds and its atoms are."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Measure", "check_support", "decide", "describe", "refuse_outside"]

Array = NDArray[np.float64]

# A discrete target has at most so many values that differ in effect: the inverse of the
# probability that two rows have the same one. Counts with a mean of 3 have 6, twelve months 12,
# counts with a mean of 20 have 16; ages have 40 and more, prices and measurements hundreds.
_MOST_EFFECTIVE = 25.0
# Values other than 0, 1, 2, ... are discrete only if they are as few as this: temperatures to half
# a degree and times to a tenth of a second are rounded, not discrete.
_MOST_OTHER_VALUES = 15
# ... and a discrete target has so many rows for each of its values on average.
_ROWS_PER_VALUE = 3.0
# A target may be called discrete with at most so many values.
_MOST_VALUES = 1000
# An atom is held by at least so many rows; by this share of all rows, and by so many times as many
# as any of the values next to it: at an end of the range, and between other targets, where people
# like round numbers (a 25th of 3000 wages are the same).
_LEAST_ROWS = 5
_AT_END, _INSIDE = (0.004, 4.0), (0.1, 8.0)
# A target with two values is a question for a classifier; so few rows may have two by chance.
_ROWS_OF_TWO_VALUES = 50
# How many values on either side are next to it.
_NEXT = 10
_MOST_ATOMS = 8


@dataclass(frozen=True)
class Measure:
    """With respect to what a target has a law.

    Parameters
    ----------
    kind : {"continuous", "discrete", "mixed"}
    support : tuple of float
        Bounds; infinite where there is none.
    atoms : ndarray
        Of a mixed target: the values of positive probability.
    """

    kind: str = "continuous"
    support: tuple[float, float] = (-np.inf, np.inf)
    atoms: Array = field(default_factory=lambda: np.empty(0))


def check_support(support: Any) -> tuple[float, float] | None:
    """Return bounds with infinities for None, or None where they are to be detected."""
    if support is None:
        return None
    try:
        low, high = support
    except (TypeError, ValueError):
        raise ValueError(
            f"support must be a pair (low, high), either of which may be None, got {support!r}."
        ) from None
    for value in (low, high):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, Real) or np.isnan(float(value))
        ):
            raise TypeError(f"support must hold numbers or None, got {support!r}.")
    low = -np.inf if low is None else float(low)
    high = np.inf if high is None else float(high)
    if not low < high:
        raise ValueError(
            f"support must be (low, high) with low < high, got {support!r}, which holds no "
            "interval. Exchange the two, or give None for a side without a bound."
        )
    return low, high


def refuse_outside(name: str, y: Array, support: tuple[float, float]) -> None:
    """Refuse targets that lie outside of the support."""
    outside = np.flatnonzero((y < support[0]) | (y > support[1]))
    if len(outside):
        low, high = (None if np.isinf(end) else end for end in support)
        raise ValueError(
            f"{name} has {len(outside)} of {len(y)} targets outside of support=({low}, {high}); "
            f"the first is row {outside[0]} with {y[outside[0]]:g}. Widen the support, or drop "
            "these rows."
        )


def decide(y: Array, target: str, support: Any) -> Measure:
    """Find out, or check, what a target is.

    Parameters
    ----------
    y : ndarray of shape (n,)
    target : {"auto", "continuous", "discrete", "mixed"}
    support : tuple or None
        See `check_support`.
    """
    bounds = check_support(support)
    if bounds is not None:
        refuse_outside("y", y, bounds)
    values, counts = np.unique(y, return_counts=True)
    few = target == "auto" and len(y) < _ROWS_OF_TWO_VALUES
    if target in ("auto", "discrete") and len(values) == 2 and not few:
        raise ValueError(
            f"y has two values only, {values[0]:g} and {values[1]:g}: that is a question of yes or "
            "no. Use a classifier, such as sklearn.ensemble.HistGradientBoostingClassifier; or, if "
            "y is a number that happens to have two values here, target='continuous'."
        )
    if target == "discrete" and len(values) > _MOST_VALUES:
        raise ValueError(
            f"target='discrete' needs at most {_MOST_VALUES} different values, got {len(values)}. "
            "Use target='continuous' with a support such as (0, None)."
        )
    atoms = _atoms(values, counts, bounds) if target in ("auto", "mixed") else np.empty(0)
    kind = target
    if target == "auto":
        kind = "continuous" if len(atoms) == 0 else "mixed"
        if len(values) < 3:
            kind, atoms = "continuous", np.empty(0)
        elif _is_discrete(values, counts, atoms):
            kind, atoms = "discrete", np.empty(0)
        elif len(y) - counts[np.isin(values, atoms)].sum() < _LEAST_ROWS:
            kind, atoms = "continuous", np.empty(0)
    elif target == "mixed":
        if len(atoms) == 0:
            # The caller knows that there are atoms: the value that most rows hold is one.
            atoms = values[[int(counts.argmax())]]
            if counts.max() < 2:
                raise ValueError(
                    "target='mixed' needs values that several rows share; all targets differ. Use "
                    "target='continuous'."
                )
        if len(values) - len(atoms) < 2:
            raise ValueError(
                f"target='mixed' needs targets beside the atoms {atoms.tolist()}; there are none "
                "to speak of. Use target='discrete'."
            )
    return Measure(kind, bounds or _natural_bounds(values, atoms, kind), atoms)


def describe(model: Any) -> str:
    """Say in a few words what the target of a fitted model is."""
    if hasattr(model, "links_"):
        found = {
            model.target_names_[j]: describe(m)
            for j, m in zip(model.order_, model.links_, strict=True)
        }
        return "; ".join(f"{name}: {found[name]}" for name in model.target_names_)
    low, high = (f"{end:,.10g}" for end in model.support_)
    where = {
        (False, False): "unbounded",
        (True, False): f"{low} or more",
        (False, True): f"{high} or less",
        (True, True): f"from {low} to {high}",
    }[np.isfinite(model.support_[0]).item(), np.isfinite(model.support_[1]).item()]
    atoms = [f"{value:,.10g}" for value in model.atoms_]
    if model.target_kind_ == "discrete":
        return f"discrete, {len(atoms)} values from {atoms[0]} to {atoms[-1]}"
    if model.target_kind_ == "mixed":
        return f"mixed, a density ({where}) and atoms at {', '.join(atoms)}"
    return f"continuous, {where}"


def _natural_bounds(values: Array, atoms: Array, kind: str) -> tuple[float, float]:
    low, high = -np.inf, np.inf
    if values[0] >= 0:
        low = 0.0
        if values[-1] <= 1 and kind != "discrete":
            high = 1.0
    # A value that many rows share at an end is a cap.
    if values[0] in atoms:
        low = float(values[0])
    if values[-1] in atoms:
        high = float(values[-1])
    return low, high


def _is_discrete(values: Array, counts: NDArray[np.intp], atoms: Array) -> bool:
    """Whether what is left without the atoms still has few values only."""
    natural = values[0] >= 0 and (values == np.floor(values)).all()
    if not natural and len(values) > _MOST_OTHER_VALUES:
        return False
    if counts.sum() < _ROWS_PER_VALUE * len(values):
        return False
    rest = counts[~np.isin(values, atoms)]
    n = rest.sum()
    if n < 2:
        return True
    same = float((rest * (rest - 1.0)).sum() / (n * (n - 1.0)))
    return same * _MOST_EFFECTIVE >= 1


def _atoms(values: Array, counts: NDArray[np.intp], bounds: tuple[float, float] | None) -> Array:
    """Values that clearly more rows hold than a density explains, whatever the rounding."""
    n, last = counts.sum(), len(values) - 1
    found = []
    for i in np.flatnonzero(counts >= max(_LEAST_ROWS, _AT_END[0] * n)).tolist():
        at_end = i in (0, last) or (bounds is not None and values[i] in bounds)
        share, times = _AT_END if at_end else _INSIDE
        if counts[i] < share * n:
            continue
        near = np.concatenate([counts[max(0, i - _NEXT) : i], counts[i + 1 : i + 1 + _NEXT]])
        # The other atom of a pair does not hide this one.
        near = np.sort(near)[: -2 if len(near) > 4 else None]
        if len(near) and counts[i] >= times * near.max():
            found.append(i)
    if len(found) > _MOST_ATOMS:
        return np.empty(0)
    return values[found]
