"""The facts of a chip that decide how a kernel is cut into programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from tstatic.errors import ProgramError

MOST_ELEMENTS = 1 << 20
"""Elements of a block, at most: Triton refuses larger tensors."""


class Blocks:
    """Block sizes to use in place of those that kernels choose, and the names that kernels had to choose for.

    Two of them are equal only if they are the same object: each collects its own ``offered``.

    Args:
        given: Name of a block's size, as kernels call it (``ROWS``) -> a power of two.

    Attributes:
        offered: The names that the kernels planned with this object asked about, in order.
    """

    def __init__(self, given: Mapping[str, int] | None = None) -> None:
        self.given = dict(given or {})
        self.offered: dict[str, None] = {}

    def __repr__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.given.items()) or "as kernels choose them"


@dataclass(frozen=True, slots=True)
class Target:
    """One chip, or Triton's interpreter.

    Attributes:
        name: The chip's.
        architecture: What Triton compiles for (``sm_90``); ``interpreter`` where nothing is compiled.
        multiprocessors: How many run programs at the same time.
        registers: 32-bit registers of a multiprocessor.
        shared_bytes: Shared memory that one program may have.
        l2_bytes: Size of the L2 cache.
        bandwidth: Bytes per second between the chip and its memory.
        host_bandwidth: Bytes per second between the memories of host and chip, in one direction.
        link_bandwidth: Bytes per second from one chip to the others of a machine.
        memory_bytes: Size of the chip's memory; 0 where there is no chip.
        matrix_rate: Operations per second of its matrix instructions: of 16-bit elements without sparsity, summed in 32 bits.
        vector_rate: Operations per second of its other instructions on float32.
        source: Where the bandwidth is from: ``data sheet`` or ``driver``; empty where it is not known.
        blocks: Block sizes that somebody asked for; ``None``: kernels choose them all.

    A bandwidth, rate or size of 0 is not known.
    """

    name: str
    architecture: str
    multiprocessors: int
    registers: int
    shared_bytes: int
    l2_bytes: int
    bandwidth: float
    host_bandwidth: float = 5.5e10
    link_bandwidth: float = 4.5e11
    memory_bytes: int = 0
    matrix_rate: float = 0.0
    vector_rate: float = 0.0
    source: str = field(default="data sheet", compare=False)
    blocks: Blocks | None = field(default=None, repr=False)

    @property
    def short_name(self) -> str:
        """The first word of the name, in lower case: part of file names."""
        return self.name.split()[0].lower()

    @property
    def has_sheet(self) -> bool:
        """Whether the chip's data sheet is at hand; otherwise all is from its driver and its architecture."""
        return any(sheet.name == self.name for _, sheet in SHEETS)

    @property
    def large_programs(self) -> bool:
        """Whether a launch should have as few programs as it can: in the interpreter each costs about a millisecond whatever its
        size, and they run one after the other.
        """
        return self.architecture == "interpreter"

    @property
    def strict(self) -> Target:
        """The target that ``FLAGS_numerics=strict`` plans for in place of this one.

        The number of multiprocessors decides into how many partial sums a sum is cut, and so its last bits: every chip gets the
        plans of :data:`DEFAULT_TARGET`. The interpreter keeps its own, as its functions have other bits than a chip's anyway.
        """
        return self if self.large_programs else replace(DEFAULT_TARGET, blocks=self.blocks)

    def asks(self, *names: str) -> bool:
        """Returns whether somebody asked for one of these block sizes."""
        return self.blocks is not None and any(name in self.blocks.given for name in names)

    def block(self, name: str, chosen: int, least: int = 1, beside: int = 1) -> int:
        """Returns the size of a block: the one asked for, or the kernel's own choice.

        Args:
            name: What the kernel calls it.
            chosen: The size that the kernel chooses for this chip.
            least: The smallest size with which the kernel works.
            beside: Elements of the tile along its other axes.

        Raises:
            ProgramError: If the kernel cannot have blocks of the size asked for.
        """
        if self.blocks is None:
            return chosen
        self.blocks.offered[name] = None
        size = self.blocks.given.get(name, chosen)
        if name in self.blocks.given and not least <= size <= MOST_ELEMENTS // beside:
            raise ProgramError(
                f"a kernel cannot have blocks of {name}={size}",
                expected=f"a power of two from {least} to {MOST_ELEMENTS // beside}",
                received=f"{name}={size}" + (f", in a tile with {beside} elements along the other axes" * (beside > 1)),
                fix=f"ask for {name}={min(max(least, chosen), MOST_ELEMENTS // beside)}, which the kernel would choose",
            )
        return size

    def check_shared(self, names: Mapping[str, int], nbytes: int) -> None:
        """Checks that blocks which somebody asked for keep within the shared memory of the chip.

        Args:
            names: Name -> size of the blocks.
            nbytes: Bytes of shared memory that they take at least.

        Raises:
            ProgramError: If they do not.
        """
        if self.asks(*names) and not self.large_programs and nbytes > self.shared_bytes:
            raise ProgramError(
                "the blocks asked for need more shared memory than a program has",
                expected=f"at most {self.shared_bytes:,} bytes on {self.name}",
                received=f"{nbytes:,} bytes with {', '.join(f'{n}={size}' for n, size in names.items())}",
                fix="ask for smaller blocks",
            )


