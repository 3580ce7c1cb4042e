"""What a device makes of the steps of a plan: work that is bound to arrays, the steps as they are scheduled, and their calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tstatic.devices.cpu.buffer import Buffer
from tstatic.devices.region_log import RegionLog
from tstatic.flags import GraphMode, fill_byte
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.recording import CALL_BYTES, Call
from tstatic.locks import cached_property

HostArray = np.ndarray[Any, Any]

_TINY = np.empty(0, np.uint8)
"""For scratch of no bytes, so that a workspace that nobody needs allocates nothing."""


class Workspace:
    """The scratch memory of one thread: a buffer that all steps share, as large as the largest need; allocated before binding.

    Args:
        memory: Bytes that are there already and used instead: a part of the arena.
    """

    def __init__(self, memory: HostArray | None = None) -> None:
        self.need = 0 if memory is None else memory.nbytes
        self._buffer: Buffer | None = None
        self._memory = memory

    def reserve(self, nbytes: int) -> None:
        """Requires at least ``nbytes`` bytes."""
        self.need = max(self.need, nbytes)

    def allocate(self) -> None:
        """Allocates the buffer."""
        self._buffer = Buffer(self.need, "scratch of a worker") if self.need else None
        self._memory = None if self._buffer is None else self._buffer.array

        # New memory is zero, which hides an op that reads what it never wrote.
        if (byte := fill_byte()) is not None:
            self.fill(byte)

    def fill(self, byte: int) -> None:
        """Writes a byte everywhere."""
        if self._memory is not None:
            self._memory[...] = byte

    def touch(self) -> None:
        """Records that the buffer is in use."""
        if self._buffer is not None:
            self._buffer.touch()

    def release(self) -> None:
        """Releases the memory."""
        if self._buffer is not None:
            self._buffer.release()

    @property
    def held_bytes(self) -> int:
        """The bytes that may be resident now."""
        return 0 if self._buffer is None else self._buffer.held_bytes

    def arrays(self, shapes: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[Any]:
        """Returns arrays at increasing offsets of the shared buffer."""
        done: list[Any] = []
        if not shapes:
            return done
        offset = 0
        for shape, dtype in shapes:
            size = math.prod(shape) * dtype.itemsize
            bytes_ = _TINY if self._memory is None else self._memory[offset : offset + size]
            done.append(bytes_.view(dtype).reshape(shape))
            offset += -(-size // 64) * 64  # a cache line each, as _bytes counts
        return done


def _bytes(shapes: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> int:
    # A cache line each, as `Workspace.arrays` lays them, so that no two arrays of a tile share one.
    return sum([-(-math.prod(s) * d.itemsize // 64) * 64 for s, d in shapes])


class Block(Protocol):
    """An array in a foreign block, whose memory one step brings along and another is the last to read."""

    def free(self) -> None:
        """Drops the memory, under this name and those of its views; the next run brings new memory."""


class BlockMemory(Protocol):
    """The memory of the arrays in one foreign block.

    Attributes:
        fixed: Whether it has the address that it had in the last run: a graph that was captured writes it there.
    """

    fixed: bool

    def hold(self) -> Any:
        """Returns what :meth:`put_back` takes; ``None`` while the block has no memory."""

    def put_back(self, held: Any) -> None:
        """Gives the block memory that a captured graph wrote."""


class Watched(Protocol):
    """What was seen of a library's memory.

    Attributes:
        most_bytes: The most bytes of it that were there at one time.
    """

    most_bytes: int


Watch = Callable[[], AbstractContextManager[Watched]]
"""Makes a block in which the memory that the device's library allocates is seen."""


Span = tuple[int, int]
"""Addresses: first byte, byte after the last."""


def spans_of(values: Any) -> list[Span]:
    """Returns the memory of arrays and lists of arrays; adjacent spans are merged.

    Raises:
        TypeError: If a value is neither, so that its memory is not known.
    """
    found: list[Span] = []
    for value in values:
        if isinstance(value, np.ndarray):
            if value.size:
                # Most arrays have no gaps: numpy's own function takes four times as long for them.
                low: int = value.__array_interface__["data"][0]
                found.append((low, low + value.nbytes) if value.flags.c_contiguous else byte_bounds(value))
        elif isinstance(value, list) and value:
            found.extend(spans_of(value))
        elif value is not None:
            raise TypeError(type(value).__name__)
    # Fewer spans: every pair of two steps' spans is compared when steps are chained.
    found.sort()
    joined = found[:1]
    for low, high in found[1:]:
        if low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


