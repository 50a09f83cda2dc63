"""What the documentation shows works, and its links lead somewhere."""

import ast
import doctest
import importlib
import inspect
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
# Pages whose Python blocks make the files that their commands need; they are run in order.
WITH_FILES = {
    "tutorial.rst",
    "howto/tables.rst",
    "howto/several-targets.rst",
    "howto/large-data.rst",
}
# Pages without code of their own.
WITHOUT_CODE = {"api.rst", "howto/index.rst"}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def name_of(path):
    return path.relative_to(DOCS).as_posix()


def literal_blocks(path, *languages):
    """Return the contents of the code blocks of some languages, in their order."""
    blocks, lines = [], path.read_text().splitlines()
    for i, line in enumerate(lines):
        if line.strip() in {f".. code-block:: {language}" for language in languages}:
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
        out += commands_of(block)
    return [(words[1:], shown) for words, shown in out if words[0] == "mcdensity"]


def commands_of(block):
    out = []
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            words = [] if line.startswith("$ curl") else shlex.split(line[2:], comments=True)
            out.append((words or ["curl"], []))
        elif line.strip():
            out[-1][1].append(line)
    return out


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_examples_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = path.read_text()
    if "import pandas" in text:
        pytest.importorskip("pandas")
    if "load(" in text:
        pytest.importorskip("skops")
    for name, library in (
        ("mcdensity.skpro", "skpro"),
        ("matplotlib", "matplotlib"),
        ("mcdensity.serve", "fastapi"),
        ("mcdensity.exporting", "onnx"),
    ):
        if f"import {name}" in text or f"from {name}" in text:
            pytest.importorskip(library)
    result = doctest.testfile(
        str(path), module_relative=False, optionflags=OPTIONS, encoding="utf-8"
    )
    assert result.failed == 0
    assert (result.attempted > 0) != (name_of(path) in WITHOUT_CODE)
    assert not list(tmp_path.iterdir())


def test_all_python_is_run():
    """Python that is no doctest makes files for commands; the tests below run it."""
    found = {name_of(p): literal_blocks(p, "python") for p in PAGES}
    assert {name for name, blocks in found.items() if blocks} == WITH_FILES
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

    # What `mcdensity demo` would have written.
    Path("demo").mkdir()
    shutil.copy("rents.mcd", "demo/model.mcd")
    shutil.copy("rents-held-out.csv", "demo/model-held-out.csv")
    assert run(DOCS / "howto/calibration.rst") == 3


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """What `mcdensity demo` writes, which many pages start from."""
    testing = pytest.importorskip("typer.testing")
    from mcdensity.cli import app

    folder = tmp_path_factory.mktemp("demo")
    words = ["demo", "--output", str(folder / "demo")]
    assert testing.CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    return folder / "demo"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [p for p in PAGES if commands(p) and name_of(p) != "tutorial.rst"], ids=name_of
)
def test_pages_can_be_followed(path, tmp_path, monkeypatch, request):
    """Each page with commands, from top to bottom, in an empty folder."""
    pytest.importorskip("skops")
    pytest.importorskip("matplotlib")
    testing = pytest.importorskip("typer.testing")
    from mcdensity.cli import app

    monkeypatch.chdir(tmp_path)
    if "``mcdensity demo`` writes" in " ".join(path.read_text().split()):
        shutil.copytree(request.getfixturevalue("demo"), "demo")
    for block in literal_blocks(path, "python", "console"):
        if not block.startswith("$ "):
            exec(compile(block, str(path), "exec"), {})
            continue
        for words, _ in commands_of(block):
            # The demo is there already, and a server does not end; other tests run it.
            if words[0] == "mcdensity" and words[1] not in ("demo", "serve"):
                invoke = testing.CliRunner().invoke
                result = invoke(app, words[1:], catch_exceptions=False)
                assert result.exit_code == 0, (words, result.output)


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
            for line in block.splitlines():
                if line.strip() and not line.strip().startswith(":"):
                    listed.add(os.path.normpath(Path(name_of(path)).parent / line.strip()))
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
        assert ".. contents::" not in page, path  # the theme shows an error in its place
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


def names_in_use():
    """Return all names that the code of the pages uses."""
    found = set()
    for path in PAGES:
        for example in doctest.DocTestParser().get_examples(path.read_text()):
            for node in ast.walk(ast.parse(example.source)):
                if isinstance(node, ast.Name):
                    found.add(node.id)
                elif isinstance(node, ast.Attribute):
                    found.add(node.attr)
                elif isinstance(node, ast.alias):
                    found.add(node.name.split(".")[-1])
    return found


def own_docstring(item):
    """Return what a class or function says itself, and not what it inherits."""
    return (vars(item).get("__doc__") if inspect.isclass(item) else item.__doc__) or ""


def test_every_public_name_has_an_example():
    """In its own docstring, whose examples pytest runs, or in the doctests of a page."""
    pytest.importorskip("fastapi")
    pytest.importorskip("skpro")
    import mcdensity

    listed = re.findall(r"^   ([\w.]+)$", (DOCS / "api.rst").read_text(), re.M)
    names = {*listed, *mcdensity.__all__}
    assert len(names) > 140
    in_use = names_in_use()
    without = []
    for name in sorted(names):
        assert exists(f"mcdensity.{name}")  # imports its module
        item = mcdensity
        for part in name.split("."):
            item = getattr(item, part)
        if ">>> " not in own_docstring(item) and name.split(".")[-1] not in in_use:
            without.append(name)
    assert without == []


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
