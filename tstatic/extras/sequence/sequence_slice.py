"""A part of each sequence."""

from __future__ import annotations

from typing import Any

from tstatic.errors import ShapeError
from tstatic.extras.sequence._offsets import OFFSETS, Array, check_sequences, each, lengths_of, offsets_from, spans
from tstatic.ir.build import check_variable
from tstatic.ir.checks import INTEGERS, check_dtype
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.shapes import ANY, emit_one


def _infer(x: Meta, offsets: Meta, start: Meta, length: Meta) -> tuple[Meta, Meta]:
    check_sequences(x, offsets)
    check_dtype(start, INTEGERS, "Offset")
    check_dtype(length, INTEGERS, "Length")
    return x.with_shape((UNKNOWN, *x.shape[1:])), offsets


def _rows(offsets: Array, start: Array, length: Array) -> tuple[Array, Array]:
    """Returns the rows that are taken, and the length of each part."""
    starts, lengths = start.reshape(-1), length.reshape(-1)
    sizes = lengths_of(offsets)
    fits = len(starts) == len(lengths) == len(sizes)
    # Also negative ones: Python's slices would take them from the end, Paddle refuses them.
    if not fits or ((starts < 0) | (lengths < 0) | (starts + lengths > sizes)).any():
        raise ShapeError(
            "sequence_slice takes a part that each sequence has",
            expected=f"offset and length for each of {len(sizes)} sequences, of lengths {sizes.tolist()[:8]}",
            received=f"offsets {starts.tolist()[:8]}, lengths {lengths.tolist()[:8]}",
            fix="keep offset + length of each part within the length of its sequence",
        )
    return spans(offsets[:-1] + starts, lengths), lengths


def _ref(x: Array, offsets: Array, start: Array, length: Array, out: None, out_offsets: None) -> list[Array]:
    rows, lengths = _rows(offsets, start, length)
    # Indexing by rows copies, so the result shares no memory with X.
    return [x[rows], offsets_from(lengths)]


def _back(x: Array, offsets: Array, start: Array, length: Array, dout: Array, dx: Array) -> None:
    dx.fill(0)
    # One part of each sequence, so no row is taken twice.
    dx[_rows(offsets, start, length)[0]] = dout


def _lower(torch: Any, x: Any, offsets: Any, start: Any, length: Any) -> Any:
    bounds = zip(start.flatten().tolist(), length.flatten().tolist(), strict=True)
    parts = [part[a : a + n] for part, (a, n) in zip(each(torch, x, offsets), bounds, strict=True)]
    return torch.cat([x[:0], *parts]), torch.cumsum(torch.tensor([0, *map(len, parts)]), 0)


def _lower_back(torch: Any, x: Any, offsets: Any, start: Any, length: Any, dout: Any) -> Any:
    dx = dout.new_zeros(x.shape)
    lengths = length.flatten().tolist()
    for first, a, part in zip(offsets[:-1].tolist(), start.flatten().tolist(), torch.split(dout, lengths), strict=True):
        dx[first + a : first + a + len(part)] = part
    return dx


register(OpDef(
    "sequence_slice", f"X, X{LOD}, Offset, Length -> Out, Out{LOD}", infer=_infer, ref=_ref, lower=_lower, lod="X[:-1]",
    dynamic=Dynamic("the rows of the parts that are taken", free=("X",)),
    grad=GradOp(
        f"X, X{LOD}, Offset, Length, Out{GRAD} -> X{GRAD}", ref=_back,
        traits=(READS_LENGTHS,), lower=_lower_back, shape_only=("X",),
        grad=grad_is_forward_op("sequence_slice", keep=(f"X{LOD}", "Offset", "Length")),
    ),
    # Several sequences are drawn with any lengths, so that no part but an empty one fits all; tests/sequences has others.
    domain=Domain(
        cases=(Case(((7, 2), (2,), (1, 1), (1, 1))), Case(((6,), (2,), (1,), (1,)))),
        values={
            f"X{LOD}": OFFSETS, "Offset": ValueRange(0, 3, dtype="int64"), "Length": ValueRange(0, 3, dtype="int64"),
        },
        others=ANY, ulps=0,
    ),
    complex="linear",
))  # fmt: skip


@export("static.nn.sequence_slice", "fluid.layers.sequence_slice", op="sequence_slice")
def sequence_slice(input: Variable, offset: Variable, length: Variable, name: str | None = None) -> Variable:
    """Takes a part of each sequence.

    Args:
        input: ``[rows, ...]`` with a LoD.
        offset: Where the part begins in each sequence, ``[sequences, 1]``, integers.
        length: How long it is, ``[sequences, 1]``, integers.
        name: Name of the layer.

    Returns:
        The rows of the parts, with their LoD.

    Raises:
        ProgramError: If ``input`` has no LoD.
        ShapeError: When the program runs, if a sequence has no such part (a ``ValueError``).

    Example:
        >>> x = static.data("x", [None, 1], "int64", lod_level=1)
        >>> y = static.nn.sequence_slice(x, paddle.to_tensor([[1], [0]]), paddle.to_tensor([[1], [2]]))
        >>> feed = fluid.create_lod_tensor([[1, 2], [3, 4, 5]], [[2, 3]])
        >>> done = static.Executor().run(feed={"x": feed}, fetch_list=[y], return_numpy=False)[0]
        >>> np.array(done).ravel().tolist(), done.lod()
        ([2, 3, 4], [[0, 1, 3]])
    """
    function = "sequence_slice"
    inputs = {
        "X": check_variable(input, "input", function), "Offset": check_variable(offset, "offset", function),
        "Length": check_variable(length, "length", function),
    }  # fmt: skip
    return emit_one(function, inputs, name=name)
