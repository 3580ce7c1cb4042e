"""Defines collectives as ops: a data-parallel program contains them, and its plan runs them as steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tstatic.comm.group import Broadcast, Communicator, Sum
from tstatic.ir.opdef import OpDef, register
from tstatic.ir.ref import Attrs, Calls, Ref, Slots
from tstatic.ir.types import Meta


class CollectiveRef(Ref):
    """A reference that puts work into the streams of the replicas.

    Args:
        binder: ``(inputs, outputs, attrs, communicator) -> calls``; arrays are those of the communicator's device.
    """

    attrs = None
    takes = frozenset({"group"})

    def __init__(self, binder: Callable[[Slots, Slots, Attrs, Communicator], Calls]) -> None:
        self.binder = binder
        self.functions = (binder,)

    def bind(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        return self.binder(ins, outs, attrs, reserved["group"])


def _same(xs: Sequence[Meta]) -> list[Meta]:
    return list(xs)


def _in_place(ins: Slots, outs: Slots, group: Communicator) -> Calls:
    """Copies inputs to the results, on which a collective works in place, unless they share their memory already."""
    device = group.device
    return [
        (device.copy, (out, x, group.stream))
        for x, out in zip(ins[0], outs[0], strict=True)
        if x is not out and not (device.span(x) == device.span(out) and device.contiguous(x))
    ]


def _all_reduce(ins: Slots, outs: Slots, attrs: Attrs, group: Communicator) -> Calls:
    return [*_in_place(ins, outs, group), (Sum(group, outs[0], None, "c_allreduce_sum", attrs["block"]), ())]


def _reduce(ins: Slots, outs: Slots, attrs: Attrs, group: Communicator) -> Calls:
    return [*_in_place(ins, outs, group), (Sum(group, outs[0], attrs["roots"], "c_reduce_sum", attrs["block"]), ())]


def _broadcast(ins: Slots, outs: Slots, attrs: Attrs, group: Communicator) -> Calls:
    return [*_in_place(ins, outs, group), (Broadcast(group, outs[0], attrs["roots"], "c_broadcast"), ())]


register(
    OpDef(
        "c_allreduce_sum",
        "X* -> Out*",
        attrs={"block": 0},
        infer=_same,
        ref=CollectiveRef(_all_reduce),
        inplace=(("X", "Out"),),
        effects=True,
        collective=True,
    )
)

register(
    OpDef(
        "c_reduce_sum",
        "X* -> Out*",
        attrs={"roots": (), "block": 0},
        infer=_same,
        ref=CollectiveRef(_reduce),
        inplace=(("X", "Out"),),
        effects=True,
        collective=True,
    )
)

register(
    OpDef(
        "c_broadcast",
        "X* -> Out*",
        attrs={"roots": ()},
        infer=_same,
        ref=CollectiveRef(_broadcast),
        inplace=(("X", "Out"),),
        state=(("X", "Out"),),
        update=True,
        effects=True,
        collective=True,
    )
)
