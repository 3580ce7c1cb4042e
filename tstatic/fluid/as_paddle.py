"""``python -m tstatic.as_paddle script.py``: runs a Paddle script unchanged; every ``paddle[.x]`` import is ``tstatic[.x]``."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from functools import partial
from types import ModuleType

from tstatic.aliases import SameModule
from tstatic.ir.program import Program
from tstatic.tracebacks import script_traceback
from tstatic.unsupported import advice


class _Alias(importlib.abc.MetaPathFinder):
    """Answers imports of ``paddle`` and ``paddle.x`` with the module of tstatic of that name, the same object."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == "paddle" or name.startswith("paddle."):
            ours = "tstatic" + name[len("paddle") :]
            # As of a package: imports below the module come here, too, and get an answer that helps.
            return importlib.util.spec_from_loader(
                name, SameModule(ours, partial(_import, name, ours)), is_package=True
            )
        return None


def _import(name: str, ours: str) -> ModuleType:
    """Returns the module of tstatic that a script imports under a name of Paddle's."""
    try:
        module = importlib.import_module(ours)
    except ModuleNotFoundError as error:
        if error.name != ours:
            raise
        # A name inside a module may be asked for as if it were a module (``import paddle.fluid.unique_name``).
        parent, _, leaf = ours.rpartition(".")
        found = getattr(importlib.import_module(parent), leaf, None) if parent else None
        if not isinstance(found, ModuleType):
            text = f"tstatic has no module '{ours}', which the script imports as '{name}'. "
            text += advice(ours.partition(".")[2])
            raise ModuleNotFoundError(text.rstrip(), name=name) from None
        module = found
    return module


def install() -> None:
    """Makes ``import paddle`` give tstatic, in this process.

    Fetched arrays of one element convert to numbers from then on whatever their rank, as they did when the scripts were written.
    """
    Program.fetches_convert = True
    if not any(isinstance(finder, _Alias) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Alias())


def main(arguments: list[str] | None = None) -> int:
    """Runs a script in which ``paddle`` is tstatic; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given or given[0] in ("-h", "--help"):
        print("usage: python -m tstatic.as_paddle script.py [arguments of the script]", file=sys.stderr)
        return 0 if given else 2
    script = given[0]
    if not os.path.isfile(script):
        print(f"there is no script '{script}'", file=sys.stderr)
        return 2
    install()
    sys.argv = list(given)
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))  # as Python does for a script
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception as error:
        print(script_traceback(error, script), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
