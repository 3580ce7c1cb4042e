"""Number sequences, coordinate grids, and the sizes of a value as values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ShapeError
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.checks import (
    NUMBERS,
    check_int,
    check_not_empty,
    check_one_element,
    check_rank,
    check_result_dtype,
    check_same_dtype,
    check_sizes,
    check_type,
)
from tstatic.ir.declare import default_dtype
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.program import Variable
from tstatic.ir.recording import Call
from tstatic.ir.torch_tables import fresh
from tstatic.ir.types import DType, Meta, dtype_of, float32, int32, int64
from tstatic.ops.base.call_ref import copies
from tstatic.ops.base.shapes import ANY, Array, copy, emit_list, emit_one
from tstatic.ops.control.debug import Assert
from tstatic.ops.shape import _shape_onnx as _onnx
from tstatic.ops.shape.joining import variables
from tstatic.ops.shape.number_of import number_of
from tstatic.tuned.philox import CHUNK

Number = int | float


def _length(start: Number, end: Number, step: Number, op: str) -> int:
    if step == 0 or not all(map(math.isfinite, (start, end, step))):
        raise ProgramError(
            f"'{op}' needs finite bounds and a step that is not 0",
            expected="finite numbers, step != 0",
            received=f"start={start}, end={end}, step={step}",
            fix="pass step=1, for example",
            op=op,
        )
    if all(isinstance(v, int) for v in (start, end, step)):
        # In integers: as floats, bounds above 2**53 would lose their last digits.
        return max(0, -((start - end) // step))  # type: ignore[return-value]
    return max(0, math.ceil((end - start) / step))


def fill_steps(out: Array, start: Number, step: Number) -> None:
    """Writes ``start + i * step``: whole numbers exactly, floats computed in float64 and rounded once."""
    whole = out.dtype.kind in "iu" and isinstance(start, int) and isinstance(step, int)
    for at in range(0, out.shape[0], CHUNK):
        # In parts, so that the int64 or float64 numbers need a buffer of one part instead of the whole length.
        part = out[at : at + CHUNK]
        # Each from its own number, not from the one before: errors of many additions of `step` would add up.
        count = np.arange(at, at + part.shape[0], dtype=np.int64 if whole else np.float64)
        np.multiply(count, step, count)
        np.add(count, start, count)
        np.copyto(part, count, casting="unsafe")


def _range_infer(start: Number, end: Number, step: Number, dtype: DType) -> Meta:
    size = _length(start, end, step, "range")
    check_sizes([size], "shape", "range")
    check_result_dtype(dtype, NUMBERS, "range", fix="pass dtype='int64'")
    return Meta((size,), dtype)


def _range_lower(torch: Any, *, start: Number, end: Number, step: Number, dtype: DType, device: Any = None) -> Any:
    whole = dtype.is_integer and isinstance(start, int) and isinstance(step, int)
    # torch refuses a range that runs the wrong way; here, as in numpy, it is empty.
    kind = torch.int64 if whole else torch.float64
    count = torch.arange(_length(start, end, step, "range"), dtype=kind, device=device)
    return (count * step + start).to(getattr(torch, dtype.name))


def _range_read(op: PaddleOp) -> OpSpec:
    """Bounds are inputs in Paddle; those that the program fills with numbers are attributes here."""
    bounds = op.constants_of("Start", "End", "Step")
    if bounds is None:
        return op.made("arange", attrs={})
    return op.made(
        inputs={}, attrs=dict(zip(("start", "end", "step"), bounds, strict=True)) | {"dtype": op.dtypes[op.result]}
    )


def _range_write(op: PaddleOp) -> list[OpSpec]:
    bounds = {slot: op.attrs[slot.lower()] for slot in ("Start", "End", "Step")}
    filled, inputs = op.filled(bounds, dict.fromkeys(bounds, op.attrs["dtype"]))
    return [*filled, op.made(inputs=inputs, attrs={})]


register(OpDef(
    "range", "-> Out", paddle=PaddleForm(_range_read, _range_write),
    attrs={"start": Attr(0, "number"), "end": Attr(kind="number"), "step": Attr(1, "number"), "dtype": int64},
    infer=_range_infer, ref=lambda out, *, start, step: fill_steps(out, start, step), lower=_range_lower,
    domain=Domain(
        cases=(
            *(Case((), {"start": 1, "end": 9, "step": 2, "dtype": d}) for d in ("int64", "int32", "float16")),
            *(Case((), {"end": 7, "dtype": d}) for d in ("float32", "float64", "bfloat16", "uint8")),
            Case((), {"start": 5, "end": -5, "step": -3}), Case((), {"start": 5, "end": 5}),
            Case((), {"start": 5, "end": 1}), Case((), {"start": 0.1, "end": 2.05, "step": 0.1, "dtype": "float32"}),
            Case((), {"start": 2**62, "end": 2**62 + 3}), Case((), {"start": 0.5, "end": 4.0, "dtype": "int64"}),
        ),
        ulps=1,
    ), onnx=lambda g, **a: _onnx.evaluated(g, lambda out: fill_steps(out, a["start"], a["step"])),
))  # fmt: skip


# ---------------------------------------------------------------------------------------- bounds known at run time only
def _arange_infer(start: Meta, end: Meta, step: Meta) -> Meta:
    bounds, slots = (start, end, step), ("Start", "End", "Step")
    check_same_dtype(bounds, slots)
    for bound, slot in zip(bounds, slots, strict=True):
        check_one_element(bound, slot)
    return Meta((-1,), start.dtype)


def _arange_ref(start: Array, end: Array, step: Array, out: Any) -> list[Array]:
    first, last, by = (v.item() if v.dtype.kind in "iu" else float(v.flat[0]) for v in (start, end, step))
    made = np.empty(_length(first, last, by, "arange"), start.dtype)
    fill_steps(made, first, by)
    return [made]


def _arange_lower(torch: Any, start: Any, end: Any, step: Any) -> Any:
    made = np.empty(_length(start.item(), end.item(), step.item(), "arange"), dtype_of(str(start.dtype)).np)
    steps = torch.arange(made.shape[0], dtype=torch.float64 if start.is_floating_point() else torch.int64)
    return (steps * step.item() + start.item()).to(start.dtype)


register(OpDef(
    "arange", "Start, End, Step -> Out", infer=_arange_infer, ref=_arange_ref, lower=_arange_lower,
    dynamic=Dynamic("the bounds and the step"),
    paddle=PaddleForm(write=lambda op: [op.made("range")]),
    domain=Domain(
        cases=(Case(((), (), ())), Case(((1,), (1,), (1,)))),
        values={"Start": ValueRange(-3, 3), "End": ValueRange(2, 9), "Step": ValueRange(1, 2)},
        floats=("float32", "float64"), others=("int64", "int32"),
    ), onnx=_onnx.arange,
))  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ linspace
def _linspace_infer(num: int, dtype: DType) -> Meta:
    check_int(num, "num", "linspace", 1, error=ProgramError)
    check_sizes([num], "num", "linspace")
    check_result_dtype(dtype, NUMBERS, "linspace", fix="pass dtype='float32'")
    return Meta((num,), dtype)


_LINSPACE = ("start", "stop", "num")


def _linspace_ref(out: Array, *, start: float, stop: float, num: int) -> None:
    # One number alone is `start`; the divisor only avoids a division by 0.
    step = (stop - start) / max(num - 1, 1)
    half = (num + 1) // 2
    # From both ends, so that both are exact and the sequence is symmetric.
    fill_steps(out[:half], start, step)
    fill_steps(out[half:][::-1], stop, -step)


def _linspace_lower(torch: Any, *, start: float, stop: float, num: int, dtype: DType, device: Any = None) -> Any:
    return torch.linspace(start, stop, num, dtype=torch.float64, device=device).to(getattr(torch, dtype.name))


def _linspace_read(op: PaddleOp) -> OpSpec:
    bounds = op.constants_of("Start", "Stop", "Num")
    if bounds is None:
        raise ValueError("operator 'linspace' with computed bounds")
    return op.made(inputs={}, attrs={**op.attrs, "start": bounds[0], "stop": bounds[1], "num": int(bounds[2])})


def _linspace_write(op: PaddleOp) -> list[OpSpec]:
    bounds = {slot: op.attrs[slot.lower()] for slot in ("Start", "Stop", "Num")}
    dtype = op.attrs["dtype"]
    filled, inputs = op.filled(bounds, {"Start": dtype, "Stop": dtype, "Num": int32})
    return [*filled, op.made(inputs=inputs, attrs={"dtype": dtype})]


register(OpDef(
    "linspace", "-> Out", paddle=PaddleForm(_linspace_read, _linspace_write),
    attrs={"start": Attr(kind="float"), "stop": Attr(kind="float"), "num": Attr(kind="int"), "dtype": float32},
    infer=_linspace_infer, ref=_linspace_ref, lower=_linspace_lower,
    domain=Domain(
        cases=(
            *(Case((), {"start": 0, "stop": 10, "num": n}) for n in (1, 2, 5, 8)),
            *(
                Case((), {"start": -1, "stop": 2.5, "num": 8, "dtype": d})
                for d in ("float64", "float16", "bfloat16")
            ),
            Case((), {"start": 4, "stop": -4, "num": 9, "dtype": "int32"}), Case((), {"start": 3, "stop": 3, "num": 4}),
        ),
        ulps=2,
    ), onnx=lambda g, **a: _onnx.evaluated(g, lambda out: _linspace_ref(out, **{n: a[n] for n in _LINSPACE})),
))  # fmt: skip


# ---------------------------------------------------------------------------------------------------- public functions
def _number(value: Any, name: str, function: str) -> Number:
    plain = value.item() if isinstance(value, np.generic) else value
    wanted, fix = "an int, a float or a Variable", f"pass {name} as a number"
    return check_type(plain, (int, float), name, function, expected=wanted, fix=fix)


@export("tensor.arange", op="range")
def arange(start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None, name: str | None = None) -> Variable:
    """Makes the numbers ``start, start + step, ...`` below ``end`` (above it for a negative step).

    Args:
        start: First number; the end when ``end`` is ``None``, and 0 is the start then.
        end: Where to stop; not included.
        step: Difference.
        dtype: int64 when all three are ints, else the default dtype, if ``None``.
        name: Name of the result.

    Returns:
        Shape [ceil((end - start) / step)]; of unknown length when a bound is a Variable.

    Example:
        >>> x = paddle.arange(5)
        >>> y = paddle.arange(1.0, 3.0, 0.5)
        >>> static.Executor().run(fetch_list=[x, y])
        [array([0, 1, 2, 3, 4]), array([1. , 1.5, 2. , 2.5], dtype=float32)]
    """
    first, last = (0, start) if end is None else (start, end)
    bounds = (first, last, step)
    given = next((b for b in bounds if isinstance(b, Variable)), None)
    if given is not None:
        whole = all(b.dtype.is_integer if isinstance(b, Variable) else isinstance(b, int | np.integer) for b in bounds)
        kind = dtype_of(dtype) if dtype is not None else int64 if whole else default_dtype()
        ins = []
        for bound in bounds:
            one = as_variable(bound, dtype=kind)
            if one.dtype is not kind:
                one = emit("cast", {"X": one}, {"in_dtype": one.dtype, "out_dtype": kind})
            ins.append(one)
        return emit_one("arange", dict(zip(("Start", "End", "Step"), ins, strict=True)), name=name)
    numbers = [_number(b, n, "arange") for b, n in zip(bounds, ("start", "end", "step"), strict=True)]
    natural = int64 if all(isinstance(n, int) for n in numbers) else default_dtype()
    # Integers give int64, as in Paddle, anything else the default float.
    kind = natural if dtype is None else dtype_of(dtype)
    attrs = {"start": numbers[0], "end": numbers[1], "step": numbers[2], "dtype": kind}
    return emit_one("range", {}, attrs, name=name)


@export("fluid.layers.range", "fluid.layers.tensor.range", op="range")
def range_(start: Any, end: Any, step: Any, dtype: Any, name: str | None = None) -> Variable:
    """Makes the numbers from ``start`` to below ``end``; see ``paddle.arange``.

    Args:
        start: First number.
        end: Where to stop; not included.
        step: Difference, not 0.
        dtype: Element type.
        name: Name of the result.

    Raises:
        ProgramError: If ``step`` is 0, or a bound is not finite.
    """
    return arange(start, end, step, dtype, name)


@export("tensor.linspace", "fluid.layers.linspace", op="linspace")
def linspace(start: Any, stop: Any, num: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Makes ``num`` numbers at equal distances from ``start`` to ``stop``, both included; shape [num].

    Args:
        start: First number, or a Variable with one element.
        stop: Last number, or a Variable with one element.
        num: How many; an int, or an integer Variable with one element, which leaves the length unknown.
        dtype: The default dtype if ``None``.
        name: Name of the result.
    """
    kind = default_dtype() if dtype is None else dtype_of(dtype)
    if isinstance(num, Variable):
        return _linspace_when_run(start, stop, num, kind, name)
    num = check_int(num, "num", "linspace")
    if isinstance(start, Variable) or isinstance(stop, Variable):
        ends = [
            check_variable(as_variable(v, dtype=kind), n, "linspace") for v, n in ((start, "start"), (stop, "stop"))
        ]
        low, high = (
            v if v.dtype is kind else emit("cast", {"X": v}, {"in_dtype": v.dtype, "out_dtype": kind}) for v in ends
        )
        # Bounds are known at run time only: numbers from 0 to 1, scaled.
        part = emit("linspace", {}, {"start": 0.0, "stop": 1.0, "num": num, "dtype": kind})
        reach = emit("elementwise_sub", {"X": high, "Y": low})
        scaled = emit("elementwise_mul", {"X": part, "Y": reach})
        return emit_one("elementwise_add", {"X": scaled, "Y": low}, name=name)
    attrs = {"start": _number(start, "start", "linspace"), "stop": _number(stop, "stop", "linspace"),
             "num": num, "dtype": kind}  # fmt: skip
    return emit_one("linspace", {}, attrs, name=name)


