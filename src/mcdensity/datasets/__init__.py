"""The data sets of the experiments: loaded from a folder, or downloaded from their sources."""

from mcdensity.datasets.loaders import (
    Dataset,
    DatasetUnavailableError,
    list_datasets,
    load_dataset,
    load_split,
)
from mcdensity.datasets.simulations import load_simulation
from mcdensity.datasets.sources import Description

__all__ = [
    "Dataset",
    "DatasetUnavailableError",
    "Description",
    "list_datasets",
    "load_dataset",
    "load_simulation",
    "load_split",
]
