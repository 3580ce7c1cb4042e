"""The words that begin at each place of a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.sequence._offsets import OFFSETS, Array, check_sequences, each, lengths_of
from tstatic.ir.attrs import Attr
from tstatic.ir.build import check_variable
from tstatic.ir.checks import INDICES, check_dtype, check_int
from tstatic.ir.opdef import LOD, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.shapes import emit_one


def _infer(x: Meta, offsets: Meta, win_size: int) -> Meta:
    check_sequences(x, offsets)
    check_dtype(x, INDICES, "X")
    return x.with_shape((x.shape[0], win_size))


def _ref(x: Array, offsets: Array, out: Array, *, win_size: int, pad_value: int) -> None:
    words = x.reshape(-1)
    ends = np.repeat(offsets[1:], lengths_of(offsets))
    at = np.arange(len(words))
    for shift in range(win_size):
        here = at + shift < ends
        # Clamped, for `where` reads both sides: behind the last row is nothing to read.
        np.copyto(out[:, shift], np.where(here, words[np.minimum(at + shift, len(words) - 1)], pad_value))


def _lower(torch: Any, x: Any, offsets: Any, *, win_size: int, pad_value: int) -> Any:
    rows = [x.new_zeros((0, win_size))]
    for part in each(torch, x.flatten(), offsets):
        # Padded by all but one place of a window: then every row begins a whole one.
        filled = torch.cat([part, part.new_full((win_size - 1,), pad_value)])
        if len(part):
            rows.append(filled.unfold(0, win_size, 1))
    return torch.cat(rows)


register(OpDef(
    "sequence_enumerate", f"X, X{LOD} -> Out",
    attrs={"win_size": Attr(kind="int", check=lambda n: None if n >= 1 else "a size of at least 1"), "pad_value": 0},
    infer=_infer, ref=_ref,
    traits=(READS_LENGTHS,), lower=_lower, lod="X",
    domain=Domain(
        cases=(
            Case(((7, 1), (4,)), {"win_size": 3, "pad_value": 9}), Case(((5, 1), (2,)), {"win_size": 1}),
            Case(((0, 1), (2,)), {"win_size": 2}), Case(((4,), (5,)), {"win_size": 6}),
        ),
        values={"X": ValueRange(0, 50, dtype="int64"), f"X{LOD}": OFFSETS}, floats=("float32",), ulps=0,
    ),
))  # fmt: skip


@export("static.nn.sequence_enumerate", "fluid.layers.sequence_enumerate", op="sequence_enumerate")
def sequence_enumerate(input: Variable, win_size: int, pad_value: int = 0, name: str | None = None) -> Variable:
    """Returns for each place the numbers that begin there.

    Args:
        input: ``[rows, 1]`` int64 or int32 with a LoD.
        win_size: How many numbers.
        pad_value: What stands behind the end of the sequence.
        name: Name of the layer.

    Returns:
        ``[rows, win_size]`` with the LoD.

    Raises:
        ProgramError: If ``input`` has no LoD.
        DTypeError: If it holds something else than these integers.

    Example:
        >>> x = static.data("x", [None, 1], "int64", lod_level=1)
        >>> y = static.nn.sequence_enumerate(x, win_size=2)
        >>> feed = fluid.create_lod_tensor([[1, 2], [3]], [[2, 1]])
        >>> np.array(static.Executor().run(feed={"x": feed}, fetch_list=[y], return_numpy=False)[0])
        array([[1, 2],
               [2, 0],
               [3, 0]])
    """
    function = "sequence_enumerate"
    attrs = {
        "win_size": check_int(win_size, "win_size", function, 1), "pad_value": check_int(pad_value, "pad_value", function),
    }  # fmt: skip
    return emit_one(function, {"X": check_variable(input, "input", function, INDICES)}, attrs, name=name)
