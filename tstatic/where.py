"""The user's own file and line behind a call."""

from __future__ import annotations

import os
import sys

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_OWN: dict[str, bool] = {}

Where = tuple[str, int]


def is_own(file: str) -> bool:
    """Returns whether a file is this package's."""
    return file.startswith(_PACKAGE)


def is_library(file: str) -> bool:
    """Returns whether a file is Python's (``contextlib``, ``copy``), or code that is in no file."""
    if file.startswith(("<frozen", "<string>")):
        return True
    return file.startswith(_LIBRARY) and "site-packages" not in file


def user_line() -> Where | None:
    """Returns ``(file, line)`` of the nearest caller outside this package; costs about a microsecond."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        try:
            own = _OWN[name]
        except KeyError:
            own = _OWN[name] = is_own(name) or is_library(name)
        if not own:
            return name, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


def show(where: Where | None) -> str:
    """Writes ``file:line``, relative to the working directory when that is shorter."""
    if where is None:
        return "unknown"
    file, line = where
    try:
        relative = os.path.relpath(file)
    except ValueError:
        relative = file
    return f"{relative if len(relative) < len(file) else file}:{line}"
