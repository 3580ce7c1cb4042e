"""Comparisons, nearness, truth values and bits, tests for NaN and infinity, and choice by a condition."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tstatic.ir import expr, expr_numpy
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.checks import INTEGERS, check_dtype
from tstatic.ir.opdef import PUBLIC_API, Attr, Case, Domain, GradContext, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.paddle_form import PaddleForm
from tstatic.ir.program import Variable
from tstatic.ir.ref import plain
from tstatic.ir.split import ELEMENTS, FIRST, Split
from tstatic.ir.types import DType, Meta, bool_, broadcast_shapes, dtype_of
from tstatic.no_effect import PLACE, no_effect
from tstatic.ops.base.call_ref import CallRef
from tstatic.ops.base.gradients import Emitter
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.mixed import operands, unify
from tstatic.ops.base.one_input import to_bool
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise import _elementwise_onnx as _onnx
from tstatic.ops.elementwise._broadcast import (
    comparison,
    prepare,
    reduced_gradient,
    same_dtype,
    write_in_one_shape,
    write_nearness,
    write_truth_values,
)
from tstatic.ops.elementwise.arithmetic import binary_op

_SYMBOLS = {
    "equal": "==", "not_equal": "!=", "less_than": "<", "less_equal": "<=", "greater_than": ">", "greater_equal": ">=",
}  # fmt: skip
for _type, _symbol in _SYMBOLS.items():
    register(OpDef(
        _type, "X, Y -> Out", attrs={"axis": -1, "force_cpu": Attr.idle(False, PLACE)}, pointwise={"Out": f"x {_symbol} y"},
        infer=comparison, prepare=prepare, inplace=(),
        # Few different values, so that some are equal.
        domain=Domain(
            "binary", cases=(Case(((2, 3, 4), (3,)), {"axis": 1}), Case(((2,), (2, 3)), {"axis": 0})),
            values={"X": ValueRange(-0.02, 0.02), "Y": ValueRange(-0.02, 0.02)}, others=("int64", "int32", "bool"), ulps=0,
        ), complex="linear" if _symbol in ("==", "!=") else "",
    ))  # fmt: skip


def _compare(type: str, x: Any, y: Any, name: str | None = None, cond: Variable | None = None) -> Variable:
    if cond is None:  # 1.x writes to an existing Variable
        return binary_op(type, x, y, name)
    if isinstance(x, Variable) and isinstance(y, Variable):
        x, y = unify(x, y, type)
    return emit_one(type, {"X": x, "Y": y}, outputs={"Out": cond})


@export("tensor.equal", "Variable.equal", op="equal", inplace=True)
def equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x == y`` for each pair, as bool; shapes broadcast, dtypes meet.

    Args:
        x, y: As in :func:`add`, with its errors; two bools may be compared, too.
        name: Name of the layer.
    """
    return _compare("equal", x, y, name)


@export("tensor.not_equal", "Variable.not_equal", op="not_equal", inplace=True)
def not_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x != y`` for each pair, as bool; arguments and errors as of :func:`equal`."""
    return _compare("not_equal", x, y, name)


@export("tensor.less_than", "Variable.less_than", op="less_than", inplace=True)
def less_than(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x < y`` for each pair, as bool; arguments and errors as of :func:`equal`.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0, 3.0])
        >>> y = paddle.less_than(x, paddle.to_tensor([2.0, 2.0, 4.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([ True, False,  True])
    """
    return _compare("less_than", x, y, name)


@export("tensor.less_equal", "Variable.less_equal", op="less_equal", inplace=True)
def less_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x <= y`` for each pair, as bool; arguments and errors as of :func:`equal`."""
    return _compare("less_equal", x, y, name)


@export("tensor.greater_than", "Variable.greater_than", op="greater_than", inplace=True)
def greater_than(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x > y`` for each pair, as bool; arguments and errors as of :func:`equal`."""
    return _compare("greater_than", x, y, name)


@export("tensor.greater_equal", "Variable.greater_equal", op="greater_equal", inplace=True)
def greater_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x >= y`` for each pair, as bool; arguments and errors as of :func:`equal`."""
    return _compare("greater_equal", x, y, name)


@export("fluid.layers.equal", op="equal")
def fluid_equal(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether ``x == y``; ``cond`` is an existing bool Variable to write to.

    Args:
        x, y: As in :func:`add`; with ``cond`` both must be Variables.
        cond: A bool Variable of the result's shape; it is returned. ``None`` makes a new one.
        name: Name of the layer.

    Raises:
        DTypeError: If ``cond`` is not bool.
    """
    return _compare("equal", x, y, name, cond)


