"""FlexCode: a cosine series whose coefficients are regressions.

References
----------
Izbicki, Lee: Converting high-dimensional regression to high-dimensional conditional density
estimation, 2017.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from mcdensity._validation import as_generator, require
from mcdensity.baselines.kernels import evaluation_rows
from mcdensity.baselines.nnkcde import neighbor_counts, neighbors_without_itself
from mcdensity.baselines.series import SeriesEstimator, check_n_basis, cosine_basis, series_losses

__all__ = ["FlexCode"]

Array = NDArray[np.float64]

# The most neighbours, and the rounds, to choose from; they bound the cost, and were not tuned.
_MOST_NEIGHBORS = 500
# Beyond this many rows one part of five is held out, instead of each in turn.
_FOLDS_UP_TO = 2000
_ROUNDS = (5, 10, 20, 40, 80, 160)


class FlexCode(SeriesEstimator):
    r"""Cosine series whose i-th coefficient is the regression of :math:`\phi_i(y)` on x.

    Parameters
    ----------
    regressor : {"nn", "xgboost", "mlp"} or a scikit-learn regressor, default "nn"
        Nearest neighbours, gradient boosting (extra `boosting`), a multilayer perceptron, or any
        regressor; one that takes a single target only is fitted to each coefficient.
    n_basis : int, optional
        The largest number of basis functions; by default 31, or as many as there are rows.
    bump_threshold : float, optional
        Isolated bumps of less mass are dropped; by default this threshold is chosen.
    sharpen : float, optional
        Exponent the density is raised to, 1 for none; None: chosen.
    floor : float, optional
        Share of the marginal density, which keeps densities positive; by default 2 / (n + 1).
    random_state : int, Generator or None
        For the folds, and for a perceptron or boosting.

    What is chosen (the number of terms, of neighbours or of boosting rounds, the threshold) is
    chosen by the CDE loss of training rows that are held out.

    Attributes
    ----------
    n_basis_ : int
        Number of terms in use.
    n_neighbors_, n_rounds_ : int
        With "nn" and "xgboost".
    bump_threshold_, sharpen_, floor_ : float
    y_range_ : tuple of float
        Of the standardised targets: where the series is defined.
    regressor_ : object
        The fitted regressor.
    cde_loss_ : float

    Examples
    --------
    >>> import numpy as np
    >>> from mcdensity.baselines import FlexCode
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, size=500)
    >>> model = FlexCode().fit(x[:, None], x + 0.1 * rng.normal(size=500))
    >>> model.predict([[0.5]]).round(1)
    array([0.5])
    """

    regressor_: Any

    def __init__(
        self,
        regressor: Any = "nn",
        n_basis: int | None = None,
        bump_threshold: float | None = None,
        sharpen: float | None = 1.0,
        floor: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.regressor = regressor
        self.n_basis = n_basis
        self.bump_threshold = bump_threshold
        self.sharpen = sharpen
        self.floor = floor
        self.random_state = random_state

    def _fit(self, X: Array, y: Array, sample_weight: Array | None, **extra: Any) -> None:
        size = check_n_basis(self.n_basis, len(y))
        rng = as_generator(self.random_state)
        z, inside = self._set_range(y, sample_weight)
        X, sample_weight = X[inside], _part(sample_weight, inside)
        size = min(size, len(z))
        basis = cosine_basis(z, size)
        if size == 1:
            self.n_basis_, self.regressor_ = 1, None
            return
        if isinstance(self.regressor, str) and self.regressor == "nn":
            coefficients, rows = self._fit_neighbors(X, basis, sample_weight)
        else:
            coefficients, rows = self._fit_regressor(X, basis, sample_weight, rng)
        weight = None if sample_weight is None else sample_weight[rows]
        self._tune(coefficients, z[rows], weight)

    def _fit_neighbors(
        self, X: Array, basis: Array, weight: Array | None
    ) -> tuple[Array, NDArray[np.intp]]:
        n = len(X)
        self.regressor_ = NearestNeighbors().fit(X)
        self._basis, self._weight = basis, weight
        rows = evaluation_rows(n)
        ks = neighbor_counts(n, _MOST_NEIGHBORS)
        index = neighbors_without_itself(self.regressor_, X, rows, ks[-1])
        best = np.inf
        for k in ks:
            coefficients = self._mean_basis(index[:, :k])
            losses = series_losses(
                coefficients, basis[rows], None if weight is None else weight[rows]
            )
            if losses.min() < best:
                best, chosen, self.n_neighbors_ = losses.min(), coefficients, int(k)
        return chosen, rows

    def _mean_basis(self, index: NDArray[np.intp]) -> Array:
        """Mean of the basis over the chosen training rows, (rows, k) -> (rows, I)."""
        out = np.zeros((len(index), self._basis.shape[1]))
        total = np.zeros((len(index), 1))
        for column in index.T:
            weight = np.ones((1, 1)) if self._weight is None else self._weight[column, None]
            out += weight * self._basis[column]
            total += weight
        return out / total

    def _fit_regressor(
        self, X: Array, basis: Array, weight: Array | None, rng: np.random.Generator
    ) -> tuple[Array, NDArray[np.intp]]:
        n = len(X)
        folds = min(5, n)
        split = list(KFold(folds, shuffle=True, random_state=int(rng.integers(2**31))).split(X))
        if n > _FOLDS_UP_TO:
            split = split[:1]
        seed = int(rng.integers(2**31))
        rows = np.concatenate([test for _, test in split])
        staged = isinstance(self.regressor, str) and self.regressor == "xgboost"
        rounds = _ROUNDS if staged else (None,)
        predicted: dict[int | None, list[Array]] = {r: [] for r in rounds}
        for train, test in split:
            model = self._new(X[train], basis[train, 1:], _part(weight, train), seed)
            for r in rounds:
                predicted[r].append(_predict(model, X[test], r))
        coefficients = {r: np.concatenate(parts) for r, parts in predicted.items()}
        held = _part(weight, rows)
        losses = {r: series_losses(c, basis[rows], held).min() for r, c in coefficients.items()}
        best = min(rounds, key=lambda r: losses[r])
        if best is not None:
            self.n_rounds_ = best
        self.regressor_ = self._new(X, basis[:, 1:], weight, seed, best)
        return coefficients[best], rows

    def _new(
        self, X: Array, targets: Array, weight: Array | None, seed: int, rounds: int | None = None
    ) -> Any:
        """Fit a regressor for all coefficients."""
        if isinstance(self.regressor, str):
            if self.regressor not in _REGRESSORS:
                raise ValueError(
                    f'regressor must be "nn", {", ".join(map(repr, _REGRESSORS))} or a '
                    f"scikit-learn regressor, got {self.regressor!r}."
                )
            model = _REGRESSORS[self.regressor](seed, len(X))
            if rounds is not None:
                model.set_params(n_estimators=rounds)
        else:
            model = _single_or_multi(self.regressor)
            # Seeds that the user did not set, also of what is inside of pipelines and ensembles.
            for name, value in sorted(model.get_params().items()):
                if value is None and name.rsplit("__")[-1] == "random_state":
                    model.set_params(**{name: seed})
        if weight is None:
            options = {}
        elif has_fit_parameter(model, "sample_weight"):
            options = {"sample_weight": weight}
        else:
            raise ValueError(
                f"sample_weight was given, but the regressor {type(self.regressor).__name__} does "
                "not take weights; choose another one."
            )
        with warnings.catch_warnings():
            # A perceptron that stops at its budget of steps is what was asked for.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(X, targets, **options)

    def _coefficients(self, X: Array) -> Array:
        if self.regressor_ is None:
            return np.ones((len(X), 1))
        if isinstance(self.regressor_, NearestNeighbors):
            index = self.regressor_.kneighbors(X, self.n_neighbors_, return_distance=False)
            return self._mean_basis(index)
        return _predict(self.regressor_, X, None)


def _part(weight: Array | None, rows: NDArray[np.intp]) -> Array | None:
    return None if weight is None else weight[rows]


def _predict(model: Any, X: Array, rounds: int | None) -> Array:
    """Coefficients, the first of which is 1."""
    options = {} if rounds is None else {"iteration_range": (0, rounds)}
    rest = np.asarray(model.predict(X, **options), dtype=np.float64).reshape(len(X), -1)
    if not np.isfinite(rest).all():
        raise ValueError(f"The regressor {type(model).__name__} returned NaN or infinity.")
    return np.column_stack([np.ones(len(X)), rest])


def _single_or_multi(regressor: Any) -> Any:
    if not hasattr(regressor, "fit") or not hasattr(regressor, "predict"):
        raise TypeError(f"regressor must be a name or a scikit-learn regressor, got {regressor!r}.")
    model = clone(regressor)
    return model if get_tags(model).target_tags.multi_output else MultiOutputRegressor(model)


def _xgboost(seed: int, n: int) -> Any:
    # One tree for all coefficients: thirty times faster than a tree for each, and steadier.
    return require("xgboost", "boosting").XGBRegressor(
        n_estimators=_ROUNDS[-1],
        max_depth=3 if n < 5000 else 6,
        learning_rate=0.1,
        subsample=0.8,
        min_child_weight=5 if n < 5000 else 20,
        multi_strategy="multi_output_tree",
        tree_method="hist",
        n_jobs=1,
        random_state=seed,
    )


def _mlp(seed: int, n: int) -> Any:
    from sklearn.neural_network import MLPRegressor

    return MLPRegressor(
        hidden_layer_sizes=(32, 32) if n < 1000 else (64, 64),
        alpha=1.0 / np.sqrt(n),
        learning_rate_init=5e-3,
        max_iter=int(np.clip(200_000 / n, 20, 200)),
        early_stopping=n >= 200,
        random_state=seed,
    )


_REGRESSORS: dict[str, Callable[[int, int], Any]] = {"mlp": _mlp, "xgboost": _xgboost}
