"""The methods that higher layers give to Variables and Programs: what is exported as ``Variable.name`` and ``Program.name``.

They are found when they are asked for; type checkers read the generated stub beside this file.
"""

from __future__ import annotations

from typing import Any

from tstatic.ir.export import PUBLIC_API
from tstatic.ir.registry import INDEX


class _Found(type):
    """A class that gets its methods from the registry of public names."""

    _prefix: str

    def __getattr__(cls, name: str) -> Any:
        key = f"{cls._prefix}.{name}"
        # What begins with an underscore is never exported, apart from operators, which are there from the start.
        if name.startswith("_") or key not in PUBLIC_API:
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'", name=name, obj=cls)
        function = PUBLIC_API[key].function
        setattr(_owner(cls), name, function)
        return function

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__(), *PUBLIC_API.below(cls._prefix)})


def _owner(cls: type) -> type:
    return next(base for base in cls.__mro__ if "_prefix" in vars(base))


class _Methods(metaclass=_Found):
    _prefix = ""

    def __getattr__(self, name: str) -> Any:
        try:
            function = _Found.__getattr__(type(self), name)
        except AttributeError:
            text = f"'{type(self).__name__}' object has no attribute '{name}'"
            raise AttributeError(text, name=name, obj=self) from None
        return function.__get__(self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *PUBLIC_API.below(self._prefix)})


class _Operator:
    """Loads a method when it is looked up on the class or an object; the method then replaces it."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __get__(self, obj: Any, cls: type) -> Any:
        name = self._key.partition(".")[2]
        setattr(_owner(cls), name, PUBLIC_API[self._key].function)
        return getattr(cls if obj is None else obj, name)


class VariableMethods(_Methods):
    """What ops and the scope add to Variables."""

    _prefix = "Variable"


class ProgramMethods(_Methods):
    """What the scope adds to Programs."""

    _prefix = "Program"


def add_operators() -> None:
    """Sets the methods that Python looks up on the class alone, such as ``__add__``."""
    start = "Variable.__"
    for key in [k for k in INDEX or PUBLIC_API if k.startswith(start)]:
        setattr(VariableMethods, key.partition(".")[2], _Operator(key))
