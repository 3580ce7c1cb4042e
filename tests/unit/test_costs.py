"""The table of what tests cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.helpers import child, costs, source

BUSY = """
import subprocess, sys, time

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def test_in_a_child_process():
    subprocess.run([sys.executable, "-c", "import time; any(time.process_time() > 0.5 for _ in iter(int, 1))"], check=True)

def test_here():
    burn(0.3)
"""


def test_what_files_cost_is_written_by_stage_with_child_processes(tmp_path: Path) -> None:
    file = tmp_path / "test_busy.py"
    file.write_text(BUSY, encoding="utf-8")
    plugin = "from tests.helpers.costs import register as pytest_configure\n"
    (tmp_path / "conftest.py").write_text(plugin, encoding="utf-8")
    environment = child.environment(without=("PYTEST_XDIST_WORKER",), TSTATIC_COSTS=str(tmp_path / "costs"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(file),
    ]
    subprocess.run(command, cwd=source.ROOT, env=environment, check=True, capture_output=True)
    found = costs.read(tmp_path / "costs")
    # 0.5 in a child and 0.3 here, which the system counts in ticks.
    assert found["tests.numpy", "test_busy.py"] >= 0.7
    # Two workers, and nothing of the process that hands out the tests.
    assert len([*(tmp_path / "costs").iterdir()]) == 2
    assert ("tests.numpy", costs.OUTSIDE) in found


def test_the_table_compares_folders_and_files() -> None:
    now = {("tests.numpy", "tests/unit/test_a.py"): 3.0, ("tests.numpy", "tests/unit/test_b.py"): 1.0}
    before = {("tests.numpy", "tests/unit/test_a.py"): 8.0}
    assert costs.table(now, before)[0].split() == ["4.0", "8.0", "0.50", "tests.numpy", "unit"]
    rows = [line.split() for line in costs.table(now, {}, by_file=True)]
    assert ["1.0", "tests.numpy", "tests/unit/test_b.py"] in rows
    assert ["4.0", "all", "all"] in rows
