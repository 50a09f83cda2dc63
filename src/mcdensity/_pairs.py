"""Which pairs a contrast set holds: drawing them by number, without listing all n² of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Candidates",
    "group_codes",
    "identical_pairs",
    "independent_pairs",
    "mean_by_group",
    "pair_weights",
    "sample_without_replacement",
]

# Pairs decoded at a time: their temporary arrays take some ten megabytes, whatever the size of the
# contrast set.
_DECODE_BLOCK = 1 << 20
_Rows = tuple[NDArray[np.intp], NDArray[np.intp]]
# Rows of the x-pool, rows of the y-pool, labels.
_Pairs = tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.int8]]


def group_codes(groups: ArrayLike, X: NDArray[np.float64]) -> NDArray[np.intp]:
    """Number the groups from 0 in order of value, and check that each has one x only."""
    groups = np.asarray(groups)
    if groups.shape != (len(X),):
        raise ValueError(f"groups must have one entry per row of X ({len(X)}), got {groups.shape}.")
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
            f"groups: the rows of group {bad} have different x. A group is one observation x "
            "with several targets; give rows of different x different groups."
        )
    return codes


@dataclass(frozen=True)
class Candidates:
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
    def of(cls, n: int, n_x: int, n_y: int, codes: NDArray[np.intp] | None) -> Candidates:
        """Give the candidates of n labelled rows, in pools of n_x and n_y rows."""
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


def identical_pairs(
    candidates: Candidates, n_joint: int, ratio: float, rng: np.random.Generator
) -> _Pairs:
    """Constructions 2, 4 and 5: all joint pairs, and broken pairs drawn without replacement."""
    population, decode = candidates.decoder()
    least = n_joint / (n_joint + population)
    if ratio < least:
        warnings.warn(
            f"ratio={ratio:g} asks for more broken pairs than the {population:,} that these data "
            f"have; the least possible ratio, {least:.4g}, is used.",
            UserWarning,
            stacklevel=4,  # the caller of build_contrast
        )
    # 1e-9: a quotient such as 3 / 0.3 is a whole number, but for its last bits.
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


def independent_pairs(n: int, n_x: int, n_y: int, ratio: float, rng: np.random.Generator) -> _Pairs:
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
    # A thousand failures happen only where both classes occur in less than one draw of a hundred,
    # and then almost always with a single pair of the rare class, as below.
    for _ in range(1000):
        label = (rng.random(size) < ratio).astype(np.int8)
        if 0 < label.sum() < size:
            return label
    # So extreme a ratio that the draws, given both classes, have one pair of the rare class.
    label = np.full(size, 1 if ratio > 0.5 else 0, dtype=np.int8)
    label[rng.integers(size)] ^= 1
    return label


def mean_by_group(
    weight: NDArray[np.float64] | None, codes: NDArray[np.intp] | None
) -> NDArray[np.float64] | None:
    """Give each row the mean weight of its group."""
    if weight is None or codes is None:
        return weight
    return (np.bincount(codes, weights=weight) / np.bincount(codes))[codes]


def pair_weights(
    pairs: _Pairs,
    pool_sizes: tuple[int, int],
    row_weight: NDArray[np.float64],
    x_weight: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Weigh joint pairs by their row and broken pairs by both marginals, each of mean 1."""
    x_index, y_index, label = pairs
    n = len(row_weight)
    of_x, of_y = (np.ones(size) for size in pool_sizes)
    of_x[:n], of_y[:n] = x_weight, row_weight
    joint = label == 1
    weight = of_x[x_index] * of_y[y_index]
    weight[joint] = row_weight[x_index[joint]]
    for part in (joint, ~joint):
        weight[part] /= weight[part].mean()
    return weight