class BoundStep:
    """One step, ready to be bound to a thread's workspace: tiles run in any order on any thread, ``after`` last.

    Attributes:
        after_spans: The memory that ``after`` reads and writes.
        own_bytes: Bytes of arrays that only this step has: partial results of tiles.
        beside: Tells how many bytes the device's library was seen to hold beside the results while the step ran; ``None`` where
            nothing is seen.
        on_host: Why the host takes part in the work, on a device whose work runs late; empty where it does not.
    """

    def __init__(self) -> None:
        self.tile_binders: list[
            tuple[Callable[[list[Any]], list[Call]], list[tuple[tuple[int, ...], np.dtype[Any]]]]
        ] = []
        # Sums of partial results: they read what all tiles wrote, so no tile may follow them.
        self.after: list[Call] = []
        # What each tile reads and writes; None if it is not known.
        self.accesses: list[tuple[Any, Any]] | None = []
        self.after_spans: list[Span] = []
        self.own_bytes = 0
        self.beside: Callable[[], int] | None = None
        self.on_host = ""

    def add(
        self,
        maker: Callable[[list[Any]], list[Call]],
        scratch: Sequence[tuple[tuple[int, ...], np.dtype[Any]]] = (),
        reads: Any = (),
        writes: Any = (),
    ) -> None:
        """Adds a tile: a function from scratch arrays to calls, and the arrays that the calls read and write."""
        self.tile_binders.append((maker, scratch if isinstance(scratch, list) else list(scratch)))
        if self.accesses is not None:
            self.accesses.append((reads, writes))

    @cached_property
    def spans(self) -> list[tuple[list[Span], list[Span]]] | None:
        """The memory that each tile reads and writes; ``None`` if it is not known. Found when all tiles have been added."""
        if self.accesses is None:
            return None
        try:
            return [(spans_of(reads), spans_of(writes)) for reads, writes in self.accesses]
        except TypeError:
            return None

    @property
    def scratch_bytes(self) -> int:
        return max([_bytes(s) for _, s in self.tile_binders if s], default=0)

    @property
    def read_bytes(self) -> float:
        """Bytes of the arrays that the tiles read; infinite where that is not known."""
        if self.accesses is None:
            return math.inf
        arrays = (
            a for reads, _ in self.accesses for slot in reads for a in (slot if isinstance(slot, list) else [slot])
        )
        return float(sum(a.nbytes for a in arrays if a is not None))

    def bind_workspace(self, workspace: Workspace) -> list[list[Call]]:
        """Returns the calls of each tile."""
        return [maker(workspace.arrays(scratch)) for maker, scratch in self.tile_binders]

    def calls(self, workspace: Workspace) -> list[Call]:
        """Returns the calls of all tiles, one tile after another."""
        found: list[Call] = []
        for maker, scratch in self.tile_binders:
            found += maker(workspace.arrays(scratch) if scratch else [])
        return found + self.after


def of_calls(calls: list[Call], on_host: str = "") -> BoundStep:
    """Returns a step of calls whose memory is not known; ``on_host``: why the host takes part."""
    work = BoundStep()
    work.accesses = None
    work.on_host = on_host
    work.add(lambda arrays: calls)
    return work


# -------------------------------------------------------------------------------------------------------------- schedule
class Stream:
    """A queue of a device: work in one stream runs in order; work in two runs in any order that events allow."""


Spans = Sequence[Span]


@dataclass(slots=True)
class ReadyStep:
    """A step of a plan that is bound, in the form in which a device schedules it.

    Attributes:
        op: The step's op; ``None`` for a point in the order of steps that has no work: copies of feeds, the end of a region.
        stream: The stream that runs its work.
        work: Its work; ``None`` without an op.
        before: Calls in front of it: checks of the positions that it reads.
        after: Calls behind it: the search for NaN.
        reads, writes: The memory that it accesses beside its values; ``None``: all earlier steps come before it, all later ones
            behind.
        split: Why it cannot be part of a graph; empty if it can.
    """

    op: FrozenOp | None
    stream: Stream
    work: BoundStep | None = None
    before: Sequence[Call] = ()
    after: Sequence[Call] = ()
    reads: Spans | None = ()
    writes: Spans | None = ()
    split: str = ""


@dataclass(frozen=True, slots=True)
class Region:
    """What the steps of a region share.

    Attributes:
        threads: Threads that share the work of a step; they never decide what it computes.
        workspaces: The scratch memory of each.
        streams: The session's streams; what behind the region waits for the first one.
        arrays: Value -> array.
        ordered: Whether steps run one after another, in the program's order.
        searched: Whether the host looks at the results of each step before the next one.
        behind: Calls behind all steps.
        graphs: Whether steps are captured as graphs, on a device that has them.
    """

    threads: int
    workspaces: Sequence[Workspace]
    streams: Sequence[Stream] = ()
    arrays: Mapping[str, Any] = field(default_factory=dict)
    ordered: bool = False
    searched: bool = False
    behind: Sequence[Call] = ()
    graphs: GraphMode = "auto"


class Schedule:
    """The calls of a region, in the order in which the host makes them.

    Attributes:
        calls: The calls.
        op_of_call: What tells the op of each call to :meth:`ops`.
        unbroken: Whether the host has no part in them but to make the calls.
    """

    unbroken = True

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.op_of_call: list[Any] = []

    def add(self, calls: Sequence[Call], owner: Any) -> None:
        """Adds calls of one op."""
        self.calls += calls
        self.op_of_call += [owner] * len(calls)

    def ops(self, number: int) -> list[FrozenOp]:
        """Returns the ops whose work a call does."""
        return [self.op_of_call[number]]

    def failed(self, error: Exception, number: int) -> tuple[BaseException, FrozenOp]:
        """Returns the error that a call raised, and the op whose work failed."""
        return error, self.op_of_call[number]

    def timed(self, log: RegionLog) -> Schedule:
        """Returns calls that do the same, and tell ``log`` when the work of each op began and ended."""
        raise NotImplementedError

    def free(self) -> None:
        """Frees what the device made of the calls, which are not made any more."""

    @property
    def is_launch(self) -> bool:
        """Whether the calls are the launch of one captured graph."""
        return False

    @property
    def kept_bytes(self) -> int:
        """About how many bytes the calls keep."""
        return calls_bytes(self.calls)


def calls_bytes(calls: Sequence[Call]) -> int:
    """Returns about how many bytes calls keep, those included that they make themselves, in this thread or in several."""
    total = CALL_BYTES * len(calls)
    for function, args in calls:
        # Most are numpy's own, which know of nothing.
        if type(function) is np.ufunc or function is np.copyto:
            continue
        # Of what a call refers to, where the function's owner tells it.
        known = getattr(getattr(function, "__self__", function), "kept_bytes", None)
        if known is not None:
            total += int(known(*args))
    return total
