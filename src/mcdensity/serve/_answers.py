"""What clients get: laws turned into JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcdensity.distribution import ConditionalDistribution, JointDistribution
from mcdensity.serve._requests import Question

__all__ = ["Answer", "answer", "as_json", "select"]

# From the names of what was asked to one entry per row: numbers, or again such answers.
Answer = dict[str, Any]

# Rows that are written at once: Python's JSON holds up all other threads meanwhile.
_BLOCK = 500


def answer(law: Any, question: Question, levels: Any = None) -> Answer:
    """Answer a question for each row of a law.

    Parameters
    ----------
    law : ConditionalDistribution or JointDistribution
    question : Question
    levels : sequence of str, optional
        Names of the values of the target.
    """
    if isinstance(law, JointDistribution):
        return {name: answer(law.marginal(j), question) for j, name in enumerate(law.names)}
    out: Answer = {}
    if levels:
        out["probabilities"] = {str(v): law.pmf(float(i)) for i, v in enumerate(levels)}
    if question.mean:
        out["mean"] = law.mean()
    out |= _quantiles(law, question)
    if question.above:
        out["above"] = np.column_stack([law.sf(v) for v in question.above])
    if question.density:
        out["density"] = law.pdf_grid(question.density)
    return {k: v[:, 0] if k in question.single else v for k, v in out.items()}


def _quantiles(law: ConditionalDistribution, question: Question) -> Answer:
    """Quantiles and intervals, from one look at the law."""
    tails = [side for c in question.interval for side in ((1 - c) / 2, (1 + c) / 2)]
    levels = [*question.quantiles, *tails]
    if not levels:
        return {}
    found = law.ppf_grid(levels)
    count = len(question.quantiles)
    out: Answer = {"quantiles": found[:, :count]} if count else {}
    if tails:
        out["interval"] = found[:, count:].reshape(len(found), -1, 2)
    return out


def select(found: Answer, rows: slice) -> Answer:
    """Return the answers of some rows."""
    return {k: select(v, rows) if isinstance(v, dict) else v[rows] for k, v in found.items()}


def as_json(found: Answer, count: int, head: dict[str, Any]) -> bytes:
    """Write the answers of `count` rows, after what they have in common."""
    parts = []
    for start in range(0, count, _BLOCK):
        rows = _records(select(found, slice(start, min(start + _BLOCK, count))))
        parts.append(json.dumps(rows, allow_nan=False)[1:-1])
    first = json.dumps(head, allow_nan=False)[:-1]
    return f'{first}, "predictions": [{", ".join(parts)}]}}'.encode()


def _records(found: Answer) -> list[Any]:
    columns = [_records(v) if isinstance(v, dict) else _plain(v) for v in found.values()]
    return [dict(zip(found, values, strict=True)) for values in zip(*columns, strict=True)]


def _plain(values: NDArray[np.float64]) -> list[Any]:
    """Numbers as JSON knows them: nothing (null) for what is infinite."""
    infinite = ~np.isfinite(values)
    if not infinite.any():
        return values.tolist()
    objects = values.astype(object)
    objects[infinite] = None
    return objects.tolist()
