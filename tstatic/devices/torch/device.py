"""Implements any device of torch: arrays are its tensors, ops run as their torch forms.

On the CPU the host sees the same memory. There an op without a torch form runs as its reference, on numpy views of the tensors;
so do random ops, whose numbers are the reference's. ``cuda.py`` holds what differs on a GPU.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Literal

import numpy as np

from tstatic import target
from tstatic.devices import interpret
from tstatic.devices.base import (
    ALIGNED,
    Array,
    ArraysByName,
    DeviceArray,
    KernelLaunch,
    Memory,
    MemoryKind,
    RunByName,
    StreamSet,
)
from tstatic.devices.cpu.buffer import Buffer, cannot_adopt
from tstatic.devices.cpu.device import CpuDevice
from tstatic.devices.immediate import ImmediateDevice
from tstatic.devices.seen_arrays import SeenArrays
from tstatic.devices.step import BlockMemory, BoundStep, HostArray, Stream, Watch, Workspace, of_calls
from tstatic.devices.torch.forms import Blocks, ForeignBlock, Taking, torch_form, watching
from tstatic.devices.torch.settings import Settings, keep_freed_memory
from tstatic.errors import needed_for
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.indices import Limits, index_checks
from tstatic.ir.recording import Call
from tstatic.ir.traits import SlowOnCpu
from tstatic.ir.types import DTYPES, Meta
from tstatic.records import Machine
from tstatic.shortage import is_shortage, out_of_memory

_CPU = CpuDevice()
# All work is done when a call returns, so all streams are one.
_STREAM = Stream()
_START = 256
"""Allocations begin at multiples of this many bytes: `Device.allocate` promises it, and torch gives 64 on the CPU."""


class TorchMemory:
    """Memory that torch allocated."""

    def __init__(self, torch: Any, nbytes: int, place: str, purpose: str) -> None:
        try:
            whole = torch.zeros(nbytes + _START, dtype=torch.uint8, device=place)
        except (RuntimeError, MemoryError) as error:
            if not is_shortage(error):
                raise
            raise out_of_memory(f"{purpose} on {place}", nbytes, error) from error
        start = -whole.data_ptr() % _START
        self.tensor: Any = whole[start : start + nbytes]

    @property
    def can_release(self) -> bool:
        return False

    @property
    def held_bytes(self) -> int:
        return 0 if self.tensor is None else int(self.tensor.numel())

    def touch(self) -> None:
        """Nothing is released before the memory is freed."""

    def release(self, keep: int = 0) -> None:
        """Nothing is released before the memory is freed."""

    def forget(self) -> None:
        self.tensor = None


class HostMemory(TorchMemory):
    """Memory of the host in large pages, for which torch does not ask: a buffer of the CPU, as a tensor."""

    def __init__(self, torch: Any, nbytes: int, purpose: str) -> None:
        self._buffer = Buffer(nbytes, purpose)
        self.tensor = torch.from_numpy(self._buffer.array)

    @property
    def can_release(self) -> bool:
        return self._buffer.can_release

    @property
    def held_bytes(self) -> int:
        return self._buffer.held_bytes

    def touch(self) -> None:
        self._buffer.touch()

    def release(self, keep: int = 0) -> None:
        self._buffer.release(keep)

    def forget(self) -> None:
        self.tensor = None
        self._buffer.forget()


class ForeignTensor(TorchMemory):
    """The bytes of a tensor that somebody else made, who may keep it when they are forgotten."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor.detach().view(-1).view(tensor.new_empty(0).byte().dtype)


class TorchArray(DeviceArray):
    """A tensor; the host sees its shape and dtype as those of numpy.

    Attributes:
        tensor: The tensor.
        block: The memory that one step brings along in each run; ``None`` for an array with one place for all runs.
    """

    __slots__ = ("block", "dtype", "nbytes", "owner", "shape", "size", "tensor")

    def __init__(self, owner: TorchDevice, tensor: Any, block: ForeignBlock | None = None) -> None:
        self.owner = owner
        self.tensor = tensor
        self.block = block
        self.shape = tuple(tensor.shape)
        self.dtype = owner.numpy_dtype(tensor.dtype)
        self.size = tensor.numel()
        self.nbytes = self.size * self.dtype.itemsize

    def __dlpack__(self, **options: Any) -> Any:
        """Returns torch's capsule of the tensor."""
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns DLPack's number of the device."""
        kind, index = self.tensor.__dlpack_device__()
        return int(kind), index

    def free(self) -> None:
        """Drops the memory of a block."""
        assert self.block is not None
        self.block.free()


