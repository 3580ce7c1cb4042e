"""Triton's interpreter gives the same bits, and refuses the same, with and without helpers/quick_interpreter.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.helpers import child
from tests.helpers.patience import HANG

KERNELS = """
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def whole(x, out, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    a = tl.load(x + at)
    b = a.to(tl.uint32)
    c = a.to(tl.int64)
    tl.store(out + at, a + 3)
    tl.store(out + COUNT + at, (b ^ 0xBD11BDAA).to(tl.int64))
    tl.store(out + 2 * COUNT + at, (b * 0xCD9E8D57 >> 7).to(tl.int64))
    tl.store(out + 3 * COUNT + at, c - 4294967295)
    tl.store(out + 4 * COUNT + at, -5 - c)
    tl.store(out + 5 * COUNT + at, c // 3 + c % 3)
    tl.store(out + 6 * COUNT + at, (a & 6) | (a.to(tl.int8) << 1))
    tl.store(out + 7 * COUNT + at, tl.where(2 < a, a, -a) + tl.sum(a, 0) - tl.program_id(0))


@triton.jit
def floats(x, out, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    a = tl.load(x + at)
    half = (a * 3).to(tl.bfloat16)
    square = a[:, None] * a[None, :] + tl.max(a, 0)
    tl.store(out + at, a / 3)
    tl.store(out + COUNT + at, 1.0 - a * 1e-45)
    tl.store(out + 2 * COUNT + at, half.to(tl.float32) * 2)
    tl.store(out + 3 * COUNT + at, tl.sum(square, 1) - tl.full([COUNT], 0.5, tl.float64).to(tl.float32))
    tl.store(out + 4 * COUNT + at, tl.where((a > 1) & (a < 4.5), a, float("inf")))
    low, high = a.to(tl.float16), tl.sqrt(a)
    tl.store(out + 5 * COUNT + at, low * high)


@triton.jit
def negative(x, out, COUNT: tl.constexpr):
    tl.store(out, tl.load(x).to(tl.uint32) + -1)


@triton.jit
def shapes(x, out, COUNT: tl.constexpr):
    tl.store(out + tl.arange(0, COUNT), tl.arange(0, COUNT) + tl.arange(0, 2 * COUNT))


@triton.jit
def power(x, out, COUNT: tl.constexpr):
    tl.store(out + tl.arange(0, 6), 1)


if sys.argv[1] == "quick":
    from tests.helpers.quick_interpreter import interpret_quickly

    interpret_quickly()
for kernel, dtype, out in (
    (whole, torch.int32, torch.int64), (floats, torch.float32, torch.float32), (negative, torch.int32, torch.int64),
    (shapes, torch.int32, torch.int64), (power, torch.int32, torch.int64),
):
    made = torch.zeros(64, dtype=out)
    for _ in range(2):
        try:
            kernel[(2,)](torch.arange(8).to(dtype) - 2 * (dtype != torch.float32), made, COUNT=8)
        except Exception as error:
            print(kernel.__name__, type(error).__name__, error, error.__cause__)
    print(kernel.__name__, made.numpy().tobytes().hex())
"""


def said(folder: Path, how: str) -> list[str]:
    path = folder / "kernels.py"
    path.write_text(KERNELS)
    done = subprocess.run(
        [sys.executable, str(path), how],
        env=child.environment(TRITON_INTERPRET="1"),
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_bits_and_errors_are_those_of_the_interpreter_as_it_is(tmp_path: Path) -> None:
    plain, quick = said(tmp_path, "plain"), said(tmp_path, "quick")
    assert quick == plain
    assert [line.split()[0] for line in plain] == [
        "whole", "floats", *(name for name in ("negative", "shapes", "power") for _ in range(3))
    ]  # fmt: skip
