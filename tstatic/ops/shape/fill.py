"""Values from nothing: one number everywhere, given numbers, and the ``shape`` argument that says how many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError
from tstatic.ir.attrs import packed
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.checks import check_dtype, check_int, check_sizes, check_type
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import LOD, Attr, Case, Domain, OpDef, OpSpec, ValueRange, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.torch_tables import fresh
from tstatic.ir.types import UNKNOWN, DType, Meta, Shape, dtype_of, float32, numel
from tstatic.no_effect import PLACE
from tstatic.ops.base.call_ref import CallRef, copies
from tstatic.ops.base.shapes import emit_one, tensor_rank
from tstatic.ops.shape import _shape_onnx as _onnx


def has_variable(shape: Any) -> bool:
    """Returns whether a size is known at run time only."""
    return isinstance(shape, Variable) or (
        isinstance(shape, list | tuple) and any(isinstance(s, Variable) for s in shape)
    )


def known_shape(shape: Any, function: str) -> Shape:
    """Returns the sizes of a shape without Variables.

    Raises:
        ProgramTypeError: If it is not a list of ints.
        ShapeError: If a size is negative.
    """
    # bool is an int in Python: True would pass as a shape of one element.
    if isinstance(shape, int | np.integer) and not isinstance(shape, bool):
        shape = [shape]
    if isinstance(shape, np.ndarray) and shape.dtype.kind in "iu" and shape.ndim == 1:
        shape = shape.tolist()
    if not isinstance(shape, list | tuple) or any(
        isinstance(s, bool) or not isinstance(s, int | np.integer) for s in shape
    ):
        raise ProgramTypeError(
            f"The type of 'shape' in {function} must be list or tuple of ints, or an int64 Variable",
            expected="a list of ints",
            received=f"{shape!r} of type {type(shape).__name__}",
            fix="pass shape=[2, 3], for example",
            op=function,
        )
    sizes = tuple(int(s) for s in shape)
    check_sizes(sizes, "shape", function, least=0)
    return sizes


def shape_variable(shape: Any, function: str) -> Variable:
    """Returns an int64 Variable of shape [rank] from a shape that holds Variables."""
    if isinstance(shape, Variable):
        kind = check_variable(shape, "shape", function, ("int32", "int64"))
        return kind if kind.dtype.name == "int64" else _cast(kind)
    sizes = []
    for size in shape:
        if isinstance(size, Variable):
            one = check_variable(size, "shape", function, ("int32", "int64"))
            one = one if one.dtype.name == "int64" else _cast(one)
            # 0-d or [1]: both become vectors, which `concat` joins.
            sizes.append(emit("reshape2", {"X": one}, {"shape": (1,)}))
        else:
            check_sizes([size], "shape", function, least=0)
            sizes.append(as_variable([size], dtype="int64"))
    return emit_one("concat", {"X": sizes}, {"axis": 0})


def _cast(x: Variable) -> Variable:
    return emit_one("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": "int64"})


def filled(shape: Any, dtype: Any, value: Any, function: str, name: str | None = None) -> Variable:
    """Makes a Variable of a shape that holds Variables, every element ``value``."""
    sizes = shape_variable(shape, function)
    # The sizes that are numbers go along, so that shape inference loses no more than it must.
    known = () if isinstance(shape, Variable) else tuple(-1 if isinstance(s, Variable) else int(s) for s in shape)
    attrs = {"dtype": dtype, "value": value, "shape": known}
    return emit_one("full_with_tensor", {"ShapeTensor": sizes}, attrs, name=name)


def batch_shape(op: str, x: Meta, shape: Shape, input_dim_idx: int, output_dim_idx: int) -> Shape:
    """Returns ``shape`` with the size of one axis taken from another value, after checks of both.

    Raises:
        ProgramError: If an axis is out of range.
    """
    for name, axis, rank in (("input_dim_idx", input_dim_idx, x.rank), ("output_dim_idx", output_dim_idx, len(shape))):
        check_int(axis, name, op, 0, rank - 1, error=ProgramError)
    check_sizes([s for i, s in enumerate(shape) if i != output_dim_idx], "shape", op, least=0)
    return batch_sizes(x, shape, input_dim_idx, output_dim_idx)


def batch_sizes(x: Any, shape: Shape, input_dim_idx: int, output_dim_idx: int) -> Shape:
    """Returns ``shape`` with the size of one axis taken from a value: metadata, an array or a tensor."""
    return tuple(x.shape[input_dim_idx] if i == output_dim_idx else s for i, s in enumerate(shape))


# ------------------------------------------------------------------------------------------------------- op definitions
Array = np.ndarray[Any, Any]
Number = bool | int | float

ANY_DTYPE = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


# ----------------------------------------------------------------------------------------------------------- one number
def fits(op: str, value: Number, dtype: DType) -> None:
    """Refuses a number that a whole-number dtype cannot hold.

    Raises:
        ProgramError: Says which.
    """
    if not dtype.is_integer:
        return
    info = np.iinfo(dtype.np)
    # `int` raises on NaN and infinity, so they are asked first.
    if not math.isfinite(value) or not info.min <= int(value) <= info.max:
        raise ProgramError(
            f"the value of '{op}' does not fit into its dtype",
            expected=f"a number from {info.min} to {info.max} ({dtype.name})",
            received=value,
            fix="choose a wider dtype, or another value",
            op=op,
        )


def number_of(value: Number, str_value: str) -> Number:
    """Returns the number that ``str_value`` spells or, if that is empty, ``value``; a text keeps all digits of an int64.

    Raises:
        ProgramTypeError: If the text is not a number.
    """
    if not str_value:
        return value
    try:
        return int(str_value)
    except ValueError:
        pass
    try:
        return float(str_value)
    except ValueError:
        raise ProgramTypeError(
            "'str_value' of 'fill_constant' must be the text of a number",
            expected="a text such as '1.5', 'inf' or '-3'",
            received=repr(str_value),
            fix="leave str_value out and pass value",
            op="fill_constant",
        ) from None


def as_scalar(value: Number, dtype: DType) -> Number:
    """Returns a number as a value of a dtype; fractions of whole numbers are cut off."""
    if dtype.is_inexact:
        return float(value)
    return bool(value) if dtype.name == "bool" else int(value)


def number_ref(value: Callable[..., Number], *attrs: str) -> CallRef:
    """Returns a reference that fills its output with a number; bound to the array's own ``fill``.

    Args:
        value: Gives the number from attributes.
        attrs: Names of the attributes that ``value`` takes.
    """

    def calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], **values: Any) -> Calls:
        # The array's own method is the whole call of a run: the number is cast once, when the step is bound.
        return [(outs[0].fill, (as_scalar(value(**values), dtype_of(outs[0].dtype)),))]

    return CallRef(calls, widen=False, attrs=attrs, constant=value)


def _plain(value: Number) -> Number:
    return value


def _fill_infer(shape: Shape, dtype: DType, value: Number, str_value: str) -> Meta:
    check_sizes(shape, "shape", "fill_constant", least=0)
    fits("fill_constant", number_of(value, str_value), dtype)
    return Meta(shape, dtype)


def _full(torch: Any, shape: Any, dtype: DType, value: Number, device: Any, out: Any = None) -> Any:
    # A plan's buffer is filled in place; a new tensor would be copied into it.
    if out is not None:
        return out.fill_(as_scalar(value, dtype))
    return torch.full(tuple(shape), as_scalar(value, dtype), dtype=getattr(torch, dtype.name), device=device)


def _fill_lower(
    torch: Any, *, shape: Shape, dtype: DType, value: Number, str_value: str, device: Any = None, out: Any = None
) -> Any:
    return _full(torch, shape, dtype, number_of(value, str_value), device, out)


def _fill_read(op: PaddleOp) -> OpSpec:
    """Paddle takes shape and value as inputs, too: those that the program fills with numbers are attributes here."""
    attrs = op.without("str_value") if op.attrs.get("str_value") == "" else dict(op.attrs)
    if "ValueTensor" in op.inputs:
        # Computed values and shapes keep their inputs; only those that ops of the program fill become attributes.
        value = op.constants_of("ValueTensor")
        if value is None:
            return op.made(attrs={name: op.attrs[name] for name in ("shape", "dtype")})
        attrs = op.without("str_value") | {"value": value[0]}
    sizes = op.constants_of("ShapeTensorList")
    if "ShapeTensor" in op.inputs or sizes is None:
        attrs["value"] = number_of(attrs.get("value", 0.0), attrs.pop("str_value", ""))
        inputs = {name: row for name, row in op.inputs.items() if name in ("ShapeTensor", "ShapeTensorList")}
        known = ("shape", "dtype", "value")
        return op.made("full_with_tensor", inputs=inputs, attrs={n: v for n, v in attrs.items() if n in known})
    if sizes:
        attrs["shape"] = tuple(map(int, sizes))
    return op.made(inputs={}, attrs=attrs)


def _fill_write(op: PaddleOp) -> list[OpSpec]:
    """Whole numbers go as text, too, as Paddle's attribute is a float of 32 bits."""
    text = op.attrs.get("str_value") or ("" if op.attrs["dtype"].is_low else repr(op.attrs["value"]))
    return [op.made(attrs=op.without("str_value", str_value="" if op.attrs["dtype"].name == "bool" else text))]


