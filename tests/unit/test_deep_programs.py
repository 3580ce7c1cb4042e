"""Nothing that grows with a program is walked by recursion: long, wide and deep programs build, run, fuse, explain, save and load.

``python -m tests.helpers.deep_programs`` does the same with 10,000 operators; Python's own limit would hide a recursion here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tstatic as paddle
from tests.helpers import deep_programs
from tests.helpers.patience import HANG
from tstatic import static
from tstatic.undo import NotedDict

ROOT = Path(__file__).parents[2]


def test_programs_larger_than_the_recursion_limit_pass_every_stage() -> None:
    # A process of its own: a runner's frames count, too.
    command = [sys.executable, "-m", "tests.helpers.deep_programs", "--size", "110", "--limit", "100"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stdout.splitlines() if line.startswith("nested_names, 110: save")]


@pytest.mark.parametrize("edit", ["clone", "prune"])
def test_variables_that_are_dropped_are_noted_once(edit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A note is a copy of all variables, which keeps their order: one for each of them would make the work their square.
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        loss = paddle.mean(deep_programs.chain(static.data("x", [4, 8]), 20))
        paddle.optimizer.SGD(0.1).minimize(loss)
    notes: list[int] = []
    note = NotedDict._note_all

    def counted(self: NotedDict[object]) -> None:
        notes.append(len(self))
        note(self)

    monkeypatch.setattr(NotedDict, "_note_all", counted)
    if edit == "clone":
        main.clone(for_test=True)
    else:
        main._prune([loss])
    assert len(notes) <= 2
