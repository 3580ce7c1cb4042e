"""Standard output that is full, closed, a pipe nobody reads, or of few characters: no traceback, and an exit code that tells."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import NoReturn, TextIO

from tstatic.tools.cli.outcome import ENVIRONMENT


def run_guarded(command: Callable[[], int | None]) -> NoReturn:
    """Runs a command line, and exits with its code once everything that it printed is out.

    A reader that stops early, as ``head`` does, changes nothing. Output that cannot be written is an error: the code is then that
    of something missing on this machine, and standard error says what.

    Args:
        command: Returns an exit code, or raises SystemExit.
    """
    _prepare()
    code: int | str | None = 0
    try:
        try:
            code = command()
        except SystemExit as error:
            code = error.code
        sys.stdout.flush()
    except BrokenPipeError:
        forget(sys.stdout)
    except OSError as error:
        forget(sys.stdout)
        _say(f"the output cannot be written: {error}")
        code = ENVIRONMENT
    if isinstance(code, str):
        _say(code)
        code = 1
    try:
        sys.stderr.flush()
    except OSError:
        forget(sys.stderr)
    sys.exit(code)


def _prepare() -> None:
    """Gives the process three streams that can be written to, whatever it was started with."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Read only: writing to it fails as it would to the closed one, and no file of the command gets its number.
            os.open(os.devnull, os.O_RDONLY)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - as long as the process
        elif hasattr(stream, "reconfigure"):
            # What its encoding lacks is written as an escape.
            stream.reconfigure(errors="backslashreplace")


def forget(stream: TextIO) -> None:
    """Drops what waits in a stream, so that the end of the process does not try to write it once more."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
        stream.flush()


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr)
