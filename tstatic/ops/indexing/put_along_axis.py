"""Writing, adding or multiplying one entry per position along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ProgramError, UnsupportedError
from tstatic.ir.build import as_variable, check_variable
from tstatic.ir.checks import INTEGERS, check_index, check_same_dtype
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, normalize_axis
from tstatic.ops._low import in_float32
from tstatic.ops.indexing._indexing import add_flat, positions
from tstatic.ops.indexing.along_axis import broadcast_index, infer_along
from tstatic.ops.shape._shapes import Array, add_op_context, emit_one
from tstatic.ops.shape.expanding import expand_as
from tstatic.ops.shape.joining import common_shape

_REDUCE = {"assign": "assign", "add": "add", "mul": "mul", "multiply": "mul", "amin": "amin", "amax": "amax"}
_TORCH = {"add": "sum", "mul": "prod", "amin": "amin", "amax": "amax"}


def _infer(x: Meta, index: Meta, value: Meta, *, Axis: int) -> Meta:
    infer_along(x, index, Axis, "Input")
    check_same_dtype((x, value), ("Input", "Value"))
    common_shape([value.shape, index.shape], None)
    return x


@in_float32()
def _ref(x: Array, index: Array, value: Array, out: Array, *, Axis: int, Reduce: str, Include_self: bool) -> None:
    at = normalize_axis(Axis, x.ndim)
    check_index(index, x.shape[at])
    if out is not x:
        np.copyto(out, x)
    if index.size == 0:
        return
    where, values = positions(x.shape, index, at), value.reshape(-1)
    table = out.reshape(-1) if out.flags.c_contiguous else out.reshape(-1).copy()
    reduce = _REDUCE[Reduce]
    if not Include_self and reduce != "assign":
        table[where] = _identity(reduce, table.dtype)
    if reduce == "assign":
        # Of several values for one position the last one stays.
        table[where] = values
    elif reduce == "add":
        add_flat(table, where, values)
    else:
        {"mul": np.multiply, "amin": np.minimum, "amax": np.maximum}[reduce].at(table, where, values)
    if not out.flags.c_contiguous:
        np.copyto(out, table.reshape(out.shape))


def _identity(reduce: str, dtype: np.dtype[Any]) -> Any:
    if reduce in ("add", "mul"):
        return 0 if reduce == "add" else 1
    if dtype.kind == "f":
        return np.inf if reduce == "amin" else -np.inf
    return np.iinfo(dtype).max if reduce == "amin" else np.iinfo(dtype).min


def _stays(where: Array, size: int) -> Array:
    last = np.empty(size, np.int64)
    order = np.arange(where.shape[0])
    last[where] = order
    return np.asarray(last[where] == order)


def _lower_stays(torch: Any, where: Any, size: int) -> Any:
    order = torch.arange(where.numel(), device=where.device)
    last = torch.full((size,), -1, dtype=torch.int64, device=where.device)
    return last.scatter_reduce(0, where, order, "amax")[where] == order


def _lower_where(torch: Any, shape: Any, index: Any, axis: int) -> Any:
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
        stays = _lower_stays(torch, where, flat.numel())
        return flat.index_put((where[stays],), values[stays]).reshape(x.shape)
    wide = flat.float() if x.element_size() == 2 and x.is_floating_point() else flat
    done = wide.scatter_reduce(0, where, values.to(wide.dtype), _TORCH[reduce], include_self=Include_self)
    return done.to(x.dtype).reshape(x.shape)


def _rule(ctx: GradContext) -> list[OpSpec]:
    reduce = ctx.attrs["Reduce"]
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


def _back(
    index: Array, value: Array, dout: Array, dx: Array | None, dvalue: Array | None, *,
    Axis: int, Reduce: str, Include_self: bool,
) -> None:  # fmt: skip
    at = normalize_axis(Axis, dout.ndim)
    check_index(index, dout.shape[at])
    where = positions(dout.shape, index, at)
    if dx is not None:
        kept = np.array(dout, order="C").reshape(-1)
        if Reduce == "assign" or not Include_self:
            kept[where] = 0
        np.copyto(dx, kept.reshape(dx.shape))
    if dvalue is not None:
        values = dout.reshape(-1)[where]
        if Reduce == "assign":
            values[~_stays(where, dout.size)] = 0
        np.copyto(dvalue, values.reshape(dvalue.shape))


def _lower_back(torch: Any, index: Any, value: Any, dout: Any, *, Axis: int, Reduce: str, Include_self: bool) -> Any:
    where = _lower_where(torch, dout.shape, index, Axis)
    flat = dout.reshape(-1)
    dx = flat.clone()
    if Reduce == "assign" or not Include_self:
        dx[where] = 0
    values = flat[where]
    if Reduce == "assign":
        values = torch.where(_lower_stays(torch, where, flat.numel()), values, torch.zeros_like(values))
    return dx.reshape(dout.shape), values.reshape(value.shape)


def _again(ctx: GradContext) -> list[OpSpec]:
    """The map is linear in Input and Value, and its gradient's gradient is the map itself."""
    wanted = ctx.in_grads.get(ctx.inputs["Result@GRAD"][0])
    specs: list[OpSpec] = []
    found: list[str] = []
    for slot, like in (("Input@GRAD", ctx.inputs["Result@GRAD"][0]), ("Value@GRAD", ctx.inputs["Value"][0])):
        name = ctx.out_grads.get(ctx.outputs[slot][0]) if ctx.outputs.get(slot) else None
        if name is None:
            name = ctx.fresh(like)
            specs.append(OpSpec("fill_any_like", {"X": [like]}, {"Out": [name]}, {"value": 0.0}))
        found.append(name)
    if wanted is None or len(specs) == 2:
        return []
    inputs = {"Input": [found[0]], "Index": ctx.inputs["Index"], "Value": [found[1]]}
    return [*specs, OpSpec("put_along_axis", inputs, {"Result": [wanted]}, ctx.attrs)]


