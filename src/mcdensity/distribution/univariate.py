"""`ConditionalDistribution`: what estimators predict, one distribution per row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mcdensity._validation import as_generator
from mcdensity.distribution.base import Array, Distribution

if TYPE_CHECKING:
    from mcdensity.distribution.grid import GridDistribution

__all__ = ["ConditionalDistribution", "check_coverage"]

# numpy draws uniform numbers as multiples of 2^-53, and 0 among them: half a step stands for 0.
_LEAST_UNIFORM = 2.0**-54


class ConditionalDistribution(Distribution):
    """The distributions of y given each of n rows of X.

    Three shapes of an argument `y` (and likewise of `q`, a probability) are understood, and a
    fourth has methods of its own, so that they are never confused:

    - a scalar: the same point for all rows; the result has shape (n,);
    - shape (n,): one point per row; the result has shape (n,);
    - shape (n, m): m points per row; the result has shape (n, m);
    - ``pdf_grid``, ``cdf_grid`` and ``ppf_grid`` take m points that all rows share, shape (m,),
      and return shape (n, m).

    Examples
    --------
    >>> from mcdensity import MCD
    >>> from mcdensity.simulators import get_simulator
    >>> X, y = get_simulator("LinearGauss").sample(300, random_state=0)
    >>> law = MCD("quadratic", random_state=0).fit(X, y).predict_distribution(X[:3])
    >>> law.sf(0.0).shape, law.interval(0.9).shape, law.sample(5, random_state=0).shape
    ((3,), (3, 2), (3, 5))
    """

    # What a subclass must implement.

    @abstractmethod
    def _rescaled(self, loc: float, scale: float) -> ConditionalDistribution:
        """Return the distributions of loc + scale * y."""

    @abstractmethod
    def _logpdf(self, y: Array) -> Array: ...

    @abstractmethod
    def _cdf(self, y: Array) -> Array: ...

    @abstractmethod
    def _sf(self, y: Array) -> Array: ...

    @abstractmethod
    def _ppf(self, q: Array) -> Array: ...

    @abstractmethod
    def as_grid(self) -> GridDistribution:
        """Return the same distributions on a grid, for what has no closed form."""

    # What follows from it.

    def pdf(self, y: ArrayLike) -> Array:
        """Density at y: a scalar, (n,) for one point per row, or (n, m) for m points per row.

        At an atom it is the mass there, see `pmf`. Masses and densities have different units: do
        not compare likelihoods of laws with different atoms.
        """
        return np.exp(self.logpdf(y))

    def logpdf(self, y: ArrayLike) -> Array:
        """Logarithm of `pdf`."""
        return self._by_row(self._logpdf, y, "y")

    def pmf(self, y: ArrayLike) -> Array:
        """P(Y = y) of each row: 0 except at `atoms`; same shapes as `pdf`."""
        return self._by_row(self._pmf, y, "y")

    def logpmf(self, y: ArrayLike) -> Array:
        """Logarithm of `pmf`; minus infinity except at `atoms`."""
        with np.errstate(divide="ignore"):
            return np.log(self.pmf(y))

    def cdf(self, y: ArrayLike) -> Array:
        """P(Y <= y) of each row; same shapes as `pdf`."""
        return self._by_row(self._cdf, y, "y")

    def sf(self, y: ArrayLike) -> Array:
        """P(Y > y) of each row; same shapes as `pdf`."""
        return self._by_row(self._sf, y, "y")

    def ppf(self, q: ArrayLike) -> Array:
        """Quantile: the least value whose `cdf` reaches q; same shapes as `pdf`.

        At 0 and 1 these are the ends of the row's support: -inf and inf for an unbounded law.
        """
        return self._by_row(self._ppf, self._probabilities(q, "q"), "q")

    def pdf_grid(self, grid: ArrayLike) -> Array:
        """Densities of all rows, shape (n, m), at m points that the rows share."""
        return np.exp(self.logpdf_grid(grid))

    def logpdf_grid(self, grid: ArrayLike) -> Array:
        """Logarithm of `pdf_grid`."""
        return self._logpdf(self._shared(grid, "grid"))

    def cdf_grid(self, grid: ArrayLike) -> Array:
        """P(Y <= y) of all rows, shape (n, m), at m points that the rows share."""
        return self._cdf(self._shared(grid, "grid"))

    def ppf_grid(self, q: ArrayLike) -> Array:
        """Quantiles of all rows, shape (n, m), at m probabilities that the rows share."""
        return self._ppf(self._shared(self._probabilities(q, "q"), "q"))

    def interval(self, coverage: float = 0.9) -> Array:
        """Central interval that holds y with probability `coverage`, shape (n, 2).

        With atoms the probability may be larger, never smaller.
        """
        tail = (1 - check_coverage(coverage)) / 2
        return self.ppf_grid([tail, 1 - tail])

    def median(self) -> Array:
        """The 0.5 quantile of each row."""
        return self.ppf(0.5)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw `n_samples` values from each row's distribution, shape (n, n_samples)."""
        rng = as_generator(random_state)
        # The quantile at 0 is infinite on an unbounded support; numpy's uniform never returns 1.
        uniform = np.maximum(rng.random((len(self), n_samples)), _LEAST_UNIFORM)
        return self._ppf(uniform)

    def mean(self) -> Array:
        """Expectation of each row."""
        return self.as_grid()._mean()

    def var(self) -> Array:
        """Variance of each row; infinite where it overflows."""
        with np.errstate(over="ignore"):
            return self.std() ** 2

    def std(self) -> Array:
        """Standard deviation of each row."""
        return self.as_grid()._std()

    def skewness(self) -> Array:
        """Third standardised moment of each row: 0 for a symmetric distribution."""
        return self._standardised_moment(3)

    def kurtosis(self) -> Array:
        """Excess kurtosis of each row: 0 for a normal distribution."""
        return self._standardised_moment(4) - 3

    def entropy(self) -> Array:
        """Differential entropy of each row, in nats."""
        return self.as_grid()._entropy()

    def mode(self) -> Array:
        """The most likely value of each row."""
        return self.as_grid()._mode()

    def hpd(self, coverage: float = 0.9) -> list[Array]:
        """Highest-density region of each row: the smallest set of probability `coverage`.

        Atoms have no length: they belong to it first, those with more mass before others.

        Returns
        -------
        list of n ndarrays of shape (k, 2)
            The k intervals that make up the region; more than one where a row has several modes. A
            single value is an interval from itself to itself.
        """
        return self._hpd(check_coverage(coverage))

    def hpd_level(self, y: ArrayLike) -> Array:
        """Coverage of the smallest highest-density region that holds y; near 1 is an outlier.

        Same shapes as `pdf`.
        """
        return self._by_row(self._hpd_level, y, "y")

    def _standardised_moment(self, order: int) -> Array:
        """Return the mean of ((y - mean) / std) ** order."""
        return self.as_grid()._standardised_moment(order)

    def _mean_density(self) -> Array:
        """Return the integral of the squared density of each row."""
        return self.as_grid()._mean_density()

    def _hpd(self, coverage: float) -> list[Array]:
        ends = self.ppf_grid([0.0, 1.0])
        found = self.as_grid()._regions(coverage)
        return [np.clip(region, low, high) for region, (low, high) in zip(found, ends, strict=True)]

    def _hpd_level(self, y: Array) -> Array:
        return self.as_grid()._hpd_level(y)

    def _pmf(self, y: Array) -> Array:
        return np.zeros(y.shape)

    # The set of values that y may take.

    @property
    def support(self) -> tuple[float, float]:
        """The least and the largest value that y may take in any of the rows."""
        if len(self) == 0:
            return -np.inf, np.inf
        return float(self.ppf(0.0).min()), float(self.ppf(1.0).max())

    @property
    def is_discrete(self) -> bool:
        """Whether y takes single values only."""
        return False

    @property
    def atoms(self) -> Array:
        """The single values that may have a positive probability, ascending."""
        return np.empty(0)

    @property
    def masses(self) -> Array:
        """Probabilities of the atoms, shape (n, atoms)."""
        return np.empty((len(self), 0))

    # Other libraries.

    def to_scipy(self) -> Any:
        """Return the same distributions as one of scipy.stats.

        A density becomes one of the new infrastructure of scipy.stats where it is there (scipy
        1.16 and later), with `pdf`, `cdf`, `icdf`, `mean` and so on, and a frozen distribution of
        the old kind before that. So do counts. It has shape (n,). Laws with a density and atoms
        have no counterpart in scipy.

        Examples
        --------
        >>> from mcdensity.distribution import GaussianMixtureDistribution
        >>> law = GaussianMixtureDistribution([[1.0], [1.0]], [[0.0], [3.0]], [[1.0], [2.0]])
        >>> law.to_scipy().mean()
        array([0., 3.])
        """
        from mcdensity.distribution.to_scipy import to_scipy

        return to_scipy(self)

    def to_skpro(self, index: Any = None, columns: Any = None) -> Any:
        """Return the same distributions as one of skpro, of shape (n, 1); needs extra `skpro`.

        Parameters
        ----------
        index : Index, optional
            Names of the rows; by default their numbers.
        columns : Index of one entry, optional
            Name of the target.
        """
        from mcdensity._validation import require

        require("skpro", "skpro")
        from mcdensity.distribution.to_skpro import LawDistribution

        return LawDistribution(self, index=index, columns=columns)

    # Shapes.

    def _probabilities(self, q: ArrayLike, name: str) -> Array:
        q = np.asarray(q, dtype=np.float64)
        if not ((q >= 0) & (q <= 1)).all():
            raise ValueError(f"{name} must hold probabilities between 0 and 1.")
        return q

    def _by_row(self, function: Callable[[Array], Array], y: ArrayLike, name: str) -> Array:
        y = np.asarray(y, dtype=np.float64)
        n = len(self)
        if np.isnan(y).any():
            raise ValueError(f"{name} contains NaN; give only numbers.")
        if y.ndim == 0 or y.shape == (n,):
            return function(np.broadcast_to(y, (n,))[:, None])[:, 0]
        if y.ndim == 2 and len(y) == n:
            return function(y)
        raise ValueError(
            f"{name} must be a scalar, of shape ({n},) with one value per row, or of shape "
            f"({n}, m); got shape {y.shape}. For values that all rows share use pdf_grid, "
            "cdf_grid or ppf_grid."
        )

    def _shared(self, values: ArrayLike, name: str) -> Array:
        values = np.asarray(values, dtype=np.float64)
        if values.ndim != 1:
            raise ValueError(
                f"{name} must be one-dimensional, shared by all rows; got shape {values.shape}."
            )
        if np.isnan(values).any():
            raise ValueError(f"{name} contains NaN; give only numbers.")
        return np.broadcast_to(values, (len(self), len(values)))

    def _summary_columns(self) -> tuple[tuple[str, ...], Array]:
        columns = np.column_stack([self.median(), self.interval(0.9)])
        return ("median", "5 %", "95 %"), columns

    def _pictures(self) -> tuple[str, list[str]]:
        from mcdensity.distribution.inline import row_pictures

        return row_pictures(self)

    def _row_text(self, row: list[str]) -> str:
        number, median, low, high = row
        interval = "90 % interval" if number == "row" else f"[{low}, {high}]"
        return f"{number:>5}{median:>12}   {interval}"


def check_coverage(coverage: float) -> float:
    """Check that a coverage lies strictly between 0 and 1."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage!r}.")
    return float(coverage)
