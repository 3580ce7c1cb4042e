"""Complex numbers and their parts: complex, polar, real, imag, conj, absolute value, angle, and pairs of numbers read as one.

A gradient with respect to a complex value is dL/dRe + i dL/dIm, as in Paddle and torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_dtype
from tstatic.ir.opdef import Case, Domain, GradContext, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.paddle_form import PaddleForm
from tstatic.ir.program import Variable
from tstatic.ir.split import ELEMENTS, FIRST, Split
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.gradients import Emitter, grad_is_op
from tstatic.ops.base.mixed import operands
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise._broadcast import binary_floats
from tstatic.ops.elementwise.arithmetic import multiply
from tstatic.ops.elementwise.unary import cos, sin
from tstatic.tuned._common import Array

COMPLEX = ("complex64", "complex128")
PARTS = ("float32", "float64")
VALUES = ValueRange(dtype="complex")
_EACH = Split(ELEMENTS, FIRST)


def _of_parts(x: Meta) -> Meta:
    """Infers a real result of complex values."""
    check_dtype(x, COMPLEX, "X", fix="leave the call out: these values are real")
    return x.with_dtype(x.dtype.real)


def _domain(values: ValueRange = VALUES, **options: Any) -> Domain:
    return Domain("unary", values={"X": values}, floats=PARTS, **options)


def _times_i(ctx: GradContext) -> list[OpSpec]:
    """Gives the gradient of an imaginary part: i times what arrives."""
    e = Emitter(ctx)
    arriving, wanted = e.incoming("Out"), e.wanted("X")
    if arriving is not None and wanted is not None:
        e.emit("complex", {"X": e.emit("fill_zeros_like", {"X": arriving}), "Y": arriving}, wanted)
    return e.specs


register(OpDef(
    "real", "X -> Out", infer=_of_parts, ref=lambda x, out: np.copyto(out, x.real), lower=lambda torch, x: x.real.clone(),
    grad=grad_is_op("cast", lambda ctx: {"out_dtype": ctx.meta(ctx.inputs["X"][0]).dtype}), complex="own", split=_EACH,
    domain=_domain(ulps=0), onnx="runtimes of ONNX have no complex numbers",
))  # fmt: skip
register(OpDef(
    "imag", "X -> Out", infer=_of_parts, ref=lambda x, out: np.copyto(out, x.imag), lower=lambda torch, x: x.imag.clone(),
    grad=_times_i, complex="own", split=_EACH, domain=_domain(ulps=0), onnx="runtimes of ONNX have no complex numbers",
))  # fmt: skip
register(OpDef(
    "conj", "X -> Out", infer=lambda x: x, ref=lambda x, out: np.conjugate(x, out=out, casting="unsafe"),
    lower=lambda torch, x: torch.conj(x).resolve_conj().clone(), grad=grad_is_op("conj"), complex="own", split=_EACH,
    inplace=(("X", "Out"),), domain=_domain(others=("float32", "int64"), ulps=0), onnx="runtimes of ONNX have no complex numbers",
))  # fmt: skip


# -------------------------------------------------------------------------------------------------- length and direction
def _abs_grad(x: Array, out: Array, dout: Array, dx: Array) -> None:
    # The direction of 0 is 0, as in torch.
    np.multiply(x, np.divide(dout, out, out=np.zeros_like(out), where=out != 0), out=dx)


register(OpDef(
    "complex_abs", "X -> Out", infer=_of_parts, ref=lambda x, out: np.absolute(x, out=out), lower=lambda torch, x: torch.abs(x),
    grad=GradOp("X, Out, Out@GRAD -> X@GRAD", ref=_abs_grad, lower=lambda torch, x, out, dout: dout * torch.sgn(x), split=_EACH),
    complex="own", split=_EACH, paddle=PaddleForm(write=lambda op: [op.made("abs")]),
    # Away from 0, where the length has a kink.
    domain=_domain(ValueRange(0.2, 2.0, dtype="complex"), ulps=4), onnx="runtimes of ONNX have no complex numbers",
))  # fmt: skip


def _angle_infer(x: Meta) -> Meta:
    check_dtype(x, (*PARTS, *COMPLEX), "X")
    return x.with_dtype(x.dtype.real)


def _angle(x: Array, out: Array) -> None:
    if x.dtype.kind == "c":
        np.arctan2(x.imag, x.real, out=out)
    else:
        # A real number has angle 0 or pi; NaN stays NaN.
        np.copyto(out, np.where(np.isnan(x), x, np.where(x < 0, np.pi, 0)), casting="unsafe")


def _angle_grad(x: Array, dout: Array, dx: Array) -> None:
    if x.dtype.kind != "c":
        dx.fill(0)
        return
    size = x.real * x.real + x.imag * x.imag
    # 0 has no angle; its gradient is 0, as in torch.
    share = np.divide(dout, size, out=np.zeros_like(size), where=size != 0)
    dx.real = -x.imag * share
    dx.imag = x.real * share


def _angle_grad_lower(torch: Any, x: Any, dout: Any) -> Any:
    if not x.is_complex():
        return torch.zeros_like(x)
    size = x.real.square() + x.imag.square()
    return torch.where(size == 0, torch.zeros_like(x), torch.complex(-x.imag * dout, x.real * dout) / size)


register(OpDef(
    "angle", "X -> Out", infer=_angle_infer, ref=_angle, lower=lambda torch, x: torch.angle(x), complex="own", split=_EACH,
    grad=GradOp("X, Out@GRAD -> X@GRAD", ref=_angle_grad, lower=_angle_grad_lower, split=_EACH),
    # Away from the negative axis, where the angle jumps.
    domain=_domain(ValueRange(0.2, 2.0, dtype="complex"), ulps=4), onnx="runtimes of ONNX have no complex numbers",
))  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- from parts
def _complex_infer(x: Meta, y: Meta) -> Meta:
    out = binary_floats(x, y)
    check_dtype(x, PARTS, "X")
    return out.with_dtype(out.dtype.complex)


def _complex(x: Array, y: Array, out: Array) -> None:
    # Each part is written in place and broadcasts there: no temporary of the full shape.
    out.real = x
    out.imag = y


def _parts_of(ctx: GradContext) -> list[OpSpec]:
    """Gives the gradients of both parts, each summed to its shape by the backward op of an addition."""
    e = Emitter(ctx)
    arriving = e.incoming("Out")
    for slot, part in (("X", "real"), ("Y", "imag")):
        wanted = e.wanted(slot)
        if arriving is not None and wanted is not None:
            # The gradient op of an addition sums what broadcasting repeated.
            ins = {"X": e.input("X"), "Y": e.input("Y"), "Out@GRAD": e.emit(part, {"X": arriving})}
            e.emit("elementwise_add_grad", ins, wanted, f"{slot}@GRAD", axis=-1)
    return e.specs


register(OpDef(
    "complex", "X, Y -> Out", infer=_complex_infer, ref=_complex, complex="own",
    lower=lambda torch, x, y: torch.complex(*(v.clone() for v in torch.broadcast_tensors(x, y))), grad=_parts_of,
    domain=Domain("binary", floats=PARTS, ulps=0), onnx="runtimes of ONNX have no complex numbers",
))  # fmt: skip


def _as_complex_infer(x: Meta) -> Meta:
    check_dtype(x, PARTS, "X")
    if x.rank == 0 or x.shape[-1] not in (2, UNKNOWN):
        raise ShapeError(
            "the last axis of X does not hold a real and an imaginary part",
            expected="[..., 2]",
            received=list(x.shape),
            fix="stack both parts along the last axis, or use paddle.complex(real, imag)",
        )
    return Meta(x.shape[:-1], x.dtype.complex)


def _as_complex(x: Array, out: Array) -> None:
    out.real = x[..., 0]
    out.imag = x[..., 1]


def _as_real_infer(x: Meta) -> Meta:
    return _of_parts(x).with_shape((*x.shape, 2))


def _as_real(x: Array, out: Array) -> None:
    out[..., 0] = x.real
    out[..., 1] = x.imag


def _pairs(
    type: str, infer: Callable[..., Meta], ref: Callable[..., None], lower: Any, back: str, last: Sequence[int]
) -> None:
    shapes = ((3, *last), (2, 3, *last), tuple(last), (0, *last), (1, 5, *last))
    register(OpDef(
        type, "X -> Out", infer=infer, ref=ref, lower=lower, grad=grad_is_op(back), complex="own",
        domain=Domain(
            cases=tuple(Case((shape,)) for shape in shapes), values={} if last else {"X": VALUES}, floats=PARTS, ulps=0
        ), onnx="runtimes of ONNX have no complex numbers",
    ))  # fmt: skip


_pairs(
    "as_complex", _as_complex_infer, _as_complex, lambda torch, x: torch.complex(x[..., 0], x[..., 1]), "as_real", (2,)
)
# torch marks a conjugate instead of computing it, and `view_as_real` refuses a marked tensor.
_pairs(
    "as_real", _as_real_infer, _as_real, lambda torch, x: torch.view_as_real(x.resolve_conj()).clone(), "as_complex", ()
)


# -------------------------------------------------------------------------------------------------------------- functions
def _emit(type: str, x: Any, name: str | None, dtypes: Sequence[str] = COMPLEX) -> Variable:
    return emit_one(type, {"X": check_variable(x, "x", type, dtypes)}, name=name)


@export("tensor.real", "Variable.real", op="real")
def real(x: Variable, name: str | None = None) -> Variable:
    """Returns the real parts.

    Args:
        x: complex64 or complex128, of any shape; float32 or float64 comes out.
        name: Name of the layer.

    Raises:
        DTypeError: If ``x`` is not complex.

    Example:
        >>> x = paddle.to_tensor([1.0 + 2.0j, 3.0 - 4.0j], dtype="complex64")
        >>> static.Executor().run(fetch_list=[paddle.real(x), paddle.imag(x), paddle.abs(x)])
        [array([1., 3.], dtype=float32), array([ 2., -4.], dtype=float32), array([2.2361, 5.    ], dtype=float32)]
    """
    return _emit("real", x, name)


@export("tensor.imag", "Variable.imag", op="imag")
def imag(x: Variable, name: str | None = None) -> Variable:
    """Returns the imaginary parts.

    Args:
        x: complex64 or complex128, of any shape; float32 or float64 comes out.
        name: Name of the layer.

    Raises:
        DTypeError: If ``x`` is not complex.
    """
    return _emit("imag", x, name)


@export("tensor.conj", "Variable.conj", op="conj")
def conj(x: Variable, name: str | None = None) -> Variable:
    """Returns the conjugates; real values are their own.

    Args:
        x: Any shape and dtype.
        name: Name of the layer.
    """
    return emit_one("conj", {"X": check_variable(x, "x", "conj")}, name=name)


@export("tensor.angle", "Variable.angle", op="angle")
def angle(x: Variable, name: str | None = None) -> Variable:
    """Returns the angles in [-pi, pi]; of real values 0 or, below 0, pi.

    Args:
        x: Floats or complex numbers of any shape.
        name: Name of the layer.
    """
    return _emit("angle", x, name, (*PARTS, *COMPLEX))


@export("tensor.complex", op="complex")
def complex(real: Variable, imag: Variable, name: str | None = None) -> Variable:
    """Makes complex numbers of their parts.

    Args:
        real, imag: float32 or float64 of one dtype; shapes broadcast.
        name: Name of the layer.

    Returns:
        complex64, or complex128 of float64.

    Raises:
        DTypeError: For parts of another dtype, or of two.

    Example:
        >>> x = paddle.complex(paddle.to_tensor([1.0, 2.0]), paddle.to_tensor([0.5]))
        >>> static.Executor().run(fetch_list=[x])[0]
        array([1.+0.5j, 2.+0.5j], dtype=complex64)
    """
    ins = {"X": check_variable(real, "real", "complex", PARTS), "Y": check_variable(imag, "imag", "complex", PARTS)}
    return emit_one("complex", ins, name=name)


@export("tensor.polar")
def polar(abs: Variable, angle: Variable, name: str | None = None) -> Variable:
    """Makes complex numbers of their absolute values and angles.

    Args:
        abs, angle: float32 or float64 of one dtype; shapes broadcast.
        name: Name of the layer.

    Raises:
        DTypeError: For other dtypes.
    """
    check_variable(abs, "abs", "polar", PARTS)
    size, direction = operands(abs, check_variable(angle, "angle", "polar", PARTS), "polar")
    return complex(multiply(size, cos(direction)), multiply(size, sin(direction)), name)


@export("tensor.as_complex", "Variable.as_complex", op="as_complex")
def as_complex(x: Variable, name: str | None = None) -> Variable:
    """Reads pairs of numbers along the last axis as complex numbers.

    Args:
        x: float32 or float64 ``[..., 2]``.
        name: Name of the layer.

    Returns:
        ``[...]``.

    Raises:
        ShapeError: If the last size is not 2.
    """
    return _emit("as_complex", x, name, PARTS)


@export("tensor.as_real", "Variable.as_real", op="as_real")
def as_real(x: Variable, name: str | None = None) -> Variable:
    """Writes complex numbers ``[...]`` as pairs of their parts ``[..., 2]``.

    Args:
        x: complex64 or complex128.
        name: Name of the layer.

    Raises:
        DTypeError: If ``x`` is not complex.
    """
    return _emit("as_real", x, name)
