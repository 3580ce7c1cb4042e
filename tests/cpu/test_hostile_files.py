"""Mutated files of every kind: a typed error or a right load, no code run, memory of at most 4 times the file and 32 MB."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.helpers import hostile, warm
from tests.helpers.seed import SEED

COUNT = 100_000 if os.environ.get("TSTATIC_SOAK") else 5_000


@pytest.mark.slow
def test_mutated_files_are_refused_or_loaded_as_they_were(tmp_path: Path) -> None:
    done = warm.run("tests.helpers.hostile", str(COUNT), SEED, str(tmp_path), cwd=tmp_path, module=True, timeout=1500.0)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert sum(map(sum, found["kinds"].values())) == COUNT
    # Both happen to files without checksums; those with them are refused, but for changes that change nothing.
    for kind in ("program of Paddle", "values of Paddle", "pickle", "state of Paddle"):
        assert min(found["kinds"][kind]) > 0
    for kind in ("values of a save", "program of a model", "values of a model", "object"):
        assert found["kinds"][kind][0] < COUNT / 1000
    # All files together leave no more behind than one may take.
    assert found["kept"] <= hostile.ROOM
    print(found)


@pytest.mark.parametrize("fault", hostile.FAULTS)
def test_a_reader_that_does_more_is_noticed(fault: str, tmp_path: Path) -> None:
    words = {
        "memory": "MemoryError", "code": "compile", "time": "TimeoutError", "class": "KeyError", "value": "not as it was saved",
    }[fault]  # fmt: skip
    if fault == "time" and not os.environ.get("TSTATIC_SOAK"):
        pytest.skip("takes five seconds: make proof")
    done = warm.run("tests.helpers.hostile", "30", "a", str(tmp_path), fault, cwd=tmp_path, module=True)
    assert done.returncode != 0
    assert words in done.stderr, done.stderr[-2000:]
