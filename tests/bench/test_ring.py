"""The interpreter's tests as a GPU would run them, with a device that stays in the interpreter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.scripts import run

pytest.importorskip("triton")

KERNELS = '''
import numpy as np

from tstatic.devices import interpret
from tstatic.fusion import cache
from tstatic.fusion.codegen.kernel import Calls, Kernel

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
    made = Kernel("k", "", "t", (), (), (), lambda few: Calls((), {"few": few}))
    assert made.plan(True).partials["few"] is False, "planned as for a GPU"
    assert made.plan(True).partials["few"], "for the interpreter"


def test_error():
    raise OSError("no assertion")
'''


def test_tests_of_the_ring_pass_with_a_gpus_tiles(tmp_path: Path) -> None:
    path = tmp_path / "ring.json"
    names = ("tests/interpret/test_multi_tensor.py", "tests/interpret/test_pointwise.py")
    run("gpu/ring.py", "--fake", "--output-json", str(path), *names, "-k", "sum_of_squares or test_card[tanh")
    found = json.loads(path.read_text())
    assert found["failed"] == {}
    assert found["stopped"] == ""
    assert found["passed"] >= 8
    assert found["launched"] >= found["kernels"] > 8
    assert found["facts"]["triton"]


def test_wrong_kernels_fail_and_tests_that_launch_nothing_do_not_count(tmp_path: Path) -> None:
    path, tests = tmp_path / "ring.json", tmp_path / "test_kernels.py"
    tests.write_text(KERNELS)
    run("gpu/ring.py", "--fake", "--output-json", str(path), str(tests), code=1)
    found = json.loads(path.read_text())
    assert (found["passed"], found["skipped"], found["launched"]) == (1, 1, 2)
    assert sorted(name.rpartition("::")[2] for name in found["failed"]) == ["test_error", "test_wrong"]


def test_the_time_limit_stops(tmp_path: Path) -> None:
    path, tests = tmp_path / "ring.json", tmp_path / "test_kernels.py"
    tests.write_text(KERNELS)
    run("gpu/ring.py", "--fake", "--limit", "0", "--output-json", str(path), str(tests), code=None)
    found = json.loads(path.read_text())
    assert found["stopped"].startswith("the time was up before")
    assert found["launched"] == 0
