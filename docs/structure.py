"""The picture and the numbers of docs/architecture.md: wings and packages in the order of imports, and how much code each has."""

from __future__ import annotations

import ast
import html
import re
import sys
import tomllib
from functools import cache
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.helpers import measures  # noqa: E402

PAGE = ROOT / "docs" / "architecture.md"
COLOURS = {"tools": "#8250df", "extras": "#bf8700", "library": "#0969da", "engine": "#1a7f37"}
WINGS = {
    "tools": "Tools",
    "extras": "Breadth of the interface",
    "library": "Paddle's library",
    "engine": "The engine",
}
# Pixels: a box, and what lies between two.
WIDTH, BOX, HEIGHT, GAP = 760, 112, 34, 8
NEAR = 0.1
"""A number on the page stays while it is so near to the measured one, so that a new op makes no page stale."""


@cache
def layers() -> tuple[tuple[str, ...], ...]:
    """Returns the packages and modules of each layer of the contract of imports, from the top."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract = next(one for one in settings["contracts"] if one["containers"] == ["tstatic"])
    return tuple(tuple(re.findall(r"\w+", row)) for row in contract["layers"])


@cache
def code() -> dict[str, int]:
    """Returns package or module at the top -> lines of code, without what explains it."""
    found: dict[str, int] = {}
    for file, lines in measures.code_by_file().items():
        name = file.split("/")[1].removesuffix(".py")
        found[name] = found.get(name, 0) + lines
    return found


def wing(name: str) -> str:
    """Returns the wing of a package."""
    return measures.wing_of(f"tstatic/{name}/")


def is_package(name: str) -> bool:
    """Returns whether a name of the contract is a package; the modules between them are the engine's ground."""
    return (ROOT / "tstatic" / name / "__init__.py").exists()


def _rounded(lines: int) -> str:
    return f"{round(lines, -2):,}" if lines < 10_000 else f"{round(lines, -3):,}"


def said(name: str, lines: int, page: str) -> str:
    """Returns the number for a row of the table: the one on the page, if that is still near."""
    before = re.search(rf"^\| `{name}/` \| ([\d,]+) \|", page, flags=re.MULTILINE)
    if before is not None and abs(int(before[1].replace(",", "")) - lines) <= NEAR * lines:
        return before[1]
    return _rounded(lines)


def _first_sentence(name: str) -> str:
    doc = ast.get_docstring(ast.parse((ROOT / "tstatic" / name / "__init__.py").read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=\.)\s", " ".join(doc.split()))[0].rstrip(".").replace("``", "`")


def page() -> str:
    """Returns docs/architecture.md with the order of imports and the table as they are."""
    text = PAGE.read_text(encoding="utf-8")
    rows = [" | ".join(row) for row in layers()]
    order = ["```text", *(f"{'  > ' if i else '    '}{row}" for i, row in enumerate(rows)), "```"]
    # The ground is many modules: a line of the block would be too long.
    order = [part for line in order for part in _folded(line)]
    table = ["| Package | Lines of code | |", "|---|---:|---|"]
    for found, names in groupby((one for row in layers() for one in row if is_package(one)), wing):
        listed = list(names)
        table.append(f"| **{WINGS[found]}** | | |")
        table += [f"| `{name}/` | {said(name, code()[name], text)} | {_first_sentence(name)} |" for name in listed]
    return _between(_between(text, "order", order), "table", table)


def _folded(line: str) -> list[str]:
    lines = [line]
    while len(lines[-1]) > 110:
        cut = lines[-1].rfind(" | ", 0, 110)
        lines[-1:] = [lines[-1][: cut + 2], f"      {lines[-1][cut + 3 :]}"]
    return lines


def _between(text: str, name: str, lines: list[str]) -> str:
    begin, end = f"<!-- {name}: made by docs/structure.py -->\n", f"<!-- end of {name} -->\n"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{chr(10).join(lines)}\n\n{end}{tail}"


def picture() -> str:
    """Returns the wings as SVG: rows point down only, and boxes in one row know nothing of each other unless they share a frame."""
    shown: list[str] = []
    y = GAP
    by_wing = groupby(((wing(row[0]), row) for row in layers() if any(map(is_package, row))), key=lambda one: one[0])
    for found, rows in by_wing:
        boxes: list[str] = []
        top, x = y, 170
        y += GAP
        for _, row in rows:
            for name in filter(is_package, row):
                if x + BOX > WIDTH - GAP:
                    x, y = 170, y + HEIGHT + GAP
                boxes += [
                    f'<rect x="{x}" y="{y}" width="{BOX}" height="{HEIGHT}" rx="5" fill="#ffffff" stroke="{COLOURS[found]}"/>',
                    f'<text x="{x + BOX / 2:g}" y="{y + 22}" text-anchor="middle">{name}</text>',
                ]
                x += BOX + GAP
        y += HEIGHT + GAP
        shown += [
            f'<rect x="{GAP}" y="{top}" width="{WIDTH - 2 * GAP}" height="{y - top}" rx="8" fill="{COLOURS[found]}" '
            f'fill-opacity="0.08" stroke="{COLOURS[found]}"/>',
            f'<text x="{2 * GAP}" y="{top + 28}" font-weight="bold" fill="{COLOURS[found]}">{html.escape(WINGS[found])}</text>',
            *boxes,
        ]
        y += GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" role="img">',
            "<title>Wings and packages of tstatic; each imports only what stands behind it or below</title>",
            '<g font-family="system-ui, sans-serif" font-size="13" fill="#24292f">',
            *shown,
            "</g>",
            "</svg>",
            "",
        ]
    )
