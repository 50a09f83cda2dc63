"""Folders of Parquet files with a known conditional law: 20 columns, 4 of them text.

    python benchmarks/large_data.py make FOLDER ROWS [FILES] [SEED]   # writes FOLDER/part-*.parquet
    python benchmarks/large_data.py read FOLDER         # rows a second: read, shuffled, prepared
    python benchmarks/large_data.py fit FOLDER MODEL    # seconds, memory, loss against the truth
    python benchmarks/large_data.py plain FOLDER        # the same of MCD() with a million rows
    python benchmarks/large_data.py predict FOLDER MODEL OUTPUT   # of the distilled model
    python benchmarks/large_data.py kill FOLDER MODEL OUTPUT      # five SIGKILLs, then to the end
    python benchmarks/large_data.py cluster FOLDER [kill]         # two workers of 2 GB each

`truth` is the log-density of the law at each row, in units of y. Losses are on 20,000 new rows.
Memory is that of the process and its children together. Results: large_data.txt.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
from scipy.special import logsumexp
from scipy.stats import norm

NUMBERS, CITIES = 16, [f"city {i:02d}" for i in range(40)]
COLOURS, SIZES, SHOPS = ("red", "green", "blue"), ("S", "M", "L", "XL"), ("web", "street")
FILE_ROWS, GROUP_ROWS = 500_000, 100_000


def draw(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw features and targets; 3 % of one column are missing."""
    x = rng.normal(size=(rows, NUMBERS))
    x[:, 1] = 0.7 * x[:, 0] + 0.7 * x[:, 1]  # correlated
    x[:, 2] = np.exp(x[:, 2])  # skewed
    table = pd.DataFrame({f"x{j}": x[:, j] for j in range(NUMBERS)})
    table.loc[rng.random(rows) < 0.03, "x5"] = np.nan
    table["city"] = pd.Categorical.from_codes(
        np.minimum(rng.geometric(0.12, rows) - 1, len(CITIES) - 1), CITIES
    )
    for name, values in (("colour", COLOURS), ("size", SIZES), ("shop", SHOPS)):
        table[name] = pd.Categorical.from_codes(rng.integers(len(values), size=rows), values)
    mean, scale, share, shift = law(table)
    second = rng.random(rows) < share
    noise = np.where(second, shift + 0.5 * rng.normal(size=rows), rng.normal(size=rows))
    table["y"] = mean + scale * noise
    return table


def law(table: pd.DataFrame) -> tuple[np.ndarray, ...]:
    """Mean and scale, and the share and the shift of a second component."""
    x = [table[f"x{j}"].to_numpy() for j in range(6)]
    city, colour, size, shop = (
        pd.Categorical(table[name], values).codes
        for name, values in
        (("city", CITIES), ("colour", COLOURS), ("size", SIZES), ("shop", SHOPS))
    )  # fmt: skip
    mean = (
        1.5 * np.sin(1.5 * x[0]) + x[1] * (colour - 1) + np.log1p(x[2])
        + 0.8 * np.maximum(x[3], 0) + np.where(np.isnan(x[5]), 1.0, 0.3 * np.nan_to_num(x[5]))
        + 0.5 * np.cos(city * (city < 18))
    )  # fmt: skip
    scale = 0.5 * np.exp(0.4 * np.tanh(x[4]) + 0.15 * size)
    share = np.where(shop == 1, 0.4, 0.1)
    return mean, scale, share, 2.5 + np.tanh(x[0])


def truth(table: pd.DataFrame) -> np.ndarray:
    """Log-density of y given the features of each row."""
    mean, scale, share, shift = law(table)
    z = (table["y"].to_numpy() - mean) / scale
    parts = [
        np.log1p(-share) + norm.logpdf(z),
        np.log(share) + norm.logpdf(z, shift, 0.5),
    ]
    return logsumexp(parts, axis=0) - np.log(scale)