@export("fluid.layers.not_equal", op="not_equal")
def fluid_not_equal(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether ``x != y``; ``cond`` and errors as of ``fluid.layers.equal``."""
    return _compare("not_equal", x, y, name, cond)


@no_effect(force_cpu=PLACE)
@export("fluid.layers.less_than", op="less_than")
def fluid_less_than(
    x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None, name: str | None = None
) -> Variable:
    """Returns whether ``x < y``; ``cond`` and errors as of ``fluid.layers.equal``.

    Example:
        >>> i = fluid.layers.fill_constant([1], "int64", 3)
        >>> n = fluid.layers.fill_constant([1], "int64", 5)
        >>> static.Executor().run(fetch_list=[fluid.layers.less_than(i, n)])[0]
        array([ True])
    """
    return _compare("less_than", x, y, name, cond)


@export("fluid.layers.less_equal", op="less_equal")
def fluid_less_equal(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether ``x <= y``; ``cond`` and errors as of ``fluid.layers.equal``."""
    return _compare("less_equal", x, y, name, cond)


@export("fluid.layers.greater_than", op="greater_than")
def fluid_greater_than(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether ``x > y``; ``cond`` and errors as of ``fluid.layers.equal``."""
    return _compare("greater_than", x, y, name, cond)


@export("fluid.layers.greater_equal", op="greater_equal")
def fluid_greater_equal(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether ``x >= y``; ``cond`` and errors as of ``fluid.layers.equal``."""
    return _compare("greater_equal", x, y, name, cond)


# ------------------------------------------------------------------------------------------------ truth values and bits
_ANY = ("int64", "int32", "bool")


def _pair_to_bool(x: Meta, y: Meta) -> Meta:
    return Meta(broadcast_shapes(x.shape, y.shape), bool_)


# A few zeros among the samples, so that both truth values come up.
_TRUTH = {"X": ValueRange(-1.0, 1.0, dtype="bool"), "Y": ValueRange(-1.0, 1.0, dtype="bool")}


for _name, _symbol in (("and", "&"), ("or", "|"), ("xor", "^")):
    register(OpDef(
        f"logical_{_name}", "X, Y -> Out", pointwise={"Out": f"x {_symbol} y"}, infer=_pair_to_bool, inplace=(),
        paddle=PaddleForm(write=write_truth_values),
        domain=Domain("binary", values={"Y": _TRUTH["Y"], "X": ValueRange(-1.0, 1.0)}, others=_ANY, ulps=0),
    ))  # fmt: skip
register(OpDef(
    "logical_not", "X -> Out", pointwise={"Out": "~x"}, infer=to_bool,
    domain=Domain("unary", values={"X": ValueRange(-1.0, 1.0)}, others=_ANY, ulps=0),
))  # fmt: skip


def _bitwise(ufunc: np.ufunc) -> CallRef:
    return CallRef(lambda ins, outs, scratch: [(ufunc, (*ins, *outs))], widen=False)


def _bits(*metas: Meta) -> Meta:
    if len(metas) == 2:
        same_dtype(*metas)
    fix = "use paddle.logical_and / logical_or / logical_not, or compare first"
    check_dtype(metas[0], (*INTEGERS, "bool"), "X", fix=fix)
    return metas[0] if len(metas) == 1 else metas[0].with_shape(broadcast_shapes(metas[0].shape, metas[1].shape))


for _name, _ufunc in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor), ("not", np.bitwise_not)):
    register(OpDef(
        f"bitwise_{_name}", "X -> Out" if _name == "not" else "X, Y -> Out", infer=_bits, ref=_bitwise(_ufunc),
        lower=lambda torch, *xs, _function=f"bitwise_{_name}": getattr(torch, _function)(*xs), split=Split(ELEMENTS, FIRST),
        inplace=(("X", "Out"),) if _name == "not" else (("X", "Out"), ("Y", "Out")),
        domain=Domain(
            "unary" if _name == "not" else "binary", values={n: ValueRange(-100, 100) for n in "XY"}, floats=(),
            others=("int64", "int32", "bool", "uint8", "int16"), ulps=0,
        ), onnx=_onnx.bitwise(_name),
    ))  # fmt: skip

