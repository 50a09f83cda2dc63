"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["replacing", "write_file"]

fcntl: Any = None  # Windows has none: there, what a killed process left stays
with suppress(ImportError):
    fcntl = import_module("fcntl")

_PREFIX = ".mcdensity-"
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`, which replaces it on success.

    A process that is killed leaves its temporary file; the next one that writes the same `path`
    removes it.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it.")
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is a device or a pipe, and cannot be replaced; name a file.")
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_strays(path)
    try:
        handle, temporary = _create(path)
        try:
            yield temporary
            os.chmod(temporary, path.stat().st_mode if path.exists() else 0o644)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            if handle is not None:
                os.close(handle)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        full = OSError(
            f"There is no space left to write {path}; make room and try again. "
            "What was there before is untouched."
        )
        full.errno = error.errno
        raise full from error


def write_file(path: str | Path, content: str | bytes) -> None:
    """Write text or bytes."""
    with replacing(path) as temporary:
        if isinstance(content, str):
            temporary.write_text(content, encoding="utf-8")
        else:
            temporary.write_bytes(content)


# A temporary file is locked as long as the process lives that writes it: the system releases the
# lock even of a process that is killed. So a file that can be locked is abandoned. (A process
# id in its name would not help: ids are reused, and differ between machines.)


def _create(path: Path) -> tuple[int | None, Path]:
    """Make a temporary file and lock it; the lock lasts until the handle is closed."""
    while True:
        # The whole name stays the suffix: writers often go by the ending of a file.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_PREFIX, suffix=f".{path.name}")
        if fcntl is None:
            os.close(handle)
            return None, Path(name)
        with suppress(OSError):  # a file system without locks: then others cannot lock it either
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, Path(name)
        os.close(handle)  # another process took it for a stray before it was locked


def _remove_strays(path: Path) -> None:
    """Remove what killed processes left of the same file."""
    if fcntl is None:
        return
    start, end = _PREFIX, f".{path.name}"
    names: list[str] = []
    with suppress(OSError):  # a folder that can be written, but not listed
        names = os.listdir(path.parent)
    for name in names:
        if not (name.startswith(start) and name.endswith(end)):
            continue
        if len(name) != len(start) + len(end) + 8:  # as long as the middle that mkstemp makes
            continue
        stray = path.parent / name
        with suppress(OSError):  # gone already, locked by a living process, or not ours to remove
            handle = os.open(stray, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stray.unlink()
            finally:
                os.close(handle)
