r"""Networks whose density of y given x is cheap at many y.

They see y, in the inner coordinate of its target, and its normal score
:math:`z = \Phi^{-1}(F_Y(y))`, in which the marginal is standard normal. What depends on x alone is
computed once per row, `parameters_of`; `log_density` then combines it with any number of y.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor, nn

from mcdensity.networks.layers import StackedLinear
from mcdensity.networks.parameters import ParameterNetwork
from mcdensity.networks.scores import NormalScores

__all__ = ["TOWERS", "FlowTower", "MixtureTower", "TwoTower", "log_mean", "spline"]

# Scales from a 400th of a standard deviation of y, which grids still resolve, to twenty of them.
_LOG_SCALES = (-6.0, 3.0)
# What a grid of a few hundred quantiles still resolves.
_LOG_PRECISIONS = (-3.0, 3.5)
_MOST = 100.0
_COEFFICIENTS = 4
# The largest log-ratio whose exponential single precision holds.
_LARGEST = 80.0
# The least part of the probability above y that is taken to be below the largest y.
_LEAST_SHARE = 1e-6
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


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

    noise_in_score = True

    def __init__(
        self,
        scores: NormalScores,
        members: int,
        n_inputs: int,
        width: int,
        depth: int,
        n_features: int = 16,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        self.scores = scores
        self.n_features = n_features
        self.x_tower = ParameterNetwork(
            members, n_inputs, n_features + _COEFFICIENTS, width, depth, dropout
        )
        self.y_tower = nn.Sequential(
            StackedLinear(members, 2, n_features), nn.Tanh(),
            StackedLinear(members, n_features, n_features), nn.Tanh(),
            StackedLinear(members, n_features, n_features),
        )  # fmt: skip
        with torch.no_grad():  # features of y that bend within its range
            for parameter, factor in zip(self.y_tower[0].parameters(), (2.0, 3.0), strict=True):
                parameter.mul_(factor)

    def outputs(self, x: Tensor) -> Tensor:
        """What the network says of rows."""
        return self.x_tower(x)

    def shaped(self, out: Tensor) -> Tensor:
        """Coefficients a(x), and a constant that keeps T near 0: (members, rows, D + 1)."""
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

    def features(self, y: Tensor, z: Tensor) -> Tensor:
        """Features of points y and their scores, (members, m, D + 1), for y (members, m)."""
        learned = self.y_tower(torch.stack([y, z], -1))
        known = torch.stack([y, -y.square() / 2, z, -z.square() / 2, torch.ones_like(y)], -1)
        return torch.cat([learned, known], -1)

    def _shared_features(self, y: Tensor, members: int) -> Tensor:
        """Features of points (m,) that all members have."""
        return self.features(y.expand(members, -1), self.scores(y).expand(members, -1))

    def ratio(self, parameters: Tensor, y: Tensor) -> Tensor:
        """T of each row at points y, (members, rows, m); y is (m,) or (rows, m)."""
        members, rows = parameters.shape[:2]
        if y.ndim == 1:
            return torch.bmm(parameters, self._shared_features(y, members).mT)
        features = self._shared_features(y.reshape(-1), members)
        features = features.reshape(members, rows, y.shape[1], -1)
        return torch.einsum("mnd,mngd->mng", parameters, features)

    def parameters_of(self, x: Tensor) -> Tensor:
        """Parameters of the densities of rows: (members, rows, D + 1)."""
        return self.shaped(self.outputs(x))

    def own(
        self, out: Tensor, y: Tensor, z: Tensor, log_f: Tensor, points: Callable[[], Tensor]
    ) -> Tensor:
        """Log-density of each row at its own y, (members, rows), see `_DensityTower.own`."""
        parameters = self.shaped(out)
        own = (parameters * self.features(y, z)).sum(-1)
        # With a row's own y among the points a peak at that y is not missed.
        value = torch.cat([self.ratio(parameters, points()), own[..., None]], -1)
        return own - log_mean(value) + log_f

    def conditioned(self, x: Tensor, points: Tensor) -> Tensor:
        """Parameters of the rows, with which the density integrates to one."""
        parameters = self.parameters_of(x)
        constant = parameters[..., -1:] - log_mean(self.ratio(parameters, points))[..., None]
        return torch.cat([parameters[..., :-1], constant], -1)

    def log_density(self, parameters: Tensor, y: Tensor, log_f: Tensor) -> Tensor:
        """Log-density of each row at points y, see `_DensityTower.log_density`."""
        return self.ratio(parameters, y.clamp(*self.scores.limits)) + log_f

    def density_ratio(self, parameters: Tensor, y: Tensor, log_f: Tensor) -> Tensor:
        """Density of each row over the marginal's at points y, see `log_density`."""
        return self.ratio(parameters, y.clamp(*self.scores.limits)).clamp_(max=_LARGEST).exp_()