class TorchDevice(ImmediateDevice):
    """A device of torch, as torch runs on it: calls end when their work is done, or are queued by torch itself.

    Args:
        name: The backend's name.
        place: torch's name of the device.
        generated: Run fused ops as generated kernels; otherwise as their references.
    """

    def __init__(self, name: str, place: str = "cpu", generated: bool = False) -> None:
        self.name = name
        self.place = place
        self.generated = generated
        self.exclusive = generated
        self.target = target.TINY if generated else target.DEFAULT_TARGET
        self._torch: Any = None
        self._dtypes: dict[np.dtype[Any], Any] = {}
        self._numpy: dict[Any, np.dtype[Any]] = {}
        self._settings = Settings()

    def begin(self) -> None:
        if self.generated:
            interpret.begin()
        self.torch  # noqa: B018 - imports it

    @property
    def torch(self) -> Any:
        """The module.

        Raises:
            MissingPackageError: If torch is not installed.
        """
        if self._torch is None:
            with needed_for(f"the device '{self.name}'"):
                import torch
            self._dtypes = {kind.np: getattr(torch, kind.name) for kind in DTYPES.values()}
            self._numpy = {there: here for here, there in self._dtypes.items()}
            self._torch = torch
        return self._torch

    def numpy_dtype(self, kind: Any) -> np.dtype[Any]:
        """Returns numpy's dtype of torch's."""
        return self._numpy[kind]

    def knows(self, kind: Any) -> bool:
        """Returns whether numpy has a dtype of torch's."""
        return kind in self._numpy

    def torch_dtype(self, dtype: np.dtype[Any]) -> Any:
        """Returns torch's dtype of numpy's."""
        self.torch  # noqa: B018 - makes the table
        return self._dtypes[np.dtype(dtype)]

    def check_process(self) -> None:
        """Refuses to work in a forked child.

        Raises:
            ForkedProcessError: As :meth:`tstatic.devices.torch.settings.Settings.check_process` says.
        """
        self._settings.check_process()

    # ------------------------------------------------------------------------------------------------------------ memory
    def allocate(self, nbytes: int, kind: MemoryKind = "device", purpose: str = "memory") -> Memory:
        # Before anything is allocated: in a forked child torch would wait for threads that stayed in the parent.
        self.check_process()
        if kind == "pinned":
            return self._pinned(nbytes, purpose)
        if self.place == "cpu" and not self.deferred:
            return HostMemory(self.torch, nbytes, purpose)
        return TorchMemory(self.torch, nbytes, self.place, purpose)

    def adopt(self, array: Any) -> Memory:
        torch = self.torch
        try:
            found = array if isinstance(array, torch.Tensor) else torch.from_dlpack(array)
        except (AttributeError, BufferError, RuntimeError, TypeError) as error:
            raise cannot_adopt(array, str(error)) from error
        if found.device != torch.empty(0, device=self.place).device:
            raise cannot_adopt(array, f"it is in memory of {found.device}, and not of {self.place}")
        if not found.is_contiguous():
            raise cannot_adopt(array, "its elements do not lie one behind the other")
        return ForeignTensor(found)

    def _pinned(self, nbytes: int, purpose: str) -> Memory:
        return Buffer(nbytes, purpose)

    def view(self, memory: Memory, offset: int, meta: Meta) -> Array:
        if not isinstance(memory, TorchMemory):
            return _CPU.view(memory, offset, meta)
        part = memory.tensor[offset : offset + meta.nbytes]
        return TorchArray(self, part.view(self.torch_dtype(meta.dtype.np)).view(meta.shape))

    def slice(self, array: TorchArray, start: int, shape: Sequence[int]) -> TorchArray:
        count = int(np.prod(shape, dtype=np.int64))
        return self._within(array, lambda tensor: tensor[start : start + count].view(tuple(shape)))

    def _within(self, array: TorchArray, view: Callable[[Any], Any]) -> TorchArray:
        """Returns a view of an array's tensor as an array, which a function of the tensor makes."""
        if array.block is None:
            return TorchArray(self, view(array.tensor))
        return TorchArray(self, array.block.view_of(array.tensor, view), array.block)

    def join(self, first: TorchArray, second: TorchArray) -> TorchArray | None:
        a, b = first.tensor, second.tensor
        # Blocks lie elsewhere in each run: what is adjacent now need not be so then.
        if first.block is not None or second.block is not None:
            return None
        if a.dtype != b.dtype or a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
            return None
        # A gap below ALIGNED is padding: no other value fits into it, so it may be summed along.
        gap = b.data_ptr() - a.data_ptr()
        if not first.nbytes <= gap < first.nbytes + ALIGNED or gap % a.element_size():
            return None
        return TorchArray(self, a.as_strided((gap // a.element_size() + second.size,), (1,)))

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> TorchArray:
        return TorchArray(self, self.torch.empty(tuple(shape), dtype=self.torch_dtype(dtype), device=self.place))

    def block(self, meta: Meta) -> TorchArray:
        if self.place == "cpu":
            keep_freed_memory()
        made = self.empty(meta.shape, meta.dtype.np)
        # The first result takes the place of this memory, whose pages are never touched; a GPU would give them all the same.
        if self.deferred:
            made.tensor.untyped_storage().resize_(0)
        made.block = ForeignBlock(self.torch, made.tensor)
        return made

    def watch(self) -> Watch:
        return partial(watching, self.torch)

    def block_memory(self, array: Array) -> BlockMemory | None:
        return array.block if isinstance(array, TorchArray) else None

    def holds(self, array: Array) -> bool:
        return isinstance(array, TorchArray) and array.owner is self

    def derive(self, array: TorchArray, view: Callable[..., HostArray | None]) -> TorchArray | None:
        # Functions of views are numpy's, so they see an array of the same strides, whose values nobody reads.
        tensor = array.tensor
        size = array.dtype.itemsize
        reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if array.size else 1
        strides = [s * size for s in tensor.stride()]
        like: HostArray = np.ndarray(tensor.shape, array.dtype, np.empty(reach, array.dtype), 0, strides)
        made = view(like)
        assert made is not None, "the plan took a view that the op definition does not offer"
        if made.size and min(made.strides, default=0) < 0:
            return None  # torch has no strides that go back
        offset = (made.ctypes.data - like.ctypes.data) // size if made.size else 0
        steps = [s // size for s in made.strides] if made.size else _strides(made.shape)
        # numpy gives an axis of one element any stride; torch takes arrays of other strides for others in the same memory.
        for axis in range(made.ndim - 1, -1, -1):
            if made.shape[axis] == 1:
                steps[axis] = steps[axis + 1] * made.shape[axis + 1] if axis + 1 < made.ndim else 1
        shape = made.shape
        return self._within(array, lambda one: one.as_strided(shape, steps, one.storage_offset() + offset))

    def contiguous(self, array: TorchArray) -> bool:
        return bool(array.tensor.is_contiguous())

    def span(self, array: TorchArray) -> tuple[int, int]:
        tensor = array.tensor
        if array.block is not None:
            # Whole, whatever part of it the array is: where it lies is known in a run only.
            return array.block.start, array.block.start + array.block.nbytes
        start = int(tensor.data_ptr())
        if not array.size:
            return start, start
        reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        return start, start + (reach + 1) * int(tensor.element_size())

    # ------------------------------------------------------------------------------------------------------------ copies
    def host_view(self, array: TorchArray) -> HostArray:
        """Returns a numpy array in a tensor's memory, which must be the host's."""
        tensor = array.tensor
        if array.dtype.name == "bfloat16":
            found: HostArray = tensor.view(self.torch.int16).numpy().view(array.dtype)
            return found
        made: HostArray = tensor.numpy()
        return made

    def wrap(self, array: HostArray) -> TorchArray:
        """Returns a host array as a tensor in the same memory; a copy where torch cannot have its strides."""
        # torch has neither strides that go back nor memory that may only be read.
        if not array.flags.writeable or any(s < 0 for s in array.strides):
            array = np.array(array, order="C")
        if array.dtype.name == "bfloat16":
            made = self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        else:
            made = self.torch.from_numpy(array)
        return TorchArray(self, made)

    def copy(self, destination: Array, source: Array, stream: Stream | None = None) -> None:
        np.copyto(self.inside(destination), self.inside(source))

    def fill(self, destination: TorchArray, value: complex, stream: Stream | None = None) -> None:
        self.host_view(destination)[...] = value

    def to_host(self, array: TorchArray, stream: Stream | None = None) -> HostArray:
        return np.array(self.inside(array))

    def from_host(self, destination: TorchArray, source: HostArray, stream: Stream | None = None) -> None:
        np.copyto(self.inside(destination), source)

    def upload(self, array: HostArray) -> TorchArray:
        return self.wrap(np.array(array))

    def assigning(self, destination: TorchArray, source: HostArray) -> Call:
        # A function in C, as `scope.assign` requires: no signal handler can run in the middle of it.
        return operator.setitem, (self.host_view(destination), ..., source)

    def stream(self, collective: bool = False) -> Stream:
        return _STREAM

    def inside(self, value: Any) -> Any:
        """Returns the numpy views of the arrays of a slot."""
        if isinstance(value, TorchArray):
            return self.host_view(value)
        if isinstance(value, list) and any(isinstance(one, TorchArray) for one in value):
            return type(value)(self.inside(one) for one in value)  # a tensor array stays one
        return value

    # -------------------------------------------------------------------------------------------------------------- work
    def settings(
        self, threads: int, streams: Sequence[StreamSet] = ()
    ) -> Callable[[bool], contextlib.AbstractContextManager[None]]:
        return lambda launches: self._settings.during(self.torch, threads)

    def bind(
        self,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        reserved: Mapping[str, Any],
        stream: Stream,
        scratch: Array | None = None,
    ) -> BoundStep:
        form = torch_form(op.definition)
        given = {slot.name: value for slot, value in zip(op.definition.inputs, ins, strict=True)}
        if form is None or not self.runs_in_torch(op, lambda name: given[name] is not None):
            return self.bind_reference(op, ins, outs, reserved, stream)
        # Work that runs late is checked on the device, before it (`limit`).
        checks = [] if self.deferred else self._index_checks(op, ins)

        def reference() -> list[Call]:
            step = self.bind_reference(op, ins, outs, reserved, stream)
            workspace = Workspace()
            workspace.reserve(step.scratch_bytes)
            workspace.allocate()
            return step.calls(workspace)

        # The memory of a value of which only the shape is used may be gone.
        seen = [
            self._shapes(a) if slot.name in op.definition.shape_only else tensors(a)
            for slot, a in zip(op.definition.inputs, ins, strict=True)
        ]
        made = form.bind_tensors(
            self.torch, self.place, op, seen, [tensors(a) for a in outs], reference, blocks_of(ins, outs)
        )
        if made is None:
            return self.bind_reference(op, ins, outs, reserved, stream)
        work = of_calls([*checks, made])
        if isinstance(made[0], Taking):
            work.beside = partial(getattr, made[0], "beside")
        return work

    def _shapes(self, value: Any) -> Any:
        """Returns tensors that have the shapes of those of a slot; of arrays in blocks, without their memory."""
        if isinstance(value, list):
            return [self._shapes(one) for one in value]
        if isinstance(value, TorchArray) and value.block is not None:
            return value.tensor.new_empty(()).expand(value.shape)
        return tensors(value)

    def _index_checks(self, op: FrozenOp, ins: Sequence[Any]) -> list[Call]:
        """Returns the calls that check the indices which an op reads, wherever they lie in each run."""
        only_shape = [slot.name in op.definition.shape_only for slot in op.definition.inputs]

        def found() -> list[Call]:
            seen = [shaped(a) if alone else self.inside(a) for a, alone in zip(ins, only_shape, strict=True)]
            return index_checks(op.definition, seen, op.attrs)

        checked = {one.slot for one in op.definition.indices}
        if not any(
            slot.name in checked and next(blocks_in(value), None) is not None
            for slot, value in zip(op.definition.inputs, ins, strict=True)
        ):
            return found()

        def check() -> None:
            for function, args in found():
                function(*args)

        return [(check, ())]

    def runs_in_torch(self, op: FrozenOp, given: Callable[[str], bool]) -> bool:
        """Returns whether an op, of which ``given`` says which slots hold values, runs as its torch form."""
        definition = op.definition
        if op.body or op.sub_blocks or torch_form(definition) is None:
            return False
        # The host may read what the device of the other tensors does not delay.
        if definition.has(SlowOnCpu) and self.place == "cpu" and not self.deferred:
            return False
        return not definition.host_reason_of(given)

    def block_use(self, op: FrozenOp) -> Literal["", "finds", "makes"]:
        # Work that runs late may still read a block when its last reader has been queued: in one stream, what torch allocates next
        # is written behind it; in another one perhaps not.
        several = self.deferred and self.compute_streams > 1
        if several or not self.runs_in_torch(op, lambda name: bool(op.input(name))):
            return ""
        return "makes" if op.definition.torch_run == "alloc" else "finds"

    def host_reason(self, op: FrozenOp) -> str:
        return "" if op.body else op.definition.host_reason_of(lambda name: bool(op.input(name)))

    def bind_reference(
        self, op: FrozenOp, ins: Sequence[Any], outs: Sequence[Any], reserved: Mapping[str, Any], stream: Stream
    ) -> BoundStep:
        """Binds an op's reference to the tensors' memory."""
        return _CPU.bind(op, [self.inside(a) for a in ins], [self.inside(a) for a in outs], reserved, stream)

    def bind_dynamic(
        self, op: FrozenOp, arrays: ArraysByName, reserved: Mapping[str, Any], run: RunByName, stream: Stream
    ) -> BoundStep:
        only_shape = frozenset(op.reads()).difference(op.contents())
        return of_calls([(run, (op, _Inside(self, arrays, only_shape), reserved))])

    def launch(
        self, module: ModuleType, launches: Sequence[KernelLaunch], arrays: Mapping[str, Array], stream: Stream
    ) -> list[Call]:
        if not self.generated:
            return _CPU.launch(module, launches, arrays, stream)
        return interpret.bind_launches(module, launches, {n: self.inside(a) for n, a in arrays.items()})

    def machine(self, threads: int) -> Machine:
        return super().machine(threads) if self.deferred or self.place != "cpu" else _CPU.machine(threads)

    # ------------------------------------------------------------------------------------------------------------ errors
    def limit(
        self, source: TorchArray, limits: Limits, kept: TorchArray, safe: TorchArray, wrong: TorchArray, stream: Stream
    ) -> list[Call]:
        return [(self.limiting(source, limits, kept, safe, wrong), ())]

    def limiting(
        self, source: TorchArray, limits: Limits, kept: TorchArray, safe: TorchArray, wrong: TorchArray
    ) -> Callable[[], None]:
        """Returns a function that does what :meth:`limit` says, in a few calls of torch's library."""
        torch, given, copy, within = self.torch, source.tensor, kept.tensor, safe.tensor
        low, high, ignored = list(limits.low), list(limits.high), limits.ignored
        if source.dtype.kind in "iu":
            kind = np.iinfo(source.dtype)
            low, high = [max(one, kind.min) for one in low], [min(one, kind.max) for one in high]
            # A value in range that is ignored needs no exception.
            if ignored is not None and (limits.allows(ignored) or not kind.min <= ignored <= kind.max):
                ignored = None
        bounds: tuple[Any, Any] = (low[0], high[0])
        if limits.columns:
            bounds = torch.tensor([low, high], dtype=given.dtype, device=given.device).unbind(0)
        differs = torch.empty(given.shape, dtype=torch.bool, device=given.device)

        def run() -> None:
            if kept is not source:
                copy.copy_(given)
            torch.clamp(given, *bounds, out=within)
            if ignored is not None:
                torch.where(given == ignored, given, within, out=within)
            torch.ne(given, within, out=differs)
            torch.sum(differs.view(-1), (0,), dtype=torch.int64, out=wrong.tensor.view(()))

        return run

    def check_finite(self, arrays: Sequence[TorchArray], stream: Stream | None = None) -> TorchArray:
        return self.wrap(_CPU.check_finite([self.inside(a) for a in arrays]))


def _strides(shape: Sequence[int]) -> list[int]:
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= max(1, size)
    return found[::-1]


def blocks_in(value: Any) -> Iterator[ForeignBlock]:
    """Yields the blocks in which the arrays of a slot, or of several, lie."""
    if isinstance(value, TorchArray):
        if value.block is not None:
            yield value.block
    elif isinstance(value, list):
        for one in value:
            yield from blocks_in(one)


def blocks_of(ins: Sequence[Any], outs: Sequence[Any]) -> Blocks:
    """Returns the blocks that an op reads, and those that it is to fill."""

    def of(value: Any) -> Any:
        if isinstance(value, list):
            return [of(one) for one in value]
        return value.block if isinstance(value, TorchArray) else None

    return Blocks(list(blocks_in(list(ins))), [of(a) for a in outs])


def tensors(value: Any) -> Any:
    """Returns the tensors of a slot."""
    if isinstance(value, TorchArray):
        return value.tensor
    if isinstance(value, list):
        return [tensors(one) for one in value]
    return value


def shaped(value: Any) -> Any:
    """Returns arrays that have the shapes of those of a slot, for the host; those in blocks may have lost their memory."""
    if isinstance(value, list):
        return type(value)(shaped(one) for one in value)  # a tensor array stays one
    return np.broadcast_to(np.zeros((), value.dtype), value.shape) if isinstance(value, TorchArray) else value


class _Inside(SeenArrays):
    """A mapping of arrays as the references see them: numpy views of tensors.

    Args:
        device: The device.
        arrays: The arrays by value.
        only_shape: Values of which one op reads the shape alone: a block may have lost its memory by then.
    """

    def __init__(self, device: TorchDevice, arrays: ArraysByName, only_shape: frozenset[str]) -> None:
        super().__init__(arrays, device.inside, device.wrap)
        self._only_shape = only_shape

    def __getitem__(self, name: str) -> Any:
        return shaped(self._arrays[name]) if name in self._only_shape else super().__getitem__(name)


DEVICE = TorchDevice("torch")
WITH_KERNELS = TorchDevice("torch+interpret", generated=True)
