"""Replays steps between interruptions as one graph: called in the first run, captured in the second, launched ever after."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from tstatic.devices.base import Device, Graph, QueuedWorkError
from tstatic.devices.step import Stream
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.recording import Call
from tstatic.logs import warn_once

GraphMode = Literal["auto", "off", "check"]
"""What ``FLAGS_cuda_graph`` may be."""


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
    ) -> None:
        super().__init__(calls)
        self._device = device
        self._first, *self._others = streams
        self._mode = mode
        self._arrays = dict(arrays or {}) if mode == "check" else {}
        self._turns = [
            (stream, [(call, op) for _, call, op in part])
            for stream, part in itertools.groupby(
                ((_stream_of(call), call, op) for call, op in zip(calls, ops, strict=True)), key=lambda one: one[0]
            )
        ]
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
            self._device.launch_graph(self._made, self._first)
        elif self._mode == "off" or not self._ran or self.refused:
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

    def _capture(self) -> None:
        device = self._device
        try:
            with _capturing(device, [self._first, *self._others]) as made:
                self._call()
        except Exception as error:
            if device.must_capture:
                raise
            # Nothing ran: the calls do the work of this run and of all later ones.
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
        device.launch_graph(self._made, self._first)

    def _check(self) -> None:
        """Makes the calls and launches the graph from the same values, and compares what both leave, bit by bit."""
        device = self._device
        before = self._values()
        self._call()
        called = self._values()
        self._write(before)
        self._capture()
        launched = self._values()
        differ = [name for name, value in called.items() if value.tobytes() != launched[name].tobytes()]
        if not differ:
            return
        self._made = None
        self.refused = f"the captured graph left other bits than its calls in {', '.join(differ[:6])}"
        warn_once(
            ("graph differs", device.name, self.refused),
            f"on the device '{device.name}' {self.refused}; steps are launched one by one",
            topic="steps",
        )
        self._write(called)

    def _values(self) -> dict[str, np.ndarray[Any, Any]]:
        return {name: self._device.to_host(array, self._first) for name, array in self._arrays.items()}

    def _write(self, values: Mapping[str, np.ndarray[Any, Any]]) -> None:
        # Truth values first: their copies may hold 1 for any other byte, and the memory may have been another value's.
        for name, value in sorted(values.items(), key=lambda one: one[1].dtype.kind != "b"):
            self._device.from_host(self._arrays[name], value, self._first)


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


def _stream_of(call: Call) -> Stream | None:
    """Returns the stream that a call names."""
    return next((one for one in call[1] if isinstance(one, Stream)), None)


__all__ = ["CapturingDevice", "GraphMode", "LateGraph"]