# All dtypes, all kinds of shapes, then what no short number spells: NaN, infinities, the largest int64, a fraction cut off.
_FILL_CASES = (
    *(Case((), {"shape": (3, 4), "dtype": d, "value": 1}) for d in ANY_DTYPE),
    *(Case((), {"shape": s, "value": -2.5}) for s in ((), (0,), (7,), (2, 0, 3), (2, 1, 3))),
    Case((), {"shape": (2,), "value": math.nan}),
    Case((), {"shape": (2,), "value": -math.inf, "dtype": "bfloat16"}),
    Case((), {"shape": (2,), "dtype": "int64", "str_value": str(2**63 - 1)}),
    Case((), {"shape": (2,), "dtype": "int32", "value": 2.9}),
    Case((), {"shape": (2,), "dtype": "float16", "str_value": "inf"}),
)

register(OpDef(
    "fill_constant", "-> Out",
    attrs={
        "shape": Attr((), "ints"), "dtype": float32, "value": Attr(0.0, "number"), "str_value": "",
        "force_cpu": Attr.idle(False, PLACE), "place_type": Attr.idle(-1, PLACE),
    },
    infer=_fill_infer, ref=number_ref(number_of, "value", "str_value"), lower=_fill_lower,
    paddle=PaddleForm(_fill_read, _fill_write),
    domain=Domain(cases=_FILL_CASES, ulps=0), onnx=lambda g, *, value, str_value: _onnx.full(g, number_of(value, str_value)),
))  # fmt: skip


