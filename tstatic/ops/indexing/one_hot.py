"""Class numbers as rows of zeros with a single one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import ANY_RANK, INTEGERS, check_dtype, check_index, check_rank, check_sizes
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.split import ELEMENTS, Split
from tstatic.ir.types import UNKNOWN, DType, Meta, float32
from tstatic.ops.shape._shapes import Array, emit_one


def _depth(depth: int) -> int:
    if depth < 1:
        raise ShapeError(
            "one-hot rows need a length",
            expected="a depth (number of classes) of at least 1",
            received=depth,
            fix="pass the number of classes",
        )
    return depth


def _infer(x: Meta, given: Meta | None, *, depth: int, dtype: DType) -> Meta:
    check_dtype(x, INTEGERS, "X")
    if given is not None:
        check_dtype(given, INTEGERS, "depth_tensor")
    shape = (*x.shape, UNKNOWN if given is not None else _depth(depth))
    check_sizes(shape)
    return Meta(shape, dtype)


def _ref(
    x: Array, given: Array | None, out: Array | None, *, depth: int, dtype: DType, allow_out_of_range: bool
) -> list[Array] | None:
    if out is None:
        assert given is not None
        made = np.empty((*x.shape, _depth(int(given.reshape(-1)[0]))), dtype.np)
        _fill(x, made, allow_out_of_range)
        return [made]
    _fill(x, out, allow_out_of_range)
    return None


def _fill(x: Array, out: Array, allow_out_of_range: bool) -> None:
    depth = out.shape[-1]
    if not allow_out_of_range:
        check_index(x, depth, "X")
    if not out.flags.c_contiguous:
        np.copyto(out, x[..., None] == np.arange(depth))
        return
    out.fill(0)
    rows, classes = np.arange(x.size), x.reshape(-1)
    if allow_out_of_range:
        good = (classes >= 0) & (classes < depth)
        rows, classes = rows[good], classes[good]
    out.reshape(-1, depth)[rows, classes] = True


def _lower(torch: Any, x: Any, given: Any, *, depth: int, dtype: DType) -> Any:
    count = int(given) if given is not None else depth
    return (x.unsqueeze(-1) == torch.arange(count, device=x.device)).to(getattr(torch, dtype.name))


_ATTRS = {"depth": 1, "dtype": Attr(float32, "dtype"), "allow_out_of_range": False}

register(
    OpDef(
        "one_hot_v2",
        "X, depth_tensor? -> Out",
        attrs=_ATTRS,
        infer=_infer,
        ref=_ref,
        lower=_lower,
        split=Split(ELEMENTS, 0, None, 0),
        domain=Domain(
            cases=(
                Case(((6,), None), {"depth": 4}),
                Case(((2, 3), None), {"depth": 4, "dtype": "int64"}),
                Case(((), None), {"depth": 4}),
                Case(((0, 2), None), {"depth": 5}),
                Case(((7, 1), None), {"depth": 2, "allow_out_of_range": True}),
                Case(((3,), None), {"depth": 9, "dtype": "bfloat16"}),
            ),
            values={"X": ValueRange(0, "depth", dtype="int64")},
            floats=("float32",),
            ulps=0,
        ),
    )
)


@export("nn.functional.one_hot", op="one_hot_v2")
def one_hot(x: Variable, num_classes: Any, name: str | None = None) -> Variable:
    """One-hot rows.

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


@export("fluid.one_hot", op="one_hot_v2")
def fluid_one_hot(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """:func:`one_hot`, where classes out of range may be allowed and then give rows of zeros."""
    return _one_hot("one_hot_v2", check_variable(input, "input", "one_hot", INTEGERS), depth, allow_out_of_range)


# ------------------------------------------------------------------------------------------------- the older operator
def _infer_last(x: Meta, given: Meta | None, *, depth: int, dtype: DType) -> Meta:
    check_rank(x, range(1, ANY_RANK), "X")
    if x.shape[-1] not in (1, UNKNOWN):
        raise ShapeError(
            "the last dimension of one_hot's input must be 1",
            expected="shape [..., 1]",
            received=list(x.shape),
            fix="use nn.functional.one_hot, or unsqueeze the last axis",
        )
    return _infer(x.with_shape(x.shape[:-1]), given, depth=depth, dtype=dtype)


def _ref_last(
    x: Array, given: Array | None, out: Array | None, *, depth: int, dtype: DType, allow_out_of_range: bool
) -> list[Array] | None:
    return _ref(x[..., 0], given, out, depth=depth, dtype=dtype, allow_out_of_range=allow_out_of_range)


register(
    OpDef(
        "one_hot",
        "X, depth_tensor? -> Out",
        attrs=_ATTRS,
        infer=_infer_last,
        ref=_ref_last,
        lower=lambda torch, x, given, *, depth, dtype: _lower(torch, x[..., 0], given, depth=depth, dtype=dtype),
        split=Split(ELEMENTS, 0, None, 0),
        domain=Domain(
            cases=(
                Case(((6, 1), None), {"depth": 4}),
                Case(((2, 3, 1), None), {"depth": 4, "dtype": "int64"}),
                Case(((1,), None), {"depth": 4}),
                Case(((0, 1), None), {"depth": 5}),
                Case(((7, 1), None), {"depth": 2, "allow_out_of_range": True}),
                Case(((3, 1), None), {"depth": 9}),
            ),
            values={"X": ValueRange(0, "depth", dtype="int64")},
            floats=("float32",),
            ulps=0,
        ),
    )
)


@export("fluid.layers.one_hot", op="one_hot")
def fluid_layers_one_hot(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """One-hot rows in the place of a last dimension of 1: ``[n, 1]`` gives ``[n, depth]``.

    Example:
        >>> label = fluid.layers.data("label", shape=[1], dtype="int64")
        >>> y = fluid.layers.one_hot(label, depth=3)
        >>> static.Executor().run(feed={"label": np.array([[2], [0]])}, fetch_list=[y])[0]
        array([[0., 0., 1.],
               [1., 0., 0.]], dtype=float32)
    """
    return _one_hot("one_hot", check_variable(input, "input", "one_hot", INTEGERS), depth, allow_out_of_range)
