"""What each feature contributes to a row's answer: Shapley values."""

from __future__ import annotations

import importlib
import importlib.util
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mcdensity._validation import as_generator, check_integer, require
from mcdensity.inspection._asking import Array, Functional, Rows, answers, as_functionals, ask

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["shapley"]

Index = NDArray[np.intp]

# With so few features all coalitions are asked about: 32 of them, as many as some permutations
# need.
_EXACT = 5
_METHODS = ("auto", "sampling", "shap")


def shapley(
    estimator: Any,
    X: Any,
    background: Any,
    functional: Functional = "mean",
    *,
    method: str = "auto",
    n_permutations: int = 8,
    n_background: int | None = 100,
    random_state: Any = None,
) -> pd.DataFrame:
    r"""Split what makes a row's answer different from the average one among its features.

    The value of a set S of features is the mean of the functional over the background rows, whose
    features in S are replaced by the row's own. A feature's contribution is what it adds to the
    value, averaged over all orders in which features can be added. The contributions sum to
    prediction - baseline, exactly.

    .. math:: \phi_j = \frac{1}{p!} \sum_\pi [v(S_\pi^j \cup \{j\}) - v(S_\pi^j)],
              \quad v(S) = \frac{1}{m} \sum_b g(x_S, b_{-S})

    Parameters
    ----------
    estimator : ConditionalEstimator
        Fitted; anything with `predict_distribution`.
    X : DataFrame or array of shape (n, p)
        The rows to explain; a few.
    background : DataFrame or array of shape (m, p)
        What they are compared with, such as the training rows; with the columns of X.
    functional : str, tuple or callable, default "mean"
        g, see `partial_dependence`: ("quantile", 0.9) explains why a row's quantile is high.
    method : {"auto", "sampling", "shap"}, default "auto"
        "shap" lets the library of this name compute them, "sampling" is our own estimator; "auto"
        takes shap where it is installed. Up to 5 features both are exact. With more, both draw
        permutations, each with its reverse; ours draws other ones for each row of the background,
        which needs fewer of them.
    n_permutations : int, default 8
        Permutations that are drawn, an even number of at least 4.
    n_background : int or None, default 100
        At most so many background rows are used, drawn at random; None for all.
    random_state : int, Generator, RandomState or None
        For drawing permutations and rows.

    Returns
    -------
    DataFrame
        With the columns row (its number in X), feature, value, contribution, std_error (of drawing
        permutations; 0 where all were used), baseline and prediction.

    References
    ----------
    Štrumbelj, Kononenko: Explaining prediction models and individual predictions with feature
    contributions, Knowledge and Information Systems, 2014.
    Lundberg, Lee: A unified approach to interpreting model predictions, NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity import MCD
    >>> from mcdensity.inspection import shapley
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> model = MCD("quadratic", random_state=0).fit(X, X[:, 0] + rng.normal(size=300))
    >>> table = shapley(model, X[:1], X, ("quantile", 0.9), random_state=0)
    >>> gap = table["prediction"][0] - table["baseline"][0]
    >>> bool(abs(table["contribution"].sum() - gap) < 1e-9)
    True
    """
    _check(functional, method, n_permutations)
    rng = as_generator(random_state)
    given = Rows(X)
    behind = Rows(background, "background").some(n_background, rng)
    pool = _joined(given, behind)
    columns = pool.used_by(estimator)
    evaluate = answers(estimator, as_functionals(functional))
    places = len(given) + np.arange(len(behind))
    games = [_Game(pool, columns, i, places, evaluate) for i in range(len(given))]
    explain = _explainer(method, len(columns))
    parts = [(*explain(game, n_permutations, rng), *game.ends()) for game in games]
    return _table(given, columns, parts)


def _check(functional: Any, method: str, n_permutations: Any) -> None:
    if isinstance(functional, list):
        raise ValueError("functional must be one, not a list: call shapley for each of them.")
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(_METHODS)}, got {method!r}.")
    if check_integer("n_permutations", n_permutations, 4) % 2:
        raise ValueError(
            f"n_permutations must be even, got {n_permutations}: each is used with its reverse."
        )


def _explainer(method: str, n_features: int) -> Any:
    if method == "shap" or (method == "auto" and _has_shap()):
        return _by_shap
    return _exact if n_features <= _EXACT else _by_permutations


def _has_shap() -> bool:
    found = importlib.util.find_spec("shap")
    return found is not None and found.origin is not None  # not a folder of that name


class _Game:
    """A row against a background: rows that have some features of one, the rest of the other."""

    def __init__(
        self, pool: Rows, columns: list[int], row: int, behind: Index, evaluate: Any
    ) -> None:
        self.pool, self.columns, self.row, self.behind = pool, columns, row, behind
        self.evaluate = evaluate
        self._ends: tuple[float, float] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Number of background rows and of features."""
        return len(self.behind), len(self.columns)

    def source(self, behind: Index, own: NDArray[np.bool_]) -> Index:
        """Return the sources of background rows that have these features of the row."""
        out = np.tile(behind[:, None], len(self.pool.names))
        out[:, self.columns] = np.where(own, self.row, behind[:, None])
        return out

    def ask(self, blocks: Any) -> Any:
        """Return the functional for each block of sources."""
        return (found[:, 0] for found in ask(self.pool, blocks, self.evaluate))

    def ends(self) -> tuple[float, float]:
        """Return the mean over the background, and the answer for the row itself."""
        if self._ends is None:
            nothing = np.zeros((1, len(self.columns)), dtype=bool)
            blocks = [
                self.source(self.behind, nothing),
                self.source(self.behind[:1], ~nothing),
            ]
            before, after = self.ask(blocks)
            self._ends = float(before.mean()), float(after[0])
        return self._ends


def _exact(game: _Game, n_permutations: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Ask about all coalitions."""
    p = game.size[1]
    members = (np.arange(2**p)[:, None] >> np.arange(p)) % 2 == 1
    found = game.ask(game.source(game.behind, own[None]) for own in members)
    value = np.array([answer.mean() for answer in found])
    game._ends = float(value[0]), float(value[-1])
    size = members.sum(axis=1)
    out = np.empty(p)
    for j in range(p):
        without = np.flatnonzero(~members[:, j])
        weight = np.array([1 / (p * comb(p - 1, k)) for k in size[without]])
        out[j] = (weight * (value[without + 2**j] - value[without])).sum()
    return out, np.zeros(p)


