"""Sums over rows of an attention's gradients: the gradients of biases, added up by the programs that make what is summed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tstatic.fusion.codegen.kernel import KernelParameter
from tstatic.fusion.codegen.loops.lines import nested
from tstatic.fusion.codegen.matrix.layouts import Layout, batch_offset
from tstatic.fusion.codegen.text.emit import function
from tstatic.fusion.codegen.text.size_names import SizeNames
from tstatic.ir.types import Meta

SUM_ROWS = function(
    "sum_rows",
    (
        *(KernelParameter(name, "integer") for name in ("p", "block", "inside", "within", "own", "blocks")),
        *(KernelParameter(name, "constant") for name in ("KEPT", "STRIPS")),
    ),
    [
        "total = tl.sum(tl.where(inside[:, None], wide(block), 0.0), 0)",
        "tl.store(p + own * KEPT, total, mask=within)",
        "# Strips that gradients in smaller blocks have, and this one has not.",
        *nested(
            "for strip in range(own + blocks, STRIPS, blocks):",
            ["tl.store(p + strip * KEPT, tl.zeros_like(total), mask=within)"],
        ),
    ],
)  # fmt: skip
"""A function that leaves a block's sums over its rows in the strip of its program."""


@dataclass(frozen=True, slots=True)
class Strips:
    """Where the sums over rows of a gradient's blocks lie, in partial sums ``[batches, strips, kept]``.

    Attributes:
        columns: The place of the first column of a batch of matrices, among
        kept: so many columns.
        batches: The number of that batch among those that are summed over; heads beside each other are one.
    """

    columns: Layout
    batches: Layout
    kept: int

    def call(self, sizes: SizeNames, name: str, batch: str, pointer: str, *given: str) -> str:
        """Returns the text that leaves a block's sums.

        Args:
            sizes: Gets the names of sizes and strides.
            name: The pointer to the gradient.
            batch: Text of the batch's number.
            pointer: Text of the pointer to the sums.
            given: Arguments of :data:`SUM_ROWS` behind the first one.
        """
        kept = sizes("KEPT", self.kept, "columns, each with a sum of its own")
        over = batch_offset(self.batches, batch, sizes, f"{name.upper()}_OVER", f"strips of sums of {name}")
        beside = batch_offset(self.columns, batch, sizes, f"{name.upper()}_BESIDE", f"sums of {name}, within a strip")
        return f"sum_rows({pointer} + ({over}) * (STRIPS * {kept}) + {beside}, {', '.join(given)}, {kept}, STRIPS)"


def strips_of(layout: Layout, kept: int) -> Strips | None:
    """Returns where the sums over rows of a gradient's blocks lie; ``None`` if rows are not one dimension of its memory's.

    Args:
        layout: Where the gradient lies: ``[*batch, rows, columns]``.
        kept: Columns of the memory that it lies in.
    """
    *outer, rows, columns = layout.shape
    *steps, step, last = layout.strides
    if last != 1 or (step != kept and rows > 1):
        return None
    beside, along = [], []
    for size, stride in zip(outer, steps, strict=True):
        # A dimension steps over whole matrices, or, as heads do, beside them within the columns.
        over = size > 1 and stride >= rows * kept
        if size > 1 and (stride % (rows * kept) if over else stride >= kept):
            return None
        along.append(stride // (rows * kept) if over else 0)
        beside.append(0 if over or size == 1 else stride)
    end = layout.offset + sum((n - 1) * s for n, s in zip(outer, beside, strict=True)) + columns
    summed = math.prod(n for n, s in zip(outer, along, strict=True) if s)
    # Batches have to be numbered without gaps, as each has its strips.
    if end > kept or 1 + sum((n - 1) * s for n, s in zip(outer, along, strict=True)) != summed:
        return None
    # The two inner sizes say nothing here: a batch alone begins at nothing.
    own = replace(layout, strides=(*beside, 0, 1))
    return Strips(own, replace(layout, strides=(*along, 0, 1), offset=0), kept)


def summed_together(layouts: Sequence[Layout], value: str, bias: str, metas: Mapping[str, Meta]) -> bool:
    """Returns whether the gradients that lie in a value can sum its rows: they are all of it, and leave as many strips.

    Args:
        layouts: Where the gradients lie.
        value: What is summed,
        bias: and the sum, of its last dimensions.
        metas: Metadata of all values.
    """
    kept = metas[bias].numel
    own = [at for at in layouts if at.value == value]
    rows = {at.shape[-2] for at in own}
    return (
        len(rows) == 1
        and all(strips_of(at, kept) is not None for at in own)
        and sum(math.prod(at.shape) for at in own) == metas[value].numel
        and metas[bias].dtype is metas[value].dtype
    )