def _linspace_when_run(start: Any, stop: Any, num: Variable, kind: DType, name: str | None) -> Variable:
    """Returns ``start + i * (stop - start) / (num - 1)`` for a count that is known when the program runs."""
    low, high = (number_of(v, n, "linspace", "float64") for v, n in ((start, "start"), (stop, "stop")))
    count = number_of(num, "num", "linspace", "int64")
    Assert(count > 0, [count])
    # In float64 up to the last cast, as the other form computes.
    places = emit_one("cast", {"X": arange(count)}, {"in_dtype": int64, "out_dtype": "float64"})
    steps = emit_one("cast", {"X": count - 1}, {"in_dtype": int64, "out_dtype": "float64"})
    steps = emit_one("clip", {"X": steps}, {"min": 1.0, "max": math.inf})
    found = low + places * ((high - low) / steps)
    return emit_one("cast", {"X": found}, {"in_dtype": found.dtype, "out_dtype": kind}, name=name)


@export("tensor.logspace")
def logspace(start: Any, stop: Any, num: Any, base: Any = 10.0, dtype: Any = None, name: str | None = None) -> Variable:
    """Makes ``num`` powers of a base, whose exponents lie at equal distances from ``start`` to ``stop``; shape [num].

    Args:
        start, stop: The first and the last exponent: numbers, or Variables with one element.
        num: How many; an int, or an integer Variable with one element.
        base: A number, or a Variable with one element.
        dtype: The default dtype if ``None``; integers are the whole parts.
        name: Name of the result.

    Example:
        >>> y = paddle.logspace(0, 3, 4)
        >>> static.Executor().run(fetch_list=[y])[0].round(3)
        array([   1.,   10.,  100., 1000.], dtype=float32)
    """
    kind = default_dtype() if dtype is None else dtype_of(dtype)
    # A relative error of the exponent is ln(base) * exponent times as large in the power, so the dtype is cast to last.
    exponents = linspace(start, stop, num, "float64")
    root = as_variable(base, dtype="float64")
    root = (
        root
        if root.dtype.name == "float64"
        else emit_one("cast", {"X": root}, {"in_dtype": root.dtype, "out_dtype": "float64"})
    )
    powers = emit_one("elementwise_pow", {"X": root, "Y": exponents})
    return emit_one("cast", {"X": powers}, {"in_dtype": powers.dtype, "out_dtype": kind}, name=name)


