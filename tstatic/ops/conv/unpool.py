"""Maxima put back at the places that a maximum pooling took them from: ``unpool`` over two axes, ``unpool3d`` over three."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.attrs import one_of
from tstatic.ir.build import LayerNamer, check_variable
from tstatic.ir.checks import (
    FLOATS,
    INDICES,
    check_choice,
    check_dtype,
    check_ints,
    check_rank,
    check_same_shape,
    check_sizes,
)
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, Index, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.respell import parameters_of
from tstatic.ir.types import UNKNOWN, Meta, Shape
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.sliding import (
    LAYOUTS_BY_RANK,
    check_lengths,
    not_negative,
    on_images,
    per_axis,
    positive,
    split_batch,
)
from tstatic.ops.conv import _conv_onnx as _onnx
from tstatic.tuned._common import Array


def _sizes(sizes: Sequence[int], attrs: Mapping[str, Any]) -> Shape:
    """Returns the smallest sizes that a pooling with these windows maps to ``sizes``."""
    rank = len(sizes)
    windows = (per_axis(attrs[name], rank) for name in ("ksize", "strides", "paddings"))
    return tuple(
        UNKNOWN if size == UNKNOWN else (size - 1) * s - 2 * p + k
        for size, k, s, p in zip(sizes, *windows, strict=True)
    )


def _infer(rank: int, x: Meta, indices: Meta, attrs: Mapping[str, Any]) -> Meta:
    check_rank(x, rank + 2, "X", layout=LAYOUTS_BY_RANK[rank][0])
    check_dtype(x, FLOATS, "X")
    check_dtype(indices, INDICES, "Indices", fix="pass what max_pool with return_mask=True returned")
    check_same_shape((x, indices), ("X", "Indices"))
    check_lengths(rank, ksize=attrs["ksize"], strides=attrs["strides"], paddings=attrs["paddings"])
    if attrs["output_size"]:
        check_lengths(rank, output_size=attrs["output_size"])
        sizes = per_axis(attrs["output_size"], rank)
    else:
        sizes = _sizes(x.shape[2:], attrs)
    check_sizes([s for s in sizes if s != UNKNOWN], "output_size", least=1)
    return x.with_shape((*x.shape[:2], *sizes))


def _planes(array: Array) -> Array:
    """Returns an array with one row for each image and channel."""
    n, c, *sizes = array.shape
    return array.reshape(n * c, math.prod(sizes))


def _ref(x: Array, indices: Array, out: Array) -> None:
    # Rows have to be views: a reshaped copy would take what is written.
    target = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    target.fill(0)
    if x.size:
        # Of two values for one place the last stands, as in Paddle.
        np.put_along_axis(_planes(target), _planes(indices), _planes(x), 1)
    if target is not out:
        np.copyto(out, target)


def _grad_ref(x: Array, indices: Array, dout: Array, dx: Array) -> None:
    # Each value went to one place, so its gradient is read there.
    if dx.size:
        np.copyto(dx, np.take_along_axis(_planes(dout), _planes(indices), 1).reshape(dx.shape))


def _lower(torch: Any, x: Any, indices: Any, ksize: Any, strides: Any, paddings: Any, output_size: Any) -> Any:
    rank = x.dim() - 2
    attrs = {"ksize": ksize, "strides": strides, "paddings": paddings}
    sizes = per_axis(output_size, rank) or _sizes(x.shape[2:], attrs)
    if not x.numel():
        return x.new_zeros((*x.shape[:2], *sizes))
    # Everything after the channels in one row: torch's own function takes no bfloat16.
    flat = x.new_zeros((*x.shape[:2], math.prod(sizes))).scatter(2, indices.flatten(2).long(), x.flatten(2))
    return flat.reshape(*x.shape[:2], *sizes)


def _grad_lower(torch: Any, x: Any, indices: Any, dout: Any) -> Any:
    return dout.flatten(2).gather(2, indices.flatten(2).long()).reshape(x.shape) if x.numel() else x.clone()


# By number of axes: sizes from the windows and given ones; images and volumes of 16 places and more.
_CASES = {
    2: (
        Case(((2, 2, 2, 2), (2, 2, 2, 2)), {"ksize": (2, 2), "strides": (2, 2)}),
        Case(((1, 2, 2, 3), (1, 2, 2, 3)), {"ksize": (3, 2), "strides": (2, 2), "output_size": (5, 7)}),
        Case(((1, 1, 3, 3), (1, 1, 3, 3)), {"ksize": (4, 4), "strides": (2, 2), "paddings": (1, 1)}),
        Case(((0, 2, 2, 2), (0, 2, 2, 2)), {"ksize": (2, 2), "strides": (2, 2)}),
    ),
    3: (
        Case(((1, 2, 2, 1, 2), (1, 2, 2, 1, 2)), {"ksize": (2, 2, 2), "strides": (2, 2, 2)}),
        Case(((1, 1, 2, 2, 2), (1, 1, 2, 2, 2)), {"ksize": (2, 3, 2), "strides": (2, 2, 1), "output_size": (4, 4, 4)}),
    ),
}


def _register(type: str, rank: int) -> None:
    def infer(x: Meta, indices: Meta, **attrs: Any) -> Meta:
        return _infer(rank, x, indices, attrs)

    def places(x: Meta, indices: Meta, *dout: Meta, **attrs: Any) -> int:
        return math.prod(per_axis(attrs["output_size"], rank) or _sizes(x.shape[2:], attrs))

    register(OpDef(
        type, "X, Indices -> Out", indices=(Index("Indices", places),),
        attrs={
            "unpooling_type": Attr("max", "str", one_of("max")),
            "ksize": Attr(kind="ints", check=positive),
            "strides": Attr((1,) * rank, "ints", positive),
            "paddings": Attr((0,) * rank, "ints", not_negative),
            "output_size": Attr((), "ints"),
            "data_format": Attr(LAYOUTS_BY_RANK[rank][0], "str", one_of(LAYOUTS_BY_RANK[rank][0])),
        },
        infer=infer, ref=_ref, lower=_lower, split=split_batch,
        grad=GradOp(
            "X, Indices, Out@GRAD -> X@GRAD", ref=_grad_ref, lower=_grad_lower, split=split_batch,
            shape_only=("X",), grad=grad_is_forward_op(type, keep=("Indices",)), indices=(Index("Indices", places),),
        ),
        # Sixteen places at least, and sixteen values at most, none of which meet: of two the gradient sees both.
        domain=Domain(cases=_CASES[rank], values={"Indices": ValueRange(0, 15, dtype="int64", distinct=True)}), onnx=_onnx.unpool,
    ))  # fmt: skip


_register("unpool", 2)
_register("unpool3d", 3)


# ------------------------------------------------------------------------------------------------------------ functions
def _output_size(function: str, given: Any, smallest: Shape, strides: Sequence[int]) -> tuple[int, ...]:
    """Returns the sizes that ``output_size`` asks for, the last ones of a whole shape."""
    rank = len(smallest)
    whole = isinstance(given, list | tuple) and len(given) == rank + 2
    sizes = check_ints(given[2:] if whole else given, rank, "output_size", function)
    # Paddle's rule: less than one stride away from the smallest size.
    for axis, (size, low, stride) in enumerate(zip(sizes, smallest, strides, strict=True)):
        if low != UNKNOWN and not low - stride < size < low + stride:
            raise ShapeError(
                f"output_size of {function} does not go with the windows",
                expected=f"a size from {low - stride + 1} to {low + stride - 1} along spatial axis {axis}",
                received=list(sizes),
                fix="pass the sizes of what was pooled",
                op=function,
            )
    return sizes


def _unpool(
    rank: int, x: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, data_format: str, output_size: Any,
    name: Any,
) -> Variable:  # fmt: skip
    """Emits the op; that of ``[n, c, length]`` on images of height 1."""
    function = f"max_unpool{rank}d"
    check_variable(x, "x", function, FLOATS)
    check_variable(indices, "indices", function, INDICES)
    check_choice(data_format, LAYOUTS_BY_RANK[rank][:1], "data_format", function, error=ShapeError)
    check_rank(x, rank + 2, "x", function, layout=data_format)
    attrs: dict[str, Any] = {"ksize": check_ints(kernel_size, rank, "kernel_size", function)}
    attrs["strides"] = attrs["ksize"] if stride is None else check_ints(stride, rank, "stride", function)
    attrs["paddings"] = check_ints(padding, rank, "padding", function)
    smallest = _sizes(x.shape[2:], attrs)
    if output_size is not None:
        attrs["output_size"] = _output_size(function, output_size, smallest, attrs["strides"])
    # As in Paddle, the op states its sizes where they are known.
    elif UNKNOWN not in smallest:
        attrs["output_size"] = smallest
    helper = LayerNamer(function, name)
    ins = {"X": x, "Indices": indices}
    if rank > 1:
        unpooled: Variable = helper.emit("unpool3d" if rank == 3 else "unpool", ins, attrs)
        return unpooled
    images = {slot: helper.emit("unsqueeze2", {"X": v}, {"axes": (2,)}) for slot, v in ins.items()}
    image = helper.emit("unpool", images, on_images(attrs))
    line: Variable = helper.emit("squeeze2", {"X": image}, {"axes": (2,)})
    return line


@export("nn.functional.max_unpool1d", op="unpool")
def max_unpool1d(
    x: Variable,
    indices: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    data_format: str = "NCL",
    output_size: Any = None,
    name: str | None = None,
) -> Variable:
    """Puts the maxima of :func:`max_pool1d` back at their places, and 0 elsewhere; see :func:`max_unpool2d`.

    Args:
        x: ``[n, c, length]``, floats.
        indices: Places of the same shape, from ``max_pool1d(..., return_mask=True)``.
        kernel_size, stride, padding: An int each, those of the pooling.
        data_format: ``"NCL"``.
        output_size: The length of what was pooled, where several lengths fit: ``[length]`` or the whole shape.
        name: Name of the layer.

    Returns:
        ``[n, c, (length - 1) * stride - 2 * padding + kernel_size]``, or of the length of ``output_size``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
        IndexRangeError: At run time, if a place lies outside of the output.

    Example:
        >>> x, places = paddle.to_tensor([[[3.0, 4.0]]]), paddle.to_tensor([[[1, 3]]])
        >>> y = paddle.nn.functional.max_unpool1d(x, places, kernel_size=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[0., 3., 0., 4.]]], dtype=float32)
    """
    return _unpool(1, x, indices, kernel_size, stride, padding, data_format, output_size, name)


@export("nn.functional.max_unpool2d", op="unpool")
@parameters_of(max_unpool1d, data_format="NCHW")
def max_unpool2d(**given: Any) -> Variable:
    """Puts the maxima of :func:`max_pool2d` back at their places, and 0 elsewhere.

    Args:
        x: ``[n, c, h, w]``, floats.
        indices: Places ``row * width + column`` of the same shape, int32 or int64, from ``max_pool2d(..., return_mask=True)``. Of
            two values for one place the last stands; both get its gradient.
        kernel_size, stride, padding: An int each, or one per axis, those of the pooling; the stride is the kernel size if ``None``.
        data_format: ``"NCHW"``.
        output_size: The sizes of what was pooled, where several fit: ``[h, w]`` or the whole shape.
        name: The layer's name.

    Returns:
        ``[n, c, (h - 1) * stride - 2 * padding + kernel_size, ...]``, or of the sizes of ``output_size``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
        IndexRangeError: At run time, if a place lies outside of the output.

    Example:
        >>> x = paddle.to_tensor([[[[1.0, 2.0], [4.0, 3.0]]]])
        >>> pooled, places = paddle.nn.functional.max_pool2d(x, 2, return_mask=True)
        >>> y = paddle.nn.functional.max_unpool2d(pooled, places, kernel_size=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[0., 0.],
                 [4., 0.]]]], dtype=float32)
    """
    return _unpool(2, **given)


@export("nn.functional.max_unpool3d", op="unpool3d")
@parameters_of(max_unpool1d, data_format="NCDHW")
def max_unpool3d(**given: Any) -> Variable:
    """Puts the maxima of :func:`max_pool3d` back at their places, and 0 elsewhere; see :func:`max_unpool2d`.

    Args:
        x: ``[n, c, d, h, w]``, floats.
        indices: Places of the same shape, from ``max_pool3d(..., return_mask=True)``.
        kernel_size, stride, padding: An int each, or one per axis, those of the pooling.
        data_format: ``"NCDHW"``.
        output_size: The sizes of what was pooled, where several fit: ``[d, h, w]`` or the whole shape.
        name: The layer's name.

    Returns:
        ``[n, c, (d - 1) * stride - 2 * padding + kernel_size, ...]``, or of the sizes of ``output_size``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
        IndexRangeError: At run time, if a place lies outside of the output.

    Example:
        >>> x, places = paddle.to_tensor([[[[[7.0]]]]]), paddle.to_tensor([[[[[1]]]]])
        >>> y = paddle.nn.functional.max_unpool3d(x, places, kernel_size=[1, 1, 2])
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[[0., 7.]]]]], dtype=float32)
    """
    return _unpool(3, **given)
