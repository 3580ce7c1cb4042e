"""Sequences as rows of a batch, filled up to one length; and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.extras.sequence._offsets import (
    OFFSETS,
    Array,
    check_sequences,
    count_of,
    each,
    lengths_of,
    offsets_from,
    owners,
    positions,
)
from tstatic.ir.attrs import Attr
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import ANY_RANK, INTEGERS, check_dtype, check_int, check_rank, check_same_dtype, check_same_shape
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradContext, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int64
from tstatic.ops.base.gradients import grad_is_forward_op, passed
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.shapes import ANY, emit_one


# --------------------------------------------------------------------------------------------------------- sequence_pad
def _infer(x: Meta, offsets: Meta, value: Meta, padded_length: int) -> tuple[Meta, Meta]:
    check_sequences(x, offsets)
    check_same_dtype((x, value), ("X", "PadValue"))
    # One number fills everything, as in Paddle; else the value is a whole row.
    if value.known and value.numel != 1:
        check_same_shape((value, x.with_shape(x.shape[1:])), ("PadValue", "a row of X"))
    count = count_of(offsets)
    # Paddle writes -1 for "as long as the longest", which only a run knows.
    size = padded_length if padded_length > 0 else UNKNOWN
    return x.with_shape((count, size, *x.shape[1:])), Meta((count,), int64)


def _ref(x: Array, offsets: Array, value: Array, out: None, length: None, *, padded_length: int) -> list[Array]:
    lengths = lengths_of(offsets)
    # `initial`: a batch without sequences has length 0.
    longest = int(lengths.max(initial=0))
    size = padded_length if padded_length > 0 else longest
    if size < longest:
        raise ShapeError(
            "sequence_pad does not shorten sequences",
            expected=f"a maxlen of at least {longest}, the longest sequence",
            received=padded_length,
            fix="pass a larger maxlen, or None for that of the longest sequence",
        )
    made = np.empty((len(lengths), size, *x.shape[1:]), x.dtype)
    made[...] = value.reshape(x.shape[1:]) if value.size != 1 else value.reshape(())
    made[owners(offsets), positions(offsets)] = x
    return [made, lengths]


def _back(offsets: Array, dout: Array, dx: Array) -> None:
    # What filled up has no row in X; its gradient is dropped.
    np.copyto(dx, dout[owners(offsets), positions(offsets)])


def _back_infer(x: Meta, offsets: Meta, dout: Meta) -> Meta:
    return x


def _back_grad(ctx: GradContext) -> list[OpSpec]:
    names = passed(ctx, f"Out{GRAD}", f"X{GRAD}")
    if names is None:
        return []
    given, wanted = names
    # The value is a constant to the gradient of X, so second derivatives are padded with zeros.
    zero = ctx.fresh(given)
    fill = {"shape": (1,), "value": 0.0, "dtype": ctx.meta(ctx.inputs["X"][0]).dtype}
    inputs = {"X": [given], f"X{LOD}": ctx.inputs[f"X{LOD}"], "PadValue": [zero]}
    return [
        OpSpec("fill_constant", {}, {"Out": [zero]}, fill),
        OpSpec("sequence_pad", inputs, {"Out": [wanted]}, ctx.attrs),
    ]


def _lower(torch: Any, x: Any, offsets: Any, value: Any, *, padded_length: int) -> Any:
    parts = each(torch, x, offsets)
    size = padded_length if padded_length > 0 else max(map(len, parts), default=0)
    # `expand` makes views of stride 0; `cat` is the only copy.
    fill = value.expand(x.shape[1:]) if value.numel() == 1 else value
    rows = [torch.cat([part, fill.expand(size - len(part), *x.shape[1:])]) for part in parts]
    return torch.stack(rows) if rows else x.new_zeros((0, size, *x.shape[1:])), offsets[1:] - offsets[:-1]


def _lower_back(torch: Any, x: Any, offsets: Any, dout: Any) -> Any:
    lengths = (offsets[1:] - offsets[:-1]).tolist()
    return torch.cat([x.new_zeros((0, *x.shape[1:])), *(row[:n] for row, n in zip(dout, lengths, strict=True))])


register(OpDef(
    "sequence_pad", f"X, X{LOD}, PadValue -> Out, Length", attrs={"padded_length": Attr(-1, "int")}, infer=_infer,
    ref=_ref, lower=_lower, dynamic=Dynamic("the longest sequence, where no length is given", free=("X", "PadValue",)),
    grad=GradOp(
        f"X, X{LOD}, Out{GRAD} -> X{GRAD}", infer=_back_infer, ref=lambda x, offsets, dout, dx: _back(offsets, dout, dx),
        traits=(READS_LENGTHS,), lower=_lower_back, shape_only=("X",), grad=_back_grad,
    ),
    domain=Domain(
        cases=(
            Case(((7, 2), (4,), (1,))), Case(((7, 2), (4,), (2,)), {"padded_length": 9}), Case(((5,), (3,), ())),
            Case(((0, 3), (3,), (1,))), Case(((4, 2, 1), (2,), (2, 1))),
        ),
        values={f"X{LOD}": OFFSETS}, others=ANY, ulps=0,
    ),
    complex="linear",
))  # fmt: skip


@export("static.nn.sequence_pad", "fluid.layers.sequence_pad", op="sequence_pad")
def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Makes a row of a batch of each sequence.

    Args:
        x: ``[rows, ...]`` with a LoD.
        pad_value: What fills a sequence up: one number, or a row of ``x``; no gradient flows to it.
        maxlen: The length of all; that of the longest sequence if ``None``.
        name: Name of the layer.

    Returns:
        ``[sequences, maxlen, ...]``, and the lengths, ``[sequences]`` int64.

    Raises:
        ProgramError: If ``x`` has no LoD.
        ShapeError: When the program runs, if a sequence is longer than ``maxlen`` (a ``ValueError``).

    Example:
        >>> x = static.data("x", [None, 1], "int64", lod_level=1)
        >>> y, length = static.nn.sequence_pad(x, paddle.full([1], 0, "int64"))
        >>> feed = fluid.create_lod_tensor([[1, 2], [3, 4, 5]], [[2, 3]])
        >>> done = static.Executor().run(feed={"x": feed}, fetch_list=[y, length])
        >>> done[0][:, :, 0].tolist(), done[1].tolist()
        ([[1, 2, 0], [3, 4, 5]], [2, 3])
    """
    function = "sequence_pad"
    inputs = {"X": check_variable(x, "x", function), "PadValue": check_variable(pad_value, "pad_value", function)}
    size = -1 if maxlen is None else check_int(maxlen, "maxlen", function, -1)
    made: tuple[Variable, Variable] = emit(function, inputs, {"padded_length": size}, name=name)
    return made


