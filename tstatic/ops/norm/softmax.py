"""``softmax`` and ``log_softmax`` along any axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tstatic.ir.build import check_variable
from tstatic.ir.opdef import GRAD, Case, Domain, GradContext, GradOp, OpDef, OpSpec, export, register
from tstatic.ir.pointwise import Rows
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.split import FREE, ROWS, Split
from tstatic.ir.traits import Softmax
from tstatic.ir.types import Meta, dtype_of
from tstatic.no_effect import LIBRARY, no_effect
from tstatic.ops.base.call_ref import CallRef
from tstatic.ops.base.one_input import infer_float
from tstatic.ops.base.rows import by_rows, row_axis, rows_scratch_metas
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.norm import _norm_onnx as _onnx
from tstatic.tuned import softmax as kernels


def _infer(x: Meta, axis: int) -> Meta:
    row_axis(x.rank, axis)
    return infer_float(x)


def _ref(kernel: Callable[..., None], inputs: int) -> CallRef:
    """Returns the reference of a kernel on ``inputs`` arrays and one result, all of one shape."""

    def calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, axis: int) -> Calls:
        return by_rows(ins, outs, axis, scratch, lambda read, written, own: [(kernel, (*read, *written, own))])

    # By axis: rows lie in one piece only along the last one, others are copied to scratch and back.
    return CallRef(calls, lambda ins, outs, *, axis: rows_scratch_metas(ins[0], axis, inputs + 1))


def _lower(name: str) -> Callable[..., Any]:
    return lambda torch, x, axis, *, out=None: getattr(torch, name)(x, axis, out=out)


def _grad_lower(name: str, result: str) -> Callable[..., Any]:
    def lower(torch: Any, y: Any, dy: Any, axis: int, *, out: Any = None) -> Any:
        function = getattr(torch.ops.aten, name)
        return function(dy, y, axis, y.dtype) if out is None else function.out(dy, y, axis, y.dtype, **{result: out})

    return lower


# -------------------------------------------------------------------------------------------------------- second order
def _arriving(ctx: GradContext) -> tuple[str, str, str | None]:
    """Returns the names of the result, its gradient and the gradient that arrives."""
    out, dout = ctx.inputs["Out"][0], ctx.inputs["Out" + GRAD][0]
    return out, dout, ctx.out_grads.get(ctx.outputs["X" + GRAD][0])


def _chain(
    ctx: GradContext, specs: list[OpSpec], type: str, ins: dict[str, str], attrs: Any = None, to: str = ""
) -> str:
    """Appends an op with one result and returns the result's name."""
    name = to or ctx.fresh(type)
    specs.append(OpSpec(type, {slot: [v] for slot, v in ins.items()}, {"Out": [name]}, attrs or {}))
    return name


def _softmax_second(ctx: GradContext) -> list[OpSpec]:
    """With ``dx = y (g - sum(y g))``: by ``g`` it is ``dx`` of the arriving ``h``; by ``y``, ``h (g - sum(y g)) - g sum(h y)``."""
    y, g, h = _arriving(ctx)
    specs: list[OpSpec] = []
    # Nothing arrives: this gradient does not depend on the loss.
    if h is None:
        return specs
    axis = ctx.attrs["axis"]
    if g in ctx.in_grads:
        specs.append(
            OpSpec("softmax_grad", {"Out": [y], "Out" + GRAD: [h]}, {"X" + GRAD: [ctx.in_grads[g]]}, {"axis": axis})
        )
    if y in ctx.in_grads:
        # Kept axes, so that the sums broadcast along the rows that they were taken of.
        kept = {"dim": (axis,), "keep_dim": True}
        yg = _chain(ctx, specs, "reduce_sum", {"X": _chain(ctx, specs, "elementwise_mul", {"X": y, "Y": g})}, kept)
        yh = _chain(ctx, specs, "reduce_sum", {"X": _chain(ctx, specs, "elementwise_mul", {"X": y, "Y": h})}, kept)
        near = _chain(ctx, specs, "elementwise_sub", {"X": g, "Y": yg})
        first = _chain(ctx, specs, "elementwise_mul", {"X": h, "Y": near})
        second = _chain(ctx, specs, "elementwise_mul", {"X": g, "Y": yh})
        _chain(ctx, specs, "elementwise_sub", {"X": first, "Y": second}, to=ctx.in_grads[y])
    return specs


