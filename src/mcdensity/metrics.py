"""How good a conditional density is: against outcomes, and against a known truth.

Metrics against outcomes have the form ``metric(distribution, y, sample_weight=None)``. In place of
a `ConditionalDistribution` they take a matrix of densities, shape (n, G), with ``grid=`` the G
points it stands for. Each says whether higher or lower is better.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import ndtr

from mcdensity._validation import check_weights
from mcdensity.distribution import ConditionalDistribution, GridDistribution, check_coverage

__all__ = [
    "cde_loss",
    "coverage",
    "crps",
    "get_scorer",
    "hellinger",
    "hpd_coverage",
    "interval_score",
    "jensen_shannon",
    "kl",
    "kl_grid",
    "list_scorers",
    "log_likelihood",
    "pinball_loss",
    "pit",
    "pit_chi2",
    "pit_ks",
    "total_variation",
]

Array = NDArray[np.float64]
Density = ConditionalDistribution | ArrayLike


# Against outcomes.


def log_likelihood(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    floor: float | None = None,
    grid: ArrayLike | None = None,
) -> float:
    """Mean log-density of the outcomes. Higher is better.

    Parameters
    ----------
    distribution : ConditionalDistribution, or densities of shape (n, G) with `grid`
    y : array-like of shape (n,)
    sample_weight : array-like of shape (n,), optional
    floor : float, optional
        Densities are raised to this; the paper's tables use 1e-6.
    grid : array-like of shape (G,), optional
    """
    d, y = _prepare(distribution, y, grid)
    value = d.logpdf(y)
    if floor is not None:
        value = np.maximum(value, np.log(_check_floor(floor)))
    return _average(value, sample_weight)


def cde_loss(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    grid: ArrayLike | None = None,
) -> float:
    r"""Loss of a conditional density estimate g. Lower is better; it can be negative.

    .. math:: \frac1n \sum_i \int g(y \mid x_i)^2 \, dy - \frac2n \sum_i g(y_i \mid x_i)
    """
    d, y = _prepare(distribution, y, grid)
    return _average(d.as_grid()._mean_density() - 2 * d.pdf(y), sample_weight)


def crps(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    grid: ArrayLike | None = None,
) -> float:
    r"""Continuous ranked probability score, in units of y. Lower is better.

    .. math:: \int (F(t) - 1\{t \ge y\})^2 \, dt
    """
    d, y = _prepare(distribution, y, grid)
    tail = np.array([1e-9, 1e-7, 1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2])
    edges = d.ppf_grid(np.concatenate([tail, [0.5], 1 - tail[::-1]]))
    # Between the edges, and on both sides of the outcome, the integrand is smooth.
    edges = np.sort(np.concatenate([edges, y[:, None]], axis=1), axis=1)
    node, weight = np.polynomial.legendre.leggauss(16)
    total = np.zeros(len(y))
    for left, right in zip(edges.T[:-1], edges.T[1:], strict=True):
        half = (right - left)[:, None] / 2
        t = (left + right)[:, None] / 2 + half * node
        step = (left >= y)[:, None]
        total += (half * weight * (d.cdf(t) - step) ** 2).sum(axis=1)
    return _average(total, sample_weight)


def pinball_loss(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    quantiles: ArrayLike = (0.05, 0.25, 0.5, 0.75, 0.95),
    grid: ArrayLike | None = None,
) -> float:
    """Mean pinball loss of some quantiles. Lower is better."""
    d, y = _prepare(distribution, y, grid)
    q = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    if not ((q > 0) & (q < 1)).all():
        raise ValueError(f"quantiles must lie strictly between 0 and 1, got {quantiles!r}.")
    gap = y[:, None] - d.ppf_grid(q)
    return _average(np.maximum(q * gap, (q - 1) * gap).mean(axis=1), sample_weight)


def interval_score(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    level: float = 0.9,
    grid: ArrayLike | None = None,
) -> float:
    """Winkler's score of central intervals: their width, and a penalty for misses. Lower is better.

    Parameters
    ----------
    distribution : ConditionalDistribution, or densities of shape (n, G) with `grid`
    y : array-like of shape (n,)
    sample_weight : array-like of shape (n,), optional
    level : float, default 0.9
        The nominal coverage of the intervals.
    grid : array-like of shape (G,), optional
    """
    d, y = _prepare(distribution, y, grid)
    low, high = d.interval(level).T
    miss = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    return _average(high - low + 2 / (1 - level) * miss, sample_weight)


def coverage(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    level: float = 0.9,
    grid: ArrayLike | None = None,
) -> float:
    """Share of outcomes inside the central interval of the given level. Nearer to it is better."""
    d, y = _prepare(distribution, y, grid)
    low, high = d.interval(level).T
    return _average(((y >= low) & (y <= high)).astype(float), sample_weight)


def hpd_coverage(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    level: float = 0.9,
    grid: ArrayLike | None = None,
) -> float:
    """Share of outcomes inside the highest-density region of that level. Nearer to it is better."""
    check_coverage(level)
    d, y = _prepare(distribution, y, grid)
    return _average((d.hpd_level(y) <= level).astype(float), sample_weight)


def pit(distribution: Density, y: ArrayLike, *, grid: ArrayLike | None = None) -> Array:
    """Probability integral transform of each outcome, F(y[i] | x[i]): uniform if F is right."""
    d, y = _prepare(distribution, y, grid)
    return d.cdf(y)


def pit_ks(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    grid: ArrayLike | None = None,
) -> float:
    """Kolmogorov-Smirnov distance of the PIT from uniform. Lower is better.

    Without weights, ``scipy.stats.kstest(pit(...), "uniform")`` gives its p-value.
    """
    value = pit(distribution, y, grid=grid)
    kept, weight = check_weights(sample_weight, len(value))
    value = value if kept is None else value[kept]
    order = np.argsort(value)
    weight = np.ones(len(value)) if weight is None else weight
    above = np.cumsum(weight[order]) / weight.sum()
    below = above - weight[order] / weight.sum()
    return float(np.maximum(above - value[order], value[order] - below).max())


def pit_chi2(
    distribution: Density,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    bins: int = 10,
    grid: ArrayLike | None = None,
) -> float:
    """p-value of a chi-square test that the PIT is uniform. Higher is better; small is evidence.

    With weights the counts are those of the effective number of rows.
    """
    if bins < 2:
        raise ValueError(f"bins must be at least 2, got {bins!r}.")
    value = pit(distribution, y, grid=grid)
    kept, weight = check_weights(sample_weight, len(value))
    value = value if kept is None else value[kept]
    weight = np.ones(len(value)) if weight is None else weight
    effective = weight.sum() ** 2 / (weight**2).sum()
    share = np.histogram(value, bins=bins, range=(0, 1), weights=weight)[0] / weight.sum()
    return float(stats.chi2.sf(effective * bins * ((share - 1 / bins) ** 2).sum(), bins - 1))


# Against a known truth.


def kl(
    truth: Density,
    estimate: Density,
    grid: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    floor: float | None = None,
) -> float:
    r"""Kullback-Leibler divergence, averaged over the rows. Lower is better; 0 is the truth.

    .. math:: \frac1n \sum_i \int f(y \mid x_i) \log \frac{f(y \mid x_i)}{g(y \mid x_i)} \, dy

    Parameters
    ----------
    truth, estimate : ConditionalDistribution, or densities of shape (n, G) on the grid
    grid : array-like of shape (G,), optional
        Where to integrate, by the trapezoidal rule. Without it, each row has points of its own,
        between the quantiles of both distributions.
    sample_weight : array-like of shape (n,), optional
    floor : float, optional
        The estimate is raised to this; without it the logarithm is taken as it is.
    """
    log_f, log_g, weights = _both(truth, estimate, grid)
    if floor is not None:
        log_g = np.maximum(log_g, np.log(_check_floor(floor)))
    f = np.exp(log_f)
    with np.errstate(invalid="ignore"):
        integrand = np.where(f > 0, f * (log_f - log_g), 0.0)
    return _average((weights * integrand).sum(axis=1), sample_weight)


def kl_grid(
    truth: ArrayLike,
    estimate: ArrayLike,
    *,
    floor: float = 1e-6,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Return the paper's KL: the mean of f ln(f / g) over rows and grid points. Lower is better.

    Both are matrices of densities on the grid of the protocol, raised to `floor`. It depends on
    the width of the grid, and an estimate that integrates to more than one can gain by it: see
    `kl` for the divergence itself.
    """
    if isinstance(truth, ConditionalDistribution) or isinstance(estimate, ConditionalDistribution):
        raise TypeError("kl_grid takes matrices of densities: use distribution.pdf_grid(grid).")
    _check_floor(floor)
    f, g = (np.asarray(a, dtype=np.float64) for a in (truth, estimate))
    if f.shape != g.shape or f.ndim != 2:
        raise ValueError(
            f"kl_grid needs two matrices of the same shape (n, G), got {f.shape} and {g.shape}."
        )
    for name, value in (("truth", f), ("estimate", g)):
        _check_values(name, value)
    f, g = np.maximum(f, floor), np.maximum(g, floor)
    return _average((f * np.log(f / g)).mean(axis=1), sample_weight)


