"""What changing it costs: imports point down, an op is one file, files stay readable (tables of ops: test_ratchets)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import tstatic
from tests.helpers import child, source
from tstatic.ir.opdef import OPS

ROOT, PACKAGE = source.ROOT, source.PACKAGE
FILES = source.files()

LONGEST = 600


# ---------------------------------------------------------------------------------------------------------------- layers
def test_imports_point_down() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    done = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": child.python_path(), "PATH": ""}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 kept, 0 broken" in done.stdout


# ------------------------------------------------------------------------------------------------------- an op is one file
KERNELS_OWN = {"causal_mask", "product_and_add", "strip_sums"}
"""Steps within generated kernels, and of what completes them: they are in no program, and have no public function."""


def makers(file: Path) -> set[str]:
    """Functions of a file that make the definition of the op whose type is their first argument."""
    found = {"OpDef"}
    for function in [n for n in source.nodes(file) if isinstance(n, ast.FunctionDef) and n.args.args]:
        given = [c.args[0] for c in ast.walk(function) if isinstance(c, ast.Call) and c.args and named(c) == "OpDef"]
        if any(isinstance(one, ast.Name) and one.id == function.args.args[0].arg for one in given):
            found.add(function.name)
    return found


def named(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def definition_strings(file: Path, known: set[str]) -> list[str]:
    """First arguments of calls that make op definitions, as far as they are written out."""
    calls = [n for n in source.nodes(file) if isinstance(n, ast.Call) and named(n) in known and n.args]
    return [c.args[0].value for c in calls if isinstance(c.args[0], ast.Constant)]


def test_an_op_def_stands_in_one_file() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    shared = {name for file in FILES for name in makers(file) if not name.startswith("_")}
    for file in FILES:
        for type in definition_strings(file, shared | makers(file)):
            places[type].append(str(file.relative_to(ROOT)))
    assert {type: files for type, files in places.items() if len(files) > 1} == {}
    # Collectives need the replicas' group.
    homes = ("tstatic/ops/", "tstatic/comm/", "tstatic/extras/")
    assert {type for type, files in places.items() if not all(f.startswith(homes) for f in files)} == KERNELS_OWN
    assert KERNELS_OWN.isdisjoint(OPS), "no program has one"
    # A function makes the op definitions of a few families (reductions, comparisons, updates); most are written out.
    forward = [type for type, definition in OPS.items() if not definition.of]
    assert len([type for type in forward if type in places]) > 0.7 * len(forward)


# --------------------------------------------------------------------------------------------------------------- files
def lines(file: Path) -> int:
    return len(source.text(file).splitlines())


def test_files_are_not_too_long() -> None:
    counts = {str(file.relative_to(ROOT)): lines(file) for file in FILES}
    long = {name: n for name, n in counts.items() if n > LONGEST}
    assert long == {}, f"split these by what they are about; a file has at most {LONGEST} lines"


def test_files_that_define_something_are_not_crumbs() -> None:
    """A file with a function or a class of its own has 15 lines or more; files of names only may be shorter."""
    crumbs = {}
    for file in FILES:
        defines = any(isinstance(n, ast.FunctionDef | ast.ClassDef) for n in source.tree(file).body)  # type: ignore[attr-defined]
        if defines and lines(file) < 15 and file.name != "__init__.py":
            crumbs[str(file.relative_to(ROOT))] = lines(file)
    assert crumbs == {}


def test_names_of_files_are_unique_within_the_ops() -> None:
    files = [file for file in FILES if file.is_relative_to(PACKAGE / "ops") and file.name != "__init__.py"]
    names = Counter(file.stem for file in files)
    assert [name for name, n in names.items() if n > 1] == []
    assert tstatic.__file__ == str(PACKAGE / "__init__.py")


OP_FILES = [f for f in FILES if f.is_relative_to(PACKAGE / "ops") and f.name != "__init__.py"]


@pytest.mark.parametrize("file", OP_FILES, ids=lambda f: f.stem)
def test_an_op_file_says_what_lives_there(file: Path) -> None:
    doc = ast.get_docstring(source.tree(file))
    assert doc is not None
    assert doc.split("\n\n")[0].count("\n") == 0, "one sentence on one line"
