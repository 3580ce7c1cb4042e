"""The methods that higher layers give to Variables and Programs: what is exported as ``Variable.name`` and ``Program.name``.

Their modules are imported when a method is looked up; type checkers read the generated stub beside this file.
"""

from __future__ import annotations

from typing import Any

from tstatic.ir.export import METHODS, PUBLIC_API


class VariableMethods:
    """What ops and the scope add to Variables."""


class ProgramMethods:
    """What the scope adds to Programs."""


METHODS.update(Variable=VariableMethods, Program=ProgramMethods)


class _Unloaded:
    """A method whose module is imported when it is looked up, on the class or an object; the export then replaces it."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __get__(self, obj: Any, cls: type) -> Any:
        return PUBLIC_API[self._key].function.__get__(obj, cls)


def add_methods() -> None:
    """Gives the classes the methods that exist, loaded or not."""
    for prefix, owner in METHODS.items():
        for name in PUBLIC_API.below(prefix):
            if name not in vars(owner):
                setattr(owner, name, _Unloaded(f"{prefix}.{name}"))