def jensen_shannon(
    truth: Density,
    estimate: Density,
    grid: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Jensen-Shannon divergence in nats, averaged over the rows: 0 to log 2. Lower is better."""
    log_f, log_g, weights = _both(truth, estimate, grid)
    log_m = np.logaddexp(log_f, log_g) - np.log(2)
    f, g = np.exp(log_f), np.exp(log_g)
    with np.errstate(invalid="ignore"):
        integrand = np.where(f > 0, f * (log_f - log_m), 0.0)
        integrand = integrand + np.where(g > 0, g * (log_g - log_m), 0.0)
    return _average((weights * integrand).sum(axis=1) / 2, sample_weight)


def hellinger(
    truth: Density,
    estimate: Density,
    grid: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Hellinger distance, averaged over the rows: 0 to 1. Lower is better."""
    log_f, log_g, weights = _both(truth, estimate, grid)
    gap = (np.exp(log_f / 2) - np.exp(log_g / 2)) ** 2
    return _average(np.sqrt((weights * gap).sum(axis=1) / 2), sample_weight)


def total_variation(
    truth: Density,
    estimate: Density,
    grid: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Total variation distance, averaged over the rows: 0 to 1. Lower is better."""
    log_f, log_g, weights = _both(truth, estimate, grid)
    gap = np.abs(np.exp(log_f) - np.exp(log_g))
    return _average((weights * gap).sum(axis=1) / 2, sample_weight)


# Scorers for scikit-learn.


class Scorer:
    """Score an estimator by a metric, signed so that higher is better, as scikit-learn wants it.

    Parameters
    ----------
    name : str
        Name of the metric.
    metric : callable
    sign : {1, -1}
    nominal : float, optional
        For coverages: the score is minus the distance from it.
    """

    def __init__(
        self, name: str, metric: Callable[..., float], sign: int, nominal: float | None = None
    ) -> None:
        self.name, self.metric, self.sign, self.nominal = name, metric, sign, nominal

    def __call__(
        self, estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        value = self.metric(_predicted(estimator, X), y, sample_weight)
        return -abs(value - self.nominal) if self.nominal is not None else self.sign * value

    def __repr__(self) -> str:
        return f"get_scorer('mcdensity.{self.name}')"


def _predicted(estimator: Any, X: Any) -> ConditionalDistribution:
    """Predict distributions, through pipelines and searches too."""
    if hasattr(estimator, "predict_distribution"):
        return estimator.predict_distribution(X)
    if hasattr(estimator, "best_estimator_"):
        return _predicted(estimator.best_estimator_, X)
    if hasattr(estimator, "steps"):
        for _, step in estimator.steps[:-1]:
            X = X if step is None or step == "passthrough" else step.transform(X)
        return _predicted(estimator.steps[-1][1], X)
    raise TypeError(
        f"{type(estimator).__name__} has no predict_distribution; this scorer is for estimators of "
        "conditional distributions."
    )


_SCORERS = {
    "cde_loss": Scorer("cde_loss", cde_loss, -1),
    "coverage": Scorer("coverage", coverage, -1, nominal=0.9),
    "crps": Scorer("crps", crps, -1),
    "hpd_coverage": Scorer("hpd_coverage", hpd_coverage, -1, nominal=0.9),
    "interval_score": Scorer("interval_score", interval_score, -1),
    "log_likelihood": Scorer("log_likelihood", log_likelihood, 1),
    "pinball_loss": Scorer("pinball_loss", pinball_loss, -1),
    "pit_chi2": Scorer("pit_chi2", pit_chi2, 1),
    "pit_ks": Scorer("pit_ks", pit_ks, -1),
}


def list_scorers() -> list[str]:
    """Return the names that `get_scorer` understands."""
    return [f"mcdensity.{name}" for name in _SCORERS]


def get_scorer(name: str) -> Scorer:
    """Return a scorer for ``scoring=`` of scikit-learn; higher is always better.

    Losses come with a minus sign; coverages as minus the distance from 0.9.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from mcdensity import MCD
    >>> from mcdensity.metrics import get_scorer
    >>> X = np.random.default_rng(0).normal(size=(90, 1))
    >>> model = MCD(discriminator="quadratic", random_state=0)
    >>> scores = cross_val_score(model, X, X[:, 0] ** 3, cv=3, scoring=get_scorer("mcdensity.crps"))
    >>> bool((scores < 0).all())
    True
    """
    short = str(name).removeprefix("mcdensity.")
    if short not in _SCORERS:
        raise ValueError(f"Scorer {name!r} is not known; choose from {list_scorers()}.")
    return _SCORERS[short]


# Input.


def _average(value: Array, sample_weight: ArrayLike | None) -> float:
    kept, weight = check_weights(sample_weight, len(value))
    return float(np.average(value if kept is None else value[kept], weights=weight))


def _prepare(
    distribution: Density, y: ArrayLike, grid: ArrayLike | None
) -> tuple[ConditionalDistribution, Array]:
    y = np.asarray(y, dtype=np.float64)
    if not isinstance(distribution, ConditionalDistribution):
        if grid is None:
            raise ValueError(
                "Give a ConditionalDistribution, or a matrix of densities together with its grid: "
                "metric(density, y, grid=grid)."
            )
        distribution = _from_matrix(distribution, grid)
    if y.shape != (len(distribution),):
        raise ValueError(
            f"y must have one outcome a row, shape ({len(distribution)},), got shape {y.shape}."
        )
    if not np.isfinite(y).all():
        raise ValueError("y contains NaN or infinity.")
    return distribution, y


def _check_floor(floor: float) -> float:
    if not floor > 0:
        raise ValueError(f"floor must be positive, got {floor!r}.")
    return floor


def _check_values(name: str, value: Array) -> None:
    if np.isnan(value).any() or (value < 0).any():
        raise ValueError(f"{name} holds negative or NaN densities.")


def _check_grid(grid: ArrayLike) -> Array:
    points = np.asarray(grid, dtype=np.float64)
    if points.ndim != 1 or len(points) < 2 or not (np.diff(points) > 0).all():
        raise ValueError("grid must be one-dimensional and strictly ascending.")
    return points


def _check_matrix(density: ArrayLike, points: Array, name: str = "density") -> Array:
    """Check densities on a grid: not negative, and of mass one, or less if the grid misses some."""
    value = np.asarray(density, dtype=np.float64)
    if value.ndim != 2 or value.shape[1] != len(points):
        raise ValueError(
            f"{name} must be of shape (n, {len(points)}), one column a grid point, got shape "
            f"{value.shape}."
        )
    _check_values(name, value)
    mass = np.asarray(np.trapezoid(value, points, axis=1))
    # Of a sharp density the trapezoidal rule may find a little too much.
    worst = int(np.argmax(mass))
    if mass.mean() > 1.01 or mass[worst] > 1.1:
        raise ValueError(
            f"{name} is not normalised: it integrates to {mass.mean():.3g} on average, and to "
            f"{mass[worst]:.3g} in row {worst}. Divide each row by its integral first."
        )
    if not (mass > 0).all():
        raise ValueError(f"{name} is zero on the whole grid in row {int(np.argmin(mass))}.")
    _warn_missing(mass, name)
    return value


def _warn_missing(mass: Any, name: str) -> None:
    missed = 1 - mass.mean()
    if missed > 0.01:
        warnings.warn(
            f"The grid misses {missed:.1%} of the mass of {name} on average; widen it.",
            UserWarning,
            stacklevel=4,
        )


def _from_matrix(density: ArrayLike, grid: ArrayLike) -> ConditionalDistribution:
    points = _check_grid(grid)
    value = _check_matrix(density, points)
    with np.errstate(divide="ignore"):
        return GridDistribution(np.broadcast_to(points, value.shape), np.log(value))


def _both(truth: Density, estimate: Density, grid: ArrayLike | None) -> tuple[Array, Array, Array]:
    """Log-densities of both at the same points, and weights that make a sum an integral."""
    if grid is None:
        if not isinstance(truth, ConditionalDistribution) or not isinstance(
            estimate, ConditionalDistribution
        ):
            raise ValueError("Matrices of densities need the grid they stand for.")
        if len(truth) != len(estimate):
            raise ValueError(f"truth has {len(truth)} rows, estimate {len(estimate)}.")
        # Gauss-Legendre between quantiles of both, so that neither's mass is overlooked.
        level = ndtr(np.linspace(-6.5, 6.5, 121))
        edges = np.concatenate([d.ppf_grid(level) for d in (truth, estimate)], axis=1)
        edges = np.sort(edges, axis=1)
        node, weight = np.polynomial.legendre.leggauss(6)
        half = np.diff(edges, axis=1)[:, :, None] / 2
        points = edges[:, :-1, None] + half * (1 + node)
        n = len(edges)
        weights = (half * weight).reshape(n, -1)
        points = points.reshape(n, -1)
        return truth.logpdf(points), estimate.logpdf(points), weights
    points = _check_grid(grid)
    weights = np.zeros((1, len(points)))
    weights[0, 1:] += np.diff(points) / 2
    weights[0, :-1] += np.diff(points) / 2
    values = []
    for name, density in (("truth", truth), ("estimate", estimate)):
        if isinstance(density, ConditionalDistribution):
            log = density.logpdf_grid(points)
            if name == "truth":
                _warn_missing((weights * np.exp(log)).sum(axis=1), name)
        else:
            with np.errstate(divide="ignore"):
                log = np.log(_check_matrix(density, points, name))
        values.append(log)
    if values[0].shape != values[1].shape:
        raise ValueError(f"truth has {len(values[0])} rows, estimate {len(values[1])}.")
    return values[0], values[1], weights
