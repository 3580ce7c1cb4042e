"""The interpreter's tests as a GPU would run them, with a device that stays in the interpreter."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.bench.scripts import hidden, run, script
from tstatic import places

packfile, supervisor, ring = (script(name) for name in ("packfile", "supervisor", "ring"))

pytest.importorskip("triton")

KERNELS = '''
import numpy as np

from tstatic.devices import interpret
from tstatic.fusion import cache
from tstatic.fusion.codegen.kernel import Kernel, Launches
from tstatic.target import TINY

TEXT = """
import triton
import triton.language as tl


@triton.jit
def kernel(table, y, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n, other=0) * 2, mask=offsets < n)
"""


def launch(factor):
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    arrays = {"x": x, "y": y, "table:addresses": np.array([x.ctypes.data], np.int64)}
    calls = [("kernel", (1,), ("table:addresses", "y", 5), {"BLOCK": 16}, {"num_warps": 4})]
    for function, args in interpret.bind_launches(cache.load(TEXT, "doubles"), calls, arrays):
        x += 1  # what counts is what lies there at the launch
        function(*args)
    np.testing.assert_array_equal(y, factor * x)


def test_right():
    launch(2)


def test_wrong():
    launch(3)


def test_of_launches():
    made = Kernel("k", "", "t", (), (), (), lambda target: Launches((), {"large": target.large_programs}))
    assert made.plan(TINY).partials["large"] is False, "planned as for a GPU"
    assert made.plan(TINY).partials["large"], "for the interpreter"


def test_error():
    raise OSError("no assertion")
'''


def lines_of(folder: Path, what: str) -> list[dict[str, Any]]:
    return [line for line in packfile.Lines(folder, "tests", 0.0).read() if line["what"] == what]


@pytest.mark.slow
def test_tests_of_the_ring_pass_with_a_gpus_tiles_and_few_libraries(tmp_path: Path) -> None:
    names = ("tests/interpret/test_multi_tensor.py", "tests/interpret/test_pointwise.py")
    hide = hidden(tmp_path / "hide", "msgspec", "platformdirs", "pytest_timeout")
    run("gpu/ring.py", str(tmp_path), "--dry-run", *names, "-k", "sum_of_squares or test_op_def[tanh", **hide)
    [end], [facts] = lines_of(tmp_path, "end"), lines_of(tmp_path, "facts")
    assert (end["failed"], end["stopped"], lines_of(tmp_path, "error")) == (0, "", [])
    assert end["passed"] >= 8
    assert end["launched"] >= end["kernels"] > 8
    assert facts["triton"]
    tests = lines_of(tmp_path, "test")
    assert len(tests) == end["passed"] + end["skipped"]
    assert sum(test["launched"] for test in tests) == end["launched"]


@pytest.mark.slow
def test_wrong_kernels_fail_and_tests_that_launch_nothing_do_not_count(tmp_path: Path) -> None:
    tests = tmp_path / "test_kernels.py"
    tests.write_text(KERNELS)
    broken = tmp_path / "test_broken.py"
    broken.write_text("import no_such_library\n")
    run("gpu/ring.py", str(tmp_path), "--dry-run", str(broken), str(tests), code=1)
    [end] = lines_of(tmp_path, "end")
    assert (end["passed"], end["skipped"], end["launched"]) == (1, 1, 2)
    failed = [test for test in lines_of(tmp_path, "test") if test["outcome"] == "failed"]
    assert sorted(test["name"].rpartition("::")[2] for test in failed) == ["test_error", "test_wrong"]
    assert "no assertion" in next(t for t in failed if t["name"].endswith("test_error"))["why"]
    [error] = lines_of(tmp_path, "error")
    assert error["stage"] == "collect"
    assert "no_such_library" in error["error"]


@pytest.mark.slow
def test_the_time_limit_stops(tmp_path: Path) -> None:
    tests = tmp_path / "test_kernels.py"
    tests.write_text(KERNELS)
    run("gpu/ring.py", str(tmp_path), "--dry-run", "--limit", "0", str(tests), code=None)
    [end] = lines_of(tmp_path, "end")
    assert end["stopped"].startswith("the time was up before")
    assert end["launched"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hypothesis", "torch", "pytest"])
def test_a_library_without_which_nothing_runs_is_a_line(name: str, tmp_path: Path) -> None:
    run("gpu/ring.py", str(tmp_path), "--dry-run", code=2, **hidden(tmp_path / "hide", name))
    errors = lines_of(tmp_path, "error")
    assert any(f"No module named '{name}" in error["error"] for error in errors)
    assert lines_of(tmp_path, "end")[0]["passed"] == 0


@pytest.mark.slow
def test_programs_run_on_their_place_with_few_libraries(tmp_path: Path) -> None:
    hide = hidden(tmp_path / "hide", "msgspec", "platformdirs", "pytest_timeout")
    run(
        "gpu/ring.py",
        str(tmp_path),
        "--dry-run",
        "--programs",
        "-k",
        "a_net_trains or bad_label or samples_run",
        **hide,
    )
    lines = packfile.Lines(tmp_path, "programs", 0.0).read()
    [end] = [line for line in lines if line["what"] == "end"]
    assert (end["failed"], end["skipped"], end["stopped"]) == (0, 0, "")
    assert end["passed"] >= 4
    assert not [line for line in lines if line["what"] == "error"]


@pytest.mark.slow
def test_programs_do_not_run_on_what_stands_in_for_a_gpu_unasked(tmp_path: Path) -> None:
    if places.device_count():
        pytest.skip("there is a GPU")
    run("gpu/ring.py", str(tmp_path), "--programs", code=2)
    lines = packfile.Lines(tmp_path, "programs", 0.0).read()
    assert any("no CUDA device" in line["error"] for line in lines if line["what"] == "error")
    assert lines[-1]["passed"] == 0


@pytest.mark.slow
def test_tests_do_not_run_in_the_interpreter_unasked(tmp_path: Path) -> None:
    """Without ``--dry-run`` triton is not imported before it is told to compile; then there must be a GPU."""
    if places.device_count():
        pytest.skip("there is a GPU")
    run("gpu/ring.py", str(tmp_path), code=2)
    errors = lines_of(tmp_path, "error")
    assert [error for error in errors if "no CUDA device" in error["error"]] == errors
    assert len(errors) == 1
    assert lines_of(tmp_path, "end")[0]["passed"] == 0


# ------------------------------------------------------------------------------------------------- what ends a process
ENDS = """
import os, time

