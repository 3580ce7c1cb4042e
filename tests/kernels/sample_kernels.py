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

GEMM = (
    HEAD
    + """
@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))


@triton.jit
def tail(acc, bias, pre, out, top, left, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r = top + tl.arange(0, ROWS)
    c = left + tl.arange(0, COLUMNS)
    m = (r < M)[:, None] & (c < N)[None, :]
    at = r[:, None].to(tl.int64) * N + c[None, :]
    z = acc + tl.load(bias + c, mask=c < N, other=0.0).to(tl.float32)[None, :]
    tl.store(pre + at, z.to(pre.dtype.element_ty), mask=m)
    tl.store(out + at, gelu(z).to(out.dtype.element_ty), mask=m)


@triton.jit
def gemm(
    a, b, bias, pre, out, M, N, K,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, HOW: tl.constexpr,
):
    wide = tl.cdiv(N, COLUMNS)
    top = tl.program_id(0) // wide * ROWS
    left = tl.program_id(0) % wide * COLUMNS
    r = top + tl.arange(0, ROWS)
    c = left + tl.arange(0, COLUMNS)
    d = tl.arange(0, DEPTH)
    acc = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for k in range(0, K, DEPTH):
        m = k + d < K
        x = tl.load(a + r[:, None].to(tl.int64) * K + (k + d)[None, :], mask=(r < M)[:, None] & m[None, :], other=0.0)
        y = tl.load(b + (k + d)[:, None].to(tl.int64) * N + c[None, :], mask=m[:, None] & (c < N)[None, :], other=0.0)
        if HOW == "upcast":
            acc = tl.dot(x.to(tl.float32), y.to(tl.float32), acc)
        elif HOW == "ieee":
            acc = tl.dot(x, y, acc, input_precision="ieee")
        elif HOW == "scaled":
            acc += tl.dot(x, y) * 0.5
        else:
            acc = tl.dot(x, y, acc)
    tail(acc, bias, pre, out, top, left, M, N, ROWS, COLUMNS)


@triton.jit
def boxes(
    a, b, bias, pre, out, M, N, K,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):
    left_box = tl.make_tensor_descriptor(a, [M, K], [K, 1], [ROWS, DEPTH])
    right_box = tl.make_tensor_descriptor(b, [K, N], [N, 1], [DEPTH, COLUMNS])
    wide = tl.cdiv(N, COLUMNS)
    top = tl.program_id(0) // wide * ROWS
    left = tl.program_id(0) % wide * COLUMNS
    acc = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for k in range(0, K, DEPTH):
        acc = tl.dot(left_box.load([top, k]), right_box.load([k, left]), acc)
    tail(acc, bias, pre, out, top, left, M, N, ROWS, COLUMNS)


@triton.jit
def host_boxes(left_box, right_box, out, M, N, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    wide = tl.cdiv(N, COLUMNS)
    top = tl.program_id(0) // wide * ROWS
    left = tl.program_id(0) % wide * COLUMNS
    acc = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for k in tl.range(0, K, DEPTH, warp_specialize=True):
        acc = tl.dot(left_box.load([top, k]), right_box.load([k, left]), acc)
    r = top + tl.arange(0, ROWS)
    c = left + tl.arange(0, COLUMNS)
    at = r[:, None].to(tl.int64) * N + c[None, :]
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=(r < M)[:, None] & (c < N)[None, :])
"""
)

WIDE = (
    HEAD
    + """
@triton.jit
def wide(a, b, out, N, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    r = tl.arange(0, ROWS)
    c = tl.arange(0, COLUMNS)
    d = tl.arange(0, DEPTH)
    first = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    second = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    third = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for k in range(0, K, DEPTH):
        x = tl.load(a + r[:, None] * K + (k + d)[None, :])
        at = b + (k + d)[:, None] * N + c[None, :]
        first = tl.dot(x, tl.load(at), first)
        second = tl.dot(x, tl.load(at + COLUMNS), second)
        third = tl.dot(x, tl.load(at + 2 * COLUMNS), third)
    at = out + r[:, None] * N + c[None, :]
    tl.store(at, first.to(out.dtype.element_ty))
    tl.store(at + COLUMNS, second.to(out.dtype.element_ty))
    tl.store(at + 2 * COLUMNS, third.to(out.dtype.element_ty))
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

# As on a machine that other work keeps busy.
SLOW = "import time\ntime.sleep(2.5)\n" + ADD_RELU

SLEEPING = "import time\ntime.sleep(600)\n"


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


def gemm(
    kind: str = "*bf16",
    how: str = "",
    tile: tuple[int, int, int] = (128, 128, 64),
    num_warps: int = 8,
    num_stages: int = 3,
    *,
    aligned: bool = True,
) -> Source:
    """A product with a bias and gelu behind it, whose pre-activation is saved; its operands lie behind pointers."""
    pointers = ("a", "b", "bias", "pre", "out")
    signature = {**dict.fromkeys(pointers, kind), **dict.fromkeys(("M", "N", "K"), "i32")}
    constants = dict(zip(("ROWS", "COLUMNS", "DEPTH"), tile, strict=True))
    divisible = tuple(signature) if aligned else pointers
    return Source(GEMM, "gemm", signature, {**constants, "HOW": how}, divisible, num_warps, num_stages)


def boxes(scratch: int = 256) -> Source:
    """The same with descriptors that the kernel makes itself."""
    source = gemm()
    constants = {"ROWS": 128, "COLUMNS": 128, "DEPTH": 64}
    return dataclasses.replace(source, function="boxes", constants=constants, scratch=scratch)


def host_boxes() -> Source:
    """Descriptors that the host makes for tiles of 128 rows, of which each of two groups of warps takes half."""
    signature = {
        "left_box": "tensordesc<bf16[128,64]>",
        "right_box": "tensordesc<bf16[64,128]>",
        "out": "*bf16",
        **dict.fromkeys(("M", "N", "K"), "i32"),
    }
    constants = {"ROWS": 128, "COLUMNS": 128, "DEPTH": 64}
    return Source(GEMM, "host_boxes", signature, constants, ("out", "M", "N", "K"))


def wide() -> Source:
    """Three products of 256 columns at a time, for which a chip's tensor memory has no room: all that is left of it is a trap."""
    signature = {**dict.fromkeys(("a", "b", "out"), "*bf16"), "N": "i32", "K": "i32"}
    constants = {"ROWS": 128, "COLUMNS": 256, "DEPTH": 32}
    return Source(WIDE, "wide", signature, constants, tuple(signature), 8, 2)


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
