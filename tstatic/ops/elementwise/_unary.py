"""What the ops of one input share: functions of expressions, definitions, and the body of their public functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from tstatic.ir import expr
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, NUMBERS, check_dtype
from tstatic.ir.opdef import DERIVE, NO_ATTRS, Domain, GradOp, OpDef, ValueRange, register
from tstatic.ir.paddle_form import PaddleForm
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, bool_
from tstatic.ops.shape._shapes import emit_one
from tstatic.tuned._common import Array, make
from tstatic.tuned.special import erf, special_scratch


# --------------------------------------------------------------------------------------------- functions of expressions
def _erf(x: Array, out: Array) -> None:
    # Three cache-sized blocks, made anew so that threads may share the compiled expression.
    erf(x, out, make(special_scratch(x.size, x.dtype)))


def _power(x: Array, y: Array, out: Array) -> None:
    """Computes ``x ** y``; integers to a negative power are 1 or -1 for a base of that size, else 0, as in torch."""
    if out.dtype.kind not in "iu" or np.all(np.asarray(y) >= 0):
        np.power(x, y, out)
        return
    # numpy raises for integers to negative powers, so these exponents are replaced before.
    base, exponent = (np.array(np.broadcast_to(a, out.shape)) for a in (x, y))
    negative, unit = exponent < 0, np.abs(base) == 1
    np.power(base, np.where(negative, np.where(unit, -exponent, 0), exponent), out)
    np.copyto(out, 0, where=negative & ~unit)


def _torch_pair(name: str) -> Any:
    def call(torch: Any, a: Any, b: Any) -> Any:
        like = a if hasattr(a, "dtype") else b
        return getattr(torch, name)(
            *(v if hasattr(v, "dtype") else torch.as_tensor(v, dtype=like.dtype) for v in (a, b))
        )

    return call


def _isnan(x: Array, out: Array) -> None:
    # numpy 2.4's vectorised isnan and isinf write the wrong elements when the output has gaps.
    if out.flags.c_contiguous:
        np.isnan(x, out)
    else:
        np.copyto(out, np.isnan(x))


def _isinf(x: Array, out: Array) -> None:
    if out.flags.c_contiguous:
        np.isinf(x, out)
    else:
        np.copyto(out, np.isinf(x))


expr.define("isnan", _isnan, None, kind="bool", triton="{a} != {a}")
expr.define("isinf", _isinf, None, kind="bool", triton='tl.abs({a}) == float("inf")')
expr.define("erf", _erf, None, "1.1283791670955126 * exp(-a * a)", triton="tl.erf({a})")
expr.define("atan2", np.arctan2, _torch_pair("atan2"), "b / (a * a + b * b)", "-a / (a * a + b * b)")
expr.define("fmax", np.fmax, _torch_pair("fmax"), "(a >= b) | isnan(b)", "~((a >= b) | isnan(b))")
expr.define("fmin", np.fmin, _torch_pair("fmin"), "(a <= b) | isnan(b)", "~((a <= b) | isnan(b))")
_POWER = expr.FUNCTIONS["pow"]
expr.define("pow", _power, _POWER.torch, *_POWER.grads)


# ----------------------------------------------------------------------------------------- op definitions and functions
def infer_float(x: Meta, *others: Any) -> Meta:
    """Infers the output of an op on floats: it is like the first input.

    Raises:
        DTypeError: If the input holds no floats.
    """
    check_dtype(x, FLOATS, "X")
    return x


def infer_number(x: Meta, *others: Any) -> Meta:
    """Infers the output of an op on floats or integers: it is like the first input.

    Raises:
        DTypeError: If the input holds truth values.
    """
    check_dtype(x, NUMBERS, "X")
    return x


def to_bool(x: Meta, *others: Any) -> Meta:
    """Infers the output of a test on each element."""
    return x.with_dtype(bool_)


def unary_op(
    type: str,
    text: str,
    gradient: str,
    lower: str | Callable[..., Any] | None = None,
    *,
    attrs: Mapping[str, Any] = NO_ATTRS,
    infer: Callable[..., Meta] = infer_float,
    amp: str = "gray",
    activation: bool = False,
    values: ValueRange | None = None,
    samples: tuple[Mapping[str, Any], ...] = (NO_ATTRS,),
    others: tuple[str, ...] = (),
    ulps: float = 4,
    paddle: PaddleForm | None = None,
) -> None:
    """Registers an op ``X -> Out`` that is a formula, and its backward op.

    Args:
        type: Op type.
        text: The formula, of ``x`` and the attributes.
        gradient: The gradient, of ``dout`` and of ``x``, ``out`` or both, which the backward op then reads; ``"0.0"`` has
            no gradient of its own.
        lower: The function in torch, or its name there, for a function of the input and all attributes; if there is
            none, torch computes the formula.
        attrs: Attributes.
        infer: The shape rule.
        amp: What mixed precision does with it.
        activation: Whether fusions of activations take it.
        values: Which values of ``x`` tests draw.
        samples: Attributes that tests use.
        others: Dtypes that it takes beside floats.
        paddle: How Paddle's files have it.
        ulps: Its tolerance, in units in the last place.
    """
    if isinstance(lower, str):
        path, names = lower.split("."), tuple(attrs)

        def lower(torch: Any, x: Any, **given: Any) -> Any:
            return reduce(getattr, path, torch)(x, *(given[n] for n in names))

    # Only what the gradient names is an input of the backward
    # op: a value that it does not read need not stay in memory.
    reads = [slot for slot, name in (("X", "x"), ("Out", "out")) if re.search(rf"\b{name}\b", gradient)]
    rule = DERIVE if reads else None
    register(OpDef(
        type, "X -> Out", attrs=attrs, pointwise={"Out": text}, infer=infer, lower=lower, amp=amp,
        activation=activation, paddle=paddle,
        grad=GradOp(", ".join((*reads, "Out@GRAD")) + " -> X@GRAD", pointwise={"X@GRAD": gradient}, grad=rule),
        domain=Domain(
            "unary", attrs=samples, values={} if values is None else {"X": values}, others=others, ulps=ulps
        ),
    ))  # fmt: skip


def unary(
    type: str, x: Any, attrs: dict[str, Any] | None = None, *, name: str | None = None, prefix: str | None = None
) -> Variable:
    """Appends an op of one input ``X`` and one output ``Out``; ``prefix`` names the result when the layer has another name."""
    return emit_one(type, {"X": check_variable(x, "x", prefix or type)}, attrs, name=name, prefix=prefix)


def float_unary(type: str, x: Any, *, name: str | None = None) -> Variable:
    """Does what :func:`unary` does, but converts integers to float32 first, as Paddle does for exponentials and logarithms."""
    if check_variable(x, "x", type).dtype.is_integer:
        x = emit_one("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": "float32"})
    return unary(type, x, name=name)
