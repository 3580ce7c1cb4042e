"""Kernels written by hand, some good and some bad on purpose, for the tests of what looks at kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tests.kernels.limits import Kind
from tstatic.chips.aot import Source

HEAD = "import triton\nimport triton.language as tl\n"

ADD_RELU = (
    HEAD
    + """
@triton.jit
def add_relu(x, y, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    a = tl.load(x + i, mask=m).to(tl.float32) + tl.load(y + i, mask=m).to(tl.float32)
    tl.store(o + i, tl.maximum(a, 0.0).to(o.dtype.element_ty), mask=m)
"""
)

ROW_SOFTMAX = (
    HEAD
    + """
@triton.jit
def row_softmax(x, o, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    c = tl.arange(0, BLOCK)
    m = c < columns
    v = tl.load(x + row + c, mask=m, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row + c, e / tl.sum(e, 0), mask=m)
"""
)

SINE = (
    HEAD
    + """
@triton.jit
def sine(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(o + i, tl.sin(tl.load(x + i, mask=m)), mask=m)
"""
)

SCALED = (
    HEAD
    + """
@triton.jit
def scaled(x, s, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m) * tl.load(s), mask=m)
"""
)

PRODUCT_SUM = (
    HEAD
    + """
@triton.jit
def product_sum(x, y, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    a = tl.load(x + i, mask=m)
    tl.store(o + i, a * tl.load(y + i, mask=m) + a, mask=m)
"""
)

DOT = (
    HEAD
    + """
@triton.jit
def dot(a, b, o, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        a_MK = tl.load(a + i[:, None] * K + k + i[None, :])
        b_KN = tl.load(b + (k + i[:, None]) * BLOCK + i[None, :])
        acc += tl.dot(a_MK, b_KN)
    tl.store(o + i[:, None] * BLOCK + i[None, :], acc)
"""
)

TRAP = (
    HEAD
    + """
@triton.jit
def trap(o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.inline_asm_elementwise("trap; mov.u32 $0, $1;", "=r,r", [i], dtype=tl.int32, is_pure=False, pack=1)
"""
)

# An operation on shapes that do not fit: the front end refuses it.
BROKEN = (
    HEAD
    + """
@triton.jit
def broken(o, BLOCK: tl.constexpr):
    tl.store(o + tl.arange(0, BLOCK), tl.arange(0, 2 * BLOCK))
"""
)

ABORTING = "import os, sys\nprint('about to abort', file=sys.stderr, flush=True)\nos.abort()\n"

HANGING = "while True:\n    pass\n"


def add_relu(kind: str = "*fp32", out: str | None = None, *, aligned: bool = True, block: int = 1024) -> Source:
    """relu(x + y) over a length that the compiler knows to be padded, or does not."""
    pointers = ("x", "y", "o")
    return Source(
        ADD_RELU,
        "add_relu",
        {"x": kind, "y": kind, "o": out or kind, "n": "i32"},
        {"BLOCK": block},
        divisible=(*pointers, "n") if aligned else pointers,
    )


def row_softmax(block: int = 4096, num_warps: int = 4) -> Source:
    """Softmax of a row that one program holds in its registers."""
    signature = {"x": "*fp32", "o": "*fp32", "columns": "i32"}
    return Source(ROW_SOFTMAX, "row_softmax", signature, {"BLOCK": block}, tuple(signature), num_warps)


def spilling() -> Source:
    """The same with 256 values per thread, which 255 registers cannot hold."""
    return row_softmax(8192, num_warps=1)


def sine() -> Source:
    """A function that keeps a local array for large arguments, and spills nothing."""
    signature = {"x": "*fp32", "o": "*fp32", "n": "i32"}
    return Source(SINE, "sine", signature, {"BLOCK": 512}, tuple(signature))


def scaled(*, small: bool = True) -> Source:
    """A stream times a scalar in memory."""
    signature = {"x": "*fp32", "s": "*fp32", "o": "*fp32", "n": "i32"}
    return Source(SCALED, "scaled", signature, {"BLOCK": 512}, tuple(signature), small=("s",) if small else ())


def product_sum(*, contract: bool) -> Source:
    """x * y + x, with one rounding or two."""
    pointers = ("x", "y", "o")
    signature = {**dict.fromkeys(pointers, "*fp32"), "n": "i32"}
    return Source(PRODUCT_SUM, "product_sum", signature, {"BLOCK": 512}, (*pointers, "n"), contract=contract)


def dot(kind: str = "*bf16") -> Source:
    """One tile of a matrix product."""
    return Source(DOT, "dot", {"a": kind, "b": kind, "o": "*fp32", "K": "i32"}, {"BLOCK": 64}, ("a", "b", "o", "K"))


def plain(text: str, function: str) -> Source:
    """A kernel with one pointer and a block."""
    return Source(text, function, {"o": "*i32"}, {"BLOCK": 128}, ("o",))


def narrowed(source: Source) -> Source:
    """The same kernel without what is known about its length."""
    return dataclasses.replace(source, divisible=tuple(n for n in source.divisible if source.signature[n][0] == "*"))


def kernels() -> Iterator[tuple[str, Kind, Source]]:
    """The good ones, as a registry of kernels gives them: (name, kind, source)."""
    yield "add_relu_fp32", "pointwise", add_relu()
    yield "add_relu_bf16", "pointwise", add_relu("*bf16")
    yield "add_relu_bf16_to_fp32", "pointwise", add_relu("*bf16", "*fp32", block=512)
    yield "sine", "pointwise", sine()
    yield "scaled", "pointwise", scaled()
    yield "row_softmax", "reduction", row_softmax()
