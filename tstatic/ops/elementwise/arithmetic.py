"""Arithmetic of two values that broadcast: add, sub, mul, div, min, max, pow, mod, floordiv, fmax, fmin, and lerp."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tstatic.ir.attrs import NO_ATTRS, OpSpec
from tstatic.ir.build import LayerNamer, as_variable, check_variable
from tstatic.ir.opdef import (
    DERIVE,
    Case,
    Complex,
    Domain,
    GradContext,
    GradOp,
    GradRule,
    OpDef,
    ValueRange,
    export,
    register,
)
from tstatic.ir.paddle_form import PaddleForm
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, broadcast_shapes
from tstatic.ops.base import one_input as _one_input  # noqa: F401 - atan2, fmax, fmin and integer powers in expressions
from tstatic.ops.base.gradients import Emitter
from tstatic.ops.base.mixed import operands, unify, whole_quotient
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise._broadcast import (
    binary,
    binary_floats,
    prepare,
    read_product,
    reduced_gradient,
    same_dtype,
)

# Paddle's own alignment: Y begins at ``axis`` of X, in either order, with trailing ones that are dropped.
_AXES = tuple(
    Case((x, y), {"axis": axis}) for x, y, axis in (
        ((2, 3, 4), (3,), 1), ((2, 3, 4, 5), (3, 4), 1), ((2, 3), (2,), 0), ((3,), (2, 3, 4), 1),
        ((2, 3, 4), (2, 3), 0), ((2, 3), (2, 1), 0), ((2, 3, 4), (4, 1), 2), ((2, 3, 1, 2), (1, 3, 1, 1), -1),
    )
)  # fmt: skip


# --------------------------------------------------------------------------------------------------------- second order
def _linear(sign: str) -> Callable[[GradContext], list[OpSpec]]:
    """Makes the gradient of the backward op of add or sub: the sum or difference of what arrives."""

    def rule(ctx: GradContext) -> list[OpSpec]:
        e = Emitter(ctx)
        out, ddx, ddy = e.wanted("Out@GRAD"), e.incoming("X@GRAD"), e.incoming("Y@GRAD")
        if out is not None:
            # Zeros of the operand, not the number 0: the result has the broadcast shape of both.
            x = ddx if ddx is not None else e.zeros(e.input("X"))
            y = ddy if ddy is not None else e.zeros(e.input("Y"))
            e.emit(sign, {"X": x, "Y": y}, out, axis=ctx.attrs["axis"])
        return e.specs

    return rule


def _mul_second(ctx: GradContext) -> list[OpSpec]:
    """Differentiates dX = sum(g * Y), dY = sum(g * X): for g it is ddX * Y + X * ddY, for X sum(g * ddY), for Y sum(g * ddX)."""
    e = Emitter(ctx)
    axis = ctx.attrs["axis"]
    x, y, g = e.input("X"), e.input("Y"), e.input("Out@GRAD")
    ddx, ddy = e.incoming("X@GRAD"), e.incoming("Y@GRAD")
    out, dx, dy = e.wanted("Out@GRAD"), e.wanted("X"), e.wanted("Y")
    if out is not None:
        terms = []
        if ddx is not None:
            terms.append(e.emit("elementwise_mul", {"X": ddx, "Y": y}, out if ddy is None else None, axis=axis))
        if ddy is not None:
            terms.append(e.emit("elementwise_mul", {"X": x, "Y": ddy}, out if ddx is None else None, axis=axis))
        if len(terms) == 2:
            e.emit("elementwise_add", {"X": terms[0], "Y": terms[1]}, out, axis=-1)
    for slot, wanted, other in (("X", dx, ddy), ("Y", dy, ddx)):
        if wanted is None or other is None:
            continue
        # The gradient op of a product sums over the broadcast axes; in the place of the other operand stands what arrives for it.
        pair = {"X": x, "Y": other} if slot == "X" else {"X": other, "Y": y}
        e.emit("elementwise_mul_grad", {**pair, "Out@GRAD": g}, wanted, f"{slot}@GRAD", axis=axis)
    return e.specs


def _div_second(ctx: GradContext) -> list[OpSpec]:
    """Differentiates dX = sum(g / Y), dY = sum(-g * O / Y) with O = X / Y.

    With r = (ddX - O * ddY) / Y: for g it is r, for O it is -(g / Y) * ddY, for Y it is sum(-g * r / Y).
    """
    e = Emitter(ctx)
    axis = ctx.attrs["axis"]
    x, y, o, g = e.input("X"), e.input("Y"), e.input("Out"), e.input("Out@GRAD")
    ddx, ddy = e.incoming("X@GRAD"), e.incoming("Y@GRAD")
    dg, do, dy = e.wanted("Out@GRAD"), e.wanted("Out"), e.wanted("Y")
    # O has the full rank, so what has X's place keeps it, and what has Y's place meets O as Y meets X.
    at_x, at_y = _axes(ctx)
    if dg is not None or dy is not None:
        rest: str | None = ddx
        if ddy is not None:
            moved = e.emit("elementwise_mul", {"X": o, "Y": ddy}, axis=at_y)
            if ddx is None:
                rest = e.emit("scale", {"X": moved}, scale=-1.0)
            else:
                rest = e.emit("elementwise_sub", {"X": ddx, "Y": moved}, axis=at_x)
        assert rest is not None
        # What is asked for may be renamed later, so nothing here reads it again.
        result = dg if dy is None else None
        r = e.emit("elementwise_div", {"X": rest, "Y": y}, result, axis=axis if ddy is None else at_y)
        if dg is not None and dy is not None:
            e.emit("assign", {"X": r}, dg)
        if dy is not None:
            ins = {"X": x, "Y": y, "Out": r, "Out@GRAD": g}
            e.emit("elementwise_div_grad", ins, dy, "Y@GRAD", axis=axis)
    if do is not None and ddy is not None:
        slope = e.emit("elementwise_div", {"X": g, "Y": y}, axis=at_y)
        product = e.emit("elementwise_mul", {"X": slope, "Y": ddy}, axis=at_y)
        e.emit("scale", {"X": product}, do, scale=-1.0)
    return e.specs


def _pow_second(ctx: GradContext) -> list[OpSpec]:
    """Differentiates dX = sum(g * Y * X^(Y-1)), dY = sum(g * X^Y * log X), with A = X^(Y-1), B = X^Y, L = log X.

    For g it is ddX * Y * A + ddY * B * L. For X and Y it is what the backward op gives for X^(Y-1) with g * ddX * Y and for
    X^Y with g * ddY * L, and besides g * ddY * A for X, g * ddX * A for Y.
    """
    e = Emitter(ctx)
    axis = ctx.attrs["axis"]
    x, y, g = e.input("X"), e.input("Y"), e.input("Out@GRAD")
    arriving = {"X": e.incoming("X@GRAD"), "Y": e.incoming("Y@GRAD")}
    at = dict(zip(("X", "Y"), _axes(ctx), strict=True))
    # A = X^(Y - 1) occurs in three of the terms, so it is computed once.
    lower = e.emit("scale", {"X": y}, bias=-1.0)
    a = e.emit("elementwise_pow", {"X": x, "Y": lower}, axis=axis)

    def times(full: str, other: str, slot: str) -> str:
        return e.emit("elementwise_mul", {"X": full, "Y": other}, axis=at.get(slot, -1))

    def back(slot: str, exponent: str, seed: str) -> str:
        ins = {"X": x, "Y": exponent, "Out@GRAD": seed}
        return e.emit("elementwise_pow_grad", ins, None, f"{slot}@GRAD", axis=axis)

    def reduced(slot: str, value: str) -> str:
        return e.emit("elementwise_add_grad", {"X": x, "Y": y, "Out@GRAD": value}, None, f"{slot}@GRAD", axis=axis)

    parts: dict[str, list[str]] = {"Out@GRAD": [], "X": [], "Y": []}
    if arriving["X"] is not None:
        seed = times(g, arriving["X"], "X")
        parts["Out@GRAD"].append(times(times(a, y, "Y"), arriving["X"], "X"))
        for slot in ("X", "Y"):
            if e.wanted(slot) is not None:
                parts[slot].append(back(slot, lower, times(seed, y, "Y")))
        if e.wanted("Y") is not None:
            parts["Y"].append(reduced("Y", times(seed, a, "Out")))
    if arriving["Y"] is not None:
        log = e.emit("log", {"X": x})
        b = e.emit("elementwise_pow", {"X": x, "Y": y}, axis=axis)
        seed = times(g, arriving["Y"], "Y")
        parts["Out@GRAD"].append(times(times(b, log, "X"), arriving["Y"], "Y"))
        for slot in ("X", "Y"):
            if e.wanted(slot) is not None:
                parts[slot].append(back(slot, y, times(seed, log, "X")))
        if e.wanted("X") is not None:
            parts["X"].append(reduced("X", times(seed, a, "Out")))
    # Terms of one gradient are collected and added by one op at the end.
    for slot, names in parts.items():
        wanted = e.wanted(slot)
        if wanted is not None and names:
            e.specs.append(OpSpec("sum", {"X": names}, {"Out": [wanted]}))
    return e.specs


def _axes(ctx: GradContext) -> tuple[int, int]:
    """Returns the ``axis`` with which X, and Y, meet a value of the full shape."""
    axis = int(ctx.attrs["axis"])
    x, y = (ctx.meta(ctx.inputs[n][0]).rank for n in ("X", "Y"))
    return (-1, axis) if x > y else (axis, -1) if x < y else (-1, -1)


def _choice_second(test: str) -> Callable[[GradContext], list[OpSpec]]:
    """Differentiates dX = sum(g where test), dY = sum(g elsewhere): for g it is ddX where the test holds, ddY elsewhere."""

    def rule(ctx: GradContext) -> list[OpSpec]:
        e = Emitter(ctx)
        axis = ctx.attrs["axis"]
        x, y, g = e.input("X"), e.input("Y"), e.input("Out@GRAD")
        out = e.wanted("Out@GRAD")
        if out is not None:
            dtype = ctx.meta(g).dtype
            chosen = e.emit(test, {"X": x, "Y": y}, axis=axis)
            mask = e.emit("cast", {"X": chosen}, in_dtype="bool", out_dtype=dtype)
            terms = []
            for slot, at in zip(("X", "Y"), _axes(ctx), strict=True):
                arriving = e.incoming(f"{slot}@GRAD")
                if arriving is not None:
                    # 1 - mask for Y.
                    part = mask if slot == "X" else e.emit("scale", {"X": mask}, scale=-1.0, bias=1.0)
                    terms.append(e.emit("elementwise_mul", {"X": part, "Y": arriving}, axis=at))
            if len(terms) == 2:
                e.emit("elementwise_add", {"X": terms[0], "Y": terms[1]}, out, axis=-1)
            else:
                e.emit("assign", {"X": terms[0]}, out)
        return e.specs

    return rule


# -------------------------------------------------------------------------------------------------- op definitions
def broadcast_op(
    type: str,
    text: str,
    grads: tuple[str, str] | None = None,
    *,
    reads: str = "X, Y",
    shape_only: tuple[str, ...] = (),
    second: GradRule | None = None,
    infer: Callable[..., Meta] = binary,
    values: Mapping[str, ValueRange] = NO_ATTRS,
    others: tuple[str, ...] = ("int64", "int32"),
    ulps: float = 1,
    complex: Complex = "",
    paddle: PaddleForm | None = None,
) -> None:
    """Registers an op ``X, Y -> Out`` that broadcasts by ``axis``, and its backward op.

    Args:
        type: Op type.
        text: The formula, of ``x`` and ``y``.
        grads: The gradients of X and of Y, of ``dout`` and what the backward op reads; without them there is none.
        reads: Slots that the backward op reads beside the gradient that arrives.
        shape_only: Those of which it reads the shape only.
        second: Its own gradient.
        infer: The shape rule.
        values: Which values tests draw, by slot.
        others: Dtypes that it takes beside floats.
        ulps: Its tolerance, in units in the last place.
        complex: What it does with complex values.
        paddle: How Paddle's files have it.
    """
    back: GradOp | None = None
    if grads is not None:
        back = reduced_gradient(
            f"{reads}, Out@GRAD -> X@GRAD, Y@GRAD", dict(zip(("X@GRAD", "Y@GRAD"), grads, strict=True)),
            shape_only=shape_only, inplace=(("Out@GRAD", "X@GRAD"),), grad=second,
        )  # fmt: skip
    register(OpDef(
        type, "X, Y -> Out", attrs={"axis": -1}, pointwise={"Out": text}, infer=infer, prepare=prepare, grad=back,
        amp="gray", inplace=(("X", "Out"), ("Y", "Out")), complex=complex, paddle=paddle,
        domain=Domain("binary", cases=_AXES, values=values, others=(*others, *["complex64"] * bool(complex)), ulps=ulps),
    ))  # fmt: skip


_DISTINCT = {"X": ValueRange(distinct=True), "Y": ValueRange(distinct=True)}
_BOTH = ("X", "Y")

# Their gradients read no values, so neither operand stays in memory for the backward pass.
for _name, _text, _dy in (("elementwise_add", "x + y", "dout"), ("elementwise_sub", "x - y", "-dout")):
    broadcast_op(_name, _text, ("dout", _dy), shape_only=_BOTH, second=_linear(_name), complex="linear")


broadcast_op("elementwise_mul", "x * y", ("dout * y", "dout * x"), second=_mul_second, complex="holomorphic",
             paddle=PaddleForm(read_product))  # fmt: skip
broadcast_op(
    # The gradient by Y reads the result: X need not stay.
    "elementwise_div", "x / y", ("dout / y", "-dout * out / y"), reads="X, Y, Out", shape_only=("X",),
    second=_div_second, infer=binary_floats, values={"Y": ValueRange(0.5, 2.0)}, others=(), ulps=2, complex="holomorphic",
)  # fmt: skip
# Where both are equal, the gradient goes to Y.
broadcast_op(
    "elementwise_max", "maximum(x, y)", ("where(x > y, dout, 0)", "where(x <= y, dout, 0)"),
    second=_choice_second("greater_than"), values=_DISTINCT, ulps=0,
)  # fmt: skip
broadcast_op(
    "elementwise_min", "minimum(x, y)", ("where(x < y, dout, 0)", "where(x >= y, dout, 0)"),
    second=_choice_second("less_than"), values=_DISTINCT, ulps=0,
)  # fmt: skip
broadcast_op(
    "elementwise_pow", "pow(x, y)",
    (
        # Any number to the power of 0 is 1, 0 too.
        "where(y == 0, 0, dout * (y * pow(x, y - 1)))",
        # 0 to any power does not change with the power.
        "where((x == 0) & (y >= 0), 0, dout * (pow(x, y) * log(x)))",
    ),
    second=_pow_second, values={"X": ValueRange(0.4, 2.0)}, ulps=8, complex="holomorphic",
)  # fmt: skip
broadcast_op(
    # Sampled between multiples of y, where the remainder jumps.
    "elementwise_mod", "remainder(x, y)", ("dout", "-dout * floor(x / y)"),
    values={"X": ValueRange(2.2, 2.8), "Y": ValueRange(1.0, 1.09)},
)  # fmt: skip
broadcast_op(
    "elementwise_floordiv", "floordiv(x, y)", values={"X": ValueRange(-9.0, 9.0), "Y": ValueRange(1.0, 5.0)}, ulps=0
)
# Where both are equal, the gradient goes to X; a NaN gets none unless both are.
for _name, _test in (("fmax", ">="), ("fmin", "<=")):
    _chosen = f"where((x {_test} y) | isnan(y), dout, 0)", f"where((x {_test} y) | isnan(y), 0, dout)"
    broadcast_op(f"elementwise_{_name}", f"{_name}(x, y)", _chosen, values=_DISTINCT, ulps=0)


# ------------------------------------------------------------------------------------------------------------ functions
def binary_op(type: str, x: Any, y: Any, name: str | None, **attrs: Any) -> Variable:
    """Appends an op on X and Y in their common dtype; a number or an array beside a Variable becomes a constant."""
    a, b = operands(x, y, type)
    # Truth values have no product; as in Paddle, the result is whether both hold.
    op = "logical_and" if type == "elementwise_mul" and a.dtype.name == "bool" else type
    return emit_one(op, {"X": a, "Y": b}, attrs, name=name, prefix=type)


@export("tensor.add", "Variable.add", op="elementwise_add", inplace=True)
def add(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns ``x + y``; shapes broadcast, dtypes meet.

    Args:
        x, y: Variables of any shapes that broadcast; one of them may be a number, a list or an array. Of two dtypes the
            wider wins, and floats win over integers.
        name: Name of the layer.

    Raises:
        ProgramTypeError: If neither is a Variable.
        DTypeError: For two bools, or if the dtypes have no common one (float16 and bfloat16, int8 and uint8).
        ShapeError: If the shapes do not broadcast.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = paddle.add(x, paddle.to_tensor([10.0, 20.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[11., 22.],
               [13., 24.]], dtype=float32)
    """
    return binary_op("elementwise_add", x, y, name)


