"""Ops by which the programs of several processes exchange values; on a single process each is an identity.

They stay on the device: what combines gathered values is an op of its own, and the transport decides what passes through the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce as _fold
from typing import Any

import numpy as np

from tstatic.comm.collectives import CollectiveRef, in_place
from tstatic.comm.group import Communicator
from tstatic.comm.transport import Part, ProcessTransport, rows_of
from tstatic.comm.transport.ordered_sum import SUM
from tstatic.devices import Array, HostArray
from tstatic.errors import UnsupportedError
from tstatic.ir.checks import check_same_shape
from tstatic.ir.opdef import GradContext, OpDef, OpSpec, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.recording import Call
from tstatic.ir.ref import Attrs, Calls, Slots, plain
from tstatic.ir.types import Meta


class ReduceOp:
    """How arrays are combined: element by element, over the processes in the order of their ranks.

    Example:
        >>> from tstatic import distributed
        >>> largest = paddle.to_tensor([3.0])
        >>> distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
        >>> static.Executor().run(fetch_list=[largest])[0]
        array([3.], dtype=float32)
    """

    # Paddle's numbers, which scripts pass as they are.
    SUM = 0
    MAX = 1
    MIN = 2
    PROD = 3
    AVG = 4


# ----------------------------------------------------------------------------------------------------------- combining
# SUM and AVG are left to the transport, which adds on the way.
_COMBINE = {ReduceOp.MAX: np.maximum, ReduceOp.MIN: np.minimum, ReduceOp.PROD: np.multiply}


def _fold_ref(parts: Sequence[HostArray], out: HostArray, *, kind: int) -> None:
    np.copyto(out, _fold(_COMBINE[kind], parts))


def _divide_ref(total: HostArray, out: HostArray, *, size: int) -> None:
    np.copyto(out, (total / size).astype(total.dtype))


def _fold_lower(torch: Any, parts: Sequence[Any], *, kind: int) -> Any:
    way = {ReduceOp.MAX: torch.maximum, ReduceOp.MIN: torch.minimum, ReduceOp.PROD: torch.mul}[kind]
    return _fold(way, parts)


def _divide_lower(torch: Any, total: Any, *, size: int) -> Any:
    # In float64, as numpy divides integers: the two must round alike.
    wide = total if total.is_floating_point() else total.double()
    return (wide / size).to(total.dtype)


_FOLD = OpDef("c_fold", "X* -> Out", attrs={"kind": ReduceOp.MAX}, ref=plain(_fold_ref), lower=_fold_lower)
"""The largest, the smallest or the product of all processes' arrays."""
_DIVIDE = OpDef("c_divide", "X -> Out", attrs={"size": 1}, ref=plain(_divide_ref), lower=_divide_lower)
"""What makes a mean of a sum."""


