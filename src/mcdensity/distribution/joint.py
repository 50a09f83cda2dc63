"""Laws of several targets at once: a chain of laws of one target, each given those before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from mcdensity._validation import as_generator, check_integer, column_number
from mcdensity.distribution.base import Array, Distribution
from mcdensity.distribution.grid import GridDistribution
from mcdensity.distribution.pooled import fixed_points, of_draws, pooled, resampled, within
from mcdensity.distribution.univariate import ConditionalDistribution

__all__ = ["JointDistribution", "Link", "Probability", "refuse_joint"]

# Draws of the columns before it that a marginal is the mean over; draws for moments, for levels of
# regions and for what is conditioned on a later column. Powers of two: points of Sobol's sequence.
_DRAWS_OF_MARGINAL, _DRAWS_OF_MOMENTS, _DRAWS_OF_LEVEL, _DRAWS_TO_WEIGH = 64, 128, 256, 2048
# Rows with draws that are worked on at once.
_BLOCK = 1 << 16
# Numbers that samples may have: 4 GB.
_MOST_NUMBERS = 1 << 29
# Levels of the quantiles that a grid starts from.
_LEVELS = np.concatenate([[1e-6, 1e-4], np.linspace(0.001, 0.999, 301), [1 - 1e-4, 1 - 1e-6]])


class Link(Protocol):
    """The law of one target given features, to which the targets before it belong."""

    def logpdf(self, X: Array, y: Array) -> Array:
        """Log-densities, (n,)."""
        ...

    def ppf(self, X: Array, q: Array) -> Array:
        """Quantiles of rows at q of shape (n, m)."""
        ...

    def draw(self, X: Array, q: Array) -> tuple[Array, Array]:
        """Quantiles of rows at q of shape (n, m), and log-densities there."""
        ...

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of rows."""
        ...

    def laws(self, X: Array) -> ConditionalDistribution:
        """The laws of rows."""
        ...


class Probability(NamedTuple):
    """Probabilities of an event, by sampling."""

    estimate: Array
    standard_error: Array