def _by_permutations(
    game: _Game, n_permutations: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Walk from each background row to the row, one feature after the other, in random orders.

    Each order is walked both ways, which cancels much of the error. Given the background, the
    means of such pairs are independent, and their spread within each background row gives the
    error.
    """
    m, p = game.size
    first = np.array([[rng.permutation(p) for _ in range(m)] for _ in range(n_permutations // 2)])
    orders = np.stack([first, first[..., ::-1]], axis=1)  # (pairs, 2, m, p)
    rank = np.argsort(orders, axis=-1)
    blocks = (
        game.source(game.behind, rank[a, b] < k)
        for a in range(len(rank))
        for b in range(2)
        for k in range(1, p)
    )
    nothing = np.zeros((1, p), dtype=bool)
    start, end = game.ask(
        [game.source(game.behind, nothing), game.source(game.behind[:1], ~nothing)]
    )
    game._ends = float(start.mean()), float(end[0])
    found = game.ask(blocks)
    change = np.empty(orders.shape)
    for a in range(len(rank)):
        for b in range(2):
            between = [next(found) for _ in range(1, p)]
            steps = np.diff(np.stack([start, *between, np.full(m, end[0])]), axis=0)  # (p, m)
            np.put_along_axis(change[a, b], orders[a, b], steps.T, axis=1)
    pair = change.mean(axis=1)  # (pairs, m, p)
    variance = pair.var(axis=0, ddof=1) / len(pair)  # of each background row's mean
    return pair.mean(axis=(0, 1)), np.sqrt(variance.sum(axis=0)) / m


def _by_shap(game: _Game, n_permutations: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Let shap compute them.

    It gets numbers of rows in place of values, so that any column will do, and all of the
    background, of which it would take 100 rows otherwise.
    """
    try:
        shap: Any = importlib.import_module("shap")
    except ImportError as error:
        raise ImportError(
            'shap is not installed; get it with: pip install shap, or use method="sampling".'
        ) from error
    m, p = game.size

    def model(numbers: Array) -> Array:
        source = numbers.astype(np.intp)
        # What the estimator does not use has the value of any row.
        rows = np.full((len(source), len(game.pool.names)), game.row)
        rows[:, game.columns] = source
        return next(game.ask([rows]))

    behind = np.tile(game.behind[:, None], p).astype(np.float64)
    masker = shap.maskers.Independent(behind, max_samples=m)
    row = np.full((1, p), float(game.row))
    if p <= _EXACT:
        return shap.ExactExplainer(model, masker)(row, silent=True).values[0], np.zeros(p)
    # shap draws from numpy's global generator, whose state is left as it was.
    state = np.random.get_state()  # noqa: NPY002
    try:
        seed = int(rng.integers(2**31))
        explainer = shap.PermutationExplainer(model, masker, seed=seed)
        pairs = np.stack([
            explainer(row, max_evals=2 * p + 1, silent=True).values[0]
            for _ in range(n_permutations // 2)
        ])  # fmt: skip
    finally:
        np.random.set_state(state)  # noqa: NPY002
    return pairs.mean(axis=0), pairs.std(axis=0, ddof=1) / np.sqrt(len(pairs))


def _joined(given: Rows, behind: Rows) -> Rows:
    """Put the rows before the background, with the columns of the rows."""
    if given.is_table != behind.is_table:
        raise TypeError("X and background must both be tables, or both arrays.")
    if not given.is_table:
        if given.X.shape[1] != behind.X.shape[1]:
            raise ValueError(
                f"X has {given.X.shape[1]} columns and background has {behind.X.shape[1]}."
            )
        return Rows(np.concatenate([given.X, behind.X]))
    absent = [name for name in given.names if name not in behind.names]
    if absent:
        raise ValueError(f"background lacks the column {absent[0]!r} of X.")
    frames = [given.X, behind.X[given.names]]
    return Rows(require("pandas", "cli").concat(frames, ignore_index=True))


def _table(given: Rows, columns: list[int], parts: list[Any]) -> pd.DataFrame:
    pandas = require("pandas", "cli")
    out = []
    for i, (value, error, baseline, prediction) in enumerate(parts):
        own = [given.X.iloc[i, j] if given.is_table else given.X[i, j] for j in columns]
        out.append(pandas.DataFrame({
            "row": i,
            "feature": [given.names[j] for j in columns],
            "value": pandas.Series(own, dtype=object) if given.is_table else own,
            "contribution": value,
            "std_error": error,
            "baseline": baseline,
            "prediction": prediction,
        }))  # fmt: skip
    return pandas.concat(out, ignore_index=True)
