"""Pairs to train a neural discriminator on, and the observations that are held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcdensity._validation import weighted_quantile
from mcdensity.contrast import ContrastSet
from mcdensity.data import HeldOut
from mcdensity.networks.ensemble import AHEAD as _AHEAD
from mcdensity.networks.ensemble import MOST_AHEAD as _MOST_AHEAD
from mcdensity.networks.layers import StackedNetwork

__all__ = ["OneModule", "PairLosses", "TrainingPairs", "as_logit"]

# Held-out rows that are evaluated, of all members together: with 1000 the standard error of the
# gain is about 0.03 nats.
_MOST_VALIDATION_ROWS = 1000
# A quarter of a batch are joint pairs, whatever the ratio: the class that matters is seen often.
_JOINT_SHARE = 0.25
# Values of y over which the exact loss normalises.
_EXACT_POINTS = 16
# Standard errors of held-out gain that are given up for less trust in the network.
_CAUTION = 0.3


class TrainingPairs:
    """Batches of pairs for each member, and the observations that it holds out."""

    def __init__(
        self,
        contrast: ContrastSet,
        members: int,
        held_out: HeldOut | None,
        fresh_pairs: bool,
        rng: np.random.Generator,
        device: torch.device,
    ) -> None:
        origin = contrast.origin
        if origin is None:
            raise ValueError("A neural discriminator needs a ContrastSet that build_contrast made.")
        self.device, self.members = device, members
        n = origin.n_labeled
        self.x = torch.as_tensor(contrast.x_pool, dtype=torch.float32, device=device)
        self.y = torch.as_tensor(contrast.y_pool, dtype=torch.float32, device=device)
        # The observation of each row of the pools; extra rows belong to none.
        unit = np.arange(n) if origin.groups is None else origin.groups
        held = [np.empty(0, dtype=np.intp)] * members
        if held_out is not None:
            held = [np.unique(unit[rows]) for rows in held_out.held]
        unit_x, unit_y = (
            np.concatenate([unit, np.full(len(pool) - n, -1)])
            for pool in (contrast.x_pool, contrast.y_pool)
        )
        self.x_index, self.y_index = contrast.x_index, contrast.y_index
        self.weight = None
        self.row_weight = origin.row_weight
        if contrast.weight is not None:
            self.weight = torch.as_tensor(contrast.weight, dtype=torch.float32, device=device)
        self.fresh = fresh_pairs and origin.kind == "id" and contrast.weight is None
        self.unit_x, self.unit_y = unit_x, unit_y
        self.tables = []
        for e in range(members):
            table, held[e] = self._pairs_without(contrast, held[e], unit_x, unit_y)
            self.tables.append(table)
        self.generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        self.validates = held_out is not None and all(len(h) for h in held)
        if held_out is not None and self.validates:
            scored = np.zeros(n, dtype=bool)
            scored[held_out.scored] = True
            rows = [np.flatnonzero(np.isin(unit, h) & scored) for h in held]
            self.validates = all(len(r) for r in rows)
            if self.validates:
                self._prepare_validation(contrast, [rng.permutation(r) for r in rows])

    @staticmethod
    def _pairs_without(
        contrast: ContrastSet,
        held: NDArray[np.intp],
        unit_x: NDArray[np.intp],
        unit_y: NDArray[np.intp],
    ) -> tuple[tuple[Tensor, Tensor], NDArray[np.intp]]:
        """Numbers of the joint and broken pairs that touch no held-out observation, and those.

        With very few pairs a class may be held out altogether; then one of its pairs is returned,
        and its observations are no longer held out.
        """
        free = np.ones(max(unit_x.max(), unit_y.max()) + 2, dtype=bool)  # the last is unit -1
        free[held] = False
        of_x, of_y = unit_x[contrast.x_index], unit_y[contrast.y_index]
        for kind in (1, 0):
            chosen = np.flatnonzero(contrast.label == kind)
            if not (free[of_x[chosen]] & free[of_y[chosen]]).any():
                free[of_x[chosen[0]]] = free[of_y[chosen[0]]] = True
        usable = free[of_x] & free[of_y]
        joint = contrast.label == 1
        table = tuple(torch.as_tensor(np.flatnonzero(usable & part)) for part in (joint, ~joint))
        return (table[0], table[1]), held[~free[held]]

    def _draw(self, table: Tensor, *shape: int) -> Tensor:
        place = torch.rand(shape, generator=self.generator, dtype=torch.float64) * len(table)
        return table[place.long()]

    def batches(self, n_joint: int, n_broken: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Pairs, (members, batch, p + 1), joint ones first, and their weights.

        Several batches are drawn at once: one by one, that took a third of the time of a step.
        """
        numbers = self.members * (n_joint + n_broken) * (self.x.shape[1] + self.y.shape[1])
        count = int(np.clip(_AHEAD // numbers, 1, _MOST_AHEAD))
        while True:
            drawn = [
                [self._draw(joint, count, n_joint), self._draw(broken, count, n_broken)]
                for joint, broken in self.tables
            ]
            pairs = torch.stack([torch.cat(both, dim=1) for both in drawn], dim=1)
            number = pairs.numpy()
            x, y = self.x_index[number], self.y_index[number]
            if self.fresh:
                # The y of the previous pair: another broken pair, unless it belongs to the same x.
                other = np.roll(y[..., n_joint:], 1, axis=-1)
                of_x = self.unit_x[x[..., n_joint:]]
                same = (of_x == self.unit_y[other]) & (of_x >= 0)
                y[..., n_joint:] = np.where(same, y[..., n_joint:], other)
            x, y = (torch.as_tensor(i, dtype=torch.int64, device=self.device) for i in (x, y))
            both = torch.cat([self.x[x], self.y[y]], dim=-1)
            weight = repeat(None) if self.weight is None else self.weight[pairs]
            yield from zip(both, weight, strict=False)

    def _prepare_validation(self, contrast: ContrastSet, rows: list[NDArray[np.intp]]) -> None:
        # Equally many rows for each member, so that they form one array.
        size = min(max(1, _MOST_VALIDATION_ROWS // self.members), *(len(r) for r in rows))
        chosen = np.stack([r[:size] for r in rows])
        self.validation_rows = chosen
        self.validation_x, self.validation_y = self.x[chosen], self.y[chosen]
        row_weight = np.ones(chosen.shape)
        self.pool_weight = None
        if self.row_weight is not None:
            row_weight = self.row_weight[chosen]
            self.pool_weight = np.ones(len(contrast.y_pool))
            self.pool_weight[: len(self.row_weight)] = self.row_weight
        self.targets = contrast.y_pool
        self.validation_weight = torch.as_tensor(
            row_weight, dtype=torch.float32, device=self.device
        )

    def evaluate(self, module: nn.Module, quantiles: int) -> Tensor:
        """Logits of held-out rows at their own y and at quantiles of y, (members, rows, 1 + G).

        Several targets have no quantiles; some of those that were seen stand for them.
        """
        level = (np.arange(quantiles) + 0.5) / quantiles
        if self.targets.shape[1] == 1:
            points = weighted_quantile(self.targets[:, 0], level, self.pool_weight)
        else:
            place = np.arange(len(self.targets), dtype=np.float64)
            chosen = weighted_quantile(place, level, self.pool_weight)
            points = self.targets[np.rint(chosen).astype(np.intp)]
        return self._logits(module, points)

    def _logits(self, module: nn.Module, points: NDArray[np.float64]) -> Tensor:
        """Logits of held-out rows at their own y and at points, (members, rows, 1 + G)."""
        grid = torch.as_tensor(points, dtype=torch.float32, device=self.device)
        x, own = self.validation_x, self.validation_y  # (members, rows, p), (members, rows, k)
        grid = grid.reshape(-1, own.shape[2])
        y = torch.cat([own[:, :, None], grid.expand(*own.shape[:2], -1, -1)], dim=2)
        rows = max(1, (1 << 15) // y.shape[2])
        if isinstance(module, StackedNetwork):
            module = module.folded()
        parts = []
        for i in range(0, x.shape[1], rows):
            some = slice(i, i + rows)
            wide = x[:, some, None].expand(-1, -1, y.shape[2], -1)
            pairs = torch.cat([wide, y[:, some]], dim=-1)
            parts.append(module(pairs.flatten(1, 2)).reshape(pairs.shape[:3]))
        return torch.cat(parts, dim=1)

    def held_log_ratios(
        self, losses: PairLosses, points: NDArray[np.float64]
    ) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return the rows that were held out, and their log-ratios at their own y and at points.

        A row that several members held out has the mean of their log-ratios.
        """
        value = losses.shifted(self._logits(losses.module, points))
        rows, place = np.unique(self.validation_rows, return_inverse=True)
        total = np.zeros((len(rows), value.shape[2]))
        np.add.at(total, place.ravel(), value.flatten(0, 1).double().cpu().numpy())
        return rows, total / np.bincount(place.ravel())[:, None]

    def gains(self, log_ratio: Tensor, trust: float = 1.0) -> Tensor:
        """Log-likelihood of each held-out row above that of the marginal, (members, rows)."""
        scaled = trust * log_ratio
        normaliser = torch.logsumexp(scaled[..., 1:], dim=-1) - math.log(scaled.shape[-1] - 1)
        return scaled[..., 0] - normaliser

    def score(self, log_ratio: Tensor) -> Tensor:
        """Mean gain of all held-out rows, for every member.

        One stopping time for all members: the best of each would be chosen by few rows, and look
        better than it is.
        """
        gains = self.gains(log_ratio) * self.validation_weight
        return (gains.sum() / self.validation_weight.sum()).expand(self.members)

    def trust(self, log_ratio: Tensor) -> tuple[float, float]:
        """Choose how far to trust the log-ratios, by the held-out rows of all members.

        The smallest factor whose gain is not clearly below the best: a part of a standard error of
        the difference is given up, since the same rows have already chosen when to stop.
        """
        if not torch.isfinite(log_ratio).all():
            raise ValueError("The torch module given as discriminator returned NaN or infinity.")
        candidates = np.linspace(0, 2, 41).tolist()
        weight = (self.validation_weight / self.validation_weight.sum()).double().flatten()
        gains = torch.stack([self.gains(log_ratio, a).flatten() for a in candidates]).double()
        mean = gains @ weight
        best = int(mean.argmax())
        lost = gains[best] - gains[: best + 1]
        average = lost @ weight
        variance = (lost - average[:, None]) ** 2 @ weight
        # Few rows say little, and that little has already been used.
        caution = _CAUTION + 10 / len(weight)
        allowed = caution * torch.sqrt(variance * (weight**2).sum())
        chosen = int(torch.nonzero(average <= allowed)[0, 0])
        return float(candidates[chosen]), float(mean[chosen])


class PairLosses:
    """Losses of a network on batches of pairs.

    Parameters
    ----------
    module : nn.Module
        From (members, pairs, p + 1) to logits, (members, pairs).
    pairs : TrainingPairs
    ratio : float
        Share of joint pairs that the logits refer to.
    batch_size : int
    quantile : callable, optional
        Quantiles of the marginal, for the exact loss.
    rng : Generator
    """

    def __init__(
        self,
        module: nn.Module,
        pairs: TrainingPairs,
        ratio: float,
        batch_size: int,
        quantile: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None,
        rng: np.random.Generator,
    ) -> None:
        self.module, self.pairs, self.ratio, self.rng = module, pairs, ratio, rng
        self.batch_size, self.quantile = batch_size, quantile
        self.n_joint = min(max(1, round(_JOINT_SHARE * batch_size)), batch_size - 1)
        self._batches = pairs.batches(self.n_joint, batch_size - self.n_joint)
        self._joint_batches = pairs.batches(max(2, batch_size // _EXACT_POINTS), 0)

    def cross_entropy(self) -> Tensor:
        """Cross-entropy of joint and broken pairs."""
        n_joint = self.n_joint
        pairs, weight = next(self._batches)
        signed = self.module(pairs)
        joint = nn.functional.softplus(-signed[:, :n_joint])
        broken = nn.functional.softplus(signed[:, n_joint:])
        if weight is not None:
            joint = joint * weight[:, :n_joint]
            broken = broken * weight[:, n_joint:]
        # The classes have weights r and 1 - r; the factor keeps the scale of the loss.
        factor = 1 / (1 - self.ratio), 1 / self.ratio
        return factor[0] * joint.mean(1).sum() + factor[1] * broken.mean(1).sum()

    def exact(self) -> Tensor:
        """Conditional log-likelihood, normalised over values of y drawn from the marginal."""
        assert self.quantile is not None
        pairs, weight = next(self._joint_batches)
        # The same values of y for all rows of a batch, one from each stratum.
        place = (np.arange(_EXACT_POINTS) + self.rng.random(_EXACT_POINTS)) / _EXACT_POINTS
        points = torch.as_tensor(self.quantile(place), dtype=torch.float32, device=pairs.device)
        wide = pairs[:, :, None].expand(-1, -1, _EXACT_POINTS + 1, -1).clone()
        wide[:, :, 1:, -1] = points
        value = self.module(wide.flatten(1, 2)).reshape(wide.shape[:3])
        gain = value[..., 0] - value[..., 1:].logsumexp(-1) + math.log(_EXACT_POINTS)
        if weight is not None:
            gain = gain * weight
        return -gain.mean(1).sum()

    def log_ratios(self, quantiles: int) -> Tensor:
        """Log-ratios of held-out rows, see `TrainingPairs.evaluate`."""
        return self.shifted(self.pairs.evaluate(self.module, quantiles))

    def shifted(self, logits: Tensor) -> Tensor:
        """Log-ratios of logits."""
        return logits - math.log(self.ratio / (1 - self.ratio))


class OneModule(nn.Module):
    """A module from (rows, inputs) to logits, as an ensemble of one."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, pairs: Tensor) -> Tensor:
        """Logits of pairs (1, rows, inputs), shape (1, rows)."""
        return as_logit(self.module(pairs[0]), pairs.shape[1])[None]


def as_logit(output: Tensor, batch: int) -> Tensor:
    """Turn a module's output, (batch,), (batch, 1) or two logits (batch, 2), into one logit."""
    if output.ndim == 2 and output.shape == (batch, 2):
        return output[:, 1] - output[:, 0]
    if output.numel() == batch:
        return output.reshape(batch)
    raise ValueError(
        "The torch module must map (batch, p + 1) to one logit (batch, 1) or to two (batch, 2); "
        f"it returned shape {tuple(output.shape)} for a batch of {batch}."
    )
