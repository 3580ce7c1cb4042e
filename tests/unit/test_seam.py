"""The seam between what runs plans and what devices are: which way imports point there, and how large its parts may be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tstatic

PACKAGE = Path(tstatic.__file__).parent
SEAM = {"tstatic.devices", "tstatic.devices.base", "tstatic.devices.step", "tstatic.devices.queued"}


def imported(path: Path) -> set[str]:
    """The modules that a file imports, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{one.name}" for one in node.names if (PACKAGE / "devices" / f"{one.name}.py").is_file()
                      and node.module == "tstatic.devices"}  # fmt: skip
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return found


def lines_of_code(node: ast.AST, source: list[str]) -> int:
    """Lines without docstrings, comments and blanks."""
    assert isinstance(node, ast.ClassDef)
    documented: set[int] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(one) is not None:
            text = one.body[0]
            documented |= set(range(text.lineno, (text.end_lineno or 0) + 1))
    lines = range(node.lineno, (node.end_lineno or 0) + 1)
    return sum(
        bool(source[n - 1].strip()) and not source[n - 1].strip().startswith("#") for n in lines if n not in documented
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
        ("devices/fake.py", "FakeDevice", 300),
        ("ir/paddle_program.py", "_Reading", 300),
    ],
)
def test_classes_that_were_two_machines_in_one_stay_small(file: str, name: str, most: int) -> None:
    text = (PACKAGE / file).read_text(encoding="utf-8")
    (found,) = [n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == name]
    assert lines_of_code(found, text.splitlines()) <= most
    assert len(found.bases) <= 1, "no mix-in"
