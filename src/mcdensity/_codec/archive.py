"""The archive that a model file is: what is refused before anything in it is looked at."""

from __future__ import annotations

import zipfile
from typing import Any

__all__ = ["ModelFileError", "check_archive", "expect", "read_member"]

# The models of the tests have at most 64.
_MOST_MEMBERS = 10_000


class ModelFileError(ValueError):
    """A file is no model file, is damaged, or holds what must not be loaded."""


def expect(value: Any, kind: type) -> Any:
    """Return a value that must be of this kind."""
    if not isinstance(value, kind):
        raise ModelFileError(f"its content has a {type(value).__name__} for a {kind.__name__}.")
    return value


def check_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse what could unpack to more than its size, or would name files elsewhere.

    Members are never compressed, so that a file never unpacks to more than its own size.
    """
    names = archive.namelist()
    if len(names) > _MOST_MEMBERS:
        raise ModelFileError(f"it has {len(names)} members, more than any model.")
    if len(set(names)) != len(names):
        raise ModelFileError("it has two members of the same name.")
    for info in archive.infolist():
        name = info.filename
        if not name or name.startswith(("/", "\\")) or ".." in name or ":" in name:
            raise ModelFileError(f"its member {name!r} points outside the file.")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ModelFileError(
                f"its member {name!r} is compressed; members of model files are not."
            )
    if sum(info.file_size for info in archive.infolist()) > size:
        raise ModelFileError("its members claim to be larger than the file is.")


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the bytes of a member, or say that it is damaged."""
    try:
        return archive.read(name)
    except (zipfile.BadZipFile, EOFError, ValueError, RuntimeError, OSError) as error:
        raise ModelFileError(f"its member {name!r} is damaged ({error}).") from error
