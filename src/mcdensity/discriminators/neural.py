"""Neural discriminators: by name, or any torch module."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mcdensity.contrast import ContrastSet
from mcdensity.discriminators.adapters import Discriminator, pair_blocks
from mcdensity.networks.mlp import mlp as build_mlp
from mcdensity.networks.training import as_logit, train

__all__ = ["TorchDiscriminator", "mlp"]

Array = NDArray[np.float64]


class TorchDiscriminator(Discriminator):
    """Any torch module as a discriminator.

    Parameters
    ----------
    module : torch.nn.Module, its class, or a function
        Maps (batch, p + 1) to one logit, or to two. A module is copied, never changed; a class or
        function is called with the number of inputs, p + 1.
    module_params : dict, optional
        More arguments for a class or function.
    steps : int, optional
        Number of training steps; by default 100 passes over the pairs, but at least 300 and at
        most 2000.
    batch_size : int, default 256
    learning_rate : float, default 0.003
    weight_decay : float, default 0.01

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained module.
    """

    def __init__(
        self,
        module: nn.Module | Callable[..., nn.Module],
        module_params: dict[str, Any] | None = None,
        steps: int | None = None,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
    ) -> None:
        self.module = module
        self.module_params = module_params
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay

    def fit(self, contrast: ContrastSet, random_state: np.random.Generator) -> Self:
        """Learn from labelled pairs."""
        n_inputs = contrast.x_pool.shape[1] + contrast.y_pool.shape[1]
        steps = self.steps
        if steps is None:
            steps = int(np.clip(100 * len(contrast) // self.batch_size, 300, 2000))
        # Weights and dropout draw from torch's global generator, which is put back afterwards.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random_state.integers(2**31)))
            self.module_ = train(
                self._build(n_inputs),
                contrast,
                steps=steps,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                rng=random_state,
            )
        self.ratio_ = contrast.ratio
        return self

    def _build(self, n_inputs: int) -> nn.Module:
        if isinstance(self.module, nn.Module):
            return copy.deepcopy(self.module)
        module = self.module(n_inputs, **(self.module_params or {}))
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"The function given as discriminator must return a torch module, got {module!r}."
            )
        return module

    def logit_rows(self, X: Array, Y: Array) -> Array:
        """Logit of q at (X[i], Y[i, j])."""
        out = np.empty(Y.shape)
        with torch.inference_mode():
            for rows, pairs in pair_blocks(X, Y):
                logit = as_logit(self.module_(torch.as_tensor(pairs, dtype=torch.float32)))
                out[rows] = logit.numpy().reshape(-1, Y.shape[1])
        if np.isnan(out).any():
            raise ValueError("The torch module given as discriminator returned NaN.")
        return out

    def describe(self) -> str:
        """Name for messages."""
        return getattr(self.module, "__name__", type(self.module).__name__)


def mlp(
    width: int = 128, depth: int = 2, dropout: float = 0.1, **training: Any
) -> TorchDiscriminator:
    """Multilayer perceptron with batch norm and dropout."""
    return TorchDiscriminator(
        build_mlp, {"width": width, "depth": depth, "dropout": dropout}, **training
    )
