"""Defines collectives as ops: a data-parallel program contains them, and its plan runs them as steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tstatic.comm.group import Broadcast, Collective, Communicator, Sum
from tstatic.comm.passes.buckets import parts
from tstatic.comm.transport import flattened
from tstatic.devices import Array
from tstatic.ir.attrs import Attr
from tstatic.ir.opdef import OpDef, register
from tstatic.ir.ref import Attrs, Calls, Ref, Slots
from tstatic.ir.types import Meta


class CollectiveRef(Ref):
    """A reference that puts work into the streams of the replicas.

    Args:
        binder: ``(inputs, outputs, attrs, communicator) -> calls``; arrays are those of the communicator's device.
        only_queues: As of :class:`Ref`.
    """

    attrs = None
    takes = frozenset({"group"})

    def __init__(self, binder: Callable[[Slots, Slots, Attrs, Communicator], Calls], only_queues: bool = False) -> None:
        self.binder = binder
        self.functions = (binder,)
        self.only_queues = only_queues

    def bind_arrays(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        return self.binder(ins, outs, attrs, reserved["group"])


def _same(xs: Sequence[Meta], skip: Meta | None = None) -> list[Meta]:
    return list(xs)


def in_place(xs: Sequence[Array], outs: Sequence[Array], group: Communicator) -> Calls:
    """Copies inputs to the results, on which a collective works in place, unless they share their memory already."""
    device = group.device
    return [
        (device.copy, (out, x, group.stream))
        for x, out in zip(xs, outs, strict=True)
        # Equal spans alone do not do: a view with gaps may begin and end where the result does.
        if x is not out and not (device.span(x) == device.span(out) and device.contiguous(x))
    ]


def _unless(skip: Any, group: Communicator, collectives: Sequence[Collective]) -> None:
    """Runs collectives in steps in which they are not skipped, which are the same on all replicas."""
    # The value is equal on all replicas, so none waits in a collective that another one leaves out.
    left_out = group.holds(skip)
    for collective in collectives:
        if not left_out:
            collective()
        elif collective.part.watch is not None:
            # Gradients go into a sum all the same, and when it is complete, nobody could leave out a step whose are not finite.
            collective.part.watch.look(group.stream)


def _sums(group: Communicator, xs: Sequence[Array], attrs: Attrs, label: str) -> list[Collective]:
    """Returns the sums of a bucket over the replicas, in place: one, or several parts of a gradient larger than ``limit``.

    Sums are element by element, so that the bits do not depend on where a gradient is divided.
    """
    divided: list[Sequence[Array]] = [xs]
    if attrs["limit"]:
        (whole,) = (flattened(group.device, x) for x in xs)
        size = whole.dtype.itemsize
        divided = [
            [group.device.slice(whole, low // size, ((high - low) // size,))]
            for low, high in parts(whole.nbytes, attrs["limit"])
        ]
    return [Sum(group, arrays, attrs.get("roots"), label, attrs["block"], attrs["watch"]) for arrays in divided]


def _register(
    name: str, make: Callable[[Communicator, Slots, Attrs], list[Collective]], attrs: Mapping[str, Any],
    slots: str = "X* -> Out*", **more: Any,
) -> None:  # fmt: skip
    """Registers a collective of any number of arrays, whose results have the metadata of its inputs.

    Args:
        name: Op type.
        slots: Its slots; ``Skip?`` is a truth value, equal on all replicas, by which the results are the inputs.
        make: Returns the collectives, in order: its arguments are the communicator, the results, on which they work in place,
            and the attributes.
        attrs: Attributes and their defaults.
        **more: Further fields of the op definition.
    """

    def bind_in_group(ins: Slots, outs: Slots, attrs: Attrs, group: Communicator) -> Calls:
        collectives = make(group, outs[0], attrs)
        skip = ins[1] if len(ins) > 1 else None
        run = [(one, ()) for one in collectives] if skip is None else [(_unless, (skip, group, collectives))]
        # Copied first: the collective sums into the results, and its inputs may be read again.
        return [*in_place(ins[0], outs[0], group), *run]

    register(
        OpDef(
            name,
            slots,
            attrs=attrs,
            infer=_same,
            ref=CollectiveRef(bind_in_group, only_queues=True),
            inplace=(("X", "Out"),),
            # Never removed, merged or moved: the other replicas wait for it.
            effects=True,
            collective=True,
            **more,
        )
    )


_BY_SESSION = "a session reads it, and decides in which stream values are exchanged: they stay what they are"
QUEUED = {
    name: Attr.idle(default, _BY_SESSION) for name, default in (("ring", 0), ("same_stream", False), ("waits", False))
}
"""Where a collective of a program is queued: the number of its ring, whether into the stream of the computation, and whether the
host waits behind it."""

_register(
    "c_allreduce_sum",
    lambda group, xs, attrs: _sums(group, xs, attrs, "c_allreduce_sum"),
    {"block": 0, "watch": 0, "limit": 0.0, **QUEUED},
    "X*, Skip? -> Out*",
)
_register(
    "c_reduce_sum",
    lambda group, xs, attrs: _sums(group, xs, attrs, "c_reduce_sum"),
    {"roots": (), "block": 0, "watch": 0, "limit": 0.0, **QUEUED},
    "X*, Skip? -> Out*",
)
_register(
    "c_broadcast",
    lambda group, xs, attrs: [Broadcast(group, xs, attrs["roots"], "c_broadcast")],
    {"roots": (), **QUEUED},
    "X*, Skip? -> Out*",
    state=(("X", "Out"),),
    update=True,
)
