"""Constructions 1 to 5: from data to labelled pairs (x, y, z).

A *joint* pair (z = 1) holds an x and a y that were observed together; a *broken* pair (z = 0)
holds an x and a y that were not. All five constructions of the paper are the same thing seen as
indices: a pair is a row i of a pool of x, a row j of a pool of y, and a label. The n² possible
pairs are never in memory.

References
----------
Meziani, Ndiaye, Riu: Marginal Contrastive Discrimination, section "Contrast datasets
construction" and its proofs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity._validation import as_generator, check_weights

__all__ = ["ContrastSet", "build_contrast", "stack_targets"]

_DECODE_BLOCK = 1 << 20
_Rows = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True)
class _Origin:
    """The observations a contrast set was built from, which `ContrastSet.split` needs again."""

    n_labeled: int
    kind: Literal["id", "iid"]
    ratio: float
    groups: NDArray[np.intp] | None
    row_weight: NDArray[np.float64] | None


@dataclass(frozen=True)
class ContrastSet:
    """Labelled pairs, kept as indices into a pool of x and a pool of y.

    Parameters
    ----------
    x_pool : ndarray of shape (n + n_x, p)
        The rows of X, then those of `X_unlabeled`.
    y_pool : ndarray of shape (n + n_y, 1)
        The targets, then those of `y_marginal`.
    x_index, y_index : ndarray of shape (N,)
        Pair k is ``x_pool[x_index[k]], y_pool[y_index[k]]``. Labelled row i is row i of both pools.
    label : ndarray of shape (N,)
        1 for a joint pair, 0 for a broken one.
    weight : ndarray of shape (N,) or None
        Weights of the pairs; None where all are equal.
    ratio : float
        The achieved share of joint pairs, as a ratio of weights.
    construction : int
        Which of the paper's constructions this is, 1 to 5.
    """

    x_pool: NDArray[np.float64]
    y_pool: NDArray[np.float64]
    x_index: NDArray[np.integer]
    y_index: NDArray[np.integer]
    label: NDArray[np.int8]
    weight: NDArray[np.float64] | None
    ratio: float
    construction: int = 0
    origin: _Origin | None = None

    def __len__(self) -> int:
        return len(self.label)

    @property
    def n_observations(self) -> int:
        """Number of different observations x that have a target: rows, or groups of them."""
        if self.origin is None:
            return 0
        return (
            self.origin.n_labeled
            if self.origin.groups is None
            else int(self.origin.groups.max()) + 1
        )

    def __repr__(self) -> str:
        return (
            f"ContrastSet(construction {self.construction}: {len(self):,} pairs, "
            f"{int(self.label.sum()):,} of them joint, ratio {self.ratio:.4g})"
        )

    def materialize(self, pairs: slice | NDArray[np.integer] = slice(None)) -> NDArray[np.float64]:
        """Return the pairs as one matrix of shape (N, p + 1), the target in the last column.

        Parameters
        ----------
        pairs : slice or ndarray of int, default all
            Which pairs.
        """
        x, y = self.x_index[pairs], self.y_index[pairs]
        p = self.x_pool.shape[1]
        matrix = np.empty((len(x), p + self.y_pool.shape[1]), dtype=self.x_pool.dtype)
        matrix[:, :p] = self.x_pool[x]
        matrix[:, p:] = self.y_pool[y]
        return matrix

    def batches(
        self, batch_size: int, *, shuffle: bool = True, random_state: Any = None
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.float64] | None]]:
        """Yield ``(pairs, label, weight)`` in batches: each pair once, never all in memory.

        Parameters
        ----------
        batch_size : int
            Pairs in a batch; the last one may be smaller.
        shuffle : bool, default True
            Whether to draw a new order.
        random_state : int, Generator, RandomState or None
            Where the order comes from.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        n = len(self)
        order = as_generator(random_state).permutation(n) if shuffle else np.arange(n)
        for start in range(0, n, batch_size):
            chosen = order[start : start + batch_size]
            weight = None if self.weight is None else self.weight[chosen]
            yield self.materialize(chosen), self.label[chosen], weight

    def split(self, test_size: float, random_state: Any = None) -> tuple[ContrastSet, ContrastSet]:
        """Split the *observations* and pair each part anew, so that no row is on both sides.

        A random split of pairs would put the same x, and the same y, on both sides: a learner
        that remembers rows would look good on such a validation set.

        Parameters
        ----------
        test_size : float
            Share of the observations (of the groups, if there are any) in the second part.
        random_state : int, Generator, RandomState or None
            Where the split and the new pairs come from.

        Returns
        -------
        train, test : ContrastSet
        """
        if self.origin is None:
            raise ValueError("Only a ContrastSet that build_contrast made can be split by row.")
        if not 0 < test_size < 1:
            raise ValueError(f"test_size must lie between 0 and 1, got {test_size}.")
        rng, origin = as_generator(random_state), self.origin
        n = origin.n_labeled
        unit = np.arange(n) if origin.groups is None else origin.groups
        n_units = self.n_observations
        order = rng.permutation(n_units)
        least = 2 if origin.kind == "id" else 4  # independent pairs take two rows each
        n_test = min(max(least, round(test_size * n_units)), n_units - least)
        if n_test < least:
            raise ValueError(
                f"{n_units} observations cannot be split in two parts of at least {least}; "
                "give more rows, or do without a validation split."
            )
        in_test = np.isin(unit, order[:n_test])
        extra_x, extra_y = self.x_pool[n:], self.y_pool[n:]
        x_test = rng.random(len(extra_x)) < test_size
        y_test = rng.random(len(extra_y)) < test_size
        return (
            self.part(~in_test, rng, extra_x[~x_test], extra_y[~y_test]),
            self.part(in_test, rng, extra_x[x_test], extra_y[y_test]),
        )

    def part(
        self,
        rows: NDArray[np.bool_],
        random_state: Any = None,
        extra_x: NDArray[np.float64] | None = None,
        extra_y: NDArray[np.float64] | None = None,
    ) -> ContrastSet:
        """Pair some of the labelled rows anew.

        Parameters
        ----------
        rows : ndarray of bool
            One a labelled row.
        random_state : int, Generator, RandomState or None
            Where the new pairs come from.
        extra_x, extra_y : ndarray, optional
            Rows of the pools without a target, and targets without an x; by default all.
        """
        if self.origin is None:
            raise ValueError("Only a ContrastSet that build_contrast made can be split by row.")
        origin, n = self.origin, self.origin.n_labeled
        extra_x = self.x_pool[n:] if extra_x is None else extra_x
        extra_y = self.y_pool[n:] if extra_y is None else extra_y
        with warnings.catch_warnings():
            # A part of the rows allows fewer pairs; the user has been told of the whole.
            warnings.filterwarnings("ignore", message="ratio", category=UserWarning)
            return build_contrast(
                self.x_pool[:n][rows],
                self.y_pool[:n][rows, 0],
                construction=origin.kind,
                ratio=origin.ratio,
                X_unlabeled=extra_x if len(extra_x) else None,
                y_marginal=extra_y[:, 0] if len(extra_y) else None,
                groups=None if origin.groups is None else origin.groups[rows],
                sample_weight=None if origin.row_weight is None else origin.row_weight[rows],
                random_state=random_state,
            )


