"""Prepares processes that fork others which run scripts: what these would import is there, and is not torn down with each."""

from __future__ import annotations

import contextlib
import gc
import weakref
from importlib import import_module
from pkgutil import iter_modules

from tstatic.errors import MissingPackageError
from tstatic.ir import registry

USED_LATER = ("tstatic.static.run.executor", "tstatic.distributed.fleet", "tstatic.formats.paddle_program")
"""What scripts import as they run, and nothing registers."""


def load() -> None:
    """Imports all that registers something, the command line, and what programs use while they run.

    A forked child finds it all imported, which saves it a tenth of a second or two.
    """
    registry.load_all()
    for name in USED_LATER:
        import_module(name)
    with contextlib.suppress(MissingPackageError):  # where the library is tried without its tools
        import_module("tstatic.testing")
        commands = import_module("tstatic.tools.cli")
        for one in iter_modules(commands.__path__, "tstatic.tools.cli."):
            import_module(one.name)
    gc.freeze()  # children share what the collector does not touch


def leave_teardown() -> None:
    """Has this forked child leave to its parent what that one's modules do at their end, before it makes anything itself.

    torch takes back each registration of its libraries, which takes a child 50 ms.
    """
    for one in [*weakref.finalize._registry]:  # type: ignore[attr-defined]
        one.atexit = False
