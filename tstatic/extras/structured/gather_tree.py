"""Whole beams from the ids and parents of each step of a beam search."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import INDICES, check_dtype, check_rank, check_same_dtype, check_same_shape
from tstatic.ir.opdef import Case, Domain, Index, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.base.shapes import Array, emit_one


def _infer(ids: Meta, parents: Meta) -> Meta:
    check_dtype(ids, INDICES, "Ids")
    check_rank(ids, 3, "Ids", layout="[steps, batch, beams]")
    check_same_dtype((ids, parents), ("Ids", "Parents"))
    check_same_shape((ids, parents), ("Ids", "Parents"))
    return ids.with_shape(max(a, b) for a, b in zip(ids.shape, parents.shape, strict=True))


def _ref(ids: Array, parents: Array, out: Array) -> None:
    beam = np.broadcast_to(np.arange(ids.shape[2]), ids.shape[1:])
    for step in range(ids.shape[0] - 1, -1, -1):
        out[step] = np.take_along_axis(ids[step], beam, axis=1)
        beam = np.take_along_axis(parents[step], beam, axis=1)


def _lower(torch: Any, ids: Any, parents: Any) -> Any:
    out = torch.empty_like(ids)
    beam = torch.arange(ids.shape[2], device=ids.device).expand(ids.shape[1:])
    for step in range(ids.shape[0] - 1, -1, -1):
        out[step] = ids[step].gather(1, beam)
        beam = parents[step].gather(1, beam).long()
    return out


register(OpDef(
    "gather_tree", "Ids, Parents -> Out", infer=_infer, ref=_ref, lower=_lower,
    indices=(Index("Parents", lambda ids, parents: ids.shape[2]),),
    domain=Domain(
        cases=(Case(((4, 2, 3), (4, 2, 3))), Case(((1, 1, 1), (1, 1, 1))), Case(((0, 2, 2), (0, 2, 2)))),
        values={"Ids": ValueRange(0, 9, dtype="int64"), "Parents": ValueRange(0, "Ids.2", dtype="int64")},
        floats=("float32",), ulps=0,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("nn.functional.gather_tree", "fluid.layers.gather_tree", op="gather_tree")
def gather_tree(ids: Variable, parents: Variable) -> Variable:
    """Returns the whole sequence of ids that leads to each beam of the last step.

    Args:
        ids: The ids chosen in each step, ``[steps, batch, beams]``, int64 or int32.
        parents: The beam of the step before that each one goes on, of the same shape and dtype.

    Returns:
        ``[steps, batch, beams]``.

    Raises:
        ShapeError, DTypeError: If shapes or dtypes differ, or the rank is not 3.
        IndexRangeError: At run time, if a parent is not a beam.

    Example:
        >>> ids = paddle.to_tensor([[[2, 2]], [[3, 9]], [[0, 1]]])
        >>> parents = paddle.to_tensor([[[0, 0]], [[1, 0]], [[0, 0]]])
        >>> static.Executor().run(fetch_list=[paddle.nn.functional.gather_tree(ids, parents)])[0].tolist()
        [[[2, 2]], [[3, 3]], [[0, 1]]]
    """
    for arg, value in (("ids", ids), ("parents", parents)):
        check_variable(value, arg, "gather_tree", INDICES)
    return emit_one("gather_tree", {"Ids": ids, "Parents": parents})
