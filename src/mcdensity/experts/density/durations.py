"""Laws of known families, for durations of which few have been seen."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, softmax

from mcdensity._bounds import Bounds
from mcdensity._known import storable
from mcdensity.data import TrainingData
from mcdensity.experts.base import ConditionedDensity, DensityExpert, FitReport, Rows

__all__ = ["DurationFamilies"]

Array = NDArray[np.float64]

_MEMBERS = 5
# For "normal" effort. The best held-out likelihood was found after 60 to 250 of 300 or 400.
_STEPS = 300
# Penalties of squared weights, times the number of rows: networks of both are weighted by held-out
# likelihood. KL over that of a fit to all outcomes, geometric mean of ten sets of seven laws: 1.68
# with 1 alone, 1.62 with 3, 1.58 with 10, 1.55 with 30, 1.57 with 60; 1.50 with both of these.
_DECAYS = (1.0, 30.0)
# Held-out rows at most by which training ends.
_MOST_SCORED = 2000
# Log-likelihoods of families are divided by this before they become weights: of families that are
# as good as level several are kept. KL over that of a fit to all outcomes, five seeds each of
# gamma, log-normal and Weibull laws (benchmarks/censoring.py, seeds 10 to 14): 1.13, 1.06, 0.83
# with 2; 1.12, 1.05, 0.85 with 4; with weights of best likelihood of the mixture 1.14, 1.05, 0.90.
_CAUTION = 4.0
_LEAST_WEIGHT = 0.01
# Below this the logarithm of the distance from a bound is the coordinate itself.
_FAR_BELOW = -30.0
# Numbers computed at once.
_BLOCK = 1 << 21


@storable
class DurationFamilies(DensityExpert):
    r"""Laws of known families, whose parameters depend on x through small networks.

    .. math:: \log y = m(x) + s(x) \, e

    with e normal, of the smallest extreme value, logistic, or of one of two families with a third
    parameter: y is log-normal, Weibull, log-logistic, exponentiated Weibull or Burr. A target
    without a lower bound, or with an upper one, has its standardised coordinate in place of the
    logarithm. Where nearly all outcomes are lower bounds, the early outcomes and the family tell of
    the rest; a density that is free to have any shape knows nothing of it.

    Each family is an ensemble of networks that hold out a fold each, twice, with a small and a
    large penalty of their weights. The mean density of the members is its law; these laws are
    weighted by the likelihood of held-out rows. Tails are cut off softly where the marginal ends.

    Attributes
    ----------
    family_weights_ : dict of str to float
    """

    holds_out: ClassVar[bool] = True
    takes_censored: ClassVar[bool] = True
    target_kinds: ClassVar[frozenset[str]] = frozenset({"continuous"})

    def fit(self, data: TrainingData) -> FitReport:
        """Learn from rows; report on all that are held out."""
        import torch

        from mcdensity.networks.families import FAMILIES, train

        assert data.marginal is not None
        self._space = data.marginal.space
        value, log_slope = self._coordinate(data.Y[:, 0])
        censored = np.zeros(len(data), dtype=bool) if data.censored is None else data.censored
        self._middle = float(np.average(value[~censored], weights=data.row_weight[~censored]))
        self._width = float(value[~censored].std()) or 1.0
        low, high = data.X.min(axis=0), data.X.max(axis=0)
        self._x_limits = 2 * low - high, 2 * high - low
        self._reach = float(self._coordinate(np.array(data.marginal.reach[1]))[0])
        held_out = data.held_out(_MEMBERS, most=_MOST_SCORED)
        assert held_out is not None  # there are at least ten outcomes
        held, self._members = held_out.held, held_out.members

        def tensor(array: Array) -> torch.Tensor:
            return torch.as_tensor(array, dtype=torch.float32)

        names = [name for name in FAMILIES for _ in _DECAYS]
        decay = np.tile(_DECAYS, len(FAMILIES)) / len(data)
        with torch.enable_grad():
            networks = train(
                names,
                tensor(decay),
                tensor(data.X),
                tensor((value - self._middle) / self._width),
                torch.as_tensor(censored),
                tensor(data.row_weight),
                torch.as_tensor(held),
                torch.as_tensor(held_out.scored),
                max(1, round(_STEPS * data.effort.steps)),
                torch.Generator().manual_seed(int(data.random_state.integers(2**31))),
                lambda: data.seconds_left() <= 0,
                data.report,
            )
        self._weights = [each.double().numpy() for each in networks.weights]
        rows = np.flatnonzero(held.any(axis=0))
        found = self._held_out(names, data.X, value, censored, held)[:, rows]
        weights = softmax((found @ data.row_weight[rows]) / _CAUTION)
        found = found + np.where(censored, 0.0, log_slope)[rows]
        own = np.log(weights @ np.exp(found - found.max(axis=0))) + found.max(axis=0)
        self._keep(names, weights)
        return FitReport(rows, own, np.empty((len(rows), 0)))

    def _keep(self, names: list[str], weights: Array) -> None:
        """Drop the networks of families without a weight to speak of."""
        kept = np.flatnonzero(weights >= _LEAST_WEIGHT)
        self._laws = [(names[k], float(weights[k] / weights[kept].sum())) for k in kept]
        self.family_weights_ = dict.fromkeys(dict(self._laws), 0.0)
        for name, weight in self._laws:
            self.family_weights_[name] += weight
        members = (kept[:, None] * self._members + np.arange(self._members)).ravel()
        self._weights = [each[members] for each in self._weights]

    def _coordinate(self, t: Array) -> tuple[Array, Array]:
        """Return the coordinate of the families at inner values, and the log of its slope."""
        z, log_slope = self._space.outer(t)
        bounds = self._space.bounds
        if bounds is None or not np.isinf(bounds.high):
            return z, log_slope
        w = z * self._space.scale + self._space.location
        value, log_steep = _log_distance(bounds, w)
        return value, log_slope + np.log(self._space.scale) + log_steep

    def _parameters(self, X: Array) -> Array:
        """Return middles, logarithms of widths and shapes: (members of all families, rows, 3)."""
        import torch

        from mcdensity.networks.families import FamilyNetworks

        networks = FamilyNetworks([torch.as_tensor(each) for each in self._weights])
        size = max(1, _BLOCK // self._weights[0][:, 0].size)
        with torch.no_grad():
            parts = [
                networks(torch.as_tensor(X[i : i + size], dtype=torch.float64)).numpy()
                for i in range(0, max(len(X), 1), size)
            ]
        return np.concatenate(parts, axis=1)

    def _held_out(
        self,
        names: list[str],
        X: Array,
        value: Array,
        censored: NDArray[np.bool_],
        held: NDArray[np.bool_],
    ) -> Array:
        """Log-likelihoods of rows by members that have held them out: (families, rows)."""
        import torch

        from mcdensity.networks.families import likelihood

        y = torch.as_tensor((value - self._middle) / self._width)
        parameters = torch.as_tensor(self._parameters(X))
        found = likelihood(names, parameters, y, torch.as_tensor(censored)).numpy()
        found = found.reshape(len(names), len(held), len(X)) - np.log(self._width) * ~censored
        # The mean over those members; there is one where each row is in one fold.
        count = np.maximum(held.sum(axis=0), 1)
        return np.where(held, found, 0.0).sum(axis=1) / count

    def condition(self, X: Array) -> ConditionedDensity:
        """Compute the parameters of these rows."""
        import torch

        from mcdensity.networks.families import log_density as density_of

        parameters = torch.as_tensor(self._parameters(np.clip(X, *self._x_limits)))
        count = self._members
        laws = [
            (name, np.log(weight / count), parameters[k * count + member][:, None])
            for k, (name, weight) in enumerate(self._laws)
            for member in range(count)
        ]

        def log_density(y: Array, rows: Rows | None = None) -> Array:
            value, log_slope = self._coordinate(y)
            at = torch.as_tensor((value - self._middle) / self._width)
            # Of a heavy tail far beyond all outcomes nothing is known, and it would move the mean.
            beyond = np.maximum((value - self._reach) / self._width, 0.0)
            out = None
            with torch.no_grad():
                for name, log_weight, own in laws:
                    part = density_of(name, at, own if rows is None else own[rows]) + log_weight
                    out = part if out is None else torch.logaddexp(out, part)
            assert out is not None
            return out.numpy() + log_slope - np.log(self._width) - 0.5 * beyond**2

        return ConditionedDensity(len(X), log_density)

    def describe(self) -> str:
        """Name for messages."""
        return "families"


def _log_distance(bounds: Bounds, w: Array) -> tuple[Array, Array]:
    """Return the logarithm of the distance from a lower bound, and the log of its slope in w.

    It is computed from the coordinate w, as distances of far-off w are 0 in numbers.
    """
    if np.isinf(bounds.scale):
        end = np.log(bounds.knee)
        above = -np.log1p(np.maximum(w - end, 0.0))
        return np.minimum(w, end) - above, above
    u = w / bounds.scale
    near = np.log(np.logaddexp(0, np.maximum(u, _FAR_BELOW)))
    value = np.where(u < _FAR_BELOW, u, near)
    return value + np.log(bounds.scale), log_expit(u) - value - np.log(bounds.scale)