def of_properties(properties: Any) -> Target:
    """Returns the target of a GPU from what ``torch.cuda.get_device_properties`` says of it.

    Versions of torch pass on different facts; those that this one leaves out count as not known.
    """

    def fact(name: str) -> int:
        return int(getattr(properties, name, 0) or 0)

    return of_chip(
        properties.name,
        (properties.major, properties.minor),
        properties.multi_processor_count,
        fact("L2_cache_size"),
        fact("shared_memory_per_block_optin"),
        fact("total_memory"),
        clock=fact("clock_rate"),
        memory_clock=fact("memory_clock_rate"),
        memory_bus_bits=fact("memory_bus_width"),
    )


def of_chip(
    name: str,
    capability: tuple[int, int],
    multiprocessors: int,
    l2_bytes: int = 0,
    shared_bytes: int = 0,
    memory_bytes: int = 0,
    *,
    clock: int = 0,
    memory_clock: int = 0,
    memory_bus_bits: int = 0,
) -> Target:
    """Returns the target of a GPU that is there: what it says of itself, and what its data sheet has beside that.

    Of a chip without a data sheet here nothing is assumed: what its driver does not tell is 0, not known. Its rates are those of
    its architecture; some models reach half of them.

    Args:
        name: Its name, as the driver gives it.
        capability: Its compute capability: ``(9, 0)`` is ``sm_90``.
        multiprocessors: Their number; a part of a chip (MIG) has fewer.
        l2_bytes, shared_bytes, memory_bytes: 0 where they are not known.
        clock, memory_clock: Of the multiprocessors and of the memory, at most, in kHz; 0 where they are not known.
        memory_bus_bits: Width of the bus to the memory; 0 where it is not known.

    Example:
        >>> of_chip("NVIDIA H200", (9, 0), 132).bandwidth
        4800000000000.0
        >>> of_chip("NVIDIA L7", (8, 9), 40, memory_clock=8_000_000, memory_bus_bits=256).bandwidth
        512000000000.0
    """
    architecture = "sm_{}{}".format(*capability)
    words = set(re.split(r"\W+", name.upper()))
    sheet = next((one for needed, one in SHEETS if words.issuperset(needed) and one.architecture == architecture), None)
    if sheet is None or "LAPTOP" in words:
        sheet = _without_sheet(name, architecture, multiprocessors, clock, "GEFORCE" in words or "TITAN" in words)
    # Memory of two transfers a clock, as the driver counts clocks.
    bandwidth = 2e3 * memory_clock * memory_bus_bits / 8
    whole = sheet.bandwidth
    if "MIG" in words and sheet.memory_bytes and memory_bytes:
        # A part has as much of the bandwidth as of the memory, whatever clock and width the driver tells.
        whole *= min(1.0, memory_bytes / sheet.memory_bytes)
        bandwidth = 0.0
    part = multiprocessors / sheet.multiprocessors
    return replace(
        sheet,
        architecture=architecture,
        multiprocessors=multiprocessors,
        l2_bytes=l2_bytes or sheet.l2_bytes,
        shared_bytes=shared_bytes or sheet.shared_bytes,
        memory_bytes=memory_bytes or sheet.memory_bytes,
        bandwidth=bandwidth or whole,
        matrix_rate=part * sheet.matrix_rate,
        vector_rate=part * sheet.vector_rate,
        source="driver" if bandwidth else sheet.source,
    )


