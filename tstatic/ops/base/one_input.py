"""What the ops of one input share: functions of expressions, definitions, and the body of their public functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, NUMBERS, check_dtype
from tstatic.ir.opdef import DERIVE, NO_ATTRS, Complex, Domain, GradOp, OpDef, ValueRange, register
from tstatic.ir.paddle_form import PaddleForm
from tstatic.ir.program import Variable
from tstatic.ir.traits import Trait
from tstatic.ir.types import Meta, bool_
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.torch_out import torch_function


# ----------------------------------------------------------------------------------------- op definitions and functions
def infer_float(x: Meta, *others: Any) -> Meta:
    """Infers the output of an op on floats: it is like the first input.

    Raises:
        DTypeError: If the input holds no floats.
    """
    check_dtype(x, FLOATS, "X")
    return x


_WITHOUT_OUT = ("nn.functional.celu", "nn.functional.logsigmoid")
"""Functions of torch whose operators have no ``out`` of their own."""


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
    traits: tuple[Trait, ...] = (),
    values: ValueRange | None = None,
    samples: tuple[Mapping[str, Any], ...] = (NO_ATTRS,),
    others: tuple[str, ...] = (),
    ulps: float = 4,
    paddle: PaddleForm | None = None,
    complex: Complex = "",
    onnx: Callable[..., Any] | None = None,
    lower_gradient: Callable[..., Any] | None = None,
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
        traits: What it states about itself, as :class:`~tstatic.ir.traits.Activation`.
        values: Which values of ``x`` tests draw.
        samples: Attributes that tests use.
        others: Dtypes that it takes beside floats.
        paddle: How Paddle's files have it.
        ulps: Its tolerance, in units in the last place.
        complex: What it does with complex values.
        onnx: Its form in ONNX where that is one operator; ``None`` for the formula's.
        lower_gradient: The gradient in torch, of what it reads and the attributes; ``None`` for the formula's.
    """
    # The name of a torch function: most write into `out` themselves, which saves a copy.
    if isinstance(lower, str):
        function, names, alone = torch_function(lower), tuple(attrs), lower in _WITHOUT_OUT

        def lower(torch: Any, x: Any, *, out: Any = None, **given: Any) -> Any:
            if out is not None and alone:
                return out.copy_(function(torch, x, *(given[n] for n in names)))
            return function(torch, x, *(given[n] for n in names), out=out)

    # Only what the gradient names is an input of the backward
    # op: a value that it does not read need not stay in memory.
    reads = [slot for slot, name in (("X", "x"), ("Out", "out")) if re.search(rf"\b{name}\b", gradient)]
    # A gradient that reads no value (floor, sign) is 0: it has no derivative to build.
    rule = DERIVE if reads else None
    register(OpDef(
        type, "X -> Out", attrs=attrs, pointwise={"Out": text}, infer=infer, lower=lower, amp=amp,
        traits=traits, paddle=paddle, complex=complex, onnx=onnx,
        grad=GradOp(", ".join((*reads, "Out@GRAD")) + " -> X@GRAD", pointwise={"X@GRAD": gradient}, grad=rule,
                    lower=lower_gradient),
        domain=Domain(
            "unary", attrs=samples, values={} if values is None else {"X": values}, ulps=ulps,
            others=(*others, *["complex64"] * bool(complex)),
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
