"""Clipping by the norm of one value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tstatic.errors import DTypeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops._flat import flat_parts, store

Array = np.ndarray[Any, Any]


def _infer(x: Meta) -> Meta:
    if not x.dtype.is_float:
        raise DTypeError(
            "'clip_by_norm' takes floating-point values",
            expected="a float dtype",
            received=x.dtype.name,
            fix="convert the input with paddle.cast(x, 'float32')",
            op="clip_by_norm",
        )
    return x


def _ref(x: Array, out: Array, *, max_norm: float) -> None:
    norm = math.sqrt(sum(float(np.dot(values, values)) for _, values in flat_parts(x)))
    if not norm > max_norm:
        np.copyto(out, x)
        return
    factor = max_norm / norm
    for part, values in flat_parts(x):
        store(out, part, values * values.dtype.type(factor))


def _lower(torch: Any, x: Any, *, max_norm: float) -> Any:
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    norm = torch.linalg.vector_norm(wide.reshape(-1).double())
    factor = torch.where(norm > max_norm, max_norm / norm, 1.0).to(wide.dtype)
    return (wide * factor).to(x.dtype)


def _positive(value: float) -> str | None:
    return None if value > 0 else "a norm above 0"


register(
    OpDef(
        "clip_by_norm",
        "X -> Out",
        attrs={"max_norm": Attr(kind="float", check=_positive)},
        infer=_infer,
        ref=_ref,
        lower=_lower,
        inplace=(("X", "Out"),),
        uses_blas=True,
        domain=Domain(
            "unary",
            attrs=({"max_norm": 0.5}, {"max_norm": 1e3}, {"max_norm": 3.0}),
            cases=(Case(((40000,),), {"max_norm": 10.0}),),
            ulps=8,
        ),
    )
)


@export("fluid.layers.clip_by_norm", "nn.clip_by_norm", op="clip_by_norm")
def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """``x * max_norm / |x|`` when the L2 norm ``|x|`` is above ``max_norm``, else ``x``; the shape of ``x``."""
    return emit("clip_by_norm", {"X": check_variable(x, "x", "clip_by_norm")}, {"max_norm": max_norm}, name=name)  # type: ignore[no-any-return]
