"""What the library's source is measured by: each function lists what should not be there, or counts what should be little.

As a script it writes the numbers of ``tests/unit/ratchets.json`` that became better: ``python -m tests.helpers.measures``.
"""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.helpers import source
from tstatic.ir.opdef import OPS

ROOT, PACKAGE = source.ROOT, source.PACKAGE
RECORD = ROOT / "tests" / "unit" / "ratchets.json"

Trees = Mapping[str, ast.Module]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
"""Path below the root -> syntax tree."""


@cache
def trees() -> Trees:
    """All files of the library."""
    return {str(f.relative_to(ROOT)): source.tree(f) for f in source.files()}


# -------------------------------------------------------------------------------------------------------- import circles
def module_of(file: str) -> str:
    """``tstatic/ops/__init__.py`` is ``tstatic.ops``."""
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def imports(files: Trees) -> dict[str, set[str]]:
    """Module -> modules that it names in an import: at the top, inside a function or for types only."""
    modules = {module_of(f) for f in files}
    found: dict[str, set[str]] = {}
    for file, tree in files.items():
        named: set[str] = set()
        for node in source.walk(tree):
            if isinstance(node, ast.Import):
                named |= {a.name for a in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                parts = {f"{node.module}.{a.name}" for a in node.names}
                named |= {p if p in modules else node.module for p in parts}
        found[module_of(file)] = (named & modules) - {module_of(file)}
    return found


def import_circles(files: Trees) -> list[str]:
    """Sets of modules each of which imports every other one, directly or through others."""
    graph = imports(files)

    def reach(start: str) -> frozenset[str]:
        seen: set[str] = set()
        pending = [start]
        while pending:
            for one in graph[pending.pop()] - seen:
                seen.add(one)
                pending.append(one)
        return frozenset(seen)

    reached = {m: reach(m) for m in graph}
    inside = sorted(m for m in graph if m in reached[m])
    return sorted({", ".join(n for n in inside if n in reached[m] and m in reached[n]) for m in inside})


# ----------------------------------------------------------------------------------------------------- families of ops
SHARED_FLOORS = ("base", "functions")
"""Below the families, and above them."""


def family_imports(files: Trees) -> list[str]:
    """Imports of one family of ops by another; a contract keeps them without circles."""
    return [
        f"{module} imports {other}"
        for module, others in imports(files).items()
        for other in sorted(others)
        if (own := _family(module)) and (there := _family(other)) and own != there
    ]


def private_imports(files: Trees) -> list[str]:
    """Imports between rooms of ``ops`` of modules that are a family's own: their names begin with an underscore."""
    return [
        f"{module} imports {other}"
        for module, others in imports(files).items()
        for other in sorted(others)
        if module.startswith("tstatic.ops.")
        and other.startswith("tstatic.ops.")
        and other.rpartition(".")[2].startswith("_")
        if module.rpartition(".")[0] != other.rpartition(".")[0]
    ]


def _family(module: str) -> str:
    parts = module.split(".")
    return parts[2] if parts[:2] == ["tstatic", "ops"] and len(parts) > 3 and parts[2] not in SHARED_FLOORS else ""


# ------------------------------------------------------------------------------------------------- probes of references
# What only some kinds of references have.
_PROBED = {"bind_arrays", "code", "fold", "function", "nodes", "powers", "scratch_metas"}


def reference_probes(files: Trees) -> list[str]:
    """``hasattr``, ``getattr`` and ``isinstance`` by which code finds out what kind of reference an op has."""
    found = []
    for file, tree in files.items():
        for node in source.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) >= 2:
                first, second = node.args[:2]
                asked = node.func.id in ("hasattr", "getattr")
                name = (
                    first.attr if isinstance(first, ast.Attribute) else first.id if isinstance(first, ast.Name) else ""
                )
                part = asked and isinstance(second, ast.Constant) and second.value in _PROBED
                if part or (name in ("ref", "reference") and (asked or node.func.id == "isinstance")):
                    found.append(f"{file}:{node.lineno} {ast.unparse(node)}")
    return found


