"""Rows repeated so that they fill the sequences of another value."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.extras.sequence._offsets import Array, check_sequences, each, fold, owners
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import ANY, emit_one


def _infer(x: Meta, y: Meta, offsets: Meta) -> Meta:
    check_sequences(y, offsets, "Y")
    if UNKNOWN not in (x.shape[0], offsets.shape[0]) and x.shape[0] != offsets.shape[0] - 1:
        raise ShapeError(
            "sequence_expand_as repeats one row of X for each sequence of Y",
            expected=f"{offsets.shape[0] - 1} rows in X, the number of sequences",
            received=f"{x.shape[0]}",
            fix="feed one row for each sequence",
        )
    return x.with_shape((y.shape[0], *x.shape[1:]))


def _ref(x: Array, y: Array, offsets: Array, out: Array) -> None:
    np.take(x, owners(offsets), axis=0, out=out, mode="clip")


@in_float32()
def _back(x: Array, y: Array, offsets: Array, dout: Array, dx: Array) -> None:
    # `fold` writes no row for an empty sequence: it was repeated 0 times.
    dx[~fold(np.add, dout, offsets, dx)] = 0


def _lower(torch: Any, x: Any, y: Any, offsets: Any) -> Any:
    return torch.repeat_interleave(x, offsets.diff(), 0, output_size=len(y))


def _lower_back(torch: Any, x: Any, y: Any, offsets: Any, dout: Any) -> Any:
    rows = [part.sum(0) for part in each(torch, torch_wide(dout), offsets)]
    return torch.stack(rows).to(dout.dtype) if rows else dout[:0]


register(OpDef(
    "sequence_expand_as", f"X, Y, Y{LOD} -> Out", infer=_infer, ref=_ref, lower=_lower, shape_only=("Y",), lod="Y",
    grad=GradOp(
        f"X, Y, Y{LOD}, Out{GRAD} -> X{GRAD}", ref=_back,
        traits=(READS_LENGTHS,), lower=_lower_back, shape_only=("X", "Y"),
        grad=grad_is_forward_op("sequence_expand_as", keep=("Y", f"Y{LOD}")),
    ),
    domain=Domain(
        cases=(
            Case(((3, 2), (7, 1), (4,))), Case(((5,), (4,), (6,))), Case(((2, 2), (0, 2), (3,))), Case(((0, 2), (0, 1), (1,))),
        ),
        values={f"Y{LOD}": ValueRange(dtype="int64", offsets="Y.0")}, others=ANY,
    ),
    complex="linear",
))  # fmt: skip


@export("static.nn.sequence_expand_as", "fluid.layers.sequence_expand_as", op="sequence_expand_as")
def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Repeats row ``i`` of ``x`` for each row of sequence ``i`` of ``y``.

    Args:
        x: ``[sequences, ...]``.
        y: ``[rows, ...]`` with a LoD; its values are not read.
        name: Name of the layer.

    Returns:
        ``[rows, ...]`` with the LoD of ``y``.

    Raises:
        ProgramError: If ``y`` has no LoD.
        ShapeError: If ``x`` has another number of rows than ``y`` has sequences.

    Example:
        >>> x = static.data("x", [None, 1], "int64")
        >>> y = static.data("y", [None, 1], "int64", lod_level=1)
        >>> z = static.nn.sequence_expand_as(x, y)
        >>> feed = {"x": np.array([[1], [2]]), "y": fluid.create_lod_tensor([[0, 0], [0, 0, 0]], [[2, 3]])}
        >>> done = static.Executor().run(feed=feed, fetch_list=[z], return_numpy=False)[0]
        >>> np.array(done).ravel().tolist(), done.lod()
        ([1, 1, 2, 2, 2], [[0, 2, 5]])
    """
    function = "sequence_expand_as"
    return emit_one(function, {"X": check_variable(x, "x", function), "Y": check_variable(y, "y", function)}, name=name)
