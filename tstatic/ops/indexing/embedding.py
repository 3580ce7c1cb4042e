"""Rows of a table by index, and rows with a single one: the embedding lookup and one_hot, of Paddle 2.x and 1.x."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, INTEGERS, check_dtype, check_index, check_int, check_rank, check_size, check_sizes
from tstatic.ir.opdef import WHOLE, Attr, Case, Cost, Domain, GradOp, Index, OpDef, ValueRange, export, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.program import Variable
from tstatic.ir.split import ELEMENTS, IMAGES, Split
from tstatic.ir.traits import RowGradient
from tstatic.ir.types import UNKNOWN, DType, Meta, float32, int64
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.indexing import add_rows, torch_groups
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.torch_out import filled
from tstatic.ops.indexing import _indexing_onnx as _onnx
from tstatic.tuned._common import Array

SPARSE = Attr.idle(False, "values and gradients are the same; optimizers with lazy_mode read it")
DISTRIBUTED = Attr.idle(False, "a table lies in one place")


def _infer(ids: Meta, w: Meta) -> Meta:
    check_dtype(ids, INTEGERS, "Ids", fix="convert the indices to integers with paddle.cast(ids, 'int64')")
    check_dtype(w, FLOATS, "W")
    check_rank(w, 2, "W", layout="[rows, size of an embedding]")
    return Meta((*ids.shape, w.shape[1]), w.dtype)


def _infer_column(ids: Meta, w: Meta) -> Meta:
    fix = "use paddle.nn.functional.embedding for ids without that axis, or unsqueeze them"
    check_size(ids, -1, 1, "Ids", fix=fix)
    return _infer(ids.with_shape(ids.shape[:-1]), w)


def _ref(ids: Array, w: Array, out: Array, padding_idx: int) -> None:
    flat = ids.reshape(-1)
    shape = (flat.size, w.shape[1])
    try:
        rows = out.reshape(shape, copy=False)
    except ValueError:
        # Strides of `out` allow no view as rows: they are made beside it and copied at the end.
        rows = np.empty(shape, out.dtype)
    if rows.size:
        # The indices are checked; any mode but "raise" writes straight to the target.
        np.take(w, flat, axis=0, out=rows, mode="clip")
        # Paddle's lookup gives zeros there, whatever the table holds.
        if padding_idx >= 0:
            rows[flat == padding_idx] = 0
    if not np.shares_memory(rows, out):
        np.copyto(out, rows.reshape(out.shape))


# Not cut: every tile would sort the indices again, and a table cut by columns is slow to fill.
@in_float32()
def _grad_ref(ids: Array, w: Array, dout: Array, dw: Array, padding_idx: int) -> None:
    dw.fill(0)
    flat = ids.reshape(-1)
    add_rows(dw, flat, dout.reshape(flat.size, dw.shape[1]), fresh=True)
    if 0 <= padding_idx < dw.shape[0]:
        # After the sum, so that no row needs to be left out of it: the padding row takes no gradient.
        dw[padding_idx] = 0


# One check for forward and backward: ids outside would read, or add to, other memory.
_ROWS = Index(
    "Ids", lambda ids, w, *douts: w.shape[0], name="Ids of an embedding lookup",
    fix="check the ids that are fed, or make the table larger",
)  # fmt: skip


def _cost(ids: Meta, w: Meta, out: Meta) -> Cost:
    # Rows that are read once and written once; the rest of the table is not touched.
    return Cost(0.0, float(ids.nbytes + 2 * out.nbytes))


def _grad_cost(ids: Meta, w: Meta, dout: Meta, dw: Meta) -> Cost:
    # Gradients are read, their rows of the table read and written; the whole table is cleared.
    return Cost(float(dout.numel), float(ids.nbytes + 3 * dout.nbytes + dw.nbytes))


def _lower(torch: Any, ids: Any, w: Any, padding_idx: int, *, out: Any = None) -> Any:
    flat = _torch_ids(torch, ids)
    place = None if out is None else out.view(flat.shape[0], w.shape[1])
    rows = torch.index_select(w, 0, flat, out=place).view(*ids.shape, w.shape[1])
    # Paddle gives zeros for the padding index, torch the table's row.
    return rows.masked_fill_((ids == padding_idx)[..., None], 0) if padding_idx >= 0 else rows


def _lower_column(torch: Any, ids: Any, w: Any, padding_idx: int, *, out: Any = None) -> Any:
    return _lower(torch, ids[..., 0], w, padding_idx, out=out)


def _grad_lower(torch: Any, ids: Any, w: Any, dout: Any, padding_idx: int, *, out: Any = None) -> Any:
    flat = _torch_ids(torch, ids)
    rows = dout.reshape(flat.shape[0], w.shape[1])
    if rows.itemsize == 2 and rows.numel():
        # One call that adds up in float32 on a GPU, where it reads beyond its memory if there are no rows.
        return filled(out, torch.ops.aten.embedding_dense_backward(rows, flat, w.shape[0], padding_idx, False))
    table = torch.zeros(w.shape, dtype=w.dtype, device=rows.device) if out is None else out.zero_()
    table.index_add_(0, flat, rows)
    if 0 <= padding_idx < w.shape[0]:
        table[padding_idx].zero_()
    return table


def _torch_ids(torch: Any, ids: Any) -> Any:
    """Returns numbers of rows as torch's functions take them."""
    flat = ids.reshape(-1)
    return flat if flat.dtype in (torch.int32, torch.int64) else flat.long()


