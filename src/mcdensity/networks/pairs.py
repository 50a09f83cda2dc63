"""Pairs to train a neural discriminator on, and the observations that are held out."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcdensity._validation import weighted_quantile
from mcdensity.contrast import ContrastSet

__all__ = ["LEAST_OBSERVATIONS", "TrainingPairs"]

# Held-out rows that are looked at, of all members together.
_MAX_VALIDATION_ROWS = 500
# With fewer observations none can be held out, and a network is not trusted at all.
LEAST_OBSERVATIONS = 5
# Standard errors of held-out gain that are given away for less trust in the network.
_CAUTION = 0.3


class TrainingPairs:
    """Batches of pairs for each member, and the observations that it holds out."""

    def __init__(
        self,
        contrast: ContrastSet,
        members: int,
        validation_share: float,
        fresh_pairs: bool,
        rng: np.random.Generator,
        device: torch.device,
        folds: NDArray[np.intp] | None = None,
        judged: NDArray[np.bool_] | None = None,
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
        units = contrast.n_observations
        self.held_out = validation_share > 0 and units >= LEAST_OBSERVATIONS
        if self.held_out and folds is not None:
            held = [np.flatnonzero(way == e) for way in folds for e in range(folds.max() + 1)]
        elif self.held_out:
            count = max(1, round(validation_share * units))
            # Folds of that size in turn, around the circle if the members need more than there are.
            order = rng.permutation(units)
            held = [
                np.take(order, np.arange(e * count, (e + 1) * count), mode="wrap")
                for e in range(members)
            ]
        else:
            held = [np.empty(0, dtype=np.intp)] * members
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
        self.held_out = self.held_out and all(len(h) for h in held)
        self.generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        if self.held_out:
            self._prepare_validation(contrast, held, unit, rng, judged)

    @staticmethod
    def _pairs_without(
        contrast: ContrastSet,
        held: NDArray[np.intp],
        unit_x: NDArray[np.intp],
        unit_y: NDArray[np.intp],
    ) -> tuple[tuple[Tensor, Tensor], NDArray[np.intp]]:
        """Numbers of the joint and broken pairs that touch no held-out observation, and those.

        Of very few pairs a class may be held out altogether; then one pair of it is given back,
        and its observations are held out no more.
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

    def _draw(self, table: Tensor, size: int) -> Tensor:
        place = torch.rand(size, generator=self.generator, dtype=torch.float64) * len(table)
        return table[place.long()]

    def batch(self, n_joint: int, n_broken: int) -> tuple[Tensor, Tensor | None]:
        """Pairs, (members, batch, p + 1), joint ones first, and their weights."""
        pairs = torch.stack(
            [
                torch.cat([self._draw(joint, n_joint), self._draw(broken, n_broken)])
                for joint, broken in self.tables
            ]
        )
        number = pairs.numpy()
        x, y = self.x_index[number], self.y_index[number]
        if self.fresh:
            # The y of the pair before: another broken pair, unless that is of the same x.
            other = np.roll(y[:, n_joint:], 1, axis=1)
            of_x = self.unit_x[x[:, n_joint:]]
            same = (of_x == self.unit_y[other]) & (of_x >= 0)
            y[:, n_joint:] = np.where(same, y[:, n_joint:], other)
        x, y = (torch.as_tensor(i, dtype=torch.int64, device=self.device) for i in (x, y))
        weight = None if self.weight is None else self.weight[pairs]
        return torch.cat([self.x[x], self.y[y]], dim=-1), weight

    def _prepare_validation(
        self,
        contrast: ContrastSet,
        held: list[NDArray[np.intp]],
        unit: NDArray[np.intp],
        rng: np.random.Generator,
        judged: NDArray[np.bool_] | None,
    ) -> None:
        most = _MAX_VALIDATION_ROWS
        if judged is not None:
            held, most = [h[judged[h]] for h in held], 2 * most
        rows = [rng.permutation(np.flatnonzero(np.isin(unit, h))) for h in held]
        size = min(max(1, most // self.members), *(len(r) for r in rows))
        chosen = np.stack([r[:size] for r in rows])
        self.validation_rows = chosen
        self.validation_x, self.validation_y = self.x[chosen], self.y[chosen]
        row_weight = np.ones(chosen.shape)
        self.pool_weight = None
        if self.row_weight is not None:
            row_weight = self.row_weight[chosen]
            self.pool_weight = np.ones(len(contrast.y_pool))
            self.pool_weight[: len(self.row_weight)] = self.row_weight
        self.targets = contrast.y_pool[:, 0]
        self.validation_weight = torch.as_tensor(
            row_weight, dtype=torch.float32, device=self.device
        )

    def evaluate(self, module: nn.Module, quantiles: int) -> Tensor:
        """Logits of held-out rows at their own y and at quantiles of y, (members, rows, 1 + G)."""
        level = (np.arange(quantiles) + 0.5) / quantiles
        points = weighted_quantile(self.targets, level, self.pool_weight)
        grid = torch.as_tensor(points, dtype=torch.float32, device=self.device)
        x, own = self.validation_x, self.validation_y  # (members, rows, p), (members, rows, 1)
        y = torch.cat([own, grid.expand(*own.shape[:2], -1)], dim=-1)
        rows = max(1, (1 << 15) // y.shape[2])
        parts = []
        for i in range(0, x.shape[1], rows):
            some = slice(i, i + rows)
            wide = x[:, some, None].expand(-1, -1, y.shape[2], -1)
            pairs = torch.cat([wide, y[:, some, :, None]], dim=-1)
            parts.append(module(pairs.flatten(1, 2)).reshape(pairs.shape[:3]))
        return torch.cat(parts, dim=1)

    def gains(self, log_ratio: Tensor, trust: float = 1.0) -> Tensor:
        """Log-likelihood of each held-out row above that of the marginal, (members, rows)."""
        scaled = trust * log_ratio
        normaliser = torch.logsumexp(scaled[..., 1:], dim=-1) - math.log(scaled.shape[-1] - 1)
        return scaled[..., 0] - normaliser

    def score(self, log_ratio: Tensor) -> Tensor:
        """Mean gain of all held-out rows, for every member.

        One time for all members: the best time of each would be chosen by few rows, and look
        better than it is.
        """
        gains = self.gains(log_ratio) * self.validation_weight
        return (gains.sum() / self.validation_weight.sum()).expand(self.members)

    def trust(self, log_ratio: Tensor) -> tuple[float, float]:
        """Choose how far to trust the log-ratios, by the held-out rows of all members.

        The least factor whose gain is not clearly below the best: a part of a standard error of
        the difference is given away, since the rows have already chosen when to stop.
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
