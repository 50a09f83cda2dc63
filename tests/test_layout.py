"""The source stays readable: short files, short functions."""

import ast
from pathlib import Path

import pytest

import mcdensity

SOURCE = Path(mcdensity.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
MOST_LINES, LONGEST_FUNCTION = 450, 80


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_are_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < LONGEST_FUNCTION, node.name
