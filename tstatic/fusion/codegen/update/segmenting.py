"""Many tensors as blocks of one launch: which tensor, and which part of it, each program has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.fusion.codegen.kernel import KernelLocal, KernelParameter, Table
from tstatic.fusion.codegen.text.size_names import SizeNames

STEP = 16
"""Tensors in memory of plans and flat buffers may be read up to a multiple of this, so that accesses are wide."""

ADDRESSES, BLOCKS = KernelLocal("table:addresses"), KernelLocal("table:blocks")

TABLES = KernelParameter("addresses", "pointer", "i64", ADDRESSES), KernelParameter("blocks", "pointer", "i64", BLOCKS)
"""The first parameters of a launch over many tensors."""

FIND = (
    "# A block: its tensor, its first element there, how many are its own, and how many may be touched.",
    "block = blocks + tl.program_id(0).to(tl.int64) * BLOCK_NUMBERS",
)
"""The first lines of such a function."""


def table_sizes() -> SizeNames:
    """Returns the names by which functions over many tensors find a number in a table, and of what they know of memory."""
    sizes = SizeNames()
    sizes("BLOCK_NUMBERS", 4, "numbers of a block in the table of blocks")
    sizes("FIRST", 1, "where its first element stands")
    sizes("OWN", 2, "where the number of its own elements stands")
    sizes("TOUCHED", 3, "where the number of elements that may be touched stands")
    sizes("PADDED_TO", STEP, "elements of a multiple of which tensors' memory may be read")
    sizes("ALIGNED", 16, "bytes of a multiple of which tensors begin")
    return sizes


HELPER = '''
def blocks(most, step):
    """A row per block: tensor, its first element there, elements of its own, elements that may be touched."""
    rows = []
    for tensor, size in enumerate(SIZES):
        for start in range(0, size, most):
            own = min(size - start, most)
            rows += [tensor, start, own, min(-(-own // step) * step, most)]
    return rows
'''.strip()
""":func:`segments` for modules that run alone."""


def table(rows: np.ndarray[Any, Any], block: int, step: int) -> Table:
    """Returns the table of :func:`segments` as a kernel looks it up."""
    return Table(numbers=rows.reshape(-1), text=f"blocks({block}, {step})")


def segments(sizes: Sequence[int], block: int, step: int = 1) -> np.ndarray[Any, Any]:
    """Returns a row per block: tensor, its first element there, elements of its own, elements that may be touched.

    Args:
        sizes: Elements per tensor; empty tensors have no blocks.
        block: Elements per block.
        step: Tensors' memory reaches to a multiple of so many elements.

    Returns:
        int64 of shape ``[blocks, 4]``.
    """
    # Whole arrays at a time: 1e9 parameters are a million blocks.
    count = np.asarray(sizes, np.int64)
    blocks = -(-count // block)
    tensor = np.repeat(np.arange(len(count)), blocks)
    # A block's number, less that of its tensor's first block.
    start = (np.arange(int(blocks.sum())) - np.repeat(np.cumsum(blocks) - blocks, blocks)) * block
    own = np.minimum(count[tensor] - start, block)
    # Up to the padding behind the tensor, but never into the next block.
    touched = np.minimum(-(-own // step) * step, block)
    table: np.ndarray[Any, Any] = np.stack([tensor, start, own, touched], 1)
    return table