# ---------------------------------------------------------------------------------------------------------------- grids
def _infer(xs: Sequence[Meta]) -> tuple[list[Meta]]:
    check_not_empty(xs, "X")
    check_same_dtype(xs, "X")
    for x in xs:
        check_rank(x, (0, 1), "X")
    shape = tuple(x.shape[0] if x.rank else 1 for x in xs)
    check_sizes(shape)
    return ([x.with_shape(shape) for x in xs],)


def _calls(xs: Sequence[Array], outs: Sequence[Array | None]) -> list[Call]:
    rank = len(xs)
    return [
        copy(out, x.reshape((-1, *[1] * (rank - 1 - i)), copy=False) if x.ndim else x)
        for i, (x, out) in enumerate(zip(xs, outs, strict=True))
        if out is not None
    ]


def _grad(ctx: GradContext) -> list[OpSpec]:
    names = ctx.inputs["X"]
    specs = []
    for i, (x, out) in enumerate(zip(names, ctx.outputs["Out"], strict=True)):
        if x not in ctx.in_grads or out not in ctx.out_grads:
            continue
        # A number has no axis of its own in the grid, so its gradient is the sum of everything.
        axes = tuple(a for a in range(len(names)) if a != i or not ctx.meta(x).rank)
        inputs, outputs = {"X": [ctx.out_grads[out]]}, {"Out": [ctx.in_grads[x]]}
        # A vector alone is its own grid: a sum over no axes would be a copy by another name.
        if axes:
            specs.append(OpSpec("reduce_sum", inputs, outputs, {"dim": axes, "reduce_all": len(axes) == len(names)}))
        else:
            specs.append(OpSpec("assign", inputs, outputs))
    return specs


