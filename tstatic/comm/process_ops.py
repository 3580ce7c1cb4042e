"""Ops by which the programs of several processes exchange values.

On a single process each is an identity. They work on host memory: a device's arrays are copied there and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce as _fold
from typing import Any, Protocol

import numpy as np

from tstatic.comm.group import Communicator, add_in_order
from tstatic.errors import UnsupportedError
from tstatic.ir.checks import check_same_shape
from tstatic.ir.opdef import GradContext, OpDef, OpSpec, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.ref import Attrs, Calls, Ref, Slots
from tstatic.ir.types import Meta

Array = np.ndarray[Any, Any]


class ReduceOp:
    """How arrays are combined: element by element, over the processes in the order of their ranks.

    Example:
        >>> from tstatic import distributed
        >>> largest = paddle.to_tensor([3.0])
        >>> distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
        >>> static.Executor().run(fetch_list=[largest])[0]
        array([3.], dtype=float32)
    """

    SUM = 0
    MAX = 1
    MIN = 2
    PROD = 3
    AVG = 4


class Peers(Protocol):
    """The processes of a collective."""

    rank: int
    size: int

    def all_reduce(self, arrays: Sequence[Array]) -> None: ...
    def all_gather(self, array: Array) -> Array: ...
    def broadcast(self, arrays: Sequence[Array], root: int = 0) -> None: ...
    def exchange_parts(self, parts: Array) -> Array: ...


# ------------------------------------------------------------------------------------------------------------------ ops
class _HostRef(Ref):
    """A reference that runs a function on host arrays, for one replica of the process.

    Args:
        work: ``(arrays, attributes, peers) -> results``, which may be the arrays; ``peers`` is ``None`` in a single process.
    """

    attrs = None
    takes = frozenset({"group"})

    def __init__(self, work: Callable[[list[Array], Attrs, Peers | None], Sequence[Array]]) -> None:
        self.work = work
        self.functions = (work,)

    def bind(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        return [(self._run, (ins[0], outs[0], attrs, reserved["group"]))]

    def _run(self, ins: Any, outs: Any, attrs: Attrs, group: Communicator) -> None:
        device, stream = group.device, group.stream
        arrays = [device.to_host(a, stream) for a in (ins if isinstance(ins, list) else [ins])]
        outer: Any = group.group.outer
        ranks = tuple(attrs["ranks"])
        results = self.work(arrays, attrs, outer.among(ranks) if outer is not None and ranks else outer)
        for out, result in zip(outs if isinstance(outs, list) else [outs], results, strict=True):
            device.from_host(out, np.asarray(result).reshape(out.shape), stream)


def _define(
    name: str, slots: str, infer: Callable[..., Any], work: Callable[[list[Array], Attrs, Peers | None], Sequence[Array]],
    grad: Any = None, **attrs: Any,
) -> None:  # fmt: skip
    register(
        OpDef(
            name, slots, attrs={**attrs, "ranks": ()}, infer=infer, ref=_HostRef(work), grad=grad, effects=True,
            collective=True, paddle=ABSENT,
        )
    )  # fmt: skip


def _reduced(array: Array, kind: int, peers: Peers) -> Array:
    """Returns the arrays of all peers combined."""
    if kind in (ReduceOp.SUM, ReduceOp.AVG):
        if array.dtype.kind in "biu" and array.dtype.itemsize < 4:
            total = np.empty_like(array)
            add_in_order([*peers.all_gather(array)], [total])
        else:
            peers.all_reduce([array])
            total = array
        return total if kind == ReduceOp.SUM else (total / peers.size).astype(array.dtype)
    combine = {ReduceOp.MAX: np.maximum, ReduceOp.MIN: np.minimum, ReduceOp.PROD: np.multiply}[kind]
    return _fold(combine, [*peers.all_gather(array)])


def _same(xs: Sequence[Meta], **_: Any) -> list[Meta]:
    return list(xs)


def _all_reduce(arrays: list[Array], attrs: Attrs, peers: Peers | None) -> Sequence[Array]:
    return arrays if peers is None else [_reduced(a, attrs["kind"], peers) for a in arrays]


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


def _reduce(arrays: list[Array], attrs: Attrs, peers: Peers | None) -> Sequence[Array]:
    if peers is None:
        return arrays
    total = _reduced(arrays[0].copy(), attrs["kind"], peers)
    return [total] if peers.rank == attrs["root"] else arrays


def _broadcast(arrays: list[Array], attrs: Attrs, peers: Peers | None) -> Sequence[Array]:
    if peers is not None:
        peers.broadcast(arrays, attrs["root"])
    return arrays


def _stack_shape(xs: Sequence[Meta]) -> Meta:
    check_same_shape(xs, "tensor_list")
    return xs[0]


def _gather(arrays: list[Array], attrs: Attrs, peers: Peers | None) -> Sequence[Array]:
    return [arrays[0]] if peers is None else [*peers.all_gather(arrays[0])]


def _reduce_scatter(arrays: list[Array], attrs: Attrs, peers: Peers | None) -> Sequence[Array]:
    return arrays if peers is None else [_reduced(np.stack(arrays), attrs["kind"], peers)[peers.rank]]


def _scatter(arrays: list[Array], attrs: Attrs, peers: Peers | None) -> Sequence[Array]:
    if peers is None:
        return arrays
    parts = np.stack(arrays)
    peers.broadcast([parts], attrs["root"])
    return [parts[peers.rank]]


def _alltoall(arrays: list[Array], attrs: Attrs, peers: Peers | None) -> Sequence[Array]:
    return arrays if peers is None else [*peers.exchange_parts(np.stack(arrays))]


def _alltoall_single(arrays: list[Array], attrs: Attrs, peers: Peers | None) -> Sequence[Array]:
    (whole,) = arrays
    return arrays if peers is None else [peers.exchange_parts(whole.reshape(peers.size, -1))]


def _transfer(arrays: list[Array], attrs: Attrs, peers: Peers | None) -> Sequence[Array]:
    assert peers is not None, "a process does not send to itself"
    peers.broadcast(arrays, attrs["root"])
    return arrays


def _barrier(arrays: list[Array], attrs: Attrs, peers: Peers | None) -> Sequence[Array]:
    """Returns when all have arrived: each waits for a value of every other one."""
    if peers is not None:
        peers.all_gather(arrays[0])
    return arrays


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
