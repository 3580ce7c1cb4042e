"""The facts of a chip that decide how a kernel is cut into programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

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
        blocks: Block sizes that somebody asked for; ``None``: kernels choose them all.
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
    blocks: Blocks | None = field(default=None, repr=False)

    @property
    def short_name(self) -> str:
        """The first word of the name, in lower case: part of file names."""
        return self.name.split()[0].lower()

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


def of_chip(
    name: str, capability: tuple[int, int], multiprocessors: int, l2_bytes: int = 0, shared_bytes: int = 0
) -> Target:
    """Returns the target of a GPU that is there: what it says of itself, and the rest as of the most similar known chip.

    Args:
        name: Its name, as the driver gives it.
        capability: Its compute capability: ``(9, 0)`` is ``sm_90``.
        multiprocessors: Their number; a part of a chip (MIG) has fewer.
        l2_bytes, shared_bytes: 0 where they are not known.

    Example:
        >>> of_chip("NVIDIA H200", (9, 0), 132).bandwidth
        4800000000000.0
    """
    architecture = "sm_{}{}".format(*capability)
    similar = [t for t in CHIPS if t.architecture == architecture] or [DEFAULT_TARGET]
    words = re.split(r"\W+", name.upper())
    named = next((t for t in similar if t.name.split()[0] in words), similar[0])
    return replace(
        named,
        name=named.name if named.name.split()[0] in words else name,
        architecture=architecture,
        multiprocessors=multiprocessors,
        l2_bytes=l2_bytes or named.l2_bytes,
        shared_bytes=shared_bytes or named.shared_bytes,
    )


def named(name: str) -> Target | None:
    """Returns a chip by its name or its architecture, in any case (``"H100"``, ``"sm_90"``); ``None`` if there is none.

    Of several chips of an architecture it is the one that kernels are planned for by default, if that is among them.
    """
    wanted = name.strip().lower()
    found = [one for one in (DEFAULT_TARGET, *CHIPS) if wanted in (one.short_name, one.architecture)]
    return found[0] if found else None


# Shared memory and registers: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
# Multiprocessors, caches, memories and bandwidth: NVIDIA's data sheets, of the models named here.
A100 = Target("A100 SXM4 80 GB", "sm_80", 108, 65_536, 166_912, 40 << 20, 2.039e12, 2.5e10, 3.0e11, 80 << 30)
H100 = Target("H100 SXM5 80 GB", "sm_90", 132, 65_536, 232_448, 50 << 20, 3.35e12, memory_bytes=80 << 30)
H200 = Target("H200 SXM5 141 GB", "sm_90", 132, 65_536, 232_448, 50 << 20, 4.8e12, memory_bytes=141_000_000_000)
B200 = Target("B200", "sm_100", 148, 65_536, 232_448, 126 << 20, 8.0e12, 5.5e10, 9.0e11, 180_000_000_000)
CHIPS = (A100, H100, H200, B200)
DEFAULT_TARGET = H200
"""What kernels are planned for where there is no GPU: for explanations, reports and the compilers' figures."""
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
