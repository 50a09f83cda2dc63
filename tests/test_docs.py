"""What the documentation shows works, and its links lead somewhere."""

import doctest
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.rst"), *DOCS.glob("howto/*.rst")])
# Pages without code of their own.
WITHOUT_CODE = {"api.rst", "howto/index.rst"}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def name_of(path):
    return path.relative_to(DOCS).as_posix()


def literal_blocks(path, language):
    """Return the contents of the code blocks of a language."""
    blocks, lines = [], path.read_text().splitlines()
    for i, line in enumerate(lines):
        if line.strip() == f".. code-block:: {language}":
            block = []
            for text in lines[i + 2 :]:
                if text and not text.startswith("   "):
                    break
                block.append(text[3:])
            blocks.append("\n".join(block).rstrip() + "\n")
    return blocks


def commands(path):
    """Return each `$ mcdensity` line of a page with the output that is shown below it."""
    out = []
    for block in literal_blocks(path, "console"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                out.append((shlex.split(line[2:], comments=True), []))
            elif line.strip():
                out[-1][1].append(line)
    return [(words[1:], shown) for words, shown in out if words[0] == "mcdensity"]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_examples_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = path.read_text()
    if "import pandas" in text:
        pytest.importorskip("pandas")
    if "load(" in text:
        pytest.importorskip("skops")
    if "mcdensity.skpro" in text:
        pytest.importorskip("skpro")
    result = doctest.testfile(
        str(path), module_relative=False, optionflags=OPTIONS, encoding="utf-8"
    )
    assert result.failed == 0
    assert (result.attempted > 0) != (name_of(path) in WITHOUT_CODE)
    assert not list(tmp_path.iterdir())


def test_all_python_is_run():
    """Python that is no doctest is run by the test below, and by no other."""
    found = {name_of(p): literal_blocks(p, "python") for p in PAGES}
    assert {name for name, blocks in found.items() if blocks} == {"tutorial.rst"}
    assert not any("+SKIP" in p.read_text() or ".. code::" in p.read_text() for p in PAGES)


def test_commands_of_the_tutorial(tmp_path, monkeypatch):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("skops")
    pytest.importorskip("matplotlib")
    testing = pytest.importorskip("typer.testing")
    from mcdensity.cli import app

    monkeypatch.chdir(tmp_path)

    def run(path):
        for words, shown in commands(path):
            result = testing.CliRunner().invoke(app, words, catch_exceptions=False)
            assert result.exit_code == 0, (words, result.output)
            for line in shown:
                assert line in result.output.splitlines(), words
        return len(commands(path))

    page = DOCS / "tutorial.rst"
    (code,) = literal_blocks(page, "python")
    exec(compile(code, str(page), "exec"), {})
    table = pd.read_csv("rents.csv")
    assert len(table) == 600
    assert table[["kind", "year"]].isna().any().all()
    # The table of the Python part is the same.
    doctests = [line.removeprefix(">>> ") for line in page.read_text().splitlines()]
    assert all(line in doctests for line in code.splitlines() if line and "to_csv" not in line)

    assert run(page) == 5
    predictions = pd.read_csv("predictions.csv")
    assert list(predictions.columns) == [
        "kind", "area", "rent", "lower_90", "upper_90", "above_1500",
    ]  # fmt: skip
    inside = predictions["rent"].between(predictions["lower_90"], predictions["upper_90"])
    assert 0.8 < inside.mean() < 0.99
    assert "rent: report" in Path("report.html").read_text()

    shutil.copy("rents.mcd", "model.mcd")
    shutil.copy("rents-held-out.csv", "held-out.csv")
    assert run(DOCS / "howto/calibration.rst") == 3


def test_commands_are_spelt_right():
    typer = pytest.importorskip("typer")
    from mcdensity.benchmark.protocols import get_protocol
    from mcdensity.benchmark.runner import plan
    from mcdensity.cli import app

    top = typer.main.get_command(app)
    number = 0
    for path in PAGES:
        for words, _ in commands(path):
            command, name, rest = top, "mcdensity", words
            while hasattr(command, "commands"):
                assert rest[0] in command.commands, (name_of(path), words)
                command, name, rest = command.commands[rest[0]], rest[0], rest[1:]
            given = command.make_context(name, list(rest)).params
            if name == "run":
                methods = given["methods"].split(",") if given["methods"] else None
                assert plan(get_protocol(given["protocol"]), methods, given["seeds"], None, False)
            number += 1
    assert number > 10


def test_pages_are_in_a_toctree():
    listed = {"index"}
    for path in PAGES:
        for block in re.findall(r"\.\. toctree::\n((?:   .*\n|\n)+)", path.read_text() + "\n"):
            for line in block.split():
                if not line.startswith(":"):
                    listed.add(os.path.normpath(Path(name_of(path)).parent / line))
    expected = {name_of(p).removesuffix(".rst") for p in PAGES}
    assert expected | {"gallery/index"} == listed


def test_links_of_pages():
    """Cheaply, without a build: pages, labels, files and objects that are linked exist."""
    text = {p: p.read_text() for p in PAGES}
    labels = {label for t in text.values() for label in re.findall(r"^\.\. _([\w-]+):$", t, re.M)}
    pages = {name_of(p).removesuffix(".rst") for p in PAGES} | {"gallery/index"}
    pages |= {f"gallery/{p.stem}" for p in (ROOT / "examples").glob("plot_*.py")}
    number = 0
    for path, page in text.items():
        folder = Path(name_of(path)).parent
        for role, content in re.findall(r":(\w+):`([^`]+)`", page):
            target = re.sub(r"^.*<(.*)>$", r"\1", content, flags=re.DOTALL).lstrip("~")
            if role == "doc":
                assert os.path.normpath(folder / target) in pages, (path, target)
            elif role == "ref":
                assert target in labels, (path, target)
            elif role in ("class", "func", "meth", "mod"):
                assert exists(target), (path, target)
            else:
                assert role == "math", (path, role)
                continue
            number += 1
        for target in re.findall(r"^\.\. (?:image|figure):: (\S+)$", page, re.M):
            assert (path.parent / target).is_file(), (path, target)
        for target in re.findall(r"`[^`<]+ <([^`>]+)>`__?", page):
            if "://" not in target:
                assert (path.parent / target).is_file(), (path, target)
        for target in re.findall(r"``(benchmarks/[^`]+)``", page):
            assert (ROOT / target).exists(), (path, target)
    assert number > 30


def exists(name):
    parts = name.split(".")
    found = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(parts[:i]))
            except ImportError:
                return False
        found = getattr(found, part)
    return True


def test_public_names_are_in_the_reference():
    listed = set(re.findall(r"^   ([\w.]+)$", (DOCS / "api.rst").read_text(), re.M))
    assert all(exists(f"mcdensity.{name}") for name in listed)
    last = {name.split(".")[-1] for name in listed}
    import mcdensity

    modules = [mcdensity, *(getattr(mcdensity, name) for name in sorted(mcdensity._MODULES))]
    for module in modules:
        public = {n for n in module.__all__ if not n.isupper() or callable(getattr(module, n))}
        assert public <= last, (module.__name__, public - last)


class Links(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key in ("href", "src") and value:
                self.links.add(value)
            elif key in ("id", "name") and value:
                self.anchors.add(value)


@pytest.mark.slow
def test_documentation_builds(tmp_path):
    for name in ("sphinx", "furo", "numpydoc", "sphinx_gallery", "matplotlib"):
        pytest.importorskip(name)
    shutil.copytree(
        DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("_build", "gallery", "generated")
    )
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    before = sorted(p.name for p in (tmp_path / "examples").iterdir())
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "docs", "html"],
        cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "examples").iterdir() if p.suffix) == before

    html = tmp_path / "html"
    assert (html / "results.html").is_file()
    pages = {p: Links(p.read_text()) for p in html.rglob("*.html") if p.name != "results.html"}
    assert len(pages) > 50
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link in ("#", "#top"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), (path.name, link)
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, (path.name, link)
