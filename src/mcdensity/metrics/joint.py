"""Scores of laws of several targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity._validation import as_generator, check_integer
from mcdensity.distribution import ConditionalDistribution, Distribution, JointDistribution
from mcdensity.metrics._inputs import average

__all__ = ["c2st", "dawid_sebastiani", "energy_score", "variogram_score"]

Array = NDArray[np.float64]

# Rows that a classifier of samples learns from, in units of the dimension, and rounds at most.
_UNITS, _ROUNDS = 10, 1000
_FOLDS = 5


def energy_score(
    distribution: Distribution | ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    n_samples: int = 200,
    random_state: Any = 0,
) -> float:
    r"""Mean energy score, :math:`E\|Y - y\| - E\|Y - Y'\| / 2`; lower is better.

    Of one target it is the CRPS. It depends on the units of the targets: scale them alike first.

    Parameters
    ----------
    distribution : JointDistribution, ConditionalDistribution or array-like of shape (n, m, k)
        The laws, or m draws of each.
    y : array-like of shape (n, k), or (n,) for one target
        Outcomes.
    sample_weight : array-like of shape (n,), optional
    n_samples : int, default 200
        Draws from each law.
    random_state : int, Generator, RandomState or None, default 0

    References
    ----------
    Gneiting, Raftery: Strictly proper scoring rules, prediction, and estimation, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.metrics import energy_score
    >>> draws = np.random.default_rng(0).normal(size=(1, 2000, 2))
    >>> round(energy_score(draws, [[0.0, 0.0]]), 1), round(energy_score(draws, [[3.0, 0.0]]), 1)
    (0.4, 2.3)
    """
    draws, outcomes = _draws(distribution, y, n_samples, random_state)
    away = np.linalg.norm(draws - outcomes[:, None], axis=2).mean(axis=1)
    m = draws.shape[1]
    apart = np.empty(len(draws))
    for i, row in enumerate(draws):
        # Without each draw and itself: without bias for any number of draws.
        gap = np.linalg.norm(row[:, None] - row[None], axis=2)
        apart[i] = gap.sum() / (m * (m - 1))
    return average(away - apart / 2, sample_weight)


def variogram_score(
    distribution: Distribution | ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    power: float = 0.5,
    n_samples: int = 500,
    random_state: Any = 0,
) -> float:
    r"""Mean variogram score, which sees wrong correlations; lower is better.

    .. math:: \sum_{i < j} (|y_i - y_j|^p - E|Y_i - Y_j|^p)^2

    Parameters
    ----------
    distribution, y, sample_weight, n_samples, random_state
        See `energy_score`.
    power : float, default 0.5
        The exponent p.

    References
    ----------
    Scheuerer, Hamill: Variogram-based proper scoring rules for probabilistic forecasts of
    multivariate quantities, 2015.
    """
    if not power > 0:
        raise ValueError(f"power must be positive, got {power!r}.")
    draws, outcomes = _draws(distribution, y, n_samples, random_state)
    if draws.shape[2] < 2:
        raise ValueError("variogram_score compares targets with each other; there is only one.")
    first, second = np.triu_indices(draws.shape[2], 1)
    own = np.abs(outcomes[:, first] - outcomes[:, second]) ** power
    expected = (np.abs(draws[..., first] - draws[..., second]) ** power).mean(axis=1)
    return average(((own - expected) ** 2).sum(axis=1), sample_weight)


def dawid_sebastiani(
    distribution: JointDistribution | ConditionalDistribution,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Mean Dawid-Sebastiani score; lower is better.

    .. math:: \log \det \Sigma + (y - \mu)^T \Sigma^{-1} (y - \mu)

    with the mean and the covariance of each law: what a normal law would be scored.

    Parameters
    ----------
    distribution : JointDistribution or ConditionalDistribution
    y : array-like of shape (n, k) or (n,)
    sample_weight : array-like of shape (n,), optional
    """
    if isinstance(distribution, ConditionalDistribution):
        mean, cov = distribution.mean()[:, None], distribution.var()[:, None, None]
        y = np.asarray(y, dtype=np.float64).reshape(-1, 1)
    else:
        mean, cov = distribution._moments()
    outcomes = _outcomes(y, *mean.shape)
    away = outcomes - mean
    distance = np.einsum("ni,ni->n", away, np.linalg.solve(cov, away[..., None])[..., 0])
    return average(np.linalg.slogdet(cov)[1] + distance, sample_weight)


def c2st(sample: ArrayLike, reference: ArrayLike, random_state: Any = 0) -> float:
    """Accuracy of a classifier that tells two samples apart: 0.5 is perfect, 1 is useless.

    A network with two hidden layers of ten units per dimension, on samples that are standardised by
    the reference, five folds.

    Parameters
    ----------
    sample, reference : array-like of shape (m, k) and (m', k)
    random_state : int, Generator, RandomState or None, default 0

    References
    ----------
    Lopez-Paz, Oquab: Revisiting classifier two-sample tests, 2017. Lueckmann et al.: Benchmarking
    simulation-based inference, 2021.
    """
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neural_network import MLPClassifier

    found, exact = (np.asarray(a, dtype=np.float64) for a in (sample, reference))
    if found.ndim != 2 or exact.ndim != 2 or found.shape[1] != exact.shape[1]:
        raise ValueError(
            "sample and reference must be of shape (m, k) with the same k, got shapes "
            f"{found.shape} and {exact.shape}."
        )
    if min(len(found), len(exact)) < 2 * _FOLDS:
        raise ValueError(f"c2st needs at least {2 * _FOLDS} points of each sample.")
    location, scale = exact.mean(axis=0), exact.std(axis=0)
    points = (np.concatenate([found, exact]) - location) / np.where(scale > 0, scale, 1)
    label = np.repeat([0, 1], [len(found), len(exact)])
    rng = as_generator(random_state)
    seed = int(rng.integers(2**31 - 1))
    units = _UNITS * points.shape[1]
    network = MLPClassifier((units, units), max_iter=_ROUNDS, random_state=seed)
    folds = KFold(_FOLDS, shuffle=True, random_state=seed)
    return float(cross_val_score(network, points, label, cv=folds, scoring="accuracy").mean())


def _outcomes(y: ArrayLike, n: int, k: int) -> Array:
    outcomes = np.asarray(y, dtype=np.float64)
    if outcomes.shape != (n, k):
        raise ValueError(f"y must be of shape ({n}, {k}), got shape {outcomes.shape}.")
    if not np.isfinite(outcomes).all():
        raise ValueError("y contains NaN or infinity.")
    return outcomes


def _draws(
    distribution: Distribution | ArrayLike, y: ArrayLike, n_samples: int, random_state: Any
) -> tuple[Array, Array]:
    """Draws, (n, m, k), and outcomes, (n, k)."""
    if isinstance(distribution, Distribution):
        draws = distribution.sample(check_integer("n_samples", n_samples, 2), random_state)
        if draws.ndim == 2:  # of one target
            draws, y = draws[..., None], np.asarray(y, dtype=np.float64).reshape(-1, 1)
    else:
        draws = np.asarray(distribution, dtype=np.float64)
    if draws.ndim != 3 or draws.shape[1] < 2:
        raise ValueError(
            "Give a JointDistribution, or draws of shape (n, m, k) with at least two of each row; "
            f"got shape {draws.shape}."
        )
    return draws, _outcomes(y, len(draws), draws.shape[2])
