"""The library's source as syntax trees, parsed once per process for all tests that read it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tstatic"


@cache
def files(*folders: str) -> tuple[Path, ...]:
    """All Python files of folders below the root, sorted; of the library if none is named."""
    return tuple(p for folder in folders or ("tstatic",) for p in sorted((ROOT / folder).rglob("*.py")))


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def parsed(text: str) -> ast.Module:
    """The syntax tree of a text, usually a file's; nobody may change it."""
    return ast.parse(text)


def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return parsed(text(path))


@cache
def walk(root: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes below one, itself included, in the order of ``ast.walk``."""
    return tuple(ast.walk(root))


def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's tree."""
    return walk(tree(path))
