"""Neural discriminators: five architectures by name, and any torch module."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from mcdensity._known import storable
from mcdensity._mixing import pool_normalizer
from mcdensity._progress import showing
from mcdensity._validation import check_integer
from mcdensity.data import TrainingData
from mcdensity.experts.base import Evaluate, FitReport, RatioExpert, Rows, pool_points
from mcdensity.experts.ratio.learner import pair_blocks
from mcdensity.experts.registry import register

__all__ = ["NeuralDiscriminator"]

Array = NDArray[np.float64]

# Values of y, at quantiles, over which held-out densities are normalised: while training, and
# afterwards, when it is decided how far to trust the network.
_QUANTILES = 32
_FINAL_QUANTILES = 256
# Numbers that pass between two layers at once when predicting: a megabyte of single precision.
_CACHE = 1 << 18
# Shapes of the networks by the number of observations; chosen on the nine density models of the
# paper with 100 rows, and on the inverse sinusoid with 1400.
_SMALL, _LARGE = 500, 10_000
_SMALL_SHAPE: dict[str, Any] = {"members": 5, "width": 32, "depth": 2, "dropout": 0.1}
_MEDIUM_SHAPE: dict[str, Any] = {"members": 3, "width": 64, "depth": 3, "dropout": 0.02}
_LARGE_SHAPE: dict[str, Any] = {"members": 1, "width": 128, "depth": 3, "dropout": 0.02}
# Held-out rows judge the members one by one; their average errs less, and its log-ratio may be
# trusted more. With 100 rows 1.2 takes 6 and 11 % off the KL of `mlp` on LinearGauss and
# SkewNormal, and changes that of GaussianMixture by 0.1 % (four seeds each); in a pool of experts
# with a thousand rows it made intervals too narrow.
_ENSEMBLE_SHARPENING = 1.2
# With fewer observations none can be held out, and a network is not trusted at all.
_LEAST_OBSERVATIONS = 5


@storable
class NeuralDiscriminator(RatioExpert):
    r"""A neural network, or a small ensemble, as a discriminator.

    Each member of the ensemble holds out its own fold of the *observations*; the weights kept are
    those with the best likelihood of these rows, over all members together. The mean of the
    members' log-ratios T is then trusted as far as the held-out rows support it: with
    :math:`\alpha T`, where :math:`\alpha \ge 0` is the smallest factor for which their normalised
    log-likelihood is close to its best. Where x tells nothing, :math:`\alpha` is near 0 and
    the density is the marginal.

    Parameters
    ----------
    module : torch.nn.Module, its class, or a function
        Maps (batch, p + 1) to one logit, or to two. A module is copied, never changed; a class or
        function is called with the number of inputs, p + 1, and `module_params`. A module of your
        own is one member.
    module_params : dict, optional
        Further arguments for a class or function.
    members : int, optional
        Networks in the ensemble, for the architectures of this package; by default 5 below 500
        observations, 3 below 10,000, else 1.
    steps : int, optional
        Budget of training steps; by default 200 for 100 observations, growing with the square root
        of their number up to 2000. It does not grow with the number of pairs.
    batch_size : int, default 256
        Pairs a member sees in a step; a quarter are joint pairs.
    learning_rate : float, optional
        The peak of the one-cycle schedule; by default 0.01 below 500 observations, else 0.02.
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

    smooth: ClassVar[bool] = True
    holds_out: ClassVar[bool] = True
    least_effort: ClassVar[str] = "normal"
    # Beyond, it was behind `mixture` on all sets that were tried, and takes longest.
    most_observations: ClassVar[float] = 10_000
    streams: ClassVar[bool] = True
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")

    def __init__(
        self,
        module: Any,
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

    def fit(self, data: TrainingData) -> FitReport:
        """Learn from labelled pairs."""
        import torch

        from mcdensity.networks.layers import StackedNetwork
        from mcdensity.networks.pairs import PairLosses, TrainingPairs
        from mcdensity.networks.random import seeded
        from mcdensity.networks.training import choose_device, train

        self._check(data)
        device, rng = choose_device(self.device), data.random_state
        n, contrast = data.n_observations, data.contrast()
        usual = data.effort.steps * 200 * (n / 100) ** 0.5
        steps = self.steps or int(np.clip(usual, 100, 2000))
        learning_rate = self.learning_rate or (0.01 if n < _SMALL else 0.02)
        with (
            seeded(int(rng.integers(2**31)), shared=not self._is_ours()),
            torch.enable_grad(),
            data.own_threads(),
            showing(self.verbose, f"Training {self.describe()}", data.report) as progress,
        ):
            held_out = None
            members = self._members(data)
            if self.validation_share > 0 and n >= _LEAST_OBSERVATIONS:
                held_out = data.held_out(members, share=self.validation_share)
            module = self._build(data, members)
            # Single precision, whatever torch's default is at the moment.
            module = module.to(device=device, dtype=torch.float32)
            pairs = TrainingPairs(contrast, members, held_out, self.fresh_pairs, rng, device)
            self.ratio_ = 0.5 if self.class_weight == "balanced" else contrast.ratio
            strata = None if self.loss == "bce" else self._strata(data)
            losses = PairLosses(module, pairs, self.ratio_, self.batch_size, strata, rng)
            self.n_steps_ = train(
                module,
                losses.cross_entropy if strata is None else losses.exact,
                (lambda: pairs.score(losses.log_ratios(_QUANTILES))) if pairs.validates else None,
                steps=steps,
                learning_rate=learning_rate,
                weight_decay=self.weight_decay,
                report=progress,
                seconds=data.seconds_left(),
            )
            report = FitReport.empty()
            self.trust_, self.gain_ = float(self.validation_share == 0), math.nan
            if pairs.validates:
                with torch.no_grad():
                    value = losses.log_ratios(_FINAL_QUANTILES)
                    self.trust_, self.gain_ = pairs.trust(value)
                    if data.folds is not None:
                        report = self._report(pairs, losses, data)
                if members > 1 and (data.folds is None or n < _SMALL):
                    self.trust_ *= _ENSEMBLE_SHARPENING
        module = module.cpu()
        self.module_ = module.folded() if isinstance(module, StackedNetwork) else module.module
        self.make_table(data)
        return report

    def _report(self, pairs: Any, losses: Any, data: TrainingData) -> FitReport:
        """Report on the held-out rows, by the members that held them out."""
        rows, value = pairs.held_log_ratios(losses, pool_points(data))
        value = self.trust_ * value
        own, grid = value[:, 0], value[:, 1:]
        shift = pool_normalizer(own, grid)
        return FitReport(rows, own - shift + data.held_out_marginal()[rows], grid - shift[:, None])

    def _strata(self, data: TrainingData) -> Callable[[Array], Array]:
        if data.marginal is None:
            raise ValueError('loss="exact" needs the marginal: fit the discriminator through MCD.')
        return data.marginal.quantile

    def _check(self, data: TrainingData) -> None:
        if self.loss not in ("bce", "exact"):
            raise ValueError(f'loss must be "bce" or "exact", got {self.loss!r}.')
        if self.class_weight not in ("balanced", None):
            raise ValueError(f'class_weight must be "balanced" or None, got {self.class_weight!r}.')
        for name, least in (("batch_size", 2), ("steps", 1), ("members", 1)):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), least)
        if not 0 <= self.validation_share < 1:
            raise ValueError(f"validation_share must lie in [0, 1), got {self.validation_share!r}.")
        n = data.n_observations
        if self.validation_share and n - round(self.validation_share * n) < 2:
            raise ValueError(
                f"validation_share={self.validation_share:g} leaves fewer than 2 of {n} "
                "observations to train on; lower it."
            )

    def _is_ours(self) -> bool:
        """Whether this is an architecture of this package, which stacks several members."""
        return getattr(self.module, "stacked", False)

    def _usual_shape(self, n: int) -> dict[str, Any]:
        return _SMALL_SHAPE if n < _SMALL else _MEDIUM_SHAPE if n < _LARGE else _LARGE_SHAPE

    def _members(self, data: TrainingData) -> int:
        if not self._is_ours():
            return 1
        if data.folds is not None:
            return len(data.folds.fold) * data.folds.count
        n = data.n_observations
        few = n < _LEAST_OBSERVATIONS or self.validation_share == 0
        return self.members or (1 if few else self._usual_shape(n)["members"])

    def _build(self, data: TrainingData, members: int) -> Any:
        from torch import nn

        from mcdensity.networks.pairs import OneModule

        n_inputs = data.X.shape[1] + data.Y.shape[1]
        params = dict(self.module_params or {})
        if isinstance(self.module, nn.Module):
            return OneModule(copy.deepcopy(self.module))
        if self._is_ours():
            _check_shape(params)
            usual = self._usual_shape(data.n_observations)
            accepted = inspect.signature(self.module).parameters
            params = {k: v for k, v in usual.items() if k in accepted} | params
            params["members"] = members
        module = self.module(n_inputs, **params)
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"The function given as discriminator must return a torch module, got {module!r}."
            )
        return module if self._is_ours() else OneModule(module)

    def logit_rows(self, X: Array, Y: Array) -> Array:
        """Logit of q at (X[i], Y[i, j])."""
        return self._conditioned_logit(X)(Y, None)

    def _conditioned_logit(self, X: Array) -> Evaluate:
        import torch

        from mcdensity.networks.layers import StackedNetwork
        from mcdensity.networks.pairs import as_logit

        module, shift = self.module_, logit(self.ratio_)
        stacked = isinstance(module, StackedNetwork)
        if stacked:
            with torch.inference_mode():
                of_x = module.of_x(torch.as_tensor(X))
            block = max(1024, _CACHE // (of_x.shape[0] * of_x.shape[2]))

        def evaluate(y: Array, rows: Rows | None) -> Array:
            with torch.inference_mode():
                if stacked:
                    at = torch.as_tensor(np.ascontiguousarray(np.atleast_2d(y))).float()
                    some = of_x if rows is None else of_x[:, torch.as_tensor(rows)]
                    # Sums in single precision may depend on the shape of the block.
                    out = module.outer(some, at, block, _double_mean).numpy()
                else:
                    x = X if rows is None else X[rows]
                    points = np.broadcast_to(y, (len(x), y.shape[-1]))
                    out = np.empty(points.shape, dtype=np.float32)
                    for part, pairs in pair_blocks(x, points):
                        value = module(torch.as_tensor(pairs, dtype=torch.float32))
                        out[part] = as_logit(value, len(pairs)).numpy().reshape(-1, y.shape[-1])
            return shift + self.trust_ * (out - shift)

        return evaluate

    def describe(self) -> str:
        """Name for messages."""
        return getattr(self.module, "__name__", type(self.module).__name__)


def _double_mean(logits: Any) -> Any:
    return logits.double().mean(0)


def _check_shape(params: dict[str, Any]) -> None:
    """Check what is asked of the architectures of this package."""
    for name in ("width", "depth"):
        if params.get(name) is not None:
            check_integer(name, params[name])
    if not 0 <= params.get("dropout", 0) < 1:
        raise ValueError(f"dropout must lie in [0, 1), got {params['dropout']!r}.")


def _named(
    name: str, home: str, shape: tuple[str, ...], portfolio: int | None = None
) -> Callable[..., NeuralDiscriminator]:
    """Register an architecture of this package; its module is imported when it is asked for."""

    @register(name, portfolio=portfolio)
    def build(**parameters: Any) -> NeuralDiscriminator:
        training = set(NeuralDiscriminator._get_param_names()) - {"module", "module_params"}
        unknown = set(parameters) - set(shape) - training
        if unknown:
            raise TypeError(f"{sorted(unknown)} are not among {sorted({*shape, *training})}")
        module = getattr(import_module(f"mcdensity.networks.{home}"), name.replace("-", "_"))
        of_module = {k: v for k, v in parameters.items() if k in shape}
        of_training = {k: v for k, v in parameters.items() if k not in shape}
        return NeuralDiscriminator(module, of_module, **of_training)

    return build


_SHAPE = ("width", "depth", "dropout")
mlp = _named("mlp", "mlp", _SHAPE, portfolio=30)
mlp_plain = _named("mlp-plain", "mlp", ("width", "depth"))
resnet = _named("resnet", "resnet", _SHAPE)
glu = _named("glu", "glu", _SHAPE)
snn = _named("snn", "snn", _SHAPE)