class _Way:
    """One op's way to the other processes.

    Args:
        lane: The replica that takes it.
        peers: Connects the processes that take part.
    """

    def __init__(self, lane: Communicator, peers: ProcessTransport) -> None:
        self.lane = lane
        self.peers = peers
        self.rank, self.size = peers.rank, peers.size

    def part(self, *arrays: Array) -> list[Part]:
        """Returns these arrays as what this process brings."""
        return [Part(self.lane, arrays)]

    def copied(self, xs: Sequence[Array], outs: Sequence[Array]) -> Calls:
        """Copies arrays to others."""
        return in_place(xs, outs, self.lane)

    def stacked(self, xs: Sequence[Array]) -> tuple[Array, Calls]:
        """Returns an array that gets the values of others, along a new first axis."""
        whole = self.lane.buffer((len(xs), *xs[0].shape), xs[0].dtype)
        return whole, self.copied(xs, rows_of(self.lane.device, whole))

    def gathered(self, array: Array) -> tuple[list[Array], Calls]:
        """Returns arrays that get the values of all processes."""
        whole = self.lane.buffer((self.size, *array.shape), array.dtype)
        return rows_of(self.lane.device, whole), self.peers.gather(self.part(array), 0, [whole])

    def reduced(self, array: Array, kind: int, root: int | None = None) -> Calls:
        """Combines the processes' arrays in place: in those of all, or of ``root``."""
        here = root is None or root == self.rank
        if not self.is_sum(array, kind):
            # What the transport does not offer: everyone gets all arrays and folds them alike, in the order of the ranks.
            rows, calls = self.gathered(array)
            if here and kind in _COMBINE:
                calls += self.lane.bind_definition(_FOLD, [rows], [array], {"kind": kind})
            elif here:
                calls += self.lane.bind_definition(SUM, [rows], [[array]], {"in_place": False})
        else:
            calls = self.peers.sum(self.part(array), 0, None if root is None else [root])
        # Behind the sum, where it is: the others' arrays keep their values.
        return calls + (self.divided(array, kind) if here else [])

    def is_sum(self, array: Array, kind: int) -> bool:
        """Returns whether the transport can add; integers of one or two bytes are added here, as gloo has no sum of them all."""
        return kind not in _COMBINE and not (array.dtype.kind in "biu" and array.dtype.itemsize < 4)

    def divided(self, array: Array, kind: int) -> Calls:
        """Makes a mean of a sum, if that is wanted."""
        return self.lane.bind_definition(_DIVIDE, [array], [array], {"size": self.size}) if kind == ReduceOp.AVG else []


# ------------------------------------------------------------------------------------------------------------------ ops
Work = Callable[[_Way, Sequence[Array], Sequence[Array], Attrs], list[Call]]
"""Returns the calls of an op: from its way, inputs, results, attributes."""


def _define(name: str, slots: str, infer: Callable[..., Any], work: Work, grad: Any = None, **attrs: Any) -> None:
    def bind_in_group(ins: Slots, outs: Slots, attrs: Attrs, group: Communicator) -> Calls:
        xs, results = (one if isinstance(one, list) else [one] for one in (ins[0], outs[0]))
        outer, ranks = group.group.outer, tuple(attrs["ranks"])
        # A single process: every collective here is an identity, or a copy.
        if outer is None:
            return in_place(xs, results, group)
        return work(_Way(group, outer.among(ranks) if ranks else outer), xs, results, attrs)

    register(
        OpDef(
            name, slots, attrs={**attrs, "ranks": ()}, infer=infer, ref=CollectiveRef(bind_in_group), grad=grad, effects=True,
            collective=True, paddle=ABSENT,
        )
    )  # fmt: skip


def _same(xs: Sequence[Meta], **_: Any) -> list[Meta]:
    return list(xs)


def _all_reduce(way: _Way, xs: Sequence[Array], outs: Sequence[Array], attrs: Attrs) -> Calls:
    return way.copied(xs, outs) + [call for out in outs for call in way.reduced(out, attrs["kind"])]


def _all_reduce_grad(ctx: GradContext) -> list[OpSpec]:
    """The sum is linear: what arrives for it on all ranks is summed, or averaged, in turn."""
    kind = ctx.attrs["kind"]
    if kind not in (ReduceOp.SUM, ReduceOp.AVG):
        raise UnsupportedError(
            "all_reduce with MAX, MIN or PROD has no gradient",
            expected="ReduceOp.SUM or ReduceOp.AVG between a parameter and the loss",
            received=f"op={kind}",
            fix="set stop_gradient of its input, or reduce after minimize",
            op="all_reduce",
        )
    pairs = [
        (ctx.out_grads[out], ctx.in_grads[x])
        for x, out in zip(ctx.inputs["X"], ctx.outputs["Out"], strict=True)
        if out in ctx.out_grads and x in ctx.in_grads
    ]
    if not pairs:
        return []
    arriving, wanted = zip(*pairs, strict=True)
    return [OpSpec("all_reduce", {"X": arriving}, {"Out": wanted}, dict(ctx.attrs))]


def _reduce(way: _Way, xs: Sequence[Array], outs: Sequence[Array], attrs: Attrs) -> Calls:
    return way.copied(xs, outs) + way.reduced(outs[0], attrs["kind"], attrs["root"])


