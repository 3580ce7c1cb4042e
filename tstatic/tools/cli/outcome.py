"""What a command hands back: plain data, the parts that people read, and an exit code; and why it could not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OK, FINDING, USAGE, ENVIRONMENT, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes: all is well; something was found; the call is wrong; something is missing on this machine; Ctrl-C."""


@dataclass(frozen=True)
class Table:
    """Rows under columns; cells are shown as text, whatever they hold."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Outcome:
    """The result of a command.

    Attributes:
        data: Plain data, which ``--json`` prints.
        parts: Texts and tables, which are printed else.
        code: The exit code.
    """

    data: Mapping[str, Any]
    parts: Sequence[str | Table] = ()
    code: int = OK


class CommandError(Exception):
    """A command cannot do what it was asked for.

    Args:
        text: What was wrong, and what to do.
        code: The exit code.
    """

    def __init__(self, text: str, code: int = USAGE) -> None:
        super().__init__(text)
        self.code = code


class ScriptError(CommandError):
    """The user's script ended with an error before it could be looked at.

    Args:
        text: Its traceback.
        code: The exit code that Python would give.
    """

    def __init__(self, text: str, code: int = FINDING) -> None:
        super().__init__(text, code)
