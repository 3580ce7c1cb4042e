"""Implements the CPU: binds an op definition's ``ref`` to arrays, cut into tiles of fixed size if the work is large."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tstatic import target
from tstatic.devices.base import ALIGNED, ArraysByName, KernelLaunch, Memory, MemoryKind, RunByName
from tstatic.devices.cpu.buffer import Buffer, ForeignBuffer, cannot_adopt
from tstatic.devices.cpu.copy_speed import copy_speed
from tstatic.devices.cpu.pool import usable_cpus
from tstatic.devices.immediate import ImmediateDevice
from tstatic.devices.step import BoundStep, HostArray, Span, Stream, of_calls, spans_of
from tstatic.errors import DeviceError
from tstatic.ir.evaluate import metas_of, settle
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.indices import Limits, index_checks
from tstatic.ir.opdef import PARTIAL_SUM, OpDef
from tstatic.ir.recording import Call
from tstatic.ir.ref import Ref
from tstatic.ir.split import POINTWISE, along, row_parts
from tstatic.ir.types import Meta
from tstatic.records import Machine


def _tiles_of_pointwise(ins: Sequence[Any], outs: Sequence[Any]) -> list[tuple[Sequence[Any], Sequence[Any]]]:
    """Cuts arrays of one shape flat, and broadcast ones along the first axis with more than one item."""
    out = outs[0] if outs[0] is not None else next(o for o in outs if o is not None)
    if out.size <= POINTWISE.size:
        return [(ins, outs)]
    arrays = [*ins, *outs]
    # A flat cut gives tiles of equal size whatever the shape; broadcast or strided operands need one along an axis.
    flat = all(a is None or (a.shape == out.shape and a.flags.c_contiguous) for a in arrays)
    axis, parts = row_parts((out.size,) if flat else out.shape, POINTWISE)
    if parts is None:
        return [(ins, outs)]

    def cut(a: Any, part: slice) -> Any:
        if a is None:
            return None
        if flat:
            return a.reshape(-1)[part]
        at = axis - (out.ndim - a.ndim)
        # An operand without the axis, or with size 1 there, is broadcast: every tile gets all of it.
        return a if at < 0 or a.shape[at] == 1 else a[along(at, part)]

    cuts = [[cut(a, p) for a in arrays] for p in parts]
    return [(c[: len(ins)], c[len(ins) :]) for c in cuts]


Metas = tuple[list[Any], list[Any]]
"""Metadata of what an op is given, and of what it makes."""


def prepare(
    definition: OpDef,
    ins: Sequence[Any],
    outs: Sequence[Any],
    attrs: Mapping[str, Any],
    reserved: Mapping[str, Any],
    cut: bool = True,
    partial: Callable[[Any], Any] = np.empty_like,
) -> BoundStep:
    """Binds an op definition to arrays.

    Args:
        definition: The op definition.
        ins, outs: Arrays (lists of them, ``None``) per slot.
        attrs: Complete attributes.
        reserved: Values for reserved keywords of ``ref`` (``rng``, ``run_block``).
        cut: Whether heavy work may be cut into tiles.
        partial: Makes the memory of a tile's partial sum of a result.
    """
    work = BoundStep()
    ref = definition.ref
    if definition.effects or definition.objects or "run_block" in ref.takes:
        # It prints, raises, or accesses more than its arguments: no address range says what may run beside it.
        work.accesses = None
    read = [s.name not in definition.shape_only for s in definition.inputs] if definition.shape_only else None
    checked = bool(definition.indices)

    def add(
        ref: Ref, ins: Sequence[Any], outs: Sequence[Any], reserved: Mapping[str, Any], metas: Metas | None = None
    ) -> None:
        given, made = metas or (metas_of(ins), metas_of(outs))
        needs = ref.scratch(given, made, attrs)
        # Not a closure: its cells would be half of what the garbage collector looks at while a new size is bound.
        calls = functools.partial(_bound, definition if checked else None, ref, ins, outs, attrs, reserved)
        # A slot that only lends its shape does not access memory, and must not keep steps from being chained.
        reads = ins if read is None else [a for a, is_read in zip(ins, read, strict=True) if is_read]
        work.add(calls, [(m.shape, m.dtype.np) for m in needs] if needs else [], reads, outs)

    if definition.dynamic is not None:
        # Sizes that depend on values in general, and are known here: the reference allocates all the same.
        work.add(lambda _: [(_compute_into, (definition, ins, outs, attrs, reserved))], (), ins, outs)
        return work
    aligned = ref.aligned(ins, attrs)
    if aligned is not None and cut:
        ref, ins = aligned
        for tile_ins, tile_outs in _tiles_of_pointwise(ins, outs):
            add(ref, tile_ins, tile_outs, reserved)
        return work
    tiles, metas = None, None
    if definition.split is not None and cut:
        metas = metas_of(ins), metas_of(outs)
        # From metadata alone: shapes decide, never values or the number of threads (docs/design/0003).
        tiles = definition.split(*metas[0], *metas[1], **definition.pick(definition.split, attrs))
    if not tiles:
        add(ref, ins, outs, reserved, metas)
        return work
    count = len(ins)
    partials: dict[int, list[Any]] = {}
    for tile in tiles:
        inner_ins = [_cut(a, p) for a, p in zip(ins, tile[:count], strict=True)]
        inner_outs = []
        for i, (a, p) in enumerate(zip(outs, tile[count:], strict=True)):
            if a is not None and p is PARTIAL_SUM:
                # Tiles run at the same time, so each sums into an array of its own; `after` adds them up in tile order.
                part = partial(a)
                partials.setdefault(i, []).append(part)
                inner_outs.append(part)
            else:
                inner_outs.append(_cut(a, p))
        # A tile may only serve outputs that the program does not want.
        if any(o is not None for o in inner_outs):
            add(ref, inner_ins, inner_outs, _of_tile(reserved, outs, tile[count:]))
    for i, parts in partials.items():
        work.after.append((_add_up, (parts, outs[i])))
        work.after_spans += spans_of([*parts, outs[i]])
        work.own_bytes += sum(part.nbytes for part in parts)
    return work


def _bound(
    checked: OpDef | None, ref: Ref, ins: Sequence[Any], outs: Sequence[Any], attrs: Mapping[str, Any],
    reserved: Mapping[str, Any], scratch: list[Any],
) -> list[Call]:  # fmt: skip
    """Returns the calls of a tile, after those that check the positions in its inputs, if the definition has such."""
    bound = ref.bind_arrays(ins, outs, attrs, scratch, reserved)
    return bound if checked is None else [*index_checks(checked, ins, attrs), *bound]


def _compute_into(
    definition: OpDef, ins: Sequence[Any], outs: Sequence[Any], attrs: Mapping[str, Any], reserved: Mapping[str, Any]
) -> None:
    """Copies results that a reference allocates to their places."""
    made = definition.ref.compute(ins, [None] * len(outs), attrs, reserved)
    for results, places in zip(made, outs, strict=True):
        for result, place in zip(*((x if isinstance(x, list) else [x]) for x in (results, places)), strict=True):
            if place is not None:
                settle(place, result, definition.type)


def _add_up(parts: Sequence[Any], out: Any) -> None:
    """Sums the partial results in tile order; 16-bit floats are added in float32 and rounded once."""
    if len(parts) == 1:
        np.copyto(out, parts[0])
    # numpy has no bfloat16 of its own: that of ml_dtypes has kind V.
    elif out.dtype.itemsize == 2 and out.dtype.kind in "fV":
        total = parts[0].astype(np.float32)
        for part in parts[1:]:
            np.add(total, part, out=total, dtype=np.float32, casting="unsafe")
        np.copyto(out, total, casting="unsafe")
    else:
        np.add(parts[0], parts[1], out=out)
        for part in parts[2:]:
            np.add(out, part, out=out)


def _cut(array: Any, part: Any) -> Any:
    if array is None or part is None:
        return None
    if isinstance(part, list):
        return [_cut(a, p) for a, p in zip(array, part, strict=True)]
    return array[part] if isinstance(part, tuple) else array


def _of_tile(reserved: Mapping[str, Any], outs: Sequence[Any], parts: Sequence[Any]) -> Mapping[str, Any]:
    """Returns ``reserved`` for a tile, whose random numbers start at its first element."""
    rng = reserved.get("rng")
    at = next(((p, a.shape) for a, p in zip(outs, parts, strict=True) if a is not None and isinstance(p, tuple)), None)
    return reserved if rng is None or at is None else {**reserved, "rng": rng.part(*at)}


_STREAM = Stream()
"""All work is done when a call returns, so all streams are one."""


class CpuDevice(ImmediateDevice):
    """The CPU: arrays are numpy's, references run on them, and every call ends when its work is done."""

    name = "cpu"
    target = target.DEFAULT_TARGET
    binds_sizes = True

    def allocate(self, nbytes: int, kind: MemoryKind = "device", purpose: str = "memory") -> Buffer:
        return Buffer(nbytes, purpose)

    def adopt(self, array: Any) -> Buffer:
        try:
            found = array if isinstance(array, np.ndarray) else np.from_dlpack(array)
        except (AttributeError, BufferError, RuntimeError, TypeError) as error:
            raise cannot_adopt(array, str(error)) from error
        if not found.flags.c_contiguous or not found.flags.writeable:
            raise cannot_adopt(array, "it is read-only, or its elements do not lie one behind the other")
        return ForeignBuffer(found)

    def view(self, memory: Memory, offset: int, meta: Meta) -> HostArray:
        assert isinstance(memory, Buffer)
        array: HostArray = memory.array[offset : offset + meta.nbytes].view(meta.dtype.np).reshape(meta.shape)
        return array

    def slice(self, array: HostArray, start: int, shape: Sequence[int]) -> HostArray:
        return array[start : start + int(np.prod(shape, dtype=np.int64))].reshape(shape)

    def join(self, first: HostArray, second: HostArray) -> HostArray | None:
        # Slices of one arena have the arena as their base; arrays of two allocations must not be joined, even if adjacent.
        base = first.base
        if first.dtype != second.dtype or not isinstance(base, np.ndarray) or base is not second.base:
            return None
        # A gap below ALIGNED is padding: no other value fits into it, so it may be summed along.
        gap = second.ctypes.data - first.ctypes.data
        if not first.nbytes <= gap < first.nbytes + ALIGNED or gap % first.itemsize:
            return None
        size = gap // first.itemsize + second.size
        return np.ndarray((size,), first.dtype, base, first.ctypes.data - base.ctypes.data)

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> HostArray:
        return np.empty(shape, dtype)

    def holds(self, array: Any) -> bool:
        return isinstance(array, np.ndarray)

    def derive(self, array: HostArray, view: Callable[..., HostArray | None]) -> HostArray:
        made = view(array)
        assert made is not None, "the plan took a view that the op definition does not offer"
        return made

    def contiguous(self, array: HostArray) -> bool:
        return array.flags.c_contiguous

    def span(self, array: HostArray) -> Span:
        return byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)

    def copy(self, destination: HostArray, source: HostArray, stream: Stream | None = None) -> None:
        np.copyto(destination, source)

    def fill(self, destination: HostArray, value: complex, stream: Stream | None = None) -> None:
        destination[...] = value

    def to_host(self, array: HostArray, stream: Stream | None = None) -> HostArray:
        return np.array(array)

    def from_host(self, destination: HostArray, source: HostArray, stream: Stream | None = None) -> None:
        np.copyto(destination, source)

    def upload(self, array: HostArray) -> HostArray:
        return array

    def assigning(self, destination: HostArray, source: HostArray) -> Call:
        # A function in C, as `scope.assign` requires: no signal handler can run in the middle of it.
        return operator.setitem, (destination, ..., source)

    def stream(self, collective: bool = False) -> Stream:
        return _STREAM

    def bind(
        self,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        reserved: Mapping[str, Any],
        stream: Stream,
        scratch: Any | None = None,
    ) -> BoundStep:
        return prepare(op.definition, ins, outs, op.attrs, reserved)

    def bind_dynamic(
        self, op: FrozenOp, arrays: ArraysByName, reserved: Mapping[str, Any], run: RunByName, stream: Stream
    ) -> BoundStep:
        return of_calls([(run, (op, arrays, reserved))])

    def machine(self, threads: int) -> Machine:
        threads = min(threads, usable_cpus())
        source = f"measured: a copy of large arrays, {threads} thread{'s' * (threads > 1)}"
        return Machine(copy_speed(threads), source, "the host's clock around each call")

    def launch(
        self, module: ModuleType, launches: Sequence[KernelLaunch], arrays: Mapping[str, HostArray], stream: Stream
    ) -> list[Call]:
        raise DeviceError(
            f"the device '{self.name}' runs no generated kernels",
            expected="a device that does",
            received=module.__name__,
            fix="export TSTATIC_CPU_BACKEND=interpret before the program starts",
        )

    def limit(
        self, source: HostArray, limits: Limits, kept: HostArray, safe: HostArray, wrong: HostArray, stream: Stream
    ) -> list[Call]:
        # Of one limit a number: an array of one element would not fit a single position.
        kind = source.dtype if source.dtype.kind not in "iu" else None
        low, high = (np.array(side if limits.columns else side[0], kind) for side in (limits.low, limits.high))

        def run() -> None:
            if kept is not source:
                np.copyto(kept, source)
            np.clip(source, low, high, out=safe, casting="unsafe")
            if limits.ignored is not None:
                np.copyto(safe, source, where=source == limits.ignored)
            wrong[...] = np.count_nonzero(source != safe)

        return [(run, ())]

    def check_finite(self, arrays: Sequence[HostArray], stream: Stream | None = None) -> HostArray:
        # Counting the finite values reads a mask of one byte per element, and needs no inverted copy of it.
        return np.array([a.size - np.count_nonzero(np.isfinite(a)) for a in arrays], np.int64)


DEVICE = CpuDevice()
