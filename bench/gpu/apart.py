"""Runs a measurement in a process of its own, and keeps its row."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def row_of(
    command: Sequence[str], given: Mapping[str, Any], limit: float, file: Path, told: Callable[[str], str]
) -> dict[str, Any]:
    """Returns the row that a command prints as its last line, and appends it to a file.

    Args:
        command: What is run.
        given: The row where it fails or is not done in time, without the ``error`` that it gets.
        limit: Seconds.
        file: Gets a line of JSON.
        told: What is kept of the standard error.
    """
    row = dict(given)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        lines = done.stdout.strip().splitlines()
        row = json.loads(lines[-1]) if not done.returncode else {**row, "error": told(done.stderr) or "no message"}
    except subprocess.TimeoutExpired:
        row["error"] = f"not done after {limit:g} s"
    with file.open("a") as rows:
        rows.write(json.dumps(row) + "\n")
    return row
