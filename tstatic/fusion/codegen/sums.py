"""Sums over strips of rows: what the first step's text shares, and the second, which adds partial sums in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tstatic.fusion.codegen.kernel import KernelLocal, KernelParameter, Launch, Launches, power_of_two
from tstatic.fusion.codegen.lines import LANGUAGE, TYPES, Typed, nested
from tstatic.fusion.codegen.loop_nest import CodegenUnsupported, Operand
from tstatic.target import Target

_ONE = """@triton.jit
def finish(p, y, strips, kept, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    # A tile of strips at once: their loads do not wait for each other.
    sums = tl.zeros((ROWS, COLUMNS), p.dtype.element_ty)
    for start in range(0, strips, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        sums += tl.load(p + rows * kept + columns, mask=(rows < strips) & (columns < kept), other=0)
    total = tl.sum(sums, 0)
    if y.dtype.element_ty == tl.bfloat16:
        tl.store(y + columns, to_bf16(total), mask=columns < kept)
    else:
        tl.store(y + columns, total.to(y.dtype.element_ty), mask=columns < kept)"""

_TWO = """@triton.jit
def finish_two(p, y, q, z, strips, kept, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    finish(p, y, strips, kept, ROWS, COLUMNS)
    finish(q, z, strips, kept, ROWS, COLUMNS)"""

STRIP = (
    KernelParameter("strip", "integer", "i32"),
    KernelParameter("ROWS", "constant"),
    KernelParameter("COLUMNS", "constant"),
)
"""Parameters, behind its pointers, of a function whose programs each go over a strip of rows, tile by tile."""

_TILE = 4096
"""Elements of a tile: 32 loads a thread."""
_WIDEST = 1 << 16
"""Columns of a tile in the interpreter."""


def over_strip(axis: int, offset_type: str, lines: Sequence[str]) -> list[str]:
    """Returns the loop over the tiles of a program's strip; in it ``inside`` is a row's place in the strip.

    Args:
        axis: The grid's axis along which the strips lie.
        offset_type: Triton's type of ``rows``.
        lines: What is done with a tile.
    """
    rows = f"rows = (tl.program_id({axis}).to({offset_type}) * strip + inside)[:, None]"
    return nested("for start in range(0, strip, ROWS):", ["inside = start + tl.arange(0, ROWS)", rows, *lines])


def running(operand: Operand, value: Typed, tile: str) -> tuple[str, str]:
    """Returns the name of an output's running sum, and the line that clears it.

    Args:
        operand: The output.
        value: What is summed.
        tile: The sum's shape, as text.

    Raises:
        CodegenUnsupported: If it is not a float.
    """
    if not value.dtype.is_float:
        raise CodegenUnsupported("SUM_TYPE", "a group sums floats only")
    # By the operand's name, which is a counter: several outputs are summed beside each other.
    name = f"sum_{operand.name}"
    return name, f"{name} = tl.zeros({tile}, {LANGUAGE[value.dtype.name]})"


def text(outputs: int) -> str:
    """Returns the functions that finish so many outputs; they need ``to_bf16`` of the prelude."""
    return _ONE if outputs == 1 else f"{_ONE}\n\n\n{_TWO}"


def finished(main: Launch, summed: Sequence[Operand], strips: int, kept: int, target: Target) -> Launches:
    """Returns a launch that makes partial sums, and those that add them, two outputs at a time.

    Args:
        main: Writes ``[strips, kept]`` partial sums of each output.
        summed: The outputs.
        strips, kept: Sizes.
        target: The chip.
    """
    # 32 numbers beside each other are as much as a warp fetches at once.
    columns = power_of_two(-(-kept // 2), 1, _WIDEST) if target.large_programs else power_of_two(kept, 1, 32)
    constants = {"ROWS": power_of_two(strips, 1, max(1, _TILE // columns)), "COLUMNS": columns}
    # Two outputs share a launch, as most layers have a scale and a bias: a launch costs more than the sums in it.
    launches = [main]
    for first in range(0, len(summed), 2):
        pair = summed[first : first + 2]
        values = tuple(name for o in pair for name in (partial(o), o.value))
        types = tuple(f"*{TYPES[t.name]}" for o in pair for t in (o.dtype.compute, o.dtype))
        launches.append(
            Launch(
                ("finish", "finish_two")[len(pair) - 1],
                (math.ceil(kept / columns),),
                (*values, strips, kept),
                constants,
                types=(*types, "i32", "i32"),
            )
        )
    return Launches(tuple(launches), {partial(o): (strips * kept, o.dtype.compute) for o in summed})


def partial(operand: Operand) -> KernelLocal:
    """Returns the buffer of an output's partial sums."""
    return KernelLocal(f"partial:{operand.name}")