for _name in ("isnan", "isinf", "isfinite"):
    register(OpDef(
        f"{_name}_v2", "X -> Out", pointwise={"Out": f"{_name}(x)"}, infer=to_bool, inplace=(),
        domain=Domain("unary", others=("int64", "int32"), ulps=0),
    ))  # fmt: skip


def _is_empty(x: Any, out: Any) -> None:
    out[...] = x.size == 0


register(OpDef(
    "is_empty", "X -> Out", infer=lambda x: Meta((), bool_), ref=_is_empty, shape_only=("X",), complex="linear",
    lower=lambda torch, x: torch.full((), not x.numel(), dtype=torch.bool, device=x.device), onnx=_onnx.is_empty,
    domain=Domain("unary", others=_ANY, ulps=0),
))  # fmt: skip


def _logical(type: str, x: Any, y: Any, out: Variable | None, name: str | None) -> Variable:
    check_variable(x, "x", type)
    inputs = {"X": x, "Y": y if isinstance(y, Variable) else as_variable(y, like=x)}
    return emit_one(type, inputs, name=name, outputs=None if out is None else {"Out": out})


def _negate(type: str, x: Any, out: Variable | None, name: str | None) -> Variable:
    check_variable(x, "x", type)
    return emit_one(type, {"X": x}, name=name, outputs=None if out is None else {"Out": out})


