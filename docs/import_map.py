"""The map of the house: which part of the package imports which, drawn from the source.

``python docs/import_map.py`` (or ``make map``) renews ``docs/images/import-map.svg``.
``tests/test_imports.py`` takes the layers and the imports from here.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "mcdensity"
PICTURE = ROOT / "docs" / "images" / "import-map.svg"

# From the top of the house to the bottom: a part imports only what is below it, or beside it in
# its own layer without a circle. A part is a folder or a file of src/mcdensity.
LAYERS: dict[str, tuple[str, ...]] = {
    "commands": ("cli",),
    "programs": ("benchmark", "streaming", "serve", "report", "explorer", "exporting", "skpro"),
    "files": ("persistence", "_codec", "_predictions", "datasets"),
    "judging": ("metrics", "plotting", "inspection", "shift"),
    "estimators": ("tables", "pipelines", "baselines", "simulators", "_delegate"),
    "the method": ("mcd",),
    "the contract": (
        "estimator", "chain", "contrasted", "likelihood", "_several", "_joint_choice",
        "_distilling", "_calibration", "_conformal", "_censoring", "_mixed",
    ),
    "portfolio": ("portfolio",),
    "experts": ("experts", "discriminators"),
    "networks": ("networks",),
    "rows": ("data", "contrast", "_inputs", "_ratios", "_suited"),
    "targets": ("target", "target_kind", "marginals"),
    "laws": ("distribution",),
    "tools": (
        "_validation", "_files", "_table_files", "_columns", "_parallel", "_progress", "_effort",
        "_known", "_folds", "_levels", "_pairs", "_mixing", "_scaling", "_bounds", "_numbers",
    ),
}  # fmt: skip
SAYS = {
    "commands": "what users type",
    "programs": "each takes a fitted model, or makes one from files",
    "files": "model files, predictions, data sets",
    "judging": "is it good, what has it learned",
    "estimators": "around MCD, and beside it",
    "the method": "MCD",
    "the contract": "what every estimator can do",
    "portfolio": "which experts, with what weights",
    "experts": "one model of the law of y given x each",
    "networks": "torch lives here",
    "rows": "rows, folds, labelled pairs",
    "targets": "y alone: kind, support, density",
    "laws": "what a prediction is",
    "tools": "used everywhere: arrows to them are not drawn",
}
# Imports by name against the layers: what is above registers itself below.
UPWARD = {
    ("experts", "portfolio"): "`auto` is an expert made of experts: the registry must find it",
    ("_known", "experts"): "model files name experts, which register themselves when found",
}


@dataclass(frozen=True)
class Import:
    """One import: between modules, at the top of a file or where it is used."""

    module: str
    imported: str
    at_top: bool

    @property
    def parts(self) -> tuple[str, str]:
        """The parts of the house on both sides."""
        return part_of(self.module), part_of(self.imported)


def part_of(module: str) -> str:
    """Return the folder or file of src/mcdensity that a module belongs to ("" for the front)."""
    return module.partition(".")[2].partition(".")[0]


def modules() -> dict[str, Path]:
    """Return the modules of the package, and their files."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        names = ("mcdensity", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(names).removesuffix(".__init__")] = path
    return found


@cache
def imports() -> list[Import]:
    """Read all imports of the package from its source, but those for types only."""
    known = modules()
    found = {}
    for module, path in known.items():
        for name, at_top in _imports_in(ast.parse(path.read_text(encoding="utf-8")), True):
            names = name.split(".")
            while names and ".".join(names) not in known:
                names.pop()
            if names and ".".join(names) != module:
                key = module, ".".join(names)
                found[key] = found.get(key, False) or at_top
    return [Import(*pair, at_top) for pair, at_top in sorted(found.items())]


def _imports_in(node: ast.AST, at_top: bool) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, at_top) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from ((f"{child.module}.{alias.name}", at_top) for alias in child.names)
        elif isinstance(child, ast.Call) and ast.unparse(child.func).endswith("import_module"):
            yield _beginning(child.args[0]), False
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _imports_in(child, at_top and not inside)


