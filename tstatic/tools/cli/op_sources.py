"""The text of functions, and where the sources and tests name an op type."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import tstatic
from tstatic.ir.opdef import OPS, PUBLIC_API

PACKAGE = Path(tstatic.__file__).parent
TUNED = "tstatic.tuned"

_QUOTED = re.compile(r"""["'](\w+)["']""")
_CALLED = re.compile(r"\.(\w+)\(")
_LONGEST = 100
"""Characters of a closed-over value that is still worth a line."""


def place(path: str | Path, line: int = 0) -> str:
    """Returns ``tstatic/ops/x.py:12``; a file of somebody else keeps its whole path."""
    found = Path(path)
    shown = found.relative_to(PACKAGE.parent) if found.is_relative_to(PACKAGE.parent) else found
    return f"{shown.as_posix()}:{line}" if line else shown.as_posix()


# ----------------------------------------------------------------------------------------------------- text of functions
@dataclass(frozen=True)
class Source:
    """The text of a function.

    Attributes:
        place: File and line.
        text: As it stands in the file, without the indentation; empty where the file is not there.
        values: Names of the enclosing function that it reads -> their values, as text.
    """

    place: str
    text: str
    values: Mapping[str, str]

    def __str__(self) -> str:
        given = [f"# {name} = {value}" for name, value in self.values.items()]
        return "\n".join([f"# {self.place}", *given, *filter(None, [self.text])])


def functions_in(value: Any) -> Iterator[FunctionType]:
    """Yields the Python functions that a value is or is made of: methods, partials, fields of records, sequences."""
    if isinstance(value, FunctionType):
        yield inspect.unwrap(value)
    elif isinstance(value, MethodType):
        yield from functions_in(value.__func__)
    elif isinstance(value, partial):
        yield from functions_in((value.func, *value.args, *value.keywords.values()))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from functions_in([getattr(value, one.name) for one in fields(value)])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from functions_in(one)


def _closed_over(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = {}
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:  # a name that its function never bound
            continue
    return found


def sources(functions: Iterable[Any]) -> list[Source]:
    """Returns the text of functions, each followed by those that it closes over; each text once."""
    found: dict[CodeType, Source] = {}

    def add(function: FunctionType) -> None:
        if function.__code__ in found:
            return
        closed = _closed_over(function)
        inner = {name: list(functions_in(value)) for name, value in closed.items()}
        values = {n: repr(v) for n, v in closed.items() if not inner[n]}
        plain = {n: text for n, text in values.items() if len(text) <= _LONGEST and " at 0x" not in text}
        found[function.__code__] = Source(
            place(function.__code__.co_filename, function.__code__.co_firstlineno), _text_of(function.__code__), plain
        )
        for more in inner.values():
            for one in more:
                add(one)

    for function in functions_in(list(functions)):
        add(function)
    return list(found.values())


def text_of_sources(*functions: Any) -> str:
    """Returns :func:`sources` as one text."""
    return "\n\n".join(map(str, sources(functions)))


@cache
def _definitions(path: str) -> tuple[list[bytes], Mapping[int, list[ast.AST]]]:
    """Returns the lines of a file, and its functions by the line where each begins, decorators included."""
    text = "".join(linecache.getlines(path))
    found: dict[int, list[ast.AST]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            found.setdefault(first, []).append(node)
    return text.encode().splitlines(keepends=True), found


def _text_of(code: CodeType) -> str:
    lines, known = _definitions(code.co_filename)
    for node in known.get(code.co_firstlineno, ()):
        if _holds(node, code):
            assert isinstance(node, ast.FunctionDef | ast.Lambda)
            last = lines[node.lineno - 1 : node.end_lineno]
            if isinstance(node, ast.FunctionDef):
                return textwrap.dedent(b"".join(lines[code.co_firstlineno - 1 : node.end_lineno]).decode()).rstrip()
            # Columns count bytes; the end is cut first, as both may be on one line.
            last[-1] = last[-1][: node.end_col_offset]
            last[0] = last[0][node.col_offset :]
            return b"".join(last).decode()
    return ""


def _holds(node: ast.AST, code: CodeType) -> bool:
    """Returns whether a node is the function of a code: several lambdas may begin on one line."""
    if isinstance(node, ast.FunctionDef):
        return node.name == code.co_name
    assert isinstance(node, ast.Lambda)
    begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    # The first instruction of a lambda has the place of no expression: zero columns, or none.
    spots = [(a, c) for a, _, c, d in code.co_positions() if a is not None and c is not None and d]
    return code.co_name == "<lambda>" and all(begin <= spot <= end for spot in spots)


# ------------------------------------------------------------------------------------------------------ what a code names
def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _called(function: FunctionType, within: Callable[[str, Any], bool]) -> Iterator[FunctionType]:
    """Yields a function, and those of its module's globals, and so on, that ``within`` takes by name and value."""
    pending, seen = [function], set()
    while pending:
        one = pending.pop()
        if one.__code__ in seen:
            continue
        seen.add(one.__code__)
        yield one
        for name in sorted({name for code in _codes(one.__code__) for name in code.co_names}):
            value = one.__globals__.get(name)
            if value is not None and within(name, value):
                pending += functions_in(value)
        pending += [f for value in _closed_over(one).values() for f in functions_in(value)]


def tuned_calls(functions: Iterable[Any]) -> list[str]:
    """Returns the names of what functions of ops call of ``tstatic.tuned``, themselves or through functions of ops."""
    found: set[str] = set()
    for function in functions_in(list(functions)):
        for one in _called(function, lambda _, v: getattr(v, "__module__", "").startswith(("tstatic.ops", TUNED))):
            if one.__module__.startswith(TUNED):
                found.add(f"{one.__module__}.{one.__qualname__}")
                continue
            # A module of tuned functions that is called by its own name.
            names = {name for code in _codes(one.__code__) for name in code.co_names}
            for module in filter(inspect.ismodule, map(one.__globals__.get, names)):
                if module.__name__.startswith(TUNED):
                    found |= {
                        f"{module.__name__}.{n}" for n in names if isinstance(getattr(module, n, None), FunctionType)
                    }
    # Without helpers: what begins with an underscore.
    return sorted(name for name in found if "._" not in name)


# ---------------------------------------------------------------------------------------------------- who names an op type
@cache
def _files_with(words: re.Pattern[str], folder: Path, pattern: str) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob(pattern)):
        for name in set(words.findall(path.read_text(encoding="utf-8"))):
            found.setdefault(name, []).append(place(path))
    return {name: tuple(paths) for name, paths in found.items()}


def files_naming(folder: Path, pattern: str) -> Mapping[str, tuple[str, ...]]:
    """Returns text -> the files of a folder in which it stands in quotes, as op types do."""
    return _files_with(_QUOTED, folder, pattern)


def files_calling(folder: Path, pattern: str, names: Iterable[str]) -> list[str]:
    """Returns the files of a folder in which one of some functions is called as ``module.name(``."""
    known = _files_with(_CALLED, folder, pattern)
    return sorted({path for name in names for path in known.get(name, ())})


@cache
def names_reaching() -> Mapping[str, tuple[str, ...]]:
    """Returns op type -> public names whose function names it, itself or through private functions of its module."""
    found: dict[str, set[str]] = {}
    for name, entry in PUBLIC_API.items():
        for type in _strings(entry.function) & set(OPS.loaded):
            found.setdefault(type, set()).add(name)
    return {type: tuple(sorted(names)) for type, names in found.items()}


def _strings(value: Any) -> set[str]:
    """Returns the texts in the code of a function, or of the methods of a class of this library."""
    if inspect.isclass(value):
        own = [one for one in value.__mro__ if one.__module__.startswith("tstatic.")]
        members = [v for one in own for v in vars(one).values()]
        return {v for v in members if isinstance(v, str)}.union(*map(_strings, members))
    return {
        const
        for function in functions_in(value)
        for one in _called(function, lambda n, v: n.startswith("_") and isinstance(v, FunctionType))
        for code in _codes(one.__code__)
        for const in code.co_consts
        if isinstance(const, str)
    }