@export("tensor.logical_and", "Variable.logical_and", "fluid.layers.logical_and", op="logical_and", inplace=True)
def logical_and(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether both are true (not 0), as bool; shapes broadcast. ``out`` is an existing Variable to write to.

    Args:
        x: Any shape and dtype.
        y: A Variable, or a number, a list or an array; its shape broadcasts with that of ``x``.
        out: A bool Variable of the result's shape; it is returned. ``None`` makes a new one.
        name: Name of the layer.

    Raises:
        ShapeError: If the shapes do not broadcast.
        DTypeError: If ``out`` is not bool.

    Example:
        >>> x = paddle.to_tensor([True, True, False])
        >>> y = paddle.logical_and(x, paddle.to_tensor([True, False, False]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([ True, False, False])
    """
    return _logical("logical_and", x, y, out, name)


@export("tensor.logical_or", "Variable.logical_or", "fluid.layers.logical_or", op="logical_or", inplace=True)
def logical_or(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether one is true (not 0), as bool; arguments and errors as of :func:`logical_and`."""
    return _logical("logical_or", x, y, out, name)


@export("tensor.logical_xor", "Variable.logical_xor", "fluid.layers.logical_xor", op="logical_xor", inplace=True)
def logical_xor(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether exactly one is true (not 0), as bool; arguments and errors as of :func:`logical_and`."""
    return _logical("logical_xor", x, y, out, name)


@export("tensor.logical_not", "Variable.logical_not", "fluid.layers.logical_not", op="logical_not", inplace=True)
def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether each element is false (0), as bool; any shape. ``out`` is an existing Variable to write to.

    Args:
        x: Any shape and dtype.
        out: A bool Variable of that shape; it is returned. ``None`` makes a new one.
        name: Name of the layer.
    """
    return _negate("logical_not", x, out, name)


@export("tensor.bitwise_and", "Variable.bitwise_and", op="bitwise_and", inplace=True)
def bitwise_and(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns the bits set in both, of integers or bools; shapes broadcast. ``out`` is a Variable to write to.

    Args:
        x: Integers or bools of any shape.
        y: The same dtype, of a shape that broadcasts with that of ``x``; also a number, a list or an array.
        out: A Variable of the result's shape and dtype; it is returned. ``None`` makes a new one.
        name: Name of the layer.

    Raises:
        DTypeError: For floats, or two dtypes.
        ShapeError: If the shapes do not broadcast.
    """
    return _logical("bitwise_and", x, y, out, name)


@export("tensor.bitwise_or", "Variable.bitwise_or", op="bitwise_or", inplace=True)
def bitwise_or(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns the bits set in one or both; arguments and errors as of :func:`bitwise_and`."""
    return _logical("bitwise_or", x, y, out, name)


@export("tensor.bitwise_xor", "Variable.bitwise_xor", op="bitwise_xor", inplace=True)
def bitwise_xor(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns the bits set in exactly one; arguments and errors as of :func:`bitwise_and`."""
    return _logical("bitwise_xor", x, y, out, name)


@export("tensor.bitwise_not", "Variable.bitwise_not", op="bitwise_not", inplace=True)
def bitwise_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns all bits flipped, of integers or bools; any shape. ``out`` is an existing Variable to write to.

    Args:
        x: Integers or bools of any shape.
        out: A Variable of that shape and dtype; it is returned. ``None`` makes a new one.
        name: Name of the layer.

    Raises:
        DTypeError: For floats.
    """
    return _negate("bitwise_not", x, out, name)


@export("tensor.isnan", "Variable.isnan", op="isnan_v2")
def isnan(x: Variable, name: str | None = None) -> Variable:
    """Returns whether each element is NaN, as bool; any shape."""
    return emit_one("isnan_v2", {"X": check_variable(x, "x", "isnan")}, name=name)


@export("tensor.isinf", "Variable.isinf", op="isinf_v2")
def isinf(x: Variable, name: str | None = None) -> Variable:
    """Returns whether each element is infinite, as bool; any shape."""
    return emit_one("isinf_v2", {"X": check_variable(x, "x", "isinf")}, name=name)


@export("tensor.isfinite", "Variable.isfinite", op="isfinite_v2")
def isfinite(x: Variable, name: str | None = None) -> Variable:
    """Returns whether each element is neither NaN nor infinite, as bool; any shape."""
    return emit_one("isfinite_v2", {"X": check_variable(x, "x", "isfinite")}, name=name)


@export("tensor.is_empty", "Variable.is_empty", op="is_empty")
def is_empty(x: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x`` has no element, as a bool of shape ``[]``."""
    return emit_one("is_empty", {"X": check_variable(x, "x", "is_empty")}, name=name)


@export("fluid.layers.is_empty", op="is_empty")
def fluid_is_empty(x: Variable, cond: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether ``x`` has no element; ``cond`` is an existing bool Variable to write to.

    Args:
        x: Any shape and dtype.
        cond: A bool Variable of shape ``[]``; it is returned. ``None`` makes a new one.
        name: Name of the layer.
    """
    return _negate("is_empty", x, cond, name)


def _any(test: str, x: Any, negate: bool = False) -> Variable:
    """Emits one truth value of shape ``[1]``: whether any element passes (or fails) a test."""
    found = emit(test, {"X": check_variable(x, "x", test)})
    every = emit("reduce_all" if negate else "reduce_any", {"X": found}, {"reduce_all": True})
    return emit_one("reshape2", {"X": every}, {"shape": (1,)})


@export("fluid.layers.has_nan")
def has_nan(x: Variable) -> Variable:
    """Returns whether any element is NaN, as a bool of shape ``[1]``."""
    return _any("isnan_v2", x)


@export("fluid.layers.has_inf")
def has_inf(x: Variable) -> Variable:
    """Returns whether any element is infinite, as a bool of shape ``[1]``."""
    return _any("isinf_v2", x)


@export("fluid.layers.isfinite")
def all_finite(x: Variable) -> Variable:
    """Returns whether no element is NaN or infinite, as a bool of shape ``[1]``."""
    return _any("isfinite_v2", x, negate=True)


# -------------------------------------------------------------------------------- nearness and equality of whole values
_CLOSE = (
    "(input == other) | (isfinite(input - other) & (abs(input - other) <= atol + rtol * abs(other)))"
    " | where(equal_nan, isnan(input) & isnan(other), False)"
)
_ATTRS = {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}  # numpy's and Paddle's defaults
_CHOICES = ({"rtol": 0.1, "atol": 0.0}, {"rtol": 0.0, "atol": 0.5}, {"equal_nan": True})  # samples are from -2 to 2


def _pair(x: Meta, y: Meta) -> Meta:
    same_dtype(x, y, ("Input", "Other"))
    return Meta(broadcast_shapes(x.shape, y.shape), bool_)


def _one(x: Meta, y: Meta) -> Meta:
    return Meta((), _pair(x, y).dtype)  # one answer for all pairs


def _torch_close(torch: Any, x: Any, y: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    x, y = torch.broadcast_tensors(*map(torch_wide, (x, y)))  # on a GPU torch does not broadcast the first
    return torch.isclose(x, y, rtol, atol, equal_nan)


register(OpDef(
    "isclose", "Input, Other -> Out", attrs=_ATTRS, pointwise={"Out": _CLOSE}, infer=_pair, lower=_torch_close,
    paddle=PaddleForm(write=write_nearness),
    inplace=(), domain=Domain("binary", attrs=_CHOICES, ulps=0),
))  # fmt: skip


@lru_cache(maxsize=256)
def _code(dtype: DType, rtol: float, atol: float, equal_nan: bool) -> expr_numpy.Code:
    values = {"rtol": expr.const(rtol), "atol": expr.const(atol), "equal_nan": expr.const(equal_nan)}
    node = expr.substitute(expr.parse(_CLOSE), values)
    given = {"input": (0, dtype.np), "other": (1, dtype.np)}
    return expr_numpy.compile_numpy({0: node}, given, {0: np.dtype(bool)}, {})


def _allclose_scratch(x: Meta, y: Meta, out: Meta, rtol: float, atol: float, equal_nan: bool) -> tuple[Meta, ...]:
    shape = broadcast_shapes(x.shape, y.shape)
    return tuple(Meta(shape, dtype_of(d)) for d in (np.bool_, *_code(x.dtype, rtol, atol, equal_nan).registers))


def _allclose(x: Any, y: Any, out: Any, scratch: Any, rtol: float, atol: float, equal_nan: bool) -> None:
    code = _code(dtype_of(x.dtype), rtol, atol, equal_nan)
    for function, args in code.bind_operands([x, y], scratch[:1], scratch[1:]):
        function(*args)
    np.logical_and.reduce(scratch[0], None, None, out)  # True if there are no pairs


register(OpDef(
    "allclose", "Input, Other -> Out", attrs=_ATTRS, infer=_one, ref=plain(_allclose, _allclose_scratch),
    paddle=PaddleForm(write=write_nearness),
    lower=lambda torch, x, y, rtol, atol, equal_nan: _torch_close(torch, x, y, rtol, atol, equal_nan).all(),
    # Shapes with few elements, so that both answers come up.
    domain=Domain(
        cases=tuple(
            Case(s, a) for s in (((), ()), ((1,), (1,)), ((2,), (2,)), ((0,), (0,)), ((3, 4), (4,)))
            for a in (*_CHOICES, {"atol": 4.0})
        ), ulps=0,
    ), onnx=_onnx.close,
))  # fmt: skip


def _equal_all_scratch(x: Meta, y: Meta, out: Meta) -> tuple[Meta, ...]:
    return (Meta(x.shape, bool_),) if x.shape == y.shape else ()


def _equal_all(x: Any, y: Any, out: Any, scratch: Any) -> None:
    if x.shape != y.shape:
        out[...] = False
        return
    np.equal(x, y, scratch[0])  # a buffer of truth values, reduced below
    np.logical_and.reduce(scratch[0], None, None, out)


def _equal_all_infer(x: Meta, y: Meta) -> Meta:
    same_dtype(x, y)
    return Meta((), bool_)


register(OpDef(
    "equal_all", "X, Y -> Out", infer=_equal_all_infer, ref=plain(_equal_all, _equal_all_scratch),
    lower=lambda torch, x, y: (x == y).all() if x.shape == y.shape else torch.zeros((), dtype=torch.bool, device=x.device),
    domain=Domain(
        cases=tuple(Case(s) for s in (((), ()), ((1,), (1,)), ((2,), (2,)), ((0,), (0,)), ((3,), (4,)), ((3, 1), (3,)))),
        values={"X": ValueRange(0, 1), "Y": ValueRange(0, 1)}, others=("int64", "int32", "bool"), ulps=0,
    ), complex="linear", onnx=_onnx.equal_all,
))  # fmt: skip


def _close(type: str, x: Any, y: Any, rtol: float, atol: float, equal_nan: bool, name: str | None) -> Variable:
    inputs = {"Input": check_variable(x, "x", type), "Other": check_variable(y, "y", type)}
    attrs = {"rtol": float(rtol), "atol": float(atol), "equal_nan": equal_nan}
    return emit_one(type, inputs, attrs, name=name)


@export("tensor.isclose", "Variable.isclose", op="isclose")
def isclose(
    x: Variable, y: Variable, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False, name: str | None = None
) -> Variable:
    """Returns whether ``abs(x - y) <= atol + rtol * abs(y)`` for each pair, as bool.

    Args:
        x: Shapes broadcast, dtypes are equal.
        y: The reference.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        equal_nan: Whether two NaN are close.
        name: Name of the layer.
    """
    return _close("isclose", x, y, rtol, atol, equal_nan, name)


@export("tensor.allclose", "Variable.allclose", op="allclose")
def allclose(
    x: Variable, y: Variable, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False, name: str | None = None
) -> Variable:
    """Returns whether all pairs are close, as a bool of shape ``[]``; arguments as in :func:`isclose`.

    Args:
        x, y, rtol, atol, equal_nan: As in :func:`isclose`.
        name: Name of the layer.

    Raises:
        DTypeError: If the dtypes differ.
    """
    return _close("allclose", x, y, rtol, atol, equal_nan, name)


@export("tensor.equal_all", "Variable.equal_all", op="equal_all")
def equal_all(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether shapes and all elements are equal, as a bool of shape ``[]``; dtypes are equal.

    Args:
        x, y: Variables of one dtype; their shapes may differ.
        name: Name of the layer.

    Raises:
        DTypeError: If the dtypes differ.
    """
    return emit_one(
        "equal_all", {"X": check_variable(x, "x", "equal_all"), "Y": check_variable(y, "y", "equal_all")}, name=name
    )


# --------------------------------------------------------------------------------------------------------------- choice
def _infer(condition: Meta, x: Meta, y: Meta) -> Meta:
    check_dtype(condition, ("bool",), "Condition")
    same_dtype(x, y)
    return x.with_shape(broadcast_shapes(condition.shape, broadcast_shapes(x.shape, y.shape)))


def _second(ctx: GradContext) -> list[OpSpec]:
    """Returns the backward op is linear in the incoming gradient: what arrives for X and Y is chosen again."""
    e = Emitter(ctx)
    out = e.wanted("Out@GRAD")
    if out is not None:
        arriving = [e.incoming(f"{slot}@GRAD") or e.zeros(e.input(slot)) for slot in ("X", "Y")]
        e.emit("where", {"Condition": e.input("Condition"), "X": arriving[0], "Y": arriving[1]}, out)
    return e.specs


register(OpDef(
    "where", "Condition, X, Y -> Out", pointwise={"Out": "where(condition, x, y)"}, infer=_infer,
    paddle=PaddleForm(write=write_in_one_shape),
    lower=lambda torch, condition, x, y, *, out=None: torch.where(condition, x, y, out=out),
    grad=reduced_gradient(
        "Condition, X, Y, Out@GRAD -> X@GRAD, Y@GRAD",
        {"X@GRAD": "where(condition, dout, 0)", "Y@GRAD": "where(condition, 0, dout)"},
        attrs=(), shape_only=("X", "Y"), inplace=(("Out@GRAD", "X@GRAD"),), grad=_second,
    ),
    amp="gray", inplace=(("X", "Out"), ("Y", "Out")),
    domain=Domain(
        cases=tuple(Case(s) for s in (
            ((3, 4), (3, 4), (3, 4)), ((7,), (7,), (7,)), ((), (), ()), ((0,), (0,), (0,)), ((3, 1), (1, 4), ()),
            ((2, 3), (3,), (2, 1)), ((), (5,), (5,)), ((2, 1, 4), (3, 1), (4,)), ((33,), (1,), (33,)),
        )),
        values={"Condition": ValueRange(dtype="bool")}, others=("int64", "int32", "bool"), ulps=0,
    ), complex="linear",
))  # fmt: skip


@export("tensor.where", "Variable.where", inplace=True)
def where(condition: Variable, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """Returns elements of ``x`` where the condition holds, of ``y`` elsewhere.

    Args:
        condition: Truth values; the three shapes broadcast.
        x: A Variable or a number. Of different dtypes the wider wins, a float before integers.
        y: The same. Two numbers are float64, int64 or bool.
        name: Name of the layer.

    Returns:
        A Variable; without ``x`` and ``y`` a tuple with the indices of the true elements, one per dimension.

    Raises:
        ProgramTypeError: If only one of ``x`` and ``y`` is given.
    """
    check_variable(condition, "condition", "where")
    if x is None and y is None:
        return PUBLIC_API["tensor.nonzero"].function(condition, as_tuple=True)  # indexing imports this file
    if isinstance(x, Variable) or isinstance(y, Variable):
        x, y = operands(x, y, "where")
    else:
        # Two fractions are a float64, as in Paddle.
        kind = np.result_type(np.asarray(x), np.asarray(y))
        x, y = (as_variable(v, dtype=kind) for v in (x, y))
    return emit("where", {"Condition": condition, "X": x, "Y": y}, name=name)