def _broadcast(way: _Way, xs: Sequence[Array], outs: Sequence[Array], attrs: Attrs) -> Calls:
    return way.copied(xs, outs) + way.peers.send(way.part(*outs), 0, [attrs["root"]] * len(outs))


def _stack_shape(xs: Sequence[Meta]) -> Meta:
    check_same_shape(xs, "tensor_list")
    return xs[0]


def _gather(way: _Way, xs: Sequence[Array], outs: Sequence[Array], attrs: Attrs) -> Calls:
    rows, calls = way.gathered(xs[0])
    return calls + way.copied(rows, outs)


def _reduce_scatter(way: _Way, xs: Sequence[Array], outs: Sequence[Array], attrs: Attrs) -> Calls:
    whole, calls = way.stacked(xs)
    if way.is_sum(whole, attrs["kind"]):
        return calls + way.peers.scatter(way.part(whole), 0, outs) + way.divided(outs[0], attrs["kind"])
    return calls + way.reduced(whole, attrs["kind"]) + way.copied([rows_of(way.lane.device, whole)[way.rank]], outs)


def _scatter(way: _Way, xs: Sequence[Array], outs: Sequence[Array], attrs: Attrs) -> Calls:
    whole, calls = way.stacked(xs)
    sent = way.peers.send(way.part(whole), 0, [attrs["root"]])
    return calls + sent + way.copied([rows_of(way.lane.device, whole)[way.rank]], outs)


def _alltoall(way: _Way, xs: Sequence[Array], outs: Sequence[Array], attrs: Attrs) -> Calls:
    whole, calls = way.stacked(xs)
    came = way.lane.buffer(whole.shape, whole.dtype)
    return calls + way.peers.exchange(way.part(whole), 0, [came]) + way.copied(rows_of(way.lane.device, came), outs)


def _alltoall_single(way: _Way, xs: Sequence[Array], outs: Sequence[Array], attrs: Attrs) -> Calls:
    own, came = (way.lane.buffer(xs[0].shape, xs[0].dtype) for _ in range(2))
    sent, got = (way.lane.device.derive(a, lambda a: a.reshape(way.size, -1)) for a in (own, came))
    return way.copied(xs, [own]) + way.peers.exchange(way.part(sent), 0, [got]) + way.copied([came], outs)


def _transfer(way: _Way, xs: Sequence[Array], outs: Sequence[Array], attrs: Attrs) -> Calls:
    # A broadcast to one: its root is the sender, so that both sides run the same collective.
    assert way.size == 2, "a process does not send to itself"
    return _broadcast(way, xs, outs, attrs)


def _barrier(way: _Way, xs: Sequence[Array], outs: Sequence[Array], attrs: Attrs) -> Calls:
    """Returns when all have arrived: each waits for a value of every other one."""
    return way.gathered(xs[0])[1] + way.copied(xs, outs)


_define("all_reduce", "X* -> Out*", _same, _all_reduce, _all_reduce_grad, kind=0)
_define("reduce", "X* -> Out*", _same, _reduce, kind=0, root=0)
_define("broadcast", "X* -> Out*", _same, _broadcast, root=0)
_define("all_gather", "X -> Out*", lambda x, ranks, count: [x] * count, _gather, count=1)
_define("reduce_scatter", "X* -> Out", lambda xs, **_: _stack_shape(xs), _reduce_scatter, kind=0)
_define("scatter_from", "X* -> Out", lambda xs, **_: _stack_shape(xs), _scatter, root=0)
_define("alltoall", "X* -> Out*", lambda xs, **_: [_stack_shape(xs)] * len(xs), _alltoall)
_define("alltoall_single", "X -> Out", lambda x, **_: x, _alltoall_single)
_define("barrier", "X -> Out", lambda x, **_: x, _barrier)
_define("send_v2", "X -> Out", lambda x, **_: x, _transfer, root=0)
_define("recv_v2", "X -> Out", lambda x, **_: x, _transfer, root=0)


__all__ = ["ReduceOp"]
