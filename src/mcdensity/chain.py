r"""Several targets as a chain: a model of the first given x, of the second given both, and so on.

.. math:: f(y_1, \dots, y_k \mid x) = \prod_j f(y_j \mid x, y_1, \dots, y_{j-1})

While fitting, the targets before a link are known: the links learn side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from mcdensity._parallel import in_parallel, worker_count
from mcdensity._validation import as_generator, as_numbers, column_number
from mcdensity.distribution import ConditionalDistribution
from mcdensity.experts.density.budget import LARGE, usual_steps

__all__ = [
    "EstimatorLink",
    "as_columns",
    "check_order",
    "check_targets",
    "fit_links",
    "fit_steps",
    "names_of",
    "number_of_targets",
    "settings_of",
]

Array = NDArray[np.float64]

# Beyond so many columns a chain is slow to fit and to draw from.
_MOST_TARGETS = 50
# From so many links on, those in the middle do not try all experts; the least weight that counts.
_LONG_CHAIN, _LEAST_WEIGHT = 4, 0.02
# Nats that all links together may be behind because their pools have fewer experts. Held-out rows
# are told by fewer networks of an ensemble than new ones are, so that what others add to it looks
# more than it is: with 0.03 in place of 0.01 the likelihood of 1000 pairs of two_moons and
# gaussian_mixture rose by 0.000 to 0.012 (six seeds).
_NEGLIGIBLE = 0.03
# Up to so many links, and from so many rows on, below 6000, it is tried whether networks gain by so
# many times the steps; the rows of that trial, and the standard errors by which they must gain. By
# 1000 pairs `mixture` gained 0.12 and 0.14 nats on two_moons, 0.18 and 0.21 on gaussian_mixture,
# 0.00 on a banana, and lost 0.13 on gaussian_linear and 0.35 on slcp (two seeds each).
_FEW_LINKS, _LEAST_ROWS, _LONGER = 3, 750, 4
_TRIAL_ROWS, _CLEARLY = 1200, 2.0
# Noise of the trial, one level: gains of three seeds were 4 to 9 standard errors on two_moons and
# gaussian_mixture, and at most 1.3 on a banana, a normal, a smooth law and slcp. With one network
# in place of five they were 0.6 to 6 and at most 3 (two seeds).
_TRIAL_NOISE = 0.02
# From so many rows on links are fitted in processes.
_MANY_ROWS = 500
# Columns that are this close to a line through each other differ by rounding.
_SAME = 1e-10


class EstimatorLink:
    """A fitted estimator of one target as a link of `JointDistribution`."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def _inputs(self, X: Array) -> Array:
        """What the estimator sees of x and the targets before."""
        return X

    def logpdf(self, X: Array, y: Array) -> Array:
        """Log-densities, (n,)."""
        return self.estimator.logpdf(self._inputs(X), y)

    def ppf(self, X: Array, q: Array) -> Array:
        """Quantiles of rows at q of shape (n, m)."""
        inner = self.estimator._check_predict(self._inputs(X))
        return np.concatenate(self.estimator._in_blocks(inner, lambda d, rows: d.ppf(q[rows])))

    def draw(self, X: Array, q: Array) -> tuple[Array, Array]:
        """Quantiles of rows at q of shape (n, m), and log-densities there."""
        inner = self.estimator._check_predict(self._inputs(X))

        def of_rows(law: ConditionalDistribution, rows: slice) -> tuple[Array, Array]:
            y = law.ppf(q[rows])
            return y, law.logpdf(y)

        y, value = zip(*self.estimator._in_blocks(inner, of_rows), strict=True)
        return np.concatenate(y), np.concatenate(value)

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of rows."""
        inner = self.estimator._check_predict(self._inputs(X))
        found = self.estimator._in_blocks(inner, lambda d, _: np.column_stack([d.mean(), d.std()]))
        mean, spread = np.concatenate(found).T
        return mean, spread

    def laws(self, X: Array) -> ConditionalDistribution:
        """The laws of rows."""
        return self.estimator.predict_distribution(self._inputs(X))


def number_of_targets(y: Any) -> int:
    """Return the number of columns of y, 1 for an array of one dimension."""
    shape = getattr(y, "shape", None)
    if shape is None and isinstance(y, list | tuple):
        try:
            shape = np.shape(y)
        except ValueError:  # lists of different lengths: the checks of one target say so
            shape = None
    return int(shape[1]) if shape is not None and len(shape) == 2 else 1


def names_of(y: Any) -> list[str]:
    """Names of the columns of a table, or "y0", "y1", ..."""
    columns = getattr(y, "columns", None)
    if columns is None:
        return [f"y{j}" for j in range(number_of_targets(y))]
    names = [str(column) for column in columns]
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"y has several columns named {double!r}; rename them.")
    return names


def as_columns(name: str, value: ArrayLike, k: int, n: int | None = None) -> Array:
    """Return numbers of shape (rows, k), or say what shape they must have."""
    array = np.asarray(value, dtype=np.float64)
    rows = "m" if n is None else n
    if array.ndim != 2 or array.shape[1] != k or (n is not None and len(array) != n):
        raise ValueError(
            f"{name} must be of shape ({rows}, {k}), with the {k} targets of the "
            f"model, got shape {array.shape}."
        )
    if len(array) == 0 or not np.isfinite(array).all():
        raise ValueError(f"{name} is empty, or contains NaN or infinity; give finite numbers.")
    return array


def check_targets(y: ArrayLike, names: Sequence[str]) -> Array:
    """Return targets of shape (n, k), or say what is wrong with which column."""
    Y = as_numbers("y", y)
    k = Y.shape[1]
    if k > _MOST_TARGETS:
        raise ValueError(
            f"y has {k} columns; at most {_MOST_TARGETS} targets are learned together, since each "
            "needs a model given all before it. Reduce them first, for example to principal "
            "components, or fit groups of columns."
        )
    for j, name in enumerate(names):
        bad = np.flatnonzero(~np.isfinite(Y[:, j]))
        if len(bad):
            raise ValueError(
                f"y contains NaN or infinity in column {name!r}, in {len(bad)} of {len(Y)} rows "
                f"(the first is row {bad[0]}). Drop these rows before fitting."
            )
        if len(Y) and Y[:, j].min() == Y[:, j].max():
            raise ValueError(
                f"The column {name!r} of y is constant (all {len(Y)} targets are {Y[0, j]:g}); it "
                "has no density. Leave it out."
            )
    if len(Y) > 2:
        centred = Y - Y.mean(axis=0)
        unit = centred / np.sqrt((centred**2).sum(axis=0))
        for j in range(k):
            for i in range(j):
                gap = unit[:, j] - np.sign(unit[:, i] @ unit[:, j]) * unit[:, i]
                if gap @ gap < _SAME**2 * len(Y):
                    raise ValueError(
                        f"The column {names[j]!r} of y is determined by {names[i]!r}: one is a "
                        "multiple of the other plus a constant, so that they have no joint "
                        "density. Leave one of them out, and compute it from the other."
                    )
    return Y


def check_order(joint: Any, names: Sequence[str]) -> list[int]:
    """Return the numbers of the targets in the order of the chain."""
    if isinstance(joint, str):
        return list(range(len(names)))
    order = [column_number(column, names) for column in joint]
    if sorted(order) != list(range(len(names))):
        raise ValueError(
            f"joint must name each target once, in the order of the chain; the targets are "
            f"{', '.join(names)}, got {list(joint)!r}."
        )
    return order


def settings_of(target: Any, support: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the kind and the support of each target; both may be given once for all."""
    kinds = list(target) if isinstance(target, list | tuple) else [target] * len(names)
    # One support is a pair of numbers or None; several are a sequence of such pairs and None.
    several = isinstance(support, list | tuple) and any(np.ndim(s) == 1 for s in support)
    supports = list(support) if several else [support] * len(names)
    for name, found in (("target", kinds), ("support", supports)):
        if len(found) != len(names):
            raise ValueError(
                f"{name} has {len(found)} entries; y has {len(names)} columns "
                f"({', '.join(names)}). Give one for each, or one for all."
            )
    return [{"target": a, "support": b} for a, b in zip(kinds, supports, strict=True)]