def _without_sheet(name: str, architecture: str, multiprocessors: int, clock: int, halved: bool) -> Target:
    """Returns what follows from the architecture of a chip; ``halved``: it adds up products in 32 bits at half the rate."""
    vector, matrix = _PER_CLOCK.get(architecture, (0, 0))
    matrix //= 1 + (halved and architecture in _HALVED)
    each = 1e3 * clock * multiprocessors
    shared = _SHARED.get(architecture, LEAST_SHARED)
    return Target(
        name, architecture, multiprocessors, 65_536, shared, 0, 0.0, PCIE_4, PCIE_4,
        matrix_rate=matrix * each, vector_rate=vector * each, source="",
    )  # fmt: skip


def named(name: str) -> Target | None:
    """Returns a chip by its name or its architecture, in any case (``"H100"``, ``"sm_90"``); ``None`` if there is none.

    Of several chips of an architecture it is the one that kernels are planned for by default, if that is among them.
    """
    wanted = name.strip().lower()
    found = [one for one in (DEFAULT_TARGET, *CHIPS) if wanted in (one.short_name, one.architecture)]
    return found[0] if found else None


LEAST_SHARED = 49_152
"""Shared memory of a program that every chip has."""
PCIE_4 = 2.5e10
"""Bytes per second in one direction between a chip without a data sheet and whatever else there is: what PCIe 4.0 moves."""

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" and "Arithmetic Instructions", and NVIDIA's papers
# on each architecture.
_SHARED = {
    "sm_75": 65_536, "sm_80": 166_912, "sm_86": 101_376, "sm_87": 166_912, "sm_89": 101_376, "sm_90": 232_448,
    "sm_100": 232_448, "sm_103": 232_448, "sm_110": 232_448, "sm_120": 101_376, "sm_121": 101_376,
}  # fmt: skip
"""Shared memory that one program may have."""
_PER_CLOCK = {
    "sm_75": (128, 1024), "sm_80": (128, 2048), "sm_86": (256, 1024), "sm_87": (256, 1024), "sm_89": (256, 1024),
    "sm_90": (256, 4096), "sm_100": (256, 8192), "sm_103": (256, 8192), "sm_120": (256, 1024),
}  # fmt: skip
"""Operations of a multiprocessor in a clock, a product and its sum being two: on float32, and of matrix instructions of 16 bits."""
_HALVED = ("sm_75", "sm_86", "sm_89", "sm_120")
"""Architectures whose chips for games add up products in 32 bits at half the rate."""

# Shared memory and registers: as above. Multiprocessors, caches, memories, bandwidths and rates: NVIDIA's data sheets, of the
# models named here.
A100 = Target(
    "A100 SXM4 80 GB", "sm_80", 108, 65_536, 166_912, 40 << 20, 2.039e12, 2.5e10, 3.0e11, 80 << 30, 3.12e14, 1.95e13
)
H100 = Target(
    "H100 SXM5 80 GB", "sm_90", 132, 65_536, 232_448, 50 << 20, 3.35e12, 5.5e10, 4.5e11, 80 << 30, 9.89e14, 6.7e13
)
H200 = replace(H100, name="H200 SXM5 141 GB", bandwidth=4.8e12, memory_bytes=141_000_000_000)
B200 = Target(
    "B200", "sm_100", 148, 65_536, 232_448, 126 << 20, 8.0e12, 5.5e10, 9.0e11, 180_000_000_000, 2.25e15, 7.5e13
)
CHIPS = (A100, H100, H200, B200)
"""What kernels are tuned and tested for."""
DEFAULT_TARGET = H200
"""What kernels are planned for where there is no GPU: for explanations, reports and the compilers' figures."""

