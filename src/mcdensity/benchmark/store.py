"""Results in an SQLite file: one row per cell, one transaction per row."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mcdensity.benchmark.claims import Owner, is_held, this_process

__all__ = ["Cell", "Result", "Store"]

FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS cells (
    protocol TEXT NOT NULL, problem TEXT NOT NULL, method TEXT NOT NULL, seed INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('done', 'failed', 'unavailable')),
    metrics TEXT NOT NULL, fit_seconds REAL, predict_seconds REAL, peak_mb REAL,
    parameters TEXT, versions TEXT, machine TEXT, error TEXT, curves TEXT, finished TEXT NOT NULL,
    PRIMARY KEY (protocol, problem, method, seed)
);
CREATE TABLE IF NOT EXISTS claims (
    protocol TEXT NOT NULL, problem TEXT NOT NULL, method TEXT NOT NULL, seed INTEGER NOT NULL,
    host TEXT NOT NULL, pid INTEGER NOT NULL, born TEXT NOT NULL, expires REAL NOT NULL,
    PRIMARY KEY (protocol, problem, method, seed)
);
"""
_THIS_CELL = "protocol = ? AND problem = ? AND method = ? AND seed = ?"


class Cell(NamedTuple):
    """What is run once: a method on a problem of a protocol, with a seed."""

    protocol: str
    problem: str
    method: str
    seed: int


class Result(NamedTuple):
    """What running a cell gave."""

    cell: Cell
    status: str
    metrics: dict[str, float]
    fit_seconds: float | None = None
    predict_seconds: float | None = None
    peak_mb: float | None = None
    parameters: str = ""
    versions: str = ""
    machine: str = ""
    error: str = ""
    curves: list[dict[str, Any]] | None = None
    finished: str = ""


class Store:
    """The results file.

    Parameters
    ----------
    path : str or Path
        Created where it does not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self._errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Threads that supervise cells claim them too; the lock keeps their transactions apart.
            # Another process may write meanwhile: a transaction takes milliseconds, so a minute's
            # wait means that something is wrong.
            self._lock = threading.RLock()
            self._db = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise

    def _open(self) -> None:
        # Tables of a later version are never touched.
        known = self._db.execute("SELECT name FROM sqlite_master WHERE name = 'meta'").fetchone()
        if known:
            row = self._db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
            if row is not None and int(row[0]) > FORMAT:
                raise ValueError(
                    f"{self.path} was written by a later version of mcdensity (format {row[0]}; "
                    f"this one reads up to {FORMAT}). Update mcdensity, or name another file."
                )
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        with self._db:
            self._db.executescript(_SCHEMA)
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", (str(FORMAT),))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            text = str(error)
            if "full" in text:
                advice = "the disk is full; make room and run again: finished cells are kept."
            elif "not a database" in text or "malformed" in text:
                advice = "it is not a results file, or it is damaged; name another file."
            else:
                advice = f"{text}."
            raise OSError(f"Cannot use the results file {self.path}: {advice}") from error

    def claim(self, cell: Cell, seen: str | None, lifetime: float) -> bool:
        """Take a cell to run, unless another process runs it or has run it.

        Parameters
        ----------
        cell : Cell
        seen : str or None
            When the result was written that is to be replaced, by `stamps`; None if there was none.
            A result that came since then is not replaced.
        lifetime : float
            Seconds after which another machine may take the cell over, unless `renew` is called.
            Processes of this machine take it over as soon as this process has ended.

        Returns
        -------
        bool
            Whether the cell is this process's to run.
        """
        with self._lock, self._errors(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            row = self._db.execute(
                f"SELECT finished FROM cells WHERE {_THIS_CELL}", cell
            ).fetchone()
            held = self._db.execute(
                f"SELECT host, pid, born, expires FROM claims WHERE {_THIS_CELL}", cell
            ).fetchone()
            if (None if row is None else row[0]) != seen:
                return False
            if held is not None and is_held(Owner(*held[:3]), held[3]):
                return False
            self._db.execute(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*cell, *this_process(), time.time() + lifetime),
            )
            return True

    def renew(self, lifetime: float) -> None:
        """Let the claims of this process last for another `lifetime`, in seconds."""
        with self._lock, self._errors(), self._db:
            self._db.execute(
                "UPDATE claims SET expires = ? WHERE host = ? AND pid = ? AND born = ?",
                (time.time() + lifetime, *this_process()),
            )

    def count_claims(self, protocol: str) -> int:
        """Count the cells of a protocol that some process runs."""
        with self._lock, self._errors():
            rows = self._db.execute(
                "SELECT host, pid, born, expires FROM claims WHERE protocol = ?", (protocol,)
            ).fetchall()
        return sum(is_held(Owner(*row[:3]), row[3]) for row in rows)

    def release(self, cells: Iterable[Cell]) -> None:
        """Give up the claims of this process on some cells."""
        with self._lock, self._errors(), self._db:
            self._db.executemany(
                f"DELETE FROM claims WHERE {_THIS_CELL} AND host = ? AND pid = ? AND born = ?",
                [(*cell, *this_process()) for cell in cells],
            )

    def record(self, result: Result) -> None:
        """Write a result, in the place of an earlier one of the same cell; its claim ends."""
        cell = result.cell
        curves = None if result.curves is None else json.dumps(result.curves)
        with self._lock, self._errors(), self._db:
            self._db.execute(f"DELETE FROM claims WHERE {_THIS_CELL}", cell)
            self._db.execute(
                f"INSERT OR REPLACE INTO cells VALUES ({', '.join('?' * 15)})",
                (*cell, result.status, json.dumps(result.metrics), result.fit_seconds,
                 result.predict_seconds, result.peak_mb, result.parameters, result.versions,
                 result.machine, result.error, curves, result.finished),
            )  # fmt: skip

    def results(self, protocol: str | None = None) -> list[Result]:
        """Return all results, or those of a protocol, in a fixed order."""
        where, values = ("", ()) if protocol is None else ("WHERE protocol = ?", (protocol,))
        with self._lock, self._errors():
            rows: Iterable[Any] = self._db.execute(
                f"SELECT * FROM cells {where} ORDER BY protocol, problem, method, seed", values
            ).fetchall()
        return [
            Result(
                Cell(*row[:4]), row[4], json.loads(row[5]), row[6], row[7], row[8], row[9], row[10],
                row[11], row[12], None if row[13] is None else json.loads(row[13]), row[14],
            )
            for row in rows
        ]  # fmt: skip

    def status(self, protocol: str) -> dict[Cell, str]:
        """Return which cells of a protocol are done and which failed."""
        return {cell: status for cell, (status, _) in self.stamps(protocol).items()}

    def stamps(self, protocol: str) -> dict[Cell, tuple[str, str]]:
        """Return the status of the cells of a protocol, and when each was written."""
        with self._lock, self._errors():
            rows = self._db.execute(
                "SELECT protocol, problem, method, seed, status, finished FROM cells "
                "WHERE protocol = ?",
                (protocol,),
            ).fetchall()
        return {Cell(*row[:4]): (row[4], row[5]) for row in rows}

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
