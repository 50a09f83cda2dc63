"""Small pictures of laws as SVG, for notebooks; they need no library for plots."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from mcdensity._numbers import readable
from mcdensity.distribution.base import Array

if TYPE_CHECKING:
    from mcdensity.distribution.univariate import ConditionalDistribution

__all__ = ["row_pictures"]

_WIDTH, _HEIGHT, _POINTS = 180, 36, 90
# Visible on white and on black.
_COLOUR = "#3d85c6"


def row_pictures(distribution: ConditionalDistribution) -> tuple[str, list[str]]:
    """Return the heading of a column, and a picture of the law of each row as SVG.

    All pictures have the same range of y. The darker part is the 90 % interval, the line in it is
    the median. Single values are drawn as bars; beside a density these are as high as their
    probability.
    """
    levels = distribution.ppf_grid([0.005, 0.05, 0.5, 0.95, 0.995])
    low, high = float(levels[:, 0].min()), float(levels[:, -1].max())
    atoms, masses = distribution.atoms, distribution.masses
    if not np.isfinite([low, high]).all():
        return "", []
    room = 0.04 * (high - low) if high > low else max(abs(low), 1.0) / 10
    low, high = low - room, high + room
    grid = np.linspace(low, high, _POINTS)
    inside = (atoms >= low) & (atoms <= high)
    values, masses = atoms[inside], masses[:, inside]
    if distribution.is_discrete:
        density = None
        masses = masses / max(float(masses.max(initial=0.0)), 1e-300)
    else:
        rest: Any = getattr(distribution, "rest", distribution)
        density = rest.pdf_grid(grid)
        density = density / np.maximum(density.max(axis=1, keepdims=True), 1e-300)
    pictures = []
    for i, (_, first, median, last, _) in enumerate(levels.tolist()):
        text = f"median {readable(median)}, 90 % from {readable(first)} to {readable(last)}"
        shapes = [] if density is None else _curve(grid, density[i], first, last)
        shapes += _bars(values, masses[i], first, last, low, high)
        x = _across(median, low, high)
        shapes.append(f'<path d="M{x:.1f} 2V{_HEIGHT}" stroke="currentColor" stroke-width="1"/>')
        pictures.append(
            f'<svg role="img" aria-label="{html.escape(text, quote=True)}" width="{_WIDTH}" '
            f'height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"><title>{html.escape(text)}'
            f"</title>{''.join(shapes)}</svg>"
        )
    return f"{readable(low, 3)} to {readable(high, 3)}", pictures


def _across(y: float, low: float, high: float) -> float:
    return (y - low) / (high - low) * _WIDTH


def _curve(grid: Array, density: Array, first: float, last: float) -> list[str]:
    """The curve, and the area under it within the interval."""
    x = np.linspace(0, _WIDTH, len(grid))
    height = _HEIGHT - 2 - (_HEIGHT - 5) * density

    def path(points: Any, level: Any) -> str:
        return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(points, level, strict=True))

    ends = [float(np.clip(_across(v, grid[0], grid[-1]), 0, _WIDTH)) for v in (first, last)]
    within = np.concatenate([[ends[0]], x[(x > ends[0]) & (x < ends[1])], [ends[1]]])
    area = path(within, np.interp(within, x, height))
    base = _HEIGHT - 2
    return [
        f'<path d="M{ends[0]:.1f} {base}L{area}L{ends[1]:.1f} {base}Z" fill="{_COLOUR}" '
        'fill-opacity="0.35"/>',
        f'<path d="M{path(x, height)}" fill="none" stroke="{_COLOUR}" stroke-width="1.5"/>',
    ]


def _bars(
    values: Array, masses: Array, first: float, last: float, low: float, high: float
) -> list[str]:
    out = []
    gap = np.diff(values).min() / (high - low) * _WIDTH if len(values) > 1 else _WIDTH
    width = float(np.clip(0.7 * gap, 1, 8))
    for value, mass in zip(values.tolist(), masses.tolist(), strict=True):
        height = (_HEIGHT - 5) * mass
        if height < 0.2:
            continue
        x, solid = _across(value, low, high), 1 if first <= value <= last else 0.4
        out.append(
            f'<rect x="{x - width / 2:.1f}" y="{_HEIGHT - 2 - height:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" fill="{_COLOUR}" fill-opacity="{solid}"/>'
        )
    return out
