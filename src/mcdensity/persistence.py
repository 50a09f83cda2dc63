"""Model files: `save` and `load`, without pickle.

A model file is a zip archive of uncompressed members: `model.json` says what the model is made of,
arrays are `.npy`, networks `.safetensors`, scikit-learn's parts `.skops`, and xgboost, lightgbm
and catboost have text or JSON of their own. Loading builds only objects of classes that this
package lists, or that `storable` registered; no code in a file is ever run, and trees, arrays and
networks are checked before compiled code sees them.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import platform
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from mcdensity import __version__
from mcdensity._codec import ModelFileError, Reader, Writer, check_archive, read_member, try_out
from mcdensity._files import write_file
from mcdensity._known import storable
from mcdensity.estimator import ConditionalEstimator
from mcdensity.target_kind import describe

__all__ = ["FORMAT", "ModelFileError", "load", "read_info", "save", "storable"]

FORMAT = 3
_HEAD = "model.json"
# All that is large is a member: the heads of the test models are below 15 kB.
_LARGEST_HEAD = 32 << 20
# From a format to the next: each takes what `model.json` holds, before anything is built of it, and
# returns it in the next format. Files of a format without an entry cannot be read.
_MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    2: lambda head: head,  # models of catboost became JSON; the suffix of a member says what it is
}

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "xgboost", "lightgbm", "catboost")


def save(
    estimator: ConditionalEstimator, path: str | Path, *, key: str | bytes | None = None
) -> None:
    """Write a fitted estimator to a file, completely or not at all.

    Parameters
    ----------
    estimator : ConditionalEstimator
        Fitted. A learner or a torch module of a class that this package does not know is refused
        by name: register the class with `storable`, or use `pickle` or `joblib.dump` where you
        trust who reads and writes the file.
    path : str or Path
        The suffix is yours to choose; the command line uses ``.mcd``.
    key : str or bytes, optional
        A secret that you share with those who load the file: it is signed (HMAC-SHA256 of all that
        is in it), and ``load(path, key=key)`` accepts it only as it is. Make one with
        ``secrets.token_bytes(32)``. The content is not encrypted.

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
    secret = _check_key(key)
    check_is_fitted(estimator)
    writer = Writer()
    content = writer.encode(estimator, type(estimator).__name__)
    head = {
        "format": FORMAT,
        "class": type(estimator).__name__,
        "parameters": repr(estimator),
        "distill_loss": getattr(estimator, "distill_loss_", None),
        "target": describe(estimator) if hasattr(estimator, "target_kind_") else None,
        "n_features": int(estimator.n_features_in_),
        "feature_names": [str(n) for n in getattr(estimator, "feature_names_in_", [])],
        "versions": {"mcdensity": __version__, "python": platform.python_version()}
        | {name: _version(name) for name in _LIBRARIES if _version(name)},
        "members": {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in writer.members.items()
        },
        "content": content,
    }
    if secret is not None:
        head["signature"] = _signature(head, secret)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_HEAD, json.dumps(head, allow_nan=False))
        for name, data in writer.members.items():
            archive.writestr(name, data)
    write_file(path, buffer.getvalue())


def load(path: str | Path, *, key: str | bytes | None = None) -> ConditionalEstimator:
    """Read an estimator from a file that `save` wrote.

    Nothing in the file is run, and only objects of known classes are built. A file that is damaged,
    made by a later version, signed with another key or whose parts do not fit together is refused
    with a `ModelFileError`. The model then predicts a few rows: what it says must be numbers.

    Parameters
    ----------
    path : str or Path
    key : str or bytes, optional
        The key that the file was saved with. With a key, a file that is not signed with it is
        refused before anything else in it is read. Without one, signatures are not looked at.

    Returns
    -------
    ConditionalEstimator
    """
    with _opened(path, _check_key(key)) as (archive, head):
        members = _read_members(archive, head)
        reader = Reader(members)
        try:
            estimator = reader.decode(head["content"])
        except ModelFileError as error:
            raise ModelFileError(f"{path} cannot be loaded: {error}") from error
        except ImportError:
            raise
        except (Exception, RecursionError) as error:
            raise _misfit(path, error) from error
    if not isinstance(estimator, ConditionalEstimator):
        raise ModelFileError(f"{path} holds a {type(estimator).__name__}, not an estimator.")
    try:
        try_out(estimator)
    except ImportError:
        raise
    except (Exception, RecursionError) as error:
        raise _misfit(path, error) from error
    made_with = head["versions"].get("scikit-learn")
    if made_with != _version("scikit-learn") and any(n.endswith(".skops") for n in members):
        warnings.warn(
            f"{path} was written with scikit-learn {made_with}, and {_version('scikit-learn')} is "
            "installed; its learners may not work the same way. Fit and save it again if you can.",
            UserWarning,
            stacklevel=2,
        )
    return estimator


