"""The one training loop of the package: a budget of steps, one cycle, the best weights kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from mcdensity.data import OutOfTimeError

__all__ = ["choose_device", "train"]

# Evaluations on held-out data, and evaluations without gain after which training ends: a quarter of
# the budget. With 6, 12 and 24 evaluations `mixture` had -3.28, -3.19 and -3.19 on Concrete, and on
# four other sets the same to 0.01 (benchmarks/constants.txt). Half of the budget without gain,
# instead of a quarter, took a third longer for the same likelihood.
_EVALUATIONS = 24
_PATIENCE = 6
# With a time budget: steps that measure the pace, the share of the time that steps may take (the
# rest is for held-out data), and the least number of steps from which anything is learned.
_PILOT_STEPS, _STEP_SHARE, _LEAST_STEPS = 3, 0.75, 60
# Of AdamW and its cycle, as in torch: the share of the steps in which the learning rate rises, its
# first value relative to the peak, its last relative to the first, the momentum at the peak and at
# the ends, and the factor of the mean of squares.
_RISE, _FIRST_RATE, _LAST_RATE, _MOMENTA, _SQUARES = 0.3, 1 / 25, 1e-4, (0.85, 0.95), 0.999


def train(
    module: nn.Module,
    loss: Callable[[], Tensor],
    score: Callable[[], Tensor] | None = None,
    *,
    steps: int,
    learning_rate: float,
    weight_decay: float,
    clip: float = 5.0,
    report: Callable[[float], None] | None = None,
    seconds: float = math.inf,
    ends_early: bool = True,
) -> int:
    """Train a module, or several that are stacked, and leave the best weights in it.

    AdamW with a one-cycle schedule. The scores of held-out data are computed two dozen times; each
    member keeps the weights with which its own score was best, and training ends early, after the
    peak of the learning rate, when no member has improved for a quarter of the time.

    Parameters
    ----------
    module : nn.Module
        With several members the first axis of every parameter and buffer is that of the members.
    loss : callable
        Draws a batch and returns its loss, with gradients.
    score : callable, optional
        Scores of held-out data, shape (members,); higher is better. None: the last weights stay.
    steps : int
        Budget of steps.
    learning_rate : float
        The peak of the cycle.
    weight_decay : float
    clip : float
        Largest norm of a gradient.
    report : callable, optional
        Told, after each step, which share of the steps has been taken.
    seconds : float
        How long it may take: the budget of steps is cut to what fits. Where too few fit, it raises
        an `OutOfTimeError`.
    ends_early : bool
        Whether training ends when nothing has improved for long. With many rows networks do not
        overfit, and the largest gain comes when the learning rate falls.

    Returns
    -------
    int
        The number of steps that were taken.
    """
    end = time.monotonic() + seconds
    if seconds < math.inf:
        steps = min(steps, _affordable_steps(module, loss, seconds))
    descent = _Descent(module, max(steps, 2), learning_rate, weight_decay, clip)
    every = max(1, steps // _EVALUATIONS)
    keeper = _BestWeights(module)
    since_gain = taken = 0
    module.train()
    for taken in range(1, steps + 1):
        descent.step(loss())
        if score is not None and (taken % every == 0 or taken == steps):
            module.eval()
            with torch.no_grad():
                gained = keeper.keep(score())
            since_gain = 0 if gained or taken < 0.3 * steps else since_gain + 1
            module.train()
            if since_gain >= _PATIENCE and ends_early:
                break
        if time.monotonic() > end:
            break
        if report is not None:
            report(taken / steps)
    keeper.restore()
    descent.end()
    module.eval()
    return taken


class _Descent:
    """AdamW with a one-cycle schedule, on all weights as one vector.

    A step on a dozen small tensors, one by one, took a fifth of the time of training. Until `end`
    the parameters and their gradients are parts of two vectors.
    """

    def __init__(
        self, module: nn.Module, steps: int, learning_rate: float, weight_decay: float, clip: float
    ) -> None:
        self.steps, self.rate, self.decay, self.clip = steps, learning_rate, weight_decay, clip
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.weights = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        self.slope, self.mean, self.square = (torch.zeros_like(self.weights) for _ in range(3))
        sizes = [p.numel() for p in self.parameters]
        parts = zip(self.weights.split(sizes), self.slope.split(sizes), strict=True)
        for parameter, (weight, slope) in zip(self.parameters, parts, strict=True):
            parameter.data = weight.view(parameter.shape)
            parameter.grad = slope.view(parameter.shape)
        self.taken = 0

    def _cycle(self) -> tuple[float, float]:
        """Learning rate and momentum of this step: up along a cosine, then down.

        References
        ----------
        Smith, Topin: Super-convergence, 2018.
        """
        peak = _RISE * self.steps - 1
        rises = self.taken <= peak
        length = peak if rises else self.steps - 1 - peak
        place = (self.taken if rises else self.taken - peak) / length
        part = (1 + math.cos(math.pi * place)) / 2  # from 1 to 0
        first, last = (_FIRST_RATE, 1.0) if rises else (1.0, _FIRST_RATE * _LAST_RATE)
        low, high = _MOMENTA
        momentum = low + (high - low) * (part if rises else 1 - part)
        return self.rate * (last + (first - last) * part), momentum

    def step(self, value: Tensor) -> None:
        """Take one step down the gradient of a loss."""
        if not math.isfinite(value.item()):
            raise ValueError(
                "The loss of the neural network is not finite: its output is NaN or infinite. "
                "A network of your own may overflow; else try a smaller learning_rate."
            )
        self.slope.zero_()
        value.backward()
        rate, momentum = self._cycle()
        self.taken += 1
        with torch.no_grad():
            length = self.slope.norm().item()
            if length > self.clip:
                self.slope.mul_(self.clip / (length + 1e-6))
            self.mean.lerp_(self.slope, 1 - momentum)
            self.square.mul_(_SQUARES).addcmul_(self.slope, self.slope, value=1 - _SQUARES)
            self.weights.mul_(1 - rate * self.decay)
            spread = self.square.sqrt().div_(math.sqrt(1 - _SQUARES**self.taken)).add_(1e-8)
            self.weights.addcdiv_(self.mean, spread, value=-rate / (1 - momentum**self.taken))

    def end(self) -> None:
        """Give the parameters memory of their own again."""
        for parameter in self.parameters:
            parameter.data, parameter.grad = parameter.data.clone(), None


def _affordable_steps(module: nn.Module, loss: Callable[[], Tensor], seconds: float) -> int:
    """Return how many steps fit into the given time, timed on a few."""
    module.train()
    start = time.monotonic()
    for _ in range(_PILOT_STEPS):
        loss().backward()
    module.zero_grad(set_to_none=True)
    pace = (time.monotonic() - start) / _PILOT_STEPS
    steps = int(_STEP_SHARE * seconds / pace)
    if steps < _LEAST_STEPS:
        raise OutOfTimeError("Too little time is left to train a network; allow more time_budget.")
    return steps


class _BestWeights:
    """The weights of each member at its best score."""

    def __init__(self, module: nn.Module) -> None:
        self.tensors = [*module.parameters(), *module.buffers()]
        self.best: Tensor | None = None
        self.copies: list[Tensor] = []

    def keep(self, score: Tensor) -> bool:
        """Keep the weights of members with a new best score; return whether there are any."""
        if self.best is None:
            self.best = score.clone()
            self.copies = [t.detach().clone() for t in self.tensors]
            return True
        better = score > self.best
        self.best = torch.where(better, score, self.best)
        for copy, tensor in zip(self.copies, self.tensors, strict=True):
            if len(score) == 1 and better:
                copy.copy_(tensor.detach())
            elif len(score) > 1:
                copy[better] = tensor.detach()[better]
        return bool(better.any())

    def restore(self) -> None:
        """Put the kept weights back, if any were kept."""
        with torch.no_grad():
            for copy, tensor in zip(self.copies, self.tensors, strict=False):
                tensor.copy_(copy)


def choose_device(device: str) -> torch.device:
    """Turn "auto", "cpu" or "cuda" into a device that is available."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f'device must be "auto", "cpu" or "cuda", got {device!r}.') from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f'device={device!r}, but torch finds no GPU here; use "auto" or "cpu".')
    return chosen
