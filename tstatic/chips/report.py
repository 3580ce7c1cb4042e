"""What became of one kernel on one chip, and the chips whose limits are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tstatic.chips.ir import Dot, TensorCopies
from tstatic.chips.matrix import PtxMatrix
from tstatic.chips.sass import Access, Sass

__all__ = ["SHARED_LIMIT", "Report"]

# Bytes of shared memory that one program may ask for (CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability": the SM's capacity less 1 KiB, for compute capabilities with 164, 100 and 228 KiB).
SHARED_LIMIT: Mapping[int, int] = {
    80: 166_912,
    86: 101_376,
    89: 101_376,
    90: 232_448,
    100: 232_448,
    103: 232_448,
    120: 101_376,
}


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one kernel on one chip.

    Attributes:
        name: The kernel.
        chip: Compute capability times 10: 90 for sm_90.
        triton: Version that compiled it.
        seconds: Compile time; many are a sign of spills.
        error: Empty, or why there is no kernel; every figure is then 0.
        registers: Per thread.
        stack: Bytes per thread in local memory, spills included.
        spill_stores: Bytes of spilled values written, per thread.
        spill_loads: Bytes of spilled values read, per thread.
        barriers: Hardware barriers in use.
        shared: Bytes of shared memory per program.
        threads: Threads per program.
        tensor_memory: Columns of tensor memory (sm_100).
        traps: Function bodies that trap instead of doing their work: what the compiler emits when it gave up.
        accesses: Global accesses by parameter and width.
        streams: Pointers of the main path -> bits of an element.
        behind: Bits of an element of the streams whose addresses lie in tables.
        sass: The instructions, where disassembly was asked for.
        warps: Warps per program that the launch asks for; ``threads`` may be more.
        stages: Depth of software pipelines that the launch asks for.
        scratch: Bytes of global memory per program that the compiled code needs.
        scratch_given: Bytes that the launch gives it.
        dots: Matrix products that the source asks for.
        copies: Copies of boxes of a tensor (TMA), in a kernel with matrix products or such copies.
        matrix: Matrix instructions of the PTX, there.
        fused: Products and sums that are one instruction: which -> how many.
        functions: Functions of a library that the source calls, each with the type that it computes in.
        summed: Of each sum along an axis of a tile, the length of that axis.
        ptx: The PTX, where it was asked for.
    """

    name: str
    chip: int
    triton: str
    seconds: float = 0.0
    error: str = ""
    registers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    barriers: int = 0
    shared: int = 0
    threads: int = 0
    tensor_memory: int = 0
    traps: int = 0
    accesses: tuple[Access, ...] = ()
    streams: Mapping[str, int] = field(default_factory=dict)
    behind: tuple[int, ...] = ()
    sass: Sass | None = None
    warps: int = 0
    stages: int = 0
    scratch: int = 0
    scratch_given: int = 0
    dots: tuple[Dot, ...] = ()
    copies: TensorCopies | None = None
    matrix: PtxMatrix | None = None
    fused: Mapping[str, int] = field(default_factory=dict)
    functions: tuple[str, ...] = ()
    summed: tuple[int, ...] = ()
    ptx: str = field(default="", repr=False)

    def figures(self) -> dict[str, int]:
        """Returns the figures that golden files keep."""
        moved = dict.fromkeys(("load", "copy", "store", "atomic"), 0)
        wide = dict(moved)
        for access in self.accesses:
            moved[access.action] += access.count
            wide[access.action] += access.count * (access.bits >= 128)
        own = {
            "registers": self.registers,
            "stack": self.stack,
            "spill_stores": self.spill_stores,
            "spill_loads": self.spill_loads,
            "barriers": self.barriers,
            "shared": self.shared,
            "threads": self.threads,
            "tensor_memory": self.tensor_memory,
            "loads": moved["load"] + moved["copy"],
            "loads_128": wide["load"] + wide["copy"],
            "stores": moved["store"],
            "stores_128": wide["store"],
            "atomics": moved["atomic"],
        }
        if self.matrix:
            own |= {
                "warps": self.warps,
                "stages": self.stages,
                "scratch": self.scratch,
                "copies": moved["copy"],
                "boxes": self.matrix.bulk_loads,
                "register_moves": self.matrix.register_moves,
                "loop_fma": max((loop.fma for loop in self.matrix.loops), default=0),
                **self.matrix.counts,
            }
        return own | ({f"sass_{k}": v for k, v in self.sass.figures().items()} if self.sass else {})
