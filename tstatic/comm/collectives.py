"""Defines collectives as ops: a data-parallel program contains them, and its plan runs them as steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.comm.group import Communicator
from tstatic.ir.opdef import OpDef, register
from tstatic.ir.types import Meta

Array = np.ndarray[Any, Any]


def _same(xs: Sequence[Meta]) -> list[Meta]:
    return list(xs)


def _in_place(xs: Sequence[Array], outs: Sequence[Array]) -> None:
    """Copies inputs to the results, on which a collective works in place, unless they share their memory already."""
    for x, out in zip(xs, outs, strict=True):
        if x is not out and not (x.ctypes.data == out.ctypes.data and x.strides == out.strides):
            np.copyto(out, x)


def _all_reduce(xs: Sequence[Array], outs: Sequence[Array], *, block: int, group: Communicator) -> None:
    _in_place(xs, outs)
    group.all_reduce(outs, "c_allreduce_sum", block)


def _reduce(
    xs: Sequence[Array], outs: Sequence[Array], *, roots: Sequence[int], block: int, group: Communicator
) -> None:
    _in_place(xs, outs)
    group.reduce(outs, roots, "c_reduce_sum", block)


def _broadcast(xs: Sequence[Array], outs: Sequence[Array], *, roots: Sequence[int], group: Communicator) -> None:
    _in_place(xs, outs)
    group.broadcast(outs, roots, "c_broadcast")


register(
    OpDef(
        "c_allreduce_sum",
        "X* -> Out*",
        attrs={"block": 0},
        infer=_same,
        ref=_all_reduce,
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
        ref=_reduce,
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
        ref=_broadcast,
        inplace=(("X", "Out"),),
        state=(("X", "Out"),),
        update=True,
        effects=True,
        collective=True,
    )
)
