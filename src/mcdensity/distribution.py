"""`ConditionalDistribution`: what a prediction is here, one distribution a row."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity._loglinear import LogLinear, fill_up, is_shared, resolve
from mcdensity._validation import as_generator

__all__ = ["ConditionalDistribution", "GridDistribution"]

Array = NDArray[np.float64]

_SHOWN_ROWS = 5


class ConditionalDistribution(ABC):
    """The distributions of y given each of n rows of X.

    Three shapes of an argument `y` (and likewise of `q`, a probability) are understood, and a
    fourth has methods of its own, so that they are never confused:

    - a scalar: the same point for all rows; the result has shape (n,);
    - shape (n,): one point a row; the result has shape (n,);
    - shape (n, m): m points a row; the result has shape (n, m);
    - ``pdf_grid``, ``cdf_grid`` and ``ppf_grid`` take m points that all rows share, shape (m,),
      and return shape (n, m).

    ``len(distribution)`` is the number of rows; ``distribution[3]``, ``distribution[2:5]`` and
    ``distribution[mask]`` are the distributions of the chosen rows.
    """

    # What a kind of distribution must know.

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _take(self, rows: NDArray[np.intp]) -> ConditionalDistribution:
        """Return the chosen rows."""

    @abstractmethod
    def _rescaled(self, loc: float, scale: float) -> ConditionalDistribution:
        """Return the distributions of loc + scale * y."""

    @abstractmethod
    def _joined(self, others: Sequence[Any]) -> ConditionalDistribution:
        """Return the rows of this and of others of its kind."""

    @abstractmethod
    def _logpdf(self, y: Array) -> Array: ...

    @abstractmethod
    def _cdf(self, y: Array) -> Array: ...

    @abstractmethod
    def _sf(self, y: Array) -> Array: ...

    @abstractmethod
    def _ppf(self, q: Array) -> Array: ...

    @abstractmethod
    def as_grid(self) -> GridDistribution:
        """Return the same distributions on a grid, for what has no closed form."""

    # What follows from it.

    def __getitem__(self, key: Any) -> ConditionalDistribution:
        rows = np.arange(len(self))[key]
        return self._take(np.atleast_1d(rows))

    def pdf(self, y: ArrayLike) -> Array:
        """Density at y: a scalar, (n,) for one point a row, or (n, m) for m points a row."""
        return np.exp(self.logpdf(y))

    def logpdf(self, y: ArrayLike) -> Array:
        """Logarithm of `pdf`."""
        return self._by_row(self._logpdf, y, "y")

    def cdf(self, y: ArrayLike) -> Array:
        """P(Y <= y) of each row; same shapes as `pdf`."""
        return self._by_row(self._cdf, y, "y")

    def sf(self, y: ArrayLike) -> Array:
        """P(Y > y) of each row; same shapes as `pdf`."""
        return self._by_row(self._sf, y, "y")

    def ppf(self, q: ArrayLike) -> Array:
        """Quantile: the inverse of `cdf`; same shapes as `pdf`."""
        return self._by_row(self._ppf, self._probabilities(q, "q"), "q")

    def pdf_grid(self, grid: ArrayLike) -> Array:
        """Densities of all rows, shape (n, m), at m points that the rows share."""
        return np.exp(self.logpdf_grid(grid))

    def logpdf_grid(self, grid: ArrayLike) -> Array:
        """Logarithm of `pdf_grid`."""
        return self._logpdf(self._shared(grid, "grid"))

    def cdf_grid(self, grid: ArrayLike) -> Array:
        """P(Y <= y) of all rows, shape (n, m), at m points that the rows share."""
        return self._cdf(self._shared(grid, "grid"))

    def ppf_grid(self, q: ArrayLike) -> Array:
        """Quantiles of all rows, shape (n, m), at m probabilities that the rows share."""
        return self._ppf(self._shared(self._probabilities(q, "q"), "q"))

    def interval(self, coverage: float = 0.9) -> Array:
        """Central interval that holds y with probability `coverage`, shape (n, 2)."""
        tail = (1 - check_coverage(coverage)) / 2
        return self.ppf_grid([tail, 1 - tail])

    def median(self) -> Array:
        """The 0.5 quantile of each row."""
        return self.ppf(0.5)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw `n_samples` values from each row's distribution, shape (n, n_samples)."""
        rng = as_generator(random_state)
        # 0 has no quantile on an unbounded support; numpy's uniform never returns 1.
        uniform = np.maximum(rng.random((len(self), n_samples)), np.finfo(float).tiny)
        return self._ppf(uniform)

    def mean(self) -> Array:
        """Expectation of each row."""
        return self.as_grid()._mean

    def var(self) -> Array:
        """Variance of each row."""
        return self._central_moment(2)

    def std(self) -> Array:
        """Standard deviation of each row."""
        return np.sqrt(self.var())

    def skewness(self) -> Array:
        """Third standardised moment of each row: 0 for a symmetric distribution."""
        return self._central_moment(3) / self._central_moment(2) ** 1.5

    def kurtosis(self) -> Array:
        """Excess kurtosis of each row: 0 for a normal distribution."""
        return self._central_moment(4) / self._central_moment(2) ** 2 - 3

    def entropy(self) -> Array:
        """Differential entropy of each row, in nats."""
        return self.as_grid()._entropy()

    def mode(self) -> Array:
        """The most likely value of each row."""
        return self.as_grid()._mode()

    def hpd(self, coverage: float = 0.9) -> list[Array]:
        """Highest-density region of each row: the smallest set of probability `coverage`.

        Returns
        -------
        list of n ndarrays of shape (k, 2)
            The k intervals that make up the region; more than one where a row has several modes.
        """
        return self.as_grid()._hpd(check_coverage(coverage))

    def hpd_level(self, y: ArrayLike) -> Array:
        """Coverage of the smallest highest-density region that holds y; near 1 is an outlier.

        Same shapes as `pdf`.
        """
        return self._by_row(self.as_grid()._hpd_level, y, "y")

    def _central_moment(self, order: int) -> Array:
        grid = self.as_grid()
        return grid._moment(order, grid._mean)

    # Shapes.

    def _probabilities(self, q: ArrayLike, name: str) -> Array:
        q = np.asarray(q, dtype=np.float64)
        if not ((q >= 0) & (q <= 1)).all():
            raise ValueError(f"{name} must hold probabilities between 0 and 1.")
        return q

    def _by_row(self, function: Callable[[Array], Array], y: ArrayLike, name: str) -> Array:
        y = np.asarray(y, dtype=np.float64)
        n = len(self)
        if np.isnan(y).any():
            raise ValueError(f"{name} contains NaN; give only numbers.")
        if y.ndim == 0 or y.shape == (n,):
            return function(np.broadcast_to(y, (n,))[:, None])[:, 0]
        if y.ndim == 2 and len(y) == n:
            return function(y)
        raise ValueError(
            f"{name} must be a scalar, of shape ({n},) with one value a row, or of shape ({n}, m); "
            f"got shape {y.shape}. For values that all rows share use pdf_grid, cdf_grid or "
            "ppf_grid."
        )

    def _shared(self, values: ArrayLike, name: str) -> Array:
        values = np.asarray(values, dtype=np.float64)
        if values.ndim != 1:
            raise ValueError(
                f"{name} must be one-dimensional, shared by all rows; got shape {values.shape}."
            )
        if np.isnan(values).any():
            raise ValueError(f"{name} contains NaN; give only numbers.")
        return np.broadcast_to(values, (len(self), len(values)))

    # What people see.

    def _summary(self) -> tuple[list[tuple[str, ...]], int]:
        some = self[:_SHOWN_ROWS]
        if len(some) == 0:
            return [], 0
        numbers = np.column_stack([some.median(), some.interval(0.9)])
        rows = [(str(i), *(f"{v:.4g}" for v in row)) for i, row in enumerate(numbers)]
        return rows, len(self) - len(some)

    def __repr__(self) -> str:
        head = f"{type(self).__name__} of {len(self)} row{'s' * (len(self) != 1)}"
        rows, more = self._summary()
        if not rows:
            return head
        lines = [f"{head}\n{'row':>5}{'median':>12}   90 % interval"]
        lines += [f"{i:>5}{median:>12}   [{low}, {high}]" for i, median, low, high in rows]
        if more:
            lines.append(f"  ... {more} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows, more = self._summary()
        body = "".join("<tr>" + "".join(f"<td>{v}</td>" for v in row) + "</tr>" for row in rows)
        note = f"<p>and {more} more</p>" if more else ""
        return (
            f"<div><p><b>{html.escape(type(self).__name__)}</b>, {len(self)} rows</p><table>"
            "<thead><tr><th>row</th><th>median</th><th>5 %</th><th>95 %</th></tr></thead>"
            f"<tbody>{body}</tbody></table>{note}</div>"
        )


def check_coverage(coverage: float) -> float:
    """Check that a coverage lies strictly between 0 and 1."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage!r}.")
    return float(coverage)


class Reference(Protocol):
    """A one-dimensional distribution to measure densities against: a marginal is one."""

    def logpdf(self, y: Array) -> Array:
        """Log-density."""

    def cdf(self, y: Array) -> Array:
        """P(Y <= y)."""

    def ppf(self, q: Array) -> Array:
        """Inverse of `cdf`."""


class GridDistribution(ConditionalDistribution):
    """Distributions given by their log-densities on a grid, log-linear in between.

    With a reference distribution of density f and distribution function F, the coordinate is
    u = F(y), which runs from 0 to 1, and what is interpolated is the log-ratio log p(y) - log f(y).
    Isolated outliers and heavy tails of the reference then need no knots. Without one, the
    coordinate is y itself, and the density falls exponentially beyond the outer knots.

    Parameters
    ----------
    knots : ndarray of shape (n, K)
        Coordinates, ascending in each row.
    log_density : ndarray of shape (n, K)
        Logarithms of the density with respect to the coordinate, up to a constant per row.
    reference : object with `logpdf`, `cdf` and `ppf`, optional
        The reference distribution.
    loc, scale : float
        The distributions are those of ``loc + scale * y``.
    """

    def __init__(
        self,
        knots: Array,
        log_density: Array,
        *,
        reference: Reference | None = None,
        loc: float = 0.0,
        scale: float = 1.0,
    ) -> None:
        self._set(LogLinear(knots, log_density, tails=reference is None), reference, loc, scale)

    def _set(
        self, law: LogLinear, reference: Reference | None, loc: float, scale: float
    ) -> GridDistribution:
        self._law, self._reference, self._loc, self._scale = law, reference, loc, scale
        return self

    @classmethod
    def from_log_density(
        cls,
        rowwise: Callable[[NDArray[np.intp], Array], Array],
        knots: ArrayLike,
        n_rows: int | None = None,
        *,
        shared: Callable[[Array], Array] | None = None,
        reference: Reference | None = None,
        floor: float = -np.inf,
    ) -> GridDistribution:
        """Build the distributions of n rows from any row-wise log-density.

        The grid starts with the same coarse knots for all rows; the rows whose density it does not
        resolve get knots of their own, until it does.

        Parameters
        ----------
        rowwise : callable
            ``rowwise(rows, y)`` returns the log-densities of the chosen rows at points y of shape
            (len(rows), m), up to a constant per row.
        knots : array-like of shape (K,)
            Values of y to start with. They must reach wherever there is mass.
        n_rows : int, optional
            Number of rows; not needed with `shared`.
        shared : callable, optional
            ``shared(y)``: the log-densities of all rows at points of shape (m,) that they share,
            if that is faster.
        reference : object with `logpdf`, `cdf` and `ppf`, optional
            See the class.
        floor : float, default -inf
            The least log-ratio to the reference, below the largest of the row.

        Examples
        --------
        >>> import numpy as np
        >>> from mcdensity.distribution import GridDistribution
        >>> scale = np.array([[1.0], [0.01]])
        >>> normal = GridDistribution.from_log_density(
        ...     lambda rows, y: -0.5 * (y / scale[rows]) ** 2, np.linspace(-8, 8, 200), n_rows=2
        ... )
        >>> (normal.ppf(0.975) / scale[:, 0]).round(3)
        array([1.96, 1.96])
        """
        y = np.asarray(knots, dtype=np.float64)
        if shared is None:
            if n_rows is None:
                raise ValueError("from_log_density needs n_rows, or the function `shared`.")
            all_rows = np.arange(n_rows)
            value = rowwise(all_rows, np.broadcast_to(y, (n_rows, len(y))))
        else:
            value = shared(y)
        if reference is None:
            return cls(*resolve(y, value, rowwise))

        def log_ratio(rows: NDArray[np.intp], u: Array) -> Array:
            at = reference.ppf(u)
            return rowwise(rows, at) - reference.logpdf(at)

        value = value - reference.logpdf(y)
        # Beyond the outer knots the ratio stays what it is there.
        value = np.concatenate([value[:, :1], value, value[:, -1:]], axis=1)
        u = np.concatenate([[0.0], reference.cdf(y), [1.0]])
        u, value = resolve(np.maximum.accumulate(u), value, log_ratio, fixed_ends=True)
        value = np.maximum(value, value.max(axis=1, keepdims=True) + floor)
        return cls(u, value, reference=reference)

    def __len__(self) -> int:
        return len(self._law.knots)

    def as_grid(self) -> GridDistribution:
        """Return itself."""
        return self

    def _take(self, rows: NDArray[np.intp]) -> GridDistribution:
        new = object.__new__(GridDistribution)
        return new._set(self._law.take(rows), self._reference, self._loc, self._scale)

    def _rescaled(self, loc: float, scale: float) -> GridDistribution:
        new = object.__new__(GridDistribution)
        return new._set(self._law, self._reference, loc + scale * self._loc, scale * self._scale)

    def _joined(self, others: Sequence[GridDistribution]) -> GridDistribution:
        laws = [self._law, *(other._law for other in others)]
        size = max(law.knots.shape[1] for law in laws)
        parts = [fill_up(law.knots, law.value, size) for law in laws]
        knots, value = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        law = LogLinear(knots, value, tails=self._reference is None)
        return object.__new__(GridDistribution)._set(law, self._reference, self._loc, self._scale)

    def _coordinate(self, y: Array) -> tuple[Array, Array]:
        """Coordinates of points y, and the logarithms of their derivatives with respect to y."""
        # A grid that all rows share (a broadcast row) is worked once.
        once = ((y[:1] if is_shared(y) else y) - self._loc) / self._scale
        log_scale = np.log(self._scale)
        if self._reference is None:
            return np.broadcast_to(once, y.shape), np.full(y.shape, -log_scale)
        u, log_f = self._reference.cdf(once), self._reference.logpdf(once) - log_scale
        return np.broadcast_to(u, y.shape), np.broadcast_to(log_f, y.shape)

    def _point(self, coordinate: Array) -> Array:
        y = coordinate if self._reference is None else self._reference.ppf(coordinate)
        return self._loc + self._scale * y

    def _logpdf(self, y: Array) -> Array:
        coordinate, log_derivative = self._coordinate(y)
        return self._law.logpdf(coordinate) + log_derivative

    def _cdf(self, y: Array) -> Array:
        return self._law.cdf(self._coordinate(y)[0])

    def _sf(self, y: Array) -> Array:
        return self._law.sf(self._coordinate(y)[0])

    def _ppf(self, q: Array) -> Array:
        return self._point(self._law.ppf(q))

    # Integrals over the cells, with points in units of y.

    @cached_property
    def _cells(self) -> tuple[Array, Array, Array, Array, Array]:
        """Points y, log-density there, masses in between, masses outside and their mean reach."""
        law = self._law
        if self._reference is None:
            reach = self._scale / law.rate
            value = law.value - np.log(self._scale)
            return self._point(law.knots), value, law.mass, law.outside, reach
        # The outer cells reach to infinity; their mass is next to nothing.
        inner = law.knots[:, 1:-1]
        y = self._point(inner[:1] if is_shared(inner) else inner)
        log_f = self._reference.logpdf((y - self._loc) / self._scale) - np.log(self._scale)
        outside = law.mass[:, [0, -1]]
        value = law.value[:, 1:-1] + log_f
        y = np.broadcast_to(y, inner.shape)
        return y, value, law.mass[:, 1:-1], outside, np.zeros_like(outside)

    def _integrate(self, function: Callable[[Array, Array], Array]) -> Array:
        """Integral of function(y, log p(y)) over the cells between the knots."""
        y, value, mass, _, _ = self._cells
        nodes, weights = np.polynomial.legendre.leggauss(4)
        width, rise = np.diff(y, axis=1), np.diff(value, axis=1)
        top = np.maximum(rise, 0)
        total = np.zeros_like(mass)
        norm = np.zeros_like(mass)
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            part = weight * np.exp(rise * node - top)
            norm += part
            total += part * function(y[:, :-1] + width * node, value[:, :-1] + rise * node)
        return (mass * (total / norm)).sum(axis=1)

    @cached_property
    def _mean(self) -> Array:
        y, _, _, outside, reach = self._cells
        ends = (y[:, 0] - reach[:, 0]) * outside[:, 0] + (y[:, -1] + reach[:, 1]) * outside[:, 1]
        return self._integrate(lambda y, _: y) + ends

    def _moment(self, order: int, center: Array) -> Array:
        y, _, _, outside, reach = self._cells
        moment = self._integrate(lambda y, _: (y - center[:, None]) ** order)
        for side, sign in ((0, -1), (1, 1)):
            start = sign * (y[:, -side] - center)
            # Moments about the center of start + T, with T exponential of the given mean.
            tail, power = np.zeros_like(center), np.ones_like(center)
            for k in range(order + 1):
                tail = tail + _falling(order, k) * power * start ** (order - k)
                power = power * reach[:, side]
            moment = moment + sign**order * outside[:, side] * tail
        return moment

    def _entropy(self) -> Array:
        _, value, _, outside, _ = self._cells
        ends = (outside * (value[:, [0, -1]] - 1)).sum(axis=1)
        if self._reference is None:
            return -self._integrate(lambda _, value: value) - ends
        # Linear between knots is the log-ratio, in u; the reference bends in between.
        knots, ratio = self._law.knots[:, 1:-1], self._law.value[:, 1:-1]
        u, rise = knots[:1] if is_shared(knots) else knots, np.diff(ratio, axis=1)
        total, norm = np.zeros_like(rise), np.zeros_like(rise)
        nodes, weights = np.polynomial.legendre.leggauss(4)
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            y = self._reference.ppf(u[:, :-1] + np.diff(u, axis=1) * node)
            part = weight * np.exp(rise * node - np.maximum(rise, 0))
            norm += part
            total += part * (ratio[:, :-1] + rise * node + self._reference.logpdf(y))
        inner = (self._law.mass[:, 1:-1] * (total / norm)).sum(axis=1)
        return np.log(self._scale) * (1 - outside.sum(axis=1)) - inner - ends

    def _mean_density(self) -> Array:
        """Return the integral of the squared density of each row."""
        _, value, _, outside, _ = self._cells
        ends = (outside * np.exp(value[:, [0, -1]]) / 2).sum(axis=1)
        return self._integrate(lambda _, value: np.exp(value)) + ends

    def _mode(self) -> Array:
        y, value, _, _, _ = self._cells
        best = np.clip(value.argmax(axis=1), 1, y.shape[1] - 2)[:, None]
        (y0, v0), (y1, v1), (y2, v2) = (
            (np.take_along_axis(y, best + i, axis=1), np.take_along_axis(value, best + i, axis=1))
            for i in (-1, 0, 1)
        )
        # The top of the parabola through the highest knot and its neighbours.
        with np.errstate(invalid="ignore", divide="ignore"):
            first, second = (v1 - v0) / (y1 - y0), (v2 - v1) / (y2 - y1)
            top = (y0 + y1) / 2 + first / (first - second) * (y2 - y0) / 2
        usable = np.isfinite(top) & (top >= y0) & (top <= y2)
        return np.where(usable, top, y1)[:, 0]

    def _mass_above(self, level: Array) -> Array:
        """Mass where the log-density exceeds `level`, of shape (n,)."""
        _, value, mass, outside, _ = self._cells
        level = level[:, None]
        high = np.maximum(value[:, :-1], value[:, 1:])
        fall = high - np.minimum(value[:, :-1], value[:, 1:])
        above = np.clip(high - level, 0, fall)
        with np.errstate(invalid="ignore", divide="ignore"):
            part = np.expm1(-above) / np.expm1(-fall)
        part = np.where(fall < 1e-12, high > level, part)
        ends = outside * -np.expm1(-np.maximum(value[:, [0, -1]] - level, 0))
        return (mass * part).sum(axis=1) + ends.sum(axis=1)

    def _hpd_level(self, y: Array) -> Array:
        level = self._logpdf(y)
        columns = [self._mass_above(level[:, j]) for j in range(level.shape[1])]
        return np.clip(np.stack(columns, axis=1), 0, 1)

    def _hpd(self, coverage: float) -> list[Array]:
        y, value, _, _, reach = self._cells
        low, high = value.max(axis=1) - 200, value.max(axis=1)
        for _ in range(60):
            middle = (low + high) / 2
            enough = self._mass_above(middle) >= coverage
            low, high = np.where(enough, middle, low), np.where(enough, high, middle)
        return [_region(*row) for row in zip(y, value, reach, low, strict=True)]


def _falling(n: int, k: int) -> int:
    """Return the product n (n - 1) ... (n - k + 1)."""
    return int(np.prod(np.arange(n - k + 1, n + 1), initial=1))


def _region(y: Array, value: Array, reach: Array, level: float) -> Array:
    """Return the intervals of one row where the log-density exceeds `level`."""
    excess = value - level
    inside = excess >= 0
    change = np.flatnonzero(inside[1:] != inside[:-1])
    part = excess[change] / (excess[change] - excess[change + 1])
    edges = list(y[change] + part * (y[change + 1] - y[change]))
    if inside[0]:
        edges.insert(0, y[0] - reach[0] * excess[0])
    if inside[-1]:
        edges.append(y[-1] + reach[1] * excess[-1])
    return np.array(edges).reshape(-1, 2)
