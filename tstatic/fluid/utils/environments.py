"""``paddle.utils.environments``: variables of the environment as values of one type."""

from __future__ import annotations

import os
from typing import Generic, Self, TypeVar

from tstatic.errors import ProgramTypeError
from tstatic.ir.checks import check_type

T = TypeVar("T", str, bool, int)


class EnvironmentVariable(Generic[T]):
    """A variable of the environment whose text is read as a value of one type.

    Args:
        name: Its name.
        default: Its value where the environment has none.

    Raises:
        ProgramTypeError: If the default is of another type.
    """

    kind: type[T]

    def __init__(self, name: str, default: T) -> None:
        self.name = name
        self.default: T = self._checked(default, "default")

    def _checked(self, value: T, arg: str) -> T:
        # A bool is an int in Python, not here.
        if type(value) is bool and self.kind is not bool:
            raise ProgramTypeError(
                f"the {arg} of {self.name} is a bool", expected=self.kind.__name__, received=repr(value)
            )
        return check_type(value, self.kind, arg, self.name)

    def get(self) -> T:
        """Returns the value; the default where the environment has none."""
        text = os.environ.get(self.name)
        return self.default if text is None else self._read(text)

    def _read(self, text: str) -> T:
        return self.kind(text)

    def set(self, value: T) -> None:
        """Sets the variable in this process and for those that it starts.

        Raises:
            ProgramTypeError: If the value is of another type.
        """
        os.environ[self.name] = self._text(self._checked(value, "value"))

    def _text(self, value: T) -> str:
        return str(value)

    def delete(self) -> None:
        """Takes the variable out of the environment."""
        del os.environ[self.name]

    def __repr__(self) -> str:
        return f"Env({self.name}={self.get()!r})"


class StringEnvironmentVariable(EnvironmentVariable[str]):
    """A text; the arguments are those of :class:`EnvironmentVariable`."""

    kind = str


class BooleanEnvironmentVariable(EnvironmentVariable[bool]):
    """A truth value: ``y``, ``yes``, ``t``, ``true``, ``on`` and ``1`` are true; arguments as :class:`EnvironmentVariable`.

    Example:
        >>> from tstatic.utils.environments import BooleanEnvironmentVariable
        >>> BooleanEnvironmentVariable("FLAG_OF_MINE", False)
        Env(FLAG_OF_MINE=False)
    """

    kind = bool
    BOOLEAN_IS_SET = ("y", "yes", "t", "true", "on", "1")

    def _read(self, text: str) -> bool:
        return text.lower() in self.BOOLEAN_IS_SET

    def _text(self, value: bool) -> str:
        return str(value).lower()


class IntegerEnvironmentVariable(EnvironmentVariable[int]):
    """A whole number, and the default where the text is none; the arguments are those of :class:`EnvironmentVariable`."""

    kind = int

    def _read(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            return int(self.default)


class EnvironmentVariableGuard(Generic[T]):
    """Sets a variable within ``with``, and gives it its earlier value after that.

    Args:
        variable: The variable.
        value: Its value within.
    """

    def __init__(self, variable: EnvironmentVariable[T], value: T) -> None:
        self.variable: EnvironmentVariable[T] = variable
        self.original_value: T = variable.get()
        variable.set(value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *caught: object) -> None:
        self.variable.set(self.original_value)
