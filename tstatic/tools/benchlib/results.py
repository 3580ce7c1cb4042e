"""The file of a result: what was measured where, all samples, and what follows from them; a partial run continues in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tstatic.errors import ProgramError
from tstatic.formats.report_files import make_folder, write_report
from tstatic.regular import read_bytes
from tstatic.tools.benchlib import statistics
from tstatic.tools.benchlib.statistics import Judgement

KIND, VERSION = "tstatic bench", 1
CONTROL = "control"
"""Key under which a row holds the second measurement of one peer."""
SAME = ("machine", "versions", "commit", "device", "seed", "setting")
"""What must agree for rows of two runs to stand in one file."""
_MAY_CHANGE = ("load",)

Record = dict[str, Any]
RowRecord = Mapping[str, Any]


def read(path: Path) -> Record:
    """Returns a result.

    Raises:
        ProgramError: If the file is not one, or of a later version.
    """
    try:
        found = json.loads(read_bytes(path))
    except FileNotFoundError:
        raise ProgramError(f"there is no result '{path}'", fix="tstatic bench --json FILE writes one") from None
    except (ValueError, OSError, RecursionError) as error:
        raise ProgramError(
            f"'{path}' cannot be read as a result: {error}", fix="tstatic bench --json FILE writes a new one"
        ) from error
    if not isinstance(found, dict) or found.get("kind") != KIND or not isinstance(found.get("rows"), list):
        raise ProgramError(
            f"'{path}' is not a result of tstatic bench", expected=f"kind '{KIND}' and a list of rows",
            received=", ".join(map(str, found)) if isinstance(found, dict) else type(found).__name__,
        )  # fmt: skip
    if found.get("version") != VERSION:
        raise ProgramError(
            f"'{path}' has another format", expected=f"version {VERSION}", received=f"version {found.get('version')}",
            fix="read it with the tstatic that wrote it",
        )  # fmt: skip
    return found


def write(record: Mapping[str, Any], path: Path) -> None:
    """Writes a result, all of it or nothing: a run that is interrupted leaves the file of the row before."""
    make_folder(path.parent, "the result")
    write_report(path, _text(record), "the result")


def _text(record: Mapping[str, Any]) -> str:
    """Returns JSON with a line for each list of numbers; only lists have line breaks, texts have none."""
    return (
        re.sub(r"\[\n[-\d.,e+\s]+\]", lambda found: re.sub(r"\s+", "", found[0]), json.dumps(record, indent=1)) + "\n"
    )


def differences(a: Mapping[str, Any], b: Mapping[str, Any], parts: tuple[str, ...] = SAME) -> list[str]:
    """Returns what differs between two results, a line each; the machine's load may."""
    found = []
    for part in parts:
        first, second = a.get(part), b.get(part)
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            for key in sorted({*first, *second} - set(_MAY_CHANGE)):
                if first.get(key) != second.get(key):
                    found.append(f"{part}, {key}: {first.get(key)} and {second.get(key)}")
        elif first != second:
            found.append(f"{part}: {first} and {second}")
    return found


def check_same(found: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Refuses to continue a result of another machine, version, commit or setting.

    Raises:
        ProgramError: Names each difference.
    """
    lines = differences(found, now)
    if lines:
        raise ProgramError(
            f"'{path}' holds rows that were measured otherwise", expected="the same machine, versions, commit and settings",
            received="; ".join(lines), fix="give another file, or remove this one",
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- what follows
def samples(row: RowRecord, peer: str) -> list[float]:
    """Returns the seconds of a peer in a row; none if it was not timed."""
    entry = row["peers"].get(peer, {})
    return list(entry.get("seconds", ()))


def control_of(row: RowRecord) -> float:
    """Returns what the row's control shows: the logarithm of the median ratio of two measurements of one peer."""
    entry = row.get(CONTROL)
    if not entry:
        return 0.0
    own = samples(row, entry["of"])
    return statistics.control_difference(own, entry["seconds"]) if own and len(own) == len(entry["seconds"]) else 0.0


def middle(seconds: list[float]) -> float:
    """Returns the median of samples."""
    return statistics.median(sorted(seconds))


def judgements(row: RowRecord, of: str = "tstatic") -> Iterator[tuple[str, Judgement]]:
    """Yields each other peer that was timed, and how one peer compares with it."""
    mine = samples(row, of)
    for name in row["peers"]:
        other = samples(row, name)
        if name != of and mine and len(mine) == len(other):
            yield name, statistics.paired(mine, other, control_of(row))


def findings(record: Mapping[str, Any]) -> list[str]:
    """Returns the results that are wrong and the errors, a line each."""
    return [
        f"{row['name']}: {name}: {entry['state']}: {entry['detail']}"
        for row in record["rows"]
        for name, entry in row["peers"].items()
        if entry["state"] in ("wrong", "error")
    ]