class JointDistribution(Distribution):
    r"""Laws of k targets given each of n rows: :math:`\prod_j f(y_j \mid x, y_1, \dots, y_{j-1})`.

    Densities and samples are exact. What needs an integral over some of the targets (`marginal` of
    all but the first of the chain, `mean`, `cov`, `hpd_level`, `conditional` on a target that comes
    later in the chain than one that is not given) is a mean over points of Sobol's sequence, the
    same for every call.

    Parameters
    ----------
    links : sequence of Link
        In the order of the chain.
    X : ndarray of shape (n, p)
    order : sequence of int
        The number of the target that each link is the law of.
    names : sequence of str
        Of the targets.
    given : mapping, optional
        Numbers of targets to their values, shape (n,): the law is that of the others.
    """

    def __init__(
        self,
        links: Sequence[Link],
        X: Array,
        order: Sequence[int],
        names: Sequence[str],
        given: Mapping[int, Array] | None = None,
    ) -> None:
        self._links, self._X = list(links), X
        self._order, self._all_names = list(order), list(names)
        self._given = {} if given is None else dict(given)
        self._free = [j for j in range(len(names)) if j not in self._given]

    @property
    def names(self) -> list[str]:
        """Names of the targets."""
        return [self._all_names[j] for j in self._free]

    @property
    def n_targets(self) -> int:
        """Number of targets, k."""
        return len(self._free)

    def __len__(self) -> int:
        return len(self._X)

    def _with(self, X: Array, given: Mapping[int, Array]) -> Self:
        return type(self)(self._links, X, self._order, self._all_names, given)

    def _take(self, rows: NDArray[np.intp]) -> Self:
        return self._with(self._X[rows], {j: v[rows] for j, v in self._given.items()})

    def _joined(self, others: Sequence[Any]) -> Self:
        every = [self, *others]
        given = {j: np.concatenate([one._given[j] for one in every]) for j in self._given}
        return self._with(np.concatenate([one._X for one in every]), given)

    # Density.

    def logpdf(self, y: ArrayLike) -> Array:
        """Log-density of each row at y: (n, k) for one point per row, or (n, m, k) for m."""
        y = np.asarray(y, dtype=np.float64)
        if y.shape[-1:] != (self.n_targets,) or y.ndim not in (2, 3) or len(y) != len(self):
            raise ValueError(
                f"y must be of shape ({len(self)}, {self.n_targets}), one point of "
                f"{self.n_targets} targets per row, or ({len(self)}, m, {self.n_targets}); got "
                f"shape {y.shape}."
            )
        if np.isnan(y).any():
            raise ValueError("y contains NaN; give only numbers.")
        points = y[:, None] if y.ndim == 2 else y
        value = self._log_density(points) - self._log_total()[:, None]
        return value[:, 0] if y.ndim == 2 else value

    def _log_density(self, points: Array) -> Array:
        """Log-density of the free and the given targets together, (n, m)."""
        n, m, _ = points.shape
        flat = self._complete(points).reshape(n * m, -1)
        rows, total = np.repeat(self._X, m, axis=0), np.zeros(n * m)
        for place, (link, j) in enumerate(zip(self._links, self._order, strict=True)):
            before = flat[:, self._order[:place]]
            total += link.logpdf(np.hstack([rows, before]), flat[:, j])
        return total.reshape(n, m)

    def _complete(self, points: Array) -> Array:
        """Points of all targets, the given ones too."""
        if not self._given:
            return points
        full = np.empty((*points.shape[:2], len(self._order)))
        full[..., self._free] = points
        for j, value in self._given.items():
            full[..., j] = value[:, None]
        return full

    def _log_total(self) -> Array:
        """Log-density of the given targets, (n,)."""
        if not self._given:
            return np.zeros(len(self))
        weight = self._walk(self._points(_DRAWS_TO_WEIGH), self._last_given() + 1)[1]
        return logsumexp(weight, axis=1) - np.log(weight.shape[1])

    # Draws.

    def _last_given(self) -> int:
        """Place in the chain of the last target that is given; -1 without any."""
        return max((self._order.index(j) for j in self._given), default=-1)

    def _needs_weights(self) -> bool:
        """Whether a target is given that comes after one that is not."""
        first = min(self._order.index(j) for j in self._free)
        return first < self._last_given()

    def _walk(
        self, uniform: Array, stop: int | None = None, log_density: Array | None = None
    ) -> tuple[Array, Array]:
        """Follow the chain: draw the free targets, and weigh draws by the given ones.

        Parameters
        ----------
        uniform : ndarray of shape (m, links) or (n, m, links)
            Uniform numbers, one for each link.
        stop : int, optional
            How many links to follow.
        log_density : ndarray of shape (n, m), optional
            Log-densities of the draws are added to it.

        Returns
        -------
        y : ndarray of shape (n, m, links), in the order of the targets
        log_weight : ndarray of shape (n, m)
        """
        n, m = len(self), uniform.shape[-2]
        uniform = np.broadcast_to(uniform, (n, m, len(self._order)))
        y, weight = np.zeros((n, m, len(self._order))), np.zeros((n, m))
        step = max(1, _BLOCK // m)
        for start in range(0, n, step):
            some = slice(start, start + step)
            rows = self._X[some]
            many = np.repeat(rows, m, axis=0)
            flat = y[some].reshape(len(many), -1)
            for place, (link, j) in enumerate(zip(self._links, self._order, strict=True)):
                if stop is not None and place >= stop:
                    break
                inputs = np.hstack([many, flat[:, self._order[:place]]])
                if j in self._given:
                    flat[:, j] = np.repeat(self._given[j][some], m)
                    weight[some] += link.logpdf(inputs, flat[:, j]).reshape(-1, m)
                    continue
                q = uniform[some, :, place]
                inputs, q = (rows, q) if place == 0 else (inputs, q.reshape(-1, 1))
                if log_density is None:
                    flat[:, j] = link.ppf(inputs, q).ravel()
                else:
                    flat[:, j], value = (part.ravel() for part in link.draw(inputs, q))
                    log_density[some] += value.reshape(-1, m)
            y[some] = flat.reshape(-1, m, y.shape[2])
        return y, weight

    def _points(self, count: int) -> Array:
        return fixed_points(count, len(self._order))

    def _weighted_draws(self, count: int) -> tuple[Array, Array]:
        """Draws of the free targets, (n, m, k), and weights that sum to one, (n, m)."""
        y, weight = self._walk(self._points(count))
        weight = np.exp(weight - logsumexp(weight, axis=1, keepdims=True))
        return (y[..., self._free] if self._given else y), weight

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw `n_samples` points from each row's law, shape (n, n_samples, k)."""
        n_samples = self._check_size(n_samples)
        rng = as_generator(random_state)
        weighted = self._needs_weights()
        count = max(_DRAWS_TO_WEIGH, 4 * n_samples) if weighted else n_samples
        uniform = within(rng.random((len(self), count, len(self._order))))
        y, weight = self._walk(uniform)
        if not weighted:
            return y[..., self._free]
        return resampled(y, weight, n_samples, rng)[..., self._free]

    def _check_size(self, n_samples: int) -> int:
        n_samples = check_integer("n_samples", n_samples)
        numbers = len(self) * n_samples * len(self._order)
        if numbers > _MOST_NUMBERS:
            raise ValueError(
                f"n_samples={n_samples:,} points of {len(self._order)} targets for {len(self):,} "
                f"rows need {8 * numbers / 1e9:.0f} GB; ask for fewer at a time, or for fewer rows."
            )
        return n_samples

    # Laws of some of the targets.

    def marginal(self, column: int | str) -> ConditionalDistribution:
        """Law of one target, whatever the others are."""
        j = self._free[column_number(column, self.names)]
        place = self._order.index(j)
        if len(self._free) == 1 and self._needs_weights():
            return self._only_free_target(place)
        if self._last_given() > place:
            return self._of_weighted_draws(j)
        link = self._links[place]
        if place == 0:
            return link.laws(self._X)
        if all(i in self._given for i in self._order[:place]):
            return link.laws(np.hstack([self._X, *self._columns_given(place)]))
        draws, weight = self._walk(self._points(_DRAWS_OF_MARGINAL), place)
        m = weight.shape[1]
        before = draws[..., self._order[:place]].reshape(len(self) * m, -1)
        laws = link.laws(np.hstack([np.repeat(self._X, m, axis=0), before]))
        return pooled(laws, np.exp(weight - logsumexp(weight, axis=1, keepdims=True)))

    def _columns_given(self, place: int) -> list[Array]:
        return [self._given[i][:, None] for i in self._order[:place]]

    def _only_free_target(self, place: int) -> ConditionalDistribution:
        """The law of one target where all others are given, some of them after it."""
        first = self._links[place].laws(np.hstack([self._X, *self._columns_given(place)]))

        def posterior(rows: NDArray[np.intp], y: Array) -> Array:
            return self[rows]._log_density(y[..., None])

        if first.is_discrete:
            values = np.broadcast_to(first.atoms, (len(self), len(first.atoms)))
            log_mass = posterior(np.arange(len(self)), values)
            from mcdensity.distribution.discrete import DiscreteDistribution

            masses = np.exp(log_mass - logsumexp(log_mass, axis=1, keepdims=True))
            return DiscreteDistribution(first.atoms, masses)
        if len(first.atoms):
            return self._of_weighted_draws(self._order[place])
        # What is given later rules out some of what this law allows, and adds nothing.
        return GridDistribution.from_log_density(posterior, first.ppf_grid(_LEVELS), len(self))

    def _of_weighted_draws(self, j: int) -> ConditionalDistribution:
        """The law of a target by weighted draws of it."""
        one = self._law_of(j)
        draws, weight = self._weighted_draws(_DRAWS_TO_WEIGH)
        return of_draws(draws[..., self._free.index(j)], weight, one.atoms, one.is_discrete)

    def _law_of(self, j: int) -> ConditionalDistribution:
        """Some law of a target, which tells its kind."""
        place = self._order.index(j)
        return self._links[place].laws(np.hstack([self._X[:1], np.zeros((1, place))]))

    def conditional(
        self, values: Mapping[int | str, ArrayLike]
    ) -> JointDistribution | ConditionalDistribution:
        """Law of the other targets where some are known; of one other, a univariate law.

        Parameters
        ----------
        values : dict
            Names or numbers of targets to their values: a number, or one for each row.
        """
        if not isinstance(values, Mapping) or not values:
            raise TypeError(
                "conditional takes a dict of targets and their values, such as "
                f"{{{self.names[0]!r}: 1.0}}, got {values!r}."
            )
        given = dict(self._given)
        for column, value in values.items():
            j = self._free[column_number(column, self.names)]
            number = np.asarray(value, dtype=np.float64)
            if number.shape not in ((), (len(self),)) or not np.isfinite(number).all():
                raise ValueError(
                    f"The value of {column!r} must be a finite number, or {len(self)} of them, one "
                    "for each row."
                )
            given[j] = np.broadcast_to(number, (len(self),))
        if len(given) == len(self._order):
            raise ValueError("All targets are given; leave out those whose law you want.")
        law = self._with(self._X, given)
        return law.marginal(0) if law.n_targets == 1 else law

    # Moments and probabilities.

    def mean(self) -> Array:
        """Expectation of each row, shape (n, k)."""
        return self._moments()[0]

    def cov(self) -> Array:
        """Covariance matrix of each row, shape (n, k, k)."""
        return self._moments()[1]

    def correlation(self) -> Array:
        """Matrix of correlations of each row, shape (n, k, k)."""
        cov = self.cov()
        scale = np.sqrt(np.einsum("nii->ni", cov))
        return cov / (scale[:, :, None] * scale[:, None, :])

    def _moments(self) -> tuple[Array, Array]:
        """Means and covariances, with those of each link's law in the place of draws of it."""
        if self._needs_weights():
            y, weight = self._weighted_draws(_DRAWS_TO_WEIGH)
            mean = np.einsum("nm,nmj->nj", weight, y)
            away = y - mean[:, None]
            return mean, np.einsum("nm,nmi,nmj->nij", weight, away, away)
        # Of the last target its law is all that is needed.
        stop = len(self._order) - (self._order[-1] not in self._given)
        y, weight = self._walk(self._points(_DRAWS_OF_MOMENTS), stop)
        n, m, k = y.shape
        weight = np.exp(weight - logsumexp(weight, axis=1, keepdims=True))
        expected, variance = y.copy(), np.zeros(y.shape)
        rows, flat = np.repeat(self._X, m, axis=0), y.reshape(n * m, k)
        for place, (link, j) in enumerate(zip(self._links, self._order, strict=True)):
            if j in self._given:
                continue
            if place == 0:
                found = link.moments(self._X)
                one, spread = (np.repeat(part, m) for part in found)
            else:
                one, spread = link.moments(np.hstack([rows, flat[:, self._order[:place]]]))
            expected[..., j], variance[..., j] = one.reshape(n, m), spread.reshape(n, m) ** 2
        mean = np.einsum("nm,nmj->nj", weight, expected)
        cov = np.empty((n, k, k))
        for place, j in enumerate(self._order):
            own = expected[..., j] - mean[:, j, None]
            cov[:, j, j] = (weight * (own**2 + variance[..., j])).sum(axis=1)
            for i in self._order[:place]:
                both = (weight * own * (y[..., i] - mean[:, i, None])).sum(axis=1)
                cov[:, i, j] = cov[:, j, i] = both
        return mean[:, self._free], cov[:, self._free][:, :, self._free]

    def hpd_level(self, y: ArrayLike) -> Array:
        """Coverage of the smallest highest-density region that holds y; near 1 is an outlier.

        Parameters
        ----------
        y : array-like of shape (n, k)
        """
        own = self.logpdf(y)[:, None]
        draws, weight = self._weighted_draws(_DRAWS_OF_LEVEL)
        value = self._log_density(draws) - self._log_total()[:, None]
        return (weight * ((value > own) + 0.5 * (value == own))).sum(axis=1)

    def probability(
        self,
        event: Callable[[Array], ArrayLike],
        n_samples: int = 2000,
        random_state: Any = 0,
    ) -> Probability:
        """Probability of an event, by sampling, with its standard error.

        Parameters
        ----------
        event : callable
            From points, shape (..., k), to whether the event holds, shape (...), such as
            ``lambda y: y[..., 0] > y[..., 1]``.
        n_samples : int, default 2000
        random_state : int, Generator, RandomState or None, default 0

        Returns
        -------
        Probability
            ``estimate`` and ``standard_error``, each of shape (n,).
        """
        points = self.sample(n_samples, random_state)
        holds = np.asarray(event(points))
        if holds.shape != points.shape[:2]:
            raise ValueError(
                "event must return one truth value for each point: of points of shape "
                f"{points.shape} an array of shape {points.shape[:2]}, got {holds.shape}. Write "
                "lambda y: y[..., 0] > y[..., 1], with the targets along the last axis."
            )
        share = holds.astype(bool).mean(axis=1)
        # One more of each keeps the error of a share of 0 or 1 above 0.
        near = (share * n_samples + 1) / (n_samples + 2)
        return Probability(share, np.sqrt(near * (1 - near) / n_samples))

    def _summary_columns(self) -> tuple[tuple[str, ...], Array]:
        mean, cov = self._moments()
        spread = np.sqrt(np.einsum("nii->ni", cov))
        names = [f"{what} {name}" for name in self.names for what in ("mean", "sd")]
        return tuple(names), np.stack([mean, spread], axis=2).reshape(len(self), -1)

    def _row_text(self, row: list[str]) -> str:
        return "".join(f"{cell:>{5 if i == 0 else 14}}" for i, cell in enumerate(row))


def refuse_joint(distribution: Any, what: str) -> None:
    """Say that something is for one target."""
    if isinstance(distribution, JointDistribution):
        raise TypeError(
            f"{what} is for models of one target; this one has {', '.join(distribution.names)}. "
            "Fit a model of one of them, or use distribution.marginal(column)."
        )
