"""Which sources ran: the commit that results are from."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["source_commit"]


def source_commit() -> str:
    """Return the commit of this package's sources, with "+" where they differ from it.

    "unknown" where the package is not in a git repository of its own.
    """
    commit = _git("rev-parse", "HEAD")
    # A package that is installed into somebody's repository is not that repository's source.
    if not commit or not _git("ls-files", "--", Path(__file__).name):
        return "unknown"
    return commit + "+" * bool(_git("status", "--porcelain", "--", ":/src"))


def _git(*words: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        out = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return out.stdout.strip()
