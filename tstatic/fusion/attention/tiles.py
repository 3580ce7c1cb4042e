"""How attentions are cut into blocks of queries and keys on each chip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tstatic.fusion.codegen.kernel import power_of_two
from tstatic.ir.types import DType
from tstatic.target import Target


@dataclass(frozen=True, slots=True)
class Blocks:
    """A program holds ``rows`` queries and ``columns`` keys at a time."""

    rows: int
    columns: int
    num_warps: int
    stages: int

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.columns}, {self.num_warps} warps, {self.stages} stages"


Table = Mapping[str, Mapping[int, tuple[Blocks, ...]]]
"""Architecture -> head size -> blocks, the ones to be taken first; heads between two sizes are padded to the larger one.

Of 16-bit matrices. Behind the architecture may stand what makes a kernel need more registers or shared memory, with other blocks
for some sizes: "drawn" of random numbers for each score, "read" of a mask with a number for each, "mixed" of a
softmax in 32 bits. "tf32" is of float32 that is rounded to TF32, on all architectures; behind one stands what is other there.
"""

# Where the numbers are from. Times: an H200 on 2026-11-26 (bench/results/gpu-2026-11-26), causal attention of 8 x 16 x 2048 in
# bfloat16; between its two runs kernels were changed as well as blocks. Nothing was timed on chips of sm_80 and sm_100, nor heads
# of 256: the first blocks there are some that compile without spills in the golden set. Its figures stand in tests/kernels/golden
# and are those of triton 3.7.1, bfloat16 and 1,024 tokens. What stands behind the first of a row is to be timed against it; the
# golden set's lists of refused kernels name those that spill.
Variant = Literal["", "drawn", "read", "mixed", "mixed drawn", "tf32"]

FORWARD: Table = {
    "sm_80": {
        # 254, 203 and 203 registers.
        64: (Blocks(128, 64, 4, 3), Blocks(128, 64, 8, 3)),
        128: (Blocks(128, 64, 8, 2), Blocks(64, 64, 4, 2)),
        256: (Blocks(64, 32, 8, 2), Blocks(64, 64, 8, 2), Blocks(64, 32, 4, 2)),
    },
    "sm_90": {
        # 196 us; 254 by 128 x 64 with 4 warps. 498 with dropout, 1,465 by 128 x 64 with 8 warps. 128 registers.
        64: (Blocks(64, 64, 4, 3), Blocks(128, 64, 8, 3)),
        # 362 us; 417 by 128 x 64 with 8 warps. 168 registers.
        128: (Blocks(64, 64, 4, 3), Blocks(128, 64, 8, 3), Blocks(128, 128, 8, 3)),
        # 175 registers.
        256: (Blocks(64, 64, 8, 2),),
    },
    "sm_100": {
        # 114, 168 and 246 registers.
        64: (Blocks(128, 64, 8, 3), Blocks(128, 64, 4, 3)),
        128: (Blocks(128, 64, 8, 3), Blocks(128, 64, 4, 2)),
        256: (Blocks(128, 64, 8, 2), Blocks(64, 64, 4, 2)),
    },
    "tf32": {
        # On sm_80, sm_90 and sm_100: 162, 170 and 114 registers; 168, 175 and 128; 168, 152 and 152.
        64: (Blocks(128, 64, 8, 2), Blocks(64, 64, 4, 2)),
        128: (Blocks(64, 64, 8, 2), Blocks(64, 32, 8, 2)),
        256: (Blocks(16, 32, 4, 1),),
    },
    "sm_80 drawn": {128: (Blocks(64, 64, 8, 2),)},
    "sm_100 drawn": {128: (Blocks(64, 64, 8, 2), Blocks(128, 32, 8, 2))},
}
"""Of the result."""

# In one launch with keys and values (JOINED) they take the first blocks here that have as many warps.
QUERIES: Table = {
    "sm_80": {
        64: (Blocks(64, 64, 4, 2), Blocks(128, 64, 8, 2)),
        128: (Blocks(64, 64, 8, 2), Blocks(64, 32, 4, 2)),
        256: (Blocks(64, 32, 8, 2), Blocks(32, 32, 4, 2)),
    },
    "sm_90": {
        64: (Blocks(64, 64, 4, 2), Blocks(128, 64, 8, 2)),
        128: (Blocks(64, 64, 4, 2), Blocks(64, 64, 8, 2)),
        256: (Blocks(64, 64, 8, 2), Blocks(64, 64, 8, 1)),
    },
    "sm_100": {
        64: (Blocks(128, 64, 8, 2), Blocks(64, 64, 4, 2)),
        128: (Blocks(128, 64, 8, 2), Blocks(64, 64, 4, 2)),
        256: (Blocks(64, 64, 4, 2),),
    },
    "tf32": {
        64: (Blocks(128, 64, 8, 2), Blocks(64, 64, 8, 2)),
        128: (Blocks(64, 32, 8, 2), Blocks(32, 32, 8, 2)),
        256: (Blocks(32, 32, 8, 1),),
    },
    "sm_80 tf32": {64: (Blocks(64, 32, 8, 2), Blocks(32, 32, 8, 2))},
    "sm_80 drawn": {64: (Blocks(32, 64, 8, 2), Blocks(64, 32, 8, 2), Blocks(32, 64, 4, 2))},
    "sm_90 drawn": {128: (Blocks(64, 64, 8, 2),)},
    "sm_100 drawn": {128: (Blocks(64, 32, 8, 2), Blocks(128, 32, 8, 2))},
    "sm_100 read": {256: (Blocks(64, 32, 8, 2),)},
    "sm_100 mixed drawn": {64: (Blocks(64, 64, 8, 2), Blocks(64, 64, 4, 2))},
}
"""Of the gradient of queries."""

KEYS_AND_VALUES: Table = {
    "sm_80": {
        # In one launch 253 and 172 registers.
        64: (Blocks(64, 128, 8, 2), Blocks(64, 64, 4, 2), Blocks(64, 64, 8, 2)),
        128: (Blocks(64, 64, 8, 2), Blocks(32, 64, 8, 2)),
        256: (Blocks(32, 64, 8, 2),),
    },
    "sm_90": {
        # 608 us in one launch with 64 x 64 for queries; 937 by 64 x 128 with 8 warps and 128 x 64. 186 registers.
        64: (Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 2), Blocks(64, 128, 8, 2)),
        # 1,102 us in one launch with 64 x 64 for queries; 2,344 by 64 x 64 with 8 warps for both. 253 registers.
        128: (Blocks(32, 64, 4, 2), Blocks(64, 128, 8, 2)),
        # Both spill (36 and 300 bytes): two kernels come first (APART_FROM).
        256: (Blocks(32, 64, 8, 2), Blocks(64, 64, 8, 2)),
    },
    "sm_100": {
        # In one launch 170 and 196 registers. At 256 they ask for 263 kB of shared memory, which the chip does not have.
        64: (Blocks(64, 128, 8, 2), Blocks(64, 64, 4, 2)),
        128: (Blocks(64, 128, 8, 2), Blocks(64, 64, 4, 2)),
        256: (Blocks(64, 64, 8, 2),),
    },
    "tf32": {
        # In one launch on sm_80, sm_90 and sm_100: 180, 207 and 172 registers; 184, 252 and 178.
        64: (Blocks(32, 64, 8, 2), Blocks(64, 64, 8, 2)),
        128: (Blocks(32, 32, 8, 2), Blocks(64, 32, 8, 2)),
        # Spills: 20, 20 and 28 bytes stored a thread.
        256: (Blocks(32, 32, 8, 1),),
    },
    "sm_80 tf32": {64: (Blocks(64, 32, 8, 2), Blocks(32, 32, 8, 2))},
    "sm_80 drawn": {64: (Blocks(64, 32, 8, 2), Blocks(32, 64, 8, 2), Blocks(32, 64, 4, 2))},
    "sm_100 drawn": {64: (Blocks(64, 64, 8, 2), Blocks(64, 128, 8, 2))},
    "sm_80 read": {64: (Blocks(64, 32, 8, 2),)},
    "sm_80 mixed": {64: (Blocks(64, 64, 8, 2), Blocks(64, 64, 4, 2))},
    "sm_90 drawn": {64: (Blocks(64, 128, 8, 2), Blocks(64, 64, 4, 2))},
    "sm_90 mixed drawn": {64: (Blocks(64, 64, 8, 2), Blocks(64, 64, 4, 2))},
    "sm_100 read": {256: (Blocks(32, 64, 8, 2),)},
}
"""Of the gradients of keys and values by one kernel."""

APART: Table = {
    "sm_80": {
        64: (Blocks(64, 64, 4, 2),),
        128: (Blocks(32, 64, 8, 2), Blocks(64, 64, 8, 2)),
        # 176 registers for keys, 162 for values.
        256: (Blocks(32, 64, 8, 2),),
    },
    "sm_90": {
        64: (Blocks(64, 128, 8, 2),),
        128: (Blocks(32, 64, 8, 2), Blocks(64, 64, 8, 2)),
        # 208 and 148 registers.
        256: (Blocks(32, 64, 8, 2),),
    },
    "sm_100": {
        64: (Blocks(64, 128, 8, 2),),
        128: (Blocks(64, 64, 8, 2),),
        # 196 and 116 registers, 230 kB of shared memory, of the 232 that there are.
        256: (Blocks(64, 64, 8, 2),),
    },
    "tf32": {
        64: (Blocks(64, 64, 8, 2),),
        128: (Blocks(64, 32, 8, 2),),
        256: (Blocks(32, 32, 8, 1),),
    },
    "sm_80 tf32": {64: (Blocks(64, 32, 8, 2),)},
    "sm_80 drawn": {64: (Blocks(32, 64, 8, 2), Blocks(64, 32, 8, 2)), 128: (Blocks(64, 32, 8, 2),)},
    "sm_80 read": {64: (Blocks(32, 64, 8, 2), Blocks(64, 32, 8, 2), Blocks(32, 64, 4, 2))},
    "sm_100 read": {256: (Blocks(32, 64, 8, 2),)},
    "sm_100 mixed drawn": {128: (Blocks(64, 64, 8, 2), Blocks(32, 64, 8, 2))},
}
"""Of each of the two by a kernel of its own: the weights are made twice, but half as much is added up in registers."""

APART_FROM: Mapping[str, tuple[int, int]] = {"sm_80": (256, 128), "sm_90": (256, 128), "sm_100": (256, 128)}
"""Head sizes from which no blocks of one kernel keep within the registers: without random numbers, and with them.

