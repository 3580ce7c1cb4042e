"""A user's registered kernel as a peer of the benchmark: it runs in place of a row's operators, and a wrong one has no time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.benchlib.fakes import FakeTimer
from tstatic.benchlib.measure import Setting
from tstatic.benchlib.own import register_own
from tstatic.benchlib.peers import PEERS
from tstatic.benchlib.suite import Selection, Suite, chosen_rows
from tstatic.devices import cpu_device

SIZES = """
[[program]]
name = "clipped"
inputs = { x = [6, 20], y = [6, 20] }
steps = ["s = elementwise_add(X=x, Y=y)", "z = relu(X=s)"]
"""
KERNELS = """
import numpy as np
import triton
import triton.language as tl

import tstatic as paddle


def launch(x, y, out, BLOCK=64):
    return -(-x.numel // BLOCK), {"n": x.numel, "BLOCK": BLOCK}


def reference(x, y):
    return np.maximum(x + y, 0)


@paddle.register_kernel("test_peer_clipped", "X, Y -> Out", reference=reference, launch=launch,
                        grad={"X@GRAD": "dout * (out > 0)", "Y@GRAD": "dout * (out > 0)"})
@triton.jit
def clipped(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(out + at, tl.maximum(total, 0.0), mask=at < n)


@paddle.register_kernel("test_peer_wrong", "X, Y -> Out", reference=reference, launch=launch)
@triton.jit
def wrong(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@paddle.register_kernel("test_peer_one_input", "X -> Out", reference=lambda x: x, launch=lambda x, out: (1, {"n": x.numel}))
@triton.jit
def one_input(x, out, n):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = dict(PEERS)
    (tmp_path / "sizes.toml").write_text(SIZES)
    (tmp_path / "mine.py").write_text(KERNELS)
    yield tmp_path
    PEERS.clear()
    PEERS.update(before)


def test_a_registered_kernel_stands_beside_the_rows_own(folder: Path) -> None:
    names = [register_own(f"{folder / 'mine.py'}:{n}", cpu_device()).name for n in ("clipped", "wrong", "one_input")]
    rows = list(chosen_rows(Selection(shapes=folder / "sizes.toml")))
    timer: Any = FakeTimer(calls=False)
    record = Suite(timer, ["tstatic", *names], Setting(repeats=11, seconds=1e-9)).run(rows)
    right, wrong, other = ([row["peers"][name] for row in record["rows"]] for name in names)
    assert [one["state"] for one in right] == ["ok", "ok", "ok"], right
    assert [one["state"] for one in wrong] == ["wrong", "missing", "missing"], wrong
    assert [one["state"] for one in other] == ["error", "missing", "missing"], other
    assert "slots for x, y, in this order" in other[0]["detail"]
    assert not any("seconds" in one for one in (*wrong, *other))
    (kernel,) = right[0]["kernels"]
    assert (kernel["kernel"], kernel["function"], kernel["blocks"]) == ("user_kernel", "clipped", {"BLOCK": 64})
