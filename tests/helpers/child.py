"""Builds the environment of a process that a test starts: it imports this checkout, and the fault that is planted in it."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python_path(package: Path = ROOT) -> str:
    """Returns a ``PYTHONPATH`` for a package.

    What this process was given stays on it: ``tests/mutants`` plants a fault by a folder that Python looks into as it starts.

    Args:
        package: The folder that has the package: this checkout, or a copy of it, which then comes first.
    """
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.pathsep.join([*given, str(ROOT)] if package == ROOT else [str(package), *given])


def environment(
    package: Path = ROOT, without: Container[str] = (), first: Path | None = None, **variables: str
) -> dict[str, str]:
    """Returns this process's environment, with some variables left out and others set.

    Args:
        package: The folder that has the package.
        without: Names that are left out.
        first: A folder that Python looks into before all others.
        **variables: What is set.
    """
    kept = {name: value for name, value in os.environ.items() if name not in without}
    path = python_path(package)
    return kept | {"PYTHONPATH": path if first is None else f"{first}{os.pathsep}{path}"} | variables
