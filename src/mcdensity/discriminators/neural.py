"""Neural discriminators: five architectures by name, and any torch module."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logit
from torch import Tensor, nn

from mcdensity.contrast import ContrastSet
from mcdensity.discriminators.adapters import Discriminator, TargetMarginal, pair_blocks
from mcdensity.networks import glu as glu_module
from mcdensity.networks import mlp as mlp_module
from mcdensity.networks import resnet as resnet_module
from mcdensity.networks import snn as snn_module
from mcdensity.networks.layers import StackedNetwork
from mcdensity.networks.pairs import LEAST_OBSERVATIONS, TrainingPairs
from mcdensity.networks.training import choose_device, seeded, train

__all__ = ["NeuralDiscriminator", "glu", "mlp", "mlp_plain", "resnet", "snn"]

Array = NDArray[np.float64]

# Values of y, at quantiles, over which held-out densities are normalised: while training, and in
# the end, when it is decided how far to trust the network.
_QUANTILES = 64
_FINAL_QUANTILES = 256
# Numbers that pass between two layers at once when predicting: a megabyte of single precision.
_CACHE = 1 << 18
# A quarter of a batch are joint pairs, whatever the ratio.
_JOINT_SHARE = 0.25
# Values of y over which the exact loss normalises.
_EXACT_POINTS = 16
# Shapes of the networks by the number of observations; chosen on the nine density models of the
# paper with 100 rows, and on the inverse sinusoid with 1400.
_SMALL, _LARGE = 500, 10_000
_SMALL_SHAPE: dict[str, Any] = {"members": 5, "width": 32, "depth": 2, "dropout": 0.1}
_MEDIUM_SHAPE: dict[str, Any] = {"members": 3, "width": 64, "depth": 3, "dropout": 0.02}
_LARGE_SHAPE: dict[str, Any] = {"members": 1, "width": 128, "depth": 3, "dropout": 0.02}
# Held-out rows judge the members one by one; their average errs less than each of them.
_AVERAGE_IS_SURER = 1.2


class NeuralDiscriminator(Discriminator):
    r"""A neural network, or a small ensemble, as a discriminator.

    Each member of the ensemble holds out a fold of the *observations* of its own; the weights are
    kept from the time when these rows, of all members together, were served best. The mean of the
    members' log-ratios T is then trusted as far as the held-out rows support it: with
    :math:`\alpha T`, where :math:`\alpha \ge 0` is the least factor with which their normalised
    log-likelihood is about as good as it gets. Where x tells nothing, :math:`\alpha` is near 0 and
    the density is the marginal.

    Parameters
    ----------
    module : torch.nn.Module, its class, or a function
        Maps (batch, p + 1) to one logit, or to two. A module is copied, never changed; a class or
        function is called with the number of inputs, p + 1, and `module_params`. A module of your
        own is one member.
    module_params : dict, optional
        More arguments for a class or function.
    members : int, optional
        Networks in the ensemble, for the architectures of this package; by default 5 below 500
        observations, 3 below 10,000, else 1.
    steps : int, optional
        Budget of training steps; by default 200 for 100 observations, growing with the square root
        of their number up to 2000. It does not grow with the number of pairs.
    batch_size : int, default 256
        Pairs a member sees in a step; a quarter are joint pairs.
    learning_rate : float, optional
        The highest of the one-cycle schedule; by default 0.01 below 500 observations, else 0.02.
    weight_decay : float, default 0.01
        Of AdamW.
    loss : {"bce", "exact"}, default "bce"
        The paper's cross-entropy of joint and broken pairs, or its limit as the ratio goes to 0:
        the conditional log-likelihood, normalised over values of y drawn from the marginal.
    class_weight : {"balanced", None}, default "balanced"
        Whether the two classes weigh the same in the loss, or as in the contrast set.
    validation_share : float, default 0.2
        Share of the observations that a member holds out. 0: none, and the network is trusted.
    fresh_pairs : bool, default True
        Whether broken pairs are drawn anew for every batch from the rows of the contrast set, or
        only those of the set are used. Constructions 1 and 3, and weighted data, always use those
        of the set.
    device : {"auto", "cpu", "cuda"}, default "auto"
    verbose : bool, default False
        Whether to show a progress bar.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained network, for prediction.
    trust_ : float
        The factor alpha.
    gain_ : float
        Log-likelihood of the held-out rows above that of the marginal.
    n_steps_ : int
        Steps taken.
    """

    def __init__(
        self,
        module: nn.Module | Callable[..., nn.Module],
        module_params: dict[str, Any] | None = None,
        members: int | None = None,
        steps: int | None = None,
        batch_size: int = 256,
        learning_rate: float | None = None,
        weight_decay: float = 1e-2,
        loss: str = "bce",
        class_weight: str | None = "balanced",
        validation_share: float = 0.2,
        fresh_pairs: bool = True,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.module = module
        self.module_params = module_params
        self.members = members
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.loss = loss
        self.class_weight = class_weight
        self.validation_share = validation_share
        self.fresh_pairs = fresh_pairs
        self.device = device
        self.verbose = verbose

    def fit(self, contrast: ContrastSet, random_state: np.random.Generator) -> Self:
        """Learn from labelled pairs."""
        self._check(contrast)
        device = choose_device(self.device)
        n = contrast.n_observations
        steps = self.steps
        if steps is None:
            steps = int(np.clip(200 * (n / 100) ** 0.5, 100, 2000))
        learning_rate = self.learning_rate
        if learning_rate is None:
            learning_rate = 0.01 if n < _SMALL else 0.02
        with seeded(int(random_state.integers(2**31))), torch.enable_grad():
            module, members = self._build(contrast)
            # Single precision, whatever torch's default is at the moment.
            module = module.to(device=device, dtype=torch.float32)
            data = TrainingPairs(
                contrast,
                members,
                self.validation_share,
                self.fresh_pairs,
                random_state,
                device,
                self.__dict__.pop("_folds", None),
                self.__dict__.pop("_judged", None),
            )
            self.ratio_ = 0.5 if self.class_weight == "balanced" else contrast.ratio
            shift = float(logit(self.ratio_))
            n_joint = min(max(1, round(_JOINT_SHARE * self.batch_size)), self.batch_size - 1)
            n_broken = self.batch_size - n_joint

            def loss() -> Tensor:
                pairs, weight = data.batch(n_joint, n_broken)
                signed = module(pairs)
                joint = nn.functional.softplus(-signed[:, :n_joint])
                broken = nn.functional.softplus(signed[:, n_joint:])
                if weight is not None:
                    joint = joint * weight[:, :n_joint]
                    broken = broken * weight[:, n_joint:]
                # The classes weigh r and 1 - r; the factor keeps the size of the loss.
                factor = 1 / (1 - self.ratio_), 1 / self.ratio_
                return factor[0] * joint.mean(1).sum() + factor[1] * broken.mean(1).sum()

            rows = max(2, self.batch_size // _EXACT_POINTS)

            def exact_loss() -> Tensor:
                pairs, weight = data.batch(rows, 0)
                # The same values of y for all rows of a batch, one from each stratum.
                place = (
                    np.arange(_EXACT_POINTS) + random_state.random(_EXACT_POINTS)
                ) / _EXACT_POINTS
                points = torch.as_tensor(self._quantile(place), dtype=torch.float32, device=device)
                wide = pairs[:, :, None].expand(-1, -1, _EXACT_POINTS + 1, -1).clone()
                wide[:, :, 1:, -1] = points
                value = module(wide.flatten(1, 2)).reshape(wide.shape[:3])
                gain = value[..., 0] - value[..., 1:].logsumexp(-1) + math.log(_EXACT_POINTS)
                if weight is not None:
                    gain = gain * weight
                return -gain.mean(1).sum()

            def log_ratios(quantiles: int) -> Tensor:
                return data.evaluate(module, quantiles) - shift

            self.n_steps_ = train(
                module,
                exact_loss if self.loss == "exact" else loss,
                (lambda: data.score(log_ratios(_QUANTILES))) if data.held_out else None,
                steps=steps,
                learning_rate=learning_rate,
                weight_decay=self.weight_decay,
                verbose=self.verbose,
            )
            with torch.no_grad():
                self.trust_, self.gain_ = (
                    data.trust(log_ratios(_FINAL_QUANTILES))
                    if data.held_out
                    else (float(self.validation_share == 0), np.nan)
                )
                if data.held_out:
                    self.held_gains_ = np.full(contrast.origin.n_labeled, np.nan)  # type: ignore[union-attr]
                    gains = data.gains(log_ratios(_FINAL_QUANTILES), self.trust_)
                    place = data.validation_rows
                    total, count = np.zeros((2, len(self.held_gains_)))
                    np.add.at(total, place, np.exp(gains.double().cpu().numpy()))
                    np.add.at(count, place, 1)
                    seen = count > 0
                    self.held_gains_[seen] = np.log(total[seen] / count[seen])
                if members > 1:
                    self.trust_ *= _AVERAGE_IS_SURER
        self.__dict__.pop("_quantile", None)
        module = module.cpu()
        self.module_ = module.folded() if isinstance(module, StackedNetwork) else module.module
        return self

    def use_marginal(self, marginal: TargetMarginal) -> None:
        """Take note of the marginal's quantiles."""
        if self.loss == "exact":
            self._quantile = marginal.quantile

    def use_folds(self, folds: NDArray[np.intp], judged: NDArray[np.bool_]) -> None:
        """Take note of the fold of each observation, in one or several ways to divide them.

        `judged` are the observations by which this discriminator is to be compared with others.
        """
        self._folds, self._judged = folds, judged

    def _check(self, contrast: ContrastSet) -> None:
        if self.loss not in ("bce", "exact"):
            raise ValueError(f'loss must be "bce" or "exact", got {self.loss!r}.')
        if self.loss == "exact" and not hasattr(self, "_quantile"):
            raise ValueError('loss="exact" needs the marginal: fit the discriminator through MCD.')
        if self.class_weight not in ("balanced", None):
            raise ValueError(f'class_weight must be "balanced" or None, got {self.class_weight!r}.')
        for name, least in (("batch_size", 2), ("steps", 1), ("members", 1)):
            value = getattr(self, name)
            if value is not None and (int(value) != value or value < least):
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
        if not 0 <= self.validation_share < 1:
            raise ValueError(f"validation_share must lie in [0, 1), got {self.validation_share!r}.")
        n = contrast.n_observations
        if self.validation_share and n - round(self.validation_share * n) < 2:
            raise ValueError(
                f"validation_share={self.validation_share:g} leaves less than 2 of {n} "
                "observations to train on; lower it."
            )

    def _build(self, contrast: ContrastSet) -> tuple[Any, int]:
        """Return the network, and how many members it has."""
        n_inputs = contrast.x_pool.shape[1] + contrast.y_pool.shape[1]
        params = dict(self.module_params or {})
        if isinstance(self.module, nn.Module):
            return _OneModule(copy.deepcopy(self.module)), 1
        ours = self.module in _ARCHITECTURES
        members = 1
        if ours:
            n = contrast.n_observations
            few = n < LEAST_OBSERVATIONS or self.validation_share == 0
            _check_shape(params)
            usual = _SMALL_SHAPE if n < _SMALL else _MEDIUM_SHAPE if n < _LARGE else _LARGE_SHAPE
            members = self.members or (1 if few else usual["members"])
            if hasattr(self, "_folds"):
                members = len(self._folds) * (int(self._folds.max()) + 1)
            accepted = inspect.signature(self.module).parameters
            params = {k: v for k, v in usual.items() if k in accepted} | params
            params["members"] = members
        module = self.module(n_inputs, **params)
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"The function given as discriminator must return a torch module, got {module!r}."
            )
        return (module if ours else _OneModule(module)), members

    def logit_rows(self, X: Array, Y: Array) -> Array:
        """Logit of q at (X[i], Y[i, j])."""
        return self._logit(X, Y)

    def logit_grid(self, X: Array, grid: Array) -> Array:
        """Logit of q at (X[i], grid[j])."""
        return self._logit(X, grid[None])

    def _logit(self, X: Array, Y: Array) -> Array:
        """Logit of q; Y has one row for each of X, or one for all."""
        with torch.inference_mode():
            if isinstance(self.module_, StackedNetwork):
                weight = self.module_.first.weight
                out = self.module_.outer(
                    torch.as_tensor(X, dtype=torch.float32),
                    torch.as_tensor(np.ascontiguousarray(Y), dtype=torch.float32),
                    max(64, _CACHE // (weight.shape[0] * weight.shape[2])),
                    lambda logits: logits.mean(0),
                ).numpy()
            else:
                Y = np.broadcast_to(Y, (len(X), Y.shape[1]))
                out = np.empty(Y.shape, dtype=np.float32)
                for rows, pairs in pair_blocks(X, Y):
                    part = self.module_(torch.as_tensor(pairs, dtype=torch.float32))
                    part = as_logit(part, len(pairs))
                    out[rows] = part.numpy().reshape(-1, Y.shape[1])
        shift = logit(self.ratio_)
        result = shift + self.trust_ * (out.astype(np.float64) - shift)
        if np.isnan(result).any():
            raise ValueError("The torch module given as discriminator returned NaN.")
        return result

    def describe(self) -> str:
        """Name for messages."""
        return getattr(self.module, "__name__", type(self.module).__name__)


class _OneModule(nn.Module):
    """A module from (rows, inputs) to logits, as an ensemble of one."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, pairs: Tensor) -> Tensor:
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


def _check_shape(params: dict[str, Any]) -> None:
    """Check what is asked of the architectures of this package."""
    for name in ("width", "depth"):
        value = params.get(name, 1)
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
    if not 0 <= params.get("dropout", 0) < 1:
        raise ValueError(f"dropout must lie in [0, 1), got {params['dropout']!r}.")


def _named(module: Callable[..., nn.Module], defaults: dict[str, Any]) -> Callable[..., Any]:
    def build(**parameters: Any) -> NeuralDiscriminator:
        unknown = set(parameters) - set(defaults) - set(_TRAINING)
        if unknown:
            raise TypeError(
                f"{sorted(unknown)} are not among {sorted(defaults)} and {sorted(_TRAINING)}"
            )
        of_module = {k: v for k, v in parameters.items() if k in defaults}
        training = {k: v for k, v in parameters.items() if k not in defaults}
        return NeuralDiscriminator(module, of_module, **training)

    build.__doc__ = module.__doc__
    return build


_TRAINING = [
    name
    for name in NeuralDiscriminator._get_param_names()
    if name not in ("module", "module_params")
]
_SHAPE: dict[str, Any] = {"width": None, "depth": None, "dropout": None}
_ARCHITECTURES = (
    mlp_module.mlp,
    mlp_module.mlp_plain,
    resnet_module.resnet,
    glu_module.glu,
    snn_module.snn,
)

mlp = _named(mlp_module.mlp, _SHAPE)
mlp_plain = _named(mlp_module.mlp_plain, {"width": None, "depth": None})
resnet = _named(resnet_module.resnet, _SHAPE)
glu = _named(glu_module.glu, _SHAPE)
snn = _named(snn_module.snn, _SHAPE)
