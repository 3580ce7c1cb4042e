"""Figures of compiled kernels, kept in a file per version of triton, and what counts as a step back.

``python tests/kernels/golden.py --write`` renews them (``--python`` for another environment's triton).

A kernel of a way that is planned nowhere (a tile to be timed against others) may be bad, or fail to compile in time: it is refused,
and stands in a list beside the figures.

A third file has a digest of each kernel's source: what is on record of an unchanged kernel need not be found out again.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.kernels import registry as registered  # noqa: E402
from tests.kernels.limits import Kind, violations  # noqa: E402
from tstatic.chips.aot import Source, compile_all  # noqa: E402 - the line above makes it importable for a script
from tstatic.chips.report import Report  # noqa: E402
from tstatic.target import DEFAULT_TARGET  # noqa: E402

FOLDER = Path(__file__).with_name("golden")
REGISTRY = "tests.kernels.registry:kernels"

Registry = Callable[[], Iterable[tuple[str, Kind, Source]]]
Figures = dict[str, int]
Golden = dict[str, dict[str, Figures]]
"""Kernel -> chip -> figures."""
Refused = dict[str, list[str]]
"""Kernel of a way that is planned nowhere -> what is wrong with it, on the chip of its name."""


def path(triton: str, folder: Path = FOLDER) -> Path:
    """The file for a version of triton, and the target that launches are planned for: it decides constants and warps."""
    return folder / f"{triton}-{DEFAULT_TARGET.short_name}.json"


def read(triton: str, folder: Path = FOLDER) -> Golden:
    """What is on record; nothing for a version without a file."""
    file = path(triton, folder)
    if not file.exists():
        return {}
    golden: Golden = json.loads(file.read_text(encoding="utf-8"))
    return golden


def refused_path(triton: str, folder: Path = FOLDER) -> Path:
    """The file with the list of refused kernels."""
    return path(triton, folder).with_suffix(".refused.json")


def read_refused(triton: str, folder: Path = FOLDER) -> Refused:
    """The kernels that are refused on record."""
    file = refused_path(triton, folder)
    found: Refused = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def sources_path(triton: str, folder: Path = FOLDER) -> Path:
    """The file with the digests of the sources that the figures are of."""
    return path(triton, folder).with_suffix(".sources.json")


def read_sources(triton: str, folder: Path = FOLDER) -> dict[str, str]:
    """Kernel -> digest of the source that the figures on record are of."""
    file = sources_path(triton, folder)
    found: dict[str, str] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def write_sources(triton: str, digests: Mapping[str, str], folder: Path = FOLDER) -> None:
    """Puts digests on record in place of what was there."""
    sources_path(triton, folder).write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def digest(source: Source) -> str:
    """A digest of all that a compiler gets; with its version and the chip it decides the figures.

    Comments do not count, and neither do names of numbers: a compiler puts the number in their place before it does anything else
    (``test_a_name_changes_no_code``).
    """
    return hashlib.sha256(repr(replace(source, text=_bare(source.text))).encode()).hexdigest()[:16]


@cache
def _bare(text: str) -> str:
    """The text without comments, docstrings and names of numbers; several functions of it may be compiled, by several versions."""
    tree = in_numbers(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
            # Of a module it names lines of the program.
            node.body[:1] = [] if node.body[1:] else [ast.Pass()]
    return ast.unparse(tree)


def in_numbers(text: str) -> ast.Module:
    """Returns a module with numbers in the place of their names."""
    tree = ast.parse(text)
    _Numbered().visit(tree)
    return ast.fix_missing_locations(tree)


class _Numbered(ast.NodeTransformer):
    """Puts numbers in the place of their names, ``NAME: tl.constexpr = 8``, and of sums and products of numbers."""

    def __init__(self) -> None:
        self.values: dict[str, ast.Constant] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        # In capitals: no variable of the function is called so.
        named = [n for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.value, ast.Constant)]
        self.values = {
            n.target.id: n.value for n in named if isinstance(n.target, ast.Name) and isinstance(n.value, ast.Constant)
        }
        node.body = [n for n in node.body if n not in named]
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.values.get(node.id, node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        match node.left, node.op, node.right:
            case ast.Constant(int(a)), ast.Mult(), ast.Constant(int(b)):
                return ast.Constant(a * b)
            case ast.Constant(int(a)), ast.Add(), ast.Constant(int(b)):
                return ast.Constant(a + b)
        return node


def unchanged(kernels: Mapping[str, Source], digests: Mapping[str, str]) -> set[str]:
    """The kernels whose source is that of the figures on record, but for a twentieth, which is checked again in any case."""
    found = {name: digest(source) for name, source in kernels.items()}
    return {name for name, own in found.items() if digests.get(name) == own and int(own, 16) % 20}


def judge(reports: Iterable[Report], kinds: Mapping[str, Kind]) -> tuple[list[str], Refused]:
    """What is wrong with kernels that are planned; and the kernels that are refused, which are not."""
    bad: list[str] = []
    refused: Refused = {}
    for report in reports:
        found = violations(report, kind=kinds[report.name])
        if found and registered.is_alternative(report.name):
            # The first line: what compilers print behind it has paths and addresses.
            refused[report.name] = [text.split(": ", 1)[1].splitlines()[0] for text in found]
        else:
            bad += found
    return bad, refused


def changes(recorded: Refused, refused: Refused, names: Iterable[str]) -> list[str]:
    """How the refused among these kernels differ from those on record."""
    compiled = set(names)
    fresh = [f"{name} is refused: {'; '.join(why)}" for name, why in refused.items() if name not in recorded]
    good = [f"{n}: on record as refused, but is not" for n in recorded if n in compiled and n not in refused]
    return fresh + good


def collect(reports: Iterable[Report]) -> Golden:
    """Figures by kernel and chip, figures that are 0 left out; a kernel that did not compile has none."""
    golden: Golden = {}
    for report in reports:
        if not report.error:
            figures = {name: value for name, value in report.figures().items() if value}
            golden.setdefault(report.name, {})[str(report.chip)] = figures
    return golden


def write(triton: str, reports: Iterable[Report], folder: Path = FOLDER) -> Path:
    """Puts the figures on record in place of what was there: one line per kernel and chip, sorted."""
    return _write(triton, collect(reports), folder)


def _write(triton: str, golden: Golden, folder: Path) -> Path:
    lines = []
    for name, chips in sorted(golden.items()):
        rows = [
            f'  "{chip}": {json.dumps(figures)}' for chip, figures in sorted(chips.items(), key=lambda c: int(c[0]))
        ]
        lines.append(f" {json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n }")
    file = path(triton, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return file


def _worse(name: str, was: int, now: int) -> bool:
    """Whether a figure took a step back: registers may wander by a tenth."""
    if name == "registers":
        return now > 1.1 * was
    if name in ("loads_128", "stores_128"):
        return now < was
    return now > was


WATCHED = ("registers", "stack", "spill_stores", "spill_loads", "shared", "barriers", "loads_128", "stores_128")


def regressions(golden: Mapping[str, Mapping[str, Figures]], reports: Iterable[Report]) -> list[str]:
    """What got worse than on record, what is on record no longer, and what is not on record; empty when all is well."""
    found = []
    reports = list(reports)
    for report in reports:
        who = f"{report.name} on sm_{report.chip} (triton {report.triton})"
        was = golden.get(report.name, {}).get(str(report.chip))
        if report.error:
            found.append(f"{who}: does not compile: {report.error}")
            continue
        if was is None:
            found.append(f"{who}: no figures on record")
            continue
        now = report.figures()
        found += [
            f"{who}: {name} was {was.get(name, 0)}, now {now[name]}"
            for name in WATCHED
            if _worse(name, was.get(name, 0), now[name])
        ]
    known = {(r.name, str(r.chip)) for r in reports}
    gone = [(name, chip) for name, chips in golden.items() for chip in chips if (name, chip) not in known]
    return found + [f"{name} on sm_{chip}: on record, but no such kernel was compiled" for name, chip in gone]


def load(registry: str) -> Registry:
    """The function that a "module:function" names."""
    module, _, function = registry.partition(":")
    found: Registry = getattr(importlib.import_module(module), function)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Compares the figures with those on record, or with ``--write`` renews them; 1 where something got worse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the figures on record")
    parser.add_argument("--python", default=sys.executable, help="interpreter whose triton compiles")
    parser.add_argument("--registry", default=REGISTRY, help="module:function that yields (name, kind, source)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the files lie")
    parser.add_argument("--only", default="", help="kernels whose name contains this; the others stay on record")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(arguments)
    everything = {name: (kind, source) for name, kind, source in load(given.registry)()}
    kernels = {name: pair for name, pair in everything.items() if given.only in name}
    kinds = {name: kind for name, (kind, _) in kernels.items()}
    # The older version is that of GPU machines of one generation.
    pinned = Path(given.python).resolve() == Path(sys.executable).resolve() or given.python == sys.executable
    targets = {name: registered.chips(name, pinned=pinned) for name in kernels}
    reports = compile_all({n: s for n, (_, s) in kernels.items()}, targets, given.python, given.workers)
    bad, refused = judge(reports, kinds)
    triton = reports[0].triton if reports else ""
    record = read(triton, given.folder) if reports else {}
    recorded = read_refused(triton, given.folder) if reports else {}
    others = {name: chips for name, chips in record.items() if name in everything and name not in kernels}
    if reports and given.write and not bad:
        kept = collect(r for r in reports if r.name not in refused)
        print(f"wrote {_write(triton, others | kept, given.folder)}")
        compiled = {r.name: digest(kernels[r.name][1]) for r in reports}
        rest = {n: one for n, one in read_sources(triton, given.folder).items() if n in everything and n not in kernels}
        write_sources(triton, rest | compiled, given.folder)
        listed = {n: why for n, why in recorded.items() if n in everything and n not in kernels} | refused
        if listed or recorded:
            refused_path(triton, given.folder).write_text(json.dumps(listed, indent=1, sort_keys=True) + "\n", "utf-8")
        return 0
    if reports:
        bad += changes(recorded, refused, kernels)
        good = [r for r in reports if r.name not in refused]
        bad += regressions({n: c for n, c in record.items() if n not in others}, good)
    print("\n".join(bad) or f"{len(reports)} compiled kernels are as good as on record")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
