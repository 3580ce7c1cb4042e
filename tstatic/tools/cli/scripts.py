"""Runs users' scripts, as Python does, and shows their errors without the frames of the runner."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from tstatic.fluid import as_paddle
from tstatic.tools.cli.outcome import FINDING, CommandError, ScriptError
from tstatic.tracebacks import script_traceback


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
        raise ScriptError(script_traceback(error, script), FINDING) from error
    finally:
        sys.argv = before[0]
        sys.path[:] = before[1]
