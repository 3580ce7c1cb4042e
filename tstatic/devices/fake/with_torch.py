"""Implements the fake device with torch's operators: memory that the host cannot access, work that runs late, and torch forms.

So late work meets what torch does that references do not: results with memory of their own, and several calls for one op.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tstatic.devices.base import Array, StreamSet
from tstatic.devices.fake import FakeArray, FakeDevice
from tstatic.devices.fake.clock import FakeStream
from tstatic.devices.step import HostArray
from tstatic.devices.torch import device as torch_device
from tstatic.devices.torch.device import tensors
from tstatic.devices.torch.forms import torch_form
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta

_TORCH = torch_device.DEVICE


class FakeTorchDevice(FakeDevice):
    """The fake device, whose ops run as their torch forms, and as references where the torch device runs those."""

    name = "fake+torch"

    def begin(self) -> None:
        _TORCH.begin()

    def settings(
        self, threads: int, streams: Sequence[StreamSet] = ()
    ) -> Callable[[bool], contextlib.AbstractContextManager[None]]:
        return _TORCH.settings(threads)

    def derive(self, array: FakeArray, view: Callable[..., HostArray | None]) -> FakeArray | None:
        found = super().derive(array, view)
        # torch has no strides that go back.
        return None if found is None or min(found._inside.strides, default=0) < 0 else found

    def host_reason(self, op: FrozenOp) -> str:
        return _TORCH.host_reason(op)

    def _form_of(self, op: FrozenOp, given: Callable[[str], bool]) -> Any:
        return torch_form(op.definition) if _TORCH.runs_in_torch(op, given) else None

    def scratch_bytes(self, op: FrozenOp, metas: Mapping[str, Meta]) -> int:
        if self._form_of(op, lambda name: bool(op.input(name))) is not None:
            return 0
        return super().scratch_bytes(op, metas)

    def _work(
        self,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        reserved: Mapping[str, Any],
        stream: FakeStream,
        scratch: Array | None,
    ) -> Callable[[], None]:
        def reference() -> Callable[[], None]:
            return super(FakeTorchDevice, self)._work(op, ins, outs, reserved, stream, scratch)

        given = {slot.name: value for slot, value in zip(op.definition.inputs, ins, strict=True)}
        form = self._form_of(op, lambda name: given[name] is not None)
        if form is None:
            return reference()
        there = [[tensors(_seen(a)) for a in slots] for slots in (ins, outs)]
        call = form.bind_tensors(_TORCH.torch, _TORCH.place, op, *there, lambda: [(reference(), ())])
        if call is None:
            return reference()
        function, args = call
        return lambda: function(*args)


def _seen(value: Any) -> Any:
    """Returns the arrays of a slot as those of the torch device, in the same memory."""
    if isinstance(value, list):
        return [_seen(one) for one in value]
    if not isinstance(value, FakeArray):
        return value
    array = value._inside
    if not array.flags.writeable:
        # A broadcast view of memory that may be written: of an array that is read-only the torch device would make a copy.
        array = array.view()
        array.flags.writeable = True
    return _TORCH.wrap(array)


DEVICE = FakeTorchDevice()
