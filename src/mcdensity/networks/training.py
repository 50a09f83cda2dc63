"""The one training loop of the package."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from mcdensity.contrast import ContrastSet

__all__ = ["train"]


def train(
    module: nn.Module,
    contrast: ContrastSet,
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    rng: np.random.Generator,
) -> nn.Module:
    """Train a module from pairs to one logit, by binary cross-entropy.

    Batches are gathered from the pools by index: the matrix of all pairs is never made.
    """
    x = torch.as_tensor(contrast.x_pool, dtype=torch.float32)
    y = torch.as_tensor(contrast.y_pool, dtype=torch.float32)
    x_index, y_index = (
        torch.as_tensor(i, dtype=torch.int64) for i in (contrast.x_index, contrast.y_index)
    )
    label = torch.as_tensor(contrast.label, dtype=torch.float32)
    weight = (
        None if contrast.weight is None else torch.as_tensor(contrast.weight, dtype=torch.float32)
    )
    n, batch_size = len(label), min(batch_size, len(label))

    optimizer = torch.optim.AdamW(module.parameters(), lr=learning_rate, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps)
    module.train()
    order, position = rng.permutation(n), 0
    for _ in range(steps):
        if position + batch_size > n:
            order, position = rng.permutation(n), 0
        batch = torch.as_tensor(order[position : position + batch_size])
        position += batch_size
        pairs = torch.cat([x[x_index[batch]], y[y_index[batch]]], dim=1)
        logit = as_logit(module(pairs))
        loss = nn.functional.binary_cross_entropy_with_logits(
            logit, label[batch], None if weight is None else weight[batch]
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return module.eval()


def as_logit(output: torch.Tensor) -> torch.Tensor:
    """Turn a module's output, (batch,), (batch, 1) or two logits (batch, 2), into one logit."""
    if output.ndim == 2 and output.shape[1] == 2:
        return output[:, 1] - output[:, 0]
    if output.ndim == 2 and output.shape[1] == 1:
        return output[:, 0]
    if output.ndim == 1:
        return output
    raise ValueError(
        "The torch module must map (batch, p + 1) to one logit (batch, 1) or to two (batch, 2); "
        f"it returned shape {tuple(output.shape)}."
    )
