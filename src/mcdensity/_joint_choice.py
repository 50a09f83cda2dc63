"""How several targets are learned together: a chain in which order, the paper's pairs, or Bayes.

Some rows are fitted with little effort in each of the ways, and others judge them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import clone

from mcdensity._validation import as_generator
from mcdensity.chain import EstimatorLink, fit_steps
from mcdensity.contrasted import LEAST_DRAWS, JointContrast, fit_common_law
from mcdensity.distribution import JointDistribution
from mcdensity.distribution.tilted import TiltedDistribution
from mcdensity.likelihood import JointLikelihood, looks_simulated

__all__ = ["choose_way"]

Array = NDArray[np.float64]

# Rows of a trial, at least and at most, and the share of them that judge.
_LEAST_ROWS, _MOST_ROWS, _JUDGES = 200, 1200, 1 / 3
# Up to so many targets all orders are tried, beyond only that of the columns and its reverse.
_MOST_FOR_ALL = 3
# Beyond so many, few draws of the law of y alone are near the targets of a row.
_MOST_FOR_PAIRS = 4
# Standard errors by which another way must be better than a chain in the order of the columns.
_CLEARLY = 2.0
# Judges of the law of x given y, at least and at most, those times columns of x and y that take a
# tolerable time, and the draws that normalise it for each.
_FEW_JUDGES, _MORE_JUDGES, _WORK, _FEW_DRAWS = 64, 256, 1024, 64
# Nats by which that law must be better than all else, since its predictions take several times as
# long; and where the rows are not many more than those of the trial. With more rows a chain catches
# up. By 800 rows of the five simulators it gains 0.91 on slcp, 0.07 on two_moons (with 1000 pairs
# C2ST falls from 0.70 to 0.66, two seeds), and -0.09 to -0.05 on the others.
_LARGE, _SMALL = 0.2, 0.05
# The share of the draws that must count.
_LEAST_SHARE = 0.1


def choose_way(
    model: Any,
    X: Array,
    Y: Array,
    sample_weight: Array | None,
    settings: Sequence[dict[str, Any]],
) -> tuple[str, list[int], dict[tuple[int, ...] | str, float]]:
    """Choose by held-out likelihood.

    Parameters
    ----------
    model : MCD
    X, Y, sample_weight, settings
        As for `mcdensity.chain.fit_links`.

    Returns
    -------
    way : {"chain", "contrast", "likelihood"}
    order : list of int
    scores : dict of tuple or str to float
        Held-out log-likelihood of each order, and of "contrast" and "likelihood" where these were
        tried; empty where there are too few rows to choose by.
    """
    k = Y.shape[1]
    own = tuple(range(k))
    if len(X) < _LEAST_ROWS:
        return "chain", list(own), {}
    rng = as_generator(model.random_state)
    rows = rng.permutation(len(X))[:_MOST_ROWS]
    judges, rows = np.split(rows, [int(_JUDGES * len(rows))])
    weight = None if sample_weight is None else sample_weight[rows]
    share = np.ones(len(judges)) if sample_weight is None else sample_weight[judges]
    share = share / share.sum()
    quick = clone(model, safe=False).set_params(
        random_state=int(rng.integers(2**31 - 1)), effort="fast", verbose=False
    )
    # Links of the same target given the same others serve several orders.
    orders = list(permutations(own)) if k <= _MOST_FOR_ALL else [own, own[::-1]]
    chains = {o: [(j, tuple(sorted(o[:place]))) for place, j in enumerate(o)] for o in orders}
    steps = sorted({step for chain in chains.values() for step in chain})
    links = fit_steps(quick, X[rows], Y[rows], weight, steps, settings)
    found = {}
    for (j, before), link in zip(steps, links, strict=True):
        inputs = np.hstack([X[judges], Y[judges][:, list(before)]])
        found[j, before] = link.logpdf(inputs, Y[judges, j])
    values: dict[tuple[int, ...] | str, Array] = {
        o: np.sum([found[step] for step in chains[o]], axis=0) for o in orders
    }
    mixed = any(link.target_kind_ == "mixed" for link in links)
    if k <= _MOST_FOR_PAIRS and not mixed:
        law = _by_pairs(quick, X[rows], Y[rows], weight, settings, X[judges])
        if np.median(law.effective_draws()) >= LEAST_DRAWS:
            values["contrast"] = law.logpdf(Y[judges])
    scores = {way: float(share @ value) for way, value in values.items()}
    better = [way for way in values if _is_better(values[way] - values[own], share)]
    best = max(better, key=scores.__getitem__, default=own)
    order = own if isinstance(best, str) else best
    # Missing values may be in other rows than those of the trial.
    if not np.isnan(X).any() and looks_simulated(X[rows]) and not mixed:
        chain = [links[steps.index(step)] for step in chains[order]]
        some = judges[: np.clip(_WORK // (X.shape[1] + k), _FEW_JUDGES, _MORE_JUDGES)]
        least = _SMALL if len(X) <= 2 * _MOST_ROWS else _LARGE
        trial = quick, X[rows], Y[rows], weight, order, settings
        gain = _gain_by_bayes(trial, chain, X[some], Y[some])
        if gain is not None:
            gain += (values[order] - values[best])[: len(some)]
            part = share[: len(some)] / share[: len(some)].sum()
            scores["likelihood"] = scores[best] + float(part @ gain)
            if part @ gain > least and _is_better(gain, part):
                best = "likelihood"
    return (best if isinstance(best, str) else "chain"), list(order), scores


def _is_better(gain: Array, share: Array) -> bool:
    """Whether the mean of gains of rows is clearly above 0."""
    mean = share @ gain
    return bool(mean > _CLEARLY * np.sqrt(share**2 @ (gain - mean) ** 2))


def _by_pairs(
    model: Any,
    X: Array,
    Y: Array,
    weight: Array | None,
    settings: Sequence[dict[str, Any]],
    X_new: Array,
) -> TiltedDistribution:
    order = list(range(Y.shape[1]))
    links = fit_common_law(model, Y, weight, order, settings)
    ratio = JointContrast.of(model).fit(X, Y, weight, links, order)
    return ratio.law(X_new, links, order, [str(j) for j in order])


def _gain_by_bayes(
    trial: tuple[Any, ...], links: Sequence[Any], X: Array, Y: Array
) -> Array | None:
    """Gains over a chain, of each row, by pooling it with the law of x given y; None if there are
    no such laws, or too few draws count.
    """
    order = trial[4]
    try:
        bayes = JointLikelihood().fit(*trial)
    except ValueError:  # a column of x that is determined by another, or the like
        return None
    law = JointDistribution(
        [EstimatorLink(link) for link in links], X, order, [str(j) for j in order]
    )
    draws = law.sample(_FEW_DRAWS, 0)
    points = np.concatenate([Y[:, None], draws], axis=1)
    n, m, k = points.shape
    log_chain = law.logpdf(points).ravel()
    ratio = bayes.log_ratio(np.repeat(X, m, axis=0), points.reshape(n * m, k), log_chain)
    ratio = ratio.reshape(n, m)
    drawn = ratio[:, 1:]
    total = logsumexp(drawn, axis=1)
    count = np.exp(2 * total - logsumexp(2 * drawn, axis=1))
    if np.median(count) < _FEW_DRAWS * _LEAST_SHARE:
        return None
    return ratio[:, 0] - total + np.log(_FEW_DRAWS)
