"""Multilayer perceptron."""

from __future__ import annotations

from torch import nn

__all__ = ["mlp"]


def mlp(n_inputs: int, width: int = 128, depth: int = 2, dropout: float = 0.1) -> nn.Sequential:
    """Build hidden layers of equal width, each with batch norm, ReLU and dropout, and one logit."""
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [
            nn.Linear(width if i else n_inputs, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(dropout),
        ]
    return nn.Sequential(*layers, nn.Linear(width, 1))
