"""Normal scores of the target, as a table that networks can use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

if TYPE_CHECKING:
    from mcdensity.target import InnerMarginal

__all__ = ["NormalScores"]

# The largest score, 7.9, is still distinct from its neighbours in double precision.
_LEAST_LEVEL = 1e-15


class NormalScores:
    """The map from y to its normal score, and the density of y: linear between knots.

    Parameters
    ----------
    knots : ndarray of shape (k,)
        Ascending values of y.
    levels : ndarray of shape (k,)
        The probabilities below them.
    log_density : ndarray of shape (k,)
        The marginal's there.
    limits : tuple of float
        The smallest and the largest target.
    """

    def __init__(
        self,
        knots: NDArray[np.float64],
        levels: NDArray[np.float64],
        log_density: NDArray[np.float64],
        limits: tuple[float, float] = (-math.inf, math.inf),
    ) -> None:
        self.limits = limits
        self.knots, first = np.unique(knots.astype(np.float32), return_index=True)
        levels = np.clip(levels[first], _LEAST_LEVEL, 1 - _LEAST_LEVEL)
        self.scores = np.maximum.accumulate(ndtri(levels).astype(np.float32))
        self.log_density = log_density[first].astype(np.float32)

    @classmethod
    def of(cls, marginal: InnerMarginal, count: int = 1024) -> NormalScores:
        """Make the table of a marginal: knots where targets are, and evenly to its reach."""
        level = (np.arange(count) + 0.5) / count
        even = np.linspace(*marginal.reach, count)
        knots = np.unique(np.concatenate([marginal.quantile(level), even]))
        return cls(knots, marginal.cdf(knots), marginal.logpdf(knots), marginal.limits)

    def _place(self, y: Tensor, knots: Tensor) -> tuple[Tensor, Tensor]:
        """Index of the right end of the piece, and the place in it: 0 to 1, or a piece beyond."""
        i = torch.searchsorted(knots, y.contiguous()).clamp(1, len(knots) - 1)
        left = knots[i - 1]
        return i, ((y - left) / (knots[i] - left)).clamp(-1, 2)

    def _tables(self, y: Tensor, *arrays: NDArray[np.float32]) -> list[Tensor]:
        return [torch.as_tensor(a, device=y.device, dtype=y.dtype) for a in arrays]

    def __call__(self, y: Tensor) -> Tensor:
        """Return z; beyond the outer knots the last piece is extended by its own length."""
        if len(self.knots) < 2:
            return torch.zeros_like(y)
        if y.ndim > 1 and len(y) > 1 and y.stride(0) == 0:  # the same for all members
            return self(y[0]).expand_as(y)
        knots, scores = self._tables(y, self.knots, self.scores)
        i, part = self._place(y, knots)
        return torch.lerp(scores[i - 1], scores[i], part)

    def both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return z and the log-density."""
        if len(self.knots) < 2:
            return torch.zeros_like(y), torch.zeros_like(y)
        knots, scores, log_density = self._tables(y, self.knots, self.scores, self.log_density)
        i, part = self._place(y, knots)
        left = i - 1
        return torch.lerp(scores[left], scores[i], part), torch.lerp(
            log_density[left], log_density[i], part
        )

    def inverse(self, z: Tensor) -> Tensor:
        """Return the y of a score."""
        if len(self.knots) < 2:
            return torch.full_like(z, float(self.knots[0]))
        knots, scores = self._tables(z, self.knots, self.scores)
        i = torch.searchsorted(scores, z.contiguous()).clamp(1, len(knots) - 1)
        left = i - 1
        low = scores[left]
        width = (scores[i] - low).clamp_min(1e-6)
        return torch.lerp(knots[left], knots[i], ((z - low) / width).clamp(-1, 2))
