"""What kernels over channels share: where a channel's values lie, tiles of them, and the text of functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tstatic.fusion.codegen.kernel import KernelParameter, Launch, power_of_two
from tstatic.fusion.codegen.loops.lines import LANGUAGE, TYPES, Typed
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.text.emit import function, stored
from tstatic.fusion.codegen.text.size_names import SizeNames
from tstatic.ir.types import DType, Meta, Shape
from tstatic.target import Target

LAST = ("NLC", "NHWC", "NDHWC")
"""Layouts with channels last."""

PROGRAMS = 8
"""Programs of a launch that sums, for each multiprocessor: 1,056 on a chip of 132."""

MOST_STRIPS = 512
"""Partial sums of a channel: one program adds them."""

STRIP = 256
"""Rows of a strip, at least, where there is work for everybody: its partial sums then are 1 % of the bytes."""

FEWEST = 2
"""Programs for each multiprocessor that keep a chip busy."""


@dataclass(frozen=True, slots=True)
class Extent:
    """``channels`` with ``rows`` values each, which lie in runs of ``inner``."""

    rows: int
    channels: int
    inner: int

    @property
    def offset_type(self) -> str:
        """64-bit offsets unless the data is known to be small."""
        return "tl.int64" if self.rows * self.channels >= 1 << 30 else "tl.int32"

    def named(self, sizes: SizeNames) -> tuple[str, str, str]:
        """Returns the names of its rows, channels and runs in the text of a kernel."""
        return (
            sizes("VALUES", self.rows, "values of each channel"),
            sizes("CHANNELS", self.channels, "how many channels there are"),
            sizes("INNER", self.inner, "neighbours in memory that belong to one channel"),
        )

    def position(self, sizes: SizeNames) -> str:
        """Returns the offset of an element from ``rows`` and ``columns``."""
        _, channels, inner = self.named(sizes)
        if self.inner == 1:
            return f"rows * {channels} + columns[None, :]"
        return f"(rows // {inner} * {channels} + columns[None, :]) * {inner} + rows % {inner}"

    def columns(self, sizes: SizeNames) -> list[str]:
        """Returns lines that say which channels a program owns."""
        _, channels, _ = self.named(sizes)
        return ["columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)", f"inside = columns < {channels}"]

    def rows_from(self, program: str) -> list[str]:
        """Returns lines that say where a program's strip begins."""
        return [f"begin = {program}.to({self.offset_type}) * strip"]

    def tiles(self, sizes: SizeNames, lines: Sequence[str]) -> list[str]:
        """Returns a loop over the tiles of a strip, which is a whole number of them."""
        values, *_ = self.named(sizes)
        head = [
            "rows = (begin + start + tl.arange(0, ROWS))[:, None]",
            f"mask = (rows < {values}) & inside[None, :]",
            f"offsets = {self.position(sizes)}",
        ]
        return ["for start in range(0, strip, ROWS):", *(f"    {line}" for line in (*head, *lines))]


def channel_extent(shape: Shape, axis: int) -> Extent:
    """Returns how data lies in memory whose channels are a dimension of it."""
    inner = math.prod(shape[axis + 1 :])
    return Extent(math.prod(shape[:axis]) * inner, shape[axis], inner)


