"""Sums over strips of rows: what the first step's text shares, and the second, which adds partial sums in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from tstatic.fusion.codegen.kernel import KernelLocal, KernelParameter, Launch, Launches, power_of_two
from tstatic.fusion.codegen.loops.lines import LANGUAGE, TYPES, Typed, nested
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported, Operand
from tstatic.target import Target

_T = TypeVar("_T")

ADD = (
    "# A tile of strips at once: their loads do not wait for each other.",
    "sums = tl.zeros((ROWS, COLUMNS), p.dtype.element_ty)",
    "for start in range(0, strips, ROWS):",
    "    rows = start + tl.arange(0, ROWS)[:, None]",
    "    sums += tl.load(p + rows * kept + columns, mask=(rows < strips) & (columns < kept), other=0)",
    "total = tl.sum(sums, 0)",
    "if y.dtype.element_ty == tl.bfloat16:",
    "    tl.store(y + columns, to_bf16(total), mask=columns < kept)",
    "else:",
    "    tl.store(y + columns, total.to(y.dtype.element_ty), mask=columns < kept)",
)
"""Lines that add the partial sums at ``p`` of some columns and write them to ``y``; they need ``to_bf16`` of the prelude."""

_NAMES = ("finish", "finish_two", "finish_three", "finish_four")
"""Functions that finish so many outputs at once."""

_LETTERS = (("p", "y"), ("q", "z"), ("r", "u"), ("s", "v"))
"""Their parameters: partial sums and output, for each."""

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


def _function(outputs: int) -> str:
    """Returns the function that finishes so many outputs by calls of the one for a single output."""
    if outputs == 1:
        head = "def finish(p, y, strips, kept, ROWS: tl.constexpr, COLUMNS: tl.constexpr):"
        columns = "columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)"
        return "\n".join(["@triton.jit", *nested(head, [columns, *ADD])])
    letters = _LETTERS[:outputs]
    names = ", ".join(name for pair in letters for name in pair)
    head = f"def {_NAMES[outputs - 1]}({names}, strips, kept, ROWS: tl.constexpr, COLUMNS: tl.constexpr):"
    calls = [f"finish({p}, {y}, strips, kept, ROWS, COLUMNS)" for p, y in letters]
    return "\n".join(["@triton.jit", *nested(head, calls)])


def text(*outputs: int) -> str:
    """Returns the functions that finish so many outputs, one number per kernel; they need ``to_bf16`` of the prelude."""
    counts = {len(part) for n in outputs for part in _together(range(n))}
    return "\n\n\n".join(_function(n) for n in sorted({1, *counts}))


def _together(outputs: Sequence[_T]) -> list[Sequence[_T]]:
    """Returns the outputs that share a launch."""
    most = len(_NAMES)
    return [outputs[first : first + most] for first in range(0, len(outputs), most)]


def finished(main: Launch, summed: Sequence[Operand], strips: int, kept: int, target: Target) -> Launches:
    """Returns a launch that makes partial sums, and those that add them, up to four outputs at a time.

    Args:
        main: Writes ``[strips, kept]`` partial sums of each output.
        summed: The outputs.
        strips, kept: Sizes.
        target: The chip.
    """
    # 32 numbers beside each other are as much as a warp fetches at once.
    columns = power_of_two(-(-kept // 2), 1, _WIDEST) if target.large_programs else power_of_two(kept, 1, 32)
    constants = {"ROWS": power_of_two(strips, 1, max(1, _TILE // columns)), "COLUMNS": columns}
    # Outputs share a launch, as most layers have a scale and a bias, and the layer before has a bias whose gradient is a sum
    # of the same rows: a launch costs more than the sums in it.
    launches = [main]
    for some in _together(summed):
        values = tuple(name for o in some for name in (partial(o), o.value))
        types = tuple(f"*{TYPES[t.name]}" for o in some for t in (o.dtype.compute, o.dtype))
        grid = (math.ceil(kept / columns),)
        arguments: tuple[str | int, ...] = (*values, strips, kept)
        launches.append(
            Launch(_NAMES[len(some) - 1], grid, arguments, constants, types=(*types, "i32", "i32"), finishes=True)
        )
    return Launches(tuple(launches), {partial(o): (strips * kept, o.dtype.compute) for o in summed})


def partial(operand: Operand) -> KernelLocal:
    """Returns the buffer of an output's partial sums."""
    return KernelLocal(f"partial:{operand.name}")
