"""Folders of Parquet files with a known conditional law: 20 columns, 4 of them text.

    python benchmarks/large_data.py make FOLDER ROWS [FILES] [SEED]   # writes FOLDER/part-*.parquet

`truth` is the log-density of the law at each row, in units of y; other parts of this file measure
what `mcdensity.fit_files` and `predict_files` take, see large_data.txt.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
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
    city = table["city"].cat.codes.to_numpy()
    colour, size = table["colour"].cat.codes.to_numpy(), table["size"].cat.codes.to_numpy()
    mean = (
        1.5 * np.sin(1.5 * x[0]) + x[1] * (colour - 1) + np.log1p(x[2])
        + 0.8 * np.maximum(x[3], 0) + np.where(np.isnan(x[5]), 1.0, 0.3 * np.nan_to_num(x[5]))
        + 0.5 * np.cos(city * (city < 18))
    )  # fmt: skip
    scale = 0.5 * np.exp(0.4 * np.tanh(x[4]) + 0.15 * size)
    shop = table["shop"].cat.codes.to_numpy()
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


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"] and len(sys.argv) > 3:
        make(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        print(__doc__)