def _definition(type: str, infer: Any, lower: Any, cases: tuple[Case, ...]) -> OpDef:
    return OpDef(
        type,
        "Ids, W -> Out",
        lod="Ids",
        attrs={"padding_idx": Attr(-1, "int"), "is_sparse": SPARSE, "is_distributed": DISTRIBUTED},
        infer=infer,
        ref=_ref,
        lower=lower,
        split=Split(IMAGES, 0, WHOLE, 0),
        cost=_cost,
        grad=GradOp(
            "Ids, W, Out@GRAD -> W@GRAD",
            ref=_grad_ref,
            lower=_grad_lower,
            cost=_grad_cost,
            shape_only=("W",),
            traits=(RowGradient("embedding_grad_rows", "embedding_grad_add"),),
            indices=(_ROWS,),
            grad=grad_is_forward_op(type, "W", keep=("Ids",)),
        ),
        effects=True,
        indices=(_ROWS,),
        amp="float32",
        domain=Domain(cases=cases, values={"Ids": ValueRange(0, "W.0", dtype="int64")}, ulps=2.0),
        onnx=_onnx.embedding(type == "lookup_table"),
    )


register(_definition(
    "lookup_table_v2", _infer, _lower,
    (
        Case(((3, 4), (7, 5)), {}), Case(((6,), (4, 3)), {"padding_idx": 2}), Case(((), (4, 3)), {}),
        Case(((0,), (4, 3)), {}), Case(((2, 3, 2), (5, 1)), {"padding_idx": 0}),
        Case(((40,), (3, 20)), {"is_sparse": True}), Case(((2, 2), (3, 0)), {}),
    ),
))  # fmt: skip
register(_definition(
    "lookup_table", _infer_column, _lower_column,
    (
        Case(((3, 1), (7, 5)), {}), Case(((2, 3, 1), (4, 3)), {"padding_idx": 2}), Case(((1,), (4, 3)), {}),
        Case(((0, 1), (4, 3)), {}), Case(((30, 1), (3, 20)), {"is_sparse": True}),
        Case(((5, 1), (2, 1)), {"padding_idx": 1}),
    ),
))  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- touched rows
def _rows_infer(ids: Meta, w: Meta) -> Meta:
    return Meta(w.shape[:1], float32)


def _rows_ref(ids: Array, w: Array, out: Array, padding_idx: int) -> None:
    out[...] = np.bincount(ids.reshape(-1), minlength=out.size)
    if 0 <= padding_idx < out.size:
        out[padding_idx] = 0


def _rows_lower(torch: Any, ids: Any, w: Any, padding_idx: int) -> Any:
    flat = _torch_ids(torch, ids)
    # Whole numbers up to 2**24 are exact in any order.
    counts = torch.zeros(w.shape[0], device=ids.device).index_add_(0, flat, torch.ones(len(flat), device=ids.device))
    if 0 <= padding_idx < w.shape[0]:
        counts[padding_idx] = 0
    return counts


register(OpDef(
    "embedding_rows", "Ids, W -> Out", attrs={"padding_idx": Attr(-1, "int")}, infer=_rows_infer, ref=_rows_ref,
    lower=_rows_lower, shape_only=("W",), paddle=ABSENT, indices=(_ROWS,),
    domain=Domain(
        cases=(Case(((3, 4), (7, 5))), Case(((6, 1), (4, 3)), {"padding_idx": 2}), Case(((0,), (4, 3)))),
        values={"Ids": ValueRange(0, "W.0", dtype="int64")},
    ), onnx="it counts the rows that an update touches",
))  # fmt: skip


