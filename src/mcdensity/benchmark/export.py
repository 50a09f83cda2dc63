"""Results as small CSV files with a manifest, to commit; and reading them again."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mcdensity._files import write_file
from mcdensity.benchmark.protocols import PROTOCOLS
from mcdensity.benchmark.store import Cell, Result, Store

__all__ = ["export", "read_commits", "read_results"]

_CURVES = "curves.csv"
_FIRST = ["problem", "method", "seed", "status", "fit_seconds", "predict_seconds", "peak_mb"]


def _rows_to_csv(rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else ("" if value is None else value)


def export(store: Store, folder: Path, command: str = "") -> list[Path]:
    """Write one CSV file per protocol, one with curves, and `manifest.json`."""
    results = [r for r in store.results() if r.cell.protocol in PROTOCOLS]
    written = []
    for name in sorted({r.cell.protocol for r in results}):
        own = [r for r in results if r.cell.protocol == name]
        metrics = sorted({m for r in own for m in r.metrics})
        rows: list[list[Any]] = [[*_FIRST, *metrics]]
        for r in own:
            times = [_short(v) for v in (r.fit_seconds, r.predict_seconds, r.peak_mb)]
            values = [_short(r.metrics.get(m)) for m in metrics]
            rows.append([*r.cell[1:], r.status, *times, *values])
        path = folder / f"{name}.csv"
        write_file(path, _rows_to_csv(rows))
        written.append(path)
    curves: list[list[Any]] = [["problem", "method", "row", "y", "truth", "estimate"]]
    for r in results:
        if r.cell.protocol == "density-models" and r.curves:
            for i, curve in enumerate(r.curves):
                points = zip(curve["y"], curve["truth"], curve["estimate"], strict=True)
                curves += [[r.cell.problem, r.cell.method, i, *point] for point in points]
    write_file(folder / _CURVES, _rows_to_csv(curves))
    versions = [json.loads(v) for v in {r.versions for r in results if r.versions}]
    manifest = {
        "commits": sorted({v.pop("commit", "unknown") for v in versions}),
        "command": command,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": sorted({json.dumps(v) for v in versions}),
        "machines": sorted({r.machine for r in results if r.machine}),
        "seeds": {
            name: sorted({r.cell.seed for r in results if r.cell.protocol == name})
            for name in sorted({r.cell.protocol for r in results})
        },
    }
    write_file(folder / "manifest.json", json.dumps(manifest, indent=2) + "\n")
    return [*written, folder / _CURVES, folder / "manifest.json"]


def read_commits(path: Path) -> list[str]:
    """Return the commits that a folder which `export` wrote names; of a store its results do."""
    manifest = path / "manifest.json"
    if not manifest.is_file():
        return []
    return list(json.loads(manifest.read_text(encoding="utf-8")).get("commits", []))


def read_results(path: Path, protocol: str | None = None) -> list[Result]:
    """Read results from a store, or from a folder that `export` wrote."""
    if not path.exists():
        raise FileNotFoundError(
            f"There are no results at {path}. Run `mcdensity bench run` first, or name another "
            "file or folder with --results."
        )
    if path.is_file():
        with Store(path) as store:
            return store.results(protocol)
    curves = _read_curves(path / _CURVES)
    out = []
    for name in sorted(PROTOCOLS):
        file = path / f"{name}.csv"
        if not file.is_file() or (protocol is not None and name != protocol):
            continue
        with file.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            if not set(_FIRST) <= set(reader.fieldnames or ()):
                raise ValueError(f"{file} is not a file that `mcdensity bench export` wrote.")
            for row in reader:
                cell = Cell(name, row["problem"], row["method"], int(row["seed"]))
                values = {k: float(v) for k, v in row.items() if k not in _FIRST and v}
                fit, predict, peak = (float(row[k]) if row[k] else None for k in _FIRST[4:])
                own = curves.get(cell[1:3]) if name == "density-models" and cell.seed == 0 else None
                out.append(Result(cell, row["status"], values, fit, predict, peak, curves=own))
    return out


def _read_curves(path: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    out: dict[tuple[str, str], list[dict[str, Any]]] = {}
    if not path.exists():
        return out
    with path.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            own = out.setdefault((row["problem"], row["method"]), [])
            if int(row["row"]) == len(own):
                own.append({"y": [], "truth": [], "estimate": []})
            for name in ("y", "truth", "estimate"):
                own[int(row["row"])][name].append(float(row[name]))
    return out
