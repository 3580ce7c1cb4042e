"""The command line: ``tstatic`` and ``python -m tstatic``.

It wraps functions of the library and owns none of them.

* ``app``, ``plain``  declare the commands: with typer, and doctor and selftest where it is not installed
* ``perform``, ``outcome``, ``show``  runs a command, what it hands back, and how that is printed
* ``streams``  standard output that cannot be written to
* ``targets``, ``scripts``, ``subjects``  what a command is pointed at; runs users' scripts; the programs to look at
* ``looking``  explain, kernels, memory, summary
* ``op``, ``op_forms``, ``op_kernel``, ``op_sources``  op: every form of an operator
* ``running``  run, profile, verify, selftest
* ``chips``  compile
* ``benching``, ``live``  bench, compare; and how rows are shown while they are measured
* ``weights``  convert
* ``kernel_cache``  cache
* ``doctor``  doctor
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

from tstatic.tools.cli.streams import run_guarded


def main() -> None:
    """Runs the command line and exits with its code.

    Without typer only ``doctor`` and ``selftest`` are there; any other command says what to install, with exit code 3.
    """
    # Loaded by name: typer is optional, and its command line and the plain one exclude each other.
    run_guarded(_run)


def _run() -> int | None:
    if find_spec("typer") is not None and find_spec("rich") is not None:
        import_module("tstatic.tools.cli.app").app(prog_name="tstatic")
        return None
    plain = import_module("tstatic.tools.cli.plain")
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-") and sys.argv[1] not in ("doctor", "selftest"):
        print(f"tstatic {sys.argv[1]}: {plain.INSTALL}", file=sys.stderr)
        return 3
    code: int = plain.main()
    return code
