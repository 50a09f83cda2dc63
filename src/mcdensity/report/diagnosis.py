"""Assessment of an estimator on held-out rows: numbers, and warnings in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.model_selection import KFold

from mcdensity import metrics
from mcdensity._numbers import readable
from mcdensity.distribution import ConditionalDistribution
from mcdensity.distribution.joint import refuse_joint
from mcdensity.estimator import ConditionalEstimator
from mcdensity.inspection import permutation_importance

__all__ = [
    "RARE",
    "Evaluation",
    "chance_of",
    "evaluate",
    "importance",
    "measured",
    "warn_of_calibration",
]

Array = NDArray[np.float64]

# A warning needs to be this unlikely where the distributions are right: a report makes about ten
# tests, so that one report in twenty has a false warning.
RARE = 0.005
# With fewer rows the standard error of a coverage of 90 % is above 4 %.
_FEW = 50
# Rows whose features are shuffled to see what each is worth, and how often; each feature costs as
# many predictions.
_IMPORTANCE_ROWS, _IMPORTANCE_REPEATS = 200, 3
# Rows of a bin: as many as it takes to find that 90 % intervals hold only 70 % of them.
_LEAST_BIN = 40
# A log-density so much below the mean is a density 160,000 times smaller.
_HARDLY_POSSIBLE = 12


@dataclass
class Evaluation:
    """Numbers about predicted distributions and the outcomes.

    Attributes
    ----------
    distribution, y, density : the predictions, the outcomes, and the log-density of each
    log_likelihood, log_likelihood_error : mean and its standard error
    gain : log-likelihood above that of the density of y alone (estimated on these rows)
    crps, mae, rmse : of the distributions, of the median, of the mean
    pit_p_value : of the Kolmogorov-Smirnov test that the PIT is uniform
    coverage, width : by the level of the central interval
    nominal : what the intervals should cover: the level, or more where laws have atoms
    importance : features and the log-likelihood lost when they are shuffled, largest first
    importance_error : standard errors of these losses, over shufflings
    warnings : list of str
    """

    distribution: ConditionalDistribution
    y: Array
    density: Array
    log_likelihood: float
    log_likelihood_error: float
    gain: float
    crps: float
    mae: float
    rmse: float
    pit_p_value: float
    coverage: dict[float, float]
    width: dict[float, float]
    nominal: dict[float, float]
    importance: list[tuple[Any, float]] = field(default_factory=list)
    importance_error: dict[Any, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def what(self) -> str:
        """What likelihoods are made of: "density", or "mass" of single values."""
        return "mass" if self.distribution.is_discrete else "density"

    def chance(self, level: float) -> tuple[float, float]:
        """Return the coverages that 19 of 20 samples would show if the distributions were right."""
        return chance_of(self.nominal.get(level, level), self.n_rows)

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers alone, ready for JSON."""
        names = ("n_rows", "log_likelihood", "log_likelihood_error", "gain", "crps", "mae", "rmse",
                 "pit_p_value")  # fmt: skip
        out: dict[str, Any] = {name: getattr(self, name) for name in names}
        if np.isnan(self.gain):  # too few rows to know the density of y alone
            out["gain"] = None
        out["coverage"] = {f"{level:g}": share for level, share in self.coverage.items()}
        out["width"] = {f"{level:g}": width for level, width in self.width.items()}
        if self.importance:
            out["importance"] = {str(name): loss for name, loss in self.importance}
            out["importance_error"] = {str(n): error for n, error in self.importance_error.items()}
        return out | {"warnings": self.warnings}


def chance_of(share: float, n: int) -> tuple[float, float]:
    """Return the shares of n rows that 19 of 20 samples would show."""
    low, high = stats.binom.ppf([0.025, 0.975], n, share) / n
    return float(low), float(high)


def evaluate(
    estimator: ConditionalEstimator,
    X: Any,
    y: ArrayLike,
    *,
    levels: Sequence[float] = (0.5, 0.8, 0.9, 0.95),
    importances: bool = False,
    random_state: Any = 0,
) -> Evaluation:
    """Measure an estimator on held-out rows.

    Parameters
    ----------
    estimator : ConditionalEstimator
        Fitted to other rows than these.
    X : DataFrame or array of shape (n, p)
    y : array-like of shape (n,)
    levels : sequence of float
        Central intervals whose coverage is counted; 0.9 is always among them.
    importances : bool, default False
        Whether to measure how much each feature matters, by shuffling it.
    random_state : int, Generator, RandomState or None
        For the shuffling.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> from mcdensity import MCD
    >>> from mcdensity.report import evaluate
    >>> from mcdensity.simulators import get_simulator
    >>> X, y = get_simulator("EconDensity").sample(600, random_state=0)
    >>> model = MCD("quadratic", random_state=0).fit(X[:300], y[:300])
    >>> evaluate(model, X[300:], y[300:]).gain > 0
    True
    """
    outcomes = estimator._check_points(y, "y").ravel()
    if len(outcomes) < 2:
        raise ValueError(f"y has {len(outcomes)} rows; at least 2 are needed to say anything.")
    distribution = estimator.predict_distribution(X)
    refuse_joint(distribution, "`mcdensity.report.evaluate`")
    if len(distribution) != len(outcomes):
        raise ValueError(f"X has {len(distribution)} rows and y has {len(outcomes)}.")
    density = estimator.logpdf(X, outcomes)
    out = measured(distribution, outcomes, density, levels)
    if importances:
        out.importance, out.importance_error = importance(estimator, X, outcomes, random_state)
    out.warnings = [*warn_of_calibration(out), *_warn_of_data(estimator, X, out)]
    return out


