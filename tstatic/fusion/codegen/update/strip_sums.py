"""Partial sums of many kernels, added by one launch: each program adds those of some columns of one tensor, in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tstatic.fusion.codegen.kernel import (
    Kernel,
    KernelArgument,
    KernelParameter,
    Launch,
    Launches,
    Table,
    operands,
)
from tstatic.fusion.codegen.loops import sums
from tstatic.fusion.codegen.loops.lines import LANGUAGE, nested
from tstatic.fusion.codegen.text.emit import as_kernel, function
from tstatic.fusion.codegen.text.script import Parts, entry, script, wrapped
from tstatic.fusion.codegen.text.size_names import SizeNames
from tstatic.fusion.codegen.update.segmenting import ADDRESSES, BLOCKS, TABLES
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import DType, Meta
from tstatic.target import Target


@dataclass(frozen=True, slots=True)
class StripSum:
    """What one kernel leaves to be added: ``result = partials.sum(0)``.

    Attributes:
        partials, result: Values.
        strips, kept: Sizes of the partial sums.
        compute, dtype: Types of partial sums and result.
        rows, columns: Partial sums that a program reads at once: these decide the order in which they are added.
    """

    partials: str
    result: str
    strips: int
    kept: int
    compute: DType
    dtype: DType
    rows: int
    columns: int

    @property
    def alike(self) -> tuple[str, str, int, int]:
        """What sums of one launch have in common."""
        return self.compute.name, self.dtype.name, self.rows, self.columns


_PARAMETERS = (*TABLES, *(KernelParameter(name, "constant") for name in ("ROWS", "COLUMNS")))


def _text(compute: DType, dtype: DType) -> str:
    sizes = SizeNames()
    numbers = sizes("BLOCK_NUMBERS", 4, "numbers of a block in the table of blocks")
    aligned = sizes("ALIGNED", 16, "bytes of a multiple of which tensors begin")
    strips = sizes("STRIPS_AT", 2, "where the number of strips stands")
    kept = sizes("KEPT_AT", 3, "where the number of columns stands")
    kinds = f"tl.pointer_type({LANGUAGE[compute.name]})", f"tl.pointer_type({LANGUAGE[dtype.name]})"
    return function(
        "kernel",
        _PARAMETERS,
        [
            "# A block: its sum, its first column, and how many strips and columns the sum has.",
            f"block = blocks + tl.program_id(0).to(tl.int64) * {numbers}",
            "place = addresses + tl.load(block) * 2",
            f"p = tl.multiple_of(tl.load(place).to({kinds[0]}), {aligned})",
            f"y = tl.multiple_of(tl.load(place + 1).to({kinds[1]}), {aligned})",
            "columns = tl.multiple_of(tl.load(block + 1).to(tl.int32), COLUMNS) + tl.arange(0, COLUMNS)",
            f"strips = tl.load(block + {strips}).to(tl.int32)",
            f"kept = tl.load(block + {kept}).to(tl.int32)",
            *sums.ADD,
        ],
        sizes,
    )


def strip_sums(members: Sequence[StripSum], body: Sequence[FrozenOp]) -> Kernel:
    """Returns the kernel that adds partial sums.

    Args:
        members: With equal types and tiles.
        body: The sums as ops.
    """
    first = members[0]
    # Columns are shared out, strips are not: one program adds all strips of a column, always in the same order.
    rows = [
        (number, column, one.strips, one.kept)
        for number, one in enumerate(members)
        for column in range(0, one.kept, one.columns)
    ]
    sizes = [(one.strips, one.kept) for one in members]

    def plan(target: Target) -> Launches:
        # In memory and not as arguments, so that one launch adds any number of sums.
        table = Table(numbers=np.array(rows, np.int64).reshape(-1), text=f"blocks({first.columns})")
        values = tuple(v for one in members for v in (one.partials, one.result))
        places = Table(values, text='[memory[f"{n}{i}"] for i in range(len(SHAPES)) for n in "XY"]')
        main = Launch("kernel", (len(rows),), operands(_PARAMETERS), {"ROWS": first.rows, "COLUMNS": first.columns})
        return Launches((main,), {}, {ADDRESSES: places, BLOCKS: table})

    shapes = nested("SHAPES = np.reshape(", [f"{wrapped([n for pair in sizes for n in pair])}, (-1, 2)"])
    helper = nested(
        "def blocks(most):",
        [
            '"""A row per block: sum, its first column, strips and columns."""',
            "return [n for i, (s, k) in enumerate(SHAPES) for c in range(0, k, most) for n in (i, c, s, k)]",
        ],
    )
    parts = Parts(
        [entry(f"X{i}", one_size, one.compute) for i, (one, one_size) in enumerate(zip(members, sizes, strict=True))],
        [entry(f"Y{i}", (one.kept,), one.dtype) for i, one in enumerate(members)],
        {},
        "**given",
        ['return {f"Y{i}": given[f"X{i}"].sum(0) for i in range(len(SHAPES))}'],
        ["\n".join([*shapes, ")"]), "\n".join(helper)],
    )
    read = tuple(KernelArgument(one.partials, one.compute, math.prod(s)) for one, s in zip(members, sizes, strict=True))
    written = tuple(KernelArgument(one.result, one.dtype, one.kept) for one in members)
    text = _text(first.compute, first.dtype)
    metas = {one.partials: Meta(size, one.compute) for one, size in zip(members, sizes, strict=True)}
    metas |= {one.result: Meta((one.kept,), one.dtype) for one in members}
    return as_kernel(
        "strip_sums",
        body,
        metas,
        text,
        {"to_bf16"},
        _PARAMETERS,
        (read, written),
        plan,
        lambda made: script(made, parts),
    )
