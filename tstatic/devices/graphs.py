"""Replays steps between interruptions as one graph: called in the first run, captured in the second, launched ever after."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tstatic.devices.base import Device, Graph, QueuedWorkError
from tstatic.devices.step import BlockMemory, Stream
from tstatic.flags import GraphMode
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.recording import Call
from tstatic.logs import warn_once


class CapturingDevice(Device):
    """A device that can record what is put into its streams, and launch it as one."""

    must_capture: ClassVar[bool] = False
    """Whether an error while a graph is captured is an error of the run: on a device that checks its own rules."""

    def inside(self, stream: Stream) -> contextlib.AbstractContextManager[None]:
        """Returns a block whose work the device's library puts into a stream, so that calls need not name it one by one."""
        return contextlib.nullcontext()

    def begin_capture(self, streams: Sequence[Stream]) -> Any:
        """Starts to record what is put into the streams, beginning with the first one, instead of running it.

        Returns:
            What :meth:`end_capture` and :meth:`abandon_capture` are told.
        """
        raise NotImplementedError(f"the device '{self.name}' has no graphs")

    def end_capture(self, token: Any) -> Any:
        """Ends a capture; returns the graph as :meth:`launch_graph` takes it."""
        raise NotImplementedError(f"the device '{self.name}' has no graphs")

    def abandon_capture(self, token: Any) -> None:
        """Ends a capture in which something failed, and drops what was recorded."""
        raise NotImplementedError(f"the device '{self.name}' has no graphs")

    def launch_graph(self, made: Any, stream: Stream) -> None:
        """Puts a captured graph into a stream."""
        raise NotImplementedError(f"the device '{self.name}' has no graphs")

    def drop_graph(self, made: Any, stream: Stream) -> None:
        """Destroys a captured graph, once what was launched in the stream has ended."""


class GraphBlocks(NamedTuple):
    """The foreign blocks of a graph's calls, whose memory each run brings anew while the calls are made.

    What a graph was captured with lies where it lay then. So a graph is captured only if other graphs wrote what it reads, and a
    launch gives the blocks that it wrote, and that calls behind it read, the memory that they had at the end of the capture.

    Attributes:
        read: Those that others write.
        written: Those that its own calls write first.
    """

    read: Sequence[BlockMemory] = ()
    written: Sequence[BlockMemory] = ()

    @property
    def can_capture(self) -> bool:
        """Whether what others write lies where it will lie in each later run."""
        return all(one.fixed for one in self.read)

    def held(self) -> list[tuple[BlockMemory, Any]]:
        """Returns the blocks that have memory now, and the memory."""
        found = [(one, one.hold()) for one in (*self.read, *self.written)]
        return [(one, memory) for one, memory in found if memory is not None]


