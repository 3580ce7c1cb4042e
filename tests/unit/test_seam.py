"""The seam between what runs plans and what devices are: which way imports point, how large its parts are, what is called bind."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

import tstatic
from tests.helpers import measures, source

PACKAGE = Path(tstatic.__file__).parent
SEAM = {"tstatic.devices", "tstatic.devices.base", "tstatic.devices.step", "tstatic.devices.queued"}


def imported(path: Path) -> set[str]:
    """The modules that a file imports, wherever the import stands."""
    found = set()
    for node in source.nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{one.name}" for one in node.names if (PACKAGE / "devices" / f"{one.name}.py").is_file()
                      and node.module == "tstatic.devices"}  # fmt: skip
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return found


def lines_of_code(node: ast.AST, shown: list[str]) -> int:
    """Lines without docstrings, comments and blanks."""
    assert isinstance(node, ast.ClassDef)
    documented: set[int] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(one) is not None:
            text = one.body[0]
            documented |= set(range(text.lineno, (text.end_lineno or 0) + 1))
    lines = range(node.lineno, (node.end_lineno or 0) + 1)
    return sum(
        bool(shown[n - 1].strip()) and not shown[n - 1].strip().startswith("#") for n in lines if n not in documented
    )


@pytest.mark.parametrize("path", sorted((PACKAGE / "runtime").glob("*.py")), ids=lambda p: p.stem)
def test_what_runs_plans_knows_devices_by_the_seam_alone(path: Path) -> None:
    wrong = {name for name in imported(path) if name.startswith("tstatic.devices") and name not in SEAM}
    assert not wrong, f"{path.name} looks behind the seam: {sorted(wrong)}"


@pytest.mark.parametrize(
    ("file", "name", "most"),
    [
        ("runtime/session.py", "Session", 240),
        ("runtime/binding.py", "Binding", 240),
        ("runtime/commit.py", "Commit", 240),
        ("devices/fake/__init__.py", "FakeDevice", 300),
        ("formats/paddle_program.py", "_Reading", 300),
    ],
)
def test_classes_that_were_two_machines_in_one_stay_small(file: str, name: str, most: int) -> None:
    text = (PACKAGE / file).read_text(encoding="utf-8")
    (found,) = [n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == name]
    assert lines_of_code(found, text.splitlines()) <= most
    assert len(found.bases) <= 1, "no mix-in"


# ------------------------------------------------------------------------------------------------------------- one name
def devices(files: Mapping[str, ast.Module]) -> set[str]:
    """The names of ``Device``, of the classes that it consists of, and of all below them."""
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for file, tree in files.items()
        if file.startswith("tstatic/devices/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {"Device"} | bases.get("Device", set())
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def vague_binds(files: Mapping[str, ast.Module]) -> list[str]:
    """Functions called ``bind`` that are not ``Device.bind``: a name must say what it binds, or a search finds them all."""
    known = devices(files)
    right = {
        id(method)
        for file, tree in files.items()
        if file.startswith("tstatic/devices/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name in known
        for method in node.body
    }
    return [
        f"{file}:{node.lineno}"
        for file, tree in files.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "bind" and id(node) not in right
    ]


def test_only_devices_have_a_method_called_bind() -> None:
    assert vague_binds(measures.trees()) == []


def test_a_bind_that_is_not_a_devices_is_found() -> None:
    bind = "\n    def bind(self): ...\n"
    text = f"class Device:{bind}class A(base.Device):{bind}class B(A):{bind}"
    assert vague_binds({"tstatic/devices/a.py": ast.parse(text)}) == []
    for wrong in ("def bind(): ...", f"class C:{bind}", "def f():\n    async def bind(): ..."):
        assert len(vague_binds({"tstatic/devices/a.py": ast.parse(f"{text}\n{wrong}")})) == 1
    assert len(vague_binds({"tstatic/comm/a.py": ast.parse(f"class Device:{bind}")})) == 1
