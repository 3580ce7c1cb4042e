"""Rows of sequences in another width."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.extras.sequence._offsets import Array, check_sequences, each
from tstatic.ir.attrs import Attr
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_int, check_rank
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradContext, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.gradients import passed
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.shapes import ANY, emit_one


def _infer(x: Meta, offsets: Meta, new_dim: int) -> tuple[Meta, Meta]:
    check_sequences(x, offsets)
    check_rank(x, 2, "X")
    rows = UNKNOWN if UNKNOWN in x.shape else x.shape[0] * x.shape[1] // new_dim
    return x.with_shape((rows, new_dim)), offsets


def _ref(x: Array, offsets: Array, out: Array, out_offsets: Array | None, *, new_dim: int) -> None:
    # Offsets in numbers instead of rows: all of them are multiples of the new width, or a row would span two sequences.
    sizes = offsets * x.shape[1]
    if (sizes % new_dim).any():
        raise ShapeError(
            "sequence_reshape cannot divide the numbers of a sequence into rows of the new width",
            expected=f"sequences of a multiple of {new_dim} numbers",
            received=f"{np.diff(sizes).tolist()[:8]} numbers",
            fix="choose a new_dim that divides the width, or pad the sequences",
        )
    np.copyto(out, x.reshape(out.shape))
    if out_offsets is not None:
        np.floor_divide(sizes, new_dim, out=out_offsets)


def _lower(torch: Any, x: Any, offsets: Any, *, new_dim: int) -> Any:
    parts = [part.reshape(-1, new_dim) for part in each(torch, x, offsets)]
    return torch.cat(parts), torch.cumsum(torch.tensor([0, *map(len, parts)]), 0)


def _grad(ctx: GradContext) -> list[OpSpec]:
    names = passed(ctx)
    if names is None:
        return []
    # Elements keep their order, so the gradient is a plain reshape and needs no offsets.
    return [OpSpec("reshape2_grad", {"X": ctx.inputs["X"], f"Out{GRAD}": [names[0]]}, {f"X{GRAD}": [names[1]]})]


register(OpDef(
    "sequence_reshape", f"X, X{LOD} -> Out, Out{LOD}",
    attrs={"new_dim": Attr(kind="int", check=lambda n: None if n > 0 else "a width of at least 1")},
    infer=_infer, ref=_ref,
    traits=(READS_LENGTHS,), lower=_lower, grad=_grad, lod="X[:-1]",
    domain=Domain(
        cases=(
            Case(((7, 4), (4,)), {"new_dim": 2}), Case(((3, 6), (2,)), {"new_dim": 3}), Case(((0, 2), (3,)), {"new_dim": 2}),
            Case(((4, 3), (3,)), {"new_dim": 1}),
        ),
        values={f"X{LOD}": ValueRange(dtype="int64", offsets="X.0")}, others=ANY, ulps=0,
    ),
    complex="linear",
))  # fmt: skip


@export("static.nn.sequence_reshape", "fluid.layers.sequence_reshape", op="sequence_reshape")
def sequence_reshape(input: Variable, new_dim: int) -> Variable:
    """Divides the numbers of each sequence into rows of another width.

    Args:
        input: ``[rows, width]`` with a LoD.
        new_dim: The new width; it divides the number of elements of each sequence.

    Returns:
        ``[rows * width / new_dim, new_dim]``; the LoD follows.

    Raises:
        ProgramError: If ``input`` has no LoD.
        ShapeError: When the program runs, if a sequence cannot be divided so (a ``ValueError``).

    Example:
        >>> x = static.data("x", [None, 4], lod_level=1)
        >>> y = static.nn.sequence_reshape(x, 2)
        >>> feed = fluid.create_lod_tensor(np.zeros((3, 4), "float32"), [[1, 2]])
        >>> done = static.Executor().run(feed={"x": feed}, fetch_list=[y], return_numpy=False)[0]
        >>> done.shape(), done.lod()
        ([6, 2], [[0, 2, 6]])
    """
    x = check_variable(input, "input", "sequence_reshape")
    return emit_one("sequence_reshape", {"X": x}, {"new_dim": check_int(new_dim, "new_dim", "sequence_reshape", 1)})
