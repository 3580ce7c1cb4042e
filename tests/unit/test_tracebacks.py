"""Uncaught errors show the user's frames alone: in a script, under a runner, with a callback of the user's in between."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import child
from tests.helpers.patience import HANG

PRELUDE = "import numpy as np\nimport tstatic as paddle\nfrom tstatic import static\n"
UNCAUGHT = {
    "an operator": "paddle.matmul(static.data('x', [4, 2]), paddle.ones([3, 2]))",
    "an arithmetic sign": "static.data('x2', [4, 2]) + static.data('y', [3])",
    "a layer": "paddle.nn.Linear(3, 4)(static.data('x3', [4, 2]))",
    "a run": "static.Executor().run(feed={'imag': np.ones(2, 'f4')}, fetch_list=[static.data('image', [2]) + 1])",
    "a switch": "setattr(static.BuildStrategy(), 'fuse_nothing', True)",
    "a missing file": "static.load(static.default_main_program(), 'nowhere')",
    "a user's function": "static.nn.cond(static.data('p', [1], 'bool'), branch, lambda: paddle.ones([2, 2]))",
}
EACH = """
import sys


def branch():
    return paddle.matmul(paddle.ones([2, 3]), paddle.ones([2, 3]))


for text in TEXTS:
    try:
        exec(compile(text, "mine.py", "exec"))
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
    print("=====", file=sys.stderr)
"""


def ran(folder: Path, text: str, *runner: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    environment = child.environment(**{"FLAGS_call_stack_level": "1", **variables})
    command = [sys.executable, *runner, "script.py"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG)


def foreign_frames(stderr: str) -> list[str]:
    """The frames that are in no file of the test's."""
    mine = ("script.py", "mine.py")
    return [
        line for line in stderr.splitlines() if line.startswith("  File") and not any(name in line for name in mine)
    ]


def test_uncaught_errors_show_the_users_frames_alone(tmp_path: Path) -> None:
    texts = [*UNCAUGHT.values(), "static.Executor().run(nothing=1)"]
    done = ran(tmp_path, f"{PRELUDE}TEXTS = {texts!r}\n{EACH}")
    *shown, bug, rest = done.stderr.split("=====\n")
    assert rest == "", done.stderr
    for name, text in zip(UNCAUGHT, shown, strict=True):
        assert "Traceback" in text, name
        assert 'mine.py", line 1' in text, name
        assert foreign_frames(text) == [], name
        assert ("in branch" in text) == (name == "a user's function"), name
    assert foreign_frames(bug), "an error that was not raised on purpose keeps its frames"


@pytest.mark.parametrize("runner", [("-m", "tstatic.as_paddle"), ("-m", "tstatic", "run")])
def test_runners_add_no_frames(tmp_path: Path, runner: tuple[str, ...]) -> None:
    text = f"import paddle\nfrom paddle import static\n{UNCAUGHT['an operator']}\n"
    done = ran(tmp_path, text, *runner)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[:2] == ["Traceback (most recent call last):", '  File "script.py", line 3, in <module>']
    assert foreign_frames(done.stderr) == []
    assert len(lines) <= 10


def test_a_script_that_is_missing_has_no_traceback(tmp_path: Path) -> None:
    done = ran(tmp_path, "", "-m", "tstatic.as_paddle", "nowhere.py")
    assert (done.returncode, done.stderr) == (2, "there is no script 'nowhere.py'\n")


def test_level_two_shows_all_frames(tmp_path: Path) -> None:
    done = ran(tmp_path, f"{PRELUDE}{UNCAUGHT['an operator']}\n", FLAGS_call_stack_level="2")
    assert any("tstatic" in line for line in foreign_frames(done.stderr))
