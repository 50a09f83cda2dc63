"""What the neural methods have in common: the network from x to parameters, and its training."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcdensity._progress import showing
from mcdensity._validation import as_generator, check_integer, check_number
from mcdensity.data import HeldOut, TrainingData
from mcdensity.estimator import ConditionalEstimator
from mcdensity.networks.ensemble import EnsembleTraining
from mcdensity.networks.parameters import ParameterNetwork, keep_members
from mcdensity.networks.random import seeded
from mcdensity.networks.training import choose_device

__all__ = ["NeuralEstimator", "ParameterNetwork"]

Array = NDArray[np.float64]

# Levels of noise to choose from for 100 rows, on standardised data; they shrink with n^(-1/6),
# between the rates of kernels' bandwidths for one and for several variables.
_NOISE = (0.05, 0.15, 0.4)
# As many, and up to as many rows, as `mixture` and its kin have: the compared methods get the same
# care as the package's own.
_MEMBERS = 5
_LARGE = 5000
# With fewer rows none is held out, and nothing chosen.
_LEAST_ROWS = 10
# Held-out rows that are looked at, so that looking costs less than training.
_MOST_VALIDATION_ROWS = 5000


class NeuralEstimator(ConditionalEstimator):
    """Base of methods whose network turns x into the parameters of a density.

    The members of an ensemble each hold out a fold of the rows, which selects the best weights;
    members with different levels of noise are trained together, and the level whose members score
    best on the held-out rows is kept.

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
        self._train(X, y, sample_weight)

    def _train(self, X: Array, y: Array, sample_weight: Array | None) -> HeldOut | None:
        """Train the networks; return which rows each member held out."""
        self._check_training_parameters()
        n = len(y)
        rng = as_generator(self.random_state)
        members = int(self.members or (_MEMBERS if _LEAST_ROWS <= n < _LARGE else 1))
        data = TrainingData(X, y[:, None], sample_weight, random_state=rng)
        held_out = data.held_out(members, most=_MOST_VALIDATION_ROWS) if n >= _LEAST_ROWS else None
        levels = self._levels(n, held_out is not None)
        margin = np.ptp(X, axis=0)
        self._x_limits = X.min(axis=0) - margin, X.max(axis=0) + margin
        device = choose_device(self.device)
        spread = float(y.std())  # 1, except for methods that leave out far outliers
        text = f"Training {type(self).__name__}"
        with (
            seeded(int(rng.integers(2**31)), shared=True),
            torch.enable_grad(),
            showing(self.verbose, text) as report,
        ):
            module = self._build(X.shape[1], members * len(levels), y, sample_weight)
            module = module.to(device=device, dtype=torch.float32)
            training = EnsembleTraining(
                module,
                lambda target, _: (target,),
                lambda x, target: -self._row_loss(module(x), target),
                X,
                y,
                data.row_weight,
                held_out,
                members,
                levels,
                int(self.batch_size),
                (lambda target: target / spread, lambda place: place * spread),
                False,
                device,
            )
            self.n_steps_ = training.run(
                steps=int(self.steps or np.clip(400 * (n / 100) ** 0.4, 200, 2500)),
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                report=report,
            )
            chosen = 0
            if held_out is not None:
                with torch.no_grad():
                    by_level = training.scores().reshape(len(levels), members).mean(1)
                chosen = int(by_level.argmax())
                self.validation_score_ = float(by_level[chosen])
            self.noise_ = float(levels[chosen])
            keep_members(module, slice(chosen * members, (chosen + 1) * members))
        self.module_ = module.cpu().eval()
        return held_out

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
        """Parameters of rows, (members, rows, n_outputs); x is kept near the training rows.

        In double precision: single precision products of few rows are summed in another order than
        those of many, and a row's output must not depend on the other rows.
        """
        module = copy.deepcopy(self.module_).double()
        with torch.inference_mode():
            x = torch.as_tensor(np.clip(X, *self._x_limits))
            members = next(module.parameters()).shape[0]
            return module(x.expand(members, -1, -1))
