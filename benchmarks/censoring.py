"""What half of the outcomes being lower bounds costs: KL to the known law of durations.

Log-normal durations whose middle and spread depend on x, 1000 training rows of which about half are
censored at random times, three seeds. The KL divergence is that of the truth from
the fit, over 500 new rows.

    python benchmarks/censoring.py > benchmarks/censoring.txt
"""

import numpy as np
from scipy import stats

from mcdensity import MCD

ROWS, NEW, SEEDS = 1000, 500, (0, 1, 2)
METHODS = (
    ("mixture", "fast"), ("auto", "fast"), ("flow", "fast"), ("quadratic", "fast"),
    ("mixture", "normal"),
)  # fmt: skip


def law_of(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Middle and spread of the logarithm of the duration."""
    return np.sin(2 * X[:, 0]) + 0.5 * X[:, 1], 0.3 + 0.3 * (X[:, 0] > 0)


def divergence(model: MCD, X: np.ndarray, rng: np.random.Generator) -> float:
    """Mean log-ratio of the true density to the model's, at outcomes of the true law."""
    middle, spread = law_of(X)
    total = 0.0
    law = model.predict_distribution(X)
    for level in (np.arange(40) + 0.5) / 40:
        y = stats.lognorm.ppf(level, spread, scale=np.exp(middle))
        total += np.mean(stats.lognorm.logpdf(y, spread, scale=np.exp(middle)) - law.logpdf(y))
    return float(total / 40)


def main() -> None:
    """Print a table."""
    names = ("all seen", "censored", "ignored", "dropped")
    print(f"{'method':18}" + "".join(f"{name:>10}" for name in names) + f"{'ratio':>8}")
    for discriminator, effort in METHODS:
        found = []
        for seed in SEEDS:
            rng = np.random.default_rng(seed)
            X, new = rng.normal(size=(ROWS, 2)), rng.normal(size=(NEW, 2))
            middle, spread = law_of(X)
            y = np.exp(middle + spread * rng.normal(size=ROWS))
            end = np.exp(rng.normal(0.0, 1.0, size=ROWS))
            censored, bound = y > end, np.minimum(y, end)
            seen = ~censored
            fits = ((y, None, slice(None)), (bound, censored, slice(None)),
                    (bound, None, slice(None)), (bound, None, seen))  # fmt: skip
            row = []
            for target, flags, rows in fits:
                model = MCD(discriminator, effort=effort, random_state=seed)
                model.fit(X[rows], target[rows], censored=flags)
                row.append(divergence(model, new, rng))
            found.append(row)
        mean = np.mean(found, axis=0)
        numbers = "".join(f"{value:10.4f}" for value in mean)
        print(f"{discriminator + ', ' + effort:18}{numbers}{mean[1] / mean[0]:8.2f}", flush=True)


if __name__ == "__main__":
    main()
