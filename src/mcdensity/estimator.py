"""`ConditionalEstimator`: the interface of every method of this package.

A method implements `_fit` and one of `_log_density_grid` and `_log_density_rows`, on standardised
arrays. Normalising and the public methods are here; user input is checked, completed and
standardised in `_inputs`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from mcdensity._calibration import Calibrated, calibrate, corrected
from mcdensity._conformal import Conformal
from mcdensity._inputs import (
    InputChecks,
    all_or_nothing,
    check_grid,
    check_quantiles,
)
from mcdensity._parallel import in_parallel, worker_count
from mcdensity._validation import (
    as_generator,
    check_integer,
    check_weights,
    refuse_masked,
)
from mcdensity.distribution import ConditionalDistribution, GridDistribution, Reference
from mcdensity.target import reference_knots

__all__ = ["ConditionalEstimator"]

Array = NDArray[np.float64]

# With this many seconds of work on one core predictions are made in processes, since threads wait
# for each other's Python code; to start processes takes about 3.5 s, once.
_LONG = 4.0
# Densities computed at once, rows times points: the arrays of a block then stay in the cache.
_BLOCK = 1 << 17
_MIN_ROWS = 4


class ConditionalEstimator(Conformal, Calibrated, RegressorMixin, InputChecks):
    """Base class of all estimators of the distribution of y given x.

    Subclasses implement

    - ``_fit(X, y, sample_weight)``: learn from standardised arrays; `sample_weight` has mean 1, or
      is None where all weights are equal;
    - ``_log_density_grid(X, grid)``: log-densities of n rows on a grid they share, (n, G), or
      ``_log_density_rows(X, Y)``: at points of their own, (n, m) -> (n, m). Both in standardised
      units and up to a constant per row; each has a default in terms of the other;
    - or ``_distribution(X)``, where the distribution has a closed form.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}
    # What y may be; a method that takes more has the parameters `target` and `support`.
    target_kinds: ClassVar[frozenset[str]] = frozenset({"continuous"})

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the distribution of y given x.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Features. Missing values (NaN) are passed on to a method that takes them; for others
            they become the mean of their column, and an indicator column marks them.
        y : array-like of shape (n,)
            Target.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows; only their ratios matter, and a row of weight 0 is left out.

        Returns
        -------
        self
        """
        return self._fit_checked(X, y, sample_weight)

    def predict_distribution(
        self, X: ArrayLike, *, groups: ArrayLike | None = None
    ) -> ConditionalDistribution:
        """Return the distribution of y given each row of X.

        The result is normalised, and holds its densities: for very many rows the shorthands below
        need less memory, since they work in blocks.

        Parameters
        ----------
        X : array-like of shape (n, p)
        groups : array-like of shape (n,), optional
            With groups in `recalibrate`: those of these rows. Without them, and for groups that it
            has not seen, the correction is the one that all have in common.
        """
        X = self._check_predict(X)
        codes = self._group_codes(groups, len(X))
        parts = self._in_blocks(X, lambda d, rows: d, keep=True, codes=codes)
        return parts[0]._joined(parts[1:]) if len(parts) > 1 else parts[0]

    def pdf_from_X(self, X: ArrayLike, y_grid: ArrayLike) -> Array:  # noqa: N802
        """Densities of y given each row of X, on a grid that all rows share.

        Parameters
        ----------
        X : array-like of shape (n, p)
        y_grid : array-like of shape (G,)

        Returns
        -------
        ndarray of shape (n, G)
        """
        grid = check_grid(self._check_points(y_grid, "y_grid"), "y_grid")
        if self._normalized:
            return self._stream(X, lambda d: d.pdf_grid(grid), len(grid))
        X = self._check_predict(X)
        at, slope = self._standardized(grid)
        blocks = self._blocks(len(X), len(grid))
        parts = [self._log_density_grid(X[b], at) for b in blocks]
        return np.exp(np.concatenate(parts)) * np.exp(slope)

    def logpdf(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Log-density of y[i] given row i of X, shape (n,)."""
        X = self._check_predict(X)
        y = self._check_outcomes(y, len(X))
        if self._normalized:
            return np.concatenate(self._in_blocks(X, lambda d, rows: d.logpdf(y[rows])))
        out = np.empty(len(X))
        at, slope = self._standardized(y)
        for rows in self._blocks(len(X)):
            out[rows] = self._log_density_rows(X[rows], at[rows, None])[:, 0] + slope[rows]
        return out

    def predict(self, X: ArrayLike) -> Array:
        """Conditional mean of y given each row of X."""
        return self._stream(X, lambda d: d.mean())

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> Array:
        """Conditional quantiles, shape (n, number of quantiles)."""
        levels = check_quantiles(quantiles)
        return self._stream(X, lambda d: d.ppf_grid(levels))

    def predict_var(self, X: ArrayLike) -> Array:
        """Conditional variance of y given each row of X."""
        return self._stream(X, lambda d: d.var())

    def sample(self, X: ArrayLike, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw targets given each row of X, shape (n, n_samples)."""
        n_samples = check_integer("n_samples", n_samples)
        rng = as_generator(random_state)
        X = self._check_predict(X)
        # One after the other, so that the draws do not depend on the number of threads.
        blocks = self._blocks(len(X), n_samples)
        return np.concatenate([self._in_caller_units(X[b]).sample(n_samples, rng) for b in blocks])

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the mean log-likelihood of y given X: higher is better, and it is *not* R².

        Parameters
        ----------
        X : array-like of shape (n, p)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        """
        density = self.logpdf(X, y)
        kept, weight = check_weights(sample_weight, len(density))
        return float(np.average(density if kept is None else density[kept], weights=weight))

    # For subclasses.

    def _fit(self, X: Array, y: Array, sample_weight: Array | None, **extra: Any) -> None:
        """Learn; `extra` holds X_unlabeled, y_marginal and groups where they were given."""
        raise TypeError(f"{type(self).__name__} must implement _fit.")

    def _log_density_grid(self, X: Array, grid: Array) -> Array:
        if type(self)._log_density_rows is ConditionalEstimator._log_density_rows:
            raise TypeError(
                f"{type(self).__name__} must implement _log_density_grid or _log_density_rows."
            )
        return self._log_density_rows(X, np.broadcast_to(grid, (len(X), len(grid))))

    def _log_density_rows(self, X: Array, Y: Array) -> Array:
        return np.concatenate(
            [self._log_density_grid(X[i : i + 1], Y[i]) for i in range(len(X))], axis=0
        )

    def _reference(self) -> Reference | None:
        """Return a distribution of y to measure densities against, if the method has one."""
        return None

    def _distribution(self, X: Array) -> ConditionalDistribution:
        """Return the distributions in standardised units."""
        return GridDistribution.from_log_density(
            lambda rows, y: self._log_density_rows(X[rows], y),
            self._knots,
            shared=lambda y: self._log_density_grid(X, y),
            reference=self._reference(),
        )

    def _start_knots(self, y: Array) -> Array:
        """Values of standardised y where the grid of every row starts."""
        reference = self._reference()
        if reference is not None:
            return reference_knots(reference, y.min(), y.max())
        low, high = y.min(), y.max()
        reach = high - low
        # Half of the knots where the targets are, half evenly, and a few far outside, so that mass
        # beyond the range of the targets is noticed.
        inner = np.quantile(y, np.linspace(0, 1, 97))
        even = np.linspace(low - 0.25 * reach, high + 0.25 * reach, 129)
        outer = np.array([0.5, 1.0, 2.0]) * reach
        return np.unique(np.concatenate([low - outer, inner, even, high + outer]))

    def _row_size(self) -> int:
        """How many numbers the distribution of one row holds: this sets the size of blocks."""
        return len(self._knots)

    @property
    def _normalized(self) -> bool:
        """Whether `pdf_from_X` and `logpdf` return densities that integrate to one."""
        return True

    @property
    def y_mean_(self) -> float:
        """Mean of the targets; of a bounded one, in its coordinate on the line."""
        return self.target_space_.location

    @property
    def y_scale_(self) -> float:
        """Standard deviation of the targets; of a bounded one, in its coordinate."""
        return self.target_space_.scale

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        tags.input_tags.allow_nan = True
        return tags

    def _check_censored(self, censored: ArrayLike, y: Array) -> NDArray[np.bool_] | None:
        from mcdensity._censoring import check_censored

        if getattr(self, "calibrate", False):
            raise ValueError("calibrate=True is not for censored targets; use calibrate=False.")
        return check_censored(censored, y)

    # Fitting.

    @all_or_nothing
    def _fit_checked(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        *,
        X_unlabeled: ArrayLike | None = None,
        y_marginal: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        censored: ArrayLike | None = None,
    ) -> Self:
        self._validate_params()
        X, y = self._check_training(X, y)
        kept, weight = check_weights(sample_weight, len(X))
        extra: dict[str, Any] = {}
        if groups is not None:
            refuse_masked("groups", groups)
            groups = np.asarray(groups)
            if groups.shape != (len(X),):
                raise ValueError(
                    f"groups must have one entry per row of X ({len(X)}), got shape {groups.shape}."
                )
            extra["groups"] = groups if kept is None else groups[kept]
        flags = None if censored is None else self._check_censored(censored, y)
        if kept is not None:
            X, y = X[kept], y[kept]
            flags = None if flags is None else flags[kept]
        if len(X) < _MIN_ROWS:
            raise ValueError(
                f"X has n_samples={len(X)} rows (of positive weight); {type(self).__name__} needs "
                f"at least {_MIN_ROWS} to learn a distribution. Give more rows."
            )
        if y.min() == y.max():
            raise ValueError(
                f"y is constant (all {len(y)} targets are {y[0]:g}); it has no density. Check that "
                "the target is the right column."
            )
        # Nothing that an earlier fit learned may remain.
        for name in [name for name in vars(self) if name.endswith("_")]:
            if not name.startswith("_") and name not in ("n_features_in_", "feature_names_in_"):
                delattr(self, name)
        more = None if y_marginal is None else self._check_more(y_marginal)
        raw = extra | {"X_unlabeled": X_unlabeled, "y_marginal": y_marginal}
        if flags is not None:
            extra["censored"], self._seen = flags, ~flags
        self._learn_scales(X, y, weight, more)
        if X_unlabeled is not None:
            extra["X_unlabeled"] = self._scale_x(self._check_x(X_unlabeled, "X_unlabeled"))
        if more is not None:
            extra["y_marginal"] = self.target_space_.standardize(more)
        scaled = self.target_space_.standardize(y)
        self._fit(self._scale_x(X), scaled, weight, **extra)
        self._knots = self._start_knots(scaled)
        if getattr(self, "calibrate", False):
            calibrate(self, X, y, weight, raw)
        return self

    # Blocks.

    def _in_caller_units(
        self, X: Array, codes: NDArray[np.intp] | None = None
    ) -> ConditionalDistribution:
        """Distributions of a block of standardised rows, in the caller's units."""
        return self.target_space_.law(corrected(self, self._distribution(X), codes))

    def _group_codes(self, groups: ArrayLike | None, n: int) -> NDArray[np.intp] | None:
        """Return which of the groups of `recalibrate` rows belong to; None without groups."""
        if groups is None:
            return None
        levels = getattr(self, "group_calibration_", None)
        if levels is None:
            raise ValueError("groups: recalibrate was given no groups; leave it out.")
        return levels.codes(groups, n)

    def _standardized(self, y: Array) -> tuple[Array, Array]:
        """Standardised targets, and the logarithm of their slope with respect to y."""
        return self.target_space_.standardize(y), self.target_space_.log_jacobian(y)

    def _blocks(self, n: int, points: int = 0) -> Iterator[slice]:
        size = max(1, _BLOCK // max(points, self._row_size()))
        return (slice(start, min(start + size, n)) for start in range(0, n, size))

    def _stream(
        self, X: ArrayLike, function: Callable[[ConditionalDistribution], Array], points: int = 0
    ) -> Array:
        """Work through the rows in blocks, so that memory stays bounded."""
        X = self._check_predict(X)
        return np.concatenate(self._in_blocks(X, lambda d, rows: function(d), points))

    def _in_blocks(
        self,
        X: Array,
        function: Callable[[ConditionalDistribution, slice], Any],
        points: int = 0,
        keep: bool = False,
        codes: NDArray[np.intp] | None = None,
    ) -> list[Any]:
        """Apply a function to the distributions of each block of rows, on several cores.

        In threads; if that takes long, and the results are small, in processes. `codes` are the
        groups of the rows, see `_group_codes`.
        """

        def work(rows: slice) -> Any:
            own = () if codes is None else (codes[rows],)
            return function(self._in_caller_units(X[rows], *own), rows)

        first, *others = self._blocks(len(X), points)
        start = time.perf_counter()
        out = in_parallel(work, [first], 1)
        seconds, workers = (time.perf_counter() - start) * len(others), self._threads()
        if keep or seconds < _LONG:
            return out + in_parallel(work, others, workers)
        # A process has to be sent the model, so that each gets all its blocks at once.
        size = -(-len(others) // worker_count(workers))
        shares = [others[i : i + size] for i in range(0, len(others), size)]
        found = in_parallel(lambda share: [*map(work, share)], shares, workers, processes=True)
        return out + [result for share in found for result in share]

    def _threads(self) -> int | None:
        """How many threads predictions may use."""
        return getattr(self, "n_jobs", 1)
