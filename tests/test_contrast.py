"""Constructions 1 to 5: sizes, uniformity, weights."""

import csv
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from mcdensity import build_contrast, stack_targets
from mcdensity._pairs import sample_without_replacement


def data(n=100, p=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)), rng.normal(size=n)


def broken(contrast):
    chosen = contrast.label == 0
    return contrast.x_index[chosen], contrast.y_index[chosen]


# The N of the paper's tables, by the theorems: (construction, ratio, n, n_x, n_y, m, N).
PAPER_SIZES = [
    *(("iid", r, 100, 0, 0, 1, 50) for r in (0.05, 0.15, 0.5, 0.85)),
    ("id", 0.01, 100, 0, 0, 1, 10_000),
    ("id", 0.015, 100, 0, 0, 1, 6666),
    ("id", 0.05, 100, 0, 0, 1, 2000),
    ("id", 0.15, 100, 0, 0, 1, 666),
    ("id", 0.5, 100, 0, 0, 1, 200),
    ("iid", 0.5, 100, 100, 0, 1, 100),
    ("iid", 0.5, 100, 0, 100, 1, 100),
    ("iid", 0.5, 100, 25, 25, 1, 75),
    ("id", 0.05, 100, 500, 0, 1, 2000),
    ("id", 0.05, 100, 0, 500, 1, 2000),
    ("id", 0.05, 100, 150, 150, 1, 2000),
    *(("id", r, 100, 0, 0, m, size) for m, r, size in (
        (1, 0.5, 200), (1, 0.15, 666), (1, 0.05, 2000),
        (2, 0.5, 400), (2, 0.15, 1333), (2, 0.05, 4000),
        (10, 0.5, 2000), (10, 0.15, 6666), (10, 0.05, 20_000),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("construction", "ratio", "n", "n_x", "n_y", "m", "size"), PAPER_SIZES)
def test_sizes_of_the_paper(construction, ratio, n, n_x, n_y, m, size):
    X, _ = data(n)
    X, y, groups = stack_targets(X, np.random.default_rng(1).normal(size=(n, m)))
    contrast = build_contrast(
        X,
        y,
        construction=construction,
        ratio=ratio,
        X_unlabeled=np.zeros((n_x, 2)) if n_x else None,
        y_marginal=np.zeros(n_y) if n_y else None,
        groups=groups if m > 1 else None,
        random_state=0,
    )
    assert len(contrast) == size
    assert contrast.ratio == contrast.label.mean()
    if construction == "id":
        assert contrast.label.sum() == n * m
    assert 0 < contrast.ratio < 1


def test_sizes_agree_with_the_paper_files():
    """Where the paper's tables are at hand, the list above is all of them."""
    folder = Path(os.environ.get("MCDENSITY_DATA", "")) / "../paper/tables"
    if not (folder / "ratio_kl.csv").exists():
        pytest.skip("the paper's tables are not beside MCDENSITY_DATA")
    sizes = []
    for name in ("ratio_kl", "marginal_data_kl", "multi_target_kl"):
        with open(folder / f"{name}.csv") as file:
            sizes += [int(row["N"]) for row in csv.DictReader(file)]
    # Two rows of marginal_data_kl repeat rows of ratio_kl.
    assert sorted(sizes) == sorted([*(row[-1] for row in PAPER_SIZES), 50, 2000])


def test_which_construction():
    X, y = data(10)
    more = {"X_unlabeled": X}
    numbers = [
        build_contrast(X, y, construction=kind, ratio=0.5, random_state=0, **extra).construction
        for kind, extra in (
            ("iid", {}),
            ("id", {}),
            ("iid", more),
            ("id", more),
            ("id", {"groups": np.arange(10)}),
        )
    ]
    assert numbers == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("ratio", [0.011, 0.05, 0.3])
def test_id_pairs_are_joint_or_broken_and_occur_once(ratio):
    X, y = data()
    contrast = build_contrast(X, y, ratio=ratio, random_state=0)
    joint = contrast.label == 1
    assert sorted(contrast.x_index[joint]) == list(range(100))
    np.testing.assert_array_equal(contrast.x_index[joint], contrast.y_index[joint])
    x, y = broken(contrast)
    assert (x != y).all()
    assert len(set(zip(x, y, strict=True))) == len(x)


def test_extra_data_pairs_occur_once_and_use_all_pools():
    X, y = data()
    contrast = build_contrast(
        X, y, ratio=0.01, X_unlabeled=X[:30], y_marginal=y[:50], random_state=0
    )
    x, y = broken(contrast)
    assert not ((x == y) & (x < 100)).any()
    assert len(set(zip(x, y, strict=True))) == len(x)
    # Each of the (100 + 30) (100 + 50) - 100 broken pairs is equally likely to be drawn.
    share = np.array([(x < 100).mean(), (y < 100).mean()])
    expected = np.array([100 * 149, 100 * 129]) / (130 * 150 - 100)
    assert (np.abs(share - expected) < 4 * 0.5 / np.sqrt(len(x))).all()


def test_all_pairs_with_extra_data():
    X, y = data(6)
    with pytest.warns(UserWarning, match="least possible ratio"):
        contrast = build_contrast(X, y, ratio=1e-6, X_unlabeled=X[:2], y_marginal=y[:3])
    pairs = set(zip(contrast.x_index.tolist(), contrast.y_index.tolist(), strict=True))
    assert pairs == {(i, j) for i in range(8) for j in range(9)}
    assert contrast.ratio == 6 / 72


def test_iid_uses_each_row_once():
    X, y = data(101)
    contrast = build_contrast(X, y, construction="iid", ratio=0.5, random_state=0)
    x, y = broken(contrast)
    joint = contrast.label == 1
    used = np.concatenate([x, y, contrast.x_index[joint]])
    assert len(np.unique(used)) == len(used)
    assert len(contrast) == 50


def test_iid_with_extra_data_breaks_with_the_extra():
    X, y = data(100)
    contrast = build_contrast(
        X, y, construction="iid", ratio=0.5, X_unlabeled=X[:25], y_marginal=y[:25], random_state=0
    )
    x, y = broken(contrast)
    # An extra x keeps the row's own y, an extra y the row's own x, the rest lend each other.
    assert ((x >= 100) | (y >= 100) | (x != y)).all()
    assert not ((x >= 100) & (y >= 100)).any()
    assert len(np.unique(x)) == len(x)
    assert len(np.unique(y)) == len(y)


def test_iid_does_not_follow_the_order_of_the_file():
    X, y = np.arange(1000.0)[:, None], np.arange(1000.0)
    contrast = build_contrast(X, y, construction="iid", ratio=0.5, random_state=0)
    assert abs(contrast.x_index.mean() - 499.5) < 4 * 289 / np.sqrt(500)


@pytest.mark.parametrize("ratio", [1e-9, 0.5, 1 - 1e-9])
def test_iid_always_has_both_labels(ratio):
    X, y = data(8)
    for seed in range(20):
        label = build_contrast(X, y, construction="iid", ratio=ratio, random_state=seed).label
        assert 0 < label.sum() < len(label)


def uniformity_p_value(counts, draws, size, population):
    """Chi-square test of equal inclusion for subsets drawn without replacement.

    Of each draw, `size` of `population` cells are in. The counts have variance
    draws * f * (1 - f) with f = size / population and correlation -1 / (population - 1), so the
    statistic below is asymptotically chi-square with population - 1 degrees of freedom.
    """
    f = size / population
    variance = draws * f * (1 - f) * population / (population - 1)
    return stats.chi2.sf(((counts - draws * f) ** 2).sum() / variance, population - 1)


def inclusion_counts(sampler, draws=4000, n=6):
    counts = np.zeros((n, n))
    for seed in range(draws):
        x, y = sampler(np.random.default_rng(seed))
        counts[x, y] += 1
    off_diagonal = ~np.eye(n, dtype=bool)
    assert counts[~off_diagonal].sum() == 0
    return counts[off_diagonal], len(x)


def test_broken_pairs_are_equally_likely():
    X, y = data(6)
    counts, size = inclusion_counts(
        lambda rng: broken(build_contrast(X, y, ratio=0.4, random_state=rng))
    )
    assert size == 9
    assert uniformity_p_value(counts, 4000, size, 30) > 1e-3


def test_the_uniformity_test_rejects_a_biased_sampler():
    """A sampler that draws y first and prefers small x slightly must fail the same test."""

    def biased(rng):
        cells = [(i, j) for i in range(6) for j in range(6) if i != j]
        weight = np.array([1.15 if i == 0 else 1.0 for i, _ in cells])
        chosen = rng.choice(30, size=9, replace=False, p=weight / weight.sum())
        return np.array(cells)[chosen].T

    counts, size = inclusion_counts(biased)
    assert uniformity_p_value(counts, 4000, size, 30) < 1e-3


@pytest.mark.parametrize(("population", "size"), [(10, 3), (10, 9), (10, 10), (10**12, 1000)])
def test_sample_without_replacement(population, size):
    chosen = sample_without_replacement(population, size, np.random.default_rng(0))
    assert len(chosen) == size == len(np.unique(chosen))
    assert chosen.min() >= 0
    assert chosen.max() < population


def test_the_order_carries_no_label():
    X, y = data(1000)
    label = build_contrast(X, y, ratio=0.1, random_state=0).label
    assert stats.ks_2samp(np.flatnonzero(label), np.flatnonzero(label == 0)).pvalue > 1e-3


def test_memory_is_in_proportion_to_the_pairs():
    """n² = 10^8 pairs would take at least 100 MB even as single bytes."""
    X, y = data(10_000, p=1)
    tracemalloc.start()
    contrast = build_contrast(X, y, ratio=0.05, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(contrast) == 200_000
    assert peak < 40e6


# Groups.


def test_groups_of_one_are_construction_2():
    X, y = data()
    plain = build_contrast(X, y, ratio=0.05, random_state=0)
    grouped = build_contrast(X, y, ratio=0.05, groups=np.arange(100), random_state=0)
    np.testing.assert_array_equal(plain.x_index, grouped.x_index)
    np.testing.assert_array_equal(plain.y_index, grouped.y_index)


def test_groups_all_pairs_once():
    X, _ = data(5)
    X, y, groups = stack_targets(X, np.arange(15.0).reshape(5, 3))
    contrast = build_contrast(X, y, ratio=1 / 5, groups=groups, random_state=0)
    x, j = broken(contrast)
    assert len(contrast) == 5 * 5 * 3
    pairs = set(zip(groups[x].tolist(), j.tolist(), strict=True))
    assert pairs == {(g, k) for g in range(5) for k in range(15) if groups[k] != g}


def test_shuffled_groups_are_never_broken_within():
    X, _ = data(20)
    X, y, groups = stack_targets(X, np.random.default_rng(0).normal(size=(20, 4)))
    order = np.random.default_rng(1).permutation(80)
    contrast = build_contrast(X[order], y[order], ratio=0.1, groups=groups[order], random_state=0)
    x, j = broken(contrast)
    assert (groups[order][x] != groups[order][j]).all()


def test_unequal_groups_draw_x_as_often_as_joint_pairs_have_it():
    """Otherwise the density would carry a factor that depends on x."""
    sizes = np.array([1, 1, 1, 1, 16])
    groups = np.repeat(np.arange(5), sizes)
    X, y = groups[:, None].astype(float), np.arange(20.0)
    counts = np.zeros(5)
    for seed in range(300):
        contrast = build_contrast(X, y, ratio=0.4, groups=groups, random_state=seed)
        x, j = broken(contrast)
        assert (groups[x] != groups[j]).all()
        assert len(set(zip(x.tolist(), j.tolist(), strict=True))) == len(x)
        counts += np.bincount(groups[x], minlength=5)
    # Uniform over the row pairs (i, j) of different groups.
    expected = sizes * (20 - sizes)
    share, expected = counts / counts.sum(), expected / expected.sum()
    assert np.abs(share - expected).max() < 4 * np.sqrt(0.25 / counts.sum())


def test_stack_targets_leaves_out_missing():
    X, y, groups = stack_targets([[1.0], [2.0]], [[3.0, np.nan], [4.0, 5.0]])
    np.testing.assert_array_equal(X[:, 0], [1, 2, 2])
    np.testing.assert_array_equal(y, [3, 4, 5])
    np.testing.assert_array_equal(groups, [0, 1, 1])


# Weights.


def test_weights_of_pairs():
    X, y = data(50)
    w = np.random.default_rng(1).uniform(0.5, 2, size=50)
    contrast = build_contrast(X, y, ratio=0.1, sample_weight=w, random_state=0)
    joint = contrast.label == 1
    joint_weight = contrast.weight[joint] / w[contrast.x_index[joint]]
    np.testing.assert_allclose(joint_weight, joint_weight[0])
    x, j = broken(contrast)
    broken_weight = contrast.weight[~joint] / (w[x] * w[j])
    np.testing.assert_allclose(broken_weight, broken_weight[0])
    assert contrast.ratio == pytest.approx(contrast.weight[joint].sum() / contrast.weight.sum())
    assert contrast.ratio == pytest.approx(0.1)


def test_weight_zero_rows_are_dropped_first():
    X, y = data(50)
    w = np.ones(50)
    w[:10] = 0
    contrast = build_contrast(X, y, ratio=0.1, sample_weight=w, random_state=0)
    same = build_contrast(X[10:], y[10:], ratio=0.1, random_state=0)
    assert contrast.weight is None
    np.testing.assert_array_equal(contrast.materialize(), same.materialize())
    np.testing.assert_array_equal(contrast.label, same.label)


# What learners use.


def test_materialize_and_batches_hold_the_same_pairs():
    X, y = data(50)
    contrast = build_contrast(X, y, ratio=0.1, random_state=0)
    matrix = contrast.materialize()
    assert matrix.shape == (500, 3)
    np.testing.assert_array_equal(matrix[:, :2], X[contrast.x_index])
    np.testing.assert_array_equal(matrix[:, 2], y[contrast.y_index])
    batches = list(contrast.batches(64, random_state=1))
    assert [len(b[0]) for b in batches] == [64] * 7 + [52]
    rows = np.concatenate([np.column_stack([b[0], b[1]]) for b in batches])
    expected = np.column_stack([matrix, contrast.label])
    assert not np.array_equal(rows, expected)
    np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(expected, axis=0))
    in_order = np.concatenate([b[0] for b in contrast.batches(64, shuffle=False)])
    np.testing.assert_array_equal(in_order, matrix)


@pytest.mark.parametrize("grouped", [False, True])
def test_split_keeps_observations_on_one_side(grouped):
    X, y = np.arange(60.0)[:, None], 100 + np.arange(60.0)
    groups = np.arange(60) // 3 if grouped else None
    if grouped:
        X = X // 3
    contrast = build_contrast(X, y, ratio=0.1, groups=groups, random_state=0)
    train, test = contrast.split(0.25, random_state=1)
    for column in (0, 1):
        sides = [set(part.materialize()[:, column]) for part in (train, test)]
        assert not sides[0] & sides[1]
    assert test.n_observations == round(0.25 * contrast.n_observations)
    # The ratio asked for, or the least that so few observations allow.
    assert test.ratio == pytest.approx(max(0.1, 1 / test.n_observations), rel=0.02)


# Targets of several columns.


def vector_data(grouped=False):
    """Rows whose targets can be told from each other in each column."""
    rows = np.arange(60) // 3 * 3 if grouped else np.arange(60)
    return data(60)[0][rows], np.array([1000, 2000]) + np.arange(60.0)[:, None], rows


@pytest.mark.parametrize("construction", ["id", "iid"])
def test_vectors_are_paired_as_numbers_are(construction):
    X, Y, _ = vector_data()
    extra = {"X_unlabeled": X[:5], "construction": construction, "ratio": 0.2, "random_state": 0}
    vectors = build_contrast(X, Y, y_marginal=Y[:7] + 500, **extra)
    numbers = build_contrast(X, Y[:, 0], y_marginal=Y[:7, 0] + 500, **extra)
    assert vectors.y_pool.shape == (67, 2)
    np.testing.assert_array_equal(vectors.label, numbers.label)
    np.testing.assert_array_equal(vectors.materialize()[:, :3], numbers.materialize())
    # A target is never torn apart.
    matrix = vectors.materialize()
    assert matrix.shape == (len(vectors), 4)
    np.testing.assert_array_equal(matrix[:, 3] - matrix[:, 2], 1000)
    one_column = build_contrast(X, Y[:, :1], y_marginal=Y[:7, :1] + 500, **extra)
    np.testing.assert_array_equal(one_column.materialize(), numbers.materialize())


@pytest.mark.parametrize("grouped", [False, True])
def test_vectors_with_weights_and_groups(grouped):
    X, Y, rows = vector_data(grouped)
    groups = rows if grouped else None
    weight = np.random.default_rng(1).uniform(size=60) + 0.1
    weight[[4, 40]] = 0
    options = {"groups": groups, "sample_weight": weight, "ratio": 0.2, "random_state": 0}
    vectors, numbers = (build_contrast(X, y, **options) for y in (Y, Y[:, 1]))
    assert vectors.construction == (5 if grouped else 2)
    np.testing.assert_array_equal(vectors.weight, numbers.weight)
    np.testing.assert_array_equal(vectors.materialize()[:, [0, 1, 3]], numbers.materialize())


@pytest.mark.parametrize("grouped", [False, True])
def test_split_of_vectors(grouped):
    X, Y, rows = vector_data(grouped)
    extra = {"y_marginal": Y[:9] + 500, "groups": rows if grouped else None}
    contrast = build_contrast(X, Y, ratio=0.2, random_state=0, **extra)
    train, test = contrast.split(0.25, random_state=1)
    for part in (train, test):
        matrix = part.materialize()
        assert matrix.shape[1] == 4
        np.testing.assert_array_equal(matrix[:, 3] - matrix[:, 2], 1000)
    sides = [{tuple(y) for y in part.materialize()[:, 2:]} for part in (train, test)]
    assert not sides[0] & sides[1]
    assert sum(len(part.y_pool) for part in (train, test)) == 69


@pytest.mark.parametrize(
    ("y", "more", "message"),
    [
        (np.zeros((20, 2, 1)), None, r"y of shape \(n,\) or \(n, k\), got"),
        (np.zeros((20, 0)), None, r"y of shape \(n,\) or \(n, k\), got"),
        (np.zeros((19, 2)), None, r"y of shape \(n,\) or \(n, k\), got"),
        (np.full((20, 2), np.nan), None, "y contains NaN"),
        (np.zeros((20, 2)), np.zeros(3), "y_marginal must have the 2 columns of y"),
    ],
)
def test_bad_vectors(y, more, message):
    with pytest.raises(ValueError, match=message):
        build_contrast(data(20)[0], y, y_marginal=more)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ratio": 0.0}, "ratio must lie strictly between 0 and 1"),
        ({"ratio": 1.0}, "ratio must lie strictly between 0 and 1"),
        ({"ratio": 0.999}, "leaves no broken pair"),
        ({"construction": "other"}, "construction must be"),
        ({"construction": "iid", "groups": np.zeros(20)}, 'construction="iid" cannot use groups'),
        ({"groups": np.zeros(20)}, "have different x"),
        ({"groups": np.zeros(3)}, "groups must have one entry per row"),
        ({"sample_weight": [1] + [0] * 19}, "at least 2 different observations"),
        ({"X_unlabeled": np.zeros((3, 5))}, "X_unlabeled must have the 2 columns of X"),
        ({"y_marginal": np.zeros((3, 2))}, "y_marginal must have the 1 column of y"),
        ({"y_marginal": [1.0, np.nan]}, "y_marginal contains NaN"),
        ({"sample_weight": np.ones(3)}, "one weight per row of X"),
        ({"sample_weight": -np.ones(20)}, "not negative"),
        ({"random_state": "seed"}, "random_state must be"),
    ],
)
def test_bad_input(change, message):
    X, y = data(20)
    with pytest.raises((ValueError, TypeError), match=message):
        build_contrast(X, y, **change)
