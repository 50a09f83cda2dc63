"""Pictures as SVG within the page: they take its colours, in light and in dark windows.

Coordinates are rounded to a tenth of a pixel; all text is escaped.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity._numbers import readable

__all__ = ["Chart", "bar", "interval_meter", "legend", "sparkline", "ticks"]

Array = NDArray[np.float64]
Writer: TypeAlias = Callable[[float], str] | None

# Room for the labels around the plotting area: left, right, top, bottom.
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 20, 10, 42
# About one label for so many pixels.
_LABEL = 70.0
# Longer names are cut on axes.
_LONGEST = 14


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers between two ends: 1, 2 or 5 times a power of ten apart.

    Examples
    --------
    >>> from mcdensity.report.svg import ticks
    >>> ticks(0.3, 9.7)
    [2.0, 4.0, 6.0, 8.0]
    """
    step = (high - low) / max(most, 1)
    if not (math.isfinite(step) and step > 0):
        return [low]
    size = 10.0 ** math.floor(math.log10(step))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= step * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) + 0.0 for k in range(first, math.floor(high / step + 1e-9) + 1)]


class Chart:
    """One picture with axes.

    Parameters
    ----------
    name : str
        What it shows, for those who do not see it.
    x, y : pair of float
        Ends of the axes.
    labels : pair of str
        Names of the axes.
    categories : sequence of str, optional
        In place of numbers along the x-axis, at 0, 1, 2, ...
    written : pair of callables, optional
        How numbers along each axis are written.
    """

    def __init__(
        self,
        name: str,
        x: tuple[float, float],
        y: tuple[float, float],
        labels: tuple[str, str],
        *,
        size: tuple[int, int] = (460, 290),
        categories: Sequence[str] | None = None,
        written: tuple[Writer, Writer] = (None, None),
    ) -> None:
        self.name, self.size = name, size
        self.x, self.y = _ends(*x), _ends(*y)
        self.parts: list[str] = []
        self._axes(labels, categories, written)

    # Places.

    def across(self, x: ArrayLike) -> Array:
        """Return pixels from the left."""
        share = (np.asarray(x, dtype=np.float64) - self.x[0]) / (self.x[1] - self.x[0])
        return _LEFT + np.clip(share, -0.02, 1.02) * (self.size[0] - _LEFT - _RIGHT)

    def down(self, y: ArrayLike) -> Array:
        """Return pixels from the top."""
        share = (np.asarray(y, dtype=np.float64) - self.y[0]) / (self.y[1] - self.y[0])
        return _TOP + (1 - np.clip(share, -0.02, 1.02)) * (self.size[1] - _TOP - _BOTTOM)

    # Marks.

    def line(self, x: ArrayLike, y: ArrayLike, kind: str = "line") -> None:
        """Join points by a line."""
        self._path(_track(self.across(x), self.down(y)), kind)

    def band(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, kind: str = "area") -> None:
        """Fill what lies between two lines."""
        at = self.across(x)
        there = _track(at, self.down(high))
        back = _track(at[::-1], self.down(low)[::-1]).replace("M", "L")
        self._path(f"{there}{back}Z", kind)

    def dots(self, x: ArrayLike, y: ArrayLike, kind: str = "dots") -> None:
        """Draw a point for each pair; those beyond the ends are left out."""
        x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        inside = (x >= self.x[0]) & (x <= self.x[1]) & (y >= self.y[0]) & (y <= self.y[1])
        at = zip(self.across(x[inside]), self.down(y[inside]), strict=True)
        self._path("".join(f"M{_px(a)} {_px(b)}h0" for a, b in at), kind)

    def bars(self, left: ArrayLike, right: ArrayLike, low: ArrayLike, high: ArrayLike,
             kind: str = "bar") -> None:  # fmt: skip
        """Draw rectangles."""
        ends = np.broadcast_arrays(*map(np.atleast_1d, (left, right, low, high)))
        for a, b, c, d in zip(*ends, strict=True):
            x0, x1 = sorted((float(self.across(a)), float(self.across(b))))
            y1, y0 = sorted((float(self.down(c)), float(self.down(d))))
            self.parts.append(
                f'<rect class="{kind}" x="{_px(x0)}" y="{_px(y1)}" width="{_px(x1 - x0)}" '
                f'height="{_px(y0 - y1)}"/>'
            )

    def rug(self, x: ArrayLike) -> None:
        """Mark values along the x-axis."""
        floor = self.size[1] - _BOTTOM
        self._path("".join(f"M{_px(a)} {floor}v-5" for a in self.across(np.asarray(x))), "rug")

    def markup(self) -> str:
        """Return the picture."""
        label = html.escape(self.name, quote=True)
        width, height = self.size
        return (
            f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
            f"{''.join(self.parts)}</svg>"
        )

    # Inside.

    def _path(self, path: str, kind: str) -> None:
        if path:
            self.parts.append(f'<path class="{kind}" d="{path}"/>')

    def _text(self, x: float, y: float, text: str, anchor: str, more: str = "") -> None:
        self.parts.append(
            f'<text x="{_px(x)}" y="{_px(y)}" text-anchor="{anchor}"{more}>{html.escape(text)}'
            "</text>"
        )

    def _axes(
        self,
        labels: tuple[str, str],
        categories: Sequence[str] | None,
        written: tuple[Writer, Writer],
    ) -> None:
        width, height = self.size
        of_x, of_y = written
        floor, right = height - _BOTTOM, width - _RIGHT
        for value in ticks(*self.y, most=5):
            y = float(self.down(value))
            self._path(f"M{_LEFT} {_px(y)}H{right}", "grid")
            self._text(_LEFT - 6, y + 4, _written(value) if of_y is None else of_y(value), "end")
        if categories is None:
            for value in ticks(*self.x, most=int((right - _LEFT) / _LABEL)):
                x = float(self.across(value))
                self._path(f"M{_px(x)} {floor}v4", "axis")
                self._text(
                    x, floor + 17, _written(value) if of_x is None else of_x(value), "middle"
                )
        else:
            longest = max(4, int(2 * _LONGEST * 3.4 / max(len(categories), 3)))
            for k, text in enumerate(categories):
                # Every other label is one line lower where they are many.
                lower = 11 * (k % 2) if len(categories) > 4 else 0
                cut = text if len(text) <= longest else text[: longest - 1] + "…"
                self._text(float(self.across(k)), floor + 14 + lower, cut, "middle")
        self._path(f"M{_LEFT} {floor}H{right}", "axis")
        middle = (_LEFT + right) / 2
        self._text(middle, height - 5, labels[0], "middle", ' class="name"')
        turn = f' class="name" transform="rotate(-90 10 {(_TOP + floor) / 2:.0f})"'
        self._text(10, (_TOP + floor) / 2, labels[1], "middle", turn)