def stack_targets(
    X: ArrayLike, Y: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Turn m targets a row into one target a row, for ``fit(X, y, groups=groups)``.

    Parameters
    ----------
    X : array-like of shape (n, p)
    Y : array-like of shape (n, m)
        The targets of each row; NaN where a row has fewer.

    Returns
    -------
    X : ndarray of shape (k, p)
    y : ndarray of shape (k,)
    groups : ndarray of shape (k,)
        The row of the input that each row of the output came from.

    Examples
    --------
    >>> from mcdensity import stack_targets
    >>> X, y, groups = stack_targets([[0.0], [1.0]], [[1.0, 2.0], [3.0, float("nan")]])
    >>> y, groups
    (array([1., 2., 3.]), array([0, 0, 1]))
    """
    X, Y = np.asarray(X), np.asarray(Y, dtype=np.float64)
    if Y.ndim != 2 or X.ndim != 2 or len(X) != len(Y):
        raise ValueError(
            "stack_targets needs X of shape (n, p) and Y of shape (n, m) with the same n; "
            f"got {X.shape} and {Y.shape}."
        )
    groups, column = np.nonzero(~np.isnan(Y))
    return X[groups], Y[groups, column], groups


def build_contrast(
    X: ArrayLike,
    y: ArrayLike,
    *,
    construction: str = "id",
    ratio: float = 0.05,
    X_unlabeled: ArrayLike | None = None,
    y_marginal: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
) -> ContrastSet:
    """Build the contrast set of the given data.

    ===================  ==============  ==============
    data                 ``"iid"``       ``"id"``
    ===================  ==============  ==============
    X, y                 Construction 1  Construction 2
    with extra x or y    Construction 3  Construction 4
    several y for one x  none            Construction 5
    ===================  ==============  ==============

    Parameters
    ----------
    X : array-like of shape (n, p)
    y : array-like of shape (n,)
    construction : {"auto", "id", "iid"}, default "id"
        Identically distributed pairs (many, "auto" is the same) or independent ones (few).
    ratio : float, default 0.05
        The share of joint pairs. Identically distributed pairs: all n joint pairs, and
        N = floor(n / ratio) pairs in all.
    X_unlabeled : array-like of shape (n_x, p), optional
        More x, of the same distribution, without a target.
    y_marginal : array-like of shape (n_y,), optional
        More y, of the same distribution, without an x.
    groups : array-like of shape (n,), optional
        Rows with the same value share one observation x, and their targets are several draws of y
        given that x.
    sample_weight : array-like of shape (n,), optional
        Weights of the rows. A joint pair has the weight of its row, a broken pair the product of
        the two. Rows of weight 0 are dropped first. A weight of k differs from k copies of the row
        in that a row is never paired with itself: by about the share of the largest weight.
    random_state : int, Generator, RandomState or None
        Where the draws come from.

    Returns
    -------
    ContrastSet

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity import build_contrast
    >>> rng = np.random.default_rng(0)
    >>> build_contrast(rng.normal(size=(100, 3)), rng.normal(size=100), ratio=0.15)
    ContrastSet(construction 2: 666 pairs, 100 of them joint, ratio 0.1502)
    """
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or y.shape != (len(X),):
        raise ValueError(
            f"build_contrast needs X of shape (n, p) and y of shape (n,), got {X.shape}, {y.shape}."
        )
    if len(X) < 2:
        raise ValueError(f"build_contrast needs at least 2 rows to break pairs, got {len(X)}.")
    if np.isnan(y).any():
        raise ValueError("y contains NaN; drop these rows first.")
    if construction not in ("auto", "id", "iid"):
        raise ValueError(f'construction must be "auto", "id" or "iid", got {construction!r}.')
    if not 0 < ratio < 1:
        raise ValueError(f"ratio must lie strictly between 0 and 1, got {ratio!r}.")
    kind: Literal["id", "iid"] = "iid" if construction == "iid" else "id"
    if kind == "iid" and groups is not None:
        raise ValueError(
            'construction="iid" cannot use groups: several targets of one x are not independent. '
            'Use construction="id".'
        )

    kept, row_weight = check_weights(sample_weight, len(X))
    codes = None if groups is None else group_codes(groups, X)
    if kept is not None:
        X, y = X[kept], y[kept]
        codes = None if codes is None else np.unique(codes[kept], return_inverse=True)[1]
    n = len(X)
    if n < 2 or (codes is not None and codes.max() == 0):
        raise ValueError(
            "Rows of positive weight must hold at least 2 different observations (rows, or groups)."
        )
    x_pool, y_pool = X, y[:, None]
    if X_unlabeled is not None:
        extra = np.asarray(X_unlabeled, dtype=np.float64)
        if extra.ndim != 2 or extra.shape[1] != X.shape[1]:
            raise ValueError(
                f"X_unlabeled must have the {X.shape[1]} columns of X, got shape {extra.shape}."
            )
        x_pool = np.concatenate([X, extra])
    if y_marginal is not None:
        y_pool = np.concatenate([y_pool, np.asarray(y_marginal, dtype=np.float64).reshape(-1, 1)])

    rng = as_generator(random_state)
    if kind == "iid":
        number = 1 if len(x_pool) == n == len(y_pool) else 3
        x_index, y_index, label = _independent_pairs(n, len(x_pool), len(y_pool), ratio, rng)
        x_weight = row_weight
    else:
        number = 5 if codes is not None else 2 if len(x_pool) == n == len(y_pool) else 4
        candidates = _Candidates.of(n, len(x_pool), len(y_pool), codes)
        x_index, y_index, label = _identical_pairs(candidates, n, ratio, rng)
        x_weight = _mean_by_group(row_weight, codes) if candidates.one_per_group else row_weight

    contrast = ContrastSet(
        x_pool=x_pool,
        y_pool=y_pool,
        x_index=x_index,
        y_index=y_index,
        label=label,
        weight=None,
        ratio=float(label.mean()),
        construction=number,
        origin=_Origin(n, kind, ratio, codes, row_weight),
    )
    if row_weight is None or x_weight is None:
        return contrast
    weight = _pair_weights(contrast, row_weight, x_weight)
    return replace(contrast, weight=weight, ratio=float(weight[label == 1].sum() / weight.sum()))


def group_codes(groups: ArrayLike, X: NDArray[np.float64]) -> NDArray[np.intp]:
    """Number the groups from 0 in order of value, and check that each has one x only."""
    groups = np.asarray(groups)
    if groups.shape != (len(X),):
        raise ValueError(f"groups must have one entry a row of X ({len(X)}), got {groups.shape}.")
    try:
        _, first, codes = np.unique(groups, return_index=True, return_inverse=True)
    except TypeError as error:
        raise TypeError(
            f"groups must hold values of one kind, without missing ones: {error}"
        ) from error
    common = X[first[codes]]
    same = (common == X) | (np.isnan(common) & np.isnan(X))
    if not same.all():
        bad = groups[int(np.argmin(same.all(axis=1)))]
        raise ValueError(
            f"groups: the rows of group {bad!r} have different x. A group is one observation x "
            "with several targets; give rows of different x different groups."
        )
    return codes


@dataclass(frozen=True)
class _Candidates:
    """The set of all broken pairs, without listing it.

    Candidate a is the row ``x_rows[a]`` of the x-pool. It may be paired with every row
    ``y_rows[k]`` of the y-pool except those with ``start[a] <= k < stop[a]``, which were observed
    with that x.
    """

    x_rows: NDArray[np.intp]
    y_rows: NDArray[np.intp]
    start: NDArray[np.intp]
    stop: NDArray[np.intp]
    one_per_group: bool

    @classmethod
    def of(cls, n: int, n_x: int, n_y: int, codes: NDArray[np.intp] | None) -> _Candidates:
        if codes is None:
            x_rows, y_rows = np.arange(n_x), np.arange(n_y)
            start = np.minimum(x_rows, n)
            return cls(x_rows, y_rows, start, np.minimum(x_rows + 1, n), False)
        order = np.argsort(codes, kind="stable")
        sizes = np.bincount(codes)
        ends = np.cumsum(sizes)
        # Groups of one size: each x once. Otherwise each x as often as it has targets, or the x
        # of broken pairs would be distributed otherwise than the x of joint pairs.
        equal = bool((sizes == sizes[0]).all())
        labeled = order[ends - sizes] if equal else order
        group = codes[labeled]
        extra_x, extra_y = np.arange(n, n_x), np.arange(n, n_y)
        none = np.zeros(len(extra_x), dtype=np.intp)
        return cls(
            np.concatenate([labeled, extra_x]),
            np.concatenate([order, extra_y]),
            np.concatenate([(ends - sizes)[group], none]),
            np.concatenate([ends[group], none]),
            equal,
        )

    def decoder(self) -> tuple[int, Callable[[NDArray[np.int64]], _Rows]]:
        """Count the broken pairs, and give the function from their numbers to pool rows."""
        excluded = self.stop - self.start
        offsets = np.concatenate([[0], np.cumsum(len(self.y_rows) - excluded)])
        length = offsets[1]
        irregular = np.flatnonzero(np.diff(offsets) != length)
        n_regular = irregular[0] if len(irregular) else len(self.x_rows)

        def decode(code: NDArray[np.int64]) -> _Rows:
            # Among the first candidates, which all allow equally many targets, a division finds
            # the candidate; behind them it takes a binary search.
            a = code // length
            search = a >= n_regular
            if search.any():
                a[search] = np.searchsorted(offsets, code[search], side="right") - 1
            k = code - offsets[a]
            k += np.where(k >= self.start[a], excluded[a], 0)
            return self.x_rows[a], self.y_rows[k]

        return int(offsets[-1]), decode


def _identical_pairs(
    candidates: _Candidates, n_joint: int, ratio: float, rng: np.random.Generator
) -> tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.int8]]:
    """Constructions 2, 4 and 5: all joint pairs, and broken pairs drawn without replacement."""
    population, decode = candidates.decoder()
    least = n_joint / (n_joint + population)
    if ratio < least:
        warnings.warn(
            f"ratio={ratio:g} asks for more broken pairs than the {population:,} that these data "
            f"have; the least possible ratio, {least:.4g}, is used.",
            UserWarning,
            stacklevel=3,
        )
    n_broken = min(int(np.floor(n_joint / ratio + 1e-9)) - n_joint, population)
    if n_broken < 1:
        raise ValueError(
            f"ratio={ratio:g} leaves no broken pair beside {n_joint} joint pairs; use at most "
            f"{n_joint / (n_joint + 1):.4g}."
        )
    code = np.concatenate(
        [
            sample_without_replacement(population, n_broken, rng),
            np.arange(population, population + n_joint),
        ]
    )
    # The order is part of the theorem: pair k is joint with probability r, for every k.
    rng.shuffle(code)

    rows = max(len(candidates.x_rows), len(candidates.y_rows))
    dtype: np.dtype[np.signedinteger] = np.dtype(np.int32 if rows < 2**31 else np.int64)
    x_index, y_index = np.empty(len(code), dtype), np.empty(len(code), dtype)
    label = (code >= population).astype(np.int8)
    for start in range(0, len(code), _DECODE_BLOCK):
        block = slice(start, start + _DECODE_BLOCK)
        joint = label[block] == 1
        x, y = decode(np.where(joint, 0, code[block]))
        row = code[block] - population
        x_index[block] = np.where(joint, row, x)
        y_index[block] = np.where(joint, row, y)
    return x_index, y_index, label


def sample_without_replacement(
    population: int, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw a uniform subset of ``range(population)``, sorted, with memory in proportion to `size`.

    Draws with replacement are kept where new, and what is missing is drawn again. Renumbering the
    population does not change the law of the result, so every subset of that size is equally
    likely. (``Generator.choice`` would fill an array of the whole population once `size` exceeds
    a twentieth of it.)
    """
    if 2 * size > population:
        keep = np.ones(population, dtype=bool)
        keep[sample_without_replacement(population, population - size, rng)] = False
        return np.flatnonzero(keep)
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < size:
        more = np.sort(rng.integers(population, size=size - len(chosen)))
        # A stable sort merges two sorted runs in linear time.
        chosen = np.sort(np.concatenate([chosen, more]), kind="stable")
        chosen = chosen[np.concatenate([[True], chosen[1:] != chosen[:-1]])]
    return chosen


def _independent_pairs(
    n: int, n_x: int, n_y: int, ratio: float, rng: np.random.Generator
) -> tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.int8]]:
    """Constructions 1 and 3: each row is used in one pair only.

    Rows of X that have an extra x to break them come first, then those that have an extra y, then
    those that must lend each other a target.
    """
    by_x = min(n, n_x - n)
    by_y = min(n_y - n, n - by_x)
    by_row = (n - by_x - by_y) // 2
    total = by_x + by_y + by_row
    if total < 2:
        raise ValueError(
            f'construction="iid" makes only {total} pair of {n} rows; give more rows or use '
            'construction="id".'
        )
    rows: NDArray[np.intp] = rng.permutation(n)  # data files are often sorted
    own, lender = rows[:total], rows[total : total + by_row]
    extra_x = n + rng.permutation(n_x - n)[:by_x]
    extra_y = n + rng.permutation(n_y - n)[:by_y]
    broken_x = np.concatenate([extra_x, own[by_x:]])
    broken_y = np.concatenate([own[:by_x], extra_y, lender])
    label = _bernoulli_labels(total, ratio, rng)
    joint = label == 1
    x_index = np.where(joint, own, broken_x).astype(np.intp)
    y_index = np.where(joint, own, broken_y).astype(np.intp)
    return x_index, y_index, label