def _log_softmax_second(ctx: GradContext) -> list[OpSpec]:
    """With ``dx = g - exp(y) sum(g)``: by ``g`` it is ``h - sum(h exp(y))``; by ``y``, ``-h exp(y) sum(g)``."""
    y, g, h = _arriving(ctx)
    specs: list[OpSpec] = []
    if h is None:
        return specs
    kept = {"dim": (ctx.attrs["axis"],), "keep_dim": True}
    p = _chain(ctx, specs, "exp", {"X": y})
    hp = _chain(ctx, specs, "elementwise_mul", {"X": h, "Y": p})
    if g in ctx.in_grads:
        total = _chain(ctx, specs, "reduce_sum", {"X": hp}, kept)
        _chain(ctx, specs, "elementwise_sub", {"X": h, "Y": total}, to=ctx.in_grads[g])
    if y in ctx.in_grads:
        total = _chain(ctx, specs, "reduce_sum", {"X": g}, kept)
        product = _chain(ctx, specs, "elementwise_mul", {"X": hp, "Y": total})
        _chain(ctx, specs, "scale", {"X": product}, {"scale": -1.0}, to=ctx.in_grads[y])
    return specs


# Every place of the axis, rank 0, no rows, empty rows; long rows and many short ones take other paths of the tuned function.
_CASES = (
    Case(((3, 4),)),
    Case(((2, 3, 4),), {"axis": 1}),
    Case(((4, 3),), {"axis": 0}),
    Case(((2, 3, 2, 2),), {"axis": -3}),
    Case(((5,),)),
    Case(((),)),
    Case(((1, 1),)),
    Case(((0, 4),)),
    Case(((3, 0),)),
    Case(((2, 0, 3),), {"axis": 0}),
    Case(((3, 70),)),
    Case(((300, 3),)),
)


def _rows(texts: dict[str, str]) -> Callable[..., Rows | None]:
    """Returns the op along rows, where its axis is the last one."""

    def rows(x: Meta, dout: Meta | None = None, *, axis: int) -> Rows | None:
        # A kernel's rows are contiguous; along another axis the op is a step, not part of a fused kernel.
        return Rows(texts, x.shape, x.rank - 1) if x.rank > 1 and axis in (-1, x.rank - 1) else None

    return rows


def _register(
    type: str,
    forward: Callable[..., None],
    backward: Callable[..., None],
    lower: Any,
    second: Any,
    texts: tuple[str, str],
) -> None:
    ref, grad = _ref(forward, 1), _ref(backward, 2)
    register(
        OpDef(
            type,
            "X -> Out",
            attrs={"axis": -1},
            lod="X",
            infer=_infer,
            ref=ref,
            lower=_lower(type),
            # Rows are independent, so any axis but the one taken may be cut.
            split=Split(ROWS, FREE, taken="axis"),
            inplace=(("X", "Out"),),
            grad=GradOp(
                f"Out, Out{GRAD} -> X{GRAD}",
                ref=grad,
                lower=lower,
                split=Split(ROWS, FREE, taken="axis"),
                inplace=((f"Out{GRAD}", f"X{GRAD}"),),
                grad=second,
                rows=_rows({f"X{GRAD}": texts[1]}),
            ),
            rows=_rows({"Out": texts[0]}),
            # float16 ends at exp(11), and sums of many small 16-bit shares stop growing.
            amp="black",
            # Losses look for this mark to send their gradient to X directly, past 1 / Out.
            traits=(Softmax("X", "Out"),) if type == "softmax" else (),
            uses_blas=True,
            domain=Domain(cases=_CASES, ulps=16.0),
            onnx=lambda g, x, *, axis: _onnx.softmax("LogSoftmax" if type == "log_softmax" else "Softmax", g, x, axis),
        )
    )


