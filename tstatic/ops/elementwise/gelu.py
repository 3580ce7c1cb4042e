"""GELU, exact or by its tanh approximation."""

from __future__ import annotations

from typing import Any

from tstatic.ir.opdef import DERIVE, Domain, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.types import Meta
from tstatic.ops._call_ref import CallRef
from tstatic.ops._cut import cut_alike
from tstatic.ops.elementwise import _functions  # noqa: F401 - erf in expressions
from tstatic.ops.elementwise._unary import infer_float, unary
from tstatic.tuned.special import gelu as gelu_kernel
from tstatic.tuned.special import gelu_grad as gelu_grad_kernel
from tstatic.tuned.special import special_scratch

# Expressions for kernels that inline them; numpy runs the tuned functions.
_EXACT = "0.5 * x * (1 + erf(x * 0.7071067811865476))"
# The density is 0 long before x is infinite, where their product would be NaN.
_DENSITY = "where(abs(x) < 40, x, 0) * (0.3989422804014327 * exp(-0.5 * x * x))"
_EXACT_GRAD = f"dout * (0.5 * (1 + erf(x * 0.7071067811865476)) + {_DENSITY})"
# With u = sqrt(2 / pi) * (x + 0.044715 * x^3) and e = exp(-2 * u), 0.5 * (1 + tanh(u)) is s = 1 / (1 + e). 1 - s is e * s
# where s is near 1 and the difference would lose digits; w is 2 * x * du/dx, as far as s * (1 - s) is not 0.
_E = "exp(x * (-1.5957691216057308 - 0.07135481627260025 * (x * x)))"
_S = f"(1 / (1 + {_E}))"
_REST = f"where({_E} < 1, {_E} * {_S}, 1 - {_S})"
_W = "where(x * x < 576, x * (1.5957691216057308 + 0.21406444881780075 * (x * x)), 0)"
_TANH = f"x / (1 + {_E})"
_TANH_GRAD = f"dout * ({_S} + {_S} * {_REST} * {_W})"


def _scratch_metas(ins: Any, outs: Any) -> list[Meta]:
    x = ins[0]
    return [Meta(shape, x.dtype) for shape, _ in special_scratch(x.numel, x.dtype.np)]


def _calls(ins: Any, outs: Any, scratch: Any, *, approximate: bool) -> Calls:
    return [(gelu_kernel, (ins[0], outs[0], approximate, scratch))]


def _grad_calls(ins: Any, outs: Any, scratch: Any, *, approximate: bool) -> Calls:
    return [(gelu_grad_kernel, (ins[0], ins[1], outs[0], approximate, scratch))]


_REF, _GRAD_REF = CallRef(_calls, _scratch_metas), CallRef(_grad_calls, _scratch_metas)


def _split(*metas: Any) -> Any:
    return cut_alike(*metas)


register(OpDef(
    "gelu", "X -> Out", attrs={"approximate": False}, pointwise={"Out": f"where(approximate, {_TANH}, {_EXACT})"},
    infer=infer_float, ref=_REF, split=_split,
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": f"where(approximate, {_TANH_GRAD}, {_EXACT_GRAD})"},
        ref=_GRAD_REF, split=_split, grad=DERIVE,
    ),
    lower=lambda torch, x, approximate: torch.nn.functional.gelu(x, approximate="tanh" if approximate else "none"),
    amp="gray", activation=True, domain=Domain("unary", attrs=({"approximate": False}, {"approximate": True}), ulps=8),
))  # fmt: skip


@export("nn.functional.gelu", "fluid.layers.gelu", op="gelu")
def gelu(x: Variable, approximate: bool = False, name: str | None = None) -> Variable:
    """Returns ``x`` times the normal distribution function of ``x``.

    Args:
        x: Any shape.
        approximate: Use ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))``.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.gelu(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.1587,  0.    ,  1.9545], dtype=float32)
    """
    return unary("gelu", x, {"approximate": approximate}, name=name)
