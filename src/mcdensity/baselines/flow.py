"""Normalising flows: an invertible map of y to a normal variable, which depends on x.

References
----------
Rezende, Mohamed: Variational inference with normalizing flows, 2015. Durkan, Bekasov, Murray,
Papamakarios: Neural spline flows, 2019. Trippe, Turner: Conditional density estimation with
Bayesian normalising flows, 2018.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcdensity._several import SeveralTargets
from mcdensity._validation import check_integer, require
from mcdensity.baselines.neural import NeuralEstimator, ParameterNetwork
from mcdensity.distribution import Reference
from mcdensity.marginals import TailedDensity

__all__ = ["NormalizingFlow"]

Array = NDArray[np.float64]

# Scales from a thousandth of a standard deviation of y to twenty of them.
_LOG_SCALES = -7.0, 3.0


class NormalizingFlow(SeveralTargets, NeuralEstimator):
    """A flow from y to a standard normal variable, whose parameters come from a network.

    Parameters
    ----------
    flow : {"spline", "radial"}, default "spline"
        A scale and shift, followed by a rational-quadratic spline (from `zuko`, extra `flow`) or by
        radial flows.
    n_bins : int, default 8
        Bins of the spline.
    n_flows : int, default 10
        Number of radial flows.
    width, depth : int
        Of the hidden layers; by default 32 (64 from 5000 rows), and 2.
    members : int, optional
        Networks in the ensemble, whose densities are averaged; by default 5 below 5000 rows, else
        1.
    steps : int, optional
        Budget of training steps; by default 400 for 100 rows, more for more rows, up to 2500.
    batch_size : int, default 512
    learning_rate : float, default 0.01
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
    >>> from mcdensity.baselines import NormalizingFlow
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, size=200)
    >>> model = NormalizingFlow(random_state=0).fit(x[:, None], x + 0.1 * rng.normal(size=200))
    >>> model.predict_quantiles([[0.5]], 0.5).round(1)
    array([[0.5]])
    """

    def __init__(
        self,
        flow: str = "spline",
        n_bins: int = 8,
        n_flows: int = 10,
        width: int | None = None,
        depth: int = 2,
        members: int | None = None,
        steps: int | None = None,
        batch_size: int = 512,
        learning_rate: float = 0.01,
        weight_decay: float = 0.01,
        noise: str | float = "cv",
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.flow = flow
        self.n_bins = n_bins
        self.n_flows = n_flows
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
        if self.flow not in ("spline", "radial"):
            raise ValueError(f'flow must be "spline" or "radial", got {self.flow!r}.')
        bins, flows = (check_integer(name, getattr(self, name)) for name in ("n_bins", "n_flows"))
        if self.flow == "spline":
            require("zuko", "flow")
        self._kind = self.flow, bins if self.flow == "spline" else flows
        self._marginal = TailedDensity().fit(y, sample_weight=weight)
        outputs = 2 + (3 * bins - 1 if self.flow == "spline" else 3 * flows)
        return ParameterNetwork(members, p, outputs, *self._shape(len(y)))

    def _row_size(self) -> int:
        # Evaluating a spline takes several numbers per bin, for each member and point.
        members = next(self.module_.parameters()).shape[0]
        return len(self._knots) * members * self._kind[1]

    def _log_density(self, output: Tensor, y: Tensor) -> Tensor:
        """Log-density at y, broadcast against output[..., 0]."""
        shift, log_scale = output[..., 0], output[..., 1].clamp(*_LOG_SCALES)
        z = (y - shift) * torch.exp(-log_scale)
        flow = _spline if self._kind[0] == "spline" else _radial
        z, log_slope = flow(output[..., 2:], z, self._kind[1])
        return log_slope - log_scale - 0.5 * z.square() - 0.5 * math.log(2 * math.pi)

    def _row_loss(self, output: Tensor, y: Tensor) -> Tensor:
        return -self._log_density(output, y)

    def _reference(self) -> Reference:
        return self._marginal

    def _log_density_rows(self, X: Array, Y: Array) -> Array:
        output = self._output(X)
        with torch.inference_mode():
            y = torch.as_tensor(np.array(Y))  # a copy: grids may be read-only views
            parts = self._log_density(output.double()[:, :, None], y)
            return (parts.logsumexp(0) - math.log(len(parts))).numpy()


def _spline(parameters: Tensor, z: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Map z by a spline on [-5, 5], and by the identity outside; return also the log-slope."""
    from zuko.transforms import MonotonicRQSTransform

    widths, heights, slopes = parameters.split([bins, bins, bins - 1], dim=-1)
    return MonotonicRQSTransform(widths, heights, slopes).call_and_ladj(z)


def _radial(parameters: Tensor, z: Tensor, flows: int) -> tuple[Tensor, Tensor]:
    """Map z by radial flows z + beta (z - c) / (alpha + |z - c|), which increase in z."""
    log_slope = torch.zeros_like(z)
    softplus = nn.functional.softplus
    for k in range(flows):
        center, a, b = parameters[..., 3 * k : 3 * k + 3].unbind(-1)
        alpha = softplus(a) + 1e-3
        beta = alpha * (softplus(b) / math.log(2) - 1)  # more than -alpha, and 0 at the start
        distance = alpha + (z - center).abs()
        log_slope = log_slope + torch.log1p(alpha * beta / distance.square())
        z = z + beta * (z - center) / distance
    return z, log_slope