register(
    OpDef(
        "put_along_axis",
        "Input, Index, Value -> Result",
        attrs={
            "Axis": 0,
            "Reduce": Attr("assign", "str", lambda v: None if v in _REDUCE else f"one of {', '.join(_REDUCE)}"),
            "Include_self": True,
        },
        infer=_infer,
        ref=_ref,
        lower=_lower,
        grad=_rule,
        inplace=(("Input", "Result"),),
        domain=Domain(
            cases=(
                Case(((3, 4), (5, 4), (5, 4)), {"Axis": 0, "Reduce": "assign"}),
                Case(((4, 4), (4, 2), (4, 2)), {"Axis": 1, "Reduce": "add"}),
                Case(((2, 3, 2), (1, 3, 2), (1, 3, 2)), {"Axis": -1, "Reduce": "add", "Include_self": False}),
                Case(((5,), (7,), (7,)), {"Axis": 0, "Reduce": "assign"}),
                Case(((3, 4), (0, 4), (0, 4)), {"Axis": 0, "Reduce": "assign"}),
                Case(((2, 0), (3, 0), (3, 0)), {"Axis": -2, "Reduce": "add"}),
            ),
            values={"Index": ValueRange(0, "Input.0", dtype="int64")},
            others=("int64", "int32"),
        ),
    ),
    GradOp(
        "Index, Value, Result@GRAD -> Input@GRAD, Value@GRAD",
        infer=lambda index, value, dout: (dout, value),
        ref=_back,
        lower=_lower_back,
        shape_only=("Value",),
        grad=_again,
    ),
)


@export("tensor.put_along_axis", "Variable.put_along_axis", op="put_along_axis")
def put_along_axis(
    arr: Variable,
    indices: Variable,
    values: Any,
    axis: int,
    reduce: str = "assign",
    include_self: bool = True,
    broadcast: bool = True,
) -> Variable:
    """``arr`` with values put at the positions ``indices`` along an axis.

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
        if wide is not arr:
            error = ProgramError(
                "the indices are larger than the value that is written to",
                expected=f"sizes of at most {list(arr.shape)} beside the axis",
                received=list(indices.shape),
                fix="expand the value first",
            )
            raise add_op_context(error, "put_along_axis", arr.name)
    values = as_variable(values, like=arr)
    if values.shape != indices.shape:
        values = expand_as(values, indices)
    attrs = {"Axis": axis, "Reduce": reduce, "Include_self": include_self}
    return emit_one("put_along_axis", {"Input": arr, "Index": indices, "Value": values}, attrs)