class _DensityTower(nn.Module):
    """A family of densities of y: its normaliser is 1 whatever its parameters are.

    Subclasses have a `network`, and ``_log_density(parameters, y, z, log_f)`` for parameters of
    shape (members, rows, d) and values of shape (members, rows, m).
    """

    noise_in_score = False

    def __init__(self, scores: NormalScores, network: ParameterNetwork) -> None:
        super().__init__()
        self.scores, self.network = scores, network

    def _log_density(self, parameters: Tensor, y: Tensor, z: Tensor, log_f: Tensor) -> Tensor:
        raise NotImplementedError

    def survival(self, parameters: Tensor, y: Tensor) -> Tensor:
        """Log-probability of each row that its target is larger than y, (members, rows)."""
        raise NotImplementedError

    def survival_below(self, parameters: Tensor, y: Tensor, top: float) -> Tensor:
        """Log-probability that the target is larger than y, and not than `top`."""
        above = self.survival(parameters, y)
        beyond = self.survival(parameters, torch.full_like(y, top))
        return above + torch.log(-torch.expm1((beyond - above).clamp(max=-_LEAST_SHARE)))

    def outputs(self, x: Tensor) -> Tensor:
        """What the network says of rows: (members, rows, d)."""
        return self.network(x)

    def shaped(self, out: Tensor) -> Tensor:
        """Parameters of the densities, from what the network says."""
        return out

    def parameters_of(self, x: Tensor) -> Tensor:
        """Parameters of the densities of rows: (members, rows, d)."""
        return self.shaped(self.outputs(x))

    def conditioned(self, x: Tensor, points: Tensor) -> Tensor:
        """Parameters of the rows, with which the density integrates to one."""
        return self.parameters_of(x)

    def own(
        self, out: Tensor, y: Tensor, z: Tensor, log_f: Tensor, points: Callable[[], Tensor]
    ) -> Tensor:
        """Log-density of each row at its own y, (members, rows).

        Parameters
        ----------
        out : Tensor of shape (members, rows, d)
            What the network says of the rows.
        y, z, log_f : Tensor of shape (members, rows)
            Targets, their scores, and their log-density under a marginal that has not seen them.
        points : callable
            Returns points, (m,), where a density without a closed form is normalised.
        """
        at = (a[..., None] for a in (y, z, log_f))
        return self._log_density(self.shaped(out), *at)[..., 0]

    def log_density(self, parameters: Tensor, y: Tensor, log_f: Tensor) -> Tensor:
        """Log-density of each row at points y, (members, rows, m).

        Parameters
        ----------
        parameters : Tensor of shape (members, rows, d)
        y, log_f : Tensor of shape (m,) or (rows, m)
            Points, and the marginal's log-density there.
        """
        z = self.scores(y)
        shape = *parameters.shape[:2], y.shape[-1]
        y, z, log_f = (a.expand(shape) for a in (y, z, log_f))
        return self._log_density(parameters, y, z, log_f)

    def density_ratio(self, parameters: Tensor, y: Tensor, log_f: Tensor) -> Tensor:
        """Density of each row over the marginal's at points y, see `log_density`."""
        return self.log_density(parameters, y, log_f).sub_(log_f).clamp_(max=_LARGEST).exp_()


