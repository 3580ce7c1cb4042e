"""The interpreter's tests as a GPU would run them, with a device that stays in the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bench.scripts import hidden, run, script
from tstatic import places

packfile = script("packfile")

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
    for function, args in interpret.bind(cache.load(TEXT, "doubles"), calls, arrays):
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