By the figures above; with random numbers two kernels of head 128 take 171 and 162 registers on sm_80, 173 and 134 on sm_90, 212 and
119 on sm_100."""

JOINED: Mapping[str, tuple[int, ...]] = {
    "sm_80": (64, 128), "sm_80 drawn": (), "sm_80 read": (128,), "sm_90": (64, 128), "sm_90 drawn": (), "sm_100": (64, 128),
    "sm_100 drawn": (), "tf32": (64, 128),
}  # fmt: skip
"""Head sizes for which one launch makes all gradients without spills."""

DRAWN_A_THREAD = 32
"""Scores of a block per thread, at most, where random numbers are drawn: they are made in registers.

By what compiles: 64 x 64 with 4 warps, which is as many, takes 163 registers on sm_90 at head 64; without random numbers 128."""

WIDE: Mapping[int, tuple[Blocks, ...]] = {
    64: (Blocks(64, 32, 8, 1),),
    128: (Blocks(32, 32, 8, 1),),
    256: (Blocks(16, 32, 4, 1),),
}
"""Of all kernels of types that no matrix instruction takes in full precision: elements are twice as large or more.

On sm_90 the results keep within the registers (90, 200 and 218 of float32; 228 and 237 of float64 at 64 and 256). Gradients in one
launch spill: 588, 1,016 and 2,896 bytes stored a thread of float32, 824 and 5,512 of float64. So chips take the library's products
first; these run where it offers none."""


def padded(length: int) -> int:
    """Returns the size of a block that holds so many elements; matrix instructions take 16 at least."""
    return power_of_two(length, 16, 1 << 16)


def size_of(head: int, sizes: Iterable[int]) -> int:
    """Returns the size of a table whose blocks heads get: the next larger one; those beyond the largest are slow, and right."""
    return next((size for size in sorted(sizes) if padded(head) <= size), max(sizes))


def _of_chip(table: Mapping[str, Any], target: Target, variant: Variant) -> list[Any]:
    """Returns what a table has for a chip, what has a variant's own blocks first."""
    chip = target.architecture
    # Chips that no table names get what an H100 has.
    whole = table["tf32"] if variant == "tf32" else table.get(chip, table["sm_90"])
    # Blocks that leave registers for random numbers leave them for a wide softmax as well.
    names = (variant, "drawn") if variant == "mixed drawn" else (variant,)
    own = (table.get(f"{chip} {name}") for name in names)
    return [*(one for one in own if one is not None), whole]


