"""Layers for several networks at once: every tensor has a first axis for the members.

Training five small networks one after the other spends most of its time in overhead; as one batched
product they cost little more than one. Shapes are (members, rows, features).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mcdensity.networks.random import generator

__all__ = [
    "StackedAlphaDropout", "StackedBatchNorm", "StackedDropout", "StackedLinear", "StackedNetwork",
    "stacked",
]  # fmt: skip

Build = TypeVar("Build", bound=Callable[..., Any])


# Products of at least this many rows are summed in the same order whatever their number: libraries
# use other kernels for small matrices. Measured with 16 to 128 columns, one and two threads, with
# and without vector instructions; 169 rows of 16 columns still differed from 1183.
_LEAST_ROWS = 1024
# And the last rows, fewer than this, are left to other kernels: 1169 rows of 16 columns differed
# from 1024 in the last one.
_ROWS_OF_KERNELS = 64
# The limit of SELU at minus infinity.
_LEAST_SELU = -1.7580993408473766


class StackedLinear(nn.Module):
    """A linear layer for each member.

    Parameters
    ----------
    members, n_inputs, n_outputs : int
    lecun : bool, default False
        Normal weights of variance 1 / n_inputs and no bias at the start, which self-normalising
        networks need; else torch's default.
    """

    def __init__(self, members: int, n_inputs: int, n_outputs: int, lecun: bool = False) -> None:
        super().__init__()
        weight, bias = torch.empty(members, n_inputs, n_outputs), torch.zeros(members, 1, n_outputs)
        bound = 1 / math.sqrt(n_inputs)
        if lecun:
            weight.normal_(0, bound, generator=generator())
        else:
            weight.uniform_(-bound, bound, generator=generator())
            bias.uniform_(-bound, bound, generator=generator())
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return x W + b."""
        return torch.baddbmm(self.bias, x, self.weight)


