"""The least that a device with memory of its own consists of: copy this file, and put your library's calls in the place of numpy's.

Its memory is bytes that the host does not see, its calls end when their work is done, and ops run as their references. Each method
below is one that every such device defines: eighteen of memory and copies, four of binding, two of checks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tstatic import target
from tstatic.devices.base import ArraysByName, DeviceArray, KernelLaunch, Memory, MemoryKind, RunByName
from tstatic.devices.cpu.buffer import Buffer
from tstatic.devices.cpu.device import CpuDevice, prepare
from tstatic.devices.immediate import ImmediateDevice
from tstatic.devices.seen_arrays import SeenArrays
from tstatic.devices.step import BoundStep, HostArray, Stream, of_calls
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.indices import Limits
from tstatic.ir.recording import Call
from tstatic.ir.types import Meta

_CPU = CpuDevice()
_STREAM = Stream()


class SkeletonArray(DeviceArray):
    """An array of the device. ``inside`` is what a library computes on; here, an array of numpy."""

    def __init__(self, owner: SkeletonDevice, inside: HostArray) -> None:
        self.owner = owner
        self.inside = inside
        self.shape, self.dtype, self.size, self.nbytes = inside.shape, inside.dtype, inside.size, inside.nbytes


class SkeletonMemory(Buffer):
    """Memory of the device; pinned memory is the host's, a plain buffer."""


class SkeletonDevice(ImmediateDevice):
    """A device whose memory the host cannot access."""

    name = "skeleton"
    target = target.DEFAULT_TARGET

    # ------------------------------------------------------------------------------------------------------------ memory
    def allocate(self, nbytes: int, kind: MemoryKind = "device", purpose: str = "memory") -> Memory:
        return Buffer(nbytes, purpose) if kind == "pinned" else SkeletonMemory(nbytes, purpose)

    def adopt(self, array: Any) -> Memory:
        return _CPU.adopt(array)

    def view(self, memory: Memory, offset: int, meta: Meta) -> Any:
        found = _CPU.view(memory, offset, meta)
        return found if type(memory) is Buffer else SkeletonArray(self, found)

    def slice(self, array: SkeletonArray, start: int, shape: Sequence[int]) -> SkeletonArray:
        return SkeletonArray(self, _CPU.slice(array.inside, start, shape))

    def join(self, first: SkeletonArray, second: SkeletonArray) -> SkeletonArray | None:
        joined = _CPU.join(first.inside, second.inside)
        return None if joined is None else SkeletonArray(self, joined)

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> SkeletonArray:
        return SkeletonArray(self, np.empty(shape, dtype))

    def holds(self, array: Any) -> bool:
        return isinstance(array, SkeletonArray) and array.owner is self

    def derive(self, array: SkeletonArray, view: Callable[..., HostArray | None]) -> SkeletonArray:
        return SkeletonArray(self, _CPU.derive(array.inside, view))

    def contiguous(self, array: SkeletonArray) -> bool:
        return array.inside.flags.c_contiguous

    def span(self, array: SkeletonArray) -> tuple[int, int]:
        return _CPU.span(array.inside)

    # ------------------------------------------------------------------------------------------------------------ copies
    def copy(self, destination: Any, source: Any, stream: Stream | None = None) -> None:
        np.copyto(_inside(destination), _inside(source))  # one of them may be pinned memory

    def fill(self, destination: SkeletonArray, value: complex, stream: Stream | None = None) -> None:
        destination.inside[...] = value

    def to_host(self, array: SkeletonArray, stream: Stream | None = None) -> HostArray:
        return np.array(array.inside)

    def from_host(self, destination: SkeletonArray, source: HostArray, stream: Stream | None = None) -> None:
        np.copyto(destination.inside, source)

    def upload(self, array: HostArray) -> SkeletonArray:
        return SkeletonArray(self, np.array(array))

    def assigning(self, destination: SkeletonArray, source: HostArray) -> Call:
        # One call of a library, which no signal handler interrupts.
        return operator.setitem, (destination.inside, ..., source)

    def stream(self, collective: bool = False) -> Stream:
        # All work is done when a call returns, so all streams are one.
        return _STREAM

    # ----------------------------------------------------------------------------------------------------------- binding
    def bind(
        self,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        reserved: Mapping[str, Any],
        stream: Stream,
        scratch: SkeletonArray | None = None,
    ) -> BoundStep:
        return prepare(op.definition, [_inside(a) for a in ins], [_inside(a) for a in outs], op.attrs, reserved)

    def bind_dynamic(
        self, op: FrozenOp, arrays: ArraysByName, reserved: Mapping[str, Any], run: RunByName, stream: Stream
    ) -> BoundStep:
        return of_calls([(run, (op, SeenArrays(arrays, _inside, self.upload), reserved))])

    def launch(
        self, module: ModuleType, launches: Sequence[KernelLaunch], arrays: Mapping[str, Any], stream: Stream
    ) -> list[Call]:
        # With `generated = True`, fused ops run as generated kernels: this is where they are launched.
        return _CPU.launch(module, launches, arrays, stream)

    # ------------------------------------------------------------------------------------------------------------ checks
    def limit(
        self,
        source: SkeletonArray,
        limits: Limits,
        kept: SkeletonArray,
        safe: SkeletonArray,
        wrong: SkeletonArray,
        stream: Stream,
    ) -> list[Call]:
        return _CPU.limit(source.inside, limits, kept.inside, safe.inside, wrong.inside, stream)

    def check_finite(self, arrays: Sequence[SkeletonArray], stream: Stream | None = None) -> SkeletonArray:
        return SkeletonArray(self, _CPU.check_finite([a.inside for a in arrays]))


def _inside(value: Any) -> Any:
    """Returns what a library computes on, of the arrays of a slot."""
    if isinstance(value, list):
        return [_inside(one) for one in value]
    return value.inside if isinstance(value, SkeletonArray) else value


DEVICE = SkeletonDevice()
