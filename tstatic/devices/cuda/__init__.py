"""Implements NVIDIA GPUs: what differs from torch's other devices is streams, events, pinned memory, and kernels by Triton.

Work is queued in one stream for copies, one for collectives and one for everything else; what no step interrupts is captured
and launched as one graph. A run begins after what the caller queued in torch's current stream, and what the caller queues there
later waits for the run.

* ``graphs``  what was captured: torch's graphs, the pools of their memory, and their ends
* ``kernel_launch``  a launch by handle
* ``after_caller``  what comes before a run in the caller's own stream, and what behind it
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, Literal

import numpy as np

from tstatic import target
from tstatic.devices.base import (
    Array,
    ArraysByName,
    Event,
    KernelLaunch,
    Memory,
    QueuedWorkError,
    RunByName,
    StreamSet,
)
from tstatic.devices.cpu.buffer import Buffer
from tstatic.devices.cpu.device import CpuDevice
from tstatic.devices.cuda.after_caller import AfterTheCaller
from tstatic.devices.cuda.graphs import CudaGraphs, CudaStream
from tstatic.devices.cuda.kernel_launch import KernelLaunching
from tstatic.devices.refusals import LaunchTooLargeError, Refusals
from tstatic.devices.region_log import RegionLog
from tstatic.devices.step import (
    BoundStep,
    HostArray,
    ReadyStep,
    Region,
    Schedule,
    Stream,
    Workspace,
    of_calls,
)
from tstatic.devices.torch.device import TorchArray, TorchDevice, tensors
from tstatic.devices.torch.forms import torch_form
from tstatic.devices.torch.host_copies import HostCopies, HostValues
from tstatic.devices.torch.kernels import TorchKernels, sees_gpus
from tstatic.errors import DeviceError
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.indices import Limits
from tstatic.ir.recording import Call
from tstatic.ir.traits import Waits
from tstatic.locks import cached_property, rlock
from tstatic.records import Machine, Recorder

_CPU = CpuDevice()
_REFERENCE = "its reference runs on the host"


class _OfThread(threading.local):
    """What each thread has of a GPU.

    Attributes:
        sets: Replica -> its streams.
        inside: The stream whose block the thread is in.
    """

    def __init__(self) -> None:
        self.sets: dict[int, StreamSet] = {}
        self.inside: CudaStream | None = None


class CudaEvent(Event):
    """An event of torch that has a time once it was reached."""

    def __init__(self, mark: Any) -> None:
        super().__init__()
        self.mark = mark
        self.recorded = False


class PinnedBuffer(Buffer):
    """Host memory that the GPU copies from and to while the host continues."""

    def __init__(self, pinned: Any, nbytes: int, purpose: str) -> None:
        super().__init__(0, purpose)
        # Kept, because the array does not own its memory.
        self._tensor = pinned
        self.array = pinned.numpy()[:nbytes]

    @property
    def can_release(self) -> bool:
        """Pinned pages stay."""
        return False


class CudaDevice(CudaGraphs, TorchDevice):
    """One GPU.

    Args:
        index: Its number among those that are visible.
        place: torch's name of it, if it is another one (for tests).
        cuda: What stands in for ``torch.cuda`` (for tests); generated kernels are then not launched.
    """

    compute_streams = 1
    gives_tensors = True

    def __init__(self, index: int = 0, place: str = "", cuda: Any = None) -> None:
        super().__init__("gpu" if not index else f"gpu:{index}", place or f"cuda:{index}", generated=cuda is None)
        self.exclusive = False
        # Until the GPU tells its own facts (`begin`).
        self.target = target.DEFAULT_TARGET
        self.index = index
        self._cuda = cuda
        self._kernels: TorchKernels | None = None
        self._mine = _OfThread()
        self.refusals = Refusals()

    @cached_property
    def cuda(self) -> Any:
        """``torch.cuda``, or what tests put in its place."""
        return self._cuda or self.torch.cuda

    def compiling(self) -> contextlib.AbstractContextManager[Any] | None:
        # torch's current device is the one that Triton asks for its architecture.
        return self.inside(self.streams().streams[0]) if self.generated else None

    def begin(self) -> None:
        self.cuda.init()
        self.target = target.of_properties(self.cuda.get_device_properties(self.index))

    def current(self) -> Any:
        return self.cuda.current_stream(self.index)

    @property
    def identity(self) -> str:
        """What tells this GPU from the others of the machine, whatever numbers processes give them."""
        found = getattr(self.cuda.get_device_properties(self.index), "uuid", None)
        return f"GPU {self.index} of {os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}" if found is None else str(found)

    def _tensor(self, value: Any) -> Any:
        """Returns a tensor of an array: of the device, or of the host without a copy."""
        return value.tensor if isinstance(value, TorchArray) else self.wrap(np.asarray(value)).tensor

    def accept(self, value: Any) -> TorchArray | None:
        if not isinstance(value, self.torch.Tensor):
            where = getattr(value, "__dlpack_device__", None)
            # kDLCUDA of dlpack.h.
            if where is None or where() != (2, self.index):
                return None
            value = self.torch.from_dlpack(value)
        strided = value.layout == self.torch.strided and not value.is_meta
        if not strided or value.device != self.torch.device(self.place) or not self.knows(value.dtype):
            return None
        return TorchArray(self, value.detach())

    # ------------------------------------------------------------------------------------------------------------ memory
    def _pinned(self, nbytes: int, purpose: str) -> Memory:
        memory = self.torch.zeros(max(nbytes, 1), dtype=self.torch.uint8)
        return PinnedBuffer(memory.pin_memory() if self._cuda is None else memory, nbytes, purpose)

    def library_bytes(self) -> int:
        # Of cuBLAS, in one compute stream: torch allocates it like tensors.
        return cublas_bytes(self.target.architecture) if self._cuda is None else 0

    # ------------------------------------------------------------------------------------------------------------ copies
    def _put(self, stream: Stream | None, work: Callable[[], Any]) -> None:
        """Queues work in a stream; without one, does it after all other work and waits."""
        if stream is None:
            # torch's current stream, in which this runs, is ordered with none of ours: so theirs ends first, and this before the
            # caller goes on.
            self.synchronize()
            work()
            self.current().synchronize()
            return
        assert isinstance(stream, CudaStream)
        if self._mine.inside is stream:
            work()
            return
        with self.cuda.stream(stream.queue):
            work()

    @contextlib.contextmanager
    def inside(self, stream: Stream) -> Iterator[None]:
        assert isinstance(stream, CudaStream)
        # torch's own block costs 3 us: once for all calls in a row that name the stream.
        with self.cuda.stream(stream.queue):
            before, self._mine.inside = self._mine.inside, stream
            try:
                yield
            finally:
                self._mine.inside = before

    def copy(self, destination: Array, source: Array, stream: Stream | None = None) -> None:
        to, of = self._tensor(destination), self._tensor(source)
        # Without a stream the caller may change pinned memory as soon as this returns, so only a copy in a stream goes on beside
        # it.
        self._put(stream, lambda: to.copy_(of, non_blocking=stream is not None))

    def copying(self, destination: Array, source: Array, stream: Stream) -> Call:
        to, of = self._tensor(destination), self._tensor(source)
        return self._put, (stream, functools.partial(to.copy_, of, non_blocking=True))

    def fill(self, destination: TorchArray, value: complex, stream: Stream | None = None) -> None:
        self._put(stream, lambda: destination.tensor.fill_(value))

    def to_host(self, array: TorchArray, stream: Stream | None = None) -> HostArray:
        # The copy below runs in torch's current stream, which would not wait for ours.
        self.synchronize(None if stream is None else [stream])
        found: HostArray = np.empty(array.shape, array.dtype)
        self._tensor(found).copy_(array.tensor)
        return found

    def from_host(self, destination: TorchArray, source: HostArray, stream: Stream | None = None) -> None:
        # A copy from pageable memory has read it when the call returns, so the caller may change it.
        given = self._tensor(np.ascontiguousarray(source, destination.dtype).reshape(destination.shape))
        self._put(stream, lambda: destination.tensor.copy_(given))

    def upload(self, array: HostArray) -> TorchArray:
        made = self.empty(array.shape, array.dtype)
        self.from_host(made, array)
        return made

    def assigning(self, destination: TorchArray, source: HostArray) -> Call:
        # Work that is queued may still read or write the variable; and the upload is made now, since it may fail for want of
        # memory.
        self.synchronize()
        # numpy's contiguous copy of an array without axes has one.
        given = self._tensor(np.ascontiguousarray(source, destination.dtype).reshape(destination.shape)).to(self.place)
        # One call of torch's library writes all: no signal handler runs in the middle of it.
        return destination.tensor.copy_, (given,)

    # ------------------------------------------------------------------------------------------------------------- order
    def stream(self, collective: bool = False) -> CudaStream:
        # Values that other GPUs wait for go before the work of this one that nobody waits for.
        made = CudaStream(self.cuda.Stream(self.index, priority=-1 if collective else 0))
        # torch hands out memory that work in its current stream may still use: it orders that stream alone.
        made.queue.wait_stream(self.current())
        return made

    def streams(self, replica: int = 0) -> StreamSet:
        # torch hands out 32 queues in turn: with streams of its own for each session, the eleventh program would share queues with
        # the first, and whoever runs twenty of them would wait for sixty streams.
        found = self._mine.sets.get(replica)
        if found is None:
            made: list[Stream] = [self.stream() for _ in range(2 + self.compute_streams)]
            found = self._mine.sets[replica] = StreamSet(made, rlock())
        return found

    def event(self) -> CudaEvent:
        # Timed, because the `steps` log asks for the seconds of every run (`elapsed`).
        return CudaEvent(self.cuda.Event(enable_timing=True))

    def record(self, event: Event, stream: Stream) -> None:
        assert isinstance(event, CudaEvent)
        assert isinstance(stream, CudaStream)
        event.mark.record(stream.queue)
        event.recorded = True

    def wait(self, event: Event, stream: Stream) -> None:
        assert isinstance(event, CudaEvent)
        assert isinstance(stream, CudaStream)
        # As CUDA itself has it: a wait for an event that was never recorded holds nobody up.
        if event.recorded:
            stream.queue.wait_event(event.mark)

    def synchronize(self, streams: Sequence[Stream] | None = None) -> None:
        try:
            if streams is None:
                self.cuda.synchronize(self.index)
            for one in streams or ():
                assert isinstance(one, CudaStream)
                one.queue.synchronize()
        except RuntimeError as error:  # torch's own: an error of work that was queued before
            # No op: CUDA tells of an error at some later call, so whose it was cannot be known here.
            raise QueuedWorkError(None) from error

    def finish(self, event: Event) -> None:
        assert isinstance(event, CudaEvent)
        try:
            event.mark.synchronize()
        except RuntimeError as error:
            raise QueuedWorkError(None) from error

    def reached(self, event: Event) -> bool:
        assert isinstance(event, CudaEvent)
        try:
            return bool(event.mark.query())
        except RuntimeError:
            # An error of the work, which whoever waits for it is told.
            return True

    def elapsed(self, start: Event, stop: Event) -> float:
        assert isinstance(start, CudaEvent)
        assert isinstance(stop, CudaEvent)
        return float(start.mark.elapsed_time(stop.mark)) / 1e3

    # --------------------------------------------------------------------------------------------------------- recording
    def start_recording(self, recorder: Recorder) -> None:
        if self._kernels is not None and self._kernels.recorder is recorder:
            return
        # Dropped before the new one starts: torch has one profiler, and one that failed to start must leave none.
        self._kernels = None
        if recorder.kernels and sees_gpus(self.torch):
            # While the user's own profiler of torch records, there is no second one; `machine` says what times are of.
            with contextlib.suppress(RuntimeError):
                self._kernels = TorchKernels(self.torch, recorder, self.name)

    def timed(self, op: FrozenOp, calls: Sequence[Call], stream: Stream, log: RegionLog) -> list[Call]:
        bracketed = super().timed(op, calls, stream, log)
        ours = self._kernels is not None and self._kernels.recorder is log.recorder
        return self._kernels.ranged(op, bracketed) if ours and self._kernels is not None else bracketed

    def machine(self, threads: int) -> Machine:
        found = super().machine(threads)
        kernels = (
            "kernels by torch's profiler" if self._kernels is not None else "kernels as the operators they compute"
        )
        return found._replace(clock=f"{found.clock}; {kernels}")

    # -------------------------------------------------------------------------------------------------------------- work
    def settings(
        self, threads: int, streams: Sequence[StreamSet] = ()
    ) -> Callable[[bool], contextlib.AbstractContextManager[None]]:
        made = super().settings(threads)
        queues = list(dict.fromkeys(_queue(one) for of_thread in streams for one in of_thread.streams))
        return lambda launches: AfterTheCaller(self, streams, queues, None if launches else made(False))

    def check_not_capturing(self) -> None:
        """Refuses a run inside of a capture of the caller's own.

        Raises:
            DeviceError: If the caller's stream captures.
        """
        if self.cuda.is_current_stream_capturing():
            raise DeviceError(
                "a run cannot be part of a CUDA graph that the caller captures: it waits for the device",
                expected="a run outside of torch.cuda.graph",
                received="a stream of torch that captures",
                fix="run the program outside; it captures its own graphs (FLAGS_cuda_graph)",
            )

    def bind(
        self,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        reserved: Mapping[str, Any],
        stream: Stream,
        scratch: Array | None = None,
    ) -> BoundStep:
        work = super().bind(op, ins, outs, reserved, stream, scratch)
        put = (self._put, (stream, functools.partial(_run, _calls_of(work), op, stream)))
        made = of_calls([put], work.on_host)
        made.beside = work.beside
        return made

    def block_use(self, op: FrozenOp) -> Literal["", "finds", "makes"]:
        if op.body:
            # Launches ask their tensors for addresses each time.
            return "finds" if self.generated else ""
        # Its work is the host's, on copies, where its size depends on values.
        use = "" if op.definition.dynamic is not None else super().block_use(op)
        # A graph finds what others wrote where it was when it was captured; what ends a graph brings new memory each time.
        return "finds" if use == "makes" and op.definition.has(Waits) else use

    def any_nonzero(self, words: TorchArray, found: TorchArray, stream: Stream) -> list[Call]:
        return [(self._put, (stream, lambda: self.torch.any(words.tensor, out=found.tensor.view(()))))]

    def bind_unless(
        self,
        skip: TorchArray,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        stream: Stream,
        scratch: Array | None = None,
    ) -> BoundStep:
        flag, form = skip.tensor.view(()), None if op.body else torch_form(op.definition)
        if form is not None:
            call = form.bind_tensors(
                self.torch, self.place, op, [tensors(a) for a in ins], [tensors(a) for a in outs], list, skip=flag
            )
            return of_calls(
                [] if call is None else [(self._put, (stream, functools.partial(_run, [call], op, stream)))]
            )
        # The host waits for the stream in any case.
        calls = _calls_of(self.bind_reference(op, ins, outs, {}, stream))
        return of_calls(
            [(lambda: None if self.to_host(skip, stream).item() else _run(calls, op, stream), ())], _REFERENCE
        )

    def copy_unless(self, skip: TorchArray, destination: TorchArray, source: TorchArray, stream: Stream) -> None:
        to, of, flag = destination.tensor, source.tensor, skip.tensor.view(())
        self._put(stream, lambda: self.torch.where(flag, to, of, out=to))

    def count_unless(self, skip: TorchArray | None, counter: TorchArray, stream: Stream) -> None:
        number = counter.tensor
        if skip is None:
            self._put(stream, lambda: number.add_(1))
        else:
            self._put(stream, lambda: number.add_(skip.tensor.logical_not()))

    def bind_reference(
        self, op: FrozenOp, ins: Sequence[Any], outs: Sequence[Any], reserved: Mapping[str, Any], stream: Stream
    ) -> BoundStep:
        # The reference works on copies of the host, which are made once; the host waits for the stream whenever it runs.
        copies = HostCopies(self, stream)
        inputs, outputs = [copies.of(a, read=True) for a in ins], [copies.of(a, read=False) for a in outs]
        step = _CPU.bind(op, inputs, outputs, reserved, stream)
        return of_calls([(copies.fetch, ()), *_calls_of(step), (copies.store, ())], _REFERENCE)

    def bind_dynamic(
        self, op: FrozenOp, arrays: ArraysByName, reserved: Mapping[str, Any], run: RunByName, stream: Stream
    ) -> BoundStep:
        only_shape = frozenset(op.reads()).difference(op.contents())

        def work() -> None:
            # `run` reads sizes and values on the host, so what makes them must have ended.
            self.synchronize([stream])
            seen = HostValues(self, arrays, stream, only_shape)
            run(op, seen, reserved)
            seen.store(op.writes())

        return of_calls([(_run, ([(work, ())], op, stream))], "its size depends on values")

    def launch(
        self, module: ModuleType, launches: Sequence[KernelLaunch], arrays: Mapping[str, Array], stream: Stream
    ) -> list[Call]:
        flat: dict[str, Any] = {}
        calls: list[Call] = []
        for function, grid, arguments, constants, options in launches:
            values = []
            for a in arguments:
                if isinstance(a, str) and a not in flat:
                    flat[a] = self._flat(arrays[a])
                values.append(flat[a] if isinstance(a, str) else a)
            assert isinstance(stream, CudaStream)
            named = {**constants, **options}
            launching = KernelLaunching(getattr(module, function), grid, values, named, stream.queue, self._scratch)
            # Before anything of a run is queued: then another way can be taken.
            with self.cuda.stream(stream.queue):
                reason = launching.prepare()
            if reason:
                raise LaunchTooLargeError((function, grid, arguments, constants, options), reason)
            calls.append((self._put, (stream, launching)))
        return calls

    def _flat(self, array: TorchArray) -> Any:
        """Returns a tensor of one axis in the memory of an array, wherever that lies in each run."""
        return self._within(array, lambda tensor: tensor.view(-1)).tensor

    def _scratch(self, nbytes: int, alignment: int, stream: int | None) -> Any:
        # torch gives it to later work of the same stream only, so it lasts as long as the kernel runs.
        return self.torch.empty(nbytes, dtype=self.torch.uint8, device=self.place)

    def schedule(self, steps: Sequence[ReadyStep], region: Region) -> Schedule:
        if os.environ.get("TSTATIC_DEBUG", "0") not in ("", "0"):
            # A fault of a kernel is told at some later call: only a wait behind each step says whose it was.
            steps = [
                replace(one, after=[*one.after, (self._end_now, (one.op, one.stream))]) if one.op is not None else one
                for one in steps
            ]
        return super().schedule(steps, region)

    def _end_now(self, op: FrozenOp, stream: Stream) -> None:
        """Waits for the work of an op.

        Raises:
            QueuedWorkError: If it failed; it has the op.
        """
        try:
            self.synchronize([stream])
        except QueuedWorkError as error:
            raise QueuedWorkError(op, stream) from error.__cause__

    # ------------------------------------------------------------------------------------------------------------ graphs
    def splits(self, op: FrozenOp, sized: bool = True) -> str:
        # What waits in the middle of its form.
        waits = "" if op.body else op.definition.why(Waits)
        return super().splits(op, sized) or waits or self._no_graphs

    @cached_property
    def _no_graphs(self) -> str:
        """Why this process captures none; empty if it does."""
        asked = next(
            (name for name in ("TSTATIC_DEBUG", "CUDA_LAUNCH_BLOCKING") if os.environ.get(name, "0") not in ("", "0")),
            "",
        )
        if asked:
            return f"{asked} asks for a wait behind each step"
        if "compute-sanitizer" in os.environ.get("CUDA_INJECTION64_PATH", "") or os.environ.get(
            "NV_SANITIZER_INJECTION_PORT_BASE"
        ):
            return "a sanitizer watches each launch"
        return ""

    # ------------------------------------------------------------------------------------------------------------ errors
    def limit(
        self, source: TorchArray, limits: Limits, kept: TorchArray, safe: TorchArray, wrong: TorchArray, stream: Stream
    ) -> list[Call]:
        return [(self._put, (stream, self.limiting(source, limits, kept, safe, wrong)))]

    def check_finite(self, arrays: Sequence[TorchArray], stream: Stream | None = None) -> TorchArray:
        counts = self.empty((len(arrays),), np.dtype(np.int64))

        def count() -> None:
            for i, a in enumerate(arrays):
                counts.tensor[i] = a.size - self.torch.isfinite(a.tensor).sum()

        self._put(stream, count)
        return counts


def cublas_bytes(architecture: str) -> int:
    """Returns the bytes of the workspace that torch gives cuBLAS in each stream, as ``CUBLAS_WORKSPACE_CONFIG`` has it."""
    # KiB and how often, one pair behind the other: ":4096:2:16:8".
    given = re.findall(r":([0-9]+):([0-9]+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if given:
        return sum(int(size) * int(count) for size, count in given) << 10
    return 4096 * 8 << 10 if architecture in ("sm_90", "sm_100", "sm_103") else (4096 * 2 + 16 * 8) << 10


def _queue(stream: Stream) -> Any:
    assert isinstance(stream, CudaStream)
    return stream.queue


def _calls_of(step: BoundStep) -> list[Call]:
    workspace = Workspace()
    workspace.reserve(step.scratch_bytes)
    workspace.allocate()
    return step.calls(workspace)


def _run(calls: Sequence[Call], op: FrozenOp, stream: Stream) -> None:
    # An error says whose it is: calls of many ops are replayed as one.
    try:
        for function, args in calls:
            function(*args)
    except QueuedWorkError:
        raise
    except Exception as error:
        raise QueuedWorkError(op, stream) from error


@functools.cache
def device(index: int) -> CudaDevice:
    """Returns the GPU of a number."""
    made = CudaDevice(index)
    made.begin()
    return made
