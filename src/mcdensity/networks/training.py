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
    parameters = list(module.parameters())
    end = time.monotonic() + seconds
    if seconds < math.inf:
        steps = min(steps, _affordable_steps(module, loss, seconds))
    optimizer = torch.optim.AdamW(
        parameters, lr=learning_rate, weight_decay=weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=max(steps, 2), pct_start=0.3
    )
    every = max(1, steps // _EVALUATIONS)
    keeper = _BestWeights(module)
    since_gain = taken = 0
    for taken in range(1, steps + 1):
        module.train()
        _step(optimizer, loss(), parameters, clip)
        schedule.step()
        if score is not None and (taken % every == 0 or taken == steps):
            module.eval()
            with torch.no_grad():
                gained = keeper.keep(score())
            since_gain = 0 if gained or taken < 0.3 * steps else since_gain + 1
            if since_gain >= _PATIENCE and ends_early:
                break
        if time.monotonic() > end:
            break
        if report is not None:
            report(taken / steps)
    keeper.restore()
    module.eval()
    return taken


def _step(
    optimizer: torch.optim.Optimizer, value: Tensor, parameters: list[nn.Parameter], clip: float
) -> None:
    """Take one step down the gradient of a loss."""
    if not torch.isfinite(value):
        raise ValueError(
            "The loss of the neural network is not finite: its output is NaN or infinite. "
            "A network of your own may overflow; else try a smaller learning_rate."
        )
    optimizer.zero_grad(set_to_none=True)
    value.backward()
    nn.utils.clip_grad_norm_(parameters, clip)
    optimizer.step()


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