def fit_links(
    model: Any,
    X: Array,
    Y: Array,
    sample_weight: Array | None,
    order: Sequence[int],
    settings: Sequence[dict[str, Any]],
    **extra: Any,
) -> list[Any]:
    """Fit a model of each target given x and the targets before it.

    In a long chain the first and the last link try all experts of a portfolio, and the others those
    that these two have given a weight.

    Parameters
    ----------
    model : ConditionalEstimator
        Its parameters are those of the links.
    X, Y, sample_weight
        As for `MCD.fit`.
    order : sequence of int
        Numbers of the targets in the order of the chain.
    settings : sequence of dict
        Parameters of each target's own, such as its support.
    **extra
        For the fit of the first link, whose features are x alone.
    """
    steps = [(j, tuple(order[:place])) for place, j in enumerate(order)]
    if getattr(model, "discriminator", None) != "auto" or model.discriminator_params:
        return fit_steps(model, X, Y, sample_weight, steps, settings, **extra)
    # What each link may be behind adds up.
    options: dict[str, Any] = {"negligible": _NEGLIGIBLE / len(steps)}
    usual = model.effort != "fast" and model.time_budget is None
    if usual and len(steps) <= _FEW_LINKS and _LEAST_ROWS <= len(X) < LARGE:
        options |= _longer_training(model, X, Y, sample_weight, steps[-1], settings)
    each = [{"discriminator_params": options} | own for own in settings]
    if len(steps) < _LONG_CHAIN:
        return fit_steps(model, X, Y, sample_weight, steps, each, **extra)
    first, last = fit_steps(model, X, Y, sample_weight, [steps[0], steps[-1]], each, **extra)
    names = _useful_experts([first, last])
    options = options | ({"portfolio": names} if names else {})
    seeds = np.random.default_rng(first.random_state).integers(2**31 - 1, size=len(settings))
    each = [
        {"discriminator_params": options, "random_state": int(seed)} | own
        for seed, own in zip(seeds, settings, strict=True)
    ]
    between = fit_steps(model, X, Y, sample_weight, steps[1:-1], each)
    return [first, *between, last]


