"""Implements a device that runs nothing, to measure the runtime's own overhead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.devices.cpu.device import CpuDevice
from tstatic.devices.step import BoundStep, Stream, of_calls
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.recording import Call


def _nothing() -> None:
    return None


class NullDevice(CpuDevice):
    """The CPU's memory and copies, and for each op one call that does nothing."""

    name = "null"

    def bind(
        self,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        reserved: Mapping[str, Any],
        stream: Stream,
        scratch: Any | None = None,
    ) -> BoundStep:
        return of_calls([(_nothing, ())])

    def bind_collective(self, op: FrozenOp, ins: Sequence[Any], outs: Sequence[Any], group: Any) -> list[Call]:
        return [(_nothing, ())]


DEVICE = NullDevice()
