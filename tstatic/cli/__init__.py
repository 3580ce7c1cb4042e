"""The command line: ``tstatic`` and ``python -m tstatic``.

It wraps functions of the library and owns none of them.

* ``app``, ``plain``  declare the commands: with typer, and doctor and selftest where it is not installed
* ``perform``, ``outcome``, ``show``  runs a command, what it hands back, and how that is printed
* ``targets``, ``scripts``, ``subjects``  what a command is pointed at; runs users' scripts; the programs to look at
* ``looking``  explain, kernels, memory, summary
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


def main() -> None:
    """Runs the command line and exits with its code.

    Without typer only ``doctor`` and ``selftest`` are there; any other command says what to install, with exit code 3.
    """
    # Loaded by name: typer is optional, and its command line and the plain one exclude each other.
    if find_spec("typer") is not None and find_spec("rich") is not None:
        import_module("tstatic.cli.app").app(prog_name="tstatic")
        return
    plain = import_module("tstatic.cli.plain")
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-") and sys.argv[1] not in ("doctor", "selftest"):
        print(f"tstatic {sys.argv[1]}: {plain.INSTALL}", file=sys.stderr)
        sys.exit(3)
    sys.exit(plain.main())
