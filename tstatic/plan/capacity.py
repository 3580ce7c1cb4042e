"""The memory that a run may use: of a chip, of this machine, or of so many bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tstatic import target
from tstatic.display import UNITS
from tstatic.errors import ProgramError, ProgramTypeError, near, shown
from tstatic.places import CPUPlace, CUDAPlace, Place, resolve
from tstatic.shortage import free_main_memory

RESERVED_BYTES = 1_000_000_000
"""Of a GPU's memory: about what CUDA, its libraries and their workspaces take before a program has anything. Too much here calls a
batch too large that would fit; too little says that one fits which does not."""

_SIZE = re.compile(r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)\s*([kMGT]?i?B|bytes)", re.IGNORECASE)
# In lower case, as texts are compared so: "GB" and "gb" are one unit. Powers of 1000, and of 1024 with an "i".
_UNITS = {
    "bytes": 1.0,
    "b": 1.0,
    **{name.lower(): unit for unit, name in UNITS},
    **{f"{name}ib": float(1 << 10 * i) for i, name in enumerate("kmgt", 1)},
}


@dataclass(frozen=True, slots=True)
class Capacity:
    """A memory that runs may use.

    Attributes:
        name: Whose memory it is.
        nbytes: Bytes that a run may take of it.
        shared: Whether all places of a data-parallel program share it, as CPU places do; else each has one.
        has_held: Whether what arenas and scope hold already is missing from ``nbytes``.
    """

    name: str
    nbytes: int
    shared: bool = False
    has_held: bool = False


def capacity(memory: Any = None) -> Capacity:
    """Returns the memory that an argument names.

    Args:
        memory: Bytes; a text such as ``"80 GB"`` or ``"24 GiB"``; the name of a chip, which need not be here (``"H100"``) or its
            ``Target``, of which ``RESERVED_BYTES`` are not for the run; ``CUDAPlace(0)``, of which all that is free is; a
            ``CPUPlace`` or ``None``: the main memory that this machine has free.

    Raises:
        ProgramError: If the text is neither a size nor a chip, or nobody knows the memory of the chip.
        ProgramTypeError: If it is nothing of these.
        DeviceError: If the GPU is not there.

    Example:
        >>> capacity("24 GiB").nbytes
        25769803776
    """
    if memory is None or isinstance(memory, CPUPlace):
        return Capacity("free main memory", free_main_memory(), shared=True, has_held=True)
    if isinstance(memory, Place):
        return _of_gpu(memory)
    if isinstance(memory, str):
        memory = _of_text(memory)
    if isinstance(memory, target.Target):
        if not memory.memory_bytes:
            raise ProgramError(
                f"it is not known how much memory {memory.name} has",
                expected="a chip whose memory is known",
                received=shown(memory),
                fix="give bytes, or a size ('80 GB')",
            )
        return Capacity(memory.name, memory.memory_bytes - RESERVED_BYTES)
    # True is an int, and no number of bytes; nor is infinity, which has no int.
    if isinstance(memory, int | float) and not isinstance(memory, bool) and 0 < memory < 2**63:
        return Capacity("given", int(memory))
    raise ProgramTypeError(
        "this is not a memory that a run could fit in",
        expected="bytes, a size ('80 GB'), a chip ('H100'), or a place",
        received=shown(memory),
        fix="give bytes, or the name of a chip",
    )


def _of_text(text: str) -> target.Target | float:
    written = _SIZE.fullmatch(text.strip())
    if written is not None:
        return float(written[1]) * _UNITS[written[2].lower()]
    chip = chip_of(text)
    if chip is not None:
        return chip
    known = [chip.short_name.upper() for chip in target.CHIPS]
    raise ProgramError(
        f"{text!r} is neither a size nor a chip",
        expected=f"a size such as '80 GB', or one of {', '.join(known)}",
        received=repr(text),
        fix=near(text.upper(), known) or "give bytes, or a size with its unit",
    )


def chip_of(name: str) -> target.Target | None:
    """Returns the chip of a name in any case, such as ``"H100"``; ``None`` if there is none."""
    return next((chip for chip in target.CHIPS if chip.short_name == name.strip().lower()), None)


def _of_gpu(place: Place) -> Capacity:
    found = resolve(place)
    if not isinstance(found, CUDAPlace):  # FLAGS_cpu_fallback
        return capacity(found)
    import torch

    free, _ = torch.cuda.mem_get_info(found.get_device_id())
    return Capacity(f"free memory of {found}", free, has_held=True)