register(OpDef(
    "meshgrid", "X* -> Out*", infer=_infer, ref=copies(_calls),
    lower=lambda torch, xs: ([t.contiguous() for t in torch.meshgrid(*xs, indexing="ij")],), grad=_grad,
    domain=Domain(
        cases=(
            Case(([(2,), (3,)],)), Case(([(2,), (3,), (4,)],)), Case(([(5,)],)), Case(([(0,), (2,)],)),
            Case(([(), (3,)],)), Case(([(1,), (1,)],)),
        ),
        others=ANY, ulps=0,
    ),
    complex="linear", onnx=_onnx.meshgrid,
))  # fmt: skip


@export("tensor.meshgrid", op="meshgrid")
def meshgrid(*args: Any, **kwargs: Any) -> list[Variable]:
    """Makes grids of coordinates: entry ``[i, j, ...]`` of grid ``k`` is element ``(i, j, ...)[k]`` of vector ``k``.

    Args:
        *args: Vectors (0-d values count as vectors of one), or one list of them.
        **kwargs: ``name``, the name of the layer.

    Returns:
        As many Variables as vectors, each of shape ``[len(x), len(y), ...]``.
    """
    given = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
    return emit_list("meshgrid", {"X": variables(list(given), "args", "meshgrid")}, name=kwargs.get("name"))


