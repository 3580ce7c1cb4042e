"""``select_input``: the chosen one of several values, where branches come together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import LayerNamer
from tstatic.ir.opdef import Case, Domain, GradOp, OpDef, ValueRange, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.logs import warn_user

Arrays = Sequence[Any]


def _infer(x: Sequence[Meta], mask: Meta) -> Meta:
    last = x[-1]
    if any(one.rank != last.rank or one.dtype is not last.dtype for one in x):
        # Which rank or dtype it is, only the run knows: a value whose sizes are unknown is not planned ahead.
        return last.with_shape((UNKNOWN,) * max(last.rank, 1))
    sizes = zip(*(one.shape for one in x), strict=True)
    return last.with_shape(every[0] if len(set(every)) == 1 else UNKNOWN for every in sizes)


def _index(mask: Any) -> int:
    return int(np.asarray(mask).reshape(()))


def _ref(x: Arrays, mask: Any, out: Any) -> list[Any]:
    chosen = x[_index(mask)]
    if out is None:
        # A copy: the branch's own buffer is used again by later ops.
        return [np.array(chosen)]
    np.copyto(out, chosen)
    return [out]


def _grad(x: Arrays, mask: Any, grad: Any, dx: Any) -> list[Any]:
    index = _index(mask)
    if dx is None:
        return [[np.array(grad, dtype=v.dtype) if i == index else np.zeros_like(v) for i, v in enumerate(x)]]
    for i, out in enumerate(dx):
        if out is not None:
            if i == index:
                np.copyto(out, grad)
            else:
                out.fill(0)
    return [dx]


register(
    OpDef(
        "select_input",
        "X*, Mask -> Out",
        infer=_infer,
        ref=_ref,
        lower=lambda torch, x, mask: x[int(mask)].clone(),
        grad=GradOp(
            "X*, Mask, Out@GRAD -> X@GRAD*",
            ref=_grad,
            lower=lambda torch, x, mask, g: (
                [g.clone() if i == int(mask) else torch.zeros_like(v) for i, v in enumerate(x)],
            ),
            shape_only=("X",),
        ),
        domain=Domain(
            cases=(
                Case(([(2, 3), (2, 3)], (1,))),
                Case(([(4,), (4,), (4,)], ())),
                Case(([(), ()], ())),
                Case(([(0, 2), (0, 2)], (1,))),
                Case(([(3, 1, 2), (3, 1, 2)], (1,))),
                Case(([(5,), (5,)], ())),
            ),
            values={"Mask": ValueRange(0, 1, dtype="int32")},
        ),
    )
)


def merge(helper: LayerNamer, no: Variable, yes: Variable, mask: Variable) -> Variable:
    """Joins the results of two branches into one Variable; ``mask`` is 1 where ``yes`` is chosen.

    Warns:
        UserWarning: If the results differ in rank or dtype: what is declared is then right for ``yes`` alone.
    """
    out: Variable = helper.emit("select_input", {"X": [no, yes], "Mask": mask})
    if no.ndim != yes.ndim or no.dtype is not yes.dtype:
        out._shape = yes.shape
        warn_user(
            f"the branches return values of different ranks or dtypes: {yes.meta!r} if true, {no.meta!r} if false. The "
            f"result is declared as {yes.meta!r}, which ops after it rely on; reshape or cast one branch if that is wrong "
            "for the other"
        )
    return out