class StackedBatchNorm(nn.Module):
    """Batch normalisation over the rows, for each member."""

    mean: Tensor
    var: Tensor

    def __init__(self, members: int, n_features: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        self.scale = nn.Parameter(torch.ones(members, 1, n_features))
        self.shift = nn.Parameter(torch.zeros(members, 1, n_features))
        self.register_buffer("mean", torch.zeros(members, 1, n_features))
        self.register_buffer("var", torch.ones(members, 1, n_features))

    def affine(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factor and the constant that normalising amounts to."""
        factor = self.scale * torch.rsqrt(var + 1e-5)
        return factor, self.shift - mean * factor

    def forward(self, x: Tensor) -> Tensor:
        """Normalise; in training by the batch, which also updates the running values."""
        mean, var = self.mean, self.var
        if self.training:
            # Twice as fast here as torch.var_mean, which is slow at reducing a middle axis.
            mean = x.mean(dim=1, keepdim=True)
            var = (x - mean).square().mean(dim=1, keepdim=True)
            with torch.no_grad():
                self.mean.lerp_(mean, self.momentum)
                self.var.lerp_(var, self.momentum)
        factor, constant = self.affine(mean, var)
        return torch.addcmul(constant, x, factor)


class StackedDropout(nn.Module):
    """Dropout with one mask for all members: drawing it is what dropout costs on a CPU."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """Leave out a random share of the features in training."""
        if not self.training or self.share == 0:
            return x
        chance = torch.rand(x.shape[1:], device=x.device, generator=generator(x.device))
        return self._without(x, chance < self.share)

    def _without(self, x: Tensor, dropped: Tensor) -> Tensor:
        """Set features to zero and scale the others up."""
        return x * ((~dropped).to(x.dtype) / (1 - self.share))


class StackedAlphaDropout(StackedDropout):
    """Dropout that keeps mean and variance of units with the SELU activation."""

    def _without(self, x: Tensor, dropped: Tensor) -> Tensor:
        """Set features to the least value of SELU, shift and scale all."""
        scale = ((1 - self.share) * (1 + self.share * _LEAST_SELU**2)) ** -0.5
        return scale * (torch.where(dropped, _LEAST_SELU, x) - self.share * _LEAST_SELU)


class StackedNetwork(nn.Module):
    """A first linear layer, and a body from there to one logit.

    The first layer is linear in (x, y), so for n rows and G values of y it is the sum of an (n, h)
    and a (G, h) matrix: `outer` computes each once.

    Parameters
    ----------
    first : StackedLinear
    body : nn.Module
        Maps (members, rows, h) to (members, rows, 1).
    """

    def __init__(self, first: StackedLinear, body: nn.Sequential) -> None:
        super().__init__()
        self.first, self.body = first, body

    def forward(self, pairs: Tensor) -> Tensor:
        """Logits of pairs (members, rows, p + 1), shape (members, rows)."""
        return self.body(self.first(pairs))[..., 0]

    def folded(self) -> StackedNetwork:
        """Return a network for prediction only, its batch norms merged into the layers before."""
        layers: list[nn.Module] = [self.first, *self.body]
        out: list[nn.Module] = []
        for layer in layers:
            previous = out[-1] if out else None
            if isinstance(layer, StackedBatchNorm) and isinstance(previous, StackedLinear):
                factor, constant = layer.affine(layer.mean, layer.var)
                merged = object.__new__(StackedLinear)
                nn.Module.__init__(merged)
                merged.weight = nn.Parameter((previous.weight * factor).detach())
                merged.bias = nn.Parameter((previous.bias * factor + constant).detach())
                out[-1] = merged
            elif not isinstance(layer, StackedDropout | nn.AlphaDropout):
                out.append(layer)
        first = out[0]
        assert isinstance(first, StackedLinear)
        return StackedNetwork(first, nn.Sequential(*out[1:])).eval()

    def of_x(self, X: Tensor) -> Tensor:
        """Return the contribution of rows X (n, p) to the first layer, (members, n, h).

        In double precision: the products of few rows are summed in another order than those of
        many, and a row's output must not depend on the other rows.
        """
        weight, bias = self.first.weight.double(), self.first.bias.double()
        return (torch.matmul(X.double(), weight[:, : X.shape[1]]) + bias).float()

    def outer(
        self, of_x: Tensor, Y: Tensor, block: int, reduce: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Apply `reduce` to the logits, (members, rows, m), of rows at points Y.

        Parameters
        ----------
        of_x : Tensor of shape (members, n, h)
            See `of_x`.
        Y : Tensor of shape (n, m), or (1, m) for points that all rows share
        block : int
            Pairs to process at once, so that what passes between layers stays in the cache.
        reduce : callable
            From (members, rows, m) to (rows, m).
        """
        n, m = of_x.shape[1], Y.shape[1]
        of_y = self.first.weight[:, -1]  # (members, h)
        members, hidden = of_y.shape
        shared = (Y[0, :, None] * of_y[:, None]) if len(Y) == 1 else None  # (members, m, h)
        out = torch.empty(n, m, dtype=torch.float64)
        if m == 0:
            return out
        columns = min(m, block)
        rows = -(-block // columns)  # so that only the last block is padded
        for i in range(0, n, rows):
            for j in range(0, m, columns):
                part = of_x[:, i : i + rows, None]
                if shared is None:
                    y = Y[i : i + rows, j : j + columns, None] * of_y[:, None, None]
                else:
                    y = shared[:, None, j : j + columns]
                hidden_block = (part + y).reshape(members, -1, hidden)
                logit = self._logits(hidden_block)
                count = min(rows, n - i)
                out[i : i + rows, j : j + columns] = reduce(logit.reshape(members, count, -1))
        return out

    def _logits(self, hidden: Tensor) -> Tensor:
        """Logits of the body, (members, rows); rows are padded, see `of_x`."""
        rows = hidden.shape[1]
        missing = max(_LEAST_ROWS - rows, -rows % _ROWS_OF_KERNELS)
        if missing:
            hidden = nn.functional.pad(hidden, (0, 0, 0, missing))
        return self.body(hidden)[:, :rows, 0]


def stacked(build: Build) -> Build:
    """Mark a function that builds a `StackedNetwork` with any number of members."""
    build.stacked = True  # type: ignore[attr-defined]
    return build
