"""Gated linear units.

References
----------
Dauphin, Fan, Auli, Grangier: Language Modeling with Gated Convolutional Networks, 2017; for tables
see Gorishniy et al., 2021.
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

__all__ = ["glu"]


@stacked
def glu(
    n_inputs: int, members: int = 1, width: int = 32, depth: int = 2, dropout: float = 0.1
) -> StackedNetwork:
    """Build layers whose one half gates the other, each with batch norm and dropout."""
    body: list[nn.Module] = []
    for i in range(depth):
        if i:
            body.append(StackedLinear(members, width, 2 * width))
        body += [StackedBatchNorm(members, 2 * width), nn.GLU(), StackedDropout(dropout)]
    body.append(StackedLinear(members, width, 1))
    return StackedNetwork(StackedLinear(members, n_inputs, 2 * width), nn.Sequential(*body))