def _longer_training(
    model: Any,
    X: Array,
    Y: Array,
    sample_weight: Array | None,
    step: tuple[int, tuple[int, ...]],
    settings: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Options of a portfolio whose networks train longer, where held-out rows gain by that.

    A target may be nearly determined by x and the others, and sharp laws take long to learn. The
    last link, which is given all others, tells.
    """
    (j, before), found = step, []
    share = np.ones(len(X)) if sample_weight is None else sample_weight
    rng, rows = as_generator(model.random_state), np.flatnonzero(share)
    if len(rows) < _LEAST_ROWS or len(np.unique(Y[rows, j])) < len(rows) / 2:
        return {}  # masses at few values are not sharp
    rows = rng.permutation(rows)[:_TRIAL_ROWS]
    judges, rows = np.split(rows, [len(rows) // 3])
    usual = usual_steps("mixture", len(rows), 1.0)
    trial = clone(model, safe=False).set_params(
        discriminator="mixture", random_state=int(rng.integers(2**31 - 1))
    )
    for factor in (_LONGER, 1):
        options = {"noise": _TRIAL_NOISE, "steps": factor * usual}
        trial.set_params(discriminator_params=options)
        [link] = fit_steps(trial, X[rows], Y[rows], share[rows], [step], settings)
        inputs = np.hstack([X[judges], Y[judges][:, list(before)]])
        found.append(link.logpdf(inputs, Y[judges, j]))
    usable = np.isfinite(found).all(axis=0)  # a bound may have been learned too tight
    gain, share = np.subtract(*found)[usable], share[judges][usable]
    mean = share @ gain / share.sum()
    error = np.sqrt(share**2 @ (gain - mean) ** 2) / share.sum()
    return {"steps": float(_LONGER)} if mean > _CLEARLY * error else {}


def _useful_experts(links: Sequence[Any]) -> list[str]:
    """Experts of portfolios that have a weight in some link, and those that they learn from."""
    from mcdensity.experts.registry import get_expert

    weights = [getattr(link, "weights_", {}) for link in links]
    if not all(weights):  # a mixed target, whose parts have weights of their own
        return []
    names = {n for found in weights for n, w in found.items() if w > _LEAST_WEIGHT} - {"marginal"}
    teachers = [get_expert(name).learns_from for name in names]
    return sorted(names | {name for name in teachers if name is not None})


def fit_steps(
    model: Any,
    X: Array,
    Y: Array,
    sample_weight: Array | None,
    steps: Sequence[tuple[int, tuple[int, ...]]],
    settings: Sequence[dict[str, Any]],
    **extra: Any,
) -> list[Any]:
    """Fit models of targets, each given x and some others: `steps` has their numbers."""
    rng = as_generator(getattr(model, "random_state", None))
    seeds = rng.integers(2**31 - 1, size=len(steps)).tolist()
    parameters = model.get_params(deep=False)
    budget = parameters.get("time_budget")
    workers = worker_count(parameters.get("n_jobs", 1)) if budget is None else 1
    if not _is_known_everywhere(model):
        workers = 1
    own: dict[str, Any] = {"joint": "auto", "n_jobs": max(1, workers // len(steps))}
    if workers == 1:
        own.pop("n_jobs")
    if budget is not None:
        own["time_budget"] = budget / len(steps)
    links = []
    for (j, before), seed in zip(steps, seeds, strict=True):
        mine = own | {"random_state": seed} | settings[j]
        known = {name: value for name, value in mine.items() if name in parameters}
        links.append((j, before, clone(model, safe=False).set_params(**known)))
    fit = partial(_fit_link, X, Y, sample_weight, extra)
    return in_parallel(fit, links, workers, processes=len(X) >= _MANY_ROWS and workers > 1)


def _is_known_everywhere(model: Any) -> bool:
    """Whether other processes know all parts of a model: none is the user's own."""
    from mcdensity.experts.registry import get_expert, portfolio_names

    discriminator = getattr(model, "discriminator", "auto")
    if not isinstance(discriminator, str) or not type(model).__module__.startswith("mcdensity."):
        return False
    names = portfolio_names() if discriminator == "auto" else [discriminator]
    try:
        return all(type(get_expert(n)).__module__.startswith("mcdensity.") for n in names)
    except (ImportError, TypeError, ValueError):
        return True  # fit will report the problem


def _fit_link(
    X: Array,
    Y: Array,
    sample_weight: Array | None,
    extra: dict[str, Any],
    step: tuple[int, tuple[int, ...], Any],
) -> Any:
    j, before, link = step
    inputs = np.hstack([X, Y[:, list(before)]])
    return link.fit(inputs, Y[:, j], sample_weight, **({} if before else extra))