import device
import pytest


def innermost():
    os.abort()


def test_a_first():
    pass


def test_abort():
    innermost()


def test_hangs():
    time.sleep(100)


def test_loses():
    def gone(self):
        raise device.DeviceLostError("an illegal memory access was encountered")

    device.DryRun.wait = gone


def test_says_so():
    raise RuntimeError("CUDA error: an illegal memory access was encountered, and more\\nthan a line of it")


@pytest.mark.parametrize("n", range(6))
def test_last(n):
    pass
"""


@pytest.mark.slow
def test_tests_that_end_their_process_fail_and_the_others_run(tmp_path: Path) -> None:
    tests = tmp_path / "test_ends.py"
    tests.write_text(ENDS)
    (tmp_path / "test_first.py").write_text("def test_first():\n    pass\n")
    (tmp_path / "test_other.py").write_text("def test_first():\n    pass\n")
    done = run("gpu/ring.py", str(tmp_path), "--dry-run", "--workers", "2", "--patience", "4", str(tmp_path), code=1)
    lines = packfile.Lines(tmp_path, "tests", 0.0).read()
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if line["what"] == "test":
            found.setdefault(line["name"].rpartition("::")[2], []).append(line)
    begun = Counter(line["name"].rpartition("::")[2] for line in lines if line["what"] == "begin")
    assert begun == Counter(dict.fromkeys(found, 1)) + Counter(["test_first"]), "each test runs once"
    assert sum(name.startswith("test_last") for name in found) == 6
    errors = {name: rows[-1]["error"] for name, rows in found.items() if rows[-1]["outcome"] == "failed"}
    assert sorted(errors) == ["test_abort", "test_hangs", "test_loses", "test_says_so"]
    assert errors["test_abort"].startswith("SIGABRT ended the process: File ")
    assert errors["test_abort"].endswith("in innermost"), "the innermost frame"
    assert "in test_abort" in found["test_abort"][0]["why"]
    assert found["test_abort"][0]["why"].splitlines()[1] == "Fatal Python error: Aborted"
    assert errors["test_hangs"].startswith("it did not end within 4 s: File ")
    assert errors["test_hangs"].endswith("in test_hangs")
    assert [row["outcome"] for row in found["test_loses"]] == ["passed", "failed"]
    assert "illegal memory access" in errors["test_loses"]
    [end] = [line for line in lines if line["what"] == "end"]
    assert (end["passed"], end["failed"], end["stopped"]) == (10, 4, "")
    assert not [line for line in lines if line["what"] == "error"]
    assert "10 passed, 4 failed, 0 skipped" in done.stdout
    [told] = [line for line in done.stdout.splitlines() if "test_says_so: RuntimeError: CUDA error" in line]
    assert "and more than a line" in told


WORKER = """
import json, os, pathlib, sys, time
lines, number, folder = pathlib.Path(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])


