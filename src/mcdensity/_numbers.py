"""Numbers as people write them."""

from __future__ import annotations

import math

__all__ = ["readable"]


def readable(value: float, digits: int = 4) -> str:
    """Return a number with so many significant digits: 12,230 and 0.0012, not 1.223e+04.

    Examples
    --------
    >>> from mcdensity._numbers import readable
    >>> [readable(v) for v in (12234.5, 0.5, -3.14159, 0.00123, 1e-12, float("inf"))]
    ['12,230', '0.5', '-3.142', '0.00123', '1e-12', 'inf']
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}".replace("-0", "0") if value == 0 else f"{value:g}"
    size = math.floor(math.log10(abs(value)))
    if not -5 <= size < 12:
        return f"{value:.{digits}g}"
    decimals = digits - 1 - size
    text = f"{round(value, decimals):,.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