def _like(x: Meta, dtype: DType | None) -> Meta:
    return x if dtype is None else x.with_dtype(dtype)


def _like_infer(x: Meta, dtype: DType | None, value: Number) -> Meta:
    out = _like(x, dtype)
    fits("fill_any_like", value, out.dtype)
    return out


def _like_lower(torch: Any, x: Any, *, dtype: DType | None, value: Number, out: Any = None) -> Any:
    kind = dtype_of(str(x.dtype)) if dtype is None else dtype
    return _full(torch, x.shape, kind, value, x.device, out)


register(OpDef(
    "fill_any_like", "X -> Out", lod="X", attrs={"value": Attr(0.0, "number"), "dtype": Attr(None, "dtype")}, infer=_like_infer,
    ref=number_ref(_plain, "value"), lower=_like_lower, shape_only=("X",),
    domain=Domain(
        "unary", attrs=({"value": 1.0}, {"value": 3, "dtype": "int64"}, {}), others=("int64", "bool"), ulps=0,
        check_grad="the result does not depend on the values of X",
    ),
    complex="own", onnx=lambda g, x, *, value: _onnx.full_like(g, x, value),
))  # fmt: skip

register(OpDef(
    "fill_zeros_like", "X -> Out", lod="X", infer=lambda x: x, ref=number_ref(lambda: 0),
    lower=lambda torch, x, *, out=None: torch.zeros_like(x) if out is None else out.zero_(), shape_only=("X",),
    domain=Domain(
        "unary", others=("int64", "bool"), ulps=0, check_grad="the result does not depend on the values of X",
    ),
    complex="linear", onnx=lambda g, x: _onnx.full_like(g, x, 0),
))  # fmt: skip