def _beginning(name: ast.expr) -> str:
    """Return the part of a module's name that is written out."""
    first = name.values[0] if isinstance(name, ast.JoinedStr) else name
    return str(first.value) if isinstance(first, ast.Constant) else ""


@cache
def arrows() -> dict[tuple[str, str], bool]:
    """Return the imports between parts of the house, and whether one is at the top of a file.

    The front, `mcdensity/__init__.py`, loads what is asked for and is not a part.
    """
    found: dict[tuple[str, str], bool] = {}
    for each in imports():
        one, other = each.parts
        if one and other and one != other:
            found[one, other] = found.get((one, other), False) or each.at_top
    return found


def needed(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Leave out the arrows that a way over other parts implies (the transitive reduction)."""
    below: dict[str, set[str]] = {}
    for one, other in pairs:
        below.setdefault(one, set()).add(other)

    def reach(part: str) -> set[str]:
        return {part}.union(*(reach(other) for other in below.get(part, ())))

    return {
        (one, other)
        for one, other in pairs
        if not any(other in reach(way) for way in below[one] - {other})
    }


# The drawing. Parts stand in rows; an arrow that passes a row has a place of its own there, so that
# it runs between the boxes.
WIDTH, LEFT, ROW, BOX, GAP = 940, 236, 54, 26, 16
COLOURS = ("#f4f6fb", "#e9eef8")
STYLE = """
text { font: 12px "DejaVu Sans", Verdana, Helvetica, Arial, sans-serif; fill: #1c2733; }
.layer { font-size: 14px; font-weight: bold; } .says { font-size: 11px; fill: #51606f; }
.title { font-size: 18px; font-weight: bold; }
.box { fill: #ffffff; stroke: #35618f; stroke-width: 1.2; } .inner { stroke: #b6c3d1; }
.innertext { fill: #51606f; font-size: 11px; }
.arrow { fill: none; stroke: #35618f; stroke-width: 1.1; opacity: 0.75; }
.lazy { stroke-dasharray: 4 3; }
"""


def rows() -> list[tuple[str, list[str]]]:
    """Return the rows of boxes from the top: within a layer, who imports stands above."""
    pairs, found = set(arrows()) - set(UPWARD), []
    for layer, members in LAYERS.items():
        above: dict[str, int] = dict.fromkeys(members, 0)
        for _ in members:
            for one, other in pairs:
                if one in above and other in above:
                    above[other] = max(above[other], above[one] + 1)
        if layer == "tools":
            found += [(layer, list(members[start::3])) for start in range(3)]
            continue
        for depth in range(max(above.values()) + 1):
            found.append((layer, [part for part in members if above[part] == depth]))
    return found


def ways(levels: dict[str, int]) -> dict[tuple[str, str], list[str]]:
    """Return the arrows to draw, and the places that each passes: "one>other@row" in between."""
    drawn = {p for p in arrows() if p not in UPWARD and p[1] not in LAYERS["tools"]}
    return {
        (one, other): [
            one,
            *(f"{one}>{other}@{row}" for row in range(levels[one] + 1, levels[other])),
            other,
        ]
        for one, other in sorted(needed(drawn))
    }


def width(name: str) -> float:
    """Return the room that a box, or an arrow that passes, takes."""
    return 8.0 if "@" in name else 7.4 * len(name) + 20


def placed(order: list[list[str]], chains: list[list[str]]) -> dict[str, float]:
    """Return where along its row each stands: near what it is joined to, without overlap."""
    joined: dict[str, list[str]] = {}
    for chain in chains:
        for one, other in pairwise(chain):
            joined.setdefault(one, []).append(other)
            joined.setdefault(other, []).append(one)
    middle = (WIDTH + LEFT) / 2
    x: dict[str, float] = {}
    for names in order:
        total = sum(width(name) + GAP for name in names)
        start = middle - total / 2
        for name in names:
            x[name] = start + width(name) / 2
            start += width(name) + GAP
    for sweep in range(60):
        for names in order if sweep % 2 else order[::-1]:
            wish = {n: _mean([x[m] for m in joined[n]]) if n in joined else x[n] for n in names}
            if sweep < 40:
                names.sort(key=lambda n: (wish[n], n))
            _set_apart(names, wish, x)
    return x


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _set_apart(names: list[str], wish: dict[str, float], x: dict[str, float]) -> None:
    """Place a row at what it wishes for, moved apart where boxes overlap (pooled neighbours)."""
    offset = 0.0
    blocks: list[list[float]] = []
    offsets = []
    for name in names:
        offset += width(name) / 2
        offsets.append(offset)
        blocks.append([wish[name] - offset, 1.0])
        offset += width(name) / 2 + GAP
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            value, count = blocks.pop()
            other, more = blocks.pop()
            blocks.append([(value * count + other * more) / (count + more), count + more])
    starts = [value for value, count in blocks for _ in range(int(count))]
    least, most = LEFT + 6.0, WIDTH - 6.0 - (offset - GAP)
    for name, start, place in zip(names, starts, offsets, strict=True):
        x[name] = min(max(start, least), max(most, least)) + place


def picture() -> str:
    """Return the map as SVG."""
    table = rows()
    levels = {part: i for i, (_, members) in enumerate(table) for part in members}
    chains = ways(levels)
    order = [list(members) for _, members in table]
    for chain in chains.values():
        for name in chain[1:-1]:
            order[int(name.rpartition("@")[2])].append(name)
    x = placed(order, list(chains.values()))
    top = 84
    y = {name: top + ROW * row + ROW / 2 for row, names in enumerate(order) for name in names}
    height = top + ROW * len(table) + 14
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" '
        'aria-label="The layers of mcdensity: who imports whom">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#35618f"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text class="title" x="20" y="34">The map of the house</text>',
        '<text class="says" x="20" y="56">A part imports only what is below it. Dashed: imported '
        "where it is used, not at the top of a file. Implied arrows "
        "are left out.</text>",
    ]
    out += _bands(table, top)
    for (one, other), chain in chains.items():
        lazy = "" if arrows()[one, other] else " lazy"
        out.append(f'<path class="arrow{lazy}" marker-end="url(#tip)" d="{_curve(chain, x, y)}"/>')
    for name in levels:
        inner = name.startswith("_")
        out.append(
            f'<rect class="box{" inner" if inner else ""}" x="{x[name] - width(name) / 2:.1f}" '
            f'y="{y[name] - BOX / 2:.1f}" width="{width(name):.1f}" height="{BOX}" rx="5"/>'
            f'<text class="{"innertext" if inner else "name"}" x="{x[name]:.1f}" '
            f'y="{y[name] + 4:.1f}" text-anchor="middle">{name}</text>'
        )
    return "\n".join([*out, "</svg>", ""])


def _bands(table: list[tuple[str, list[str]]], top: float) -> Iterator[str]:
    for number, layer in enumerate(LAYERS):
        own = [row for row, (name, _) in enumerate(table) if name == layer]
        begin, size = top + ROW * own[0], ROW * len(own)
        yield (
            f'<rect x="0" y="{begin}" width="{WIDTH}" height="{size}" '
            f'fill="{COLOURS[number % 2]}"/>'
            f'<text class="layer" x="20" y="{begin + 27}">{escape(layer)}</text>'
        )
        words, line = SAYS[layer].split(), ""
        lines = []
        for word in words:
            if len(f"{line} {word}") > 34:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}".strip()
        for i, text in enumerate([*lines, line]):
            yield f'<text class="says" x="20" y="{begin + 43 + 13 * i}">{escape(text)}</text>'


def _curve(chain: list[str], x: dict[str, float], y: dict[str, float]) -> str:
    """Return a smooth way from the lower side of a box to the upper side of another."""
    points = [(x[chain[0]], y[chain[0]] + BOX / 2)]
    for name in chain[1:-1]:
        points += [(x[name], y[name] - BOX / 2), (x[name], y[name] + BOX / 2)]
    points.append((x[chain[-1]], y[chain[-1]] - BOX / 2))
    text = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (a, b), (c, d) in pairwise(points):
        if a == c:
            text += f"V{d:.1f}"
        else:
            half = (b + d) / 2
            text += f"C{a:.1f} {half:.1f} {c:.1f} {half:.1f} {c:.1f} {d:.1f}"
    return text


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(picture(), encoding="utf-8")
    print(PICTURE)


if __name__ == "__main__":
    main()
