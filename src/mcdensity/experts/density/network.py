r"""Networks that give a density: `mixture`, `flow` and `two-tower`.

They are trained by the exact contrast. As the share r of joint pairs goes to 0 the loss of a
classifier, scaled, becomes :math:`-E_{joint}[T] + E_{broken}[e^T]`, and minimising that over a
constant c(x) added to T leaves the conditional log-likelihood of
:math:`f_Y(y) e^{T(x, y)} / Z(x)` with :math:`Z(x) = \int f_Y e^T dy`, an integral over one
variable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from mcdensity._known import storable
from mcdensity._mixing import mixture_weights, pool_gains, pooling_exponents, survivor_exponent
from mcdensity._parallel import in_parallel
from mcdensity._progress import showing
from mcdensity._validation import check_integer, check_number
from mcdensity.data import HeldOut, TrainingData
from mcdensity.experts.base import (
    ConditionedDensity,
    DensityExpert,
    FitReport,
    Rows,
    pool_points,
)
from mcdensity.experts.density.budget import (
    LARGE,
    MEDIUM,
    usual_batch,
    usual_rate,
    usual_steps,
    usual_width,
)
from mcdensity.experts.registry import register

__all__ = ["NetworkDensity"]

Array = NDArray[np.float64]

# Standard deviations of noise to choose from for 100 rows, on standardised data; they shrink with
# n^(-1/6), the rate of a bandwidth that is right for a density. With (0.05, 0.15, 0.4) instead
# Yacht lost 0.36 nats and InverseSinusoid 0.05 (`mixture`).
_NOISE = {
    "flow": (0.02, 0.07, 0.3), "mixture": (0.02, 0.07, 0.3), "two-tower": (0.03, 0.2)
}  # fmt: skip
# Tried with `mixture` on Concrete, Yacht, Kin8nm, SDSSBoss and ARMAJump, 300 rows each
# (benchmarks/constants.txt). Members 3, 5 and 8: 5 is best on three of the five sets, 8 on one.
_MEMBERS = {"flow": 5, "mixture": 5, "two-tower": 3}
# With fewer observations a fifth of them, one or two, says nothing about when to stop.
_LEAST_OBSERVATIONS = 10
# From this many observations on the largest noise is not tried, and the layers have batch norm,
# SiLU and dropout and are twice as wide, as those of `mlp`; steps are fewer, smaller and longer.
# `mixture` with 750 rows of Kin8nm and Protein and 1000 of a smooth law: 0.95, -2.50, -1.10 without
# batch norm; with it and 256 rows in a step 0.97, -2.50, -1.05; with 64, 0.97, -2.48, -0.99; with
# 96, twice the learning rate and dropout of 0.05: 1.00, -2.46, -0.99. With 100 to 300 rows nothing
# is gained (eleven sets).
_DROPOUT = 0.05
# From this many on without: with 10,000 pairs of a simulator (slcp, five links) dropout took the
# log-likelihood from -4.64 to -4.42; with 6500 to 10,000 rows of Protein, Power, SDSSBoss, taxi
# rides and two other simulators it changed it by -0.010 to +0.010, with 20,000 of Protein by 0.005.
_NO_DROPOUT = 15_000
# From this many on there is one member, so that time stays within a minute.
_MANY = 5000
# From this many on it has three wide layers, the learning rate is lower, and training does not end
# early. With two layers of 64 and dropout, without dropout, and so: -2.01, -2.01 and -1.90 on
# 15,000 rows of Protein (CRPS 1.92, 1.93, 1.70); 1.366, 1.388 and 1.411 on 6000 of Kin8nm.
_DEPTH = 3
# Points of y over which a density is normalised: while training (drawn anew within their strata at
# every step), on held-out rows, and when predicting.
_TRAINING_POINTS, _VALIDATION_POINTS, _FINAL_POINTS = 128, 512, 256
# Rows that the ensemble is scored by at most: a standard error of about 0.02 nats.
_MOST_VALIDATION_ROWS = 2000
# Quantiles of the marginal from which training points are drawn, 64 for each of their strata.
_TABLE = 8192
# Levels of noise of less weight are dropped. With 0, 0.02 and 0.1 the likelihoods of these sets
# were the same to 0.004 nats, but for Yacht, which loses 0.02 with 0.1.
_LEAST_WEIGHT = 0.02
# Standard errors subtracted from the held-out likelihood before experts are compared: the same
# rows have chosen the time to stop and the weights of the levels.
_CAUTION = 0.2
# Numbers computed at once when predicting, so that they stay in the cache: quantiles of 10,000 rows
# took 4.1, 4.2 and 4.9 s with 2^16, 2^18 and 2^20.
_BLOCK = 1 << 16


@storable
class NetworkDensity(DensityExpert):
    """A network from x to a density of y, trained by conditional likelihood, as a small ensemble.

    The members each hold out a fold of the observations, which selects their best weights.
    Members with different levels of noise on x and y are trained together. For each fold the
    densities of the levels are mixed, weighted by held-out likelihood; the log-densities of the
    folds are averaged, and sharpened as far as the held-out rows allow. A small part of the
    marginal is in each mixture: without it one network could rule out what the others expect.

    Parameters
    ----------
    tower : {"two-tower", "mixture", "flow"}
        See ``mcdensity.networks.towers``.
    members : int, optional
        Networks in the ensemble; by default 3 ("two-tower") or 5 below 5000 observations, else 1.
    size : int, optional
        Learned features of y ("two-tower", default 16), components ("mixture", default 10), or
        bins of the spline ("flow", default 8).
    width, depth : int, optional
        Of the hidden layers; by default 2 layers of 32 below 500 observations, of 64 below 6000,
        then 3 layers of 96, and from 30,000 on of 128.
    dropout : float, optional
        Share of units that a step leaves out, from 500 observations on; by default 0.05 below
        15,000, then 0.
    steps : int, optional
        Budget of training steps; by default 400 ("two-tower": 330) for 100 observations, growing
        with the power 0.35 of their number up to 6000.
    batch_size : int, optional
        Rows in a step; by default 128 ("two-tower") or 256; from 500 observations on a tenth of
        them, from 96 to 256, and beyond 6000 a twentieth, up to 768.
    learning_rate : float, optional
        By default 0.02 below 500 observations, 0.04 below 6000, then 0.02, falling to 0.005.
    weight_decay : float, default 0.01
    noise : float or "cv", default "cv"
        Standard deviation of the noise on standardised x, and on the normal score of y ("flow": on
        y); "cv" weights several levels by held-out likelihood.
    device : {"auto", "cpu", "cuda"}, default "auto"
    verbose : bool, default False

    Attributes
    ----------
    module_ : torch.nn.Module
    trust_ : float
        Exponent of the ensemble's density over the marginal's: near 0 where x tells nothing.
    gain_ : float
        Log-likelihood of the held-out rows above that of the marginal.
    noise_weights_ : dict
        Weights of the levels of noise.
    n_steps_ : int
    """

    holds_out: ClassVar[bool] = True
    streams: ClassVar[bool] = True
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")

    @property
    def takes_censored(self) -> bool:  # type: ignore[override]
        """Whether targets may be lower bounds: where the survivor has a closed form."""
        return self.tower != "two-tower"

    @property
    def most_observations(self) -> float:  # type: ignore[override]
        """The portfolio asks a flow only where there are few rows, and networks are cheap."""
        return MEDIUM if self.tower == "flow" else np.inf

    @property
    def least_effort(self) -> str:  # type: ignore[override]
        """One network is enough where little is asked for."""
        return "fast" if self.tower == "mixture" else "normal"

    def __init__(
        self,
        tower: str = "two-tower",
        members: int | None = None,
        size: int | None = None,
        width: int | None = None,
        depth: int | None = None,
        dropout: float | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
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
        self.dropout = dropout
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.noise = noise
        self.device = device
        self.verbose = verbose

    def fit(self, data: TrainingData) -> FitReport:
        """Learn from rows and from the marginal."""
        self._check()
        if (marginal := data.marginal) is None:
            raise ValueError(f"{self.describe()} needs the marginal: fit it through MCD.")
        from mcdensity.networks.parameters import join_members

        rng, units = data.random_state, data.n_observations
        held_out = None
        if units >= _LEAST_OBSERVATIONS:
            usual = _MEMBERS[self.tower] if units < _MANY else 1
            held_out = data.held_out(int(self.members or usual), most=_MOST_VALIDATION_ROWS)
        members = int(self.members or 1) if held_out is None else held_out.members
        levels = self._levels(units, held_out is not None, data.effort.levels)
        low, high = data.X.min(axis=0), data.X.max(axis=0)
        self._x_limits = 2 * low - high, 2 * high - low
        with showing(self.verbose, f"Training {self.tower}", data.report) as report:
            seed, data = int(rng.integers(2**31)), data.but(report=report)
            if self._trains_apart(data):
                training = self._prepare(data, held_out, members, levels)
                train = partial(self._trained_level, data, held_out, members, levels, seed)
                parts = in_parallel(train, range(len(levels)), data.n_jobs, processes=True)
                join_members(training.module, [module for module, _ in parts])
                training.module.eval()  # held-out rows are judged as new ones will be
                self.n_steps_ = max(steps for _, steps in parts)
            else:
                training = self._train(data, held_out, members, levels, seed)
            found = self._weigh(training, data, held_out, members, levels)
        self.module_ = training.module.cpu().eval()
        self._points = marginal.strata(_FINAL_POINTS)
        return found

    def _trains_apart(self, data: TrainingData) -> bool:
        """Whether levels are trained side by side: steps are arithmetic more than Python's work."""
        from mcdensity.networks.training import choose_device

        on_cpu = choose_device(self.device).type == "cpu"
        return self._is_large(data) and on_cpu and data.deadline is None

    def _trained_level(
        self,
        data: TrainingData,
        held_out: HeldOut | None,
        members: int,
        levels: Array,
        seed: int,
        level: int,
    ) -> tuple[Any, int]:
        """Return the networks of one level, and the steps they took."""
        training = self._train(data, held_out, members, levels[[level]], seed + level)
        return training.module, self.n_steps_

    def _train(
        self, data: TrainingData, held_out: HeldOut | None, members: int, levels: Array, seed: int
    ) -> Any:
        """Train the networks of some levels."""
        import torch

        from mcdensity.networks.random import seeded

        units = data.n_observations
        with seeded(seed), torch.enable_grad(), data.own_threads():
            training = self._prepare(data, held_out, members, levels)
            self.n_steps_ = training.run(
                steps=int(self.steps or usual_steps(self.tower, units, data.effort.steps)),
                learning_rate=self.learning_rate or usual_rate(units),
                weight_decay=self.weight_decay,
                report=data.report,
                inner=_VALIDATION_POINTS,
                seconds=data.seconds_left(),
                ends_early=not self._is_large(data),
            )
        return training

    def _prepare(
        self, data: TrainingData, held_out: HeldOut | None, members: int, levels: Array
    ) -> Any:
        """Build the networks, and what trains them."""
        import torch

        from mcdensity.networks.conditioning import DensityTraining, likelihood
        from mcdensity.networks.scores import NormalScores
        from mcdensity.networks.towers import TOWERS
        from mcdensity.networks.training import choose_device

        device, marginal = choose_device(self.device), data.marginal
        assert marginal is not None
        large = self._is_large(data)
        width = int(self.width or usual_width(data.n_observations, large))
        depth = int(self.depth or (_DEPTH if large else 2))
        size = () if self.size is None else (int(self.size),)
        total = members * len(levels)
        scores = NormalScores.of(marginal)
        make: Any = TOWERS[self.tower]
        usual = _DROPOUT if data.n_observations < _NO_DROPOUT else 0.0
        dropout: float | None = self.dropout if self.dropout is not None else usual
        if data.n_observations < MEDIUM:
            dropout = None  # tanh
        module = make(scores, total, data.X.shape[1], width, depth, *size, dropout=dropout).to(
            device
        )

        def tensor(array: Array) -> Any:
            return torch.as_tensor(array, dtype=torch.float32, device=device)

        prepare, log_density = likelihood(
            module,
            tensor(marginal.logpdf(data.Y[:, 0]) - data.held_out_marginal()),
            None if data.censored is None else torch.as_tensor(data.censored, device=device),
            marginal.limits[1],
            tensor(marginal.strata(_TABLE)),
            tensor(marginal.strata(_VALIDATION_POINTS)),
            _TRAINING_POINTS,
        )
        return DensityTraining(
            module,
            prepare,
            log_density,
            data.X,
            data.Y[:, 0],
            data.row_weight,
            held_out,
            members,
            levels,
            int(self.batch_size or usual_batch(self.tower, data.n_observations, large)),
            (scores, scores.inverse) if module.noise_in_score else (torch.clone, torch.clone),
            True,
            device,
        )

    def _weigh(
        self,
        training: Any,
        data: TrainingData,
        held_out: HeldOut | None,
        members: int,
        levels: Array,
    ) -> FitReport:
        """Weight the levels of noise, choose the exponent, drop the networks without a weight."""
        import torch

        from mcdensity.networks.parameters import keep_members

        units, report = data.n_observations, FitReport.empty()
        # Without held-out rows: nearly full trust, or none where there are hardly any rows.
        self.trust_, self.gain_ = float(units >= 5), math.nan
        weights = np.array([1 - 1 / units, 1 / units])
        if held_out is not None:
            with torch.no_grad():
                value = training.by_level(training.held_out_log_density(_VALIDATION_POINTS))
            rows = held_out.scored
            marginal, share = data.held_out_marginal()[rows], data.row_weight[rows]
            gains = value.double().cpu().numpy().T - marginal[:, None]
            weights = mixture_weights(gains, share, _LEAST_WEIGHT)
        kept = np.flatnonzero(weights[:-1])
        if len(kept) == 0:  # the marginal is best: keep any network, at almost no weight
            kept, weights = np.array([0]), np.append(np.eye(len(levels))[0] * 1e-9, 1.0)
        self.noise_weights_ = dict(zip(levels[kept].tolist(), weights[kept].tolist(), strict=True))
        if held_out is not None:
            own, grid = training.held_out_ratios(weights, pool_points(data), marginal)
            if data.censored is None:
                exponent = pooling_exponents(own[:, None], grid[:, None], share, np.ones(1))
            else:
                level = data.marginal.cdf(data.Y[rows, 0])  # type: ignore[union-attr]
                exponent = survivor_exponent(own, grid, share, level, data.censored[rows])
            gained = pool_gains(own[:, None], grid[:, None], exponent)
            self.trust_, self.gain_ = float(exponent[0]), float(np.average(gained, weights=share))
            gained = pool_gains(own[:, None], grid[:, None], np.ones(1))
            grid = grid - (own - gained)[:, None]
            gained -= _CAUTION * gained.std() / math.sqrt(len(rows))
            report = FitReport(rows, marginal + gained, grid)
            if data.folds is not None:
                self.trust_ = 1.0  # the pool that it is a part of has an exponent for it
        chosen = [k * members + np.arange(members) for k in kept]
        keep_members(training.module, np.concatenate(chosen))
        self._level_weights, self._rest = weights[kept], float(weights[-1])
        return report

    @staticmethod
    def _is_large(data: TrainingData) -> bool:
        return data.n_observations >= LARGE and data.effort.rank > 0

    def _levels(self, n: int, hold: bool, most: int) -> Array:
        if isinstance(self.noise, str):
            levels = np.array(_NOISE[self.tower]) * (n / 100) ** (-1 / 6)
            if not hold:
                return levels[-1:]
            # One alone: that in the middle.
            return levels[1:2] if most == 1 else levels[: 2 if n >= MEDIUM else 3]
        return np.array([float(self.noise)])

    def _check(self) -> None:
        if self.tower not in _NOISE:
            raise ValueError(f"tower must be one of {sorted(_NOISE)}, got {self.tower!r}.")
        for name in ("members", "size", "width", "depth", "steps", "batch_size"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        if not (isinstance(self.noise, str) and self.noise == "cv"):
            check_number("noise", self.noise, closed=True, word="cv")
        if self.learning_rate is not None:
            check_number("learning_rate", self.learning_rate)
        check_number("weight_decay", self.weight_decay, closed=True)

    def condition(self, X: Array) -> ConditionedDensity:
        """Compute the parameters of the densities of these rows."""
        from mcdensity.networks.conditioning import condition_on

        evaluate, log_marginal_at = condition_on(
            self.module_,
            np.clip(X, *self._x_limits),
            self._points,
            self._level_weights,
            self._rest,
            _BLOCK,
        )

        def log_density(y: Array, rows: Rows | None, log_marginal: Array | None) -> Array:
            if log_marginal is None:
                log_marginal = log_marginal_at(y)
            out = log_marginal + self.trust_ * evaluate(y, rows, log_marginal)
            if np.isnan(out).any():
                raise ValueError(f"The discriminator {self.describe()} returned NaN.")
            return out

        def log_total() -> Array:
            ratio = log_density(self._points, None, None) - log_marginal_at(self._points)
            return logsumexp(ratio, axis=1) - np.log(len(self._points))

        return ConditionedDensity(len(X), log_density, log_total)

    def describe(self) -> str:
        """Name for messages."""
        return self.tower


def _named(tower: str, portfolio: int | None = None) -> Callable[..., NetworkDensity]:
    @register(tower, portfolio=portfolio)
    def build(**parameters: Any) -> NetworkDensity:
        return NetworkDensity(tower, **parameters)

    return build


mixture = _named("mixture", 10)
flow = _named("flow", 20)
# Added to the others it gained nothing on 21 real and simulated tables of 100 and 300 rows.
two_tower = _named("two-tower")
