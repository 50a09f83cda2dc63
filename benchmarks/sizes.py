"""What the default costs from 200 to a million rows, and how fast it predicts when distilled.

    python benchmarks/sizes.py fit        # CPU seconds of one thread, "normal" and "fast"
    python benchmarks/sizes.py cores      # seconds on one core and on two
    python benchmarks/sizes.py predict    # rows a second, 3 quantiles of 100,000 rows, all cores
    python benchmarks/sizes.py distill [SET ...]    # log-likelihood that the distilled model loses
    python benchmarks/sizes.py million    # 10^6 rows of 20 columns against others (pinball loss)

`distill` needs the real data (MCDENSITY_DATA); all else is simulated: a smooth law with ten
features, some without effect, and heavy tails. Nothing else should run on the machine.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import Any

if len(sys.argv) > 1 and sys.argv[1] == "fit":
    os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from mcdensity import MCD, TableEstimator
from mcdensity.baselines import get_estimator
from mcdensity.benchmark.sizes import smooth_law
from mcdensity.datasets import load_dataset

LEVELS = (0.05, 0.5, 0.95)
# Flights, whose columns are of several kinds, is a table; of the others there are numbers only.
SETS = (
    "Power", "Protein", "Flights", "Concrete", "NYCTaxiLongitude", "NYCTaxiLatitude", "WineRed",
    "WineWhite", "SDSSBoss", "Kin8nm", "Energy",
)  # fmt: skip


def data(n: int, seed: int = 0) -> tuple[Any, Any]:
    return smooth_law(n, np.random.default_rng(seed))


def fit() -> None:
    MCD(random_state=0, n_jobs=1).fit(*data(60))
    print(f"{'rows':>7} {'normal':>8} {'fast':>8}   CPU seconds of one thread")
    for n in (200, 1000, 5000, 10_000, 20_000, 50_000, 100_000):
        seconds = []
        for effort in ("normal", "fast"):
            start = time.process_time()
            MCD(random_state=0, n_jobs=1, effort=effort).fit(*data(n))
            seconds.append(time.process_time() - start)
        print(f"{n:>7} {seconds[0]:>8.2f} {seconds[1]:>8.2f}", flush=True)


def cores() -> None:
    MCD(random_state=0).fit(*data(1000))  # processes are started once
    print(f"{'rows':>7} {'one':>8} {'two':>8} {'ratio':>6}   seconds")
    for n in (200, 1000, 5000, 10_000, 20_000, 100_000):
        seconds = []
        for jobs in (1, 2):
            start = time.perf_counter()
            MCD(random_state=0, n_jobs=jobs).fit(*data(n))
            seconds.append(time.perf_counter() - start)
        print(f"{n:>7} {seconds[0]:>8.2f} {seconds[1]:>8.2f} {seconds[0] / seconds[1]:>6.2f}")


def predict() -> None:
    X, _ = data(100_000, seed=1)
    print(f"{'rows fitted':>11} {'default':>9} {'distilled':>9}   rows a second")
    for n in (1000, 5000):
        model = MCD(random_state=0).fit(*data(n))
        rates = []
        for one in (model, model.distill(random_state=0)):
            one.predict_quantiles(X, LEVELS)
            start = time.perf_counter()
            one.predict_quantiles(X, LEVELS)
            rates.append(len(X) / (time.perf_counter() - start))
        print(f"{n:>11} {rates[0]:>9,.0f} {rates[1]:>9,.0f}", flush=True)


def distill() -> None:
    print(
        f"{'set':16} {'rows':>6} {'seconds':>7} {'rows a second':>14} {'model':>8} "
        f"{'distilled':>9} {'lost':>7} {'distill_loss_':>13}"
    )
    for name in sys.argv[2:] or SETS:
        X, y = load_dataset(name)[:2]
        order = np.random.default_rng(7).permutation(len(y))
        for n in (1000, 5000, 20_000):
            if len(y) < 1.15 * n and n > 1000:
                continue
            cut = min(n, int(0.8 * len(y)))
            train, test = order[:cut], order[cut : cut + 3000]
            model: Any = MCD(random_state=0)
            model = TableEstimator(model) if name == "Flights" else model
            model.fit(X.iloc[train], y[train])
            start = time.perf_counter()
            small = model.distill(random_state=0)
            seconds = time.perf_counter() - start
            many = X.iloc[np.resize(test, 30_000)]
            rates = []
            for one in (model, small):
                start = time.perf_counter()
                one.predict_quantiles(many, LEVELS)
                rates.append(len(many) / (time.perf_counter() - start) / 1000)
            scores = [one.score(X.iloc[test], y[test]) for one in (model, small)]
            print(
                f"{name:16} {cut:>6} {seconds:>7.1f} {rates[0]:>6.1f} {rates[1]:>6.1f}k "
                f"{scores[0]:>8.3f} {scores[1]:>9.3f} "
                f"{scores[0] - scores[1]:>7.3f} {small.distill_loss_:>13.3f}",
                flush=True,
            )


def pinball(quantiles: Any, y: Any) -> float:
    error = y[:, None] - quantiles
    level = np.array(LEVELS)
    return float(np.maximum(level * error, (level - 1) * error).mean())


def million() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_020_000, 20))
    mean = X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * X[:, 2] * X[:, 3] + np.abs(X[:, 5])
    y = mean + (0.3 + 0.2 * np.abs(X[:, 4])) * rng.standard_t(5, size=len(X))
    train, test = slice(0, 1_000_000), slice(1_000_000, None)
    models = {
        "MCD()": MCD(random_state=0),
        "MCD(mlp)": MCD("mlp", random_state=0),
        "mdn": get_estimator("mdn", random_state=0),
    }
    print(f"{'method':10} {'seconds':>8} {'peak GB':>8} {'pinball':>9} {'log-lik.':>9}")
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(X[train], y[train])
        seconds = time.perf_counter() - start
        usage = (resource.getrusage(who).ru_maxrss for who in (0, resource.RUSAGE_CHILDREN))
        loss = pinball(model.predict_quantiles(X[test], LEVELS), y[test])
        score = model.score(X[test], y[test])
        print(
            f"{name:10} {seconds:>8.1f} {max(usage) / 2**20:>8.2f} {loss:>9.5f} {score:>9.4f}",
            flush=True,
        )
    from lightgbm import LGBMRegressor

    start = time.perf_counter()
    found = [
        LGBMRegressor(objective="quantile", alpha=level, n_estimators=300, verbose=-1)
        .fit(X[train], y[train])
        .predict(X[test])
        for level in LEVELS
    ]
    seconds = time.perf_counter() - start
    loss = pinball(np.column_stack(found), y[test])
    print(f"{'lightgbm':10} {seconds:>8.1f} {'':>8} {loss:>9.5f}")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