def sparkline(
    grid: Array, curve: Array | None, atoms: Array, masses: Array, outcome: float, name: str
) -> str:
    """Return a small picture of a law, with a mark at the outcome.

    Parameters
    ----------
    grid : ndarray
        Values of y, from one end to the other.
    curve : ndarray or None
        Densities there.
    atoms, masses : ndarray
        Single values, and their probabilities.
    outcome : float
    name : str
        What it shows, for those who do not see it.
    """
    width, height = 150, 30
    low, high = _ends(float(grid[0]), float(grid[-1]))

    def across(x: ArrayLike) -> Array:
        share = (np.asarray(x, dtype=np.float64) - low) / (high - low)
        return 2 + (width - 4) * np.clip(share, 0, 1)

    parts = [f'<path class="grid" d="M0 {height - 1}H{width}"/>']
    if curve is not None and curve.max() > 0:
        part = 1 - float(masses.sum())
        top = height - 1 - (height - 4) * part * curve / curve.max()
        track = _track(across(grid), top)
        parts.append(f'<path class="area inner" d="{track}V{height - 1}H2Z"/>')
        parts.append(f'<path class="line" style="stroke-width:1.5" d="{track}"/>')
    if len(atoms):
        scale = 1.0 if curve is not None else float(masses.max()) or 1.0
        seen = masses > 0.002 * scale
        stems = zip(across(atoms[seen]), (height - 4) * masses[seen] / scale, strict=True)
        path = "".join(f"M{_px(a)} {height - 1}v-{_px(b)}" for a, b in stems)
        parts.append(f'<path class="stem" d="{path}"/>')
    at = _px(float(across(outcome)))
    parts.append(f'<path class="mark" d="M{at} {height}V1"/>')
    label = html.escape(name, quote=True)
    return (
        f'<svg class="meter" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{label}">{"".join(parts)}</svg>'
    )


def interval_meter(
    value: float, low: float, high: float, off: bool, ends: tuple[float, float]
) -> str:
    """Return a small picture: a dot, and the range where chance would put it."""
    width, height = 150, 16
    place = [4 + (width - 8) * float(np.clip((v - ends[0]) / (ends[1] - ends[0]), 0, 1))
             for v in (value, low, high)]  # fmt: skip
    at, left, right = map(_px, place)
    return (
        f' <svg class="meter" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'aria-hidden="true"><path class="grid" d="M0 8H{width}"/>'
        f'<path class="chance" d="M{left} 2H{right}V14H{left}Z"/>'
        f'<circle class="dot{" off" if off else ""}" cx="{at}" cy="8" r="4.5"/></svg>'
    )


def bar(value: float, error: float, most: float) -> str:
    """Return a small picture: a bar with two standard errors."""
    width, height = 520, 16
    if not most > 0:
        return ""
    scale = (width - 4) / most
    end = max(value, 0.0) * scale
    low, high = (_px(float(np.clip(value + s * 2 * error, 0, most) * scale)) for s in (-1, 1))
    return (
        f'<svg class="meter" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="bar" x="0" y="3" width="{_px(end)}" height="10" rx="2"/>'
        f'<path class="whisker" d="M{low} 8H{high}M{low} 5v6M{high} 5v6"/></svg>'
    )


def legend(*items: tuple[str, str]) -> str:
    """Return a line that says what marks mean: pairs of a class and words."""
    shapes = {"dots": "M12 6h0", "out": "M12 6h0"}
    out = []
    for kind, words in items:
        key = kind.split()[-1]
        if key in shapes:
            mark = f'<path class="{kind}" d="{shapes[key]}"/>'
        elif kind.split()[0] in ("area", "chance", "bar"):
            mark = f'<rect class="{kind}" x="0" y="1" width="24" height="11"/>'
        else:
            mark = f'<path class="{kind}" d="M0 6.5H24"/>'
        svg = f'<svg viewBox="0 0 24 13" aria-hidden="true">{mark}</svg>'
        out.append(f"<span>{svg}{html.escape(words)}</span>")
    return f'<p class="legend">{"".join(out)}</p>'


def _ends(low: float, high: float) -> tuple[float, float]:
    if not (math.isfinite(low) and math.isfinite(high)):
        return 0.0, 1.0
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _written(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.4g} M" if abs(value) < 1e12 else f"{value:.2g}"
    return readable(value)


def _track(x: Array, y: Array) -> str:
    return "M" + "L".join(f"{_px(a)} {_px(b)}" for a, b in zip(x, y, strict=True))


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
