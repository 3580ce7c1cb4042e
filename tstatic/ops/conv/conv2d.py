"""Convolution over two axes (plain, grouped, depthwise), and over one axis as a composition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import LayerNamer, check_variable, emit
from tstatic.ir.opdef import Case, Domain, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import plain
from tstatic.ir.types import Meta
from tstatic.ops._gradients import bilinear_grad
from tstatic.ops._low import in_float32
from tstatic.ops.conv._convolution import (
    WINDOW,
    Window,
    conv_attrs,
    conv_cost,
    conv_grad_split,
    conv_split,
    infer_conv,
    np_compute,
    torch_back,
    torch_first,
    torch_pads,
    twice,
    wide,
)
from tstatic.ops.conv._sliding import as_metas, first, first_shape, int_list, is_last, padding_of
from tstatic.tuned._common import Array
from tstatic.tuned._windows import Pads, Pair
from tstatic.tuned.conv import (
    conv2d_filter_grad,
    conv2d_filter_grad_scratch,
    conv2d_forward,
    conv2d_forward_scratch,
    conv2d_input_grad,
    conv2d_input_grad_scratch,
)


def geometry(sizes: Sequence[int], w: Sequence[int], attrs: Mapping[str, Any]) -> tuple[Pair, Pads, Pair, int]:
    """What the kernels take after the arrays: strides, paddings, dilations, groups.

    Args:
        sizes: Spatial sizes that paddings are reckoned from.
        w: The filters' shape.
        attrs: Attributes of a convolution.
    """
    window = Window(sizes, w[2:], *(attrs[n] for n in WINDOW))
    return window.strides, window.flat_pads, window.dilations, attrs["groups"]  # type: ignore[return-value]


# --------------------------------------------------------------------------------------------------------------- conv2d
def _infer(x: Meta, w: Meta, **attrs: Any) -> Meta:
    return infer_conv(x, w, 2, **attrs)


def _scratch(x: Meta, w: Meta, out: Meta, **attrs: Any) -> tuple[Meta, ...]:
    shape: Any = first_shape(x.shape, attrs["data_format"])
    where = geometry(shape[2:], w.shape, attrs)
    needs = conv2d_forward_scratch(shape, w.shape, *where, np_compute(x))  # type: ignore[arg-type]
    return as_metas(needs)


@in_float32()
def _ref(x: Array, w: Array, out: Array, scratch: Sequence[Array], **attrs: Any) -> None:
    layout = attrs["data_format"]
    source = first(x, layout)
    where = geometry(source.shape[2:], w.shape, attrs)
    conv2d_forward(source, w, first(out, layout), *where, scratch)


def _lower(torch: Any, x: Any, w: Any, **attrs: Any) -> Any:
    source = wide(torch_first(x, attrs["data_format"]))
    window = Window(source.shape[2:], w.shape[2:], *(attrs[n] for n in WINDOW))
    f = torch.nn.functional
    padded = f.pad(source, torch_pads(window))
    out = f.conv2d(padded, wide(w), None, window.strides, 0, window.dilations, attrs["groups"])
    return torch_back(out, attrs["data_format"], x.dtype)


def _grad_scratch(
    x: Meta | None, w: Meta | None, dout: Meta, dx: Meta | None, dw: Meta | None, **attrs: Any
) -> tuple[Meta, ...]:
    layout, dtype = attrs["data_format"], np_compute(dout)
    small: Any = first_shape(dout.shape, layout)
    needs: tuple[Meta, ...] = ()
    if dx is not None:
        assert w is not None
        large: Any = first_shape(dx.shape, layout)
        where = geometry(large[2:], w.shape, attrs)
        needs += as_metas(conv2d_input_grad_scratch(large, w.shape, small, *where, dtype))  # type: ignore[arg-type]
    if dw is not None:
        assert x is not None
        large = first_shape(x.shape, layout)
        where = geometry(large[2:], dw.shape, attrs)
        needs += as_metas(conv2d_filter_grad_scratch(large, dw.shape, *where, dtype))  # type: ignore[arg-type]
    return needs


@in_float32(outputs=2)
def _grad_ref(
    x: Array | None,
    w: Array | None,
    dout: Array,
    dx: Array | None,
    dw: Array | None,
    scratch: Sequence[Array],
    **attrs: Any,
) -> None:
    layout = attrs["data_format"]
    gradient = first(dout, layout)
    if dx is not None:
        assert w is not None
        shape: Any = first_shape(dx.shape, layout)
        where = geometry(shape[2:], w.shape, attrs)
        count = len(conv2d_input_grad_scratch(shape, w.shape, gradient.shape, *where, dout.dtype))
        needs, scratch = scratch[:count], scratch[count:]
        conv2d_input_grad(gradient, w, first(dx, layout), *where, needs)
    if dw is not None:
        assert x is not None
        source = first(x, layout)
        conv2d_filter_grad(source, gradient, dw, *geometry(source.shape[2:], dw.shape, attrs), scratch)


def _grad_lower(torch: Any, x: Any, w: Any, dout: Any, **attrs: Any) -> Any:
    source = wide(torch_first(x, attrs["data_format"]))
    window = Window(source.shape[2:], w.shape[2:], *(attrs[n] for n in WINDOW))
    padded = torch.nn.functional.pad(source, torch_pads(window))
    gradient = wide(torch_first(dout, attrs["data_format"]))
    dx, dw, _ = torch.ops.aten.convolution_backward(
        gradient, padded, wide(w), None, window.strides, (0, 0), window.dilations, False, (0, 0), attrs["groups"],
        (True, True, False),
    )  # fmt: skip
    for axis, (before, _) in enumerate(window.pads):
        dx = dx.narrow(axis + 2, before, source.shape[axis + 2])
    return torch_back(dx, attrs["data_format"], x.dtype), dw.to(w.dtype)


_CASES = (
    Case(((2, 3, 5, 6), (4, 3, 3, 3)), {"paddings": (1, 1)}),
    Case(((2, 4, 5, 5), (6, 2, 3, 2)), {"groups": 2, "strides": (2, 1)}),
    Case(((1, 2, 7, 8), (3, 2, 3, 3)), {"dilations": (2, 2), "paddings": (2, 1)}),
    Case(((2, 2, 5, 5), (2, 2, 2, 3)), {"paddings": (0, 1, 2, 0)}),
    Case(((2, 6, 5, 3), (4, 3, 3, 3)), {"data_format": "NHWC", "strides": (2, 2), "paddings": (1, 1)}),
    Case(((0, 3, 5, 5), (4, 3, 3, 3)), {}),
    Case(((1, 2, 6, 7), (2, 2, 3, 2)), {"padding_algorithm": "SAME", "strides": (2, 3), "dilations": (2, 2)}),
    Case(((1, 2, 4, 4), (2, 2, 3, 3)), {"padding_algorithm": "VALID", "paddings": (1, 1)}),
    Case(((3, 3, 4, 4), (5, 3, 1, 1)), {}),
    Case(((1, 3, 12, 12), (2, 3, 1, 1)), {}),
    Case(((2, 2, 12, 13), (3, 2, 3, 3)), {"paddings": (1, 1)}),
    Case(((2, 2, 24, 25), (3, 2, 3, 3)), {"strides": (2, 2), "paddings": (3, 3)}),
    Case(((1, 1, 3, 3), (1, 1, 3, 3)), {"data_format": "AnyLayout"}),
    Case(((2, 8, 5, 6), (9, 8, 3, 2)), {"paddings": (1, 0)}),
    Case(((2, 9, 6, 5), (8, 9, 3, 3)), {"strides": (2, 2), "dilations": (1, 2), "paddings": (0, 1, 2, 1)}),
    Case(((2, 5, 6, 8), (10, 8, 2, 3)), {"data_format": "NHWC"}),
)
_DEPTHWISE_CASES = (
    Case(((2, 3, 5, 6), (3, 1, 3, 3)), {"groups": 3, "paddings": (1, 1)}),
    Case(((2, 2, 5, 5), (4, 1, 2, 3)), {"groups": 2, "strides": (2, 1), "paddings": (0, 1, 2, 0)}),
    Case(((1, 2, 7, 8), (2, 1, 3, 3)), {"groups": 2, "dilations": (2, 2), "paddings": (2, 2)}),
    Case(((2, 6, 5, 3), (6, 1, 3, 3)), {"groups": 3, "data_format": "NHWC", "paddings": (1, 1)}),
    Case(((0, 2, 4, 4), (2, 1, 3, 3)), {"groups": 2}),
    Case(((1, 2, 6, 7), (2, 1, 3, 2)), {"groups": 2, "padding_algorithm": "SAME", "strides": (2, 2)}),
    Case(((1, 1, 4, 4), (2, 1, 3, 3)), {"groups": 1}),
)


def _definition(type: str, cases: tuple[Case, ...]) -> OpDef:
    return OpDef(
        type,
        "Input, Filter -> Output",
        attrs=conv_attrs(2),
        infer=_infer,
        ref=plain(_ref, _scratch),
        lower=_lower,
        split=conv_split,
        cost=conv_cost,
        grad=GradOp(
            "Input, Filter, Output@GRAD -> Input@GRAD, Filter@GRAD",
            ref=plain(_grad_ref, _grad_scratch),
            lower=_grad_lower,
            split=conv_grad_split,
            cost=twice(conv_cost),
            linear_in=("Input", "Filter"),
            grad=bilinear_grad(type, "Input", "Filter", "Output"),
        ),
        amp="white",
        uses_blas=True,
        domain=Domain(cases=cases),
    )


register(_definition("conv2d", _CASES))
register(_definition("depthwise_conv2d", _DEPTHWISE_CASES))


# ------------------------------------------------------------------------------------------------------------ functions
def convolve(
    x: Variable,
    weight: Variable,
    bias: Variable | None,
    type: str,
    attrs: dict[str, Any],
    name: str | None = None,
    as_image: bool = True,
) -> Variable:
    """Emits a convolution and the addition of a bias along the channels.

    Args:
        x, weight: Input and filters.
        bias: ``[channels]`` or ``None``.
        type: Op type.
        attrs: The op's attributes.
        name: The layer's name.
        as_image: Whether the bias is reshaped to an image of one pixel first, as Paddle does here.
    """
    last = is_last(attrs["data_format"])
    helper = LayerNamer(type, name)
    out: Variable = helper.emit(type, {"Input": x, "Filter": weight}, attrs)
    if bias is None:
        return out
    rank = len(x.shape)
    axis = rank - 1 if last else 1
    if as_image:
        count = bias.shape[0] if len(bias.shape) == 1 else -1
        shape = (*[1] * axis, count, *[1] * (rank - 1 - axis))
        bias, axis = emit("reshape2", {"X": bias}, {"shape": shape}), -1
    added: Variable = helper.emit("elementwise_add", {"X": out, "Y": bias}, {"axis": axis})
    return added


def forward_type(count: int, filters: int, groups: int) -> str:
    """``depthwise_conv2d`` where each channel has filters of its own, else ``conv2d``."""
    return "depthwise_conv2d" if groups == count > 1 and filters % count == 0 else "conv2d"


def check_format(data_format: str, allowed: tuple[str, ...], function: str) -> None:
    """Refuses a layout that the function does not take.

    Raises:
        ShapeError: Says which it takes.
    """
    if data_format not in allowed:
        raise ShapeError(
            f"Attr(data_format) of {function} should be one of {', '.join(map(repr, allowed))}",
            expected=" or ".join(map(repr, allowed)),
            received=repr(data_format),
            fix="choose one of these",
            op=function,
        )


@export("nn.functional.conv2d", op="conv2d")
def conv2d(
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Cross-correlation of images with filters, plus a bias per output channel.

    Args:
        x: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``), floats.
        weight: ``[filters, c / groups, kh, kw]`` in either layout.
        bias: ``[filters]`` or ``None``.
        stride, dilation: An int, or one per axis.
        padding: An int, ``[h, w]``, ``[top, bottom, left, right]``, pairs per axis, ``"SAME"`` or ``"VALID"``.
        groups: Channels and filters are cut into so many groups that do not see each other.
        data_format: Where channels stand.
        name: The layer's name.

    Returns:
        ``[n, filters, oh, ow]`` in the layout of ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    check_variable(x, "x", "conv2d")
    check_variable(weight, "weight", "conv2d")
    check_format(data_format, ("NCHW", "NHWC"), "conv2d")
    paddings, algorithm = padding_of(padding, 2, is_last(data_format), "conv2d")
    attrs = {
        "strides": int_list(stride, 2, "stride", "conv2d"),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "dilations": int_list(dilation, 2, "dilation", "conv2d"),
        "groups": groups,
        "data_format": data_format,
    }
    count = x.shape[-1 if is_last(data_format) else 1] if len(x.shape) == 4 else 0
    type = forward_type(count, weight.shape[0] if weight.shape else 0, groups)
    return convolve(x, weight, bias, type, attrs, name)


@export("nn.functional.conv1d", op="conv2d")
def conv1d(
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_format: str = "NCL",
    name: str | None = None,
) -> Variable:
    """Cross-correlation along one axis: :func:`conv2d` on images of height 1.

    Args:
        x: ``[n, c, length]`` (``NCL``) or ``[n, length, c]`` (``NLC``), floats.
        weight: ``[filters, c / groups, k]`` in either layout.
        bias: ``[filters]`` or ``None``.
        stride, dilation: An int.
        padding: An int, ``[before, after]``, ``"SAME"`` or ``"VALID"``.
        groups, data_format, name: As in :func:`conv2d`.

    Returns:
        ``[n, filters, out length]`` in the layout of ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    check_variable(x, "x", "conv1d")
    check_variable(weight, "weight", "conv1d")
    check_format(data_format, ("NCL", "NLC"), "conv1d")
    last = is_last(data_format)
    attrs = flat_attrs(stride, padding, dilation, groups, last, "conv1d")
    count = x.shape[-1 if last else 1] if len(x.shape) == 3 else 0
    helper = LayerNamer("conv1d", name)
    image = lifted(helper, x, 1 if last else 2)
    filters = lifted(helper, weight, 2)
    type = forward_type(count, weight.shape[0] if weight.shape else 0, groups)
    out = convolve(image, filters, bias, type, attrs, as_image=False)
    result: Variable = helper.emit("squeeze2", {"X": out}, {"axes": (1 if last else 2,)})
    return result


def flat_attrs(stride: Any, padding: Any, dilation: Any, groups: int, last: bool, function: str) -> dict[str, Any]:
    """Returns the attributes of the two-axis op that computes a one-axis convolution."""
    paddings, algorithm = padding_of(padding, 1, last, function)
    return {
        "strides": (1, *int_list(stride, 1, "stride", function)),
        "paddings": (0, 0, *paddings) if len(paddings) == 2 else (0, *paddings),
        "padding_algorithm": algorithm,
        "dilations": (1, *int_list(dilation, 1, "dilation", function)),
        "groups": groups,
        "data_format": "NHWC" if last else "NCHW",
    }


def lifted(helper: LayerNamer, x: Variable, axis: int) -> Variable:
    """``x`` with an axis of size 1 more."""
    result: Variable = helper.emit("unsqueeze2", {"X": x}, {"axes": (axis,)})
    return result