def measured(
    distribution: ConditionalDistribution, outcomes: Array, density: Array, levels: Sequence[float]
) -> Evaluation:
    """Measure laws and outcomes; see `evaluate`."""
    _check_numbers(distribution, density)
    coverage, width, nominal = {}, {}, {}
    for level in sorted({*levels, 0.9}):
        low, high = distribution.interval(level).T
        nominal[level] = level
        if len(distribution.atoms):
            held = distribution.cdf(high) - distribution.cdf(low) + distribution.pmf(low)
            nominal[level] = float(held.mean())
        coverage[level] = float(np.mean((outcomes >= low) & (outcomes <= high)))
        width[level] = float(np.mean(high - low))
    return Evaluation(
        distribution,
        outcomes,
        density,
        log_likelihood=float(density.mean()),
        log_likelihood_error=float(density.std(ddof=1) / np.sqrt(len(density))),
        gain=float(density.mean() - _alone(outcomes, distribution)),
        crps=metrics.crps(distribution, outcomes),
        mae=float(np.abs(outcomes - distribution.median()).mean()),
        rmse=float(np.sqrt(np.mean((outcomes - distribution.mean()) ** 2))),
        pit_p_value=float(stats.kstest(metrics.pit(distribution, outcomes), "uniform").pvalue),
        coverage=coverage,
        width=width,
        nominal=nominal,
    )


def _check_numbers(distribution: ConditionalDistribution, density: Array) -> None:
    """Refuse to average what is not a number."""
    wrong = np.isnan(density) | np.isnan(distribution.mean()) | np.isnan(distribution.median())
    if wrong.any():
        rows = np.flatnonzero(wrong)
        raise ValueError(
            f"The model predicts no number for {len(rows):,} of {len(density):,} rows (the first "
            f"is row {rows[0]}): look at the features of these rows, or fit the model again."
        )


def _alone(y: Array, law: ConditionalDistribution) -> float:
    """Mean log-likelihood of y under its own law, each half scored by the other.

    The law has the atoms of the predicted ones: likelihoods of different measures do not compare.
    """
    from mcdensity.baselines import MarginalBaseline
    from mcdensity.marginals import Masses

    if len(y) < 10 or np.ptp(y) == 0:
        return float("nan")
    total = 0.0
    for train, test in KFold(2, shuffle=True, random_state=0).split(y):
        known, new = y[train], y[test]
        if law.is_discrete:
            found = Masses(law.support).fit(known).log_mass(new)
            total += float(np.maximum(found, -np.log(len(y))).sum())
            continue
        for atom in law.atoms:
            share = ((known == atom).sum() + 0.5) / (len(known) + 1)
            total += float(np.log(share) * (new == atom).sum())
        rest, new = (values[~np.isin(values, law.atoms)] for values in (known, new))
        if len(rest) < 4 or np.ptp(rest) == 0:
            return float("nan")
        nothing = np.zeros((len(rest), 1)), np.zeros((len(new), 1))
        if len(new):
            model = MarginalBaseline().fit(nothing[0], rest)
            total += float((model.logpdf(nothing[1], new) + np.log(len(rest) / len(known))).sum())
    return total / len(y)


def importance(
    estimator: Any, X: Any, y: Array, random_state: Any, n_rows: int = _IMPORTANCE_ROWS
) -> tuple[list[tuple[Any, float]], dict[Any, float]]:
    """Return features and the log-likelihood lost when shuffled, largest first, and its errors."""
    found = permutation_importance(
        estimator,
        X,
        y,
        n_repeats=_IMPORTANCE_REPEATS,
        n_rows=n_rows,
        random_state=random_state,
    )
    columns = (found["feature"].tolist(), found["importance"].tolist(), found["std_error"].tolist())
    features, losses, errors = columns
    return list(zip(features, losses, strict=True)), dict(zip(features, errors, strict=True))