def _batch_infer(
    x: Meta,
    offsets: Meta | None,
    shape: Shape,
    dtype: DType,
    value: Number,
    input_dim_idx: int,
    output_dim_idx: int,
) -> Meta:
    name = "fill_constant_batch_size_like"
    fits(name, value, dtype)
    if offsets is not None and x.shape:
        # A batch of sequences has as many samples as sequences.
        x = x.with_shape((max(offsets.shape[0] - 1, UNKNOWN), *x.shape[1:]))
    return Meta(batch_shape(name, x, shape, input_dim_idx, output_dim_idx), dtype)


def _batch_lower(
    torch: Any,
    x: Any,
    offsets: Any,
    *,
    shape: Shape,
    dtype: DType,
    value: Number,
    input_dim_idx: int,
    output_dim_idx: int,
    out: Any = None,
) -> Any:
    like = x if offsets is None else x.new_empty((len(offsets) - 1, *x.shape[1:]))
    sizes = batch_sizes(like, shape, input_dim_idx, output_dim_idx)
    return _full(torch, sizes, dtype, value, x.device, out)


register(OpDef(
    "fill_constant_batch_size_like", f"Input, Input{LOD}? -> Out",
    attrs={
        "shape": Attr(kind="ints"), "dtype": float32, "value": Attr(0.0, "number"), "input_dim_idx": 0,
        "output_dim_idx": 0, "force_cpu": Attr.idle(False, PLACE),
    },
    infer=_batch_infer, ref=number_ref(_plain, "value"), lower=_batch_lower, shape_only=("Input", f"Input{LOD}"),
    domain=Domain(
        cases=(
            Case(((5, 2),), {"shape": (-1, 3), "value": 1.5}),
            Case(((5, 2),), {"shape": (3, 7), "value": 2, "input_dim_idx": 1, "output_dim_idx": 1, "dtype": "int32"}),
            Case(((0, 2),), {"shape": (1, 3)}), Case(((5, 2), (3,)), {"shape": (-1, 3), "value": 1.5}),
        ),
        values={f"Input{LOD}": ValueRange(dtype="int64", offsets="Input.0")},
        ulps=0, check_grad="the result does not depend on the values of Input",
    ), onnx=lambda g, x, lod, **attrs: _onnx.full_batch(g, x, lod, attrs),
))  # fmt: skip


def _empty_infer(shape: Shape, dtype: DType) -> Meta:
    check_sizes(shape, "shape", "empty", least=0)
    return Meta(shape, dtype)


register(OpDef(
    "empty", "-> Out", attrs={"shape": Attr((), "ints"), "dtype": float32}, infer=_empty_infer,
    # Any content is right; zeros make runs repeatable.
    ref=number_ref(lambda: 0),
    lower=lambda torch, *, shape, dtype, device=None, out=None: _full(torch, shape, dtype, 0, device, out),
    domain=Domain(cases=tuple(Case((), {"shape": s}) for s in ((), (0,), (2, 3))), ulps=0), onnx=lambda g: _onnx.full(g, 0),
))  # fmt: skip


# --------------------------------------------------------------------------------------- a shape known at run time only
def _dynamic_infer(
    given: Meta | None, each: Sequence[Meta] | None, dtype: DType, value: Number, shape: Sequence[int]
) -> Meta:
    for meta in (given,) if given is not None else each or ():
        check_dtype(meta, ("int32", "int64"), "ShapeTensor")
    rank = tensor_rank(given, each, "shape")
    if rank is None:
        raise ProgramError(
            "'full_with_tensor' needs a shape", expected="ShapeTensor, or ShapeTensorList", received="neither",
            fix="use fill_constant for a shape that is known", op="full_with_tensor",
        )  # fmt: skip
    fits("full_with_tensor", value, dtype)
    return Meta(tuple(shape) if len(shape) == rank else (UNKNOWN,) * rank, dtype)


