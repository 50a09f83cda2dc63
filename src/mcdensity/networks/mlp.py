"""Multilayer perceptrons: with batch norm and dropout, and plain.

References
----------
Ioffe, Szegedy: Batch Normalization, 2015. Srivastava et al.: Dropout, 2014.
"""

from __future__ import annotations

from torch import nn

from mcdensity.networks.layers import (
    StackedBatchNorm,
    StackedDropout,
    StackedLinear,
    StackedNetwork,
    stacked,
)

__all__ = ["mlp", "mlp_plain"]


@stacked
def mlp(
    n_inputs: int,
    members: int = 1,
    width: int = 32,
    depth: int = 2,
    dropout: float = 0.1,
    n_outputs: int = 1,
) -> StackedNetwork:
    """Build hidden layers of equal width, each with batch norm, SiLU and dropout, and one logit."""
    body: list[nn.Module] = []
    for i in range(depth):
        if i:
            body.append(StackedLinear(members, width, width))
        body += [StackedBatchNorm(members, width), nn.SiLU(), StackedDropout(dropout)]
    body.append(StackedLinear(members, width, n_outputs))
    return StackedNetwork(StackedLinear(members, n_inputs, width), nn.Sequential(*body))


@stacked
def mlp_plain(n_inputs: int, members: int = 1, width: int = 32, depth: int = 2) -> StackedNetwork:
    """Build hidden layers of equal width with SiLU and nothing else, and one logit."""
    body: list[nn.Module] = [nn.SiLU()]
    for _ in range(depth - 1):
        body += [StackedLinear(members, width, width), nn.SiLU()]
    body.append(StackedLinear(members, width, 1))
    return StackedNetwork(StackedLinear(members, n_inputs, width), nn.Sequential(*body))
