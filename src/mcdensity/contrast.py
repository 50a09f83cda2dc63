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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcdensity._pairs import (
    Candidates,
    group_codes,
    identical_pairs,
    independent_pairs,
    mean_by_group,
    pair_weights,
)
from mcdensity._validation import as_generator, check_weights

__all__ = ["ContrastSet", "build_contrast", "stack_targets"]

_Kind = Literal["id", "iid"]


@dataclass(frozen=True)
class _Origin:
    """The observations a contrast set was built from, which `ContrastSet.split` needs again."""

    n_labeled: int
    kind: _Kind
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
    y_pool : ndarray of shape (n + n_y, k)
        The targets, then those of `y_marginal`; k is 1 where a row has one number as its target.
    x_index, y_index : ndarray of shape (N,)
        Pair j is ``x_pool[x_index[j]], y_pool[y_index[j]]``. Labelled row i is row i of both pools.
    label : ndarray of shape (N,)
        1 for a joint pair, 0 for a broken one.
    weight : ndarray of shape (N,) or None
        Weights of the pairs; None where all are equal.
    ratio : float
        The achieved share of joint pairs, as a ratio of weights.
    construction : int
        Which of the paper's constructions this is, 1 to 5.

    Examples
    --------
    >>> from mcdensity import build_contrast
    >>> pairs = build_contrast([[1.0], [2.0], [3.0]], [1.0, 2.0, 3.0], ratio=0.5, random_state=0)
    >>> pairs.label.sum(), (pairs.x_index == pairs.y_index).sum()  # joint pairs keep their row
    (np.int64(3), np.int64(3))
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
        """Return the pairs as one matrix of shape (N, p + k), the target in the last k columns.

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
            One entry per labelled row.
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
                self.y_pool[:n][rows],
                construction=origin.kind,
                ratio=origin.ratio,
                X_unlabeled=extra_x if len(extra_x) else None,
                y_marginal=extra_y if len(extra_y) else None,
                groups=None if origin.groups is None else origin.groups[rows],
                sample_weight=None if origin.row_weight is None else origin.row_weight[rows],
                random_state=random_state,
            )


def stack_targets(
    X: ArrayLike, Y: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Turn m targets per row into one target per row, for ``fit(X, y, groups=groups)``.

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
    y : array-like of shape (n,) or (n, k)
        The targets: one number per row, or a vector of k numbers.
    construction : {"auto", "id", "iid"}, default "id"
        Identically distributed pairs (many, "auto" is the same) or independent ones (few).
    ratio : float, default 0.05
        The share of joint pairs. Identically distributed pairs: all n joint pairs, and
        N = floor(n / ratio) pairs in all.
    X_unlabeled : array-like of shape (n_x, p), optional
        More x, of the same distribution, without a target.
    y_marginal : array-like of shape (n_y,) or (n_y, k), optional
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
    X, Y = _check_rows(X, y)
    kind = _check_options(construction, ratio, groups)
    kept, row_weight = check_weights(sample_weight, len(X))
    codes = None if groups is None else group_codes(groups, X)
    if kept is not None:
        X, Y = X[kept], Y[kept]
        codes = None if codes is None else np.unique(codes[kept], return_inverse=True)[1]
    n = len(X)
    if n < 2 or (codes is not None and codes.max() == 0):
        raise ValueError(
            "Rows of positive weight must hold at least 2 different observations (rows, or groups)."
        )
    x_pool = _with_extra(X, X_unlabeled, "X_unlabeled", "X")
    targets = None if y_marginal is None else _as_columns(y_marginal)
    y_pool = _with_extra(Y, targets, "y_marginal", "y")
    if np.isnan(y_pool).any():
        raise ValueError("y_marginal contains NaN; drop these values first.")
    origin = _Origin(n, kind, ratio, codes, row_weight)
    return _paired(x_pool, y_pool, origin, as_generator(random_state))


def _paired(
    x_pool: NDArray[np.float64],
    y_pool: NDArray[np.float64],
    origin: _Origin,
    rng: np.random.Generator,
) -> ContrastSet:
    """Draw the pairs of pools whose first rows belong together."""
    n, codes, row_weight = origin.n_labeled, origin.groups, origin.row_weight
    n_x, n_y = len(x_pool), len(y_pool)
    if origin.kind == "iid":
        number = 1 if n_x == n == n_y else 3
        pairs = independent_pairs(n, n_x, n_y, origin.ratio, rng)
        x_weight = row_weight
    else:
        number = 5 if codes is not None else 2 if n_x == n == n_y else 4
        candidates = Candidates.of(n, n_x, n_y, codes)
        pairs = identical_pairs(candidates, n, origin.ratio, rng)
        x_weight = mean_by_group(row_weight, codes) if candidates.one_per_group else row_weight
    label = pairs[2]
    weight, achieved = None, float(label.mean())
    if row_weight is not None and x_weight is not None:
        weight = pair_weights(pairs, (n_x, n_y), row_weight, x_weight)
        achieved = float(weight[label == 1].sum() / weight.sum())
    return ContrastSet(x_pool, y_pool, *pairs, weight, achieved, number, origin)


def _check_rows(X: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return X of shape (n, p) and the targets of shape (n, k)."""
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or y.ndim not in (1, 2) or len(y) != len(X) or y.size == 0:
        raise ValueError(
            "build_contrast needs X of shape (n, p) and y of shape (n,) or (n, k), got "
            f"{X.shape}, {y.shape}."
        )
    if len(X) < 2:
        raise ValueError(f"build_contrast needs at least 2 rows to break pairs, got {len(X)}.")
    if np.isnan(y).any():
        raise ValueError("y contains NaN; drop these rows first.")
    return X, _as_columns(y)


def _as_columns(y: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(y, dtype=np.float64)
    return values[:, None] if values.ndim == 1 else values


def _check_options(construction: str, ratio: float, groups: ArrayLike | None) -> _Kind:
    if construction not in ("auto", "id", "iid"):
        raise ValueError(f'construction must be "auto", "id" or "iid", got {construction!r}.')
    if not 0 < ratio < 1:
        raise ValueError(f"ratio must lie strictly between 0 and 1, got {ratio!r}.")
    if construction == "iid" and groups is not None:
        raise ValueError(
            'construction="iid" cannot use groups: several targets of one x are not independent. '
            'Use construction="id".'
        )
    return "iid" if construction == "iid" else "id"


def _with_extra(
    rows: NDArray[np.float64], extra: ArrayLike | None, name: str, of: str
) -> NDArray[np.float64]:
    """Append rows without a partner to a pool."""
    if extra is None:
        return rows
    more = np.asarray(extra, dtype=np.float64)
    if more.ndim != 2 or more.shape[1] != rows.shape[1]:
        columns = "column" if rows.shape[1] == 1 else "columns"
        raise ValueError(
            f"{name} must have the {rows.shape[1]} {columns} of {of}, got shape {more.shape}."
        )
    return np.concatenate([rows, more])