class MixtureTower(_DensityTower):
    r"""A mixture of normal distributions of y and of its normal score z.

    .. math:: f(y \mid x) = f_Y(y) \sum_{k \le K} w_k \, \frac{N(z; \mu_k, \sigma_k)}{N(z; 0, 1)}
        + \sum_{k > K} w_k \, N(y; \mu_k, \sigma_k)

    with parameters that depend on x.

    Parameters
    ----------
    scores : NormalScores
    members, n_inputs, width, depth : int
    n_components : int
        Half of them, rounded up, are normal in z, the others in y.
    """

    noise_in_score = True

    def __init__(
        self,
        scores: NormalScores,
        members: int,
        n_inputs: int,
        width: int,
        depth: int,
        n_components: int = 10,
        dropout: float | None = None,
    ) -> None:
        k = n_components
        network = ParameterNetwork(members, n_inputs, 3 * k, width, depth, dropout)
        super().__init__(scores, network)
        with torch.no_grad():  # at the start the components together make up the marginal
            in_z, in_y = k - k // 2, k // 2
            means = [ndtri((np.arange(m) + 0.5) / m) for m in (in_z, in_y)]
            means[1] = np.interp(means[1], scores.scores, scores.knots)
            self.network.head.bias[..., k : 2 * k] = torch.as_tensor(np.concatenate(means))
            self.network.head.bias[..., 2 * k :] = -math.log(in_z) / 2

    def shaped(self, out: Tensor) -> Tensor:
        """Log-weights, means and log-scales: (members, rows, 3 k)."""
        weights, means, scales = out.chunk(3, dim=-1)
        return torch.cat([weights.log_softmax(-1), means, scales.clamp(*_LOG_SCALES)], -1)

    def _log_density(self, parameters: Tensor, y: Tensor, z: Tensor, log_f: Tensor) -> Tensor:
        """Log-density of y: (members, rows, m)."""
        log_weights, means, log_scales = parameters[:, :, None].chunk(3, dim=-1)
        k = log_weights.shape[-1]
        counts = k - k // 2, k // 2
        # z for the first components, y for the others; a density of z times dz/dy is one of y.
        points = torch.cat([v[..., None].expand(*v.shape, c)
                            for v, c in zip((z, y), counts, strict=True)], -1)  # fmt: skip
        distance = (points - means) * torch.exp(-log_scales)
        terms = log_weights - log_scales - distance.square() / 2 - _HALF_LOG_2PI
        in_z = terms[..., : counts[0]].logsumexp(-1) + log_f + z.square() / 2 + _HALF_LOG_2PI
        if counts[1] == 0:
            return in_z
        return torch.logaddexp(in_z, terms[..., counts[0] :].logsumexp(-1))

    def density_ratio(self, parameters: Tensor, y: Tensor, log_f: Tensor) -> Tensor:
        """Density of each row over the marginal's at points y, see `log_density`.

        Component by component: five times as fast here as sums over a last axis of ten.
        """
        z = self.scores(y)
        log_weights, means, log_scales = parameters.chunk(3, dim=-1)
        k = log_weights.shape[-1]
        height, width = log_weights - log_scales, torch.exp(-log_scales) * math.sqrt(0.5)
        of_z, of_y = z.square() / 2, -log_f - _HALF_LOG_2PI
        total = torch.zeros(*parameters.shape[:2], y.shape[-1], dtype=parameters.dtype)
        for j in range(k):
            at, base = (z, of_z) if j < k - k // 2 else (y, of_y)
            distance = (at - means[..., j, None]).mul_(width[..., j, None])
            term = base + height[..., j, None]
            # Numbers too small for single precision are slow, and negligible.
            total += term.addcmul_(distance, distance, value=-1).clamp_(min=-_LARGEST).exp_()
        return total.clamp_(max=math.exp(_LARGEST))

    def survival(self, parameters: Tensor, y: Tensor) -> Tensor:
        """Log-probability of each row that its target is larger than y, (members, rows)."""
        log_weights, means, log_scales = parameters.chunk(3, dim=-1)
        first = log_weights.shape[-1] - log_weights.shape[-1] // 2
        # z > z(y) where y is larger: each component has its own coordinate.
        z = self.scores(y)[..., None]
        above = torch.cat([means[..., :first] - z, means[..., first:] - y[..., None]], -1)
        log_tail = torch.special.log_ndtr(above * torch.exp(-log_scales))
        return (log_weights + log_tail).logsumexp(-1)

    def own(
        self, out: Tensor, y: Tensor, z: Tensor, log_f: Tensor, points: Callable[[], Tensor]
    ) -> Tensor:
        """Log-density of each row at its own y, see `_DensityTower.own`."""
        # Log of the factor that makes a density of z, or of y, one of y; see `_log_density`.
        of_z = torch.addcmul(log_f, z, z, value=0.5)
        return _OwnMixture.apply(out, z, y, of_z)


class _OwnMixture(torch.autograd.Function):
    """Log-density of a mixture at one point per row, with its gradient in closed form.

    Three times as fast as the same by automatic differentiation, and the largest part of a training
    step. The components are rows of a transposed copy: sums over a last axis of ten are slow.
    """

    @staticmethod
    def forward(ctx: Any, out: Tensor, z: Tensor, y: Tensor, of_z: Tensor) -> Tensor:
        logits, means, scales = out.mT.contiguous().chunk(3, dim=1)
        k = logits.shape[1]
        first = k - k // 2
        log_scales = scales.clamp(*_LOG_SCALES)
        precision = torch.exp(-log_scales)
        distance = torch.empty_like(precision)
        torch.sub(z[:, None], means[:, :first], out=distance[:, :first])
        torch.sub(y[:, None], means[:, first:], out=distance[:, first:])
        distance *= precision
        weight, log_total = _shares(logits)
        terms = logits - log_scales
        terms.addcmul_(distance, distance, value=-0.5)
        terms[:, :first] += of_z[:, None]
        terms[:, first:] -= _HALF_LOG_2PI
        share, value = _shares(terms)
        ctx.save_for_backward(share, weight, distance, precision, log_scales == scales)
        return (value - log_total)[:, 0]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None]:
        share, weight, distance, precision, free = ctx.saved_tensors
        slope = slope[:, None]
        share = share * slope
        pull = share * distance
        scales = (pull * distance - share) * free
        return torch.cat([share - weight * slope, pull * precision, scales], 1).mT, None, None, None