# -------------------------------------------------------------------------------------------------------- tables of ops
_ROOMS = ("detection", "graph", "ranking", "sequence", "spectral", "structured")
FAMILIES = ("tstatic/ops/", *(f"tstatic/extras/{one}/" for one in _ROOMS))
"""Where the files of ops are."""
# Texts that are types of ops and mean something else here.
NOT_OPS = {
    "tstatic/fusion/codegen/loops/lines.py:_INTEGER_TOO": "functions of expressions",
    "tstatic/ir/expr.py:_FOLDED": "functions of expressions",
    "tstatic/ir/formula.py:_MATH": "functions of expressions",
    "tstatic/ir/onnx_expr.py:FLOATS_ONLY": "functions of expressions",
    "tstatic/ir/onnx_expr.py:SAME": "functions of expressions",
    "tstatic/ir/onnx_expr.py:TEXTS": "functions of expressions",
    "tstatic/nn/initializer.py:calculate_gain": "names of nonlinearities, as Paddle's function takes them",
    "tstatic/nn/initializer.py:op": "attributes of one op",
    "tstatic/nn/static_recurrent.py:gru_unit": "names of nonlinearities, as Paddle's function takes them",
    "tstatic/ops/elementwise/logic.py:_SYMBOLS": "the first table: its six op definitions are made from it",
    "tstatic/extras/sequence/_recurrence.py:ACTIVATIONS": "names of nonlinearities, as Paddle's operators take them",
    "tstatic/tools/testing/strategies.py:FAMILIES": "kinds of steps",
    "tstatic/tools/testing/tolerance.py:_UNITS": "functions of expressions",
}


