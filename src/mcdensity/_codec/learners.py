"""Learners of scikit-learn as `.skops` members."""

from __future__ import annotations

import io
import math
import zipfile
from typing import Any

from mcdensity._codec.archive import ModelFileError, check_archive, read_member
from mcdensity._codec.arrays import read_header
from mcdensity._codec.kinds import unknown
from mcdensity._validation import require

__all__ = ["dump_learner", "load_learner"]

# Parts of scikit-learn's learners that skops does not know to be harmless.
_TRUSTED = (
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.compose._column_transformer._RemainderColsList",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.metrics._dist_metrics.ManhattanDistance64",
    "sklearn.metrics._dist_metrics.MinkowskiDistance64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
)


def dump_learner(value: Any, where: str) -> bytes:
    skops = require("skops.io", "io")
    try:
        data = skops.dumps(value)
    except Exception as error:  # skops raises many kinds
        raise TypeError(f"{where} cannot be saved: {error}") from error
    others = [name for name in skops.get_untrusted_types(data=data) if name not in _TRUSTED]
    if others:
        raise unknown(where, f"the class {', '.join(others)}")
    return data


def load_learner(data: bytes) -> Any:
    skops = require("skops.io", "io")
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError) as error:
        raise ModelFileError(f"a learner is damaged ({error}).") from error
    with archive:
        check_archive(archive, len(data))
        for name in archive.namelist():
            if name.endswith(".npy"):
                content = read_member(archive, name)
                stream = io.BytesIO(content)
                shape, _, dtype = read_header(stream)
                if dtype.itemsize * math.prod(shape) > len(content):
                    raise ModelFileError("an array claims to be larger than it is.")
    refused = require("skops.io.exceptions", "io").UntrustedTypesFoundException
    try:
        return skops.loads(data, trusted=list(_TRUSTED))
    except refused as error:
        others = [name for name in skops.get_untrusted_types(data=data) if name not in _TRUSTED]
        raise ModelFileError(f"a learner holds {others[0]!r}, which is not allowed.") from error
