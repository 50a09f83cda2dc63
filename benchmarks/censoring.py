"""What half of the outcomes being lower bounds costs: KL to the known law of durations.

Three laws of durations that depend on x, 1000 training rows of which about half are censored at
random times, three seeds. The KL divergence is that of the truth from the fit, over 500 new rows.
"half" is a fit to 500 rows, all seen; "ignored" takes bounds for outcomes, "dropped" leaves them
out. Censored outcomes are not missing at random: where durations are long, next to none is seen.
`bound` prints what follows for a model that knows the family of the law, and learns its two
parameters at each x: by how much censoring multiplies the part of the KL divergence that is due to
the number of rows, trace(I_all / I_censored) / 2 with Fisher's information I.

    python benchmarks/censoring.py > benchmarks/censoring.txt
    python benchmarks/censoring.py bound
"""

import sys

import numpy as np
from scipy import stats

from mcdensity import MCD

ROWS, NEW, SEEDS = 1000, 500, (0, 1, 2)
METHODS = (("auto", "normal"), ("mixture", "normal"), ("auto", "fast"), ("quadratic", "fast"))


def lognormal(X: np.ndarray):
    """A wave in the middle, a step in the spread."""
    spread, middle = 0.3 + 0.3 * (X[:, 0] > 0), np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    return stats.lognorm(spread, scale=np.exp(middle))


def weibull(X: np.ndarray):
    """Hazards that rise or fall."""
    return stats.weibull_min(np.exp(0.5 + 0.4 * X[:, 1]), scale=np.exp(0.7 * X[:, 0]))


def gamma(X: np.ndarray):
    """Sums of more or fewer waiting times."""
    return stats.gamma(1 + 3 / (1 + np.exp(-2 * X[:, 0])), scale=np.exp(0.4 * X[:, 0] * X[:, 1]))


LAWS = (lognormal, weibull, gamma)


def divergence(model: MCD, X: np.ndarray, law_of) -> float:
    """Mean log-ratio of the true density to the model's, at outcomes of the true law."""
    law, truth = model.predict_distribution(X), law_of(X)
    levels = (np.arange(40) + 0.5) / 40
    return float(
        np.mean([np.mean(truth.logpdf(y) - law.logpdf(y)) for y in map(truth.ppf, levels)])
    )


def durations(law_of, seed: int):
    """Training rows, new rows, outcomes, and times at which these are censored."""
    rng = np.random.default_rng(seed)
    X, new = rng.normal(size=(ROWS, 2)), rng.normal(size=(NEW, 2))
    y = law_of(X).rvs(random_state=rng)
    return X, new, y, np.median(y) * np.exp(rng.normal(size=ROWS))


def row(discriminator: str, effort: str, law_of, seed: int) -> list[float]:
    """KL divergences of the five fits."""
    X, new, y, end = durations(law_of, seed)
    censored, bound = y > end, np.minimum(y, end)
    every, half = slice(None), slice(0, ROWS // 2)
    fits = ((y, None, every), (y, None, half), (bound, censored, every),
            (bound, None, every), (bound, None, ~censored))  # fmt: skip
    found = []
    for target, flags, rows in fits:
        model = MCD(discriminator, effort=effort, random_state=seed)
        found.append(divergence(model.fit(X[rows], target[rows], censored=flags), new, law_of))
    return found


def main() -> None:
    """Print a table."""
    names = ("all seen", "half", "censored", "ignored", "dropped")
    head = "".join(f"{name:>10}" for name in names)
    print(f"{'method':18}{'law':10}{head}{'ratio':>8}{'seeds':>20}")
    for discriminator, effort in METHODS:
        for law_of in LAWS:
            found = np.array([row(discriminator, effort, law_of, seed) for seed in SEEDS])
            mean = found.mean(axis=0)
            numbers = "".join(f"{value:10.4f}" for value in mean)
            each = " ".join(f"{value:.2f}" for value in found[:, 2] / found[:, 0])
            print(
                f"{discriminator + ', ' + effort:18}{law_of.__name__:10}{numbers}"
                f"{mean[2] / mean[0]:8.2f}{each:>20}",
                flush=True,
            )


def information() -> None:
    """Print by how much censoring multiplies the error of a local model of the right family."""
    levels = (np.arange(200) + 0.5) / 200
    X = np.random.default_rng(0).normal(size=(1000, 2))
    ends = stats.norm.ppf(levels)  # logarithms of the times, in units of the median of y
    y = {law: durations(law, 0)[2] for law in (lognormal, weibull)}
    for law_of in (lognormal, weibull):
        # Of log y: location and scale; the density and the survivor of the standardised variable.
        if law_of is lognormal:
            spread, middle = law_of(X).args[0], np.log(law_of(X).kwds["scale"])
            unit, slope = stats.norm, lambda z: -z
        else:
            spread, middle = 1 / law_of(X).args[0], np.log(law_of(X).kwds["scale"])
            unit, slope = stats.gumbel_l, lambda z: 1 - np.exp(z)
        z = unit.ppf(levels)[:, None]
        whole = _information(-slope(z), -1 - z * slope(z))
        found = []
        for m, s in zip(middle, spread, strict=True):
            limit = (np.log(np.median(y[law_of])) + ends - m)[None, :] / s
            hazard = np.exp(unit.logpdf(limit) - unit.logsf(limit))
            seen = z <= limit
            part = _information(
                np.where(seen, -slope(z), hazard),
                np.where(seen, -1 - z * slope(z), limit * hazard),
            )
            found.append(np.trace(whole @ np.linalg.inv(part + 1e-3 * np.eye(2))) / 2)
        print(f"{law_of.__name__}: {np.mean(found):.2f} (median {np.median(found):.2f})")


def _information(location: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Mean outer product of the two scores."""
    both = np.stack(np.broadcast_arrays(location, scale)).reshape(2, -1)
    return both @ both.T / both.shape[1]


if __name__ == "__main__":
    information() if sys.argv[1:] == ["bound"] else main()
