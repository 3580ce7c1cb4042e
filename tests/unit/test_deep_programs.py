"""Nothing that grows with a program is walked by recursion: long, wide and deep programs build, run, fuse, explain, save and load.

``python -m tests.helpers.deep_programs`` does the same with 10,000 operators; Python's own limit would hide a recursion here.
"""

from __future__ import annotations

import cProfile
import pstats
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import deep_programs
from tests.helpers.patience import HANG

ROOT = Path(__file__).parents[2]


def test_programs_larger_than_the_recursion_limit_pass_every_stage() -> None:
    # A process of its own: a runner's frames count, too.
    command = [sys.executable, "-m", "tests.helpers.deep_programs", "--size", "110", "--limit", "100"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stdout.splitlines() if line.startswith("nested_names, 110: save")]


@pytest.mark.parametrize("kind", ["unrolled", "one_value"])
def test_work_grows_with_the_program_not_with_its_square(kind: str, tmp_path: Path) -> None:
    def calls(n: int) -> dict[str, int]:
        found = {}
        for name, stage in deep_programs.stages(kind, n, str(tmp_path)):
            profile = cProfile.Profile()
            profile.runcall(stage)
            found[name] = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
        return found

    calls(2)
    few, many = calls(24), calls(72)
    for name in ("build", "run", "fuse", "explain", "copy", "save"):
        # Three times the program; nine times the calls would be its square.
        assert many[name] < 4.5 * few[name], (name, few[name], many[name])
