"""Families of laws on the line, and the networks from x to their parameters.

A law is that of ``middle + exp(log_width) * e``, with e of a known family; two of the families have
a third parameter. Of the logarithm of a duration, they are the log-normal law, Weibull's, the
log-logistic, the exponentiated Weibull, which comes close to the gamma law, and Burr's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["FAMILIES", "FamilyNetworks", "likelihood", "log_density", "log_survivor", "train"]

# Exponents beyond this are not computed: exp(30) is finite, and squares of it are.
_MOST = 30.0
# The logarithms of widths, and third parameters, stay within these.
_MOST_LOG_WIDTH, _MOST_LOG_SHAPE = 5.0, 3.0
# Penalty of squared weights of the first layer and of the linear path, relative to that of the last
# layer, and what those of the third parameter count more. With none of the former, 3 and 30 in
# place of the latter, and widths of 16 and 32, divergences were the same within their scatter.
_DECAY_BELOW, _DECAY_SHAPE = 0.1, 10.0
_WIDTH, _RATE, _LEAST_RATE = 16, 0.02, 1e-4
# Steps between two looks at held-out rows.
_LOOK = 5
# Rows in a step at most.
_MOST_ROWS = 2048

Terms = tuple[Tensor, Tensor]


def _normal(e: Tensor, shape: Tensor) -> Terms:
    return -0.5 * e * e - 0.5 * math.log(2 * math.pi), torch.special.log_ndtr(-e)


def _weibull(e: Tensor, shape: Tensor) -> Terms:
    hazard = torch.exp(e.clamp(max=_MOST))
    return e - hazard, -hazard


def _logistic(e: Tensor, shape: Tensor) -> Terms:
    return -e - 2 * softplus(-e), -softplus(e)


def _exponentiated(e: Tensor, shape: Tensor) -> Terms:
    """P(E <= e) = (1 - exp(-exp(e + c)))^k, with log k the shape; c makes 0 the median."""
    k = torch.exp(shape)
    e = e + torch.log(-torch.log1p(-torch.exp(-math.log(2) / k)))
    hazard = torch.exp(e.clamp(-_MOST, _MOST))
    below = _log1mexp(hazard).clamp(max=-1e-12)
    # Far out the survivor is k exp(-hazard).
    survivor = torch.where(hazard > 12, shape - hazard, _log1mexp((-k * below).clamp(min=1e-7)))
    return shape + (k - 1) * below + e - hazard, survivor


def _burr(e: Tensor, shape: Tensor) -> Terms:
    """P(E > e) = (1 + exp(e) / k)^-k, with log k the shape: logistic, or nearly Weibull's."""
    k, rise = torch.exp(shape), softplus(e - shape)
    return e - (k + 1) * rise, -k * rise