def extent_of(x: Meta, layout: str) -> Extent:
    """Returns how ``[n, c]``, ``[n, c, ...]`` or, channels last, ``[n, ..., c]`` lies in memory.

    Raises:
        CodegenUnsupported: If there are no elements.
    """
    if 0 in x.shape:
        raise CodegenUnsupported("EMPTY", "there are no elements")
    return channel_extent(x.shape, x.rank - 1 if x.rank == 2 or layout in LAST else 1)


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tiles of ``tall`` rows and ``wide`` channels, ``strips`` strips of ``strip`` rows, ``blocks`` blocks of channels."""

    wide: int
    tall: int
    strip: int
    strips: int
    blocks: int

    @property
    def grid(self) -> tuple[int, int]:
        return self.blocks, self.strips

    @property
    def constants(self) -> dict[str, int]:
        return {"ROWS": self.tall, "COLUMNS": self.wide}


def tiling(extent: Extent, target: Target, sums: bool, pieces: int = 6, tile: int = 0) -> Tiling:
    """Returns tiles for kernels that sum (few strips, each program keeps partial sums) or that only map.

    Args:
        extent: The data.
        target: The chip.
        sums: Whether partial sums are kept.
        pieces: Into how many tiles at least large programs cut the rows: what is carried from tile to tile is tried, too.
        tile: Elements of a tile on a GPU, if not as many as usual.
    """
    rows, channels = extent.rows, extent.channels
    if target.large_programs:
        wide = target.block("COLUMNS", power_of_two(-(-channels // 2), 1, 1 << 16))
        tall = target.block("ROWS", power_of_two(-(-rows // pieces), 1, max(1, (1 << 16) // wide)), beside=wide)
        most = 2
    else:
        if extent.inner == 1:
            # Wider tiles make Triton move the values of channels through shared memory.
            wide = power_of_two(channels, 16, 64)
        else:
            # Neighbouring channels continue each other's runs: short runs are read together.
            wide = min(power_of_two(-(-256 // extent.inner), 1, 16), power_of_two(channels, 1, 16))
        wide = target.block("COLUMNS", wide)
        # Maps over channels last hold four values of eight channels in each thread: twice the tile would spill.
        most_rows = max(16, (tile or (2048 if sums or extent.inner > 1 else 1024)) // wide)
        tall = target.block("ROWS", power_of_two(rows, 16, most_rows), beside=wide)
        blocks = -(-channels // wide)
        most = max(1, PROGRAMS * target.multiprocessors // blocks)
        # A map reads the values of its channels once for several tiles, if there is work for everybody.
        few_strips = max(rows // STRIP, -(-FEWEST * target.multiprocessors // blocks))
        # A grid's second axis holds at most 65,535 programs.
        most = min(MOST_STRIPS, most, few_strips) if sums else min(1 << 15, max(most, -(-rows // (4 * tall))))
    tiles = -(-rows // tall)
    strips = min(most, tiles)
    strip = -(-tiles // strips) * tall
    return Tiling(wide, tall, strip, -(-rows // strip), -(-channels // wide))


def merging(extent: Extent, tiles: Tiling, target: Target) -> tuple[tuple[int, ...], dict[str, int]]:
    """Returns the grid and constants of the function that puts the partial sums of all strips together."""
    # All strips of a channel lie in one tile; on a GPU that has up to 2,048 elements, 16 a thread.
    strips = power_of_two(tiles.strips, 1, MOST_STRIPS)
    wide = (
        power_of_two(-(-extent.channels // 2), 1, 1 << 15) if target.large_programs else max(1, min(64, 2048 // strips))
    )
    return (-(-extent.channels // wide),), {"STRIPS": strips, "COLUMNS": wide}


class Function:
    """A jitted function that is being written; pointers and names of sizes are added as they are met."""

    def __init__(self, name: str, compute: DType, used: set[str]) -> None:
        self.name = name
        self.compute = compute
        self.used = used
        self.pointers: dict[str, KernelParameter] = {}
        self.lines: list[str] = []
        self.sizes = SizeNames()

    def pointer(self, name: str, value: str, dtype: DType) -> str:
        """Names what stands behind a pointer; returns the name."""
        known = self.pointers.setdefault(name, KernelParameter(name, "pointer", TYPES[dtype.name], value))
        # Two values under one name would be two addresses in one parameter.
        assert known.operand == value, f"{name} names two values"
        return name

    def add(self, *lines: str) -> None:
        self.lines.extend(lines)

    def read(self, name: str, value: str, dtype: DType, index: str = "columns", mask: str = "inside") -> str:
        """Returns the text of a load, in the type of computation."""
        text = f"tl.load({self.pointer(name, value, dtype)} + {index}, mask={mask}, other=0)"
        return text if dtype is self.compute else f"{text}.to({LANGUAGE[self.compute.name]})"

    def write(
        self, name: str, value: str, dtype: DType, text: str, index: str = "columns", mask: str = "inside"
    ) -> str:
        """Returns the text of a store."""
        known = stored(Typed(text, self.compute), dtype, self.used)
        return f"tl.store({self.pointer(name, value, dtype)} + {index}, {known}, mask={mask})"

    def finished(self, integers: Sequence[str], constants: Sequence[str]) -> str:
        """Returns the text; integers and constants come after the pointers."""
        return function(self.name, self.parameters(integers, constants), self.lines, self.sizes)

    def parameters(self, integers: Sequence[str], constants: Sequence[str]) -> tuple[KernelParameter, ...]:
        return (
            *self.pointers.values(),
            *(KernelParameter(n, "integer", "i32") for n in integers),
            *(KernelParameter(n, "constant") for n in constants),
        )

    def launch(self, grid: tuple[int, ...], integers: Sequence[int], constants: dict[str, int]) -> Launch:
        """Returns a call of the finished function."""
        operands = (p.operand for p in self.pointers.values())
        types = (*(f"*{p.type}" for p in self.pointers.values()), *("i32" for _ in integers))
        return Launch(self.name, grid, (*operands, *integers), constants, types=types)
