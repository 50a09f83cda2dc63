"""Imports point one way: `docs/import_map.py` has the layers, and draws them."""

import ast
import importlib.util
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def load_map():
    spec = importlib.util.spec_from_file_location("import_map", ROOT / "docs" / "import_map.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["import_map"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


house = load_map()
LEVEL = {part: level for level, parts in enumerate(house.LAYERS.values()) for part in parts}
# Arrows that the layers allow, and that must not be there.
STRANGERS = [("portfolio", "networks"), ("estimator", "experts"), ("contrast", "data")]


def graph(pairs):
    found = {}
    for one, other in pairs:
        found.setdefault(one, set()).add(other)
    return found


def test_every_part_is_in_one_layer():
    parts = [part for layer in house.LAYERS.values() for part in layer]
    assert len(parts) == len(set(parts))
    assert set(parts) == {house.part_of(module) for module in house.modules()} - {""}
    assert set(house.SAYS) == set(house.LAYERS)


def test_no_arrow_goes_up():
    """Neither at the top of a file, nor in a function, but for the two that are explained."""
    upward = {pair for pair in house.arrows() if LEVEL[pair[0]] > LEVEL[pair[1]]}
    assert upward == set(house.UPWARD)
    assert not any(house.arrows()[pair] for pair in upward)  # none when the module is loaded


def test_no_circle_of_parts():
    pairs = set(house.arrows()) - set(house.UPWARD)
    TopologicalSorter(graph(pairs)).prepare()  # a CycleError names the circle


def test_no_circle_of_modules():
    """Among imports at the top of files, which run when a module is loaded."""
    pairs = {(each.module, each.imported) for each in house.imports() if each.at_top}
    TopologicalSorter(graph(pairs)).prepare()


@pytest.mark.parametrize("pair", STRANGERS)
def test_strangers(pair):
    assert pair not in house.arrows()


def test_imports_are_read_as_python_does():
    """A circle and an import in a function are seen; one for types is not."""
    source = """
import one
if TYPE_CHECKING:
    import two
class A:
    from three import name
    def method(self):
        import four
        import_module(f"five.{name}")
"""
    found = dict(house._imports_in(ast.parse(source), True))
    assert found == {"one": True, "three.name": True, "four": False, "five.": False}
    assert house.needed({("a", "b"), ("b", "c"), ("a", "c")}) == {("a", "b"), ("b", "c")}


def test_torch_is_imported_where_networks_are():
    for module, path in house.modules().items():
        top = {n for n, at_top in house._imports_in(ast.parse(path.read_text()), True) if at_top}
        if any(name.split(".")[0] == "torch" for name in top):
            assert house.part_of(module) in ("networks", "baselines"), module


def test_the_package_is_light():
    code = (
        "import sys, mcdensity; heavy = {'torch', 'sklearn', 'scipy', 'pandas', 'numpy'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules); "
        "from mcdensity import MCD; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_picture_is_up_to_date():
    assert house.PICTURE.read_text() == house.picture(), "renew it with: make map"
