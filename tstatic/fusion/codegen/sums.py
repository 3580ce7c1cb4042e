"""The second step of a sum over strips: partial results are added in the strips' order, whoever finished first."""

from __future__ import annotations

from tstatic.fusion.codegen.kernel import Launch, power_of_two
from tstatic.fusion.codegen.lines import TYPES
from tstatic.ir.types import DType

NAME = "finish"

TEXT = """@triton.jit
def finish(p, y, strips, kept, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.load(p + columns, mask=columns < kept, other=0)
    for s in range(1, strips):
        total += tl.load(p + s * kept + columns, mask=columns < kept, other=0)
    if y.dtype.element_ty == tl.bfloat16:
        tl.store(y + columns, to_bf16(total), mask=columns < kept)
    else:
        tl.store(y + columns, total.to(y.dtype.element_ty), mask=columns < kept)"""
"""Needs ``to_bf16`` of the prelude."""


def finish(partial: str, output: str, dtype: DType, strips: int, kept: int, few: bool) -> Launch:
    """The launch that adds the partial sums of one output.

    Args:
        partial: Name of the buffer, ``[strips, kept]``.
        output: Value that is written.
        dtype: Its type.
        strips, kept: Sizes of the buffer.
        few: Few large programs, for the interpreter.
    """
    block = power_of_two(kept, 16, 1 << 12 if few else 256)
    types = (f"*{TYPES[dtype.compute.name]}", f"*{TYPES[dtype.name]}", "i32", "i32")
    return Launch(NAME, (-(-kept // block),), (partial, output, strips, kept), {"COLUMNS": block}, types=types)