@export("tensor.subtract", "Variable.subtract", op="elementwise_sub", inplace=True)
def subtract(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns ``x - y``; arguments and errors as of :func:`add`."""
    return binary_op("elementwise_sub", x, y, name)


@export("tensor.multiply", "Variable.multiply", op="elementwise_mul", inplace=True)
def multiply(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns ``x * y``, of two bools whether both are true; arguments and errors as of :func:`add`.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = paddle.multiply(x, paddle.to_tensor([10.0, 100.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[ 10., 200.],
               [ 30., 400.]], dtype=float32)
    """
    return binary_op("elementwise_mul", x, y, name)


@export("tensor.divide", "Variable.divide", op="elementwise_div", inplace=True)
def divide(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns ``x / y``; of two integers the whole quotient, -3 for -7 and 2 (the operator ``/`` gives float32).

    Args:
        x, y: As in :func:`add`, with its errors; bools count as int64.
        name: Name of the layer.
    """
    a, b = operands(x, y, "divide")
    return binary_op("elementwise_div", a, b, name) if a.dtype.is_inexact else whole_quotient(a, b, name)


@export("tensor.floor_divide", "Variable.floor_divide", op="elementwise_floordiv", inplace=True)
def floor_divide(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the whole quotient of ``x`` and ``y``, rounded down; arguments and errors as of :func:`add`."""
    return binary_op("elementwise_floordiv", x, y, name)


@export(
    "tensor.remainder",
    "tensor.mod",
    "tensor.floor_mod",
    "Variable.remainder",
    "Variable.mod",
    "Variable.floor_mod",
    op="elementwise_mod",
    inplace=True,
)
def remainder(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns what :func:`floor_divide` leaves, with the sign of ``y``; shapes broadcast, dtypes meet.

    Args:
        x, y: As in :func:`add`, with its errors.
        name: Name of the layer.
    """
    return binary_op("elementwise_mod", x, y, name)


@export("tensor.maximum", "Variable.maximum", op="elementwise_max")
def maximum(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the greater of each pair, NaN where one is NaN; arguments and errors as of :func:`add`."""
    return binary_op("elementwise_max", x, y, name)


@export("tensor.minimum", "Variable.minimum", op="elementwise_min")
def minimum(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the lesser of each pair, NaN where one is NaN; arguments and errors as of :func:`add`."""
    return binary_op("elementwise_min", x, y, name)


@export("tensor.fmax", "Variable.fmax", op="elementwise_fmax")
def fmax(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the greater of each pair, the other one where one is NaN; arguments and errors as of :func:`add`."""
    return binary_op("elementwise_fmax", x, y, name)


@export("tensor.fmin", "Variable.fmin", op="elementwise_fmin")
def fmin(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the lesser of each pair, the other one where one is NaN; arguments and errors as of :func:`add`."""
    return binary_op("elementwise_fmin", x, y, name)


# ----------------------------------------------------------------------------------------------------------------- lerp
def _infer(x: Meta, y: Meta, weight: Meta) -> Meta:
    same_dtype(x, weight, ("X", "Weight"))
    out = binary_floats(x, y)
    return out.with_shape(broadcast_shapes(out.shape, weight.shape))


register(OpDef(
    "lerp", "X, Y, Weight -> Out", pointwise={"Out": "x + weight * (y - x)"}, infer=_infer,
    grad=reduced_gradient(
        "X, Y, Weight, Out@GRAD -> X@GRAD, Y@GRAD, Weight@GRAD",
        {"X@GRAD": "dout * (1 - weight)", "Y@GRAD": "dout * weight", "Weight@GRAD": "dout * (y - x)"},
        attrs=(), grad=DERIVE,
    ),
    amp="gray", inplace=(("Weight", "Out"),),
    domain=Domain(cases=tuple(Case(s) for s in (
        ((3, 4), (3, 4), (3, 4)), ((7,), (7,), ()), ((), (), ()), ((0,), (0,), (1,)), ((3, 1), (1, 4), (4,)),
        ((2, 3), (3,), (2, 1)), ((5,), (1,), (5,)),
    )), ulps=8),
))  # fmt: skip


@export("tensor.lerp", "Variable.lerp", op="lerp", inplace=True)
def lerp(x: Variable, y: Variable, weight: Any, name: str | None = None) -> Variable:
    """Returns ``x + weight * (y - x)``; the shapes broadcast, ``weight`` may be a number.

    Args:
        x, y: Floats of shapes that broadcast, of one dtype.
        weight: A Variable that broadcasts with them, or a number: 0 gives ``x``, 1 gives ``y``.
        name: Name of the layer.
    """
    check_variable(x, "x", "lerp")
    check_variable(y, "y", "lerp")
    inputs = {"X": x, "Y": y, "Weight": as_variable(weight, like=x, dtype=x.dtype)}
    return emit_one("lerp", inputs, name=name)


# ------------------------------------------------------------------------------------------------- the spellings of 1.x
def with_activation(
    type: str, inputs: dict[str, Any], attrs: dict[str, Any], act: str | None, name: str | None
) -> Variable:
    """Appends an op and, if ``act`` names one, an activation op after it; both results have the layer's name.

    Raises:
        NotFoundError: If no op is called ``act``.
    """
    for slot, value in inputs.items():
        check_variable(value, slot.lower(), type)
    helper = LayerNamer(type, name)
    out: Variable = helper.emit(type, inputs, attrs)
    return out if act is None else helper.emit(act, {"X": out})


def _binary(op: str, x: Any, y: Any, axis: int, act: str | None, name: str | None) -> Variable:
    if isinstance(x, Variable) and isinstance(y, Variable):
        x, y = unify(x, y, op)
    return with_activation(op, {"X": x, "Y": y}, {"axis": axis}, act, name)


@export("fluid.layers.elementwise_add", op="elementwise_add")
def elementwise_add(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(x + y)``.

    Args:
        x: Any shape.
        y: Its sizes equal those of ``x`` from dimension ``axis`` on, or are 1.
        axis: Where ``y`` begins in ``x``; -1 lets the last dimensions meet.
        act: Op type of an activation, or ``None``.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = fluid.layers.elementwise_add(x, paddle.to_tensor([10.0, 20.0]), axis=0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[11., 12.],
               [23., 24.]], dtype=float32)
    """
    return _binary("elementwise_add", x, y, axis, act, name)


@export("fluid.layers.elementwise_sub", op="elementwise_sub")
def elementwise_sub(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(x - y)``; arguments as in :func:`elementwise_add`.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = fluid.layers.elementwise_sub(x, paddle.to_tensor([1.0, 2.0]), axis=0, act="relu")
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0., 1.],
               [1., 2.]], dtype=float32)
    """
    return _binary("elementwise_sub", x, y, axis, act, name)


@export("fluid.layers.elementwise_mul", op="elementwise_mul")
def elementwise_mul(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(x * y)``; arguments as in :func:`elementwise_add`.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = fluid.layers.elementwise_mul(x, paddle.to_tensor([10.0, 100.0]), axis=0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[ 10.,  20.],
               [300., 400.]], dtype=float32)
    """
    return _binary("elementwise_mul", x, y, axis, act, name)


@export("fluid.layers.elementwise_div", op="elementwise_div")
def elementwise_div(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(x / y)``; arguments as in :func:`elementwise_add`."""
    return _binary("elementwise_div", x, y, axis, act, name)


@export("fluid.layers.elementwise_max", op="elementwise_max")
def elementwise_max(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(max(x, y))``; arguments as in :func:`elementwise_add`."""
    return _binary("elementwise_max", x, y, axis, act, name)


@export("fluid.layers.elementwise_min", op="elementwise_min")
def elementwise_min(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(min(x, y))``; arguments as in :func:`elementwise_add`."""
    return _binary("elementwise_min", x, y, axis, act, name)


@export("fluid.layers.elementwise_pow", op="elementwise_pow")
def elementwise_pow(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(x to the power of y)``; arguments as in :func:`elementwise_add`.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = fluid.layers.elementwise_pow(x, paddle.to_tensor([1.0, 2.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[ 1.,  4.],
               [ 3., 16.]], dtype=float32)
    """
    return _binary("elementwise_pow", x, y, axis, act, name)


@export("fluid.layers.elementwise_mod", op="elementwise_mod")
def elementwise_mod(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(x mod y)`` with the sign of ``y``; arguments as in :func:`elementwise_add`."""
    return _binary("elementwise_mod", x, y, axis, act, name)


@export("fluid.layers.elementwise_floordiv", op="elementwise_floordiv")
def elementwise_floordiv(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act`` of the quotient rounded down; arguments as in :func:`elementwise_add`."""
    return _binary("elementwise_floordiv", x, y, axis, act, name)