def warn_of_calibration(e: Evaluation) -> list[str]:
    """Say in plain words what is wrong with the laws."""
    out = []
    if e.n_rows < _FEW:
        out.append(f"There are only {e.n_rows} held-out rows: all numbers here are uncertain.")
    inside = round(e.coverage[0.9] * e.n_rows)
    p_low = float(stats.binom.cdf(inside, e.n_rows, e.nominal[0.9]))
    p_high = float(stats.binom.sf(inside - 1, e.n_rows, e.nominal[0.9]))
    if p_low < RARE:
        out.append(
            f"Intervals are too narrow: the 90 % intervals hold only {100 * e.coverage[0.9]:.0f} % "
            "of the outcomes."
        )
    elif p_high < RARE:
        out.append(
            f"Intervals are too wide: the 90 % intervals hold {100 * e.coverage[0.9]:.0f} % of the "
            "outcomes."
        )
    out += _warn_by_size(e)
    level = metrics.pit(e.distribution, e.y)
    # The mean of n uniform numbers: standard deviation 1 / sqrt(12 n).
    shift = (level.mean() - 0.5) * np.sqrt(12 * e.n_rows)
    if abs(shift) > stats.norm.isf(RARE / 2):
        where = "lower" if shift < 0 else "higher"
        out.append(f"Outcomes tend to be {where} than predicted (mean PIT {level.mean():.2f}).")
    elif e.pit_p_value < RARE and not out:
        out.append(
            "The distributions do not quite have the right shape: the PIT is not uniform "
            f"(p = {e.pit_p_value:.1g})."
        )
    if e.gain <= 0:
        out.append(
            "The features tell nothing about the target here: the density of y alone is as likely "
            f"(gain {e.gain:+.3f})."
        )
    worst = float(e.density.min())
    if worst < e.log_likelihood - _HARDLY_POSSIBLE:
        many = int((e.density < e.log_likelihood - _HARDLY_POSSIBLE).sum())
        out.append(
            f"{many} outcome{'s are' if many > 1 else ' is'} all but impossible under the "
            "prediction; see the worst rows."
        )
    return out


def _warn_by_size(e: Evaluation) -> list[str]:
    """Find ranges of the predicted median where intervals are too narrow or too wide."""
    n_bins = min(5, e.n_rows // _LEAST_BIN)
    if n_bins < 2:
        return []
    median = e.distribution.median()
    low, high = e.distribution.interval(0.9).T
    inside = (e.y >= low) & (e.y <= high)
    edges = np.quantile(median, np.linspace(0, 1, n_bins + 1))
    found: list[tuple[str, float, float]] = []
    for k in range(n_bins):
        chosen = (median >= edges[k]) & (
            (median < edges[k + 1]) if k < n_bins - 1 else (median <= edges[k + 1])
        )
        n, hits = int(chosen.sum()), int(inside[chosen].sum())
        if n < _LEAST_BIN // 2:
            continue
        if stats.binom.cdf(hits, n, 0.9) < RARE / n_bins:
            word = "narrow"
        elif not len(e.distribution.atoms) and stats.binom.sf(hits - 1, n, 0.9) < RARE / n_bins:
            word = "wide"
        else:
            continue
        if found and found[-1][0] == word and found[-1][2] == edges[k]:
            found[-1] = (word, found[-1][1], edges[k + 1])
        else:
            found.append((word, edges[k], edges[k + 1]))
    out = []
    for word, a, b in found:
        if a == edges[0] and b == edges[-1]:
            continue  # everywhere: already reported
        if a == edges[0]:
            where = f"below {readable(b, 3)}"
        elif b == edges[-1]:
            where = f"above {readable(a, 3)}"
        else:
            where = f"between {readable(a, 3)} and {readable(b, 3)}"
        out.append(f"Intervals are too {word} where the predicted median is {where}.")
    return out


def _warn_of_data(estimator: ConditionalEstimator, X: Any, e: Evaluation) -> list[str]:
    out = []
    few = len(np.unique(e.y)) <= max(10, e.n_rows // 20)
    if few and e.n_rows >= _FEW and len(e.distribution.atoms) == 0:
        out.append(
            f"The target has only {len(np.unique(e.y))} different values, like counts or rounded "
            "numbers: quantiles and intervals are meaningful, but a log-likelihood should not "
            "be compared between methods."
        )
    preparation = getattr(estimator, "preparation_", None)
    if preparation is None or not hasattr(X, "iloc"):
        return out
    seen = estimator.share_seen(X, e.y)
    if seen > 0.05:
        out.insert(
            0,
            f"About {100 * seen:.0f} % of these rows were used to fit the model: all numbers here "
            "are too optimistic. Use rows that were held out.",
        )
    numbers = zip(preparation.ranges_.items(), preparation.numbers_of(X).T, strict=True)
    for (name, (low, high)), values in numbers:
        beyond = int(((values < low) | (values > high)).sum())
        if beyond > max(1, 0.01 * e.n_rows):
            out.append(
                f"{beyond} rows have {name!r} outside of what was seen in training "
                f"({readable(low)} to {readable(high)}): their distributions are guesses."
            )
    return out
