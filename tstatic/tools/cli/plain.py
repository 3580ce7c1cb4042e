"""The commands that need neither typer nor rich: doctor and selftest."""

from __future__ import annotations

import argparse

from tstatic.tools.cli.perform import perform
from tstatic.version import __version__

INSTALL = (
    "The other commands (run, explain, kernels, memory, summary, op, profile, verify, compile, bench, compare, convert, cache) "
    "need typer and rich: pip install 'tstatic[cli]'. Paddle scripts run without them: python -m tstatic.as_paddle script.py"
)


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit code; 2 for one that needs more packages."""
    parser = argparse.ArgumentParser("tstatic", epilog=INSTALL)
    parser.add_argument("--version", action="version", version=f"tstatic {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="{doctor,selftest}")
    doctor = commands.add_parser("doctor", help="check this machine")
    doctor.add_argument("--quick", action="store_true", help="start no other processes")
    selftest = commands.add_parser("selftest", help="run small programs whose results are known")
    for one in (doctor, selftest):
        one.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    if given.command == "doctor":
        return perform("doctor:doctor", given.json, quick=given.quick)
    return perform("running:selftest", given.json)
