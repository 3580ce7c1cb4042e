"""The facts of a chip that decide how a kernel is cut into programs."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    name: str
    architecture: str
    multiprocessors: int
    registers: int
    shared_bytes: int
    l2_bytes: int
    bandwidth: float

    @property
    def large_programs(self) -> bool:
        """Whether a launch should have as few programs as it can.

        With one multiprocessor nothing runs beside a program, and in the interpreter each costs about a millisecond
        whatever its size.
        """
        return self.multiprocessors == 1


# Shared memory and registers: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
# Multiprocessors, caches and bandwidth: NVIDIA's data sheets, of the models named here.
A100 = Target("A100 SXM4 80 GB", "sm_80", 108, 65_536, 166_912, 40 << 20, 2.039e12)
H100 = Target("H100 SXM5 80 GB", "sm_90", 132, 65_536, 232_448, 50 << 20, 3.35e12)
B200 = Target("B200", "sm_100", 148, 65_536, 232_448, 126 << 20, 8.0e12)
INTERPRETER = Target("Triton's interpreter", "interpreter", 1, 65_536, 232_448, 50 << 20, 1.0e10)
