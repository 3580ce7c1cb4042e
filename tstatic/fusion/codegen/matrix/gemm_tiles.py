"""How matrix products are cut into tiles on each chip."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tstatic.fusion.codegen.kernel import power_of_two
from tstatic.fusion.codegen.matrix.products import Product
from tstatic.target import Target

SPLIT_DEPTH = 4096
"""Depth from which a product with fewer tiles than multiprocessors is cut along its depth.

A choice: four times the least part. No time of a product that is cut is on record."""

LEAST_PART = 1024
"""Depth of a part, at least: its partial sums are written and read once more.

By counting: a tile of 128 x 128 reads 2 x 128 x 1,024 elements of 16 bits (512 kB) and leaves 64 kB of float32, an eighth."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How a product is cut: a program makes ``rows`` x ``columns`` elements, ``depth`` at a time."""

    rows: int
    columns: int
    depth: int
    num_warps: int
    stages: int

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.columns}x{self.depth}"

    def blocks(self, product: Product) -> tuple[int, int]:
        """Returns the number of tiles along a product's rows and columns."""
        return math.ceil(product.rows / self.rows), math.ceil(product.columns / self.columns)


def split_depth(target: Target) -> int:
    """Returns the depth from which a product is cut; small in the interpreter, whose products are."""
    return 48 if target.large_programs else SPLIT_DEPTH


TILES: Mapping[str, tuple[Tile, ...]] = {
    "sm_80": (Tile(128, 128, 32, 8, 4), Tile(64, 128, 32, 8, 4), Tile(64, 64, 64, 4, 4)),
    "sm_90": (Tile(128, 128, 64, 8, 3), Tile(64, 128, 64, 8, 3), Tile(64, 64, 64, 4, 4)),
    "sm_100": (Tile(128, 128, 64, 8, 3), Tile(64, 128, 64, 8, 3), Tile(64, 64, 64, 8, 4)),
}
"""Tiles that compile without spills with the tails of the golden set, from the largest to the smallest.

But for 64 x 128 on sm_100, which spills 16 bytes with the sums of a gradient. 128 x 128 takes 128, 102 and 119 registers on sm_80,
sm_90 and sm_100 with a bias and gelu (tests/kernels/golden, triton 3.7.1). On an H200 that is 86.5 us for 8192 x 768 x 3072 and
223 us for 4096^3 (bench/results/gpu-2026-11-26); on the other chips nothing was timed."""

WIDE_TILES: Mapping[str, Tile] = {"sm_90": Tile(128, 256, 64, 8, 3)}
"""Wider ones, for tails without sums and random numbers; on an H200 the best tiles of large products with several results.

No time of theirs is on record. 186 registers with a bias and gelu, 232 where a gradient is added; 147 kB of shared memory."""

DRAWN_A_THREAD = 32
"""Elements of a tile per thread, at most, where random numbers are drawn.

By what compiles: 64 x 128 with 8 warps, which is as many, takes 99, 84 and 106 registers on sm_80, sm_90 and sm_100."""

GROUP = 8
"""Blocks of rows whose programs run side by side, so that they share columns in the L2 cache.

A choice, by counting: 132 programs in groups of 8 rows span 17 columns and read 25 blocks of operands; in one row, 133."""


def tiles_of(product: Product, target: Target, *, drawn: bool, summed: bool = True) -> list[Tile]:
    """Returns the tiles of a product on a chip, the one to be taken first.

    Args:
        product: What is multiplied.
        target: The chip.
        drawn: Whether random numbers are drawn behind it.
        summed: Whether sums over the rows are made behind it.
    """
    if target.large_programs:
        # Two blocks along each axis, so that tests in the interpreter see borders; few programs.
        sizes = (product.rows, 2), (product.columns, 2), (product.depth, 3)
        rows, columns, depth = (power_of_two(-(-size // count), 16, 256) for size, count in sizes)
        return [_as_asked(Tile(rows, columns, depth, 4, 0), product, target)]
    # Random numbers are made in registers: with more elements a thread they spill.
    most = DRAWN_A_THREAD * 32 if drawn else math.inf
    tiles = [t for t in TILES.get(target.architecture, TILES["sm_90"]) if t.rows * t.columns <= most * t.num_warps]
    wide = WIDE_TILES.get(target.architecture)
    if wide is not None and not drawn and not summed:
        tiles.insert(1, wide)
    # Those that differ only in what somebody asked for are one.
    tiles = list(dict.fromkeys(_as_asked(tile, product, target) for tile in tiles))
    # The first one that gives every multiprocessor a program; the smallest if none does.
    full = [t for t in tiles if math.prod(t.blocks(product)) >= target.multiprocessors]
    first = full[0] if full else tiles[-1]
    return [first, *(t for t in tiles if t is not first)]


BLOCKS = ("ROWS", "COLUMNS", "STEP")
"""What the kernel calls the sizes of a tile."""


def _as_asked(tile: Tile, product: Product, target: Target) -> Tile:
    """Returns a tile with the sizes that somebody asked for; matrix instructions take 16 elements at least.

    Raises:
        ProgramError: If the kernel cannot have them.
    """
    rows = target.block("ROWS", tile.rows, 16)
    columns = target.block("COLUMNS", tile.columns, 16, rows)
    depth = target.block("STEP", tile.depth, 16, max(rows, columns))
    # The operands of each stage of the loop.
    nbytes = max(1, tile.stages) * (rows + columns) * depth * product.dtype.itemsize
    target.check_shared(dict(zip(BLOCKS, (rows, columns, depth), strict=True)), nbytes)
    return replace(tile, rows=rows, columns=columns, depth=depth)


def fixed_tile(product: Product, target: Target) -> Tile | None:
    """Returns the tile of a product under strict numerics, whatever stands behind it; ``None``: one call of the library makes it.

    Products of 16 bits get a tile that holds every tail, and their whole depth in one go. Those of wider types have no matrix
    instructions, and those whose rows are not aligned no wide loads: with or without a tail the library makes them.
    """
    if not product.dtype.is_low or not (product.aligned or target.large_programs):
        return None
    return tiles_of(product, target, drawn=True)[0]
