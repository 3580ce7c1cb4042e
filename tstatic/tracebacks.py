"""Tracebacks without the frames of this package, whose errors name the user's line already."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tstatic.errors import TstaticError
from tstatic.flags import flag
from tstatic.where import is_library, is_own

ALL_FRAMES = 2
"""From this value of FLAGS_call_stack_level on, tracebacks show all frames."""

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def without_own_frames(found: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the frames of this package, and those of Python's library that it called.

    Frames of users' functions that the package called stay.
    """
    kept: list[TracebackType] = []
    inside = False
    step = found
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        inside = is_own(file) or (inside and is_library(file))
        if not inside:
            kept.append(step)
        step = step.tb_next
    made: TracebackType | None = None
    for one in reversed(kept):
        made = TracebackType(made, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return made


def hide_own_frames(error: BaseException) -> BaseException:
    """Takes the package's frames out of an error's traceback and out of those of its causes, in place; returns the error.

    Only errors that the package raises on purpose, and what they were raised from, are touched: any other needs its frames to be
    understood. ``FLAGS_call_stack_level=2`` leaves all of them as they are.
    """
    if int(flag("FLAGS_call_stack_level")) >= ALL_FRAMES:
        return error
    seen: set[int] = set()
    waiting: list[tuple[BaseException | None, bool]] = [(error, False)]
    while waiting:
        one, explained = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        explained = explained or isinstance(one, TstaticError)
        if explained:
            one.__traceback__ = without_own_frames(one.__traceback__)
        waiting += [(one.__cause__, explained), (one.__context__, explained)]
    return error


def script_traceback(error: BaseException, script: str) -> str:
    """Returns what Python prints for an error of a script, without the frames of what runs it, nor those of this package."""
    frame = hide_own_frames(error).__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != script:
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame)).rstrip()


def install() -> None:
    """Makes Python print uncaught errors of this package without its own frames; other errors are printed as before."""
    before: Hook = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, found: TracebackType | None) -> None:
        before(kind, error, hide_own_frames(error).__traceback__ or found)

    sys.excepthook = hook