def _dynamic_ref(given: Any, each: Any, out: Any, *, dtype: DType, value: Number) -> list[Array]:
    # Each size is 0-d or [1]; `item` takes both.
    sizes = tuple(int(np.asarray(s).item()) for s in (each if given is None else given))
    check_sizes(sizes, "shape", "full_with_tensor", least=0)
    return [np.full(sizes, as_scalar(value, dtype), dtype.np)]


def _dynamic_lower(torch: Any, given: Any, each: Any, *, dtype: DType, value: Number) -> Any:
    sizes = [one.item() for one in each] if given is None else given.tolist()
    return _full(torch, sizes, dtype, value, (each[0] if given is None else given).device)


register(OpDef(
    "full_with_tensor", "ShapeTensor?, ShapeTensorList*? -> Out",
    attrs={
        "dtype": float32, "value": Attr(0.0, "number"),
        # -1 for sizes that only the run knows.
        "shape": Attr.idle((), "it tells which sizes are known when the program is built", "ints"),
    },
    infer=_dynamic_infer, ref=_dynamic_ref, lower=_dynamic_lower, dynamic=Dynamic("the values of the shape"),
    paddle=PaddleForm(write=lambda op: [op.made("fill_constant")]),
    domain=Domain(
        cases=(
            Case(((3,), None), {"value": 2.5}), Case(((0,), None), {"dtype": "int64", "value": 7}), Case(((1,), None)),
            Case((None, [(1,), (), (1,)]), {"value": 1.5}),
        ),
        values={name: ValueRange(0, 3, dtype="int64") for name in ("ShapeTensor", "ShapeTensorList")}, ulps=0,
    ), onnx=lambda g, given, each, *, value: _onnx.full_given(g, given, each, value),
))  # fmt: skip


# -------------------------------------------------------------------------------------------------------- given numbers


def unpacked(values: Any, dtype: DType, shape: Shape) -> Array:
    """Returns the array that :func:`packed` took apart."""
    # Long arrays are kept as bytes: in a tuple, a Python float takes 32 bytes.
    if isinstance(values, bytes):
        return np.frombuffer(values, dtype.np).reshape(shape)
    return np.array(values, dtype.np).reshape(shape)


def _assign_infer(shape: Shape, dtype: DType, values: Any) -> Meta:
    check_sizes(shape, "shape", "assign_value", least=0)
    fix = "pass values=tuple(array.ravel().tolist())"
    check_type(values, (bytes, tuple, list), "values", "assign_value", expected="a tuple of numbers, or bytes", fix=fix)
    wanted = numel(shape)
    given = len(values) // dtype.itemsize if isinstance(values, bytes) else len(values)
    if given != wanted or (isinstance(values, bytes) and len(values) % dtype.itemsize):
        raise ProgramError(
            "'assign_value' was given another number of values than its shape holds",
            expected=f"{wanted} values of {dtype.name} for shape {list(shape)}",
            received=f"{len(values)} bytes" if isinstance(values, bytes) else f"{given} values",
            fix="pass the shape of the array that the values come from",
            op="assign_value",
        )
    if not isinstance(values, bytes):
        for v in values:
            fits("assign_value", v, dtype)
    return Meta(shape, dtype)


def _assign_calls(out: Array, *, shape: Shape, dtype: DType, values: Any) -> Calls:
    return [(np.copyto, (out, unpacked(values, dtype, shape)))]


def _assign_lower(
    torch: Any, *, shape: Shape, dtype: DType, values: Any, device: Any = "cpu", tables: Any = fresh
) -> Any:
    kind = getattr(torch, dtype.name)
    if not len(values):
        return torch.empty(shape, dtype=kind, device=device)
    # As bytes, since torch reads no numpy array of bfloat16; `view` gives them their type on the device.
    flat = np.frombuffer(unpacked(values, dtype, shape).tobytes(), np.uint8)
    # A copy: the table stays, whatever is done to the result.
    return tables(torch, flat, torch.uint8, device).clone().view(kind).reshape(shape)


