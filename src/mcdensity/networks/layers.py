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
    "stacked", "through",
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
# Added to variances before their root is taken.
_LEAST_VARIANCE = 1e-5


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

    def follow(self, mean: Tensor, var: Tensor) -> None:
        """Update the running values by those of a batch."""
        self.mean.lerp_(mean, self.momentum)
        self.var.lerp_(var, self.momentum)

    def affine(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factor and the constant that normalising amounts to."""
        factor = self.scale * torch.rsqrt(var + _LEAST_VARIANCE)
        return factor, self.shift - mean * factor

    def forward(self, x: Tensor) -> Tensor:
        """Normalise; in training by the batch, which also updates the running values."""
        mean, var = self.mean, self.var
        if self.training:
            # Twice as fast here as torch.var_mean, which is slow at reducing a middle axis.
            mean = x.mean(dim=1, keepdim=True)
            var = (x - mean).square().mean(dim=1, keepdim=True)
            self.follow(mean.detach(), var.detach())
        factor, constant = self.affine(mean, var)
        return torch.addcmul(constant, x, factor)


class StackedDropout(nn.Module):
    """Dropout with one mask for all members."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def kept(self, x: Tensor, features: int) -> Tensor:
        """Draw which features of the rows are kept, 1, and which are left out, 0.

        Four from each random number, which are what dropout costs.
        """
        count, device = x.shape[1] * features, x.device
        drawn = torch.empty(-(-count // 4), dtype=torch.int64, device=device)
        drawn.random_(-(2**63), None, generator=generator(device))
        parts = drawn.view(torch.int16)[:count].view(x.shape[1], features)
        return (parts >= round(self.share * 2**16) - 2**15).to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Leave out a random share of the features in training."""
        if not self.training or self.share == 0:
            return x
        return self._without(x, self.kept(x, x.shape[2]))

    def _without(self, x: Tensor, kept: Tensor) -> Tensor:
        """Set features to zero and scale the others up."""
        return x * kept.div_(1 - self.share)


class StackedAlphaDropout(StackedDropout):
    """Dropout that keeps mean and variance of units with the SELU activation."""

    def _without(self, x: Tensor, kept: Tensor) -> Tensor:
        """Set features to the least value of SELU, shift and scale all."""
        scale = ((1 - self.share) * (1 + self.share * _LEAST_SELU**2)) ** -0.5
        return scale * (torch.where(kept > 0, x, _LEAST_SELU) - self.share * _LEAST_SELU)


class _Unit(torch.autograd.Function):
    """Linear layer, batch norm, SiLU and dropout in one, with the gradient in closed form.

    A training step of small networks is overhead: one by one, with automatic differentiation,
    these layers took three times as long. The constant of the linear layer is not needed, since
    batch norm takes the mean off.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, kept: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        centred = torch.bmm(x, weight)
        mean = centred.mean(dim=1, keepdim=True)
        centred -= mean
        var = (centred * centred).mean(dim=1, keepdim=True)
        inverse = torch.rsqrt(var + _LEAST_VARIANCE)
        factor = scale * inverse
        normal = torch.addcmul(shift, centred, factor)
        out = nn.functional.silu(normal)
        if kept is not None:
            out *= kept
        ctx.save_for_backward(x, weight, centred, inverse, factor, normal, kept)
        ctx.mark_non_differentiable(mean, var)
        return out, mean, var

    @staticmethod
    def backward(ctx: Any, slope: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, weight, centred, inverse, factor, normal, kept = ctx.saved_tensors
        if kept is not None:
            slope = slope * kept
        slope = torch.ops.aten.silu_backward(slope, normal)
        of_shift = slope.sum(dim=1, keepdim=True)
        along = (slope * centred).sum(dim=1, keepdim=True)
        rows = -factor / slope.shape[1]
        inner = torch.addcmul(rows * of_shift, slope, factor)
        inner.addcmul_(centred, rows * inverse.square() * along)
        of_x = torch.bmm(inner, weight.mT) if ctx.needs_input_grad[0] else None
        return of_x, torch.bmm(x.mT, inner), along * inverse, of_shift, None


def through(layers: list[nn.Module], x: Tensor) -> Tensor:
    """Apply layers one after the other; in training those of a `_Unit` together."""
    i = 0
    while i < len(layers):
        match layers[i : i + 4]:
            case [StackedLinear() as linear, StackedBatchNorm() as norm, nn.SiLU(), dropout] if (
                norm.training and type(dropout) is StackedDropout
            ):
                kept = None
                if dropout.share > 0:
                    kept = dropout.kept(x, linear.weight.shape[2]).div_(1 - dropout.share)
                x, mean, var = _Unit.apply(x, linear.weight, norm.scale, norm.shift, kept)
                norm.follow(mean + linear.bias.detach(), var)
                i += 4
            case _:
                x = layers[i](x)
                i += 1
    return x


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
        return through([self.first, *self.body], pairs)[..., 0]

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
