"""One compile path: nobody but CompiledProgram's own file touches its fields, and one place makes the fusions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.helpers import source

OWNER = source.ROOT / "tstatic/static/run/compiled_program.py"


def sources(words: Iterable[str]) -> dict[Path, ast.Module]:
    """The files of library and benches that have one of the words, parsed."""
    paths = source.files("tstatic", "bench")
    assert len(paths) > 100
    return {path: source.tree(path) for path in paths if any(word in source.text(path) for word in words)}


def private_names(tree: ast.Module, name: str) -> set[str]:
    """Private fields and methods of a class."""
    (owner,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    fields = {n.attr for n in ast.walk(owner) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    methods = {n.name for n in owner.body if isinstance(n, ast.FunctionDef)}
    return {n for n in fields | methods if n.startswith("_") and not n.startswith("__")}


def uses(tree: ast.Module, names: set[str]) -> Iterator[str]:
    """Where another object's private names are read or written, as an attribute or by ``getattr`` and the like."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in names:
            if ast.unparse(node.value) not in ("self", "cls", "type(self)"):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            by_name = node.func.id.endswith("attr") and any(
                isinstance(a, ast.Constant) and a.value in names for a in node.args
            )
            if by_name:
                yield f"line {node.lineno}: {ast.unparse(node)}"


def calls_of_fuse(tree: ast.Module) -> list[int]:
    """Lines that call the pipeline's ``fuse``, by attribute or imported by name."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "tstatic.static.compile.pipeline"
        for alias in node.names
        if alias.name == "fuse"
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (ast.unparse(node.func).endswith("pipeline.fuse") or ast.unparse(node.func) in imported)
    ]


def test_no_other_file_touches_private_fields_of_a_compiled_program() -> None:
    names = private_names(source.tree(OWNER), "CompiledProgram")
    assert len(names) >= 3
    found = [
        f"{path.relative_to(source.ROOT)} {use}"
        for path, tree in sources(names).items()
        if path != OWNER
        for use in uses(tree, names)
    ]
    assert not found, found


def test_exactly_one_place_of_the_library_makes_fusions_and_no_bench_does() -> None:
    found = {str(path.relative_to(source.ROOT)): calls_of_fuse(tree) for path, tree in sources(["pipeline"]).items()}
    callers = {path: lines for path, lines in found.items() if lines}
    assert list(callers) == ["tstatic/static/compile/__init__.py"]
    assert len(callers["tstatic/static/compile/__init__.py"]) == 1


@pytest.mark.parametrize(
    "text",
    ["compiled._plan = 1", "x = run.compiled._plan", "getattr(program, '_plan', program)", "setattr(one, '_plan', 2)"],
)
def test_each_way_to_touch_a_private_field_is_found(text: str) -> None:
    assert len(list(uses(ast.parse(text), {"_plan"}))) == 1
    assert not list(uses(ast.parse("self._plan = self.plan"), {"_plan"}))


def test_both_ways_to_call_the_fusions_are_found() -> None:
    assert calls_of_fuse(ast.parse("from tstatic.static.compile.pipeline import fuse as f\nf(1)\nfuse(2)")) == [2]
    assert calls_of_fuse(ast.parse("pipeline.fuse(1)\nstatic.pipeline.fuse(2)\nother.fuse(3)")) == [1, 2]