def _shares(terms: Tensor) -> tuple[Tensor, Tensor]:
    """Shares of the exponentials of rows in their sum, and its logarithm."""
    top = terms.amax(1, keepdim=True)
    share = (terms - top).exp_()
    total = share.sum(1, keepdim=True)
    return share.div_(total), total.log().add_(top)


class FlowTower(_DensityTower):
    r"""A flow: y is shifted, scaled, and bent by a spline into a standard normal variable.

    .. math:: f(y \mid x) = N(s_x(u); 0, 1) \, s_x'(u) / \sigma_x, \quad u = (y - \mu_x) / \sigma_x

    Parameters
    ----------
    scores : NormalScores
    members, n_inputs, width, depth : int
    n_bins : int
        Bins of the spline, which is defined on [-5, 5].

    References
    ----------
    Durkan, Bekasov, Murray, Papamakarios: Neural spline flows, 2019.
    """

    def __init__(
        self,
        scores: NormalScores,
        members: int,
        n_inputs: int,
        width: int,
        depth: int,
        n_bins: int = 8,
        dropout: float | None = None,
    ) -> None:
        network = ParameterNetwork(members, n_inputs, 3 * n_bins + 1, width, depth, dropout)
        super().__init__(scores, network)

    def _log_density(self, parameters: Tensor, y: Tensor, z: Tensor, log_f: Tensor) -> Tensor:
        """Log-density of y: (members, rows, m)."""
        shift, log_scale = parameters[..., :1], parameters[..., 1:2].clamp(*_LOG_SCALES)
        u, log_slope = spline((y - shift) * torch.exp(-log_scale), parameters[..., 2:])
        return log_slope - log_scale - u.square() / 2 - _HALF_LOG_2PI

    def survival(self, parameters: Tensor, y: Tensor) -> Tensor:
        """Log-probability of each row that its target is larger than y, (members, rows)."""
        shift, log_scale = parameters[..., 0], parameters[..., 1].clamp(*_LOG_SCALES)
        u = ((y - shift) * torch.exp(-log_scale))[..., None]
        return torch.special.log_ndtr(-spline(u, parameters[..., 2:])[0])[..., 0]


def log_mean(value: Tensor) -> Tensor:
    """Log of the mean of exponentials over the last axis."""
    return value.logsumexp(-1) - math.log(value.shape[-1])


def spline(u: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
    """Map u by a monotone rational-quadratic spline on [-5, 5], by the identity outside.

    Parameters
    ----------
    u : Tensor of shape (..., m)
    parameters : Tensor of shape (..., 3 b - 1)
        Of the widths and heights of b bins, and of the slopes at the knots between them.

    Returns
    -------
    Tensor, Tensor
        The mapped values, and the logarithms of the slopes.
    """
    b = (parameters.shape[-1] + 1) // 3
    sizes = parameters[..., : 2 * b].unflatten(-1, (2, b))
    # No bin is smaller than the largest by more than a factor of e^12, nor a slope beyond that.
    share = (6 * torch.tanh(sizes / 6)).softmax(-1)
    knots = 5 * (2 * nn.functional.pad(share.cumsum(-1), (1, 0)) - 1)
    left, low = (k.contiguous() for k in knots.unbind(-2))
    slopes = nn.functional.pad(6 * torch.tanh(parameters[..., 2 * b :] / 6), (1, 1)).exp()
    i = torch.searchsorted(left, u.contiguous()).sub_(1).clamp_(0, b - 1)
    x0, y0, d0 = (a.gather(-1, i) for a in (left, low, slopes))
    x1, y1, d1 = (a.gather(-1, i + 1) for a in (left, low, slopes))
    slope = (y1 - y0) / (x1 - x0)
    t = ((u - x0) / (x1 - x0)).clamp(0, 1)
    both = t * (1 - t)
    bottom = slope + (d0 + d1 - 2 * slope) * both
    value = y0 + (y1 - y0) * (slope * t.square() + d0 * both) / bottom
    top = d1 * t.square() + 2 * slope * both + d0 * (1 - t).square()
    log_slope = 2 * (slope / bottom).log() + top.log()
    inside = u.abs() < 5
    return torch.where(inside, value, u), torch.where(inside, log_slope, 0.0)


TOWERS = {"flow": FlowTower, "mixture": MixtureTower, "two-tower": TwoTower}
