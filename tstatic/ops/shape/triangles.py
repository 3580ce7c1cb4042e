"""The lower and the upper triangle of matrices."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Case, Domain, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Call
from tstatic.ir.split import ELEMENTS, FREE, Split
from tstatic.ir.types import Meta
from tstatic.ops._call_ref import copies
from tstatic.ops._gradients import grad_is_op
from tstatic.ops.shape._shapes import Array, check_rank, clear, emit_one
from tstatic.ops.shape.reshape import ANY


@lru_cache(maxsize=16)
def _mask(rows: int, columns: int, diagonal: int, lower: bool) -> Array:
    """Where the elements that stay stand; kept, since attention makes the same causal mask in every layer."""
    mask = np.tri(rows, columns, diagonal if lower else diagonal - 1, dtype=bool)
    mask = mask if lower else ~mask
    mask.setflags(write=False)
    return mask


def _calls(x: Array, out: Array, *, diagonal: int, lower: bool) -> list[Call]:
    mask = _mask(x.shape[-2], x.shape[-1], diagonal, lower)
    # Not a product with the mask: NaN times 0 is NaN.
    return [clear(out), (np.copyto, (out, x, "same_kind", mask))]


def _infer(x: Meta) -> Meta:
    check_rank(x, 2, None, "X")
    return x


def _lower(torch: Any, x: Any, *, diagonal: int, lower: bool) -> Any:
    return torch.tril(x, diagonal) if lower else torch.triu(x, diagonal)


register(
    OpDef(
        "tril_triu",
        "X -> Out",
        attrs={"diagonal": 0, "lower": True},
        infer=_infer,
        ref=copies(_calls),
        lower=_lower,
        split=Split(ELEMENTS, FREE, taken=lambda x: (-2, -1)),
        grad=grad_is_op("tril_triu", lambda ctx: ctx.attrs),
        domain=Domain(
            cases=(
                Case(((4, 4),), {"lower": True}),
                Case(((4, 4),), {"lower": False}),
                Case(((3, 5),), {"lower": True, "diagonal": 1}),
                Case(((2, 5, 3),), {"lower": False, "diagonal": -2}),
                Case(((0, 3),), {"lower": True}),
                Case(((2, 3, 1, 4),), {"lower": False, "diagonal": 2}),
                Case(((2, 2),), {"lower": True, "diagonal": -9}),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)


@export("tensor.tril", "Variable.tril", "fluid.layers.tril", op="tril_triu")
def tril(x: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The lower triangle of the last two axes, zeros above; ``diagonal`` moves the border up.

    Raises:
        ShapeError: If ``x`` has fewer than two dimensions.
    """
    attrs = {"diagonal": diagonal, "lower": True}
    return emit_one("tril_triu", {"X": check_variable(x, "x", "tril")}, attrs, name=name, prefix="tril")


@export("tensor.triu", "Variable.triu", "fluid.layers.triu", op="tril_triu")
def triu(x: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The upper triangle of the last two axes, zeros below; ``diagonal`` moves the border up.

    Raises:
        ShapeError: If ``x`` has fewer than two dimensions.
    """
    attrs = {"diagonal": diagonal, "lower": False}
    return emit_one("tril_triu", {"X": check_variable(x, "x", "triu")}, attrs, name=name, prefix="triu")
