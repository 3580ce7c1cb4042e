"""Runs a command, prints its outcome or its error, and returns the exit code."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from tstatic.errors import DeviceError, MissingPackageError, ReportError, TstaticError, UnsupportedError
from tstatic.tools.cli.outcome import ENVIRONMENT, FINDING, INTERRUPTED, CommandError, Outcome
from tstatic.tools.cli.show import complain, said, show
from tstatic.tools.cli.streams import forget
from tstatic.tools.cli.targets import check_target


def perform(command: str, as_json: bool, **options: Any) -> int:
    """Runs a command and returns its exit code.

    Args:
        command: ``module:function`` of this package; it is imported now, so that help needs none of it.
        as_json: Print plain data; an error, too, is then an object with ``error`` and ``exit_code``.
        **options: Arguments of the function, which returns an :class:`Outcome`; a ``target`` is looked for before anything is
            imported.
    """
    module, _, name = command.partition(":")
    try:
        if "target" in options:
            check_target(options["target"])
        outcome: Outcome = getattr(importlib.import_module(f"tstatic.tools.cli.{module}"), name)(**options)
    except CommandError as error:
        return _failed(str(error), error.code, as_json)
    except TstaticError as error:
        missing = isinstance(error, MissingPackageError | UnsupportedError | DeviceError | ReportError)
        return _failed(said(error), ENVIRONMENT if missing else FINDING, as_json)
    except OSError as error:
        return _failed(f"{type(error).__name__}: {error}", ENVIRONMENT, as_json)
    except KeyboardInterrupt:
        return _failed("interrupted", INTERRUPTED, as_json)
    try:
        show(outcome, as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader had enough: what was found is as it was found.
        forget(sys.stdout)
    return outcome.code


def _failed(text: str, code: int, as_json: bool) -> int:
    if text:
        complain(text)
    if as_json:
        print(json.dumps({"error": text, "exit_code": code}))
    return code