# ------------------------------------------------------------------------------------------------------ gradients as rows
def _grad_rows_infer(ids: list[Meta], douts: list[Meta], w: Meta) -> tuple[Meta, Meta]:
    count = UNKNOWN if any(UNKNOWN in m.shape for m in ids) else sum(m.numel for m in ids)
    return Meta((count,), int64), Meta((count, *w.shape[1:]), w.dtype)


@in_float32()
def _grad_rows_ref(
    ids: list[Array], douts: list[Array], w: Array, rows: Array, values: Array, padding_idx: int
) -> None:
    values.fill(0)
    # Fewer rows than ids are found: the places left over name a row behind the table, with zeros, which an update drops.
    rows.fill(w.shape[0])
    index = np.concatenate([one.reshape(-1) for one in ids])
    gradients = np.concatenate([one.reshape(-1, w.shape[1]) for one in douts])
    if 0 <= padding_idx < w.shape[0]:
        kept = np.flatnonzero(index != padding_idx)
        index, gradients = index[kept], gradients[kept]
    if not index.size:
        return
    found, places = np.unique(index, return_inverse=True)
    rows[: found.size] = found
    if len(ids) == 1:
        # `of` is the size of the whole table, so the same way of summing is chosen, and the same bits come out.
        add_rows(values, places, gradients, fresh=True, of=w.shape[0])
        return
    # The sum of each lookup first, then the lookups in their order, as a sum of whole gradients adds them.
    lookup = np.repeat(np.arange(len(ids)), [one.size for one in ids])
    if 0 <= padding_idx < w.shape[0]:
        lookup = lookup[kept]
    pairs, of_pair = np.unique(places * len(ids) + lookup, return_inverse=True)
    sums = np.zeros((pairs.size, w.shape[1]), values.dtype)
    add_rows(sums, of_pair, gradients, fresh=True, of=w.shape[0])
    np.add.at(values, pairs // len(ids), sums)


def _grad_rows_lower(torch: Any, ids: Any, douts: Any, w: Any, padding_idx: int) -> Any:
    index = torch.cat([one.flatten().long() for one in ids])
    gradients = torch_wide(torch.cat([one.reshape(-1, w.shape[1]) for one in douts]))
    if 0 <= padding_idx < w.shape[0]:
        padding = index == padding_idx
        index, gradients = index.masked_fill(padding, w.shape[0]), gradients.masked_fill(padding[:, None], 0)
    # `unique` would tell the host how many there are, and so wait for the device.
    ordered, order, number = torch_groups(torch, index)
    rows = torch.full_like(index, w.shape[0]).scatter_(0, number, ordered)
    values = torch.zeros_like(gradients)
    # Sorted on a GPU, unlike index_add_: the same order of additions in every run.
    values.index_put_((number,), gradients.index_select(0, order), accumulate=True)
    return rows, values.to(w.dtype)


register(OpDef(
    "embedding_grad_rows", "Ids*, Out@GRAD*, W -> Rows, Values", attrs={"padding_idx": Attr(-1, "int")},
    infer=_grad_rows_infer, ref=_grad_rows_ref, lower=_grad_rows_lower, shape_only=("W",),
    paddle=ABSENT,
    indices=(replace(_ROWS, size=lambda ids, douts, w: w.shape[0]),),
    domain=Domain(
        cases=(
            Case((((3, 4),), ((3, 4, 5),), (7, 5))), Case((((6, 1), (9,)), ((6, 3), (9, 3)), (4, 3)), {"padding_idx": 2}),
            Case((((0,),), ((0, 3),), (4, 3))), Case((((40,), (30,), (2,)), ((40, 20), (30, 20), (2, 20)), (30, 20))),
        ),
        values={"Ids": ValueRange(0, "W.0", dtype="int64")},
        ulps=16.0,
    ), onnx="it is part of a backward pass",
))  # fmt: skip


def padding_row(padding_idx: int | None, rows: int, function: str) -> int:
    """Returns the attribute for a ``padding_idx`` argument: -1 for none, counted from the end if negative.

    Raises:
        ShapeError: If the table has no such row.
    """
    if padding_idx is None:
        return -1
    check_int(padding_idx, "padding_idx", function, -rows, rows - 1, fix="choose a row of the table, or None")
    # Counted from the front, since -1 in the attribute means "none".
    return padding_idx if padding_idx >= 0 else rows + padding_idx


@export("nn.functional.embedding", op="lookup_table_v2")
def embedding(
    x: Variable, weight: Variable, padding_idx: int | None = None, sparse: bool = False, name: str | None = None
) -> Variable:
    """Reads rows of a table by index.

    Args:
        x: Integers of any shape, each a row of ``weight``.
        weight: ``[rows, size]``, floats.
        padding_idx: This row reads as zeros and gets no gradient; counted from the end if negative.
        sparse: Updates with ``lazy_mode`` leave rows alone that the batch does not name; other updates are the same.
        name: The layer's name.

    Returns:
        ``[*x.shape, size]``.

    Raises:
        ShapeError: If ``padding_idx`` is not a row, or the table has not two dimensions.
        DTypeError: If ``x`` does not hold integers.
        IndexRangeError: At run time, for an index that is not a row.

    Example:
        >>> table = paddle.to_tensor([[0.0, 0.0], [1.0, 10.0], [2.0, 20.0]])
        >>> y = paddle.nn.functional.embedding(paddle.to_tensor([2, 1]), table)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[ 2., 20.],
               [ 1., 10.]], dtype=float32)
    """
    check_variable(x, "x", "embedding")
    check_variable(weight, "weight", "embedding")
    attrs = {
        "padding_idx": padding_row(padding_idx, weight.shape[0] if weight.shape else 0, "embedding"),
        "is_sparse": bool(sparse),
    }
    return emit_one("lookup_table_v2", {"Ids": x, "W": weight}, attrs, name=name, prefix="embedding")


# -------------------------------------------------------------------------------------------------------------- one_hot
def _infer_hot(x: Meta, given: Meta | None, *, depth: int, dtype: DType) -> Meta:
    check_dtype(x, INTEGERS, "X")
    if given is not None:
        check_dtype(given, INTEGERS, "depth_tensor")
    shape = (
        *x.shape,
        UNKNOWN if given is not None else check_int(depth, "depth", least=1, fix="pass the number of classes"),
    )
    check_sizes(shape)
    return Meta(shape, dtype)


def _fill(x: Array, out: Array, allow_out_of_range: bool) -> None:
    depth = out.shape[-1]
    if not out.flags.c_contiguous:
        np.copyto(out, x[..., None] == np.arange(depth))
        return
    out.fill(0)
    rows, classes = np.arange(x.size), x.reshape(-1)
    if allow_out_of_range:
        # Classes outside give rows of zeros; unchecked, -1 would set the last class.
        good = (classes >= 0) & (classes < depth)
        rows, classes = rows[good], classes[good]
    # One write a row instead of a comparison of each element; the other way needs no flat view of `out`.
    out.reshape(-1, depth)[rows, classes] = True


def _one_hot_op(type: str, column: bool, cases: tuple[Case, ...]) -> None:
    """Registers an op that makes one-hot rows; the older one reads class numbers whose last axis has a size of 1."""

    def infer(x: Meta, given: Meta | None, *, depth: int, dtype: DType) -> Meta:
        if column:
            check_size(x, -1, 1, "X", fix="use nn.functional.one_hot, or unsqueeze the last axis")
            x = x.with_shape(x.shape[:-1])
        return _infer_hot(x, given, depth=depth, dtype=dtype)

    def ref(
        x: Array, given: Array | None, out: Array | None, *, depth: int, dtype: DType, allow_out_of_range: bool
    ) -> list[Array] | None:
        classes = x[..., 0] if column else x
        if out is not None:
            _fill(classes, out, allow_out_of_range)
            return None
        assert given is not None
        count = check_int(given.reshape(-1)[0], "depth_tensor", least=1)
        # The size is a value, so the check of indices before the run could not know it.
        if not allow_out_of_range:
            check_index(classes, count, "X")
        made = np.empty((*classes.shape, count), dtype.np)
        _fill(classes, made, allow_out_of_range)
        return [made]

    def size(x: Meta, given: Meta | None, *, depth: int, allow_out_of_range: bool) -> int | None:
        # A depth that is known when the op runs only, the reference checks itself.
        return None if allow_out_of_range or given is not None else depth

    def lower(torch: Any, x: Any, given: Any, *, depth: int, dtype: DType) -> Any:
        classes = (x[..., 0] if column else x).unsqueeze(-1)
        count = int(given) if given is not None else depth
        return (classes == torch.arange(count, device=x.device)).to(getattr(torch, dtype.name))

    register(OpDef(
        type, "X, depth_tensor? -> Out", lod="X", paddle=ABSENT if column else None,
        attrs={"depth": 1, "dtype": Attr(float32, "dtype"), "allow_out_of_range": False}, infer=infer, ref=ref,
        lower=lower, split=Split(ELEMENTS, 0, None, 0), indices=(Index("X", size),),
        domain=Domain(
            cases=cases, values={"X": ValueRange(0, "depth", dtype="int64")}, floats=("float32",), ulps=0,
        ), onnx=lambda g, x, given, *, depth: _onnx.one_hot(g, x, given, depth, column),
    ))  # fmt: skip


_one_hot_op(
    "one_hot_v2", False,
    (
        Case(((6,), None), {"depth": 4}), Case(((2, 3), None), {"depth": 4, "dtype": "int64"}),
        Case(((), None), {"depth": 4}), Case(((0, 2), None), {"depth": 5}),
        Case(((7, 1), None), {"depth": 2, "allow_out_of_range": True}),
        Case(((3,), None), {"depth": 9, "dtype": "bfloat16"}),
    ),
)  # fmt: skip
_one_hot_op(
    "one_hot", True,
    (
        Case(((6, 1), None), {"depth": 4}), Case(((2, 3, 1), None), {"depth": 4, "dtype": "int64"}),
        Case(((1,), None), {"depth": 4}), Case(((0, 1), None), {"depth": 5}),
        Case(((7, 1), None), {"depth": 2, "allow_out_of_range": True}), Case(((3, 1), None), {"depth": 9}),
    ),
)  # fmt: skip


@export("nn.functional.one_hot", op="one_hot_v2")
def one_hot(x: Variable, num_classes: Any, name: str | None = None) -> Variable:
    """Makes one-hot rows.

    Args:
        x: ``[...]`` class numbers, int64 or int32.
        num_classes: The length of a row; an int or a Variable of one integer.
        name: Name of the layer.

    Returns:
        ``[..., num_classes]``, float32.

    Raises:
        ShapeError: If ``num_classes`` is not positive. A class out of range raises IndexRangeError when the program
            runs.

    Example:
        >>> label = paddle.to_tensor([2, 0])
        >>> y = paddle.nn.functional.one_hot(label, num_classes=3)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0., 0., 1.],
               [1., 0., 0.]], dtype=float32)
    """
    return _one_hot("one_hot_v2", check_variable(x, "x", "one_hot", INTEGERS), num_classes, False, name)


def _one_hot(type: str, x: Variable, depth: Any, allow_out_of_range: bool, name: str | None = None) -> Variable:
    given = depth if isinstance(depth, Variable) else None
    attrs = {"depth": 1 if given is not None else depth, "allow_out_of_range": allow_out_of_range}
    return emit_one(type, {"X": x, "depth_tensor": given}, attrs, name=name)


@export("fluid.one_hot", "fluid.input.one_hot", op="one_hot_v2")
def fluid_one_hot(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """Calls :func:`one_hot`; classes out of range may be allowed and then give rows of zeros.

    Args:
        input: ``[...]`` class numbers, int64 or int32.
        depth: The length of a row, at least 1; an int or a Variable of one integer.
        allow_out_of_range: Let classes outside of ``[0, depth)`` give rows of zeros; otherwise they raise
            IndexRangeError when the program runs.

    Raises:
        ShapeError: If ``depth`` is not positive.
        DTypeError: If ``input`` does not hold integers.
    """
    return _one_hot("one_hot_v2", check_variable(input, "input", "one_hot", INTEGERS), depth, allow_out_of_range)


@export("fluid.layers.one_hot", op="one_hot")
def fluid_layers_one_hot(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """Makes one-hot rows in the place of a last dimension of 1: ``[n, 1]`` gives ``[n, depth]``.

    Args:
        input: ``[..., 1]`` class numbers, int64 or int32.
        depth, allow_out_of_range: As in ``fluid.one_hot``.

    Raises:
        ShapeError: If the last size is not 1, or ``depth`` is not positive.

    Example:
        >>> label = fluid.layers.data("label", shape=[1], dtype="int64")
        >>> y = fluid.layers.one_hot(label, depth=3)
        >>> static.Executor().run(feed={"label": np.array([[2], [0]])}, fetch_list=[y])[0]
        array([[0., 0., 1.],
               [1., 0., 0.]], dtype=float32)
    """
    return _one_hot("one_hot", check_variable(input, "input", "one_hot", INTEGERS), depth, allow_out_of_range)
