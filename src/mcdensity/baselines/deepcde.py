"""DeepCDE: a network gives the coefficients of a cosine series, trained on the CDE loss itself.

References
----------
Dalmasso, Pospisil, Lee, Izbicki, Freeman, Malz: Conditional density estimation tools in Python and
R with applications to photometric redshifts and likelihood-free cosmological inference, 2020.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcdensity.baselines.neural import NeuralEstimator
from mcdensity.baselines.series import SeriesEstimator, check_n_basis
from mcdensity.networks.mlp import mlp

__all__ = ["DeepCDE"]

Array = NDArray[np.float64]


class DeepCDE(SeriesEstimator, NeuralEstimator):
    r"""Cosine series whose coefficients come from one network, trained on the CDE loss.

    .. math:: \frac1n \sum_k \left(\sum_i \beta_i(x_k)^2
        - 2 \sum_i \beta_i(x_k) \, \phi_i(z_k)\right)

    The network is that of ``MCD(discriminator="mlp")``.

    Parameters
    ----------
    n_basis : int, optional
        The largest number of basis functions; by default 31, or as many as there are rows.
    bump_threshold : float, optional
        Isolated bumps of less mass are dropped; by default this threshold is chosen.
    sharpen : float, optional
        Exponent the density is raised to, 1 for none; None: chosen.
    floor : float, optional
        Share of the marginal density, which keeps densities positive; by default 2 / (n + 1).
    width, depth : int
        Of the hidden layers; by default 32 (64 from 5000 rows), and 2.
    members : int, optional
        Networks in the ensemble, whose coefficients are averaged; by default 5 below 5000 rows,
        else 1.
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
    n_basis_ : int
        Number of terms in use: chosen, as the threshold is, by held-out training rows. With 1 there
        is no network, and none of the attributes below.
    bump_threshold_, sharpen_, floor_, cde_loss_ : float
    noise_ : float
        The level of noise whose networks scored best on held-out training rows.
    module_ : torch.nn.Module
    n_steps_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.baselines import DeepCDE
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, size=200)
    >>> model = DeepCDE(random_state=0).fit(x[:, None], x + 0.1 * rng.normal(size=200))
    >>> model.predict([[0.5]]).round(1)
    array([0.5])
    """

    def __init__(
        self,
        n_basis: int | None = None,
        bump_threshold: float | None = None,
        sharpen: float | None = 1.0,
        floor: float | None = None,
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
        self.n_basis = n_basis
        self.bump_threshold = bump_threshold
        self.sharpen = sharpen
        self.floor = floor
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

    def _fit(self, X: Array, y: Array, sample_weight: Array | None, **extra: Any) -> None:
        self.n_basis_ = check_n_basis(self.n_basis, len(y))
        z, inside = self._set_range(y, sample_weight)
        X, y = X[inside], y[inside]
        sample_weight = None if sample_weight is None else sample_weight[inside]
        self.n_basis_ = min(self.n_basis_, len(y))
        if self.n_basis_ == 1:
            return
        held_out = self._train(X, y, sample_weight)
        if held_out is not None:
            held = held_out.held
            rows = np.flatnonzero(held.any(axis=0))
            # Coefficients of each row by the members that did not see it.
            of_member = self._output(X[rows]).double().numpy()
            share = held[:, rows] / held[:, rows].sum(axis=0)
            apart = np.einsum("mr,mri->ri", share, of_member)
            coefficients = np.column_stack([np.ones(len(rows)), apart])
            weight = None if sample_weight is None else sample_weight[rows]
            self._tune(coefficients, z[rows], weight)

    def _build(self, p: int, members: int, y: Array, weight: Array | None) -> nn.Module:
        width, depth = self._shape(len(y))
        network = mlp(p, members, width, depth, n_outputs=self.n_basis_ - 1)
        return nn.Sequential(network.first, *network.body)

    def _row_loss(self, output: Tensor, y: Tensor) -> Tensor:
        low, high = self.y_range_
        z = ((y - low) / (high - low)).clamp(0, 1)
        order = torch.arange(1, self.n_basis_, device=y.device)
        basis = np.sqrt(2) * torch.cos(torch.pi * z[..., None] * order)
        return (output.square() - 2 * output * basis).sum(-1)

    def _coefficients(self, X: Array) -> Array:
        if self.n_basis_ == 1:
            return np.ones((len(X), 1))
        mean = self._output(X).double().mean(0).numpy()
        return np.column_stack([np.ones(len(X)), mean])
