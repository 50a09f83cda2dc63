"""Observations of simulators, with exact draws of their parameters (sbibm, MIT licence)."""

from __future__ import annotations

import bz2
import io
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mcdensity._files import replacing
from mcdensity.datasets.loaders import _download, _folders

__all__ = ["SIMULATIONS", "load_simulation"]

Array = NDArray[np.float64]

SIMULATIONS = (
    "two_moons", "gaussian_mixture", "gaussian_linear", "gaussian_linear_uniform", "slcp"
)  # fmt: skip
URL = "https://raw.githubusercontent.com/sbi-benchmark/sbibm/main/sbibm/tasks"
_OBSERVATIONS = 5


def load_simulation(task: str) -> tuple[Array, Array]:
    """Load five observations of a simulator and exact draws of its parameters given each.

    A file is looked for in the folder ``sbibm`` of the one that ``MCDENSITY_DATA`` names, and of
    the user's cache; where it is in neither it is downloaded from its original source.

    Parameters
    ----------
    task : {"two_moons", "gaussian_mixture", "gaussian_linear", "gaussian_linear_uniform", "slcp"}

    Returns
    -------
    observation : ndarray of shape (5, p)
    reference : ndarray of shape (5, 10000, k)

    References
    ----------
    Lueckmann, Boelts, Greenberg, Gonçalves, Macke: Benchmarking simulation-based inference, 2021.
    """
    if task not in SIMULATIONS:
        raise ValueError(f"{task!r} is no task; choose from {', '.join(SIMULATIONS)}.")
    name = Path("sbibm") / f"{task}.npz"
    path = next((f for d in _folders() if (f := d / name).is_file()), None)
    if path is not None:
        try:
            with np.load(path) as file:
                return file["observation"].astype(float), file["reference"].astype(float)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(
                f"{path} cannot be read ({error}); delete it, and it is downloaded again."
            ) from error
    observation, reference = _fetch(task)
    failed: OSError | None = None
    for folder in _folders():
        try:
            with replacing(folder / name) as temporary, Path(temporary).open("wb") as file:
                np.savez_compressed(file, observation=observation, reference=reference)
        except OSError as error:
            failed = error
            continue
        return observation, reference
    raise OSError(f"No folder for data can be written: {failed}.")


def _fetch(task: str) -> tuple[Array, Array]:
    observations: list[Array] = []
    references: list[Array] = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(1, _OBSERVATIONS + 1):
            start = f"{URL}/{task}/files/num_observation_{i}"
            for file, found in (
                ("observation.csv", observations),
                ("reference_posterior_samples.csv.bz2", references),
            ):
                path = _download(f"{start}/{file}", f"sbibm {task}", folder)
                try:
                    text = path.read_bytes()
                    text = bz2.decompress(text) if file.endswith("bz2") else text
                    found.append(np.loadtxt(io.BytesIO(text), delimiter=",", skiprows=1, ndmin=2))
                except (OSError, ValueError) as error:
                    raise ValueError(
                        f"What {start}/{file} sent is not a table of numbers: {error}. The "
                        "download may be damaged; try again."
                    ) from error
    return np.concatenate(observations), np.stack(references)