def add(what, **content):
    with lines.open("a") as file:
        file.write(json.dumps({"what": what, "worker": number, **content}) + "\\n")


"""


def supervised(folder: Path, body: str, **settings: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Workers that run some text instead of tests."""
    (folder / "worker.py").write_text(WORKER + body)
    lines = packfile.Lines(folder, "tests", 0.0)
    lines.add("start")
    given = {"count": 1, "end": time.time() + 60, "patience": 60.0, "environment": {}, "say": lambda text: None}
    made = supervisor.Supervisor(
        lambda n: [sys.executable, str(folder / "worker.py"), str(lines.path), str(n), str(folder)],
        lines, supervisor.Claims(folder), **given | settings,
    )  # fmt: skip
    made.run()
    return made, lines.read()[1:]


DEATHS = {
    "os.kill(os.getpid(), 8)": "SIGFPE ended the process: File ",
    "os._exit(0)": "the process ended with code 0",
    "add('test', name='t', outcome='passed')\nos.kill(os.getpid(), 9)": "when it was over, SIGKILL ended the process",
    "time.sleep(100)": "it did not end within 1 s: File ",
}


@pytest.mark.parametrize("death", DEATHS, ids=lambda text: text.rpartition("\n")[2])
def test_what_ended_a_process_is_told_and_another_goes_on(death: str, tmp_path: Path) -> None:
    body = "import faulthandler\nfaulthandler.enable()\nif number:\n    add('begin', name='u')\n"
    body += (
        "    add('test', name='u', outcome='passed')\n    (folder / f'finished-{number}').touch()\n    sys.exit(0)\n"
    )
    body += f"add('begin', name='t')\n{death}\n"
    made, lines = supervised(tmp_path, body, patience=1.0)
    failed = [line for line in lines if line.get("outcome") == "failed"]
    assert [line["name"] for line in failed] == ["t"]
    assert failed[0]["error"].startswith(DEATHS[death])
    assert [line["name"] for line in lines if line["what"] == "begin"] == ["t", "u"]
    assert (made.started, made.codes) == (2, [0])


def test_a_process_that_dies_before_its_first_test_is_not_begun_anew(tmp_path: Path) -> None:
    made, [line] = supervised(tmp_path, "sys.exit('no library, no tests')", count=2)
    assert (line["what"], line["stage"], made.started) == ("error", "worker", 2)
    assert "the process ended with code 1" in line["error"]
    assert "no library, no tests" in line["error"]


def test_a_test_that_runs_on_when_the_time_is_up_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "GRACE_S", 0.2)
    made, lines = supervised(tmp_path, "add('begin', name='long')\ntime.sleep(100)", end=time.time() + 1.0)
    assert [(line["what"], line.get("why")) for line in lines] == [
        ("begin", None),
        ("stopped", "the time was up in long"),
    ]
    assert made.started == 1


def test_half_a_line_is_read_when_it_is_whole_and_rubbish_is_left_out(tmp_path: Path) -> None:
    body = """
if number:
    (folder / f"finished-{number}").touch()
    sys.exit(0)
with lines.open("a") as file:
    file.write('rubbish\\n{"what": "begin", "name": "t", ')
    file.flush()
    time.sleep(0.3)
    file.write('"worker": 0}\\n')
os._exit(3)
"""
    made, lines = supervised(tmp_path, body)
    assert [(line["what"], line["name"]) for line in lines] == [("begin", "t"), ("test", "t")]
    assert lines[-1]["error"] == "the process ended with code 3"
    assert (made.started, made.codes) == (2, [0])


def test_the_thread_that_failed_comes_first() -> None:
    said = "said\nFatal Python error: Bus error\n\nThread 0x1 (most recent call first):\n" + "  File x\n" * 500
    said += "\nCurrent thread 0x2 (most recent call first):\n  File here\n"
    assert supervisor.fatal(said).splitlines()[:3] == [
        "Fatal Python error: Bus error", "Current thread 0x2 (most recent call first):", "  File here"
    ]  # fmt: skip
    assert supervisor.fatal("plain words\n") == "plain words"


def test_the_summary_is_short() -> None:
    tests = [{"outcome": "failed", "name": f"tests/{'x' * 200}[{n}]", "error": "E" * 300} for n in range(70)]
    told = ring.summary([*tests, {"outcome": "passed", "name": "y"}], [], "the time was up before z")
    assert (len(told), told[60], told[61]) == (62, "and 10 more", "the time was up before z")
    assert {len(text) for text in told[:60]} == {160}
    assert told[7].startswith("...x")
    assert "x[7]: EEE" in told[7]
