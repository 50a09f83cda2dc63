"""A network from x to the parameters of a density, for several members at once."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcdensity.networks.layers import (
    StackedBatchNorm,
    StackedDropout,
    StackedLinear,
    through,
)

__all__ = ["ParameterNetwork", "join_members", "keep_members"]


# torch's default start is made for tanh; SiLU halves what passes through it.
_SILU_GAIN = 1.7


class ParameterNetwork(nn.Module):
    """Hidden layers, and a linear path beside them, for several members at once.

    Parameters
    ----------
    members, n_inputs, n_outputs, width, depth : int
    dropout : float, optional
        With a number the layers are those of `mcdensity.networks.mlp`: batch norm, SiLU and dropout
        of this share. By default they have tanh alone, which is better with few rows.
    """

    def __init__(
        self,
        members: int,
        n_inputs: int,
        n_outputs: int,
        width: int,
        depth: int,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(depth):
            linear = StackedLinear(members, width if i else n_inputs, width)
            if dropout is None:
                layers += [linear, nn.Tanh()]
                continue
            with torch.no_grad():
                linear.weight.mul_(_SILU_GAIN)
            layers += [linear, StackedBatchNorm(members, width), nn.SiLU(), StackedDropout(dropout)]
        self.body = nn.Sequential(*layers)
        self.head = StackedLinear(members, width, n_outputs)
        self.skip = StackedLinear(members, n_inputs, n_outputs)
        with torch.no_grad():
            # At the start x has little effect: the density starts near that of all targets.
            for layer in (self.head, self.skip):
                layer.weight.mul_(0.1)
                layer.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Return parameters, (members, rows, n_outputs), for x of shape (members, rows, p)."""
        return self.head(through(list(self.body), x)) + self.skip(x)


def keep_members(module: nn.Module, members: slice | NDArray[np.intp]) -> None:
    """Drop all other members of a stack."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            setattr(part, name, nn.Parameter(parameter.detach()[members].clone()))
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, buffer[members].clone())


def join_members(module: nn.Module, parts: list[nn.Module]) -> None:
    """Give a stack the weights of several smaller ones, in their order."""
    states = [part.state_dict() for part in parts]
    module.load_state_dict(
        {name: torch.cat([state[name] for state in states]) for name in states[0]}
    )