def make(folder: str, rows: int, files: int | None = None, seed: int = 0) -> None:
    """Write the files; file i depends on the seed and on i alone."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    count = files or -(-rows // FILE_ROWS)
    for i in range(count):
        size = rows // count + (i < rows % count)
        table = draw(size, np.random.default_rng([seed, i]))
        first = (rows // count) * i + min(i, rows % count)
        table.insert(0, "id", np.arange(first, first + size))
        for name in table.columns[table.dtypes == "category"]:
            table[name] = table[name].astype("str")
        table.to_parquet(path / f"part-{i:04d}.parquet", index=False, row_group_size=GROUP_ROWS)
        print(f"\r{i + 1} of {count} files", end="", file=sys.stderr)
    print(file=sys.stderr)


class Peak:
    """Largest memory of this process and its children, in GB."""

    def __enter__(self) -> Peak:
        self.largest, self._end = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._end.wait(0.2):
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.largest = max(self.largest, total / 2**30)

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()


def loss(model) -> tuple[float, float]:
    """Log-likelihood of new rows, and how far it is below that of the truth."""
    new = draw(20_000, np.random.default_rng(987_654))
    exact = truth(new).mean()
    for name in ("city", "colour", "size", "shop"):
        new[name] = new[name].astype(str)
    found = model.score(new.drop(columns="y"), new["y"])
    return found, exact - found


def estimator():
    from mcdensity import MCD

    return MCD(random_state=0, target="continuous", support=(None, None))


def read(folder: str) -> None:
    from mcdensity.streaming.rows import Layout
    from mcdensity.streaming.shuffle import ShuffledRows
    from mcdensity.streaming.sources import open_source
    from mcdensity.streaming.training import Preparer
    from mcdensity.tables import TablePreparation

    source = open_source(folder)
    layout = Layout(("y",), tuple(n for n in source.columns if n not in ("id", "y")))
    table = next(layout.read(source, source.pieces[0])).table
    preparer = Preparer.of(TablePreparation().fit(table), table)
    total, rows = sum(piece.rows for piece in source.pieces), 0
    start = time.perf_counter()
    for batch in ShuffledRows(source, source.pieces, layout, preparer).batches(1024):
        rows += len(batch)
        if rows > 0.95 * total:
            break
    print(f"{rows:,} rows, {rows / (time.perf_counter() - start):,.0f} a second")


def fit(folder: str, path: str) -> None:
    from mcdensity import fit_files, save

    start = time.perf_counter()
    with Peak() as peak:
        model = fit_files(folder, "y", estimator(), verbose=True)
    seconds = time.perf_counter() - start
    save(model, path)
    weights = {name: round(w, 3) for name, w in model.weights_.items()}
    print(f"{model.source_['rows']:,} rows: {seconds:.0f} s, {peak.largest:.2f} GB, log-likelihood "
          "{:.4f}, {:.4f} below the truth".format(*loss(model)), weights, flush=True)  # fmt: skip


def plain(folder: str) -> None:
    from mcdensity import TableEstimator

    files = sorted(Path(folder).glob("*.parquet"))[:2]
    table = pd.concat([pd.read_parquet(file) for file in files]).sample(frac=1, random_state=0)
    table = table[:1_000_000].drop(columns="id")
    start = time.perf_counter()
    with Peak() as peak:
        model = TableEstimator(estimator()).fit(table.drop(columns="y"), table["y"])
    seconds = time.perf_counter() - start
    print(f"MCD() with {len(table):,} rows: {seconds:.0f} s, {peak.largest:.2f} GB, log-likelihood "
          "{:.4f}, {:.4f} below the truth".format(*loss(model)), flush=True)  # fmt: skip


def predict(folder: str, path: str, output: str) -> None:
    from mcdensity import load, predict_files

    small = load(path).distill(random_state=0)
    print(f"distilled, loss {small.distill_loss_:.4f}", flush=True)
    start = time.perf_counter()
    with Peak() as peak:
        rows = predict_files(small, folder, output, verbose=True)
    seconds = time.perf_counter() - start
    print(f"{rows:,} rows: {rows / seconds:,.0f} a second, {peak.largest:.2f} GB", flush=True)


def kill(folder: str, path: str, output: str) -> None:
    code = ("import sys; from mcdensity import predict_files;"
            "print(predict_files(sys.argv[1], sys.argv[2], sys.argv[3]))")  # fmt: skip
    command = [sys.executable, "-c", code, path, folder, output]
    chance = random.Random(0)
    for i in range(5):
        process = subprocess.Popen(command, start_new_session=True)
        time.sleep(chance.uniform(8, 25))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        parts = list(Path(output).glob("part-*.parquet"))
        print(f"killed {i + 1}: {len(parts)} parts", flush=True)
    subprocess.run(command, check=True)
    found = np.sort(pd.read_parquet(output, columns=["id"])["id"].to_numpy())
    rest = [p.name for p in Path(output).iterdir() if not p.name.startswith(("part-", "_"))]
    print(f"{len(found):,} rows, each once: {bool((found == np.arange(len(found))).all())}; other "
          f"files: {rest}")  # fmt: skip


def cluster(folder: str, way: str = "") -> None:
    from distributed import Client, LocalCluster

    from mcdensity import fit_files

    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "2GiB"}
    with LocalCluster(dashboard_address=":0", **options) as local, Client(local) as client:
        if way == "kill":

            def shoot() -> None:
                time.sleep(240)
                victim = next(iter(local.workers.values()))
                os.kill(victim.process.pid, signal.SIGKILL)
                print("killed a worker", flush=True)

            threading.Thread(target=shoot, daemon=True).start()
        start = time.perf_counter()
        model = fit_files(folder, "y", estimator(), client=client, verbose=True)
        seconds = time.perf_counter() - start
    weights = {name: round(w, 3) for name, w in model.weights_.items()}
    print(f"cluster {way}, {model.source_['rows']:,} rows: {seconds:.0f} s, log-likelihood "
          "{:.6f}, {:.4f} below the truth".format(*loss(model)), weights, flush=True)  # fmt: skip


PARTS = {"make": make, "read": read, "fit": fit, "plain": plain, "predict": predict, "kill": kill,
         "cluster": cluster}  # fmt: skip

if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] in PARTS:
        numbers = [int(a) if a.isdigit() else a for a in sys.argv[3:]]
        PARTS[sys.argv[1]](sys.argv[2], *numbers)
    else:
        print(__doc__)
