"""Kernel mixture networks.

References
----------
Ambrogioni, Güçlü, van Gerven, Maris: The kernel mixture network, 2017.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from mcdensity._validation import check_integer
from mcdensity.baselines.neural import NeuralEstimator, ParameterNetwork
from mcdensity.distribution import ConditionalDistribution, GaussianMixtureDistribution

__all__ = ["KMN"]

Array = NDArray[np.float64]

# Targets that centres are chosen from, at most: it bounds the cost of clustering.
_CLUSTERED = 10_000
# Scales from a 150th of a standard deviation of y to seven of them.
_LOG_SCALES = -5.0, 2.0


class KMN(NeuralEstimator):
    """Kernels at fixed centres, in several scales; a network gives their weights.

    Parameters
    ----------
    n_centers : int, default 50
        Found by k-means among the targets; the smallest and the largest target are centres too.
    scales : sequence of float, default (0.7, 0.3)
        Scales that each centre has, in standard deviations of y.
    train_scales : bool, default True
        Whether the scales are learned, starting from `scales`.
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
    centers_ : ndarray of shape (n_centers,)
        In standardised units.
    scales_ : ndarray of shape (members, number of scales)
    noise_ : float
        The level of noise whose networks scored best on held-out training rows.
    validation_score_ : float
        Log-likelihood of these rows, in standardised units.
    module_ : torch.nn.Module
    n_steps_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.baselines import KMN
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, size=200)
    >>> model = KMN(random_state=0).fit(x[:, None], x + 0.1 * rng.normal(size=200))
    >>> model.predict_quantiles([[0.5]], 0.5).round(1)
    array([[0.5]])
    """

    def __init__(
        self,
        n_centers: int = 50,
        scales: Sequence[float] = (0.7, 0.3),
        train_scales: bool = True,
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
        self.n_centers = n_centers
        self.scales = scales
        self.train_scales = train_scales
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
        count = check_integer("n_centers", self.n_centers)
        try:
            scales = np.asarray(self.scales, dtype=np.float64)
        except (TypeError, ValueError):
            scales = np.empty(0)
        low, high = np.exp(_LOG_SCALES)
        if scales.ndim != 1 or len(scales) == 0 or not ((scales > low) & (scales < high)).all():
            raise ValueError(
                f"scales must hold numbers between {low:.2g} and {high:.2g}, in standard "
                f"deviations of y; got {self.scales!r}."
            )
        self.centers_ = _centers(y, weight, count)
        outputs = len(self.centers_) * len(scales)
        return _KernelNetwork(
            ParameterNetwork(members, p, outputs, *self._shape(len(y))),
            torch.as_tensor(np.log(scales)).expand(members, -1),
            bool(self.train_scales),
        )

    def _log_terms(self, output: Tensor, scales: Tensor, y: Tensor) -> Tensor:
        """Log-densities of the kernels with their weights, (members, rows, kernels)."""
        members, rows = output.shape[:2]
        centers = torch.as_tensor(self.centers_, dtype=output.dtype, device=output.device)
        z = (y[..., None, None] - centers) * torch.exp(-scales)[:, None, :, None]
        kernels = -0.5 * z.square() - scales[:, None, :, None]
        return output.log_softmax(-1) + kernels.reshape(members, rows, -1)

    def _row_loss(self, output: Tensor, y: Tensor) -> Tensor:
        # The module appends its scales to the weights, so that they learn too.
        count = output.shape[-1] // (len(self.centers_) + 1)
        scales = output[:, 0, -count:]
        y = y.expand(len(output), -1)
        terms = self._log_terms(output[..., :-count], scales, y)
        return 0.5 * math.log(2 * math.pi) - terms.logsumexp(-1)

    def _row_size(self) -> int:
        return len(self.centers_) * self.scales_.size

    @property
    def scales_(self) -> Array:
        """Scales of the members, shape (members, number of scales)."""
        log_scales: Any = self.module_.log_scales
        return np.exp(log_scales.detach().double().clamp(*_LOG_SCALES).numpy())

    def _distribution(self, X: Array) -> ConditionalDistribution:
        output = self._output(X)[..., : -self.scales_.shape[1]].double()
        weights = output.softmax(-1).permute(1, 0, 2).reshape(len(X), -1).numpy()
        means = np.tile(self.centers_, self.scales_.size)
        scales = np.repeat(self.scales_.ravel(), len(self.centers_))
        return GaussianMixtureDistribution(weights, means[None], scales[None])


class _KernelNetwork(nn.Module):
    """A network for the weights, and the scales beside it."""

    def __init__(self, network: nn.Module, log_scales: Tensor, learn: bool) -> None:
        super().__init__()
        self.network = network
        self.log_scales = nn.Parameter(log_scales.clone().float(), requires_grad=learn)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.network(x)
        scales = self.log_scales.clamp(*_LOG_SCALES)[:, None].expand(-1, weights.shape[1], -1)
        return torch.cat([weights, scales], dim=-1)


def _centers(y: Array, weight: Array | None, count: int) -> Array:
    distinct = np.unique(y)
    if len(distinct) <= count:
        return distinct
    some = np.linspace(0, len(y) - 1, min(len(y), _CLUSTERED)).astype(np.intp)
    start = np.quantile(y[some], (np.arange(count) + 0.5) / count)
    start = np.unique(start)
    means = KMeans(len(start), init=start[:, None], n_init=1, max_iter=50)
    with warnings.catch_warnings():
        # Fewer clusters than asked for are fine: equal centres are dropped below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        means.fit(y[some, None], sample_weight=None if weight is None else weight[some])
    return np.unique(np.concatenate([means.cluster_centers_[:, 0], distinct[[0, -1]]]))
