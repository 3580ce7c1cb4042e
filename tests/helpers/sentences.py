"""The sentences of a page, and the tests that a list of claims names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.helpers import source

MADE = re.compile(r"<!-- (\w+): made from .*?<!-- end of \1 -->", re.DOTALL)
"""What `make docs` writes into a page; a test of its own compares it with what it is made from."""
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\[])")
"""Between two sentences."""
RULE = re.compile(r"[|-]+")
"""The line below the head of a table."""
SAMPLES = ("python", "text")
"""Blocks of these kinds are run, or are what the block before prints: `tests/cpu/test_snippets.py`."""


def sentences(text: str) -> list[str]:
    """Returns each sentence of a page on one line; lines of commands and pictures count as one each.

    Left out are headings, tables, samples that run, lists of contents, comments and what `make docs` writes.
    """
    found: list[str] = []
    paragraph: list[str] = []
    fence = ""

    def close() -> None:
        if paragraph:
            found.extend(END.split(re.sub(r"^[*-] ", "", " ".join(paragraph))))
            paragraph.clear()

    for line in COMMENT.sub("", MADE.sub("", text)).splitlines():
        if line.startswith("```"):
            close()
            fence = "" if fence else line[3:].strip() or "text"
        elif fence:
            if fence not in SAMPLES and not fence.startswith("{") and line.strip():
                found.append(line.strip())
        elif not line.strip() or line.startswith("#"):
            close()
        elif line.startswith(("|", "![")):
            close()
            found.append(line.strip())
        else:
            if re.match(r"[*-] ", line):
                close()
            paragraph.append(line.strip())
    close()
    return [one for one in found if not one.startswith("|")]


def rows(text: str) -> list[tuple[str, ...]]:
    """Returns the cells of each row of a page's tables, heads apart."""
    lines = COMMENT.sub("", MADE.sub("", text)).splitlines()
    found = [line for line, below in pairwise([*lines, ""]) if line.startswith("|") and not RULE.fullmatch(below)]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in found if not RULE.fullmatch(line)]


# ---------------------------------------------------------------------------------------------------------------- tests
def objection(name: str, root: Path = source.ROOT) -> str:
    """Returns why ``tests/file.py::test_name`` checks nothing, or an empty text."""
    file, _, function = name.partition("::")
    path = root / file
    if not re.fullmatch(r"tests/[\w/]+/test_\w+\.py::test_\w+", name):
        return "is not of the form tests/folder/test_file.py::test_name"
    if not path.is_file():
        return "has no such file"
    tree = source.tree(path)
    found = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function), None)
    if found is None:
        return "has no such function"
    whole = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "pytestmark"]
    marks = " ".join(ast.unparse(mark) for mark in [*found.decorator_list, *whole])
    if re.search(r"mark\.(skip\b|xfail|gpu)", marks):
        return "does not run, or may fail"
    return "" if _asserts(found, tree, root, set()) else "asserts nothing"


def _asserts(function: ast.FunctionDef, tree: ast.Module, root: Path, seen: set[str]) -> bool:
    """Whether a function, or one of the tests' own functions that it calls, has an assertion or expects an error."""
    seen.add(function.name)
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.raises", "pytest.warns"):
            return True
    called = {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    return any(
        _asserts(other, where, root, seen) for name in called - seen for other, where in _functions(name, tree, root)
    )


def _functions(name: str, tree: ast.Module, root: Path) -> Iterator[tuple[ast.FunctionDef, ast.Module]]:
    """Yields the function that a test calls by this name: of its own file, or of another one of the tests."""
    yield from ((n, tree) for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            for one in node.names:
                called = name.rpartition(".")
                if name == (one.asname or one.name):
                    module, function = str(node.module), one.name
                elif called[0] == (one.asname or one.name):
                    module, function = f"{node.module}.{one.name}", called[2]
                else:
                    continue
                path = root / f"{module.replace('.', '/')}.py"
                if path.is_file():
                    other = source.tree(path)
                    yield from ((n, other) for n in other.body if isinstance(n, ast.FunctionDef) and n.name == function)
