"""Every command with standard output that is full, closed, of few characters, or a pipe that nobody reads: never a traceback."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cases import tstatic, write_script
from tests.helpers import child, warm
from tstatic.errors import ProgramError
from tstatic.plan.capacity import capacity

pytestmark = pytest.mark.numpy_device("the commands choose the device themselves")

COMMANDS: dict[str, tuple[tuple[str, ...], int]] = {
    "summary": (("net.py",), 0), "explain": (("net.py",), 0), "missing": (("explain", "nett.py", "--json"), 2),
    "doctor": (("--quick",), 0), "help": (("--help",), 0), "unknown": (("nonsense",), 2), "run": (("net.py",), 0),
    "kernels": (("net.py", "--all"), 0), "memory": (("net.py",), 0), "profile": (("net.py",), 0), "verify": (("net.py",), 0),
    "compile": (("net.py",), 0), "bench": (("--list",), 0), "compare": (("a.json", "b.json"), 2), "cache": ((), 0),
    "convert": (("a.npz", "b.npz"), 2), "op": (("gelu",), 0), "selftest": ((), 0), "version": (("--version",), 0),
}  # fmt: skip
"""Name -> what follows it, and the exit code where the output can be written; names that are no command stand for themselves."""
QUICK = ("summary", "missing", "op")
CASES = tuple(
    itertools.product(
        COMMANDS if os.environ.get("TSTATIC_SOAK") else QUICK, ("/dev/full", "closed", "broken pipe", "ascii")
    )
)

IN_PROCESS = """
import os, sys
how, *arguments = sys.argv[1:]
if how == "/dev/full":
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
elif how == "closed":
    os.close(1)
    sys.stdout = None
elif how == "broken pipe":
    read, write = os.pipe()
    os.dup2(write, 1)
    os.close(read)
else:
    sys.stdout.reconfigure(encoding="ascii", errors="strict")
sys.argv = ["tstatic", *arguments]
from tstatic.cli import main
main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("streams")
    # A name beyond ASCII, which reports print.
    text = write_script(where).read_text(encoding="utf-8")
    write_script(where, text.replace('static.data("x"', 'static.data("größe"').replace('{"x": np', '{"größe": np'))
    write_script(where, IN_PROCESS, "started.py")
    return where


@pytest.mark.parametrize(("command", "how"), CASES)
def test_no_output_is_no_traceback(command: str, how: str, folder: Path) -> None:
    """Guards against tracebacks where the report cannot be printed; the exit code says that it was not."""
    arguments, code = COMMANDS[command]
    known = command not in ("missing", "help", "unknown", "version")
    started = [command, *arguments] if known else list(arguments)
    done = warm.run(folder / "started.py", how, *started, cwd=folder, CPU_NUM="1")
    assert "Exception ignored" not in done.stderr, done.stderr[-2000:]
    if command == "run" and how in ("/dev/full", "broken pipe"):
        # The script's own print fails, and its traceback is its answer, as Python's would be.
        assert 'File "net.py"' in done.stderr
        assert "tstatic" not in done.stderr
        return
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    if how == "ascii":
        assert done.returncode in (code, 3), done.stderr
        assert done.stdout.isascii()
        assert command not in ("summary",) or "gr\\xf6\\xdfe" in done.stdout
    elif how == "broken pipe":
        # Typer's own answer for what it prints itself is 1.
        assert done.returncode in ((code,) if known else (code, 3, 1)), done.stderr
    elif known and command not in ("run", "compare", "convert"):
        assert done.returncode == 3, done.stderr
        assert "the output cannot be written" in done.stderr or command in ("cache", "compile")


def test_a_new_process_with_a_closed_output_says_so(folder: Path) -> None:
    """Guards the end of the interpreter, which writes what is left once more."""
    for redirected in (">&-", "> /dev/full", ">&- 2>&-"):
        done = subprocess.run(
            ["bash", "-c", f"exec {sys.executable} -m tstatic --help {redirected}"], cwd=folder, capture_output=True, text=True,
            env=child.environment(),
        )  # fmt: skip
        assert done.returncode == 3, done.stderr
        assert "Traceback" not in done.stderr
        assert "Exception" not in done.stderr


@pytest.mark.parametrize("feed", ["x=-5,8", "x=1_0,6"])
def test_sizes_are_whole_and_not_negative(feed: str, tmp_path: Path) -> None:
    """Guards against a size that ended in ZeroDivisionError."""
    write_script(tmp_path)
    done = tstatic(tmp_path, "explain", "net.py", "--feed", feed)
    assert done.returncode == 2
    assert "--feed takes NAME=SIZE,SIZE" in done.stderr


@pytest.mark.parametrize("size", ["1e400 GB", "nan GB", "-5 GB", "1.2.3 GB", ". GB", "0 GB", "inf GB", "1e300 TB", "x"])
def test_memory_is_a_number_of_bytes(size: str) -> None:
    """Guards against numbers that no machine has, which ended in OverflowError."""
    with pytest.raises(ProgramError, match=r"not a memory|neither a size nor a chip"):
        capacity(size)


def test_a_memory_that_no_machine_has_is_a_wrong_call(tmp_path: Path) -> None:
    write_script(tmp_path)
    done = tstatic(tmp_path, "memory", "net.py", "--fits", "1e400 GB")
    assert done.returncode == 2, done.stderr
    assert "--fits: " in done.stderr
