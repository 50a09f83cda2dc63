"""Loading: from the data folder, from the cache, or by download into them."""

from __future__ import annotations

import os
import re
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcdensity._files import replacing
from mcdensity._validation import require
from mcdensity.datasets.checks import CHECKS
from mcdensity.datasets.parsers import in_order, parse
from mcdensity.datasets.sources import (
    DESCRIPTIONS,
    SOURCES,
    SPLITS,
    Description,
    Source,
    split_url,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Dataset", "DatasetUnavailableError", "list_datasets", "load_dataset", "load_split"]

_TOY_ROWS = 2000
# The trips that are kept: longitude and latitude, distance in degrees, seconds.
_CITY = (-74.04, -73.75), (40.62, 40.86)
_LEAST_DISTANCE = 0.00316
_SECONDS = 30, 3 * 3600
# Columns of codes that stand for text.
_CODED = ("carrier", "origin", "dest")


class DatasetUnavailableError(OSError):
    """A data set is not on this machine and cannot be downloaded."""


class Dataset(NamedTuple):
    """Features, target and a description: ``X, y, description = load_dataset(name)``."""

    X: pd.DataFrame
    y: NDArray[np.float64]
    description: Description


def list_datasets() -> list[str]:
    """Return the names that `load_dataset` understands."""
    return list(DESCRIPTIONS)


def load_dataset(name: str) -> Dataset:
    """Load a data set by name.

    A file is looked for in the folder that the environment variable ``MCDENSITY_DATA`` names, and
    in the user's cache; where it is in neither it is downloaded from its original source, checked
    and stored.

    Parameters
    ----------
    name : str
        One of `list_datasets()`; the case, spaces and underscores do not matter.

    Returns
    -------
    Dataset
        With the fields X (a DataFrame), y, and description: source, citation, licence, defects.
        The y of "NYCTaxi" has two columns, longitude and latitude.

    Examples
    --------
    >>> from mcdensity.datasets import load_dataset
    >>> X, y, description = load_dataset("Ring")
    >>> X.shape, y.shape, description.licence
    ((2000, 1), (2000,), 'Made here')
    """
    file, description = DESCRIPTIONS[_canonical(name)]
    if not file:
        return _toy(description)
    table = _table(file)
    if file == "nyc_taxi":
        return _taxi(table, description)
    return Dataset(table[table.columns[:-1]], table.iloc[:, -1].to_numpy(np.float64), description)


def load_split(name: str, split: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the training and the test rows of a fixed split of a UCI set.

    The splits of Hernandez-Lobato and Adams (2015), as published with Gal and Ghahramani (2016).

    Parameters
    ----------
    name : str
        Of the data set.
    split : int
        From 0 to 19 (4 for Protein).
    """
    canonical = _canonical(name)
    file = DESCRIPTIONS[canonical][0]
    if file not in SPLITS:
        known = [n for n, (f, _) in DESCRIPTIONS.items() if f in SPLITS]
        raise ValueError(f"{canonical} has no fixed splits; these have: {', '.join(known)}.")
    count = SPLITS[file][1]
    if not 0 <= split < count:
        raise ValueError(f"split must be from 0 to {count - 1} for {canonical}, got {split}.")
    test = _split_rows(file, split)
    table = _table(file)
    n = len(table)
    if not len(test) or len(set(test)) < len(test) or test.min() < 0 or test.max() >= n:
        raise ValueError(
            f"Split {split} of {canonical} does not name rows of it; delete split_{file}_{split}"
            f".csv.gz in {_folders()[0]}, and it is downloaded again."
        )
    if not in_order(table, file):
        raise ValueError(
            f"The rows of {canonical} have another order than the fixed splits count in; the file "
            f"{file}.csv.gz was made from another version of the source."
        )
    return np.setdiff1d(np.arange(n), test), test


def _canonical(name: str) -> str:
    def plain(text: str) -> str:
        return re.sub(r"[^a-z0-9]", "", text.lower())

    known = {plain(n): n for n in DESCRIPTIONS}
    # The names of files serve too, where they say which data set is meant.
    files = [f for f, _ in DESCRIPTIONS.values()]
    known |= {plain(f): n for n, (f, _) in DESCRIPTIONS.items() if f and files.count(f) == 1}
    if plain(name) not in known:
        raise ValueError(f"Data set {name!r} is not known; choose from {list_datasets()}.")
    return known[plain(name)]


def _folders() -> list[Path]:
    """Where files are looked for, and stored if the folder can be written."""
    cache = Path(str(require("pooch", "data").os_cache("mcdensity")))
    given = os.environ.get("MCDENSITY_DATA")
    return [Path(given), cache] if given else [cache]


def _find(file: str) -> Path | None:
    return next((f for d in _folders() if (f := d / f"{file}.csv.gz").is_file()), None)


def _table(file: str) -> pd.DataFrame:
    pandas = require("pandas", "data")
    path = _find(file) or _fetch(SOURCES[file])
    try:
        table = pandas.read_csv(path)
        _verify(table, SOURCES[file])
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); delete it, and it is downloaded again."
        ) from error
    return table


def _fetch(source: Source) -> Path:
    """Download, parse and check a table, and store it."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [_download(url, source.file, folder) for url in source.urls]
        try:
            table = parse(source, paths)
        except Exception as error:  # what the libraries raise for damaged files is of many kinds
            raise ValueError(
                f"What {source.urls[0]} sent is not the data set {source.file}: {error}. The "
                f"download may be damaged; try again, or put {source.file}.csv.gz in "
                f"{_folders()[0]}."
            ) from error
    if source.file == "nycflights13":
        for name in _CODED:
            table[name] = table[name].astype("category").cat.codes
    try:
        _verify(table, source)
    except ValueError as error:
        raise ValueError(
            f"The data set {source.file} from {source.urls[0]} fails its check: {error}. The "
            "download is damaged or the source has changed; nothing was stored."
        ) from error
    return _write(table, source.file)


def _verify(table: pd.DataFrame, source: Source) -> None:
    """Check a table against what is known of it; the order of the rows does not matter."""
    if list(table.columns) != list(source.columns):
        raise ValueError(f"the columns are {', '.join(table.columns[:5])}, ...")
    if len(table) != source.rows if source.rows is not None else len(table) < source.least_rows:
        number = source.rows or f"at least {source.least_rows}"
        raise ValueError(f"{len(table)} rows instead of {number}")
    values = table.select_dtypes("number").to_numpy(np.float64)
    # What comes with its names may have missing values, but not in the target, which is last.
    checked = values[:, -1:] if source.parser == "named" else values
    if not np.isfinite(checked).all():
        raise ValueError("some values are missing or not finite")
    if source.file in CHECKS and source.rows is not None:
        means, products, _ = CHECKS[source.file]
        for name, mean, wanted in zip(source.columns, values.mean(axis=0), means, strict=True):
            if not np.isclose(mean, wanted, rtol=1e-5, atol=1e-9):
                raise ValueError(f"the mean of {name} is {mean:.6g} instead of {wanted:.6g}")
        found = (values * values[:, -1:]).mean(axis=0)
        if not np.allclose(found, products, rtol=1e-5, atol=1e-9):
            raise ValueError("some columns do not belong to the rows of the target")


def _download(url: str, file: str, folder: str) -> Path:
    pooch = require("pooch", "data")
    try:
        fetched = pooch.retrieve(url, known_hash=None, path=folder, progressbar=False)
    except Exception as error:  # pooch passes on whatever its downloader raises
        raise DatasetUnavailableError(
            f"The data set {file} is not in {' or '.join(str(d) for d in _folders())}, and cannot "
            f"be downloaded from {url}: {error}. Without internet access, put the file "
            f"{file}.csv.gz (a header, numbers, the target last) in one of these folders; the "
            "environment variable MCDENSITY_DATA names the first."
        ) from error
    return Path(fetched)


def _write(table: pd.DataFrame, file: str) -> Path:
    """Store a table in the first folder that can be written, whole or not at all."""
    failed: OSError | None = None
    for folder in _folders():
        path = folder / f"{file}.csv.gz"
        try:
            with replacing(path) as temporary:
                table.to_csv(temporary, index=False, compression="gzip")
        except OSError as error:
            failed = error
            continue
        return path
    raise OSError(f"No folder for data can be written: {failed}.")


def _split_rows(file: str, split: int) -> NDArray[np.intp]:
    pandas = require("pandas", "data")
    together = _find("uci_splits")
    if together is not None:
        table = pandas.read_csv(together)
        chosen = (table["dataset"] == file) & (table["split"] == split)
        if chosen.any():
            return table.loc[chosen, "test_index"].to_numpy(np.intp)
    name = f"split_{file}_{split}"
    path = _find(name)
    if path is None:
        with tempfile.TemporaryDirectory() as folder:
            text = _download(split_url(file, split), name, folder).read_text()
        try:
            rows = np.array([float(word) for word in text.split()]).astype(np.intp)
        except ValueError as error:
            raise ValueError(f"{split_url(file, split)} holds no row numbers: {error}.") from error
        path = _write(pandas.DataFrame({"test_index": rows}), name)
    return pandas.read_csv(path)["test_index"].to_numpy(np.intp)


def _toy(description: Description) -> Dataset:
    from mcdensity.simulators import get_simulator

    pandas = require("pandas", "data")
    X, y = get_simulator(description.name).sample(_TOY_ROWS, random_state=0)
    return Dataset(pandas.DataFrame(X, columns=["x"]), y, description)


def _taxi(table: pd.DataFrame, description: Description) -> Dataset:
    """Keep plausible trips, and turn the time of the pick-up into points on circles.

    Of both ends together all trips with coordinates are kept, and the passengers are a feature.
    """
    pandas = require("pandas", "data")
    start, stop = (
        pandas.to_datetime(table[f"{end}_datetime"], format="%Y-%m-%d %H:%M:%S")
        for end in ("pickup", "dropoff")
    )
    seconds = (stop - start).dt.total_seconds()
    ends = [f"{end}_{name}" for end in ("pickup", "dropoff") for name in ("longitude", "latitude")]
    both = description.name == "NYCTaxi"
    keep = (table[ends] != 0).all(axis=1)
    if not both:
        keep &= seconds.between(*_SECONDS)
        for name, limits in zip(ends, 2 * _CITY, strict=True):
            keep &= table[name].between(*limits)
        distance = np.hypot(
            table["dropoff_longitude"] - table["pickup_longitude"],
            table["dropoff_latitude"] - table["pickup_latitude"],
        )
        keep &= distance > _LEAST_DISTANCE
    day = (start.dt.hour * 3600 + start.dt.minute * 60 + start.dt.second) / 86400
    week = (start.dt.day_of_week + day) / 7
    features: dict[str, Any] = {
        "pickup_longitude": table["pickup_longitude"],
        "pickup_latitude": table["pickup_latitude"],
        **{f"{f.__name__}_time_of_day": f(2 * np.pi * day) for f in (np.sin, np.cos)},
        **{f"{f.__name__}_day_of_week": f(2 * np.pi * week) for f in (np.sin, np.cos)},
    }
    column: Any = f"dropoff_{description.name.removeprefix('NYCTaxi').lower()}"
    if both:
        features["passengers"], column = table["passenger_count"], ends[2:]
    X = pandas.DataFrame(features)[keep].reset_index(drop=True)
    return Dataset(X, table.loc[keep, column].to_numpy(np.float64), description)