def _misfit(path: str | Path, error: BaseException) -> ModelFileError:
    """Say in one line that the parts of a file do not fit together."""
    reason = str(error).split("\n")[0][:200]
    return ModelFileError(
        f"{path} cannot be loaded: its content does not fit together "
        f"({type(error).__name__}: {reason})."
    )


def read_info(path: str | Path) -> dict[str, Any]:
    """Return what a model file says of itself: class, parameters, features, versions, members.

    `signed` says whether it has a signature; only `load` with a key looks whether it is right.
    """
    with _opened(path) as (_, head):
        own = {n: value for n, value in head.items() if n not in ("content", "signature")}
        return own | {"signed": "signature" in head}


# Signatures.


def _check_key(key: Any) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, str | bytes):
        raise TypeError(f"key must be bytes or text, got {type(key).__name__}.")
    if not key:
        raise ValueError("key is empty; make one with secrets.token_bytes(32).")
    return key.encode() if isinstance(key, str) else key


def _signature(head: dict[str, Any], key: bytes) -> str:
    """Keyed hash of the head, which lists the hashes of all members."""
    signed = {name: value for name, value in head.items() if name != "signature"}
    return hmac.new(key, json.dumps(signed, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _check_signature(head: dict[str, Any], key: bytes) -> None:
    given = head.get("signature")
    if given is None:
        raise ModelFileError("it is not signed, and a key was given to check its signature with.")
    try:
        expected = _signature(head, key)
    except RecursionError as error:
        raise ModelFileError(f"{_HEAD} is nested deeper than any model's.") from error
    if not hmac.compare_digest(str(given).encode(errors="replace"), expected.encode()):
        raise ModelFileError("it was signed with another key, or changed since.")


# Reading the archive.


@contextmanager
def _opened(
    path: str | Path, key: bytes | None = None
) -> Iterator[tuple[zipfile.ZipFile, dict[str, Any]]]:
    """Give the archive and its head, checked as far as possible without reading the members."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a model file.")
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        raise ModelFileError(
            f"{path} is not a model file of mcdensity, or it is truncated ({error})."
        ) from error
    with archive:
        try:
            head = _read_head(archive, path.stat().st_size)
            if key is not None:
                _check_signature(head, key)
            head = _migrated(head, path)
            _check_head(head)
        except _OldFileError:
            raise
        except ModelFileError as error:
            raise ModelFileError(f"{path}: {error}") from error
        yield archive, head


class _OldFileError(ModelFileError):
    """A file has a format from which no migration leads to this version's."""


def _read_head(archive: zipfile.ZipFile, size: int) -> dict[str, Any]:
    check_archive(archive, size)
    if _HEAD not in archive.namelist():
        raise ModelFileError(f"it is a zip archive without {_HEAD}, so it is not a model file.")
    if archive.getinfo(_HEAD).file_size > _LARGEST_HEAD:
        raise ModelFileError(f"{_HEAD} is larger than any model's.")
    try:
        head = json.loads(read_member(archive, _HEAD))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{_HEAD} is damaged ({str(error)[:200]}).") from error
    if not isinstance(head, dict) or type(head.get("format")) is not int:
        raise ModelFileError(f"{_HEAD} does not say which format it has; it is damaged.")
    return head


def _migrated(head: dict[str, Any], path: Path) -> dict[str, Any]:
    """Bring a head to this version's format, step by step."""
    versions, written = head.get("versions"), head["format"]
    made_by = str(versions.get("mcdensity") if isinstance(versions, dict) else None)
    if written > FORMAT:
        raise ModelFileError(
            f"it has format {written} (written by mcdensity {made_by}); this version, "
            f"{__version__}, reads formats up to {FORMAT}. Update mcdensity."
        )
    for step in range(written, FORMAT):
        if step not in _MIGRATIONS:
            series = ".".join(made_by.split(".")[:2])
            raise _OldFileError(
                f"{path} was written by mcdensity {made_by} (format {written}), which this version "
                "cannot read: fit the model again with this version, or load it with mcdensity "
                f"{series} to export what you need."
            )
        try:
            head = _MIGRATIONS[step](head) | {"format": step + 1}
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ModelFileError(
                f"{_HEAD} lacks parts of a file of format {step}; it is damaged ({error!r})."
            ) from error
    return head


def _check_head(head: dict[str, Any]) -> None:
    kinds = {"class": str, "parameters": str, "n_features": int, "feature_names": list}
    kinds |= {"versions": dict, "members": dict, "content": dict}
    for name, kind in kinds.items():
        if not isinstance(head.get(name), kind):
            raise ModelFileError(f"{_HEAD} has no proper entry {name!r}; it is damaged.")


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
