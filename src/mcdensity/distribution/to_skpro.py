"""Laws as distributions of skpro; the extra `skpro` has what is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from skpro.distributions.base import BaseDistribution

from mcdensity.distribution.base import Array
from mcdensity.distribution.univariate import ConditionalDistribution

__all__ = ["LawDistribution"]


class LawDistribution(BaseDistribution):
    """Distributions of y given rows of X, for skpro: shape (n, 1), or a scalar.

    Parameters
    ----------
    law : ConditionalDistribution
    index : Index, optional
        Names of the rows; by default their numbers.
    columns : Index of one entry, optional
        Name of the target. One row without either is a scalar.

    Examples
    --------
    >>> from mcdensity.distribution import GaussianMixtureDistribution
    >>> law = GaussianMixtureDistribution([[1.0], [1.0]], [[0.0], [3.0]], [[1.0], [2.0]])
    >>> law.to_skpro().mean()
         0
    0  0.0
    1  3.0
    """

    _tags = {  # noqa: RUF012
        "capabilities:approx": ["energy", "pdfnorm"],
        "capabilities:exact": [
            "mean", "var", "pdf", "log_pdf", "pmf", "log_pmf", "cdf", "surv", "ppf",
        ],
        "distr:measuretype": "mixed",
        "distr:paramtype": "nonparametric",
    }  # fmt: skip

    def __init__(
        self, law: ConditionalDistribution, index: Any = None, columns: Any = None
    ) -> None:
        self.law = law
        if index is not None or columns is not None or len(law) != 1:
            index = pd.RangeIndex(len(law)) if index is None else index
            columns = pd.RangeIndex(1) if columns is None else columns
            if len(index) != len(law) or len(columns) != 1:
                raise ValueError(
                    f"index must name the {len(law)} rows, and columns one target; got "
                    f"{len(index)} and {len(columns)} names."
                )
        super().__init__(index=index, columns=columns)
        kind = "mixed" if len(law.atoms) else "continuous"
        self.set_tags(**{"distr:measuretype": "discrete" if law.is_discrete else kind})

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> LawDistribution:
        if np.ndim(rowidx) == np.ndim(colidx) == 0 and rowidx is not None and colidx is not None:
            return self._iat(rowidx, colidx)
        rows = np.arange(len(self.law)) if rowidx is None else np.atleast_1d(rowidx)
        target = np.arange(1) if colidx is None else np.atleast_1d(colidx)
        return LawDistribution(self.law[rows], self.index.take(rows), self.columns.take(target))

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> LawDistribution:
        if rowidx is None or colidx is None:
            raise ValueError("iat needs the number of a row, and that of the column.")
        return LawDistribution(self.law[[int(rowidx)]])

    def _at_points(self, method: str, x: Any) -> Array:
        """Apply a method of the law to an array of the shape of this distribution."""
        points = np.asarray(x, dtype=np.float64)
        return getattr(self.law, method)(points.reshape(len(self.law), 1)).reshape(points.shape)

    def _numbers(self, values: Array) -> Array:
        return values.reshape(self.shape)

    def _pmf(self, x: Any) -> Array:
        return self._at_points("_pmf", x)

    def _log_pmf(self, x: Any) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self._pmf(x))

    def _log_pdf(self, x: Any) -> Array:
        # skpro's densities have no part in atoms; ours are the mass there.
        atoms = np.isin(np.asarray(x, dtype=np.float64), self.law.atoms)
        return np.where(atoms | self.law.is_discrete, -np.inf, self._at_points("_logpdf", x))

    def _pdf(self, x: Any) -> Array:
        return np.exp(self._log_pdf(x))

    def _cdf(self, x: Any) -> Array:
        return self._at_points("_cdf", x)

    def _surv(self, x: Any) -> Array:
        return self._at_points("_sf", x)

    def _ppf(self, p: Any) -> Array:
        return self._at_points("_ppf", p)

    def _mean(self) -> Array:
        return self._numbers(self.law.mean())

    def _var(self) -> Array:
        return self._numbers(self.law.var())

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return parameters for skpro's tests."""
        from mcdensity.distribution.mixture import GaussianMixtureDistribution

        def law(n: int) -> GaussianMixtureDistribution:
            means = np.arange(2.0 * n).reshape(n, 2)
            return GaussianMixtureDistribution(np.ones((n, 2)), means, np.ones((n, 2)))

        names = {"index": pd.Index([1, 2, 5]), "columns": pd.Index(["a"])}
        return [{"law": law(3), **names}, {"law": law(1)}]