_PADDLE_VALUES = {
    "bool": "bool_values", "int32": "int32_values", "int64": "int64_values", "float32": "fp32_values", "float64": "fp64_values",
}  # fmt: skip


def _assign_read(op: PaddleOp) -> OpSpec:
    """Paddle has a list for each dtype, of which one is set; lists of its files are long numbers also for bool."""
    dtype = op.dtypes[op.result]
    if dtype.name not in _PADDLE_VALUES:
        raise ValueError(f"operator 'assign_value' of {dtype.name}")
    values = np.array(op.attrs.get("values") or op.attrs.get(_PADDLE_VALUES[dtype.name], ()), dtype.np)
    return op.made(attrs={"shape": op.attrs.get("shape", ()), "dtype": dtype, "values": packed(values)})


def _assign_write_parts(op: PaddleOp) -> list[OpSpec]:
    """Writes complex constants as their parts, and the op that puts them together."""
    assert op.fresh is not None
    meta = Meta(tuple(op.attrs["shape"]), op.attrs["dtype"].real)
    values = unpacked(op.attrs["values"], op.attrs["dtype"], meta.shape)
    made, inputs = [], {}
    for slot, part in (("X", values.real), ("Y", values.imag)):
        # Paddle's assign_value has no list for complex numbers.
        inputs[slot] = [op.fresh(meta)]
        attrs = {"shape": meta.shape, "dtype": meta.dtype, "values": packed(np.ascontiguousarray(part))}
        made += _assign_write(replace(op, outputs={"Out": inputs[slot]}, attrs=attrs))
    return [*made, OpSpec("complex", inputs, op.outputs, {})]


def _assign_write(op: PaddleOp) -> list[OpSpec]:
    shape, dtype = op.attrs["shape"], op.attrs["dtype"]
    if dtype.is_complex:
        return _assign_write_parts(op)
    # A dtype without a list of its own is filled as a wider one and cast.
    wide = dtype if dtype.name in _PADDLE_VALUES else dtype_of("float32" if dtype.is_float else "int32")
    flat = unpacked(op.attrs["values"], dtype, shape).astype(wide.np).ravel()
    # Numbers of 64 bits go as an array: a list of floats has 32.
    values = flat if wide.name == "float64" else flat.tolist()
    attrs = {
        "shape": shape,
        "dtype": wide,
        _PADDLE_VALUES[wide.name]: [int(v) for v in values] if wide.name == "bool" else values,
    }
    if wide is dtype:
        return [op.made(attrs=attrs)]
    assert op.fresh is not None
    made = [op.fresh(Meta(tuple(shape), wide))]
    cast = OpSpec("cast", {"X": made}, op.outputs, {"in_dtype": wide, "out_dtype": dtype})
    return [op.made(outputs={"Out": made}, attrs=attrs), cast]


def _assign_onnx(g: Any, **attrs: Any) -> Any:
    out = np.empty(g.outs[0].shape, g.outs[0].dtype.np)
    for function, args in _assign_calls(out, **attrs):
        function(*args)
    return g.const(out)


register(OpDef(
    "assign_value", "-> Out", attrs={"shape": Attr((), "ints"), "dtype": float32, "values": Attr(kind="any")},
    paddle=PaddleForm(_assign_read, _assign_write),
    infer=_assign_infer, ref=copies(_assign_calls), lower=_assign_lower,
    domain=Domain(
        cases=(
            *(Case((), {"shape": (2, 2), "dtype": d, "values": (0, 1, 1, 0)}) for d in ANY_DTYPE),
            Case((), {"shape": (), "values": (1.5,)}), Case((), {"shape": (0, 3), "values": ()}),
            Case((), {"shape": (2,), "dtype": "int64", "values": (2**63 - 1, -(2**63))}),
            Case((), {"shape": (2,), "dtype": "float16", "values": packed(np.array([np.nan, 3.25], np.float16))}),
            Case((), {"shape": (9, 9), "values": packed(np.linspace(-1, 1, 81, dtype=np.float32))}),
        ),
        ulps=0,
    ), onnx=_assign_onnx,
))  # fmt: skip
