"""What reading a file may cost: memory and work are counted, and bounded by the size of the file."""

from __future__ import annotations

from contextvars import ContextVar

from tstatic import flags
from tstatic.errors import LoadLimitError

STEP = 16
"""Units of work of one step of Python: an opcode, a field, a name that is looked up. A unit is a byte that is copied or decoded."""
WORK = 8 << 20
"""Units of work that a file of any size may take; each of its own bytes adds :data:`WORK_PER_BYTE`."""
# Four steps of Python: an opcode of a pickle, the shortest thing that takes one, is a byte long.
WORK_PER_BYTE = 64
PROGRAM, PROGRAM_PER_BYTE = 16 << 20, 32
"""Bytes of memory that a program of any size may cost, and that each byte of its file or text adds."""
UNPACKED, UNPACKED_PER_BYTE = 64 << 20, 100
"""Bytes that a packed file of any size may unpack to, and that each of its own bytes adds."""
FLAG = "FLAGS_load_limit_factor"
"""What all limits here are multiplied by."""


building: ContextVar[Budget | None] = ContextVar("building", default=None)
"""The budget that pays for ops while a file is read: from one op of a file as many can be built as an attribute says."""
OP = 2000
"""Bytes that are counted for an op that is built, and its results."""


class Budget:
    """What is left of the memory and work that reading one file may take.

    Args:
        size: Bytes of the file.
        memory: Bytes that a file of any size may cost.
        per_byte: Bytes that each byte of the file adds.
        path: The file, for messages.

    Attributes:
        worked: Units of work that were done.
        most_work: Units of work that may be done.
    """

    __slots__ = ("left", "memory", "most_work", "path", "size", "worked")

    def __init__(self, size: int, memory: int, per_byte: int, path: object = "these bytes") -> None:
        factor = flags.flag(FLAG)
        self.path = path
        self.size = size
        self.memory = int(factor * (memory + per_byte * size))
        self.left = self.memory
        self.most_work = int(factor * (WORK + WORK_PER_BYTE * size))
        self.worked = 0

    def spend(self, count: int) -> None:
        """Takes bytes of memory.

        Raises:
            LoadLimitError: If no more are left.
        """
        self.left -= count
        if self.left < 0:
            raise self._beyond("more memory", f"at most {self.memory:,} bytes")

    def give_back(self, count: int) -> None:
        """Returns bytes of memory that are free again."""
        self.left += count

    def work(self, count: int) -> None:
        """Takes units of work, before they are done.

        Raises:
            LoadLimitError: If no more are left.
        """
        self.worked += count
        if self.worked > self.most_work:
            raise self._beyond("more work", f"at most {self.most_work:,} units of work")

    def step(self, memory: int) -> None:
        """Takes one step of work, and bytes of memory."""
        self.left -= memory
        self.worked += STEP
        if self.left < 0 or self.worked > self.most_work:
            # One of the two raises, and says what is used up.
            self.spend(0)
            self.work(0)

    def text(self, raw: bytes, encoding: str, errors: str = "strict") -> str:
        """Decodes a text, which may take four times the bytes that it has in the file."""
        self.work(len(raw))
        # Python keeps one, two or four bytes for each character: as many as the widest one needs.
        wide = 1 if encoding in ("latin1", "ascii") or raw.isascii() else 4 if max(raw) >= 0xF0 else 2
        self.spend(wide * len(raw))
        return raw.decode(encoding, errors)

    def _beyond(self, what: str, most: str) -> LoadLimitError:
        return LoadLimitError(
            f"reading takes {what} than a file of its size may: {self.path}",
            expected=f"{most}, which a file of {self.size:,} bytes may take",
            received="more",
            fix=f"do not use the file, unless you know who made it: then raise {FLAG}, which is {flags.flag(FLAG):g}",
        )


def budget_of_program(size: int, path: object) -> Budget:
    """Returns what reading a program from a file or text of ``size`` bytes may cost."""
    return Budget(size, PROGRAM, PROGRAM_PER_BYTE, path)


def most_unpacked(size: int) -> int:
    """Returns how many bytes a packed file of ``size`` bytes may unpack to."""
    return int(flags.flag(FLAG) * (UNPACKED + UNPACKED_PER_BYTE * size))
