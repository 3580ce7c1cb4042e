"""Rows or sequences repeated as often as the sequences of another value are long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.extras.sequence._offsets import OFFSETS, Array, check_sequences, each, lengths_of, offsets_from, spans
from tstatic.ir.attrs import Attr
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_int
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int64, normalize_axis
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.indexing import add_rows
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import ANY, emit_one


def _infer(
    x: Meta, x_offsets: Meta | None, y: Meta | None, levels: Sequence[Meta], ref_level: int
) -> tuple[Meta, Meta | None]:
    if x_offsets is not None:
        check_sequences(x, x_offsets)
    # Only for its check: the level is used as it is, -1 the innermost.
    normalize_axis(ref_level, len(levels), "ref_level")
    return x.with_shape((UNKNOWN, *x.shape[1:])), None if x_offsets is None else Meta((UNKNOWN,), int64)


def _repeats(x: Array, x_offsets: Array | None, levels: Sequence[Array], ref_level: int) -> tuple[Array, Array | None]:
    """Returns the row of ``x`` for each row of the result, and the offsets of the result."""
    times = lengths_of(levels[ref_level])
    count = len(x) if x_offsets is None else len(x_offsets) - 1
    if len(times) != count:
        raise ShapeError(
            f"sequence_expand repeats {'rows' if x_offsets is None else 'sequences'} of X by the sequences of Y",
            expected=f"{count} sequences in level {ref_level} of Y",
            received=f"{len(times)}",
            fix="feed as many sequences in both, or choose another ref_level",
        )
    # Rows without a LoD are repeated one by one, and the result has no LoD either, as in Paddle.
    if x_offsets is None:
        return np.repeat(np.arange(count), times), None
    lengths = np.repeat(lengths_of(x_offsets), times)
    return spans(np.repeat(x_offsets[:-1], times), lengths), offsets_from(lengths)


def _ref(
    x: Array, x_offsets: Array | None, y: Any, levels: Sequence[Array], out: None, out_offsets: None, *, ref_level: int
) -> list[Array | None]:
    index, offsets = _repeats(x, x_offsets, levels, ref_level)
    return [x[index], offsets]


@in_float32()
def _back(
    x: Array, x_offsets: Array | None, levels: Sequence[Array], dout: Array, dx: Array, *, ref_level: int
) -> None:
    dx.fill(0)
    # A row that was repeated comes several times in the index, so its gradients are summed, not assigned.
    add_rows(dx, _repeats(x, x_offsets, levels, ref_level)[0], dout, fresh=True)


def _lower(torch: Any, x: Any, x_offsets: Any, y: Any, levels: Sequence[Any], *, ref_level: int) -> Any:
    times = (levels[ref_level][1:] - levels[ref_level][:-1]).tolist()
    parts = list(x.unsqueeze(1)) if x_offsets is None else each(torch, x, x_offsets)
    repeated = [part for part, n in zip(parts, times, strict=True) for _ in range(n)]
    # The empty part gives shape and type where nothing is repeated.
    out = torch.cat([x[:0], *repeated])
    return out, None if x_offsets is None else torch.cumsum(torch.tensor([0, *map(len, repeated)]), 0)


def _lower_back(torch: Any, x: Any, x_offsets: Any, levels: Sequence[Any], dout: Any, *, ref_level: int) -> Any:
    times = (levels[ref_level][1:] - levels[ref_level][:-1]).tolist()
    wide = torch_wide(dout)
    # Without a LoD each row is a sequence of its own.
    starts = list(range(len(x) + 1)) if x_offsets is None else x_offsets.tolist()
    dx = torch.zeros(x.shape, dtype=wide.dtype)
    at = 0
    for i, n in enumerate(times):
        for _ in range(n):
            size = starts[i + 1] - starts[i]
            dx[starts[i] : starts[i + 1]] += wide[at : at + size]
            at += size
    return dx.to(dout.dtype)


_TIMES = ValueRange(dtype="int64", offsets="Y.0")

register(OpDef(
    "sequence_expand", f"X, X{LOD}?, Y?, Y{LOD}* -> Out, Out{LOD}?", attrs={"ref_level": Attr(-1, "int")},
    infer=_infer, ref=_ref, lower=_lower, shape_only=("Y",), dynamic=Dynamic("the numbers of repeats", free=("X",)),
    grad=GradOp(
        f"X, X{LOD}?, Y{LOD}*, Out{GRAD} -> X{GRAD}", ref=_back,
        traits=(READS_LENGTHS,), lower=_lower_back, shape_only=("X",),
        grad=grad_is_forward_op("sequence_expand", keep=(f"X{LOD}", f"Y{LOD}")),
    ),
    domain=Domain(
        cases=(
            Case(((3, 2), None, (7, 1), [(4,)])), Case(((5,), None, (4,), [(6,)])), Case(((6, 2), (4,), (5, 1), [(4,)])),
            Case(((3, 2), (3,), (4, 1), [(3,), (3,)]), {"ref_level": 0}), Case(((0, 2), None, (0, 2), [(1,)])),
            Case(((2, 2), None, (0, 2), [(3,)])),
        ),
        values={f"X{LOD}": OFFSETS, f"Y{LOD}": _TIMES}, others=ANY,
    ),
    complex="linear",
))  # fmt: skip


@export("static.nn.sequence_expand", "fluid.layers.sequence_expand", op="sequence_expand")
def sequence_expand(x: Variable, y: Variable, ref_level: int = -1, name: str | None = None) -> Variable:
    """Repeats row or sequence ``i`` of ``x`` as often as sequence ``i`` of ``y`` is long.

    Args:
        x: ``[rows, ...]``; with a LoD its sequences are repeated, otherwise its rows.
        y: A Variable with a LoD; its values are not read.
        ref_level: The level of ``y`` that counts: 0 is the outermost, -1 the innermost.
        name: Name of the layer.

    Returns:
        The repeated rows; with a LoD if ``x`` has one.

    Raises:
        ProgramError: If ``y`` has no LoD.
        ShapeError: If ``y`` has no such level, or, when the program runs, another number of sequences than ``x`` has.

    Example:
        >>> x = static.data("x", [None, 1], "int64")
        >>> y = static.data("y", [None, 1], "int64", lod_level=1)
        >>> z = static.nn.sequence_expand(x, y)
        >>> feed = {"x": np.array([[1], [2]]), "y": fluid.create_lod_tensor([[0, 0], [0, 0, 0]], [[2, 3]])}
        >>> static.Executor().run(feed=feed, fetch_list=[z])[0].ravel()
        array([1, 1, 2, 2, 2])
    """
    function = "sequence_expand"
    inputs = {"X": check_variable(x, "x", function), "Y": check_variable(y, "y", function)}
    return emit_one(function, inputs, {"ref_level": check_int(ref_level, "ref_level", function, -1)}, name=name)
