"""Prints the signatures of the Paddle that imports this file: ``python tests/parity/installed.py MODULE ...``, below ``paddle``.

It runs in the environments of old Paddles: Python 3.7 and the standard library alone.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def parameters_of(function: Any) -> list[list[str]]:
    """Returns the parameters of a function or of a class's constructor; defaults as Python writes them."""
    found = []
    for p in inspect.signature(function).parameters.values():
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = re.sub(r" at 0x[0-9a-f]+", "", repr(p.default))
        found.append([star + p.name] if p.default is p.empty else [p.name, default])
    return found


def _known(function: Any) -> list[list[str]] | None:
    try:
        return parameters_of(function)
    except (TypeError, ValueError):
        return None  # compiled code, which does not say


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    for name in dir(cls):
        if name.startswith("_"):
            continue
        home = next((c for c in cls.__mro__ if name in vars(c)), None)
        if home is None or not home.__module__.startswith("paddle"):
            continue
        value = vars(home)[name]
        if isinstance(value, (staticmethod, classmethod)):
            own = _known(value.__func__)
            yield name, own[1:] if own is not None and isinstance(value, classmethod) else own
        elif callable(value):
            own = _known(value)
            yield name, own if own is None or inspect.isclass(value) else own[1:]
        else:
            yield name, None


def installed(names: list[str]) -> dict[str, dict[str, Any]]:
    """Returns module -> name -> parameters; ``Name.member`` for members of classes; None for what has none, or does not say.

    The key ``__all__`` has the names that the module lists.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        try:
            module = importlib.import_module(f"paddle.{name}".rstrip("."))
        except ImportError:
            continue
        listed = found.setdefault(name, {})
        public = set(getattr(module, "__all__", ()))
        listed["__all__"] = sorted(public)
        for each in sorted(public | {n for n in dir(module) if not n.startswith("_")}):
            value = getattr(module, each, None)
            inside = str(getattr(value, "__module__", "")).startswith("paddle")
            if isinstance(value, ModuleType) or not (callable(value) and inside):
                continue
            listed[each] = _known(value)
            if inspect.isclass(value):
                listed.update({f"{each}.{n}": own for n, own in _members(value)})
    return found


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file, whose modules are not Paddle's
    version = importlib.import_module("paddle").__version__
    sys.stdout.write("\n" + json.dumps([version, installed(sys.argv[1:])]) + "\n")
