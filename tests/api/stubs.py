"""Stubs for what is filled in from the registry at import time, so that type checkers see it with its annotations."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tstatic.ir.opdef import namespace
from tstatic.ir.program import Program, Variable

PACKAGE = Path(__file__).parents[2] / "tstatic"
HEAD = "# Made from the registry of public names by `make api`.\n"


# ---------------------------------------------------------------------------------------------------------------- types
class Types:
    """Writes types as text and collects the imports that the text needs.

    Args:
        within: Classes of other packages become ``Any``, so that a stub of a low layer does not name higher ones.
    """

    def __init__(self, within: str = "") -> None:
        self.within = within
        self.imports: set[str] = set()

    def text(self, hint: Any) -> str:
        if hint is None or hint is type(None):
            return "None"
        if hint is Ellipsis:
            return "..."
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in (types.UnionType, typing.Union):
            return " | ".join(map(self.text, args))
        if isinstance(hint, list):
            return f"[{', '.join(map(self.text, hint))}]"
        if origin is not None:
            return f"{self.text(origin)}[{', '.join(map(self.text, args))}]"
        if hint is Any:
            self.imports.add("from typing import Any")
            return "Any"
        if not isinstance(hint, type):
            return self.text(Any)
        return self.name(hint)

    def name(self, cls: type) -> str:
        """The class by its name, imported."""
        if cls.__module__ == "builtins":
            return cls.__name__
        if cls.__module__.startswith("tstatic.") and not cls.__module__.startswith(self.within):
            return self.text(Any)
        self.imports.add(f"from {cls.__module__} import {cls.__name__}")
        return cls.__name__

    def signature(self, function: Any, hints: dict[str, Any], given: inspect.Signature, bound: bool) -> str:
        """``(self, x: int = ..., *, y: str) -> None``; the first parameter becomes ``self`` if ``bound``."""
        row: list[str] = []
        starred = False
        for i, p in enumerate(given.parameters.values()):
            if bound and i == 0:
                row.append("self")
                continue
            if p.kind is p.KEYWORD_ONLY and not starred:
                row.append("*")
                starred = True
            starred = starred or p.kind is p.VAR_POSITIONAL
            mark = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
            default = "" if p.default is p.empty else " = ..."
            row.append(f"{mark}{p.name}: {self.text(hints.get(p.name, Any))}{default}")
        return f"({', '.join(row)}) -> {self.text(hints.get('return', Any))}"


# -------------------------------------------------------------------------------------------------------------- methods
def methods() -> str:
    """The stub of ``tstatic/ir/methods.py``: what ops and the scope add to Variables and Programs.

    Signatures are written out: importing the ops here would tie all modules into one cycle.
    """
    names = Types(within="tstatic.ir.")
    parts = []
    for cls in (Variable, Program):
        rows = []
        for name, function in sorted(namespace(cls.__name__).items()):
            if name in HIDDEN.get(cls.__name__, ()):
                continue
            hints = typing.get_type_hints(function)
            text = names.signature(function, hints, inspect.signature(function), bound=True)
            rows.append(f"    def {name}{text}: ...")
        parts.append(f"class {cls.__name__}Methods:\n" + "\n".join(rows))
    return _file(names.imports, parts)


# An attribute of the instance hides these methods.
HIDDEN: dict[str, tuple[str, ...]] = {}


# -------------------------------------------------------------------------------------------------------------- facades
def facades() -> list[ModuleType]:
    """Returns the modules that fill themselves from the registry."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "\n__getattr__, __dir__ = facade(" in text and "\ndef " not in text:
            parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
            found.append(importlib.import_module(".".join(parts).removesuffix(".__init__")))
    return found


def facade(module: ModuleType) -> str:
    """The stub of a module that fills itself: what it imports, and every spelled name from the file that defines it."""
    imported = _written(module)
    names = Types()
    parts: list[str] = []
    for name in sorted(set(module.__all__)):
        value = getattr(module, name)
        if name in imported:
            source, original = imported[name]
            names.imports.add(f"from {source} import {original} as {name}")
        else:
            home = sys.modules[value.__module__]
            attribute = next((k for k, v in vars(home).items() if v is value), None)
            if attribute is not None and home is not module:
                names.imports.add(f"from {home.__name__} import {attribute} as {name}")
            else:
                parts.append(_made_class(name, value, names))
    listed = "\n".join(f'    "{name}",' for name in sorted(set(module.__all__)))
    return _file(names.imports, [*parts, f"__all__ = [\n{listed}\n]"])


def _written(module: ModuleType) -> dict[str, tuple[str, str]]:
    """What the text of a facade imports, and says that it imports when asked: name -> module, original name."""
    assert module.__file__ is not None
    found: dict[str, tuple[str, str]] = {}
    for node in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            found |= {a.asname or a.name: (node.module, a.name) for a in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            given = {k.arg: ast.literal_eval(k.value) for k in node.value.keywords}
            found |= {name: (module.__name__, name) for name in given.get("modules", "").split()}
            for source, names in given.get("others", {}).items():
                found |= {words[-1]: (source, words[0]) for words in map(str.split, names.split(","))}
    return found


def _made_class(name: str, cls: type, names: Types) -> str:
    """A class that a function made: its base, and a constructor with the types of the function that it wraps."""
    base = cls.__bases__[0]
    names.imports.add(f"from {base.__module__} import {base.__name__} as _{base.__name__}")
    given = inspect.signature(cls)
    wrapped = getattr(cls, "_function", cls.__init__)
    text = names.signature(cls, {**typing.get_type_hints(wrapped), "return": None}, given, bound=False)
    return f"class {name}(_{base.__name__}):\n    def __init__(self, {text[1:]}: ...".replace("self, )", "self)")


def _file(imports: Iterable[str], parts: Iterable[str]) -> str:
    return HEAD + "\n".join(sorted(imports)) + "\n\n" + "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------------------------------------------------------- files
def stubs() -> dict[Path, str]:
    """Returns every generated stub: path -> text."""
    made = {PACKAGE / "ir" / "methods.pyi": methods()}
    written: dict[str, str] = {}
    for module in facades():
        assert module.__file__ is not None
        text = facade(module)
        first = written.setdefault(text, module.__name__)
        same = len(module.__all__) > 1 and first != module.__name__
        made[Path(module.__file__).with_suffix(".pyi")] = f"{HEAD}from {first} import *\n" if same else text
    return made


def text_of(module: ModuleType, made: Mapping[Path, str]) -> str:
    """The stub in which a module's names stand: its own, or the equal one that its own passes on."""
    assert module.__file__ is not None
    text = made[Path(module.__file__).with_suffix(".pyi")]
    passed_on = re.fullmatch(rf"{re.escape(HEAD)}from (\S+) import \*\n", text)
    return text_of(importlib.import_module(passed_on[1]), made) if passed_on else text
