"""Padding a value to the shape of another one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_number, check_same_dtype
from tstatic.ir.opdef import Case, Domain, GradOp, OpDef, export, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.shapes import Array, emit_one
from tstatic.ops.shape import _shape_onnx as _onnx


def _infer(x: Meta, y: Meta) -> Meta:
    check_same_dtype((x, y), ("X", "Y"))
    check_fit(
        x.rank == y.rank and all(UNKNOWN in (m, n) or m >= n for m, n in zip(x.shape, y.shape, strict=True)), (x, y),
        ("X", "Y"), "Y cannot be padded to the shape of X", "a Y of the same rank that is nowhere larger than X",
        "exchange the two, or slice Y",
    )  # fmt: skip
    return x


def _part(array: Any, shape: Any) -> Any:
    """Returns the first elements along each axis."""
    return array[tuple(slice(0, size) for size in shape)]


def _ref(x: Array, y: Array, out: Array, *, pad_value: float) -> None:
    # The part that Y covers is written twice; borders on every side but the first would need a call for each axis.
    out.fill(pad_value)
    np.copyto(_part(out, y.shape) if y.ndim else out, y)


def _lower(torch: Any, x: Any, y: Any, *, pad_value: float) -> Any:
    pads = [n for a, b in zip(reversed(x.shape), reversed(y.shape), strict=True) for n in (0, a - b)]
    return torch.nn.functional.pad(y, pads, value=pad_value)


def _onnx_form(g: Any, x: Any, y: Any, *, pad_value: float) -> Any:
    pads = [(0, a - b) for a, b in zip(g.known(x), g.known(y), strict=True)]
    return _onnx.pad(g, y, pads, value=pad_value)


register(OpDef(
    "pad_constant_like", "X, Y -> Out", attrs={"pad_value": 0.0}, infer=_infer, ref=_ref, lower=_lower,
    shape_only=("X",), paddle=ABSENT,
    grad=GradOp(
        "Y, Out@GRAD -> Y@GRAD", shape_only=("Y",), ref=lambda y, dout, dy: np.copyto(dy, _part(dout, y.shape)),
        lower=lambda torch, y, dout: _part(dout, y.shape).clone(),
    ),
    domain=Domain(
        cases=(
            Case(((3, 4), (2, 3)), {"pad_value": 1.5}), Case(((2, 3, 2), (2, 1, 2))), Case(((4,), (4,))),
            Case(((2, 2), (0, 1)), {"pad_value": -1.0}),
        ),
        ulps=0,
    ), onnx=_onnx_form,
))  # fmt: skip


@export("fluid.layers.pad_constant_like", op="pad_constant_like")
def pad_constant_like(x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None) -> Variable:
    """Pads ``y`` at the end of each axis to the shape of ``x``.

    Args:
        x: Of it only the shape counts; any rank.
        y: Of that rank and dtype, nowhere larger.
        pad_value: What is put there.
        name: Name of the layer.

    Returns:
        The shape of ``x``.

    Raises:
        ShapeError, DTypeError: If ``y`` cannot be padded so.

    Example:
        >>> y = fluid.layers.pad_constant_like(paddle.zeros([2, 3]), paddle.ones([1, 2]), pad_value=9.0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[1., 1., 9.],
               [9., 9., 9.]], dtype=float32)
    """
    ins = {a: check_variable(v, a.lower(), "pad_constant_like") for a, v in (("X", x), ("Y", y))}
    attrs = {"pad_value": check_number(pad_value, "pad_value", "pad_constant_like", finite=False)}
    return emit_one("pad_constant_like", ins, attrs, name=name)
