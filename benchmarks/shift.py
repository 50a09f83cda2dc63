"""What weights do for conformal intervals where new rows have other x than the held-out ones.

The law of y given x is known: a mean that bends, a spread that grows with x. Held-out rows have
x ~ N(0, 1), new rows x ~ N(1.2, 0.8²), so that the density ratio is known as well. The model, a
discriminator of second order, is too poor for the bend, and its intervals are corrected by 1000
held-out rows: without weights, with the true ratio, and with what `mcdensity.shift.weights` learns.
40 repetitions; the standard error is that of the mean over these.

    python benchmarks/shift.py > benchmarks/shift.txt
"""

import numpy as np
from scipy import stats

from mcdensity import MCD, shift

REPETITIONS, ROWS, HELD, NEW, COVERAGE = 40, 500, 1000, 2000, 0.9
OLD, SHIFTED = stats.norm(0.0, 1.0), stats.norm(1.2, 0.8)


def outcomes(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw y given x."""
    return np.sin(2 * x) + (0.3 + 0.5 * np.maximum(x, 0)) * rng.normal(size=len(x))


def covered(model: MCD, X: np.ndarray, y: np.ndarray, **options: object) -> tuple[float, float]:
    """Share of outcomes in their intervals, and median width of these."""
    low, high = model.predict_interval(X, COVERAGE, conformal=True, **options).T
    return float(((low <= y) & (y <= high)).mean()), float(np.median(high - low))


def repetition(seed: int) -> np.ndarray:
    """Coverage and width: no shift; under it without, with true and with learned weights."""
    rng = np.random.default_rng(seed)
    old, held, same = (rng.normal(size=(n, 1)) for n in (ROWS, HELD, NEW))
    new = SHIFTED.rvs(size=(NEW, 1), random_state=rng)
    model = MCD("quadratic", random_state=seed).fit(old, outcomes(old[:, 0], rng))
    y = outcomes(held[:, 0], rng)
    y_same, y_new = outcomes(same[:, 0], rng), outcomes(new[:, 0], rng)
    model.conformalize(held, y)
    found = [covered(model, same, y_same), covered(model, new, y_new)]
    true = [np.exp(SHIFTED.logpdf(x[:, 0]) - OLD.logpdf(x[:, 0])) for x in (held, new)]
    learned = shift.weights(held, new, return_new=True)
    for weight, weight_new in (true, learned):
        model.conformalize(held, y, sample_weight=weight)
        found.append(covered(model, new, y_new, sample_weight=weight_new))
    return np.array(found)


def main() -> None:
    """Print a table."""
    found = np.array([repetition(seed) for seed in range(REPETITIONS)])
    names = ("no shift", "shift, no weights", "shift, true weights", "shift, learned weights")
    print(f"{'':24}{'coverage':>10}{'std. error':>12}{'errors off':>12}{'width':>8}")
    for j, name in enumerate(names):
        share = found[:, j, 0]
        error = share.std(ddof=1) / np.sqrt(REPETITIONS)
        off = (share.mean() - COVERAGE) / error
        width = found[:, j, 1].mean()
        print(f"{name:24}{share.mean():10.4f}{error:12.4f}{off:12.1f}{width:8.2f}")


if __name__ == "__main__":
    main()