# ------------------------------------------------------------------------------------------------------- sequence_unpad
def _unpad_infer(x: Meta, length: Meta) -> tuple[Meta, Meta]:
    check_rank(x, range(2, ANY_RANK), "X")
    check_dtype(length, INTEGERS, "Length")
    count = UNKNOWN if x.shape[0] == UNKNOWN else x.shape[0] + 1
    return x.with_shape((UNKNOWN, *x.shape[2:])), Meta((count,), int64)


def _offsets(x: Array, length: Array) -> Array:
    lengths = length.reshape(-1)
    # Checked before any index is made: negative lengths would index from the end without an error.
    if len(lengths) != len(x) or (lengths.size and not 0 <= lengths.min() <= lengths.max() <= x.shape[1]):
        raise ShapeError(
            "sequence_unpad takes as many steps of each row as Length says",
            expected=f"{len(x)} lengths from 0 to {x.shape[1]}",
            received=f"{lengths.tolist()[:8]}",
            fix="pass the lengths that sequence_pad gave",
        )
    return offsets_from(lengths)


def _unpad(x: Array, length: Array, out: None, out_offsets: None) -> list[Array]:
    offsets = _offsets(x, length)
    return [x[owners(offsets), positions(offsets)], offsets]


def _unpad_back(x: Array, length: Array, dout: Array, dx: Array) -> None:
    offsets = _offsets(x, length)
    dx.fill(0)
    dx[owners(offsets), positions(offsets)] = dout


def _unpad_lower(torch: Any, x: Any, length: Any) -> Any:
    lengths = length.flatten().tolist()
    rows = [row[:n] for row, n in zip(x, lengths, strict=True)]
    return torch.cat([x.new_zeros((0, *x.shape[2:])), *rows]), torch.cumsum(torch.tensor([0, *lengths]), 0)


def _unpad_lower_back(torch: Any, x: Any, length: Any, dout: Any) -> Any:
    lengths = length.flatten().tolist()
    dx = dout.new_zeros(x.shape)
    for row, part in zip(dx, torch.split(dout, lengths), strict=True):
        row[: len(part)] = part
    return dx


register(OpDef(
    "sequence_unpad", f"X, Length -> Out, Out{LOD}", infer=_unpad_infer, ref=_unpad, lower=_unpad_lower,
    dynamic=Dynamic("the lengths", free=("X",)),
    grad=GradOp(
        f"X, Length, Out{GRAD} -> X{GRAD}", ref=_unpad_back,
        traits=(READS_LENGTHS,), lower=_unpad_lower_back, shape_only=("X",),
        grad=grad_is_forward_op("sequence_unpad", keep=("Length",)),
    ),
    domain=Domain(
        cases=(Case(((3, 4, 2), (3,))), Case(((2, 3), (2, 1))), Case(((0, 3, 1), (0,))), Case(((4, 1), (4,)))),
        values={"Length": ValueRange(0, "X.1", dtype="int64")}, others=ANY, ulps=0,
    ),
    complex="linear",
))  # fmt: skip


@export("static.nn.sequence_unpad", "fluid.layers.sequence_unpad", op="sequence_unpad")
def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Variable:
    """Puts the first steps of each row of a batch under each other.

    Args:
        x: ``[sequences, steps, ...]``.
        length: How many steps of each, ``[sequences]``, integers.
        name: Name of the layer.

    Returns:
        ``[rows, ...]`` with a LoD.

    Raises:
        ShapeError: When the program runs, if a length is larger than the number of steps.

    Example:
        >>> x = paddle.to_tensor([[1, 2, 0], [3, 4, 5]])
        >>> y = static.nn.sequence_unpad(x, paddle.to_tensor([2, 3]))
        >>> done = static.Executor().run(fetch_list=[y], return_numpy=False)[0]
        >>> np.array(done).tolist(), done.lod()
        ([1, 2, 3, 4, 5], [[0, 2, 5]])
    """
    function = "sequence_unpad"
    return emit_one(function, {"X": check_variable(x, "x", function), "Length": check_variable(length, "length", function)},
                    name=name)  # fmt: skip
