"""Evaluating towers: on the rows that they held out, and on new rows."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcdensity.networks.ensemble import BLOCK as _BLOCK
from mcdensity.networks.ensemble import EnsembleTraining
from mcdensity.networks.random import generator
from mcdensity.networks.towers import TwoTower

__all__ = ["DensityTraining", "condition_on", "likelihood"]


def likelihood(
    module: Any,
    bias: Tensor,
    censored: Tensor | None,
    top: float,
    table: Tensor,
    fixed: Tensor,
    points: int,
) -> tuple[Callable[[Tensor, Tensor], tuple[Tensor, ...]], Callable[..., Tensor]]:
    """What `EnsembleTraining` asks of a tower: what it needs of targets, and log-densities.

    Parameters
    ----------
    module : nn.Module
        One of the towers.
    bias : Tensor of shape (n,)
        By how much the marginal's log-density at each target is larger than that of a marginal
        which has not seen it.
    censored : Tensor of shape (n,), optional
        Which targets are lower bounds.
    top : float
        The largest value that laws can have.
    table, fixed : Tensor
        Quantiles of the marginal. A density without a closed form is normalised at values drawn
        from the first, `points` of them, in training, and at the second otherwise.
    points : int
    """
    strata = torch.arange(points, device=table.device)

    def drawn() -> Tensor:
        if not module.training:
            return fixed
        chance = torch.rand(strata.shape, device=table.device, generator=generator(table.device))
        place = (strata + chance) / points
        return table[(place * len(table)).long().clamp(max=len(table) - 1)]

    def prepare(y: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
        z, log_f = module.scores.both(y)
        at = y, z, log_f - bias[rows].unsqueeze(-2)
        if censored is None:
            return at
        return (*at, censored[rows].unsqueeze(-2).expand(y.shape))

    def log_density(
        x: Tensor, y: Tensor, z: Tensor, log_f: Tensor, hidden: Tensor | None = None
    ) -> Tensor:
        out = module.outputs(x)
        value: Tensor = module.own(out, y, z, log_f, drawn)
        if hidden is None:
            return value
        return torch.where(hidden, module.survival_below(module.shaped(out), y, top), value)

    return prepare, log_density


class DensityTraining(EnsembleTraining):
    """Trains towers, and evaluates them on rows that they held out."""

    def held_out_ratios(
        self,
        weights: NDArray[np.float64],
        points: NDArray[np.float64],
        log_marginal: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Log-ratios to the marginal of the scored rows, by the members that held them out.

        Parameters
        ----------
        weights : ndarray of shape (levels + 1,)
            Of the levels of noise, whose densities are mixed, and of the marginal.
        points : ndarray of shape (G,)
            Values of y that the rows share.
        log_marginal : ndarray of shape (rows,)
            Log-density of the rows' own targets under a marginal that has not seen them.

        Returns
        -------
        own : ndarray of shape (rows,)
        grid : ndarray of shape (rows, G)
        """
        module: Any = self.module
        kept = np.flatnonzero(weights[:-1])
        log_weights = self._tensor(np.log(weights[kept]))[:, None, None, None]
        log_rest = self._tensor(np.log(weights[-1:]))
        at = self._tensor(points)
        log_f = module.scores.both(at)[1]
        of_targets = self._tensor(log_marginal)
        holds, found = self.holds[..., None], []
        step = max(1, _BLOCK // (self.total * len(points) * 10))
        with torch.no_grad():
            for part in torch.arange(len(self.scored), device=self.device).split(step):
                rows = self.scored[part]
                x = self.x[rows].expand(self.total, -1, -1)
                y = self.y[rows].expand(self.total, -1)
                own = self.log_density(x, *self.prepare(y, rows))
                value = module.log_density(module.conditioned(x, at), at, log_f)
                both = torch.cat([own[..., None], value], -1)
                both = both.unflatten(0, (len(self.levels), self.members))[kept]
                marginal = torch.cat([of_targets[part, None], log_f.expand(len(part), -1)], -1)
                mixed = (both + log_weights).logsumexp(0) - marginal  # (members, rows, 1 + G)
                mixed = torch.logaddexp(mixed, log_rest)
                share = holds[:, part].to(mixed.dtype)
                found.append((mixed * share).sum(0) / share.sum(0))
        ratio = torch.cat(found).double().cpu().numpy()
        return ratio[:, 0], ratio[:, 1:]


# Fitted networks in double precision; an entry goes with its network.
_doubles: weakref.WeakKeyDictionary[nn.Module, nn.Module] = weakref.WeakKeyDictionary()


def _double(module: nn.Module) -> nn.Module:
    if module not in _doubles:
        _doubles[module] = copy.deepcopy(module).double()
    return _doubles[module]


def condition_on(
    module: nn.Module,
    X: NDArray[np.float64],
    points: NDArray[np.float64],
    weights: NDArray[np.float64],
    rest: float,
    block: int,
) -> tuple[Callable[..., NDArray[np.float64]], Callable[..., NDArray[np.float64]]]:
    """Compute the parameters of rows once; return their pooled log-ratio as a function.

    The densities of the levels of noise, and the marginal's, are mixed for each member, and the
    log-ratios of the members to the marginal averaged.

    Parameters
    ----------
    module : nn.Module
        One of the towers.
    X : ndarray of shape (n, p)
    points : ndarray
        Where densities without a closed form are normalised.
    weights : ndarray of shape (levels,)
        Of the levels.
    rest : float
        Of the marginal.
    block : int
        Numbers to process at once.

    Returns
    -------
    log_ratio : callable
        ``log_ratio(y, rows, log_marginal)``, up to a constant of the row.
    log_marginal : callable
        The marginal's log-density at y, from the network's own table.
    """
    tower: Any = module
    # In double precision: single precision products of few rows are summed in another order than
    # those of many, and a row's output must not depend on the other rows.
    exact: Any = _double(tower)
    stack = next(tower.parameters()).shape[0]
    with torch.inference_mode():
        x = torch.as_tensor(X).expand(stack, -1, -1)
        parameters = exact.conditioned(x, torch.as_tensor(points))
    if isinstance(tower, TwoTower):
        tower = exact  # a product of matrices, with terms that cancel
    else:
        parameters = parameters.float()

    def tensor(array: NDArray[np.float64]) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array)).to(parameters.dtype)

    def log_ratio(
        y: NDArray[np.float64], rows: NDArray[np.intp] | None, log_marginal: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        chosen = parameters if rows is None else parameters[:, torch.as_tensor(rows)]
        at, log_f = tensor(y), tensor(log_marginal)
        out = np.empty((chosen.shape[1], y.shape[-1]))
        step = max(1, block // max(1, stack * y.shape[-1]))
        with torch.inference_mode():
            for i in range(0, len(out), step):
                some = slice(i, i + step)
                where = (at, log_f) if at.ndim == 1 else (at[some], log_f[some])
                value = tower.density_ratio(chosen[:, some], *where)
                parts = value.unflatten(0, (len(weights), -1)).unbind(0)
                total = sum(part * w for part, w in zip(parts, weights.tolist(), strict=True))
                out[some] = torch.log(total + max(rest, 1e-12)).double().mean(0).numpy()
        return out

    def log_marginal(y: NDArray[np.float64]) -> NDArray[np.float64]:
        return tower.scores.both(tensor(y))[1].double().numpy()

    return log_ratio, log_marginal
