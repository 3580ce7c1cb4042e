"""Changes of a module's syntax tree, named by function, kind of node and text, so that they outlast what is edited around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

KINDS: dict[str, tuple[type[ast.AST], ...]] = {
    "comparison": (ast.Compare,),
    "operation": (ast.BinOp, ast.UnaryOp),
    "condition": (ast.BoolOp, ast.UnaryOp),
    "call": (ast.Call,),
    "constant": (ast.Constant,),
    "text": (ast.JoinedStr, ast.Constant),
    "value": (ast.Name, ast.Attribute, ast.Subscript, ast.IfExp, ast.Lambda),
    "argument": (ast.keyword,),
    "statement": (ast.stmt,),
}


class DoesNotApplyError(Exception):
    """The source has no such node any more, or several."""


def changed(source: str, mutant: Mapping[str, Any]) -> ast.Module:
    """The module with one node replaced.

    Args:
        source: The module.
        mutant: ``function`` (dotted names of classes and functions, or empty for the module itself), ``kind``, ``was`` and
            ``becomes`` as text, and ``number``: which of several nodes with that text, or 0 where there is one alone.

    Raises:
        DoesNotApplyError: If there is no such node.
    """
    tree = ast.parse(source)
    scope = _scope(tree, mutant["function"])
    kind = KINDS[mutant["kind"]]
    was = _text(_parsed(mutant["was"], mutant["kind"]))
    found = [node for node in _nodes(scope) if isinstance(node, kind) and _text(node) == was]
    if len(found) < max(1, mutant["number"]) or (not mutant["number"] and len(found) > 1):
        raise DoesNotApplyError(
            f"{mutant['kind']} {mutant['was']!r} occurs {len(found)} times in {mutant['function']!r}"
        )
    target = found[max(1, mutant["number"]) - 1]
    new = ast.copy_location(_parsed(mutant["becomes"], mutant["kind"]), target)
    done = _Replace(target, new).visit(tree)
    assert isinstance(done, ast.Module)
    return ast.fix_missing_locations(done)


def _scope(tree: ast.Module, name: str) -> ast.AST:
    scope: ast.AST = tree
    for part in name.split(".") if name else ():
        inner = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part and node is not scope
        ]
        if not inner:
            raise DoesNotApplyError(f"there is no {part!r} of {name!r}")
        scope = inner[0]
    return scope


def _nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """In the order of the text, as nearly as a tree has one."""
    for child in ast.iter_child_nodes(scope):
        yield child
        yield from _nodes(child)


def _parsed(text: str, kind: str) -> Any:
    if kind == "statement":
        return ast.parse(text).body[0]
    if kind == "argument":
        call: Any = ast.parse(f"f({text})", mode="eval").body
        return call.keywords[0]
    return ast.parse(text, mode="eval").body


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, new: ast.AST) -> None:
        self.target = target
        self.new = new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.target else super().visit(node)
