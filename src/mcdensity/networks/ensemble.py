"""Training several networks at once by the likelihood of their rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcdensity.data import HeldOut
from mcdensity.networks.random import generator
from mcdensity.networks.training import train

__all__ = ["AHEAD", "BLOCK", "MOST_AHEAD", "EnsembleTraining"]

Array = NDArray[np.float64]

# Numbers that held-out rows may take at once: 32 MB of single precision.
BLOCK = 1 << 23
# Numbers of the batches that are drawn at once, and the number of batches, at most.
AHEAD, MOST_AHEAD = 1 << 19, 32


class EnsembleTraining:
    """Members that hold out different rows, at several levels of noise, as one stack of networks.

    The stack has ``levels x members`` networks; level j of member e is number ``j * members + e``.

    Parameters
    ----------
    module : nn.Module
        The stack.
    prepare : callable
        ``prepare(y, rows)``: what is needed of targets, a tuple of tensors that broadcast to the
        shape of y, (..., stack, rows), for the numbers of the rows, (..., rows).
    log_density : callable
        ``log_density(x, *prepared)``: log-densities, (stack, rows), for x of shape
        (stack, rows, p).
    X, y : ndarray of shape (n, p) and (n,)
    weight : ndarray of shape (n,)
    held_out : HeldOut or None
    members : int
    levels : ndarray
        Standard deviations of the noise on x, and of the step of y.
    batch_size : int
    coordinate : tuple of (callable, callable)
        Where targets are moved by noise: a function of y, and its inverse.
    common_stop : bool
        Whether the members of a level keep their weights from one common step. The best step of
        each member is chosen by few rows, and looks better than it is.
    device : torch.device
    """

    def __init__(
        self,
        module: nn.Module,
        prepare: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
        log_density: Callable[..., Tensor],
        X: Array,
        y: Array,
        weight: Array,
        held_out: HeldOut | None,
        members: int,
        levels: Array,
        batch_size: int,
        coordinate: tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]],
        common_stop: bool,
        device: torch.device,
    ) -> None:
        self.module, self.coordinate = module, coordinate
        self.prepare, self.log_density = prepare, log_density
        self.members, self.levels, self.common_stop = members, levels, common_stop
        self.batch_size, self.device = batch_size, device
        self.total = members * len(levels)
        self.x, self.y = (self._tensor(a) for a in (X, y))
        self.place = coordinate[0](self.y)
        self.noise = self._tensor(np.repeat(levels, members))[:, None]
        self.held_out = held_out
        used = np.broadcast_to(weight, (members, len(y)))
        if held_out is not None:
            used = weight * ~held_out.held
            # Rows that are scored, and which members hold them out.
            self.scored = torch.as_tensor(held_out.scored, device=device)
            holds = held_out.held[:, held_out.scored]
            self.holds = torch.as_tensor(holds, device=device)
            self.score_weight = self._tensor(weight[held_out.scored])
        self.use = self._tensor(np.tile(used, (len(levels), 1)))
        # Rows, targets and weights that come from elsewhere, instead of those above.
        self.batches: Iterator[tuple[Array, Array, Array]] | None = None
        self._steps = self._drawn()

    def _tensor(self, array: Array) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array), dtype=torch.float32, device=self.device)

    def loss(self) -> Tensor:
        """Weighted mean of -log-density over a batch, with fresh noise, summed over the stack."""
        x, weight, *prepared = next(self._steps)
        return -(weight * self.log_density(x, *prepared)).sum()

    def _drawn(self) -> Iterator[tuple[Tensor, ...]]:
        """Batches: x, weights that sum to one for each network, and what is needed of targets.

        Several are drawn at once: one by one, that took a third of the time of a step.
        """
        while True:
            rows, weight, x, place = self._batches()
            x = torch.addcmul(x, self.noise[..., None], self._normal(x.shape))
            place = torch.addcmul(place, self.noise, self._normal(place.shape))
            weight = weight / weight.sum(-1, keepdim=True).clamp_min(1e-6)
            prepared = self.prepare(self.coordinate[1](place), rows)
            yield from zip(*(part.unbind(0) for part in (x, weight, *prepared)), strict=True)

    def _batches(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw batches: numbers of rows, weights for each network, x, and coordinates of y."""
        if self.batches is not None:
            x, y, weight = (self._tensor(part)[None] for part in next(self.batches))
            rows = torch.zeros(y.shape, dtype=torch.long, device=self.device)
            place = self.coordinate[0](y)
            return rows, weight.expand(1, self.total, -1), x[:, None], place[:, None]
        n, p = self.x.shape
        size = min(n, self.batch_size)
        count = int(np.clip(AHEAD // (self.total * size * (p + 1)), 1, MOST_AHEAD))
        if n > size:
            rows = torch.randint(
                n, (count, size), device=self.device, generator=generator(self.device)
            )
        else:
            rows = torch.arange(n, device=self.device).expand(count, -1)
        weight = self.use[:, rows].transpose(0, 1)
        return rows, weight, self.x[rows][:, None], self.place[rows][:, None]

    def _normal(self, shape: torch.Size) -> Tensor:
        return torch.randn(shape, device=self.device, generator=generator(self.device))

    def held_out_log_density(self, inner: int = 1) -> Tensor:
        """Log-densities of the scored rows, (stack, rows); `inner` numbers are needed for each."""
        step = max(1, BLOCK // (self.total * inner))
        parts = []
        for rows in self.scored.split(step):
            x, y = self.x[rows].expand(self.total, -1, -1), self.y[rows].expand(self.total, -1)
            parts.append(self.log_density(x, *self.prepare(y, rows)))
        return torch.cat(parts, dim=1)

    def by_level(self, value: Tensor) -> Tensor:
        """Log of the mean density of the members that hold a row out, (levels, rows)."""
        each = value.reshape(len(self.levels), self.members, -1)
        each = each.masked_fill(~self.holds, -math.inf)
        return each.logsumexp(1) - self.holds.sum(0).log()

    def scores(self, inner: int = 1) -> Tensor:
        """Mean held-out log-density for each network of the stack."""
        value = self.held_out_log_density(inner)
        if self.common_stop:
            mean = self.by_level(value) @ self.score_weight / self.score_weight.sum()
            return mean.repeat_interleave(self.members)
        share = self.score_weight * self.holds.repeat(len(self.levels), 1)
        return (share * value).sum(1) / share.sum(1)

    def run(
        self,
        *,
        steps: int,
        learning_rate: float,
        weight_decay: float,
        report: Callable[[float], None] | None = None,
        inner: int = 1,
        seconds: float = math.inf,
        ends_early: bool = True,
    ) -> int:
        """Train, keep the weights that scored best, and return the steps taken."""
        return train(
            self.module,
            self.loss,
            None if self.held_out is None else (lambda: self.scores(inner)),
            steps=steps,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            report=report,
            seconds=seconds,
            ends_early=ends_early,
        )