def _log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(-x)) for positive x; the part that is not taken is finite, for its gradient."""
    near = torch.log(-torch.expm1(-x.clamp(max=1.0)))
    return torch.where(x < 0.7, near, torch.log1p(-torch.exp(-x.clamp(min=0.5))))


FAMILIES: dict[str, Callable[[Tensor, Tensor], Terms]] = {
    "normal": _normal,
    "weibull": _weibull,
    "logistic": _logistic,
    "exponentiated weibull": _exponentiated,
    "burr": _burr,
}


def log_density(family: str, y: Tensor, parameters: Tensor) -> Tensor:
    """Log-density at y, given parameters of shape (..., 3) for each."""
    middle, log_width, shape = parameters.unbind(-1)
    return FAMILIES[family]((y - middle) * torch.exp(-log_width), shape)[0] - log_width


def log_survivor(family: str, y: Tensor, parameters: Tensor) -> Tensor:
    """Log-probability of more than y."""
    middle, log_width, shape = parameters.unbind(-1)
    return FAMILIES[family]((y - middle) * torch.exp(-log_width), shape)[1]


@dataclass
class FamilyNetworks:
    """Networks with one hidden layer and a linear path beside it, stacked.

    Parameters
    ----------
    weights : list of Tensor
        Of the hidden layer (members, p, width), its offsets (members, 1, width), the last layer
        (members, width, 3), the linear path (members, p, 3) and the offsets (members, 1, 3).
    """

    weights: list[Tensor]

    @classmethod
    def start(cls, members: int, n_inputs: int, random: torch.Generator) -> FamilyNetworks:
        """Return networks that give all x the same law: of a middle above that of outcomes seen."""
        first = torch.randn(members, n_inputs, _WIDTH, generator=random) / math.sqrt(n_inputs)
        offset = 0.5 * torch.randn(members, 1, _WIDTH, generator=random)
        last, path = torch.zeros(members, _WIDTH, 3), torch.zeros(members, n_inputs, 3)
        start = torch.tensor([0.5, 0.0, 0.0]).repeat(members, 1, 1)
        return cls([first, offset, last, path, start])

    def __call__(self, x: Tensor) -> Tensor:
        """Parameters, shape (members, rows, 3), for x of shape (rows, p)."""
        first, offset, last, path, start = self.weights
        out = torch.tanh(x @ first + offset) @ last + x @ path + start
        middle, log_width, shape = out.unbind(-1)
        log_width = _MOST_LOG_WIDTH * torch.tanh(log_width / _MOST_LOG_WIDTH)
        shape = _MOST_LOG_SHAPE * torch.tanh(shape / _MOST_LOG_SHAPE)
        return torch.stack([middle, log_width, shape], dim=-1)

    def penalty(self) -> Tensor:
        """Sum of squared weights of each member."""
        first, _, last, path, _ = self.weights
        factor = torch.tensor([1.0, 1.0, _DECAY_SHAPE])
        below = (first**2).sum((1, 2)) + (factor * path**2).sum((1, 2))
        return (factor * last**2).sum((1, 2)) + _DECAY_BELOW * below


def likelihood(families: list[str], parameters: Tensor, y: Tensor, censored: Tensor) -> Tensor:
    """Log-densities, or log-survivors where y is a lower bound: (members, rows).

    The members are those of the first family, then those of the second, and so on.
    """
    parts = parameters.chunk(len(families))
    return torch.cat([
        torch.where(censored, log_survivor(name, y, part), log_density(name, y, part))
        for name, part in zip(families, parts, strict=True)
    ])  # fmt: skip


def train(
    families: list[str],
    decay: Tensor,
    x: Tensor,
    y: Tensor,
    censored: Tensor,
    weight: Tensor,
    held: Tensor,
    scored: Tensor,
    steps: int,
    random: torch.Generator,
    out_of_time: Callable[[], bool],
    report: Callable[[float], Any],
) -> FamilyNetworks:
    """Maximise the likelihood; the weights that are best on held-out rows are kept.

    Parameters
    ----------
    families : list of str
        One of them may be there several times.
    decay : Tensor of shape (families,)
        Penalty of squared weights.
    x, y, censored, weight : Tensor
        Standardised rows.
    held : Tensor of bool, shape (members, rows)
        The rows that each member of a family holds out.
    scored : Tensor of int
        The held-out rows that are looked at.
    steps : int
    random : torch.Generator
    out_of_time : callable
    report : callable
    """
    decay = decay.repeat_interleave(len(held))
    held = held.repeat(len(families), 1)
    networks = FamilyNetworks.start(len(held), x.shape[1], random)
    for each in networks.weights:
        each.requires_grad_(True)
    optimizer = torch.optim.Adam(networks.weights, lr=_RATE)
    best = torch.full((len(held),), -math.inf)
    kept = [each.detach().clone() for each in networks.weights]
    share = held[:, scored] * weight[scored]

    def look() -> None:
        with torch.no_grad():
            value = likelihood(families, networks(x[scored]), y[scored], censored[scored])
            value = (value * share).sum(1)
            better = value > best
            best[better] = value[better]
            for old, new in zip(kept, networks.weights, strict=True):
                old[better] = new[better]

    for step in range(steps):
        if step % _LOOK == 0:
            look()
            if step and out_of_time():
                break
        optimizer.param_groups[0]["lr"] = _LEAST_RATE + _RATE * 0.5 * (
            1 + math.cos(math.pi * step / steps)
        )
        rows: Any = slice(None)
        if len(x) > _MOST_ROWS:
            rows = torch.randint(len(x), (_MOST_ROWS,), generator=random)
        value = likelihood(families, networks(x[rows]), y[rows], censored[rows])
        used = (~held[:, rows]) * weight[rows]
        loss = decay * networks.penalty() - (value * used).sum(1) / used.sum(1)
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
        report((step + 1) / steps)
    look()
    return FamilyNetworks(kept)
