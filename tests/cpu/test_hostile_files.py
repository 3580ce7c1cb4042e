"""Files of strangers: a typed error that changes nothing or a right load, no code run, memory and work bounded by their size."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import hostile, warm
from tests.helpers.seed import SEED

SOAK = bool(os.environ.get("TSTATIC_SOAK"))
MUTATED = 100_000 if SOAK else 5_000
EXPENSIVE = 5_000 if SOAK else 54
ONE_IN = 1 if SOAK else 80
"""Of about 39,000 programs that lack a part or have an absurd number in it."""

pytestmark = pytest.mark.timeout(3600 if SOAK else 900)
"""Seconds until a test counts as hung. The files themselves are held to calls and to processor time; all of them together take a
quarter of an hour of it, on a machine with nothing else to do."""


def loaded(how: str, count: int, folder: Path) -> dict[str, Any]:
    done = warm.run(
        "tests.helpers.hostile", how, str(count), SEED, str(folder), cwd=folder, module=True, timeout=3000.0
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(found)
    return found


@pytest.mark.slow
def test_mutated_files_are_refused_or_loaded_as_they_were(tmp_path: Path) -> None:
    found = loaded("mutated", MUTATED, tmp_path)
    assert sum(map(sum, found["kinds"].values())) == MUTATED
    # Both happen to files without checksums; those with them are refused, but for changes that change nothing.
    for kind in ("program of Paddle", "values of Paddle", "pickle", "state of Paddle"):
        assert min(found["kinds"][kind]) > 0
    for kind in ("values of a save", "program of a model", "values of a model", "object"):
        assert found["kinds"][kind][0] < MUTATED / 1000
    # All files together leave no more behind than one may take.
    assert found["kept"] <= hostile.ROOM


@pytest.mark.slow
def test_expensive_files_cost_no_more_than_their_size_allows(tmp_path: Path) -> None:
    """Guards the bounds of docs/files.md: a pickle of 525 kB once kept the reader busy for minutes."""
    found = loaded("expensive", EXPENSIVE, tmp_path)
    assert sum(map(sum, found["kinds"].values())) == EXPENSIVE
    assert all(map(sum, found["kinds"].values()))


@pytest.mark.slow
def test_programs_that_lack_a_part_are_refused_or_read(tmp_path: Path) -> None:
    """Guards against bare errors of a rule: an op without its output slot once ended in ``KeyError: 'Out'``."""
    found = loaded("odd", ONE_IN, tmp_path)
    assert min(min(row) for row in found["kinds"].values()) > 0


FAULTS = {
    "memory": "MemoryError", "code": "compile", "time": "TimeoutError", "class": "KeyError", "value": "not as it was saved",
    "state": "something is not as it was", "calls": "more than", "unpaid": "units of work",
}  # fmt: skip


@pytest.mark.parametrize("fault", hostile.FAULTS)
def test_a_reader_that_does_more_is_noticed(fault: str, tmp_path: Path) -> None:
    if fault in ("time", "calls") and not SOAK:
        pytest.skip("takes five seconds: make proof")
    how = "expensive" if fault in ("calls", "unpaid") else "mutated"
    done = warm.run("tests.helpers.hostile", how, "30", "a", str(tmp_path), fault, cwd=tmp_path, module=True)
    assert done.returncode != 0
    assert FAULTS[fault] in done.stderr, done.stderr[-2000:]