def _owners(tree: ast.AST, name: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every node with the function, class or constant that it stands in."""
    for node in ast.iter_child_nodes(tree):
        own = name
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            own = name or node.targets[0].id
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own = name or node.target.id
        yield own, node
        yield from _owners(node, own)


def _texts(nodes: Iterable[ast.expr | None]) -> set[str]:
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def op_tables(files: Trees, types: set[str]) -> list[str]:
    """Dicts with two op types or more as keys, and tuples, lists and sets of three or more, outside the files of ops.

    A file of ops may treat some of its own alike: there only dicts with five keys count.
    """
    found = []
    for file, tree in files.items():
        own = file.startswith(FAMILIES) and "/ops/base/" not in file and not Path(file).name.startswith("_")
        for owner, node in _owners(tree):
            if isinstance(node, ast.Dict):
                keys, least = _texts(node.keys), 5 if own else 2
            elif isinstance(node, ast.Tuple | ast.List | ast.Set) and not own:
                keys, least = _texts(node.elts), 3
            else:
                continue
            if len(keys & types) >= least:
                found.append(f"{file}:{owner}")
    return sorted(found)


# ----------------------------------------------------------------------------------------------------------- tile sizes
TILE_SIZES = ("TILE", "CUT_ABOVE", "SMALLEST")
"""How the names of constants end that say below which size work stays whole, and how large a tile is."""


def tile_sizes(files: Trees) -> list[str]:
    """Numbers by which single ops and the CPU device cut work; the one table is ``ir/split.py``."""
    found = []
    for file, tree in files.items():
        if not file.startswith((*FAMILIES, "tstatic/devices/")):
            continue
        for node in tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            made = isinstance(value := getattr(node, "value", None), ast.Call) and ast.unparse(value.func) == "TileSize"
            if isinstance(target, ast.Name) and (made or target.id.endswith(TILE_SIZES)):
                found.append(f"{file}:{target.id}")
    return found


# ----------------------------------------------------------------------------------------------------------- docstrings
_NAME = re.compile(r"``(\w+)``")


def named_files(doc: str) -> set[str]:
    """Names in the heads of a docstring's bullets: what stands before two spaces, over several lines where they are many."""
    heads = []
    for paragraph in doc.split("\n\n"):
        for bullet in re.split(r"^\* ", paragraph, flags=re.MULTILINE)[1:]:
            text = " ".join(line if k == 0 else line.strip() for k, line in enumerate(bullet.splitlines()))
            heads.append(text.partition("  ")[0])
    return {name for head in heads for name in _NAME.findall(head)}


def registry_entries(tree: ast.AST, package: str) -> set[str]:
    """Modules of a package that its ``__init__`` imports and puts into a registry: of which it uses an attribute."""
    imported = {
        a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == package for a in n.names
    }
    used = {n.value.id for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
    return imported & used


def wrong_maps(files: Trees) -> list[str]:
    """Packages whose docstring does not name exactly their files and packages; a family of ops may name some of them.

    Nor need it repeat files that the package's own code names to register them (fusions, devices).
    """
    found = []
    for file, tree in files.items():
        if not file.endswith("/__init__.py"):
            continue
        folder = ROOT / Path(file).parent
        there = {p.stem for p in folder.glob("*.py")} | {p.parent.name for p in folder.glob("*/__init__.py")}
        named = named_files(ast.get_docstring(tree) or "")
        # A new op is one new file and nothing else, so a family's map may lack some; a fusion or a device is two lines more.
        family = file.startswith(FAMILIES) and file != "tstatic/ops/__init__.py"
        registered = registry_entries(tree, str(Path(file).parent).replace("/", "."))
        wrong = named - there if family else (named - there) | (there - named - registered - {"__init__"})
        if wrong:
            found.append(f"{Path(file).parent}: {', '.join(sorted(wrong))}")
    return found


# ---------------------------------------------------------------------------------------------------- comments of why
DENSE = ("comm", "devices", "fusion", "ir", "ops", "plan", "runtime", "static")
"""Packages whose code is dense, or where two swapped lines make a race, a deadlock or a lost error: a reader cannot guess why."""
LINES_A_COMMENT = 20
"""Lines of code for each line of comment, at most."""
UNCOMMENTED = 60
"""Lines of code that a file may have without any comment."""
# Words to tools, and rules between sections, give no reason.
_NO_REASON = re.compile(r"#\s*(type:|noqa|fmt:|pragma|mypy:|-{4})")


def dense() -> dict[str, str]:
    """The files of these packages: path below the root -> text."""
    return {f: (ROOT / f).read_text(encoding="utf-8") for f in trees() if f.split("/")[1] in DENSE}


def comments(text: str) -> dict[int, str]:
    """Line -> the comment on it, if it may give a reason."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = {one.start[0]: one.string for one in tokens if one.type == tokenize.COMMENT}
    return {line: comment for line, comment in found.items() if not _NO_REASON.match(comment)}


def uncommented(files: Mapping[str, str]) -> list[str]:
    """Packages with fewer comments than one line in 20 of code, and files of 60 lines of code or more with none."""
    found = []
    total: dict[str, list[int]] = {}
    for file, text in files.items():
        lines, said = code_lines(text), len(comments(text))
        package = total.setdefault("/".join(file.split("/")[:2]), [0, 0])
        package[0] += lines
        package[1] += said
        if lines >= UNCOMMENTED and not said:
            found.append(f"{file}: {lines} lines of code without a comment")
    few = ((name, lines, said) for name, (lines, said) in total.items() if said * LINES_A_COMMENT < lines)
    return found + [f"{name}: {said} lines of comment for {lines} of code" for name, lines, said in few]


def _has_number(value: ast.AST | None) -> bool:
    nodes = () if value is None else ast.walk(value)
    return any(isinstance(n, ast.Constant) and type(n.value) in (int, float, complex) for n in nodes)


def numbers_without_reason(files: Mapping[str, str]) -> list[str]:
    """Constants of modules with a number in their value, and neither a comment beside or above them nor a text below."""
    found = []
    for file, text in files.items():
        said, lines, body = comments(text), text.splitlines(), source.parsed(text).body
        for node, behind in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or not _has_number(node.value):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
            if not any(name.isupper() for name in names):
                continue
            own = range(node.lineno, (node.end_lineno or 0) + 1)
            above = node.lineno - 1 in said and lines[node.lineno - 2].startswith("#")
            below = isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)
            if not (above or below or any(line in said for line in own)):
                found.append(f"{file}:{node.lineno} {', '.join(names)}")
    return found


# ------------------------------------------------------------------------------------------------------------- how much
def _step(count: int, size: int) -> int:
    """The next multiple, so that a small change moves no number."""
    return -(-count // size) * size


def code_lines(text: str) -> int:
    """Lines of a file without docstrings, comments and blank lines: what explains is not held against the code."""
    explains: set[int] = set()
    for node in source.walk(source.parsed(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            explains.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    shown = [line.strip() for i, line in enumerate(text.splitlines(), 1) if i not in explains]
    return sum(1 for line in shown if line and not line.startswith("#"))


LIBRARY = ("distributed", "fluid", "io", "metric", "nn", "optimizer")
"""Packages of Paddle's library: what programs call, above the engine."""
WINGS = ("engine", "library", "extras", "tools")
BUDGETS = ROOT / "tests" / "unit" / "budgets.json"
"""Lines of code that each wing may have: room for a few ops or a feature, then somebody decides."""
ROOM = 2000
"""What a budget may be above the code; a higher one is lowered."""


def wing_of(file: str) -> str:
    """Returns the wing that a file below the root lies in."""
    folder = file.split("/")[1]
    return folder if folder in ("extras", "tools") else "library" if folder in LIBRARY else "engine"


@cache
def code_by_file() -> Mapping[str, int]:
    """Path below the root -> lines without docstrings, comments and blank lines; generated stubs are not counted."""
    return {str(f.relative_to(ROOT)): code_lines(source.text(f)) for f in source.files()}


@cache
def code_by_wing() -> Mapping[str, int]:
    """Wing -> its lines of code."""
    found = dict.fromkeys(WINGS, 0)
    for file, lines in code_by_file().items():
        found[wing_of(file)] += lines
    return found


@cache
def imported_modules() -> int:
    """Own files that ``import tstatic`` loads, up to the next five; modules that only pass on names have none."""
    code = (
        "import sys, tstatic; "
        "print(sum(n.split('.')[0] == 'tstatic' and getattr(m, '__file__', None) is not None for n, m in sys.modules.items()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return _step(int(done.stdout), 5)


# ------------------------------------------------------------------------------------------------------------- the table
MEASURES: Mapping[str, Callable[[], int | list[str]]] = {
    "circles of imports, lazy and type-only ones counted": lambda: import_circles(trees()),
    "files in circles of imports": lambda: [m for c in import_circles(trees()) for m in c.split(", ")],
    "imports between families of ops": lambda: family_imports(trees()),
    "imports of a family's private modules": lambda: private_imports(trees()),
    "probes of references": lambda: reference_probes(trees()),
    "tables of op types outside the files of ops": lambda: [
        t for t in op_tables(trees(), set(OPS)) if t not in NOT_OPS
    ],
    "constants of tile sizes": lambda: tile_sizes(trees()),
    "packages whose docstring does not name exactly their files": lambda: wrong_maps(trees()),
    "too few comments where code is dense": lambda: uncommented(dense()),
    "numbers without a reason where code is dense": lambda: numbers_without_reason(dense()),
    "own modules that `import tstatic` loads": imported_modules,
}


def number(found: int | list[str]) -> int:
    """What is compared: a count, or how many were found."""
    return found if isinstance(found, int) else len(found)


def recorded() -> dict[str, int]:
    """The numbers of the last commit."""
    numbers: dict[str, int] = json.loads(RECORD.read_text(encoding="utf-8"))
    return numbers


def main() -> None:
    """Lowers the numbers that became better; what became worse is said and stays."""
    before = recorded() if RECORD.exists() else {}
    after = {name: number(measure()) for name, measure in MEASURES.items()}
    for name, now in after.items():
        then = before.get(name, now)
        if now != then:
            print(f"{name}: {then} -> {now}" + (", worse: not written" if now > then else ""))
        after[name] = min(now, then)
    RECORD.write_text(json.dumps(after, indent=4) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
