"""Files that are not there or not programs, scripts that raise, signals: a short answer and the right exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.cases import SCRIPT, tstatic, write_script
from tests.helpers import child
from tests.helpers.patience import HANG

pytestmark = pytest.mark.numpy_device("the commands choose the device themselves")

ROOT = Path(__file__).parents[2]
RAISES = """import paddle


def build():
    raise ValueError('a [red]bad[/red] \\x1b[2J day')


build()
"""
LOOKING = ("explain", "kernels", "memory", "summary", "profile", "verify", "compile")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("hostile")
    write_script(where)
    write_script(where, RAISES, "raises.py")
    write_script(where, "print(1\n", "cut.py")
    write_script(where, "import sys\nsys.exit(7)\n", "exits.py")
    write_script(where, "raise SystemExit('no data')\n", "says.py")
    write_script(where, "print('nothing to run')\n", "empty.py")
    (where / "text.txt").write_text("hello\n")
    (where / "folder").mkdir()
    (where / "damaged.pdmodel").write_bytes(b"tstatic-program" + bytes(40))
    (where / "foreign.pdmodel").write_bytes(os.urandom(64))
    return where


@pytest.mark.parametrize("command", LOOKING)
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nett.py", "did you mean 'net.py'"),
        ("text.txt", "neither a script nor a saved program"),
        ("folder", "neither a script nor a saved program"),
        ("damaged.pdmodel", "cannot be read as a saved program"),
        ("foreign.pdmodel", "'foreign.pdmodel'"),
        ("", "there is no script"),
    ],
)
def test_wrong_targets_are_wrong_calls(folder: Path, command: str, target: str, said: str) -> None:
    done = tstatic(folder, command, target)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "site-packages" not in done.stderr


@pytest.mark.parametrize("command", ["run", "explain", "profile"])
def test_a_script_that_raises_shows_its_own_traceback(folder: Path, command: str) -> None:
    done = tstatic(folder, command, "raises.py")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == '  File "raises.py", line 8, in <module>'
    assert "runpy" not in done.stderr
    assert lines[-1] == "ValueError: a [red]bad[/red] \\x1b[2J day", "no control bytes reach the terminal"
    cut = tstatic(folder, command, "cut.py")
    assert cut.returncode == 1
    assert "SyntaxError" in cut.stderr
    assert 'File "cut.py", line 1' in cut.stderr.splitlines()[0]


def test_exit_codes_of_scripts(folder: Path) -> None:
    assert tstatic(folder, "run", "exits.py").returncode == 7
    assert tstatic(folder, "explain", "exits.py").returncode == 7
    done = tstatic(folder, "run", "says.py")
    assert (done.returncode, done.stderr) == (1, "no data\n")
    assert tstatic(folder, "run", "nowhere.py").returncode == 2
    empty = tstatic(folder, "explain", "empty.py")
    assert empty.returncode == 2
    assert "ran no program" in empty.stderr
    assert tstatic(folder, "explain", "net.py", "--program", "9").returncode == 2


@pytest.mark.parametrize("target", ["raises.py", "nowhere.py"])
def test_errors_are_json_too(folder: Path, target: str) -> None:
    done = tstatic(folder, "explain", target, "--json")
    found = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    assert found["error"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "net.py", "--switch", "fuse_nothing"),
        ("explain", "net.py", "--switch", "reduce_strategy"),
        ("memory", "net.py", "--feed", "x=a,b"),
        ("kernels", "net.py", "--all", "--show", "77"),
        ("compile", "net.py", "--all", "--chip", "sm_70"),
        ("cache", "burn"),
        ("nothing",),
        ("explain",),
        ("explain", "net.py", "--batch", "-3"),
    ],
)
def test_wrong_options(folder: Path, arguments: tuple[str, ...]) -> None:
    done = tstatic(folder, *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_names_of_variables_are_text(folder: Path) -> None:
    text = SCRIPT.replace('static.data("x", [None, 6])', 'static.data("x\\x1b[2J[bold]", [None, 6])').replace(
        '"x": np.ones', '"x\\x1b[2J[bold]": np.ones'
    )
    write_script(folder, text, "names.py")
    done = tstatic(folder, "summary", "names.py")
    assert done.returncode == 0, done.stderr
    assert "x\\x1b[2J[bold] float32[-1, 6]" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_file_that_cannot_be_written_is_said(folder: Path) -> None:
    done = tstatic(folder, "explain", "net.py", "--html", "nowhere/page.html")
    assert done.returncode == 2
    assert "there is no folder 'nowhere'" in done.stderr
    done = tstatic(folder, "kernels", "net.py", "--all", "--write", "text.txt")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["run", "explain"])
def test_an_interrupt_ends_with_130_and_no_traceback(tmp_path: Path, command: str) -> None:
    write_script(tmp_path, "import paddle, time\nprint('ready', flush=True)\ntime.sleep(600)\n", "waits.py")
    process = subprocess.Popen(
        [sys.executable, "-m", "tstatic", command, "waits.py"], cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=child.environment(),
    )  # fmt: skip
    stream = process.stdout if command == "run" else process.stderr
    assert stream is not None
    assert stream.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HANG)
    assert process.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said


def test_a_package_that_is_not_installed_is_the_machines_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tstatic.cli.perform import perform

    monkeypatch.setitem(sys.modules, "torch", None)
    (folder / "w.pth").write_bytes(b"")
    assert perform("weights:convert", False, source=str(folder / "w.pth"), destination=str(folder / "w.npz")) == 3
    assert "pip install torch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explain", "trained", "--program", "2"), "--program is for scripts, and 'trained' is a saved program"),
        (("memory", "trained", "--first", "1"), "--first is for scripts"),
        (("summary", "trained", "--", "more"), "arguments behind -- are for scripts"),
        (("profile", "net.py", "--runs", "3"), "--runs is for saved programs"),
        (("profile", "net.py", "--batch", "3"), "--batch is for saved programs"),
        (("memory", "trained", "--feed", "x"), "--feed takes NAME=SIZE,SIZE"),
        (("memory", "trained", "--feed", "xx=3,6"), "has no input 'xx'. did you mean 'x'?"),
        (("kernels", "trained", "--feed", "x=3,5"), "shape [-1, 6]"),
        (("explain", "trained", "--why", "nothing", "fc_0.tmp_1"), "writes 'nothing'"),
        (("profile", "empty.py"), "ran no program"),
        (("explain", "trainde"), "did you mean 'trained'"),
    ],
)
def test_options_that_would_do_nothing_are_wrong_calls(saved: Path, arguments: tuple[str, ...], said: str) -> None:
    done = tstatic(saved, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr


@pytest.fixture(scope="module")
def saved(folder: Path) -> Path:
    """The folder, with what the script saves."""
    assert tstatic(folder, "run", "net.py", ".").returncode == 0
    return folder


def test_a_program_in_which_nothing_is_fused_says_so(folder: Path) -> None:
    text = "import numpy as np\nimport paddle\ny = paddle.exp(paddle.static.data('x', [2]))\n"
    write_script(
        folder, f"{text}paddle.static.Executor().run(feed={{'x': np.ones(2, 'f4')}}, fetch_list=[y])\n", "one.py"
    )
    done = tstatic(folder, "verify", "one.py", "--examples", "1", "--no-interpret")
    assert "there was nothing to compare" in done.stdout
    assert "1 drawn feed, 1 step each" in done.stdout
    assert "--interpret" not in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [("explain", "--html"), ("profile", "--trace")],
)
@pytest.mark.parametrize(("file", "said"), [("nowhere/x", "there is no folder 'nowhere'"), ("folder", "is a folder")])
def test_a_file_that_cannot_be_written_is_found_before_the_script_runs(
    folder: Path, arguments: tuple[str, str], file: str, said: str
) -> None:
    done = tstatic(folder, arguments[0], "net.py", arguments[1], file)
    assert done.returncode == 2
    assert said in done.stderr
    assert "loss" not in done.stderr, "the script did not run"
