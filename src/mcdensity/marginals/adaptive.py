"""A mixture of kernel densities and of two simple laws, weighted by held-out likelihood."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import logsumexp

from mcdensity._folds import assign_folds
from mcdensity._mixing import best_weights
from mcdensity._validation import check_weights, weighted_quantile
from mcdensity.distribution.loglinear import LogLinear
from mcdensity.marginals.kde import KernelDensity

__all__ = ["AdaptiveDensity"]

Array = NDArray[np.float64]

# Bandwidths, in units of the normal reference, and the prior count, in rows, of each part. With a
# fifth of these counts the likelihoods of five targets of 300 rows were 0.002 better on average but
# for Protein (0.012), with five times as many up to 0.045 worse (benchmarks/constants.txt); for 100
# rows a prior must keep a few targets from choosing narrow kernels.
_FACTORS = (0.25, 0.5, 1.0, 2.0)
_PRIOR = np.array([0.25, 0.25, 1.0, 1.0, 2.0, 0.5])
_REFERENCE = 2
# With 2, 4 and 8 degrees of freedom JumpDiffusion had 2.631, 2.608 and 2.557, LinearStudentT 2.867,
# 2.874 and 2.872, the others the same to 0.01.
_DEGREES_OF_FREEDOM = 4.0
# With fewer targets weights cannot be learned.
_LEAST_TARGETS = 10
# Below so many targets all are held out once, in this many parts; else one part, a fifth or less.
# With 5, 20 and 50 parts the likelihoods were the same to 0.001, but for JumpDiffusion (0.009).
_MANY = 5000
_PARTS = 20


class AdaptiveDensity(KernelDensity):
    r"""Kernel densities, a normal one and a Student t, weighted by held-out likelihood.

    .. math:: \hat f(y) = \sum_k w_k \hat f_{h_k}(y) + w_N \, N(y; m, s) + w_t \, t_4(y)

    The kernel densities have a quarter, a half, one and two times the bandwidth of the normal
    reference. Each target is held out once, and the weights maximise the likelihood of the targets
    held out. A hundred targets from a smooth law are fitted better by the wide kernels and the
    simple laws; targets with sharp peaks by the narrow kernels; the Student t is for targets beyond
    those seen.

    Attributes
    ----------
    weights_ : dict
        Weight of each part.
    bandwidth_, n_effective_, gaps_
        See `KernelDensity`.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.marginals import AdaptiveDensity
    >>> y = np.random.default_rng(0).normal(size=1000)
    >>> density = AdaptiveDensity().fit(y)
    >>> max(density.weights_, key=density.weights_.get)
    'normal'
    """

    def __init__(self) -> None:
        super().__init__()

    def fit(self, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the density of y.

        Parameters
        ----------
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        """
        self.fit_held_out(y, sample_weight)
        return self

    def fit_held_out(self, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Array:
        """Learn the density of y; return the log-density of each target when it was held out.

        Where a target was not held out, as of very many, it is the density's own. Targets of weight
        0 are left out.
        """
        super().fit(y, sample_weight)
        y = np.asarray(y, dtype=np.float64).ravel()
        kept, weight = check_weights(sample_weight, len(y))
        y = y if kept is None else y[kept]
        weight = np.ones(len(y)) if weight is None else weight
        n = len(y)
        tied = len(np.unique(y)) < n / 2
        # Narrow kernels would form peaks at values that occur repeatedly.
        used = [k for k, f in enumerate(_FACTORS) if not (tied and f < 1)]
        used += [len(_FACTORS), len(_FACTORS) + 1]
        held = _held_out_parts(y, weight, used)
        rows = np.isfinite(held).all(axis=1)
        if rows.any():
            w = best_weights(held[rows], weight[rows], _PRIOR[used])
        else:
            w = np.zeros(len(used))
            w[used.index(_REFERENCE)], w[-1] = 1 - 1 / (n + 1), 1 / (n + 1)
        names = [*(f"kernel {f:g}" for f in _FACTORS), "normal", "student"]
        self.weights_ = dict(zip((names[k] for k in used), w.tolist(), strict=True))
        self._law = _mixed(_parts(y, weight, used), w)
        out = np.asarray(self.logpdf(y))
        out[rows] = logsumexp(held[rows], b=w, axis=1)
        return out


def _held_out_parts(y: Array, weight: Array, used: list[int]) -> Array:
    """Log-density of each target under parts that have not seen it, (n, parts); NaN elsewhere."""
    n = len(y)
    held = np.full((n, len(used)), np.nan)
    if n < _LEAST_TARGETS:
        return held
    # The folds are the same whatever the seed of the model: a marginal has none.
    part = assign_folds(n, _PARTS if n < _MANY else max(5, n // _MANY), 0)[0]
    for k in range(_PARTS if n < _MANY else 1):
        seen = part != k
        if np.ptp(y[seen]) > 0:
            laws = _parts(y[seen], weight[seen], used)
            held[~seen] = np.column_stack([law.logpdf(y[~seen]) for law in laws])
    return held


def _parts(y: Array, weight: Array, used: list[int]) -> list[Any]:
    """Fit the parts that are in use."""
    reference = KernelDensity().fit(y, weight)
    mean = np.average(y, weights=weight)
    n = reference.n_effective_
    spread = np.sqrt(np.average((y - mean) ** 2, weights=weight) * (n + 1) / max(n - 1, 1))
    low, middle, high = weighted_quantile(y, [0.25, 0.5, 0.75], weight)
    scale = (high - low) / (2 * stats.t.ppf(0.75, _DEGREES_OF_FREEDOM)) if high > low else spread
    out: list[Any] = []
    for k in used:
        if k == _REFERENCE:
            out.append(reference)
        elif k < len(_FACTORS):
            out.append(KernelDensity(reference.bandwidth_ * _FACTORS[k]).fit(y, weight))
        elif k == len(_FACTORS):
            out.append(stats.norm(mean, spread))
        else:
            out.append(stats.t(_DEGREES_OF_FREEDOM, middle, scale))
    return out


def _mixed(parts: list[Any], w: Array) -> LogLinear:
    """Put the mixture on the knots of all its parts."""
    level = np.geomspace(1e-14, 0.5, 300)
    points = [
        part._law.knots[0] if isinstance(part, KernelDensity) else
        np.concatenate([part.ppf(level), part.isf(level)])
        for part in parts
    ]  # fmt: skip
    knots = np.unique(np.concatenate(points))
    with np.errstate(divide="ignore"):
        terms = [np.log(v) + part.logpdf(knots) for v, part in zip(w, parts, strict=True)]
    return LogLinear(knots[None], np.logaddexp.reduce(terms, axis=0)[None])