def _bernoulli_labels(size: int, ratio: float, rng: np.random.Generator) -> NDArray[np.int8]:
    """Draw labels until both classes occur."""
    for _ in range(1000):
        label = (rng.random(size) < ratio).astype(np.int8)
        if 0 < label.sum() < size:
            return label
    # So extreme a ratio that the draws, given both classes, have one pair of the rare class.
    label = np.full(size, 1 if ratio > 0.5 else 0, dtype=np.int8)
    label[rng.integers(size)] ^= 1
    return label


def _mean_by_group(
    weight: NDArray[np.float64] | None, codes: NDArray[np.intp] | None
) -> NDArray[np.float64] | None:
    if weight is None or codes is None:
        return weight
    return (np.bincount(codes, weights=weight) / np.bincount(codes))[codes]


def _pair_weights(
    contrast: ContrastSet, row_weight: NDArray[np.float64], x_weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weigh joint pairs by their row and broken pairs by both marginals, each of mean 1."""
    n = len(row_weight)
    of_x, of_y = np.ones(len(contrast.x_pool)), np.ones(len(contrast.y_pool))
    of_x[:n], of_y[:n] = x_weight, row_weight
    joint = contrast.label == 1
    weight = of_x[contrast.x_index] * of_y[contrast.y_index]
    weight[joint] = row_weight[contrast.x_index[joint]]
    for part in (joint, ~joint):
        weight[part] /= weight[part].mean()
    return weight
