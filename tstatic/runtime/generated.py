"""Binds generated kernels of fused ops, and views, to a device's arrays."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from functools import partial
from itertools import groupby
from types import ModuleType
from typing import Any, cast

import numpy as np

from tstatic.chips import ahead
from tstatic.devices import Device
from tstatic.devices.base import NOT_COMPILED, KernelLaunch, LaunchTooLargeError
from tstatic.devices.step import BoundStep, Stream, Workspace, of_calls
from tstatic.errors import NoRoomError, needed_for
from tstatic.fusion.codegen.kernel import RNG, STOPPED, Kernel, KernelLocal, Launch, LibraryProduct
from tstatic.fusion.engine import cache
from tstatic.fusion.engine.cache import shared
from tstatic.fusion.engine.choice import NO_ROOM
from tstatic.ir.evaluate import infer_outputs
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import op_def
from tstatic.ir.recording import Call
from tstatic.ir.types import Meta, dtype_of
from tstatic.plan.plan import Generated
from tstatic.runtime.product_and_add import PRODUCT_AND_ADD


def add_shared(found: Generated, known: MutableMapping[str, Any], device: Device, stopped: Any | None) -> None:
    """Adds what kernels of a plan read besides its values, if one asks for it: ``RNG``, ``STOPPED``.

    Args:
        found: The kernel.
        known: Value -> array.
        device: The device that runs it.
        stopped: A truth value in its memory, whether updates are to change nothing; ``None``: they never are.
    """
    if found.draws and RNG not in known:
        known[RNG] = device.empty((2,), np.dtype(np.int64))
    if found.asks and STOPPED not in known:
        known[STOPPED] = device.upload(np.zeros(1, np.bool_)) if stopped is None else stopped


def generated_work(
    found: Generated,
    known: Mapping[str, Any],
    device: Device,
    stream: Stream,
    partials: Mapping[KernelLocal, Any],
    copies: Mapping[str, Any],
) -> BoundStep:
    """Returns the calls of one kernel, as a step.

    Args:
        found: The kernel and its launches.
        known: Value -> array.
        device: The device that runs it.
        stream: The stream in which it runs.
        partials: The arrays of the buffers that its launches share.
        copies: The arrays for copies of values that are not contiguous.

    Raises:
        MissingPackageError: If triton is not installed.
        NoRoomError: If the chip has no room for a launch; the device remembers it.
    """
    with needed_for("running generated kernels (TSTATIC_CPU_BACKEND=interpret)"):
        module = cache.load(*shared(found.kernel))
    # Values that only tables name are touched, too: their addresses are in the table, not among the arguments.
    touched = dict.fromkeys(a for one in found.calls.launches for a in one.arguments if isinstance(a, str))
    touched.update(dict.fromkeys(v for table in found.calls.tables.values() for v in table.values))
    arrays: dict[str, Any] = {v: known[v] for v in touched if v in known}
    mine = dict(arrays)
    calls: list[Call] = []
    for value, array in arrays.items():
        if not device.contiguous(array):  # a view of another array may have gaps; kernels take flat memory
            mine[value] = copies[value] if value in copies else device.empty(array.shape, array.dtype)
            calls.append((device.copy, (mine[value], array, stream)))
    mine.update(partials.items())
    # After the copies above: tables hold the addresses of the arrays that the launches get.
    mine.update((name, device.upload(table.filled(mine, device.span))) for name, table in found.calls.tables.items())
    for library, run in groupby(found.calls.launches, lambda one: isinstance(one, LibraryProduct)):
        if library:
            calls += [call for one in run for call in _product(device, cast("LibraryProduct", one), mine, stream)]
        else:
            calls += _launched(
                found.kernel, device, module, [one.call for one in run if isinstance(one, Launch)], mine, stream
            )
    # No other work runs beside a kernel: the interpreter patches Triton's language while it runs.
    return of_calls(calls)


def _launched(
    kernel: Kernel, device: Device, module: ModuleType, launches: Sequence[KernelLaunch], arrays: Mapping[str, Any],
    stream: Stream,
) -> list[Call]:  # fmt: skip
    try:
        ahead.finish(kernel.code, launches)
        return device.launch(module, launches, arrays, stream)
    except LaunchTooLargeError as error:
        function, _, _, constants, options = error.launch
        device.refusals.add(kernel.name, error.launch, error.reason)
        lacks = "cannot compile" if error.reason.startswith(NOT_COMPILED) else "has no room for"
        raise NoRoomError(
            f"the chip {lacks} a launch of the kernel {kernel.name}",
            expected=f"one that fits on {device.target.name}",
            received=f"{function} with {', '.join(f'{n}={v}' for n, v in {**constants, **options}.items())}: {error.reason}",
            fix=NO_ROOM,
        ) from None


def _product(device: Device, product: LibraryProduct, arrays: Mapping[str, Any], stream: Stream) -> list[Call]:
    """Returns the calls of a product that the device's library makes, as those of an operator."""
    a, b, out = (device.derive(arrays[v], at.seen) for v, at in product.matrices)
    attrs = {"trans_x": product.trans_a, "trans_y": product.trans_b}
    read, definition = [a, b], op_def("matmul_v2")
    if product.addend:
        added = device.derive(arrays[product.addend], partial(np.reshape, shape=product.addend_shape))
        read, definition = [a, b, added], PRODUCT_AND_ADD
    op = FrozenOp(definition, product.arguments[:-1], (product.out,), attrs)
    step: BoundStep = device.bind(op, read, [out], {}, stream)
    workspace = Workspace()
    if step.scratch_bytes:
        # The host's own product of 16 bits works in wider copies; a chip's library asks for none.
        workspace.reserve(step.scratch_bytes)
        workspace.allocate()
    return step.calls(workspace)


def bind_view(device: Device, op: FrozenOp, arrays: MutableMapping[str, Any]) -> bool:
    """Makes the result a view; returns ``False`` where the device has no such view: the result has memory, the op is to run."""
    source, result = op.inputs[0], op.outputs[0]
    assert isinstance(source, str)
    assert isinstance(result, str)
    assert op.definition.view is not None
    view = partial(op.definition.view, **op.definition.pick(op.definition.view, op.attrs))
    found = device.derive(arrays[source], view)
    if found is None:
        given = [arrays[e] if isinstance(e, str) else None for e in op.inputs]
        metas = [None if a is None else Meta(a.shape, dtype_of(a.dtype)) for a in given]
        meta = infer_outputs(op.definition, metas, op.attrs)[0]
        arrays[result] = device.empty(meta.shape, meta.dtype.np)
        return False
    arrays[result] = found
    return True
