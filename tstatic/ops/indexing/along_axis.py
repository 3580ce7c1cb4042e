"""Reading and writing one entry per position along an axis: take_along_axis, index_sample, put_along_axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ShapeError, UnsupportedError
from tstatic.ir.build import as_variable, check_variable
from tstatic.ir.checks import (
    ANY_RANK,
    INTEGERS,
    check_axis,
    check_dtype,
    check_has_shape,
    check_rank,
    check_same_dtype,
    check_size,
)
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, GradOp, Index, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.split import ELEMENTS, FREE, Split
from tstatic.ir.types import UNKNOWN, Meta, broadcast_shapes, normalize_axis
from tstatic.ops.base.gradients import grad_is_forward_op, grad_is_linear_op
from tstatic.ops.base.indexing import add_flat, positions, stays, torch_last, torch_stays
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import ANY, Array, emit_one
from tstatic.ops.indexing import _indexing_onnx as _onnx
from tstatic.ops.shape.expanding import broadcast_tensors, expand, expand_as


def check_along(x: Meta, index: Meta, axis: int) -> None:
    """Refuses an index that has not the rank of ``x``, or that is larger beside the axis.

    Raises:
        DTypeError, ShapeError: Say what was expected.
    """
    check_dtype(index, INTEGERS, "Index")
    check_rank(x, range(1, ANY_RANK), "Input")
    at = normalize_axis(axis, x.rank, "Axis")
    check_rank(index, x.rank, "Index", layout="as many as Input")
    pairs = zip(x.shape, index.shape, strict=True)
    if not all(d == at or UNKNOWN in (a, b) or b <= a for d, (a, b) in enumerate(pairs)):
        raise ShapeError(
            "Index must be no larger than the value beside the axis",
            expected=f"sizes of at most {list(x.shape)} except along axis {at}",
            received=list(index.shape),
            fix="expand or slice the index",
        )


def _take(x: Array, index: Array, out: Array, axis: int) -> None:
    at = normalize_axis(axis, x.ndim)
    if out.size:
        # Beside the axis the index may be smaller than the value, which numpy would broadcast or refuse.
        part = x[tuple(slice(None) if d == at else slice(0, n) for d, n in enumerate(index.shape))]
        np.copyto(out, np.take_along_axis(part, index, at))


@in_float32()
def _back(x: Array, index: Array, dout: Array, dx: Array, axis: int) -> None:
    at = normalize_axis(axis, x.ndim)
    # Positions may repeat, so gradients are added to zeros instead of assigned.
    dx.fill(0)
    add_flat(dx, positions(dx.shape, index, at), dout, fresh=True)


def _lower_back(torch: Any, x: Any, index: Any, dout: Any, axis: int) -> Any:
    wide = torch_wide(dout)
    zeros = torch.zeros(tuple(x.shape), dtype=wide.dtype, device=dout.device)
    # A sum of 16-bit gradients is made in float32 and rounded once.
    return zeros.scatter_add(axis, index.to(torch.int64), wide).to(dout.dtype)


def _take_op(
    type: str,
    x: str,
    out: str,
    axis: str | None,
    infer: Callable[..., Meta],
    cases: tuple[Case, ...],
    limit: str,
) -> None:
    """Registers an op that reads one entry per position along an axis.

    Args:
        type: Op type.
        x, out: Its slots beside ``Index``.
        axis: The attribute that says the axis; ``None`` for axis 1.
        infer: The shape rule.
        cases: Where tests may sample.
        limit: The size of ``x`` that test indices stay below.
    """

    def at(attrs: Mapping[str, Any]) -> int:
        # index_sample has no attribute: it reads rows, along axis 1.
        return attrs[axis] if axis else 1

    entries = Index("Index", lambda x, index, *dout, **a: x.shape[normalize_axis(at(a), len(x.shape))])
    register(OpDef(
        type, f"{x}, Index -> {out}", indices=(entries,), lod=x, attrs={axis: 0} if axis else {}, infer=infer,
        ref=lambda source, index, out, **attrs: _take(source, index, out, at(attrs)),
        lower=lambda torch, source, index, **attrs: torch.gather(source, at(attrs), index.to(torch.int64)),
        split=Split(ELEMENTS, FREE, work=1, taken=axis or (1,)),
        grad=GradOp(
            f"{x}, Index, {out}@GRAD -> {x}@GRAD",
            ref=lambda source, index, dout, dx, **attrs: _back(source, index, dout, dx, axis=at(attrs)),
            lower=lambda torch, source, index, dout, **attrs: _lower_back(torch, source, index, dout, at(attrs)),
            shape_only=(x,), grad=grad_is_forward_op(type, x, out, ("Index",)), indices=(entries,),
        ),
        domain=Domain(cases=cases, values={"Index": ValueRange(0, limit, dtype="int64")}, others=ANY),
        complex="linear", onnx=lambda g, source, index, **attrs: _onnx.take_along(g, source, index, at(attrs)),
    ))  # fmt: skip


def _infer_take(x: Meta, index: Meta, *, Axis: int) -> Meta:
    check_along(x, index, Axis)
    return x.with_shape(index.shape)


_take_op(
    "take_along_axis", "Input", "Result", "Axis", _infer_take,
    (
        Case(((3, 4), (5, 4)), {"Axis": 0}), Case(((4, 4), (4, 2)), {"Axis": 1}),
        Case(((2, 3, 2), (1, 3, 2)), {"Axis": -1}), Case(((5,), (7,)), {"Axis": 0}),
        Case(((3, 4), (0, 4)), {"Axis": 0}), Case(((2, 0), (3, 0)), {"Axis": -2}),
    ),
    "Input.0",
)  # fmt: skip


def broadcast_index(x: Variable, index: Variable, axis: int, function: str) -> tuple[Variable, Variable, int]:
    """Expands value and index so that they agree beside the axis; two unknown sizes are taken to be equal.

    Raises:
        ShapeError: If they do not broadcast.
    """
    check_rank(index, len(x.shape), "indices", function, layout="as many as arr")
    at = check_axis(axis, x, "axis", function)
    try:
        for d, (a, b) in enumerate(zip(x.shape, index.shape, strict=True)):
            if d != at:
                broadcast_shapes((a,), (b,))
    except ShapeError as error:
        raise error.add_context(op=function, var=x.name) from None
    return _expanded(x, index, at), _expanded(index, x, at), at


def _expanded(x: Variable, like: Variable, axis: int) -> Variable:
    """Repeats the sizes of 1 of ``x`` beside the axis as often as ``like`` has them."""
    shape = [a if d == axis or a != 1 else b for d, (a, b) in enumerate(zip(x.shape, like.shape, strict=True))]
    if tuple(shape) == x.shape:
        return x
    # Numbers only: `expand` keeps every other size by -1.
    if UNKNOWN not in [s for s, a in zip(shape, x.shape, strict=True) if s != a]:
        return expand(x, [UNKNOWN if s == a else s for s, a in zip(shape, x.shape, strict=True)])
    # A size is known at run time only: broadcast against one entry of the other value, which has that size.
    one = emit_one("slice", {"Input": like}, {"axes": [axis], "starts": [0], "ends": [1], "infer_flags": [1]})
    return broadcast_tensors([x, one])[0]


@export("tensor.take_along_axis", "Variable.take_along_axis", op="take_along_axis")
def take_along_axis(arr: Variable, indices: Variable, axis: int, broadcast: bool = True) -> Variable:
    """Reads ``arr[..., indices[..., i, ...], ...]`` along an axis.

    Args:
        arr: ``[...]``, any dtype.
        indices: Integers from 0, of the rank of ``arr``.
        axis: Which axis.
        broadcast: Expand both beside the axis; otherwise the indices may be smaller than the value.

    Returns:
        A Variable of the (expanded) shape of ``indices``.

    Raises:
        ShapeError: If the shapes do not fit. A position out of range raises IndexRangeError when the program runs.
    """
    arr = check_variable(arr, "arr", "take_along_axis")
    indices = check_variable(indices, "indices", "take_along_axis", INTEGERS)
    if broadcast:
        arr, indices, axis = broadcast_index(arr, indices, axis, "take_along_axis")
    return emit_one("take_along_axis", {"Input": arr, "Index": indices}, {"Axis": axis})


# -------------------------------------------------------------------------------------------------------- index_sample
def _infer_sample(x: Meta, index: Meta) -> Meta:
    check_dtype(index, INTEGERS, "Index")
    check_rank(x, 2, "X")
    check_rank(index, 2, "Index")
    check_size(index, 0, x.shape[0], "Index", why="one row for each row of X")
    return x.with_shape((index.shape[0] if x.shape[0] == UNKNOWN else x.shape[0], index.shape[1]))


_take_op(
    "index_sample", "X", "Out", None, _infer_sample,
    (
        Case(((3, 4), (3, 2))), Case(((2, 3), (2, 6))), Case(((1, 5), (1, 1))), Case(((0, 3), (0, 2))),
        Case(((3, 3), (3, 0))), Case(((4, 4), (4, 4))),
    ),
    "X.1",
)  # fmt: skip


@export("tensor.index_sample", "Variable.index_sample", op="index_sample")
def index_sample(x: Variable, index: Variable) -> Variable:
    """Reads ``x[i, index[i, j]]``: each row of ``x`` (``[n, m]``) at the positions of its row of ``index`` (``[n, k]``).

    Args:
        x: ``[n, m]``, any dtype.
        index: ``[n, k]`` positions from 0.
    """
    x = check_variable(x, "x", "index_sample")
    return emit_one("index_sample", {"X": x, "Index": check_variable(index, "index", "index_sample", INTEGERS)})


# ------------------------------------------------------------------------------------------------------- put_along_axis
_REDUCE = {"assign": "assign", "add": "add", "mul": "mul", "multiply": "mul", "amin": "amin", "amax": "amax"}
_TORCH = {"add": "sum", "mul": "prod", "amin": "amin", "amax": "amax"}


def _infer(x: Meta, index: Meta, value: Meta, *, Axis: int) -> Meta:
    check_along(x, index, Axis)
    check_same_dtype((x, value), ("Input", "Value"))
    check_has_shape(value, index.shape, "Value", why="that of Index")
    return x


@in_float32()
def _ref(x: Array, index: Array, value: Array, out: Array, *, Axis: int, Reduce: str, Include_self: bool) -> None:
    at = normalize_axis(Axis, x.ndim)
    if out is not x:
        np.copyto(out, x)
    if index.size == 0:
        return
    where, values = positions(x.shape, index, at), value.reshape(-1)
    table = out.reshape(-1) if out.flags.c_contiguous else out.flatten()
    reduce = _REDUCE[Reduce]
    # Old values that take no part give way to the neutral element, which changes no result.
    if not Include_self and reduce != "assign":
        table[where] = _identity(reduce, table.dtype)
    if reduce == "assign":
        # Of several values for one position the last one stays.
        table[where] = values
    elif reduce == "add":
        add_flat(table, where, values)
    else:
        # `ufunc.at` reduces all values of a position; `table[where] *= ...` would keep one of them.
        {"mul": np.multiply, "amin": np.minimum, "amax": np.maximum}[reduce].at(table, where, values)
    if not out.flags.c_contiguous:
        np.copyto(out, table.reshape(out.shape))


def _identity(reduce: str, dtype: np.dtype[Any]) -> Any:
    if reduce in ("add", "mul"):
        return 0 if reduce == "add" else 1
    # An infinity gives way to every value; integers have ends of their own.
    if dtype.kind == "f":
        return np.inf if reduce == "amin" else -np.inf
    return np.iinfo(dtype).max if reduce == "amin" else np.iinfo(dtype).min


def _lower_where(torch: Any, shape: Any, index: Any, axis: int) -> Any:
    # The coordinates of every entry, with the index in the place of its own axis; then Horner's scheme.
    grid = list(torch.meshgrid(*[torch.arange(n, device=index.device) for n in index.shape], indexing="ij"))
    grid[axis] = index.to(torch.int64)
    flat = torch.zeros(tuple(index.shape), dtype=torch.int64, device=index.device)
    for size, line in zip(shape, grid, strict=True):
        flat = flat * size + line
    return flat.reshape(-1)


def _lower(torch: Any, x: Any, index: Any, value: Any, *, Axis: int, Reduce: str, Include_self: bool) -> Any:
    reduce = _REDUCE[Reduce]
    if index.numel() == 0:
        return x.clone()
    where, values, flat = _lower_where(torch, x.shape, index, Axis), value.reshape(-1), x.reshape(-1)
    if reduce == "assign":
        last = torch_last(torch, where, flat.numel())
        # A scatter on a GPU writes equal positions in any order; choosing by the largest number is the same in every run.
        return torch.where(last >= 0, values[last.clamp(min=0)], flat).reshape(x.shape)
    wide = torch_wide(flat)
    # Wide, so that a 16-bit product or sum of several values is rounded once.
    done = wide.scatter_reduce(0, where, values.to(wide.dtype), _TORCH[reduce], include_self=Include_self)
    return done.to(x.dtype).reshape(x.shape)


def _rule(ctx: GradContext) -> list[OpSpec]:
    reduce = ctx.attrs["Reduce"]
    # Gradients of products and extrema would need the old value and the number of equal ones.
    if _REDUCE[reduce] not in ("assign", "add"):
        raise UnsupportedError(
            f"put_along_axis has no gradient for reduce='{reduce}'",
            expected="reduce='assign' or 'add' where a gradient is needed",
            received=repr(reduce),
            fix="set stop_gradient, or compute the product or extremum with other operators",
            op="put_along_axis",
            var=ctx.inputs["Input"][0],
        )
    arriving = ctx.out_grads[ctx.outputs["Result"][0]]
    ins = {"Index": ctx.inputs["Index"], "Value": ctx.inputs["Value"], "Result@GRAD": [arriving]}
    outs = {f"{s}@GRAD": [ctx.in_grads[n]] for s in ("Input", "Value") for n in ctx.inputs[s] if n in ctx.in_grads}
    return [OpSpec("put_along_axis_grad", ins, outs, ctx.attrs)]


def _back_put(
    index: Array, value: Array, dout: Array, dx: Array | None, dvalue: Array | None, *,
    Axis: int, Reduce: str, Include_self: bool,
) -> None:  # fmt: skip
    at = normalize_axis(Axis, dout.ndim)
    where = positions(dout.shape, index, at)
    if dx is not None:
        # The old value reaches the result where nothing is written, and as a term of a sum.
        kept = np.array(dout, order="C").reshape(-1)
        if Reduce == "assign" or not Include_self:
            kept[where] = 0
        np.copyto(dx, kept.reshape(dx.shape))
    if dvalue is not None:
        values = dout.reshape(-1)[where]
        if Reduce == "assign":
            # A value that a later one replaced reaches no result.
            values[~stays(where, dout.size)] = 0
        np.copyto(dvalue, values.reshape(dvalue.shape))


def _lower_back_put(
    torch: Any, index: Any, value: Any, dout: Any, *, Axis: int, Reduce: str, Include_self: bool
) -> Any:
    where = _lower_where(torch, dout.shape, index, Axis)
    flat = dout.reshape(-1)
    dx = flat.clone()
    if Reduce == "assign" or not Include_self:
        dx[where] = 0
    values = flat[where]
    if Reduce == "assign":
        values = torch.where(torch_stays(torch, where, flat.numel()), values, torch.zeros_like(values))
    return dx.reshape(dout.shape), values.reshape(value.shape)


register(
    OpDef(
        "put_along_axis", "Input, Index, Value -> Result",
        attrs={
            "Axis": 0,
            "Reduce": Attr("assign", "str", lambda v: None if v in _REDUCE else f"one of {', '.join(_REDUCE)}"),
            "Include_self": True,
        },
        infer=_infer, ref=_ref, lower=_lower, grad=_rule, inplace=(("Input", "Result"),),
        indices=(Index("Index", lambda x, index, value, *, Axis: x.shape[normalize_axis(Axis, len(x.shape))]),),
        domain=Domain(
            cases=(
                Case(((3, 4), (5, 4), (5, 4)), {"Axis": 0, "Reduce": "assign"}),
                Case(((4, 4), (4, 2), (4, 2)), {"Axis": 1, "Reduce": "add"}),
                Case(((2, 3, 2), (1, 3, 2), (1, 3, 2)), {"Axis": -1, "Reduce": "add", "Include_self": False}),
                Case(((5,), (7,), (7,)), {"Axis": 0, "Reduce": "assign"}),
                Case(((3, 4), (0, 4), (0, 4)), {"Axis": 0, "Reduce": "assign"}),
                Case(((2, 0), (3, 0), (3, 0)), {"Axis": -2, "Reduce": "add"}),
            ),
            values={"Index": ValueRange(0, "Input.0", dtype="int64")}, others=("int64", "int32"),
        ), onnx=_onnx.put_along,
    ),
    GradOp(
        "Index, Value, Result@GRAD -> Input@GRAD, Value@GRAD", infer=lambda index, value, dout: (dout, value),
        ref=_back_put, lower=_lower_back_put, shape_only=("Value",),
        grad=grad_is_linear_op("put_along_axis", "Result", ("Input", "Value"), ("Index",)),
    ),
)  # fmt: skip


@export("tensor.put_along_axis", "Variable.put_along_axis", op="put_along_axis", inplace=True)
def put_along_axis(
    arr: Variable,
    indices: Variable,
    values: Any,
    axis: int,
    reduce: str = "assign",
    include_self: bool = True,
    broadcast: bool = True,
) -> Variable:
    """Puts values at the positions ``indices`` of ``arr`` along an axis; returns a new Variable.

    Args:
        arr: ``[...]``.
        indices: Integers from 0, of the rank of ``arr``.
        values: A number, or a Variable of the dtype of ``arr`` that expands to the indices' shape.
        axis: Which axis.
        reduce: ``"assign"`` (the last value for a position stays), ``"add"``, ``"mul"``, ``"amin"`` or ``"amax"``.
        include_self: Whether the old value takes part in a sum, product or extremum.
        broadcast: Expand the indices beside the axis to the size of ``arr``.

    Raises:
        ProgramError: For another ``reduce``.
        ShapeError: If the shapes do not fit. A position out of range raises IndexRangeError when the program runs.
    """
    arr = check_variable(arr, "arr", "put_along_axis")
    indices = check_variable(indices, "indices", "put_along_axis", INTEGERS)
    if broadcast:
        wide, indices, axis = broadcast_index(arr, indices, axis, "put_along_axis")
        # An index larger than the value would broadcast it, and the result would not have its shape.
        if wide is not arr:
            raise ProgramError(
                "the indices are larger than the value that is written to",
                expected=f"sizes of at most {list(arr.shape)} beside the axis",
                received=list(indices.shape),
                fix="expand the value first",
                op="put_along_axis",
                var=arr.name,
            )
    values = as_variable(values, like=arr)
    if values.shape != indices.shape:
        values = expand_as(values, indices)
    attrs = {"Axis": axis, "Reduce": reduce, "Include_self": include_self}
    return emit_one("put_along_axis", {"Input": arr, "Index": indices, "Value": values}, attrs)
