"""What `MCD(calibrate=True)` does to levels and likelihood of new rows.

1000 training rows, up to 4000 new ones, three seeds each, little effort. The KS distance is that
of the levels F(y|x) of the new rows from the uniform law. JumpDiffusion is a time series whose new
rows come later than its training rows: what is off there, training rows cannot tell.

    MCDENSITY_DATA=... python benchmarks/recalibration.py > benchmarks/recalibration.txt
"""

import numpy as np
from scipy.stats import kstest

from mcdensity import MCD
from mcdensity.datasets import load_dataset
from mcdensity.simulators import get_simulator, list_simulators

SETS = (
    "EconDensity", "SkewNormal", "GaussianMixture", "InverseSinusoid", "Power", "Protein",
    "JumpDiffusion",
)  # fmt: skip
SEEDS, ROWS, NEW = (0, 1, 2), 1000, 4000


def rows_of(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a simulator or of a real set, in random order."""
    if name in list_simulators():
        return get_simulator(name).sample(ROWS + NEW, random_state=seed)
    data = load_dataset(name)
    some = np.random.default_rng(seed).permutation(len(data.y))[: ROWS + NEW]
    return data.X.to_numpy()[some], np.asarray(data.y)[some]


def measured(discriminator: str, name: str, calibrate: bool) -> np.ndarray:
    """Mean KS distance and log-likelihood over the seeds."""
    found = []
    for seed in SEEDS:
        X, y = rows_of(name, seed)
        model = MCD(discriminator, effort="fast", random_state=seed, calibrate=calibrate)
        model.fit(X[:ROWS], y[:ROWS])
        law = model.predict_distribution(X[ROWS:])
        distance = kstest(law.cdf(y[ROWS:]), "uniform").statistic
        found.append((distance, law.logpdf(y[ROWS:]).mean()))
    return np.mean(found, axis=0)


def main() -> None:
    """Print a table."""
    print(f"{'method':12}{'set':18}{'KS':>8}{'after':>8}{'log-lik.':>10}{'after':>9}")
    for discriminator in ("quadratic", "auto"):
        table = []
        for name in SETS:
            before, after = (measured(discriminator, name, c) for c in (False, True))
            table.append((*before, *after))
            print(
                f"{discriminator:12}{name:18}{before[0]:8.3f}{after[0]:8.3f}"
                f"{before[1]:10.3f}{after[1]:9.3f}",
                flush=True,
            )
        table = np.array(table)
        far = table[:, 0] > 0.06
        if far.any():
            fall = 1 - table[far, 2].mean() / table[far, 0].mean()
            print(f"{discriminator}: KS above 0.06 falls by {100 * fall:.0f} % on average")
        print(f"{discriminator}: largest rise of KS {(table[:, 2] - table[:, 0]).max():.4f}")
        print(f"{discriminator}: least gain of likelihood {(table[:, 3] - table[:, 1]).min():.4f}")


if __name__ == "__main__":
    main()
