"""What the neural methods have in common: the network from x to parameters, and its training."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcdensity._validation import as_generator, check_integer, check_number
from mcdensity.estimator import ConditionalEstimator
from mcdensity.networks.parameters import ParameterNetwork, keep_members
from mcdensity.networks.training import choose_device, seeded, train

__all__ = ["NeuralEstimator", "ParameterNetwork"]

Array = NDArray[np.float64]

# Levels of noise to choose from for 100 rows, on standardised data; they shrink with n^(-1/6).
_NOISE = (0.05, 0.15, 0.4)
_FOLDS = 5
_LARGE = 5000
# With fewer rows none is held out, and nothing chosen.
_LEAST_ROWS = 10
_MOST_VALIDATION_ROWS = 5000


class NeuralEstimator(ConditionalEstimator):
    """Base of methods whose network turns x into the parameters of a density.

    The members of an ensemble each hold out a fold of the rows, by which the best weights are kept;
    members with different levels of noise are trained together, and the level whose members serve
    the held-out rows best stays.

    Subclasses implement ``_build(p, members, y, weight)``, the module from (members, rows, p) to
    parameters, and ``_row_loss(output, y)``, of shape (members, rows); with both, predictions come
    from ``_output(X)``, parameters of shape (members, rows, n_outputs).
    """

    members: int | None
    steps: int | None
    width: int | None
    depth: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    noise: str | float
    random_state: Any
    device: str
    verbose: bool

    def _build(self, p: int, members: int, y: Array, weight: Array | None) -> nn.Module:
        raise NotImplementedError

    def _row_loss(self, output: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError

    def _fit(self, X: Array, y: Array, sample_weight: Array | None, **extra: Any) -> None:
        self._check_training_parameters()
        n = len(y)
        rng = as_generator(self.random_state)
        hold = n >= _LEAST_ROWS
        members = int(self.members or (_FOLDS if hold and n < _LARGE else 1))
        batch_size = int(self.batch_size)
        levels = self._levels(n, hold)
        total = members * len(levels)
        steps = int(self.steps or np.clip(400 * (n / 100) ** 0.4, 200, 2500))
        margin = np.ptp(X, axis=0)
        self._x_limits = X.min(axis=0) - margin, X.max(axis=0) + margin
        device = choose_device(self.device)
        spread = float(y.std())  # 1, but for methods that leave far outliers out
        with seeded(int(rng.integers(2**31))), torch.enable_grad():
            module = self._build(X.shape[1], total, y, sample_weight)
            module = module.to(device=device, dtype=torch.float32)
            x_all, y_all = (torch.as_tensor(a, dtype=torch.float32, device=device) for a in (X, y))
            # Which rows a member trains on; the levels of noise have the same folds.
            fold = rng.permutation(n) % _FOLDS
            held = fold[None] == (np.arange(total) % members % _FOLDS)[:, None]
            share = np.ones(n) if sample_weight is None else sample_weight
            held &= hold
            use = torch.as_tensor(share * ~held, dtype=torch.float32, device=device)
            noise = torch.as_tensor(np.repeat(levels, members), dtype=torch.float32).to(device)
            noise = noise[:, None]
            validation = np.flatnonzero(held.any(axis=0))
            if len(validation) > _MOST_VALIDATION_ROWS:
                validation = np.sort(rng.permutation(validation)[:_MOST_VALIDATION_ROWS])
            check = torch.as_tensor(share * held, dtype=torch.float32).to(device)[:, validation]

            def loss() -> Tensor:
                weight, x, target = use, x_all, y_all
                if n > batch_size:
                    rows = torch.randint(n, (batch_size,), device=device)
                    weight, x, target = use[:, rows], x_all[rows], y_all[rows]
                x = x + noise[..., None] * torch.randn(x.shape, device=device)
                target = target + spread * noise * torch.randn(target.shape, device=device)
                value = self._row_loss(module(x), target)
                return ((weight * value).sum(1) / weight.sum(1).clamp_min(1e-6)).sum()

            def score() -> Tensor:
                x = x_all[validation].expand(total, -1, -1)
                value = self._row_loss(module(x), y_all[validation])
                return -(check * value).sum(1) / check.sum(1)

            self.n_steps_ = train(
                module,
                loss,
                score if hold else None,
                steps=steps,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                verbose=self.verbose,
            )
            chosen = 0
            if hold:
                with torch.no_grad():
                    by_level = score().reshape(len(levels), members).mean(1)
                chosen = int(by_level.argmax())
                self.validation_score_ = float(by_level[chosen])
            self.noise_ = float(levels[chosen])
            keep_members(module, slice(chosen * members, (chosen + 1) * members))
        self.module_ = module.cpu().eval()
        self._held = held[:members]

    def _levels(self, n: int, hold: bool) -> Array:
        if isinstance(self.noise, str):
            levels = np.array(_NOISE) * (n / 100) ** (-1 / 6)
            return levels if hold else levels[-1:]
        return np.array([float(self.noise)])

    def _check_training_parameters(self) -> None:
        for name in ("members", "steps", "width"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        for name in ("batch_size", "depth"):
            check_integer(name, getattr(self, name))
        if not (isinstance(self.noise, str) and self.noise == "cv"):
            check_number("noise", self.noise, closed=True, word="cv")
        check_number("learning_rate", self.learning_rate)
        check_number("weight_decay", self.weight_decay, closed=True)
        if not isinstance(self.device, str):
            raise ValueError(f'device must be "auto", "cpu" or "cuda", got {self.device!r}.')

    def _shape(self, n: int) -> tuple[int, int]:
        """Width and depth of the hidden layers for n rows."""
        return int(self.width or (32 if n < _LARGE else 64)), int(self.depth)

    def _output(self, X: Array) -> Tensor:
        """Parameters of rows, (members, rows, n_outputs); x is kept near the training rows."""
        X = np.clip(X, *self._x_limits)
        with torch.inference_mode():
            x = torch.as_tensor(X, dtype=torch.float32)
            members = next(self.module_.parameters()).shape[0]
            return self.module_(x.expand(members, -1, -1))