# ---------------------------------------------------------------------------------------------------------------- sizes
# Paddle's shape is int32; a larger size would wrap round.
MOST = 2**31 - 1
# Also 0-d and without elements: a size op reads the shape only.
_SHAPES = ((3, 4), (), (0, 3), (5,), (1, 2, 3), (2, 0))


def _infer_shape(x: Meta) -> Meta:
    if any(s > MOST for s in x.shape):
        raise ShapeError(
            "a size does not fit the int32 values that shape gives",
            expected=f"sizes of at most {MOST}",
            received=list(x.shape),
            fix="use paddle.numel, which gives an int64, or divide the value into smaller ones",
        )
    return Meta((x.rank,), int32)


def _shape_calls(x: Array, out: Array) -> list[Call]:
    return [copy(out, np.array(x.shape, out.dtype))]


def _lower_shape(torch: Any, x: Any, *, tables: Any = fresh) -> Any:
    # A copy: the table stays, whatever is done to the result.
    return tables(torch, tuple(x.shape), torch.int32, x.device).clone()


register(OpDef(
    "shape", "Input -> Out", infer=_infer_shape, ref=copies(_shape_calls),
    lower=_lower_shape, shape_only=("Input",),
    domain=Domain(cases=tuple(Case((s,)) for s in _SHAPES), others=ANY, ulps=0),
    complex="linear", onnx=lambda g, x: g.sizes(x),
))  # fmt: skip


@export("tensor.shape", "fluid.layers.shape", op="shape")
def shape(input: Variable) -> Variable:
    """Returns the shape when the program runs: ``[rank]``, int32.

    Raises:
        ShapeError: If a size is above ``2**31 - 1``.

    Example:
        >>> x = static.data("x", [None, 3])
        >>> size = paddle.shape(x)
        >>> static.Executor().run(feed={"x": np.zeros((5, 3), "float32")}, fetch_list=[size])[0]
        array([5, 3], dtype=int32)
    """
    return emit_one("shape", {"Input": check_variable(input, "input", "shape")})


def _size_calls(x: Array, out: Array) -> list[Call]:
    return [copy(out, x.size)]


register(OpDef(
    "size", "Input -> Out", infer=lambda x: Meta((), int64), ref=copies(_size_calls),
    lower=lambda torch, x: torch.full((), x.numel(), dtype=torch.int64, device=x.device), shape_only=("Input",),
    domain=Domain(cases=tuple(Case((s,)) for s in _SHAPES), others=ANY, ulps=0),
    complex="linear", onnx=lambda g, x: g("Size", x, dtype=int64),
))  # fmt: skip


@export("tensor.numel", "Variable.numel", "Variable.size", op="size")
def numel(x: Variable, name: str | None = None) -> Variable:
    """Returns the number of elements when the program runs: a 0-d int64."""
    return emit_one("size", {"Input": check_variable(x, "x", "numel")}, name=name, prefix="numel")


@export("fluid.layers.size", op="size")
def fluid_size(input: Variable) -> Variable:
    """Returns the number of elements when the program runs, as :func:`numel`."""
    return numel(input)


@export("tensor.rank", "Variable.rank", "fluid.layers.rank")
def rank(input: Variable) -> Variable:
    """Returns the number of dimensions, as a 0-d int32."""
    return as_variable(len(check_variable(input, "input", "rank").shape), dtype="int32")
