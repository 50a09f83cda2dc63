r"""Networks whose log-ratio T(x, y) is cheap on a grid of y.

Both see y and its normal score :math:`z = \Phi^{-1}(F_Y(y))`, in which the marginal is standard
normal. What depends on x alone is computed once a row: `parameters`; `ratio` then combines it with
any number of y.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor, nn

from mcdensity.networks.layers import StackedLinear
from mcdensity.networks.parameters import ParameterNetwork

__all__ = ["MixtureTower", "NormalScores", "TwoTower"]

_LOG_SCALES = (-6.0, 3.0)
# What a grid of some hundred quantiles still resolves.
_LOG_PRECISIONS = (-3.0, 3.5)
_MOST = 100.0
_COEFFICIENTS = 4


class NormalScores:
    """The map from y to its normal score, linear between quantiles of the marginal.

    Parameters
    ----------
    quantiles : ndarray of shape (k,)
        Ascending values of y.
    levels : ndarray of shape (k,)
        The probabilities below them.
    """

    def __init__(self, quantiles: NDArray[np.float64], levels: NDArray[np.float64]) -> None:
        self.knots, first = np.unique(quantiles.astype(np.float32), return_index=True)
        self.scores = ndtri(levels[first]).astype(np.float32)
        # The logarithm of dz/dy in the middle of the pieces, for the density of y.
        with np.errstate(divide="ignore"):
            slope = np.log(np.diff(self.scores) / np.diff(self.knots))
        self.middles, self.log_slopes = (self.knots[1:] + self.knots[:-1]) / 2, slope

    def __call__(self, y: Tensor) -> Tensor:
        """Return z; beyond the outer knots the line goes on for as long as its last piece."""
        if len(self.knots) < 2:
            return torch.zeros_like(y)
        knots, scores = (torch.as_tensor(a, device=y.device) for a in (self.knots, self.scores))
        i = torch.searchsorted(knots, y.contiguous()).clamp(1, len(knots) - 1)
        low, high, start, stop = knots[i - 1], knots[i], scores[i - 1], scores[i]
        return start + (stop - start) * ((y - low) / (high - low)).clamp(-1, 2)

    def shifted(self, y: Tensor, step: Tensor) -> Tensor:
        """Return the y whose score is that of `y` plus a step: noise where y is dense is small."""
        if len(self.knots) < 2:
            return y
        knots, scores = (torch.as_tensor(a, device=y.device) for a in (self.knots, self.scores))
        z = (self(y) + step).contiguous()
        i = torch.searchsorted(scores, z).clamp(1, len(knots) - 1)
        part = ((z - scores[i - 1]) / (scores[i] - scores[i - 1])).clamp(-1, 2)
        return knots[i - 1] + (knots[i] - knots[i - 1]) * part

    def log_slope(self, y: Tensor) -> Tensor:
        """Return log dz/dy, linear between the middles of the pieces: a smooth version of it."""
        if len(self.middles) < 2:
            return torch.zeros_like(y)
        places, values = (
            torch.as_tensor(a, device=y.device) for a in (self.middles, self.log_slopes)
        )
        i = torch.searchsorted(places, y.contiguous()).clamp(1, len(places) - 1)
        part = ((y - places[i - 1]) / (places[i] - places[i - 1])).clamp(0, 1)
        return values[i - 1] + (values[i] - values[i - 1]) * part


class TwoTower(nn.Module):
    r"""A separable log-ratio, :math:`T(x, y) = a(x) \cdot \varphi(y)`.

    :math:`\varphi` has learned features, and y, -y²/2, z, -z²/2. The coefficients of the last two
    come from a mean and a scale, so that normal distributions of z, sharp and shifted ones too, are
    in the family. The densities of n rows on G points are one product of matrices.

    Parameters
    ----------
    scores : NormalScores
    members, n_inputs, width, depth : int
        Of the tower of x.
    n_features : int
        Learned features of y.
    """

    normalised = False

    def __init__(
        self,
        scores: NormalScores,
        members: int,
        n_inputs: int,
        width: int,
        depth: int,
        n_features: int = 16,
    ) -> None:
        super().__init__()
        self.scores = scores
        self.n_features = n_features
        self.x_tower = ParameterNetwork(members, n_inputs, n_features + _COEFFICIENTS, width, depth)
        self.y_tower = nn.Sequential(
            StackedLinear(members, 2, n_features), nn.Tanh(),
            StackedLinear(members, n_features, n_features), nn.Tanh(),
            StackedLinear(members, n_features, n_features),
        )  # fmt: skip
        with torch.no_grad():  # features of y that bend within its range
            for parameter, factor in zip(self.y_tower[0].parameters(), (2.0, 3.0), strict=True):
                parameter.mul_(factor)

    def parameters_of(self, x: Tensor) -> Tensor:
        """Coefficients a(x), and a constant that keeps T near 0: (members, rows, D + 1)."""
        out = self.x_tower(x)
        free, (mean, log_scale, of_y, of_square) = (
            out[..., : self.n_features],
            out[..., self.n_features :].unbind(-1),
        )
        log_precision = log_scale.clamp(*_LOG_PRECISIONS)
        precision = torch.exp(2 * log_precision)
        constant = log_precision - mean.square() * precision / 2
        # Bounded, for the same reason: no peak may hide between the points of the normaliser.
        of_y, of_square = of_y.clamp(-_MOST, _MOST), of_square.clamp(-3, _MOST)
        last = torch.stack([of_y, of_square, mean * precision, precision - 1, constant], -1)
        return torch.cat([free, last], -1)

    def features(self, y: Tensor) -> Tensor:
        """Features of points y, (members, m, D + 1), for y of shape (members, m)."""
        z = self.scores(y)
        learned = self.y_tower(torch.stack([y, z], -1))
        known = torch.stack([y, -y.square() / 2, z, -z.square() / 2, torch.ones_like(y)], -1)
        return torch.cat([learned, known], -1)

    def own(self, parameters: Tensor, y: Tensor) -> Tensor:
        """T of each row at its own y, (members, rows)."""
        return (parameters * self.features(y)).sum(-1)

    def grid(self, parameters: Tensor, y: Tensor) -> Tensor:
        """T of each row at points y, (members, rows, m); y is (m,) or (rows, m)."""
        members, rows = parameters.shape[:2]
        if y.ndim == 1:
            return torch.bmm(parameters, self.features(y.expand(members, -1)).mT)
        features = self.features(y.reshape(1, -1).expand(members, -1))
        features = features.reshape(members, rows, y.shape[1], -1)
        return torch.einsum("mnd,mngd->mng", parameters, features)


class MixtureTower(nn.Module):
    r"""A mixture of normal distributions of y and of its normal score z, relative to the marginal.

    .. math:: T(x, y) = \log \Bigl( \sum_{k \le K} w_k \, \frac{N(z; \mu_k, \sigma_k)}{N(z; 0, 1)}
        + \sum_{k > K} w_k \, \frac{N(y; \mu_k, \sigma_k)}{f_Y(y)} \Bigr)

    with parameters that depend on x. Its normaliser is 1 whatever they are, so that the exact loss
    needs no grid.

    Parameters
    ----------
    scores : NormalScores
    members, n_inputs, width, depth : int
    n_components : int
        Half of them, rounded up, are normal in z, the others in y.
    """

    normalised = True

    def __init__(
        self,
        scores: NormalScores,
        members: int,
        n_inputs: int,
        width: int,
        depth: int,
        n_components: int = 10,
    ) -> None:
        super().__init__()
        self.scores = scores
        k = n_components
        self.network = ParameterNetwork(members, n_inputs, 3 * k, width, depth)
        with torch.no_grad():  # at first the components share the marginal among them
            in_z, in_y = k - k // 2, k // 2
            means = [ndtri((np.arange(m) + 0.5) / m) for m in (in_z, in_y)]
            means[1] = np.interp(means[1], scores.scores, scores.knots)
            self.network.head.bias[..., k : 2 * k] = torch.as_tensor(np.concatenate(means))
            self.network.head.bias[..., 2 * k :] = -math.log(in_z) / 2

    def parameters_of(self, x: Tensor) -> Tensor:
        """Log-weights, means and log-scales: (members, rows, 3 k)."""
        weights, means, scales = self.network(x).chunk(3, dim=-1)
        return torch.cat([weights.log_softmax(-1), means, scales.clamp(*_LOG_SCALES)], -1)

    def own(self, parameters: Tensor, y: Tensor) -> Tensor:
        """T of each row at its own y, (members, rows)."""
        z = self.scores(y)
        log_weights, means, log_scales = parameters.chunk(3, dim=-1)
        k = log_weights.shape[-1]
        counts = k - k // 2, k // 2
        # z for the first components, y for the others; a density of y is one of z over dz/dy.
        points = torch.cat([v[..., None].expand(*v.shape, c)
                            for v, c in zip((z, y), counts, strict=True)], -1)  # fmt: skip
        slope = self.scores.log_slope(y)[..., None]
        lost = torch.cat([slope.new_zeros(1).expand(*slope.shape[:-1], counts[0]),
                          slope.expand(*slope.shape[:-1], counts[1])], -1)  # fmt: skip
        distance = (points - means) * torch.exp(-log_scales)
        terms = log_weights - log_scales - distance.square() / 2 - lost
        return terms.logsumexp(-1) + z.square() / 2

    def grid(self, parameters: Tensor, y: Tensor) -> Tensor:
        """T of each row at points y, (members, rows, m); y is (m,) or (rows, m)."""
        return self.own(parameters[:, :, None], y.expand(*parameters.shape[:2], y.shape[-1]))
