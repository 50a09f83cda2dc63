"""What `MCD(calibrate=True)` and `recalibrate` do to levels and likelihood of new rows.

1000 training rows, 1000 held-out ones for `recalibrate`, up to 5000 new ones, three seeds each,
little effort. The KS distance is that of the levels F(y|x) of the new rows from the uniform law: of
5000 rows it is 0.012 by chance alone. JumpDiffusion is a time series whose new rows come later than
its training rows, with other x: what is off there, training rows cannot tell. "shuffled" are the
days of the same series in random order.

    MCDENSITY_DATA=... python benchmarks/recalibration.py > benchmarks/recalibration.txt
"""

import numpy as np
from scipy.stats import kstest

from mcdensity import MCD
from mcdensity.datasets import load_dataset
from mcdensity.simulators import get_simulator, list_simulators

SETS = (
    "EconDensity", "SkewNormal", "GaussianMixture", "InverseSinusoid", "Power", "Protein",
    "JumpDiffusion, shuffled", "JumpDiffusion",
)  # fmt: skip
SEEDS, ROWS, NEW = (20, 21, 22), 1000, 5000


def rows_of(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a simulator or of a real set, in random order; of a series, in that of time."""
    size = 2 * ROWS + NEW
    base, *shuffled = name.split(", ")
    if base in list_simulators():
        X, y = get_simulator(base).sample(size, random_state=seed)
        if not shuffled:
            return X, y
    else:
        data = load_dataset(base)
        X, y = data.X.to_numpy(), np.asarray(data.y)
    some = np.random.default_rng(seed).permutation(len(y))[:size]
    return X[some], y[some]


def scores(model: MCD, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """KS distance and mean log-likelihood of new rows."""
    law = model.predict_distribution(X)
    return kstest(law.cdf(y), "uniform").statistic, law.logpdf(y).mean()


def measured(discriminator: str, name: str, seed: int) -> np.ndarray:
    """KS distance and log-likelihood: as fitted, with calibrate=True, and after recalibrate."""
    X, y = rows_of(name, seed)
    new = slice(2 * ROWS, None)
    model = MCD(discriminator, effort="fast", random_state=seed, calibrate=True)
    model.fit(X[:ROWS], y[:ROWS])
    found = [scores(model, X[new], y[new])]
    # The model without calibrate=True is the same but for this.
    vars(model).pop("calibration_", None)
    found.insert(0, scores(model, X[new], y[new]))
    model.recalibrate(X[ROWS : 2 * ROWS], y[ROWS : 2 * ROWS])
    found.append(scores(model, X[new], y[new]))
    return np.array(found)


def main() -> None:
    """Print a table."""
    print(f"{'':35}{'KS distance':^27}{'log-likelihood':^27}")
    heads = "".join(f"{head:>9}" for head in 2 * ("fitted", "calib.", "recal."))
    print(f"{'method':11}{'set':24}{heads}")
    for discriminator in ("auto", "quadratic"):
        table = []
        for name in SETS:
            found = np.mean([measured(discriminator, name, seed) for seed in SEEDS], axis=0)
            table.append(found)
            numbers = "".join(f"{value:9.3f}" for value in found.T.ravel())
            print(f"{discriminator:11}{name:24}{numbers}", flush=True)
        # The series in the order of time is another question.
        distance, likelihood = np.array(table)[:-1].transpose(2, 1, 0)
        for way, after, gain in zip(
            ("calibrate=True", "recalibrate"), distance[1:], likelihood[1:] - likelihood[0],
            strict=True,
        ):  # fmt: skip
            fall = 1 - after.mean() / distance[0].mean()
            print(
                f"{discriminator}, {way}, without the last: KS falls by {100 * fall:.0f} % on "
                f"average, rises by {(after - distance[0]).max():.4f} at most; likelihood gains "
                f"{gain.min():.4f} at least",
                flush=True,
            )
            far = distance[0] > 0.06
            if far.any():
                fall = 1 - after[far].mean() / distance[0][far].mean()
                print(f"    where it is above 0.06 ({far.sum()} sets) by {100 * fall:.0f} %")


if __name__ == "__main__":
    main()
