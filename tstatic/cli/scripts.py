"""Runs users' scripts, as Python does, and shows their errors without the frames of the runner."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tstatic import as_paddle
from tstatic.cli.outcome import FINDING, CommandError, ScriptError


def execute(script: str, arguments: Sequence[str]) -> None:
    """Runs a script as ``__main__``; imports of ``paddle`` give tstatic.

    Args:
        script: The path of a Python file.
        arguments: Its ``sys.argv[1:]``.

    Raises:
        CommandError: If the file is not there.
        ScriptError: If the script raises, or exits with another status than 0.
    """
    path = Path(script)
    if not path.is_file():
        raise CommandError(f"there is no script '{script}'")
    as_paddle.install()
    before = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        code = ended.code
        if code is None or code == 0:
            return
        if isinstance(code, int):
            raise ScriptError("", code) from None
        raise ScriptError(str(code)) from None
    except Exception as error:
        raise ScriptError(_traceback(error, script), FINDING) from error
    finally:
        sys.argv = before[0]
        sys.path[:] = before[1]


def _traceback(error: BaseException, script: str) -> str:
    """Returns an error's traceback, which begins in the script."""
    frame: TracebackType | None = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != script:
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame)).rstrip()
