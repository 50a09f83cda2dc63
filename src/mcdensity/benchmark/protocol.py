"""What an experiment is."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

__all__ = ["Protocol"]


@dataclass(frozen=True)
class Protocol:
    """An experiment: which problems and methods, and what running one of them means."""

    name: str
    title: str
    metric: str
    problems: tuple[str, ...]
    methods: tuple[str, ...]
    run: Callable[[str, str, int, bool], dict[str, Any]]
    lower_is_better: bool = True
    decimals: int = 3
    paper: str | None = None
    published: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    rows: dict[str, str] = field(default_factory=dict)
    footnotes: tuple[str, ...] = ()
    seeds: int = 5
    limits: dict[str, int] = field(default_factory=dict)
    time_limit: float = 600.0

    def paper_numbers(self) -> dict[tuple[str, str], float]:
        """Numbers of the paper by (problem, method), in our names."""
        out = {}
        for row in _lines(self.paper):
            if "kl" in row:  # one number per row, of MCD:MLP
                out[_row_name(row), "MCD:MLP"] = float(row["kl"])
                continue
            first, *columns = row
            problem = self.rows.get(row[first], row[first])
            for column in columns:
                out[problem, self.columns.get(column, column)] = float(row[column])
        return out

    def published_numbers(self) -> dict[tuple[str, str], float]:
        """Numbers that others published, by (problem, their method)."""
        return {
            (row["problem"], method): float(value)
            for row in _lines(self.published)
            for method, value in row.items()
            if method != "problem" and value
        }


def _lines(name: str | None) -> list[dict[str, str]]:
    if name is None:
        return []
    text = resources.files("mcdensity.benchmark").joinpath(f"paper/{name}").read_text()
    return list(csv.DictReader(text.splitlines()))


def _row_name(row: dict[str, str]) -> str:
    if "m" in row:
        return f"m={row['m']} r={row['ratio']}"
    name = f"{row.get('construction') or row.get('strategy')} r={row['ratio']}"
    return f"{name} n_x={row['n_x']} n_y={row['n_y']}" if "n_x" in row else name
