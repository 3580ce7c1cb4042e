"""Joining values along an axis, and splitting one into several."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Call
from tstatic.ir.split import along
from tstatic.ir.types import UNKNOWN, Meta, normalize_axis
from tstatic.ops._call_ref import copies
from tstatic.ops._gradients import gathered, scattered
from tstatic.ops.shape._joining import common_shape, section_sizes, variables
from tstatic.ops.shape._shapes import (
    Array,
    add_op_context,
    as_list,
    check_nonempty_list,
    check_same_dtype,
    copy,
    emit_list,
    emit_one,
)
from tstatic.ops.shape.reshape import ANY


# -------------------------------------------------------------------------------------------------------------- concat
def _infer_concat(xs: Sequence[Meta], *, axis: int) -> Meta:
    check_nonempty_list(xs, "X")
    check_same_dtype(xs, "X")
    if xs[0].rank == 0:
        raise ShapeError(
            "0-d values cannot be joined along an axis",
            expected="values of at least one dimension",
            received="shape []",
            fix="use paddle.stack",
        )
    at = normalize_axis(axis, xs[0].rank)
    shape = list(common_shape([x.shape for x in xs], at))
    sizes = [x.shape[at] for x in xs]
    shape[at] = UNKNOWN if UNKNOWN in sizes else sum(sizes)
    return xs[0].with_shape(shape)


def _runs(sizes: Sequence[int], whole: Array, axis: int) -> list[Array]:
    """Views of the tiles, of given sizes, that stand one after the other along an axis."""
    at = normalize_axis(axis, whole.ndim)
    ends = list(itertools.accumulate(sizes))
    return [whole[along(at, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def _concat_calls(xs: Sequence[Array], out: Array, *, axis: int) -> list[Call]:
    return [copy(place, x) for x, place in zip(xs, _runs([x.shape[axis] for x in xs], out, axis), strict=True)]


def _concat_grad(ctx: GradContext) -> list[OpSpec]:
    names = ctx.inputs["X"]
    arriving = ctx.out_grads.get(ctx.outputs["Out"][0])
    if arriving is None or not any(n in ctx.in_grads for n in names):
        return []
    metas = [ctx.meta(n) for n in names]
    axis = normalize_axis(ctx.attrs["axis"], metas[0].rank)
    sizes = [m.shape[axis] for m in metas]
    outs = scattered(ctx, "X")
    if sizes.count(UNKNOWN) <= 1:
        attrs = {"axis": axis, "num": 0, "sections": tuple(sizes)}
        return [OpSpec("split", {"X": [arriving]}, {"Out": outs}, attrs)]
    # Several unknown sizes: only the values themselves know where one ends.
    return [OpSpec("concat_grad", {"X": names, "Out@GRAD": [arriving]}, {"X@GRAD": outs}, {"axis": axis})]


_CONCAT_CASES = (
    Case(([(2, 3), (4, 3)],), {"axis": 0}),
    Case(([(2, 3), (2, 1), (2, 2)],), {"axis": -1}),
    Case(([(3,)],), {"axis": 0}),
    Case(([(2, 0, 3), (2, 2, 3)],), {"axis": 1}),
    Case(([(0, 2), (0, 2)],), {"axis": 0}),
    Case(([(2, 1, 2), (2, 1, 2), (2, 1, 2)],), {"axis": -3}),
)

register(
    OpDef(
        "concat",
        "X* -> Out",
        attrs={"axis": 0},
        infer=_infer_concat,
        ref=copies(_concat_calls),
        lower=lambda torch, xs, *, axis: torch.cat(list(xs), axis),
        grad=_concat_grad,
        amp="gray",
        domain=Domain(cases=_CONCAT_CASES, others=ANY, ulps=0),
    )
)


def _back_calls(xs: Sequence[Array], dout: Array, dxs: Sequence[Array | None], *, axis: int) -> list[Call]:
    parts = _runs([x.shape[axis] for x in xs], dout, axis)
    return [copy(dx, part) for dx, part in zip(dxs, parts, strict=True) if dx is not None]


def _back_grad(ctx: GradContext) -> list[OpSpec]:
    wanted = ctx.in_grads.get(ctx.inputs["Out@GRAD"][0])
    names = ctx.outputs["X@GRAD"]
    if wanted is None or not any(n in ctx.out_grads for n in names):
        return []
    specs: list[OpSpec] = []
    parts = []
    for x, name in zip(ctx.inputs["X"], names, strict=True):
        if name in ctx.out_grads:
            parts.append(ctx.out_grads[name])
        else:
            parts.append(ctx.fresh(name))
            specs.append(OpSpec("fill_any_like", {"X": [x]}, {"Out": [parts[-1]]}, {"value": 0.0}))
    return [*specs, OpSpec("concat", {"X": parts}, {"Out": [wanted]}, ctx.attrs)]


def _split_lower(torch: Any, xs: Sequence[Any], dout: Any, *, axis: int) -> Any:
    return (list(torch.split(dout, [x.shape[axis] for x in xs], axis)),)


register(
    OpDef(
        "concat_grad",
        "X*, Out@GRAD -> X@GRAD*",
        attrs={"axis": 0},
        infer=lambda xs, dout, *, axis: (list(xs),),
        ref=copies(_back_calls),
        lower=_split_lower,
        grad=_back_grad,
        shape_only=("X",),
        domain=Domain(
            cases=(
                Case(([(2, 3), (4, 3)], (6, 3)), {"axis": 0}),
                Case(([(2, 3), (2, 1), (2, 2)], (2, 6)), {"axis": -1}),
                Case(([(3,)], (3,)), {"axis": 0}),
                Case(([(2, 0, 3), (2, 2, 3)], (2, 2, 3)), {"axis": 1}),
                Case(([(0, 2), (0, 2)], (0, 2)), {"axis": 0}),
                Case(([(1, 2), (3, 2)], (4, 2)), {"axis": -2}),
            ),
            ulps=0,
        ),
    )
)


@export("tensor.concat", op="concat")
def concat(x: Sequence[Variable], axis: int = 0, name: str | None = None) -> Variable:
    """Joins values along an existing axis.

    Args:
        x: Variables of one dtype, with equal sizes except along ``axis``.
        axis: The axis; negative counts from the end.
        name: Name of the layer.

    Raises:
        ShapeError: If other sizes differ, or the list is empty.

    Example:
        >>> x, y = paddle.to_tensor([[1.0, 2.0]]), paddle.to_tensor([[3.0, 4.0]])
        >>> rows, columns = paddle.concat([x, y]), paddle.concat([x, y], axis=1)
        >>> static.Executor().run(fetch_list=[rows, columns])
        [array([[1., 2.],
               [3., 4.]], dtype=float32), array([[1., 2., 3., 4.]], dtype=float32)]
    """
    return emit_one("concat", {"X": variables(x, "x", "concat")}, {"axis": axis}, name=name)


@export("fluid.layers.concat", op="concat")
def fluid_concat(input: Sequence[Variable], axis: int = 0, name: str | None = None) -> Variable:
    """:func:`concat` under its older signature.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0]])
        >>> y = fluid.layers.concat([x, x * 10], axis=1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[ 1.,  2., 10., 20.]], dtype=float32)
    """
    return emit_one("concat", {"X": variables(input, "input", "concat")}, {"axis": axis}, name=name)


# --------------------------------------------------------------------------------------------------------------- split
def _infer_split(x: Meta, *, num: int, sections: Sequence[int], axis: int) -> tuple[list[Meta]]:
    at = normalize_axis(axis, x.rank)
    if not x.rank:
        raise ShapeError(
            "a 0-d value has no axis to split",
            expected="at least one dimension",
            received="shape []",
            fix="reshape first",
        )
    sizes = section_sizes(x.shape[at], num, sections, at)
    return ([x.with_shape((*x.shape[:at], s, *x.shape[at + 1 :])) for s in sizes],)


def _split_calls(x: Array, outs: Sequence[Array | None], *, num: int, sections: Sequence[int], axis: int) -> list[Call]:
    parts = _runs(section_sizes(x.shape[axis], num, sections, axis), x, axis)
    return [copy(out, part) for out, part in zip(outs, parts, strict=True) if out is not None]


def _lower_split(torch: Any, x: Any, *, num: int, sections: Sequence[int], axis: int) -> Any:
    return ([p.contiguous() for p in torch.split(x, section_sizes(x.shape[axis], num, sections, axis), axis)],)


def _split_grad(ctx: GradContext) -> list[OpSpec]:
    found = gathered(ctx, "X", "Out")
    if found is None:
        return []
    wanted, parts, specs = found
    return [*specs, OpSpec("concat", {"X": parts}, {"Out": [wanted]}, {"axis": ctx.attrs["axis"]})]


register(
    OpDef(
        "split",
        "X -> Out*",
        attrs={"num": 0, "sections": Attr((), "ints"), "axis": 0},
        infer=_infer_split,
        ref=copies(_split_calls),
        lower=_lower_split,
        grad=_split_grad,
        amp="gray",
        domain=Domain(
            cases=(
                Case(((6, 2),), {"num": 3, "axis": 0}),
                Case(((2, 6),), {"num": 0, "sections": (1, 2, 3), "axis": 1}),
                Case(((2, 6),), {"num": 0, "sections": (1, -1), "axis": -1}),
                Case(((2, 0, 3),), {"num": 3, "axis": 2}),
                Case(((0, 4),), {"num": 2, "axis": 0}),
                Case(((4,),), {"num": 1, "axis": 0}),
                Case(((3, 4),), {"num": 0, "sections": (0, 3), "axis": 0}),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)


@export("tensor.split", "Variable.split", op="split")
def split(x: Variable, num_or_sections: int | Sequence[int], axis: int = 0, name: str | None = None) -> list[Variable]:
    """Splits a value along an axis.

    Args:
        x: ``[...]``, any dtype.
        num_or_sections: The number of equal tiles, or their sizes, one of which may be -1.
        axis: Which axis.
        name: Name of the layer.

    Returns:
        A list of Variables.

    Raises:
        ShapeError: If the tiles do not make up the axis.

    Example:
        >>> x = paddle.to_tensor([1, 2, 3, 4, 5, 6])
        >>> a, b, c = paddle.split(x, 3)
        >>> d, e = paddle.split(x, [2, -1])
        >>> static.Executor().run(fetch_list=[a, b, c, d, e])
        [array([1, 2]), array([3, 4]), array([5, 6]), array([1, 2]), array([3, 4, 5, 6])]
    """
    x = check_variable(x, "x", "split")
    if isinstance(num_or_sections, list | tuple):
        attrs: dict[str, Any] = {"num": 0, "sections": as_list(num_or_sections), "axis": axis}
    else:
        attrs = {"num": num_or_sections, "axis": axis}
        if isinstance(num_or_sections, int) and num_or_sections < 1:
            raise add_op_context(
                ShapeError(
                    "the number of tiles must be positive",
                    expected="an int of at least 1, or a list of sizes",
                    received=num_or_sections,
                    fix="pass a positive number",
                ),
                "split",
                x.name,
            )
    return emit_list("split", {"X": x}, attrs, name=name)


@export("fluid.layers.split", op="split")
def fluid_split(
    input: Variable, num_or_sections: int | Sequence[int], dim: int = -1, name: str | None = None
) -> list[Variable]:
    """:func:`split` under its older signature, along the last axis by default.

    Example:
        >>> x = paddle.to_tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
        >>> a, b = fluid.layers.split(x, 2, dim=1)
        >>> static.Executor().run(fetch_list=[a, b])
        [array([[1, 2],
               [5, 6]]), array([[3, 4],
               [7, 8]])]
    """
    return split(input, num_or_sections, dim, name)


@export("tensor.chunk", "Variable.chunk", op="split")
def chunk(x: Variable, chunks: int, axis: int = 0, name: str | None = None) -> list[Variable]:
    """Splits a value into ``chunks`` equal tiles along an axis."""
    return split(x, chunks, axis, name)


@export("tensor.vsplit", "Variable.vsplit", op="split")
def vsplit(x: Variable, num_or_sections: int | Sequence[int], name: str | None = None) -> list[Variable]:
    """Splits along the first axis of a value of at least two dimensions."""
    return split(x, num_or_sections, 0, name)
