"""Self-normalising network.

References
----------
Klambauer, Unterthiner, Mayr, Hochreiter: Self-Normalizing Neural Networks, 2017.
"""

from __future__ import annotations

from torch import nn

from mcdensity.networks.layers import StackedAlphaDropout, StackedLinear, StackedNetwork, stacked

__all__ = ["snn"]


@stacked
def snn(
    n_inputs: int, members: int = 1, width: int = 32, depth: int = 2, dropout: float = 0.05
) -> StackedNetwork:
    """Build layers with SELU, alpha dropout and LeCun's initial weights."""
    body: list[nn.Module] = []
    for i in range(depth):
        if i:
            body.append(StackedLinear(members, width, width, lecun=True))
        body += [nn.SELU(), StackedAlphaDropout(dropout)]
    body.append(StackedLinear(members, width, 1, lecun=True))
    return StackedNetwork(StackedLinear(members, n_inputs, width, lecun=True), nn.Sequential(*body))
