"""How long networks are trained, on how many rows at once, and how fast: by the number of rows."""

from __future__ import annotations

import numpy as np

__all__ = ["LARGE", "MEDIUM", "usual_batch", "usual_rate", "usual_steps", "usual_width"]

# Rows from which on networks have batch norm, and from which on they are wide and deep; see
# `mcdensity.experts.density.network`.
MEDIUM, LARGE = 500, 6000
# Steps for 100 rows, 200, 400 and 800: half as many lose 0.25 nats on Yacht, twice as many lose
# 0.13 on Concrete; the other sets differ by less than 0.05.
_STEPS = {"flow": 400, "mixture": 400, "two-tower": 330}
# Rows per step, 64, 128 and 256: 256 is best on Concrete, Yacht (by 0.11) and SDSSBoss, 64 on
# Kin8nm (by 0.11) and ARMAJump.
_BATCH = {"flow": 256, "mixture": 256, "two-tower": 128}
_MOST_STEPS, _MOST_LARGE_STEPS = 2500, 6000
_MEDIUM_STEPS, _MEDIUM_RATE, _SMALL_RATE = 0.8, 0.04, 0.02
# From 10,000 rows to 30,000 fewer again, down to this share: `mixture` with it had -0.849 on 20,000
# rows of a smooth law and -1.893 on 20,000 of Protein, -0.853 and -1.888 without (two seeds each).
# With 0.6 it had -0.845 and -1.915; with 6500 of Kin8nm and 7500 of Power 0.8 had 1.429 and -2.627,
# 1.424 and -2.611 without.
_STEPS_FALL, _LEAST_STEPS = 10_000, 0.8
# Then a tenth of the rows are in a step, but so many at least and at most: with 3750 rows 256 had
# 1.385 on Kin8nm and -2.22 on Protein, 128 had 1.363 and -2.27 with more steps.
_LEAST_BATCH, _MOST_BATCH = 96, 256
# Beyond 6000 rows a twentieth of them, but for "fast": with 256, 512 and 1024 rows in a step
# `mixture` had -2.22, -2.04 and -1.94 on 30,000 rows of Protein, -0.882, -0.864 and -0.849 on
# 50,000 of a smooth law.
# Twice the width instead had -2.21 and -0.923, twice the steps -2.06 and -0.889.
_MOST_LARGE_BATCH = 768
_LARGE_RATE = 0.02
# Beyond this many the rate falls with the square root of their number, to a quarter: with a million
# rows of a smooth law 0.02, 0.005 and 0.002 had -0.905, -0.857 and -0.857 (2500 steps).
_RATE_FALLS = 20_000


# Units in a layer: below 500 rows, below 6000, below 30,000, and beyond. With 96 instead of 128
# `mixture` takes a quarter less time; it had -1.875 instead of -1.890 on 20,000 rows of Protein,
# -0.847 instead of -0.858 on 20,000 of a smooth law, the same to 0.004 on 6500 of Kin8nm and 8000
# of Power, and -1.734 instead of -1.712 on 40,000 of Protein.
_WIDTHS, _VERY_LARGE = (32, 64, 96, 128), 30_000


def usual_width(n: int, large: bool) -> int:
    """Units in a layer for n observations, and whether the network is a large one."""
    return _WIDTHS[2 + (n >= _VERY_LARGE) if large else int(n >= MEDIUM)]


def usual_steps(tower: str, n: int, effort: float) -> int:
    """Budget of steps for n observations; `effort` is a factor."""
    usual = effort * _STEPS[tower] * (1.0 if n < MEDIUM else _MEDIUM_STEPS)
    most = _MOST_STEPS if n < LARGE else _MOST_LARGE_STEPS
    if n < _VERY_LARGE:
        usual *= float(np.clip(_STEPS_FALL / n, _LEAST_STEPS, 1))
    return int(np.clip(usual * (n / 100) ** 0.35, 200, most))


def usual_rate(n: int) -> float:
    """Learning rate for n observations."""
    if n < LARGE:
        return _SMALL_RATE if n < MEDIUM else _MEDIUM_RATE
    return _LARGE_RATE * float(np.clip(np.sqrt(_RATE_FALLS / n), 0.25, 1))


def usual_batch(tower: str, n: int, large: bool) -> int:
    """Rows in a step for n observations, and whether the network is a large one."""
    if n < MEDIUM:
        return _BATCH[tower]
    usual = int(np.clip(n // 10, _LEAST_BATCH, _MOST_BATCH))
    return int(np.clip(n // 20, usual, _MOST_LARGE_BATCH)) if large else usual