_register(
    "softmax", kernels.softmax, kernels.softmax_grad, _grad_lower("_softmax_backward_data", "grad_input"), _softmax_second,
    # Less the maximum: exponents are at most 0, so nothing overflows and the sum is at least 1.
    ("exp(x - rmax(x)) / rsum(exp(x - rmax(x)))", "out * (dout - rsum(out * dout))"),
)  # fmt: skip
_register(
    "log_softmax", kernels.log_softmax, kernels.log_softmax_grad, _grad_lower("_log_softmax_backward_data", "out"),
    _log_softmax_second,
    ("(x - rmax(x)) - log(rsum(exp(x - rmax(x))))", "dout - exp(out) * rsum(dout)"),
)  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- functions
def _build(type: str, x: Variable, axis: int, dtype: Any, name: str | None) -> Variable:
    check_variable(x, "x", type)
    if dtype is not None and dtype_of(dtype) is not x.dtype:
        x = emit_one("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": dtype_of(dtype)})
    return emit_one(type, {"X": x}, {"axis": axis}, name=name)


@export("nn.functional.softmax", "nn.functional.softmax_", op="softmax")
def softmax(x: Variable, axis: int = -1, dtype: Any = None, name: str | None = None) -> Variable:
    """Returns ``exp(x) / sum(exp(x))`` along an axis, without overflow.

    Args:
        x: Floats of any shape.
        axis: The axis whose elements sum to 1.
        dtype: Convert ``x`` to this dtype first.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([[0.0, 0.0], [0.0, 2.0]])
        >>> y = paddle.nn.functional.softmax(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0.5   , 0.5   ],
               [0.1192, 0.8808]], dtype=float32)
    """
    return _build("softmax", x, axis, dtype, name)


@export("nn.functional.log_softmax", op="log_softmax")
def log_softmax(x: Variable, axis: int = -1, dtype: Any = None, name: str | None = None) -> Variable:
    """Returns ``x - log(sum(exp(x)))`` along an axis, without overflow; see :func:`softmax`.

    Args:
        x: Floats of any shape.
        axis: The axis over which ``exp`` of the result sums to 1.
        dtype: Convert ``x`` to this dtype first.
        name: Name of the layer.

    Raises:
        ShapeError: If the axis is out of range.

    Example:
        >>> x = paddle.to_tensor([[0.0, 0.0], [0.0, 2.0]])
        >>> y = paddle.nn.functional.log_softmax(x, axis=-1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[-0.6931, -0.6931],
               [-2.1269, -0.1269]], dtype=float32)
    """
    return _build("log_softmax", x, axis, dtype, name)


@export("fluid.layers.log_softmax", op="log_softmax")
def fluid_log_softmax(input: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None) -> Variable:
    """Returns :func:`log_softmax` along an axis.

    Args:
        input: Floats of any shape.
        axis: The last one if ``None``.
        dtype, name: As there.
    """
    return log_softmax(input, -1 if axis is None else axis, dtype, name)


@no_effect(use_cudnn=LIBRARY)
@export("fluid.layers.softmax", op="softmax")
def fluid_softmax(input: Variable, use_cudnn: bool = True, name: str | None = None, axis: int = -1) -> Variable:
    """Returns the softmax along an axis.

    Args:
        input: Floats of any shape.
        name: Name of the layer.
        axis: The axis whose elements sum to 1.

    Raises:
        ShapeError: If the axis is out of range.
        DTypeError: For integers.

    Example:
        >>> x = paddle.to_tensor([[0.0, 0.0], [0.0, 2.0]])
        >>> y = fluid.layers.softmax(x, axis=0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0.5   , 0.1192],
               [0.5   , 0.8808]], dtype=float32)
    """
    return _build("softmax", check_variable(input, "input", "softmax"), axis, None, name)
