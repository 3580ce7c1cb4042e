"""Kernels of a user's own, as a user's file holds them; run by the numpy and the interpreter ring.

Importing this file imports Triton: only tests that need it do so, inside.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

import tstatic as paddle

SHIFT = tl.constexpr(1.0)


@triton.jit
def squared(a):
    """A function that a kernel calls."""
    return a * a


def blocks(x: Any, *rest: Any) -> tuple[Any, dict[str, int]]:
    return -(-x.numel // 64), {"n": x.numel, "BLOCK": 64}


@paddle.register_kernel(
    "test_squares", "X, Y -> Out", reference=lambda x, y, slope: x * x * slope + y + 1.0, launch=blocks,
    attrs={"slope": 0.5}, grad={"X@GRAD": "dout * 2 * x * slope", "Y@GRAD": "dout"},
)  # fmt: skip
@triton.jit
def squares(x, y, out, n, slope, BLOCK: tl.constexpr):
    """slope * x**2 + y + 1."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    a = tl.load(x + at, mask=mask).to(tl.float32)
    # Rounded once, to what the output holds.
    tl.store(out + at, squared(a) * slope + tl.load(y + at, mask=mask).to(tl.float32) + SHIFT, mask=mask)


def per_row(x: Any, *rest: Any) -> tuple[Any, dict[str, int]]:
    return (x.shape[0],), {"columns": x.shape[1], "BLOCK": 16, "num_warps": 1}


def row_statistics(x: Any) -> Any:
    """Sum and largest value of each row."""
    return np.sum(x, axis=1), np.max(x, axis=1)


@paddle.register_kernel(
    "test_rows", "X -> Total, Most", reference=row_statistics, launch=per_row,
    infer=lambda x: (x.shape[:1], x.shape[:1]),
    grad=lambda x, total, most, dtotal, dmost: dtotal[:, None] + dmost[:, None] * (x == most[:, None]),
)  # fmt: skip
@triton.jit
def rows(x, total, most, columns, BLOCK: tl.constexpr):
    """Sum and largest value of each row."""
    at = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=float("-inf"))
    tl.store(total + tl.program_id(0), tl.sum(tl.where(at < columns, v, 0.0), 0))
    tl.store(most + tl.program_id(0), tl.max(v, 0))


@paddle.register_kernel(
    "test_cube_back", "X, Out@GRAD -> X@GRAD", reference=lambda x, dout: 3 * x * x * dout, launch=blocks
)  # fmt: skip
@triton.jit
def cube_back(x, dout, dx, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    tl.store(dx + at, 3 * squared(a) * tl.load(dout + at, mask=at < n), mask=at < n)


@paddle.register_kernel("test_cube", "X -> Out", reference=lambda x: x**3, launch=blocks, grad=cube_back)
@triton.jit
def cube(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    tl.store(out + at, squared(a) * a, mask=at < n)


def wrong_reference(x: Any) -> Any:
    """Not what the kernel computes."""
    return x + 2.0


@paddle.register_kernel("test_wrong", "X -> Out", reference=wrong_reference, launch=blocks)
@triton.jit
def wrong(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1.0, mask=at < n)
