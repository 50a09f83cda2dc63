"""Residual network for tables.

References
----------
Gorishniy, Rubachev, Khrulkov, Babenko: Revisiting Deep Learning Models for Tabular Data, 2021.
"""

from __future__ import annotations

from torch import Tensor, nn

from mcdensity.networks.layers import (
    StackedBatchNorm,
    StackedDropout,
    StackedLinear,
    StackedNetwork,
    stacked,
)

__all__ = ["resnet"]


class ResidualBlock(nn.Module):
    """x + dropout(linear(dropout(relu(linear(batch norm(x))))))."""

    def __init__(self, members: int, width: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            StackedBatchNorm(members, width),
            StackedLinear(members, width, 2 * width),
            nn.ReLU(),
            StackedDropout(dropout),
            StackedLinear(members, 2 * width, width),
            StackedDropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        return x + self.inner(x)


@stacked
def resnet(
    n_inputs: int, members: int = 1, width: int = 32, depth: int = 2, dropout: float = 0.1
) -> StackedNetwork:
    """Build residual blocks between a first linear layer and a normalised head."""
    body = nn.Sequential(
        *(ResidualBlock(members, width, dropout) for _ in range(depth)),
        StackedBatchNorm(members, width),
        nn.ReLU(),
        StackedLinear(members, width, 1),
    )
    return StackedNetwork(StackedLinear(members, n_inputs, width), body)
