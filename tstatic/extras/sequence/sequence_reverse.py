"""The rows of each sequence from last to first."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.sequence._offsets import OFFSETS, Array, check_sequences, each, lengths_of
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import LOD, Case, Domain, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.base.gradients import grad_is_op
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.shapes import ANY, emit_one


def _infer(x: Meta, offsets: Meta) -> Meta:
    check_sequences(x, offsets)
    return x


def _ref(x: Array, offsets: Array, out: Array) -> None:
    # Row r of a sequence [a, b) comes from a + b - 1 - r.
    mirrored = np.repeat(offsets[:-1] + offsets[1:] - 1, lengths_of(offsets))
    np.take(x, mirrored - np.arange(len(x)), axis=0, out=out, mode="clip")


def _lower(torch: Any, x: Any, offsets: Any) -> Any:
    return torch.cat([part.flip(0) for part in each(torch, x, offsets)])


register(OpDef(
    "sequence_reverse", f"X, X{LOD} -> Y", infer=_infer, ref=_ref,
    traits=(READS_LENGTHS,), lower=_lower, lod="X",
    grad=grad_is_op("sequence_reverse", out="Y", keep=(f"X{LOD}",)),
    domain=Domain(
        cases=tuple(Case((shape, (n,))) for shape, n in (((7, 2), 4), ((6,), 3), ((3, 1, 2), 6), ((0, 2), 2))),
        values={f"X{LOD}": OFFSETS}, others=ANY, ulps=0,
    ),
    complex="linear",
))  # fmt: skip


@export("static.nn.sequence_reverse", "fluid.layers.sequence_reverse", op="sequence_reverse")
def sequence_reverse(x: Variable, name: str | None = None) -> Variable:
    """Turns the rows of each sequence round.

    Args:
        x: ``[rows, ...]`` with a LoD.
        name: Name of the layer.

    Returns:
        As ``x``, with its LoD.

    Raises:
        ProgramError: If ``x`` has no LoD.

    Example:
        >>> x = static.data("x", [None, 1], "int64", lod_level=1)
        >>> y = static.nn.sequence_reverse(x)
        >>> feed = fluid.create_lod_tensor([[1, 2], [3, 4, 5]], [[2, 3]])
        >>> np.array(static.Executor().run(feed={"x": feed}, fetch_list=[y], return_numpy=False)[0]).ravel()
        array([2, 1, 5, 4, 3])
    """
    return emit_one("sequence_reverse", {"X": check_variable(x, "x", "sequence_reverse")}, name=name)
