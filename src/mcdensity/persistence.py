"""Model files: `save` and `load`, without pickle.

A model file is a zip archive of uncompressed members: `model.json` says what the model is made of,
arrays are `.npy`, networks `.safetensors`, scikit-learn's parts `.skops`, and xgboost, lightgbm
and catboost keep their own formats. Loading builds only objects of classes that are listed here;
nothing in a file is ever run.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import warnings
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from mcdensity._codec import ModelFileError, Reader, Writer, check_archive, read_member
from mcdensity._files import write_file
from mcdensity.estimator import ConditionalEstimator

__all__ = ["FORMAT", "ModelFileError", "load", "read_info", "save"]

FORMAT = 1
_HEAD = "model.json"
_LARGEST_HEAD = 32 << 20

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "xgboost", "lightgbm", "catboost")


def save(estimator: ConditionalEstimator, path: str | Path) -> None:
    """Write a fitted estimator to a file, whole or not at all.

    Parameters
    ----------
    estimator : ConditionalEstimator
        Fitted. A learner or a torch module of a class that this package does not know is refused
        by name; use `pickle` or `joblib.dump` for those, where you trust who reads and writes.
    path : str or Path
        The suffix is yours to choose; the command line uses ``.mcd``.

    Examples
    --------
    >>> import numpy as np, tempfile, mcdensity
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = mcdensity.MCD("quadratic", random_state=0).fit(X, X[:, 0] ** 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mcdensity.save(model, f"{folder}/model.mcd")
    ...     again = mcdensity.load(f"{folder}/model.mcd")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    if not isinstance(estimator, ConditionalEstimator):
        raise TypeError(
            f"estimator must be an estimator of mcdensity, got {type(estimator).__name__}."
        )
    check_is_fitted(estimator)
    writer = Writer()
    content = writer.encode(estimator, type(estimator).__name__)
    head = {
        "format": FORMAT,
        "class": type(estimator).__name__,
        "parameters": repr(estimator),
        "n_features": int(estimator.n_features_in_),
        "feature_names": [str(n) for n in getattr(estimator, "feature_names_in_", [])],
        "versions": {"mcdensity": _version("mcdensity"), "python": platform.python_version()}
        | {name: _version(name) for name in _LIBRARIES if _version(name)},
        "members": {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in writer.members.items()
        },
        "content": content,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_HEAD, json.dumps(head, allow_nan=False))
        for name, data in writer.members.items():
            archive.writestr(name, data)
    write_file(path, buffer.getvalue())


def load(path: str | Path) -> ConditionalEstimator:
    """Read an estimator from a file that `save` wrote.

    Nothing in the file is run, and only objects of known classes are built. What is damaged, made
    by a later version or meant to harm is refused with a `ModelFileError`.
    """
    with _opened(path) as (archive, head):
        members = _read_members(archive, head)
        reader = Reader(members)
        try:
            estimator = reader.decode(head["content"])
        except ModelFileError as error:
            raise ModelFileError(f"{path} cannot be loaded: {error}") from error
        except ImportError:
            raise
        except (Exception, RecursionError) as error:
            raise ModelFileError(
                f"{path} cannot be loaded: its content does not fit together "
                f"({type(error).__name__}: {error})."
            ) from error
    if not isinstance(estimator, ConditionalEstimator):
        raise ModelFileError(f"{path} holds a {type(estimator).__name__}, not an estimator.")
    made_with = head["versions"].get("scikit-learn")
    if made_with != _version("scikit-learn") and any(n.endswith(".skops") for n in members):
        warnings.warn(
            f"{path} was written with scikit-learn {made_with}, and {_version('scikit-learn')} is "
            "installed; its learners may not work the same way. Fit and save it again if you can.",
            UserWarning,
            stacklevel=2,
        )
    return estimator


def read_info(path: str | Path) -> dict[str, Any]:
    """Return what a model file says of itself: class, parameters, features, versions, members."""
    with _opened(path) as (_, head):
        return {name: value for name, value in head.items() if name != "content"}


# Reading the archive.


class _opened:  # noqa: N801
    """The archive and its head, checked as far as this is possible without reading the members."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __enter__(self) -> tuple[zipfile.ZipFile, dict[str, Any]]:
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder, not a model file.")
        if not self.path.exists():
            raise FileNotFoundError(f"There is no file {self.path}.")
        try:
            self.archive = zipfile.ZipFile(self.path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
            raise ModelFileError(
                f"{self.path} is not a model file of mcdensity, or it is cut off ({error})."
            ) from error
        try:
            return self.archive, self._head()
        except BaseException as error:
            self.archive.close()
            if isinstance(error, ModelFileError):
                raise ModelFileError(f"{self.path}: {error}") from error
            raise

    def __exit__(self, *error: object) -> None:
        self.archive.close()

    def _head(self) -> dict[str, Any]:
        check_archive(self.archive, self.path.stat().st_size)
        if _HEAD not in self.archive.namelist():
            raise ModelFileError(f"it is a zip archive without {_HEAD}, so no model file.")
        if self.archive.getinfo(_HEAD).file_size > _LARGEST_HEAD:
            raise ModelFileError(f"{_HEAD} is larger than any model's.")
        try:
            head = json.loads(read_member(self.archive, _HEAD))
        except (ValueError, RecursionError) as error:
            raise ModelFileError(f"{_HEAD} is damaged ({error}).") from error
        if not isinstance(head, dict) or not isinstance(head.get("format"), int):
            raise ModelFileError(f"{_HEAD} does not say which format it has; it is damaged.")
        versions = head.get("versions")
        made_by = versions.get("mcdensity") if isinstance(versions, dict) else None
        if head["format"] != FORMAT:
            raise ModelFileError(
                f"it has format {head['format']} (written by mcdensity {made_by}); this version, "
                f"{_version('mcdensity')}, reads format {FORMAT}. "
                + ("Update mcdensity." if head["format"] > FORMAT else "Fit and save it again.")
            )
        kinds = {"class": str, "parameters": str, "n_features": int, "feature_names": list}
        kinds |= {"versions": dict, "members": dict, "content": dict}
        for name, kind in kinds.items():
            if not isinstance(head.get(name), kind):
                raise ModelFileError(f"{_HEAD} has no proper entry {name!r}; it is damaged.")
        return head


def _read_members(archive: zipfile.ZipFile, head: dict[str, Any]) -> dict[str, bytes]:
    names = set(archive.namelist()) - {_HEAD}
    listed = head["members"]
    if names != set(listed):
        odd = sorted(names ^ set(listed))[0]
        raise ModelFileError(f"{archive.filename}: the member {odd!r} is missing or not listed.")
    out = {}
    for name in names:
        data = read_member(archive, name)
        said = listed[name]
        if not isinstance(said, dict) or said.get("sha256") != hashlib.sha256(data).hexdigest():
            raise ModelFileError(
                f"{archive.filename}: the member {name!r} is damaged (its checksum differs)."
            )
        out[name] = data
    return out


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
