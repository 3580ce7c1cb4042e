"""Which function of a module runs where: lines for the top of its file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

Launched = tuple[str, bool, Sequence[str]]
"""An architecture, whether this is how kernels are planned there, and the functions that are launched in order."""

_FUNCTION = re.compile(r"^def (\w+)\(", re.MULTILINE)


@cache
def _shared() -> frozenset[str]:
    """Returns the functions of the prelude, which run wherever something calls them."""
    return frozenset(_FUNCTION.findall(Path(__file__).with_name("prelude.py").read_text()))


def which_runs_where(code: str, ways: Iterable[Launched]) -> str:
    """Returns the lines: for each architecture what is launched there, and in brackets what that calls.

    Args:
        code: The module.
        ways: All ways to launch it.
    """
    # Text between one definition and the next -> the module's own functions that it calls.
    _, *parts = _FUNCTION.split(code)
    bodies = {name: body for name, body in zip(parts[::2], parts[1::2], strict=True) if name not in _shared()}
    calls = {name: [n for n in bodies if n != name and f"{n}(" in body] for name, body in bodies.items()}
    found: dict[tuple[bool, str], dict[str, None]] = {}
    for architecture, planned, functions in ways:
        texts = [_with_called(name, calls) for name in dict.fromkeys(functions)]
        found.setdefault((planned, ", ".join(texts)), {})[architecture] = None
    lines = ["Launches"]
    for (planned, text), architectures in found.items():
        where = "in the interpreter" if "interpreter" in architectures else f"on {', '.join(architectures)}"
        lines.append(f"    {where}{'' if planned else ', if it is faster there'}: {text}")
    return "\n".join(lines)


def _with_called(name: str, calls: dict[str, list[str]]) -> str:
    """Returns a launched function, with those that it calls, directly or not, in brackets."""
    called: dict[str, None] = {}
    pending = list(calls.get(name, ()))
    while pending:
        one = pending.pop(0)
        if one not in called:
            called[one] = None
            pending += calls[one]
    return f"{name} ({', '.join(called)})" if called else name
