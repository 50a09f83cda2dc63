"""Laws of several targets that are another law times a ratio: the paper's formula in R^k."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp

from mcdensity._validation import as_generator, column_number
from mcdensity.distribution.base import Array
from mcdensity.distribution.joint import JointDistribution, Link
from mcdensity.distribution.pooled import resampled, within
from mcdensity.distribution.univariate import ConditionalDistribution

__all__ = ["TiltedDistribution"]

# Draws of the common law that everything is a mean over, and those that samples are chosen of.
_DRAWS, _POOL = 1 << 11, 1 << 13
# Of links that look at x, most draws count, and each row has draws of its own: fewer are enough,
# and samples are chosen of so many times as many.
_OWN_DRAWS, _OWN_POOL = 1 << 8, 4
# Steps that move chosen draws, which are few, to where nobody was: in units of 1/sqrt(k) standard
# deviations of the row's law, large and small ones in turn.
_STEPS = (1.2, 0.3, 1.2, 0.3, 1.2, 0.3)
# Of links that look at x, few draws were chosen twice.
_OWN_STEPS = 2


class TiltedDistribution(JointDistribution):
    r"""Laws :math:`f_Y(y)\, r(x, y) / Z(x)` of k targets given each of n rows.

    :math:`f_Y` is a chain that does not look at x, r the ratio that a classifier of real and broken
    pairs has learned, and Z its mean over draws of :math:`f_Y`, the same for every row. All else
    is a weighted mean over such draws; `effective_draws` says how many of them count.

    Parameters
    ----------
    links, X, order, names, given
        As for `JointDistribution`.
    log_ratio : callable
        ``log_ratio(X, Y, log_common)``, the logarithm of r at pairs of rows, shape (n,); the last
        argument has the links' log-densities there, and is None where the links are blind.
    blind : bool, default True
        Whether the links do not look at X, so that rows share their draws. If they do, the law is
        :math:`f(y \mid x)\, r(x, y) / Z(x)` with the links' f.
    """

    def __init__(
        self,
        links: Sequence[Link],
        X: Array,
        order: Sequence[int],
        names: Sequence[str],
        given: Mapping[int, Array] | None = None,
        *,
        log_ratio: Callable[[Array, Array, Array | None], Array],
        blind: bool = True,
    ) -> None:
        super().__init__(links, X, order, names, given)
        self._log_ratio, self._blind = log_ratio, blind

    def _with(self, X: Array, given: Mapping[int, Array]) -> Self:
        own = self._links, X, self._order, self._all_names, given
        return type(self)(*own, log_ratio=self._log_ratio, blind=self._blind)

    def _tilt(self, points: Array, log_common: Array | None = None) -> Array:
        """Log-ratios of rows at points of shape (n, m, k), of all targets."""
        n, m, k = points.shape
        rows = np.repeat(self._X, m, axis=0)
        flat = None if log_common is None else log_common.ravel()
        return self._log_ratio(rows, points.reshape(n * m, k), flat).reshape(n, m)

    def _log_density(self, points: Array) -> Array:
        full = self._complete(points)
        if not self._blind:
            common = self._log_common(points)
            return common + self._tilt(full, common)
        shared = points.strides[0] == 0  # the same points for all rows
        if not self._given and shared:
            return self[:1]._log_common(points[:1]) + self._tilt(full)
        return self._log_common(points) + self._tilt(full)

    def _log_common(self, points: Array) -> Array:
        return super()._log_density(points)

    def _walk(
        self, uniform: Array, stop: int | None = None, log_density: Array | None = None
    ) -> tuple[Array, Array]:
        if not self._blind:
            drawn = np.zeros((len(self), uniform.shape[-2]))
            draws, weight = super()._walk(uniform, log_density=drawn)
            return draws, weight + self._tilt(draws, drawn + weight)
        if self._given or uniform.ndim == 3:
            draws, weight = super()._walk(uniform)
            return draws, weight + self._tilt(draws)
        own = super(TiltedDistribution, self[:1])._walk(uniform)[0]
        draws = np.broadcast_to(own, (len(self), *own.shape[1:]))
        return draws, self._tilt(draws)

    @cached_property
    def _weighed(self) -> tuple[Array, Array]:
        """Draws and log-weights by which everything is normalised."""
        return self._walk(self._points(_DRAWS if self._blind else _OWN_DRAWS))

    def _weighted_draws(self, count: int) -> tuple[Array, Array]:
        draws, weight = self._weighed  # few of them count: always as many as there are
        weight = np.exp(weight - logsumexp(weight, axis=1, keepdims=True))
        return (draws[..., self._free] if self._given else draws), weight

    def _log_total(self) -> Array:
        weight = self._weighed[1]
        return logsumexp(weight, axis=1) - np.log(weight.shape[1])

    def _needs_weights(self) -> bool:
        return True

    def effective_draws(self) -> Array:
        """How many of the draws that everything is a mean over count, for each row.

        Below some tens nothing that this law says is precise.
        """
        weight = self._weighed[1]
        return np.exp(2 * logsumexp(weight, axis=1) - logsumexp(2 * weight, axis=1))

    def marginal(self, column: int | str) -> ConditionalDistribution:
        """Law of one target, whatever the others are."""
        j = self._free[column_number(column, self.names)]
        if len(self._free) == 1:
            return self._only_free_target(self._order.index(j))
        return self._of_weighted_draws(j)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw `n_samples` points from each row's law, shape (n, n_samples, k).

        Draws of the common law are chosen by their weights, and then moved by steps of a Markov
        chain that leaves the row's law as it is.
        """
        n_samples = self._check_size(n_samples)
        rng = as_generator(random_state)
        if len(self) == 0:
            return np.empty((0, n_samples, self.n_targets))
        pool = _POOL
        if not self._blind:
            pool = max(_OWN_DRAWS, min(_OWN_POOL * n_samples, max(_POOL, 2 * n_samples)))
        uniform = within(rng.random((pool, len(self._order))))
        draws, weight = self._walk(uniform)
        draws = draws[..., self._free] if self._given else draws
        found = resampled(draws, weight, n_samples, rng)
        return self._refined(found, draws, weight, rng)

    def _refined(self, y: Array, draws: Array, weight: Array, rng: np.random.Generator) -> Array:
        weight = np.exp(weight - logsumexp(weight, axis=1, keepdims=True))
        mean = np.einsum("nm,nmj->nj", weight, draws)
        spread = np.sqrt(np.einsum("nm,nmj->nj", weight, (draws - mean[:, None]) ** 2))
        # Atoms stay where they are.
        moves = np.array([not len(self._law_of(j).atoms) for j in self._free])
        scale = np.where(moves, spread, 0.0)[:, None] / np.sqrt(self.n_targets)
        value = self._log_density(y)
        for size in _STEPS if self._blind else _STEPS[:_OWN_STEPS]:
            new = y + size * scale * rng.normal(size=y.shape)
            there = self._log_density(new)
            with np.errstate(invalid="ignore"):  # from nowhere to nowhere: stay
                taken = np.log(rng.random(value.shape)) < there - value
            y, value = np.where(taken[..., None], new, y), np.where(taken, there, value)
        return y