class LateGraph(Graph):
    """Calls that put work into streams, and what the device makes of them when it captures them.

    A capture needs what the first run makes: kernels that are loaded, handles of libraries and their workspaces. So the first
    replay makes the calls as they are, and the second one captures them. All work begins behind that of the first stream, and
    the first stream waits for all of it, whether it is called or launched.

    Args:
        device: The device.
        calls: The calls.
        ops: The op of each call; ``None`` for one that belongs to none.
        streams: The streams that the calls name; the first one launches the graph.
        mode: Whether it is captured at all, and whether the captured graph is compared with the calls once.
        arrays: The values that the calls read and write, which are compared.
        blocks: The foreign blocks among them.

    Attributes:
        refused: Why the device could not capture the calls; empty until it has tried.
        captured: Whether a replay is a launch.
    """

    def __init__(
        self,
        device: CapturingDevice,
        calls: Sequence[Call],
        ops: Sequence[FrozenOp | None],
        streams: Sequence[Stream],
        mode: GraphMode = "auto",
        arrays: Mapping[str, Any] | None = None,
        blocks: GraphBlocks = GraphBlocks(),  # noqa: B008 - a tuple
    ) -> None:
        super().__init__(calls)
        self._device = device
        self._first, *self._others = streams
        self._mode = mode
        self._arrays = dict(arrays or {}) if mode == "check" else {}
        self._turns = list(_in_turns(calls, ops))
        self._blocks = blocks
        self._left: list[tuple[BlockMemory, Any]] = []
        self._forked = device.event() if self._others else None
        self._joined = [device.event() for _ in self._others]
        self._ran = False
        self._made: Any = None
        self.refused = ""

    @property
    def captured(self) -> bool:
        return self._made is not None

    def replay(self) -> None:
        """Does the work of all calls once.

        Raises:
            QueuedWorkError: If a call failed; it has the call's op.
        """
        if self._made is not None:
            self._launch()
        elif self._mode == "off" or not self._ran or self.refused or not self._blocks.can_capture:
            self._call()
            self._ran = True
        elif self._mode == "check":
            self._check()
        else:
            self._capture()

    def _call(self) -> None:
        """Makes the calls, between the points at which the streams part and meet again."""
        device = self._device
        self._fork()
        for stream, calls in self._turns:
            with contextlib.nullcontext() if stream is None else device.inside(stream):
                for (function, args), op in calls:
                    try:
                        function(*args)
                    except QueuedWorkError:
                        raise
                    except Exception as error:
                        raise QueuedWorkError(op) from error
        self._join()

    def _fork(self) -> None:
        if self._forked is not None:
            self._device.record(self._forked, self._first)
            for one in self._others:
                self._device.wait(self._forked, one)

    def _join(self) -> None:
        for event, one in zip(self._joined, self._others, strict=True):
            self._device.record(event, one)
            self._device.wait(event, self._first)

    def _launch(self) -> None:
        self._device.launch_graph(self._made, self._first)
        for block, memory in self._left:
            block.put_back(memory)

    def free(self) -> None:
        """Destroys what was captured; nothing is replayed afterwards."""
        made, self._made, self._left = self._made, None, []
        if made is not None:
            self._device.drop_graph(made, self._first)

    def _capture(self) -> None:
        device = self._device
        held = self._blocks.held()
        try:
            with _capturing(device, [self._first, *self._others]) as made:
                self._call()
        except Exception as error:
            if device.must_capture:
                raise
            # Nothing ran: the calls do the work of this run and of all later ones, on what the broken capture had freed already.
            for block, memory in held:
                block.put_back(memory)
            op = error.op if isinstance(error, QueuedWorkError) else None
            self.refused = f"{type(error.__cause__ or error).__name__}: {error.__cause__ or error}"
            named = "" if op is None else f" (at operator '{op.type}')"
            warn_once(
                ("graph refused", device.name, self.refused),
                f"the device '{device.name}' could not capture a graph{named}, so steps are launched one by one: {self.refused}",
                topic="steps",
            )
            self._call()
            return
        self._made = made[0]
        written = {id(one) for one in self._blocks.written}
        self._left = [(one, memory) for one, memory in self._blocks.held() if id(one) in written]
        self._launch()

    def _check(self) -> None:
        """Makes the calls and launches the graph from the same values, and compares what both leave, bit by bit."""
        device = self._device
        before, held = self._values(), self._blocks.held()
        self._call()
        called = self._values()
        for block, memory in held:
            block.put_back(memory)
        self._write(before)
        self._capture()
        launched = self._values()
        differ = [name for name, value in called.items() if value.tobytes() != launched[name].tobytes()]
        if not differ:
            return
        self.free()
        for block in self._blocks.written:
            block.fixed = False
        self.refused = f"the captured graph left other bits than its calls in {', '.join(differ[:6])}"
        warn_once(
            ("graph differs", device.name, self.refused),
            f"on the device '{device.name}' {self.refused}; steps are launched one by one",
            topic="steps",
        )
        self._write(called)

    def _values(self) -> dict[str, np.ndarray[Any, Any]]:
        """Returns the values that have memory now."""
        there = {name: array for name, array in self._arrays.items() if self._has_memory(array)}
        return {name: self._device.to_host(array, self._first) for name, array in there.items()}

    def _write(self, values: Mapping[str, np.ndarray[Any, Any]]) -> None:
        # Truth values first: their copies may hold 1 for any other byte, and the memory may have been another value's.
        for name, value in sorted(values.items(), key=lambda one: one[1].dtype.kind != "b"):
            if self._has_memory(self._arrays[name]):
                self._device.from_host(self._arrays[name], value, self._first)

    def _has_memory(self, array: Any) -> bool:
        block = self._device.block_memory(array)
        return block is None or block.hold() is not None


@contextlib.contextmanager
def _capturing(device: CapturingDevice, streams: Sequence[Stream]) -> Iterator[list[Any]]:
    """Captures what is put into the streams; what the device made of it stands in the list behind the block.

    An error within the block, an interrupt included, ends the capture and drops it.
    """
    made: list[Any] = []
    # The collector may run finalizers of the user's that ask the device for something.
    collects = gc.isenabled()
    gc.disable()
    try:
        token = device.begin_capture(streams)
        try:
            yield made
        except BaseException:
            device.abandon_capture(token)
            raise
        made.append(device.end_capture(token))
    finally:
        if collects:
            gc.enable()


def _in_turns(
    calls: Sequence[Call], ops: Sequence[FrozenOp | None]
) -> Iterator[tuple[Stream | None, list[tuple[Call, FrozenOp | None]]]]:
    """Yields the calls in a row that name one stream; those that name none, which free memory, join those before them."""
    part: list[tuple[Call, FrozenOp | None]] = []
    current: Stream | None = None
    for call, op in zip(calls, ops, strict=True):
        stream = _stream_of(call) or current
        if stream is not current and part:
            yield current, part
            part = []
        current = stream
        part.append((call, op))
    if part:
        yield current, part


def _stream_of(call: Call) -> Stream | None:
    """Returns the stream that a call names."""
    return next((one for one in call[1] if isinstance(one, Stream)), None)


__all__ = ["CapturingDevice", "GraphBlocks", "LateGraph"]
