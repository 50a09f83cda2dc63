"""Every example runs, and what the README shows works."""

import re
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("plot_*.py")), ids=lambda p: p.stem
)
def test_example(path, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    pictures = list(tmp_path.rglob("*.png"))
    assert pictures
    assert all(picture.stat().st_size > 10_000 for picture in pictures)


def test_readme_example(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 4
    namespace: dict = {}
    for lines, code in zip((5, 4), (blocks[0], blocks[3]), strict=True):
        exec(compile(code, "README.md", "exec"), namespace)
        assert namespace["model"].score(namespace["X_test"], namespace["y_test"]) > -5.8
        assert len(capsys.readouterr().out.splitlines()) == lines
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    namespace |= {"X": X, "visits": rng.poisson(np.exp(X[:, 0])), "X_new": X[:3]}
    exec(compile(blocks[1], "README.md", "exec"), namespace)
    assert capsys.readouterr().out.startswith("discrete (0.0, inf)")
    heating = 20 + 5 * X[:, 0] + rng.normal(size=100)
    cooling = heating + rng.normal(size=100)
    namespace["Y"] = pd.DataFrame({"heating": heating, "cooling": cooling})
    exec(compile(blocks[2], "README.md", "exec"), namespace)
    assert namespace["law"].names == ["heating", "cooling"]


def test_links_of_the_readme():
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text())
    assert len(links) > 30
    for link in links:
        assert "://" in link or (ROOT / link).exists(), link


def test_project_speaks_of_itself_alone():
    """No paths of one machine in what is published."""
    suffixes = {".py", ".md", ".toml", ".txt", ".yaml"}
    for path in ROOT.rglob("*"):
        hidden = any(part.startswith((".venv", ".git")) for part in path.relative_to(ROOT).parts)
        if path.suffix in suffixes and not hidden:
            assert "/" + "work/" not in path.read_text(errors="ignore"), path
