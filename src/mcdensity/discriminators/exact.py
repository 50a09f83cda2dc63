r"""Discriminators trained by the exact contrast: `two-tower`, `mixture` and `flow`.

As the share r of joint pairs goes to 0 the loss of a classifier, scaled, becomes
:math:`-E_{joint}[T] + E_{broken}[e^T]`, and minimising that over a constant c(x) added to T leaves
the conditional log-likelihood of :math:`f_Y(y) e^{T(x, y)} / Z(x)` with
:math:`Z(x) = \int f_Y e^T dy`, an integral over one variable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcdensity._mixing import mixture_weights
from mcdensity._validation import check_integer, check_number
from mcdensity.contrast import ContrastSet
from mcdensity.discriminators.adapters import Discriminator, TargetMarginal
from mcdensity.networks.parameters import keep_members
from mcdensity.networks.towers import FlowTower, MixtureTower, NormalScores, TwoTower
from mcdensity.networks.training import choose_device, seeded, train

__all__ = ["ExactDiscriminator", "flow", "mixture", "two_tower"]

Array = NDArray[np.float64]

# Levels of noise to choose from for 100 rows, on standardised data; they shrink with n^(-1/6).
_NOISE = {
    "flow": (0.02, 0.07, 0.3), "mixture": (0.02, 0.07, 0.3), "two-tower": (0.03, 0.2)
}  # fmt: skip
_MEMBERS = {"flow": 5, "mixture": 5, "two-tower": 3}
_STEPS = {"flow": 400, "mixture": 400, "two-tower": 330}
_BATCH = {"flow": 256, "mixture": 256, "two-tower": 128}
_LEAST_OBSERVATIONS = 10
# With so many observations the largest noise is not tried.
_MANY = 2000
_LARGE = 5000
_HELD_OUT_SHARE = 0.2
# Points of y over which a density is normalised: while training (drawn anew within their strata at
# every step), on held-out rows, and for good.
_TRAINING_POINTS, _VALIDATION_POINTS, _FINAL_POINTS = 128, 512, 256
_MOST_VALIDATION_ROWS = 2000
_TABLE = 8192
_LEAST_WEIGHT = 0.02
_CAUTION = 0.2
# Numbers worked at once when predicting.
_BLOCK = 1 << 23
_TOWERS = {"flow": FlowTower, "mixture": MixtureTower, "two-tower": TwoTower}


class ExactDiscriminator(Discriminator):
    """A network whose log-ratio is trained by conditional likelihood, as a small ensemble.

    The members each hold out a fold of the observations, by which their best weights are kept.
    Members with different levels of noise on x and y are trained together. The densities of the
    members are averaged, and the levels and the marginal mixed as the held-out rows ask for.

    Parameters
    ----------
    tower : {"two-tower", "mixture", "flow"}
        See `mcdensity.networks.towers`.
    members : int, optional
        Networks in the ensemble; by default 3 ("two-tower") or 5 below 5000 observations, else 1.
    size : int, optional
        Learned features of y ("two-tower", default 16), components ("mixture", default 10), or
        bins of the spline ("flow", default 8).
    width, depth : int
        Of the hidden layers; by default 2 layers of 32 below 5000 observations, else of 64.
    steps : int, optional
        Budget of training steps; by default 400 ("two-tower": 330) for 100 observations, growing
        with the power 0.35 of their number up to 2500.
    batch_size : int, optional
        Rows in a step; by default 128 ("two-tower") or 256.
    learning_rate : float, default 0.02
    weight_decay : float, default 0.01
    noise : float or "cv", default "cv"
        Standard deviation of the noise on standardised x, and on the normal score of y ("flow": on
        y); "cv" weighs several levels by the held-out rows.
    device : {"auto", "cpu", "cuda"}, default "auto"
    verbose : bool, default False

    Attributes
    ----------
    module_ : torch.nn.Module
    trust_ : float
        Weight of the ensemble; the rest is the marginal's.
    gain_ : float
        Log-likelihood of the held-out rows above that of the marginal.
    noise_weights_ : dict
        Weights of the levels of noise.
    n_steps_ : int
    """

    def __init__(
        self,
        tower: str = "two-tower",
        members: int | None = None,
        size: int | None = None,
        width: int | None = None,
        depth: int = 2,
        steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 0.02,
        weight_decay: float = 0.01,
        noise: float | str = "cv",
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.tower = tower
        self.members = members
        self.size = size
        self.width = width
        self.depth = depth
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.noise = noise
        self.device = device
        self.verbose = verbose

    extrapolates = True

    def use_marginal(self, marginal: TargetMarginal) -> None:
        """Take note of the marginal."""
        self._marginal = marginal

    def use_folds(self, folds: NDArray[np.intp], judged: NDArray[np.bool_]) -> None:
        """Take note of the fold of each observation, in one or several ways to divide them.

        `judged` are the observations by which this discriminator is to be compared with others.
        """
        self._folds, self._judged = folds, judged

    def fit(self, contrast: ContrastSet, random_state: np.random.Generator) -> Self:
        """Learn from the joint pairs, and from the marginal."""
        self._check()
        origin = contrast.origin
        if origin is None or not hasattr(self, "_marginal"):
            raise ValueError(
                f"{self.describe()} needs a ContrastSet that build_contrast made, and the marginal "
                "(use_marginal): fit it through MCD."
            )
        rng, n = random_state, origin.n_labeled
        units = contrast.n_observations
        unit = np.arange(n) if origin.groups is None else origin.groups
        hold = units >= _LEAST_OBSERVATIONS
        if hasattr(self, "_folds"):
            fold = self._folds[:, unit]
            members = int(fold.max()) + 1
        else:
            members = int(self.members or (_MEMBERS[self.tower] if hold and units < _LARGE else 1))
            count = max(5, members)
            fold = (rng.permutation(units) % count)[unit][None]
        device = choose_device(self.device)
        x_all = torch.as_tensor(contrast.x_pool[:n], dtype=torch.float32, device=device)
        y_all = torch.as_tensor(contrast.y_pool[:n, 0], dtype=torch.float32, device=device)
        low, high = x_all.amin(0), x_all.amax(0)
        self._x_limits = (
            (low - (high - low)).cpu().numpy(),
            (high + (high - low)).cpu().numpy(),
        )
        self._y_limits = self._marginal.limits
        optimism = torch.as_tensor(
            np.broadcast_to(self._marginal.optimism, n).copy(), dtype=torch.float32, device=device
        )
        levels = self._levels(units, hold)
        # Members of a level: those that hold out each fold, for each way to divide the rows.
        held = np.stack([way == e for way in fold for e in range(members)]) & hold
        members = len(held)
        total = members * len(levels)
        held = np.tile(held, (len(levels), 1))
        share = np.ones(n) if origin.row_weight is None else origin.row_weight
        use = torch.as_tensor(share * ~held, dtype=torch.float32, device=device)
        noise = torch.as_tensor(np.repeat(levels, members), dtype=torch.float32, device=device)
        noise = noise[:, None]
        table = self._points(_TABLE).to(device)
        steps = int(self.steps or np.clip(_STEPS[self.tower] * (units / 100) ** 0.35, 200, 2500))
        checked = np.flatnonzero(held.any(axis=0))
        if hasattr(self, "_judged"):
            checked = checked[self._judged[unit[checked]]]
        if len(checked) > _MOST_VALIDATION_ROWS:
            checked = np.sort(rng.permutation(checked)[:_MOST_VALIDATION_ROWS])
        check = torch.as_tensor(share * held, dtype=torch.float32).to(device)[:, checked]
        batch = int(self.batch_size or _BATCH[self.tower])
        with seeded(int(rng.integers(2**31))), torch.enable_grad():
            module = self._build(x_all.shape[1], total, units).to(device)

            def gains(x: Tensor, y: Tensor, seen: Tensor, points: Tensor) -> Tensor:
                parameters = module.parameters_of(x)
                own = module.own(parameters, y, seen)
                if module.normalised:
                    return own
                # With a row's own y among the points no peak that it fell into is missed.
                value = torch.cat([module.grid(parameters, points), own[..., None]], -1)
                return own - _log_mean(value)

            def loss() -> Tensor:
                weight, x, y, seen = use, x_all, y_all, optimism
                if n > batch:
                    rows = torch.randint(n, (batch,), device=device)
                    weight, x, y, seen = use[:, rows], x_all[rows], y_all[rows], optimism[rows]
                x = x + noise[..., None] * torch.randn(x.shape, device=device)
                step = noise * torch.randn(y.shape, device=device)
                y = module.scores.shifted(y, step) if module.noise_in_score else y + step
                place = torch.arange(_TRAINING_POINTS, device=device) + torch.rand(
                    _TRAINING_POINTS, device=device
                )
                points = table[(place * (_TABLE / _TRAINING_POINTS)).long().clamp(max=_TABLE - 1)]
                value = gains(x, y, seen, points)
                return -((weight * value).sum(1) / weight.sum(1).clamp_min(1e-6)).sum()

            fixed = self._points(_VALIDATION_POINTS).to(device)

            def held_out() -> Tensor:
                x, y = (a[checked].expand(total, *a[checked].shape) for a in (x_all, y_all))
                seen = optimism[checked]
                rows = max(1, _BLOCK // (_VALIDATION_POINTS * total))
                return torch.cat(
                    [
                        gains(x[:, i : i + rows], y[:, i : i + rows], seen[i : i + rows], fixed)
                        for i in range(0, len(checked), rows)
                    ],
                    dim=1,
                )

            row_share = torch.as_tensor(share[checked], dtype=torch.float32, device=device)

            def together() -> Tensor:
                """Gains of held-out rows, (levels, rows): of the mean of who held them out."""
                shape = len(levels), len(fold), -1, len(checked)
                each = (check * held_out()).reshape(shape).sum(2) / row_share
                return each.logsumexp(1) - math.log(len(fold))

            def score() -> Tensor:
                # One time for all members of a level: the best time of each would be chosen by few
                # rows, and look better than it is.
                mean = together() @ row_share / row_share.sum()
                return mean.repeat_interleave(members)

            self.n_steps_ = train(
                module,
                loss,
                score if hold else None,
                steps=steps,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                verbose=self.verbose,
            )
            self.held_gains_ = np.full(n, np.nan)
            # Without held-out rows: almost all, or nothing where there are hardly any rows.
            trust = 0.0 if units < 5 else 1 - 1 / units
            weights = np.array([trust, 1 - trust])
            if hold:
                with torch.no_grad():
                    own = together().double().cpu().numpy()
                weights = mixture_weights(own.T, share[checked], _LEAST_WEIGHT)
                gained = np.log(np.exp(own).T @ weights[:-1] + weights[-1])
                # The rows have chosen the time to stop and the weights: a part of a standard error
                # is taken back before others are compared with.
                error = gained.std() / math.sqrt(len(checked))
                self.held_gains_[checked] = gained - _CAUTION * error
            kept = np.flatnonzero(weights[:-1])
            self.noise_weights_ = dict(zip(levels[kept].tolist(), weights[kept], strict=True))
            self.trust_ = float(1 - weights[-1])
            self.gain_ = (
                float(np.average(self.held_gains_[checked], weights=share[checked]))
                if hold
                else np.nan
            )
            keep_members(
                module,
                np.concatenate([k * members + np.arange(members) for k in kept])
                if len(kept)
                else np.arange(1),
            )
            self._member_weights = np.repeat(weights[kept] / members, members)
        self.module_ = module.cpu().eval()
        self._final = self._points(_FINAL_POINTS).numpy()
        self.ratio_, self.normalised_ = 0.5, True
        for name in ("_marginal", "_folds", "_judged"):
            self.__dict__.pop(name, None)
        return self

    def _points(self, count: int) -> Tensor:
        """Return quantiles of the marginal in the middle of strata of equal probability."""
        level = (np.arange(count) + 0.5) / count
        return torch.as_tensor(self._marginal.quantile(level), dtype=torch.float32)

    def _build(self, p: int, members: int, n: int) -> Any:
        scores = NormalScores.of(self._marginal)
        width = int(self.width or (32 if n < _LARGE else 64))
        size = () if self.size is None else (int(self.size),)
        return _TOWERS[self.tower](scores, members, p, width, int(self.depth), *size)

    def _levels(self, n: int, hold: bool) -> Array:
        if isinstance(self.noise, str):
            levels = np.array(_NOISE[self.tower]) * (n / 100) ** (-1 / 6)
            return (levels[:2] if n >= _MANY else levels) if hold else levels[-1:]
        return np.array([float(self.noise)])

    def _check(self) -> None:
        if self.tower not in _TOWERS:
            raise ValueError(f"tower must be one of {sorted(_TOWERS)}, got {self.tower!r}.")
        for name in ("members", "size", "width", "steps", "batch_size"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        check_integer("depth", self.depth)
        if not (isinstance(self.noise, str) and self.noise == "cv"):
            check_number("noise", self.noise, closed=True, word="cv")
        check_number("learning_rate", self.learning_rate)
        check_number("weight_decay", self.weight_decay, closed=True)

    def logit_rows(self, X: Array, Y: Array) -> Array:
        """Log-ratio at (X[i], Y[i, j])."""
        return self._log_ratio(X, Y)

    def logit_grid(self, X: Array, grid: Array) -> Array:
        """Log-ratio at (X[i], grid[j])."""
        return self._log_ratio(X, grid[None])

    def _log_ratio(self, X: Array, Y: Array) -> Array:
        """Log-ratio of the averaged densities; Y has one row for each of X, or one for all."""
        X = np.clip(X, *self._x_limits)
        if not self.module_.extrapolates:
            Y = np.clip(Y, *self._y_limits)
        module, m = self.module_, Y.shape[1]
        out = np.empty((len(X), m))
        if self.trust_ == 0:
            out[:] = 0.0
            return out
        with torch.inference_mode():
            x, y = (torch.as_tensor(np.ascontiguousarray(a), dtype=torch.float32) for a in (X, Y))
            members = next(module.parameters()).shape[0]
            points = torch.as_tensor(self._final)
            log_weights = torch.as_tensor(np.log(self._member_weights), dtype=torch.float32)
            log_weights = log_weights[:, None, None]
            inner = 40 if module.normalised else 1
            rows = max(
                1, _BLOCK // (members * inner * max(m, 1 if module.normalised else _FINAL_POINTS))
            )
            for i in range(0, len(X), rows):
                some = slice(i, i + rows)
                parameters = module.parameters_of(x[some].expand(members, -1, -1))
                shift = log_weights
                if not module.normalised:
                    shift = shift - _log_mean(module.grid(parameters, points))[..., None]
                value = module.grid(parameters, y[0] if len(y) == 1 else y[some])
                # A sum of exponentials in place: `logsumexp` would pass over the members again.
                total = value.add_(shift).clamp_(max=80).exp_().sum(0)
                out[some] = total.add_(1 - self.trust_).log_().numpy()
        if np.isnan(out).any():
            raise ValueError(f"The discriminator {self.describe()} returned NaN.")
        return out

    def describe(self) -> str:
        """Name for messages."""
        return self.tower


def _log_mean(value: Tensor) -> Tensor:
    return value.logsumexp(-1) - math.log(value.shape[-1])


def _named(tower: str) -> Callable[..., ExactDiscriminator]:
    def build(**parameters: Any) -> ExactDiscriminator:
        return ExactDiscriminator(tower, **parameters)

    return build


flow = _named("flow")
two_tower = _named("two-tower")
mixture = _named("mixture")