def blocks_of(
    table: Table, target: Target, head: int, rows: int, columns: int, dtype: DType, variant: Variant
) -> tuple[Blocks, ...]:
    """Returns the blocks of an attention on a chip, the ones to be taken first; none if the table has none for its heads.

    Args:
        table: One of the tables of this module.
        target: The chip.
        head: The larger one of the lengths of a key and of a value.
        rows, columns: How many queries and keys there are.
        dtype: The type of the matrices.
        variant: What else the kernel does.
    """
    if target.large_programs:
        # Two blocks along each axis, so that tests in the interpreter see borders.
        blocks = Blocks(power_of_two(-(-rows // 2), 16, 128), power_of_two(-(-columns // 2), 16, 128), 4, 0)
        return (_as_asked(blocks, target, head, dtype),)
    tables = _of_chip(table, target, variant) if dtype.is_low or variant == "tf32" else [WIDE]
    size = size_of(head, tables[-1])
    found: tuple[Blocks, ...] = next(one[size] for one in tables if size in one)
    if "drawn" in variant:
        found = tuple(b for b in found if b.rows * b.columns <= DRAWN_A_THREAD * 32 * b.num_warps) or found[-1:]
    return tuple(dict.fromkeys(_as_asked(one, target, head, dtype) for one in found))


def _as_asked(blocks: Blocks, target: Target, head: int, dtype: DType) -> Blocks:
    """Returns blocks with the sizes that somebody asked for.

    Raises:
        ProgramError: If the kernel cannot have them.
    """
    width = padded(head)
    rows = target.block("ROWS", blocks.rows, 16, width)
    columns = target.block("COLUMNS", blocks.columns, 16, max(rows, width))
    # One block of queries, and a block of keys and one of values for each stage of the loop.
    nbytes = (rows + 2 * max(1, blocks.stages) * columns) * width * dtype.itemsize
    target.check_shared({"ROWS": rows, "COLUMNS": columns}, nbytes)
    return replace(blocks, rows=rows, columns=columns)


def apart_first(target: Target, head: int, dtype: DType, variant: Variant) -> bool:
    """Returns whether the gradients of keys and values are made by a kernel each, where nothing was timed."""
    # As in the tables, others get what an H100 has.
    sizes = APART_FROM.get(target.architecture, APART_FROM["sm_90"])
    return not target.large_programs and dtype.is_low and padded(head) >= sizes["drawn" in variant]


def joined_first(target: Target, head: int, dtype: DType, variant: Variant) -> bool:
    """Returns whether one launch makes all gradients, where nothing was timed."""
    if target.large_programs or not (dtype.is_low or variant == "tf32"):
        return True
    return size_of(head, (64, 128, 256)) in _of_chip(JOINED, target, variant)[0]