_A100_PCIE = replace(A100, name="A100 PCIe 80 GB", bandwidth=1.935e12, link_bandwidth=PCIE_4)
_H100_PCIE = replace(
    H100, name="H100 PCIe 80 GB", multiprocessors=114, bandwidth=2.0e12, link_bandwidth=3.0e11, matrix_rate=7.56e14,
    vector_rate=5.1e13,
)  # fmt: skip
_GH200 = replace(
    H100, name="GH200 96 GB", l2_bytes=60 << 20, bandwidth=4.0e12, host_bandwidth=4.5e11, memory_bytes=96_000_000_000,
    matrix_rate=9.9e14,
)  # fmt: skip
_H100_NVL = replace(
    H100, name="H100 NVL 94 GB", bandwidth=3.9e12, link_bandwidth=3.0e11, memory_bytes=94 * 10**9, matrix_rate=8.36e14,
    vector_rate=6.0e13,
)  # fmt: skip
SHEETS: tuple[tuple[tuple[str, ...], Target], ...] = (
    (("A100", "PCIE", "40GB"), replace(_A100_PCIE, name="A100 PCIe 40 GB", bandwidth=1.555e12, memory_bytes=40 << 30)),
    (("A100", "SXM4", "40GB"), replace(A100, name="A100 SXM4 40 GB", bandwidth=1.555e12, memory_bytes=40 << 30)),
    (("A100", "PCIE"), _A100_PCIE),
    (("A100",), A100),
    (("A10",), Target("A10", "sm_86", 72, 65_536, 101_376, 6 << 20, 6.0e11, PCIE_4, PCIE_4, 24 * 10**9, 1.25e14, 3.12e13)),
    (("L4",), Target("L4", "sm_89", 58, 65_536, 101_376, 48 << 20, 3.0e11, PCIE_4, PCIE_4, 24 * 10**9, 1.21e14, 3.03e13)),
    (("L40S",), Target("L40S", "sm_89", 142, 65_536, 101_376, 96 << 20, 8.64e11, PCIE_4, PCIE_4, 48 * 10**9, 3.62e14, 9.16e13)),
    (("L40",), Target("L40", "sm_89", 142, 65_536, 101_376, 96 << 20, 8.64e11, PCIE_4, PCIE_4, 48 * 10**9, 1.81e14, 9.05e13)),
    (("RTX", "4090"),
     Target("RTX 4090", "sm_89", 128, 65_536, 101_376, 72 << 20, 1.008e12, PCIE_4, PCIE_4, 24 << 30, 1.652e14, 8.26e13)),
    (("RTX", "5090"),
     Target("RTX 5090", "sm_120", 170, 65_536, 101_376, 96 << 20, 1.792e12, 5.5e10, 5.5e10, 32 << 30, 2.095e14, 1.048e14)),
    (("H100", "PCIE"), _H100_PCIE),
    (("H100", "NVL"), _H100_NVL),
    (("H100",), H100),
    (("H200", "NVL"), replace(_H100_NVL, name="H200 NVL 141 GB", bandwidth=4.8e12, memory_bytes=141 * 10**9)),
    (("H200",), H200),
    (("GH200", "144G"), replace(_GH200, name="GH200 144 GB", bandwidth=4.9e12, memory_bytes=144 * 10**9)),
    (("GH200",), _GH200),
    (("B200",), B200),
    (("B300",), replace(B200, name="B300", architecture="sm_103", memory_bytes=288 * 10**9)),
)  # fmt: skip
"""What is in a driver's name of a chip -> its data sheet; of several that fit the first one, which asks for more."""
TINY = Target("tiny", "interpreter", 4, 65_536, 232_448, 4 << 20, 1.5e11, 2.0e9, 1.4e10)
"""Triton's interpreter: a thirtieth of a chip, so that small arrays are cut like large ones."""


asked: ContextVar[Blocks | None] = ContextVar("blocks", default=None)
"""The blocks that somebody asked for in this thread; see :func:`as_asked`."""


@contextmanager
def planning_with(blocks: Blocks | None) -> Iterator[None]:
    """Plans kernels with these blocks inside the ``with`` statement, in this thread."""
    token = asked.set(blocks)
    try:
        yield
    finally:
        asked.reset(token)


def asked_blocks() -> Blocks | None:
    """Returns what kernels are planned with in this thread; ``None``: they choose all blocks."""
    return asked.get()


def as_asked(target: Target) -> Target:
    """Returns a device's target with the blocks that somebody asked for."""
    blocks = asked.get()
    return target if blocks is None else replace(target, blocks=blocks)
