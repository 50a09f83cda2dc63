"""How much work `MCD` does: three measured points on the curve of time against accuracy."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EFFORTS", "Effort"]


@dataclass(frozen=True)
class Effort:
    """Budgets of the portfolio and of its experts, relative to what they do by themselves.

    Parameters
    ----------
    name : str
    rank : int
        Experts that ask for a higher one are left out of the portfolio.
    folds : tuple of (int, int)
        Pairs (n, k): with fewer than n observations there are k folds of a fifth each; beyond the
        last n, one fold.
    ways : tuple of (int, int)
        Pairs (n, w): fewer than n observations are divided into folds in w ways, instead of one.
    steps : float
        Factor of the budget of training steps.
    levels : int
        Levels of noise that networks choose from, at most.
    trees : float
        Factor of the number of trees.
    """

    name: str
    rank: int
    folds: tuple[tuple[int, int], ...]
    ways: tuple[tuple[int, int], ...]
    steps: float
    levels: int
    trees: float


# "normal": three folds instead of five at 1000 rows of a smooth law had the same likelihood, in two
# thirds of the time. A second way to divide few rows: with 300 it gained 0.02 nats on Kin8nm, Yacht
# and Concrete, nothing on eight other sets, and took twice the time; with 100, where fits are
# short, it makes bad luck rarer (ARMAJump, one of four seeds: KL 1.45 with one way, 1.09 with two).
EFFORTS = {
    effort.name: effort
    for effort in (
        Effort("fast", 0, ((20_000, 2),), (), 0.45, 1, 0.5),
        Effort("normal", 1, ((1000, 5), (5000, 3), (20_000, 2)), ((200, 2),), 1.0, 3, 1.0),
        Effort("best", 2, ((10_000, 5), (50_000, 3)), ((500, 2),), 1.5, 3, 2.0),
    )
}
