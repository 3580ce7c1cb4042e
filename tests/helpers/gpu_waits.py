"""Makes torch raise where the work of an op that only queues work waits for the GPU."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from tstatic.devices.cuda import CudaDevice
from tstatic.devices.torch.forms import TorchForm
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.recording import Call
from tstatic.ir.traits import Waits


@contextlib.contextmanager
def waiting_is_an_error(device: CudaDevice) -> Iterator[None]:
    """Inside the ``with`` statement torch forms, kernels and checks on a device run under ``set_sync_debug_mode("error")``.

    What is bound before is not. An op that says why it waits (``OpDef.waits``) may, and so may whatever runs on the host. The mode
    is one of the process, in which replicas wait for their own streams: so their threads are left out.
    """
    library, bind_tensors = device.cuda, TorchForm.bind_tensors

    def run_in(mode: str | int, function: Callable[..., Any], *args: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return function(*args)
        before = library.get_sync_debug_mode()
        library.set_sync_debug_mode(mode)
        try:
            return function(*args)
        finally:
            library.set_sync_debug_mode(before)

    def within(mode: str, calls: Sequence[Call]) -> list[Call]:
        return [(partial(run_in, mode, function), args) for function, args in calls]

    def bound(
        form: TorchForm, torch: Any, place: str, op: FrozenOp, ins: Any, outs: Any, reference: Any, *rest: Any, **named: Any
    ) -> Call | None:  # fmt: skip
        def on_host() -> list[Call]:
            return within("default", reference())

        call = bind_tensors(form, torch, place, op, ins, outs, on_host, *rest, **named)
        return call if call is None or op.definition.has(Waits) else within("error", [call])[0]

    def queued(method: Callable[..., Sequence[Call]], *args: Any, **named: Any) -> list[Call]:
        # The calls put work into a stream: the work is what must not wait.
        made = method(*args, **named)
        return [(put, (stream, partial(run_in, "error", work))) for put, (stream, work) in made]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TorchForm, "bind_tensors", bound)
        for name in ("launch", "limit", "any_nonzero"):
            patch.setattr(device, name, partial(queued, getattr(device, name)))
        yield
