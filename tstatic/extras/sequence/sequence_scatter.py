"""Numbers added to places of a row, as many as a sequence is long."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.extras.sequence._offsets import Array, check_sequences, owners
from tstatic.ir.build import check_variable
from tstatic.ir.checks import INDICES, check_dtype, check_rank, check_same_dtype
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradOp, Index, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.gradients import grad_is_linear_op
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import emit_one


def _infer(x: Meta, ids: Meta, offsets: Meta, updates: Meta) -> Meta:
    check_rank(x, 2, "X")
    check_sequences(ids, offsets, "Ids")
    check_dtype(ids, INDICES, "Ids")
    check_same_dtype((x, updates), ("X", "Updates"))
    sizes = x.shape[0], offsets.shape[0]
    if UNKNOWN not in sizes and sizes[0] != sizes[1] - 1:
        raise ShapeError(
            "sequence_scatter adds one sequence to each row of X",
            expected=f"{sizes[0]} sequences, the number of rows",
            received=f"{sizes[1] - 1}",
            fix="feed one sequence of positions for each row",
        )
    return x


@in_float32()
def _ref(x: Array, ids: Array, offsets: Array, updates: Array, out: Array) -> None:
    np.copyto(out, x)
    # `out[...] += updates` would keep one of several updates of a place; `add.at` adds them in their order.
    np.add.at(out, (owners(offsets), ids.reshape(-1)), updates.reshape(-1))


def _back(ids: Array, offsets: Array, updates: Array, dout: Array, dx: Array | None, dupdates: Array | None) -> None:
    if dx is not None:
        np.copyto(dx, dout)
    if dupdates is not None:
        # Linear in the updates: each gets the gradient of its place, several of one place the same.
        np.copyto(dupdates, dout[owners(offsets), ids.reshape(-1)].reshape(dupdates.shape))


def _owners(torch: Any, offsets: Any, count: int) -> Any:
    # With `output_size` torch need not read the lengths back from the device.
    return torch.repeat_interleave(
        torch.arange(len(offsets) - 1, device=offsets.device), offsets.diff(), output_size=count
    )


def _lower(torch: Any, x: Any, ids: Any, offsets: Any, updates: Any) -> Any:
    wide = torch_wide(x).clone()
    index = (_owners(torch, offsets, ids.numel()), ids.flatten().long())
    return wide.index_put_(index, torch_wide(updates).flatten(), accumulate=True).to(x.dtype)


def _lower_back(torch: Any, ids: Any, offsets: Any, updates: Any, dout: Any) -> Any:
    return dout.clone(), dout[_owners(torch, offsets, ids.numel()), ids.flatten().long()].reshape(updates.shape)


register(OpDef(
    "sequence_scatter", f"X, Ids, Ids{LOD}, Updates -> Out", infer=_infer, ref=_ref, lower=_lower,
    grad=GradOp(
        f"Ids, Ids{LOD}, Updates, Out{GRAD} -> X{GRAD}, Updates{GRAD}",
        infer=lambda ids, offsets, updates, dout: (dout, updates), ref=_back, lower=_lower_back, shape_only=("Updates",),
        grad=grad_is_linear_op("sequence_scatter", "Out", ("X", "Updates"), ("Ids", f"Ids{LOD}")),
        indices=(Index("Ids", lambda ids, offsets, updates, dout: dout.shape[1]),),
    ),
    effects=True, indices=(Index("Ids", lambda x, *rest: x.shape[1]),),
    domain=Domain(
        cases=(
            Case(((3, 6), (7, 1), (4,), (7, 1))), Case(((2, 1), (4, 1), (3,), (4, 1))), Case(((3, 4), (0, 1), (4,), (0, 1))),
            Case(((1, 5), (5,), (2,), (5,))),
        ),
        values={"Ids": ValueRange(0, "X.1", dtype="int64"), f"Ids{LOD}": ValueRange(dtype="int64", offsets="Ids.0")},
    ),
))  # fmt: skip


@export("static.nn.sequence_scatter", "fluid.layers.sequence_scatter", op="sequence_scatter")
def sequence_scatter(input: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """Adds the numbers of sequence ``i`` to places of row ``i``.

    Args:
        input: ``[n, width]``.
        index: Places in the row, ``[rows, 1]`` int64 or int32 with a LoD of ``n`` sequences.
        updates: What is added there, ``[rows, 1]``; in the order of ``index``.
        name: Name of the layer.

    Returns:
        As ``input``; an index that occurs twice is added twice.

    Raises:
        ProgramError: If ``index`` has no LoD.
        ShapeError: If it has another number of sequences than ``input`` has rows.
        IndexRangeError: When the program runs, for a place that the row does not have.

    Example:
        >>> index = static.data("index", [None, 1], "int64", lod_level=1)
        >>> x = paddle.zeros([2, 3])
        >>> y = static.nn.sequence_scatter(x, index, paddle.full([3, 1], 1.0))
        >>> feed = {"index": fluid.create_lod_tensor([[0, 2], [2]], [[2, 1]])}
        >>> static.Executor().run(feed=feed, fetch_list=[y])[0].tolist()
        [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    """
    function = "sequence_scatter"
    inputs = {
        "X": check_variable(input, "input", function), "Ids": check_variable(index, "index", function, INDICES),
        "Updates": check_variable(updates, "updates", function),
    }  # fmt: skip
    return emit_one(function, inputs, name=name)
