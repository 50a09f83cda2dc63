"""Files are written whole or not at all, whatever happens meanwhile."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mcdensity._files import replacing, write_file

WRITE_AND_WAIT = """
import sys
from mcdensity._files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print("written", flush=True)
    sys.stdin.read()
"""


def start_writing(path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_WAIT, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "written\n"
    return process


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL and file locks")
def test_what_a_killed_process_left_is_removed(tmp_path):
    path = tmp_path / "model.mcd"
    write_file(path, "before")
    process = start_writing(path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert path.read_text() == "before"
    assert len(names(tmp_path)) == 2
    (tmp_path / ".mcdensity-model.mcd").write_text("a file of the user")
    write_file(tmp_path / "other.mcd", "another file")
    assert len(names(tmp_path)) == 4  # only strays of the same file are looked for
    write_file(path, "after")
    assert path.read_text() == "after"
    assert names(tmp_path) == [".mcdensity-model.mcd", "model.mcd", "other.mcd"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs file locks")
def test_what_a_living_process_writes_is_left_alone(tmp_path):
    path = tmp_path / "model.mcd"
    process = start_writing(path)
    write_file(path, "mine")
    with replacing(path) as first:  # nor does a process take its own for a stray
        first.write_text("first")
        write_file(path, "second")
    assert path.read_text() == "first"
    process.communicate("")
    assert process.returncode == 0
    assert path.read_text() == "half"
    assert names(tmp_path) == ["model.mcd"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_names_the_file(tmp_path, monkeypatch, number):
    path = tmp_path / "model.mcd"
    write_file(path, "before")

    def full(*args, **options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"no space left to write .*model\.mcd; make room") as stop:
        write_file(path, b"after")
    assert stop.value.errno == number
    assert path.read_text() == "before"
    assert names(tmp_path) == ["model.mcd"]


def test_other_errors_are_passed_on(tmp_path):
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text(str(1 / 0))
    assert names(tmp_path) == []
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_file(tmp_path, "text")


def test_the_mode_of_a_file_is_kept(tmp_path):
    write_file(tmp_path / "a.txt", "text")
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o644
    (tmp_path / "a.txt").chmod(0o600)
    write_file(tmp_path / "a.txt", "more")
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o600
