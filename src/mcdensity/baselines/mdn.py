"""Mixture density networks.

References
----------
Bishop: Mixture density networks, 1994. Rothfuss, Ferreira, Boehm, Walther, Ulrich, Asfour, Krause:
Noise regularization for conditional density estimation, 2019.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcdensity._several import SeveralTargets
from mcdensity._validation import check_integer, weighted_quantile
from mcdensity.baselines.neural import NeuralEstimator, ParameterNetwork
from mcdensity.distribution import ConditionalDistribution, GaussianMixtureDistribution

__all__ = ["MDN"]

Array = NDArray[np.float64]

# Scales from a thousandth of a standard deviation of y to twenty of them.
_LOG_SCALES = -7.0, 3.0


class MDN(SeveralTargets, NeuralEstimator):
    """A network gives the weights, means and scales of a Gaussian mixture.

    Parameters
    ----------
    n_components : int, default 10
    width, depth : int
        Of the hidden layers; by default 32 (64 from 5000 rows), and 2.
    members : int, optional
        Networks in the ensemble; by default 5 below 5000 rows, else 1. Their densities are
        averaged, which is a mixture again.
    steps : int, optional
        Budget of training steps; by default 400 for 100 rows, more for more rows, up to 2500.
    batch_size : int, default 512
    learning_rate : float, default 0.02
        The peak of the one-cycle schedule.
    weight_decay : float, default 0.01
    noise : "cv" or float, default "cv"
        Standard deviation of the noise that is added to standardised x and y in training.
    random_state : int, Generator or None
    device : {"auto", "cpu", "cuda"}, default "auto"
    verbose : bool, default False

    Attributes
    ----------
    noise_ : float
        The level of noise whose networks scored best on held-out training rows.
    validation_score_ : float
        Log-likelihood of these rows, in standardised units.
    module_ : torch.nn.Module
    n_steps_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.baselines import MDN
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, size=200)
    >>> model = MDN(random_state=0).fit(x[:, None], x + 0.1 * rng.normal(size=200))
    >>> model.predict_quantiles([[0.5]], 0.5).round(1)
    array([[0.5]])
    """

    def __init__(
        self,
        n_components: int = 10,
        width: int | None = None,
        depth: int = 2,
        members: int | None = None,
        steps: int | None = None,
        batch_size: int = 512,
        learning_rate: float = 0.02,
        weight_decay: float = 0.01,
        noise: str | float = "cv",
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.width = width
        self.depth = depth
        self.members = members
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.noise = noise
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _build(self, p: int, members: int, y: Array, weight: Array | None) -> nn.Module:
        k = check_integer("n_components", self.n_components)
        module = ParameterNetwork(members, p, 3 * k, *self._shape(len(y)))
        means = weighted_quantile(y, (np.arange(k) + 0.5) / k, weight)
        with torch.no_grad():
            module.head.bias[..., k : 2 * k] = torch.as_tensor(means)
            module.head.bias[..., 2 * k :] = -math.log(k) / 2
        return module

    def _parts(self, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-weights, means and log-scales."""
        weights, means, scales = output.chunk(3, dim=-1)
        return weights.log_softmax(-1), means, scales.clamp(*_LOG_SCALES)

    def _row_loss(self, output: Tensor, y: Tensor) -> Tensor:
        log_weights, means, log_scales = self._parts(output)
        z = (y[..., None] - means) * torch.exp(-log_scales)
        terms = log_weights - log_scales - 0.5 * z.square()
        return 0.5 * math.log(2 * math.pi) - terms.logsumexp(-1)

    def _row_size(self) -> int:
        head: Any = self.module_.head
        return head.bias.numel() // 3

    def _distribution(self, X: Array) -> ConditionalDistribution:
        log_weights, means, log_scales = (
            part.double().permute(1, 0, 2).reshape(len(X), -1).numpy()
            for part in self._parts(self._output(X))
        )
        return GaussianMixtureDistribution(np.exp(log_weights), means, np.exp(log_scales))
