"""The sentences of a page, and the tests that a list of claims names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.helpers import source

MADE = re.compile(r"<!-- speed: made from .*?<!-- end of speed -->", re.DOTALL)
"""What `make docs` writes into the README; a test of its own compares it with the records that it is made from."""
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)```\n(?:\n```text\n(?:.*\n)*?```$)?", re.MULTILINE)
"""A block of code, and what it prints: a block of text right behind it."""
END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\[])")
"""Between two sentences."""
RULE = re.compile(r"[|-]+")
"""The line below the head of a table."""
SIGNPOST = re.compile(r"[^\d]*\]\([^\d]*")
"""A row of a table that has a link and no figure says where to read."""


def sentences(text: str) -> list[str]:
    """Returns each sentence of a page on one line; headings, pictures, lines of commands and rows of tables are one each.

    Left out are samples of Python, which run, and what they print; rows that say where to read, and heads of tables;
    lists of contents, comments and what `make docs` writes.
    """
    found: list[str] = []
    paragraph: list[str] = []

    def close() -> None:
        if paragraph:
            found.extend(END.split(re.sub(r"^[*-] ", "", " ".join(paragraph))))
            paragraph.clear()

    lines = FENCE.sub(_block, COMMENT.sub("", MADE.sub("", text))).splitlines()
    for line, below in pairwise([*lines, ""]):
        alone = line.startswith(("#", "|", "![", COMMAND))
        if not line.strip() or alone or re.match(r"[*-] ", line):
            close()
        if line.startswith("|"):
            found += [line] * (not any(map(RULE.fullmatch, (line, below))) and not SIGNPOST.fullmatch(line))
        elif alone:
            found.append(line.removeprefix(COMMAND).strip())
        elif line.strip():
            paragraph.append(line.strip())
    close()
    return found


COMMAND = "\0"
"""Begins a line of a block of code."""


def _block(match: re.Match[str]) -> str:
    """Returns the lines of a block that count: none of Python and of lists of contents."""
    kind, text = match[1].strip(), match[2]
    if kind == "python" or kind.startswith("{"):
        return "\n"
    return "".join(f"{COMMAND}{line}\n" for line in text.splitlines() if line.strip())


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
