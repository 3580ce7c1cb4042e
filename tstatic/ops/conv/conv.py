"""Convolutions and transposed convolutions over one to three axes: plain, grouped and depthwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import LayerNamer, check_variable, emit
from tstatic.ir.checks import check_choice, check_ints
from tstatic.ir.opdef import Case, Domain, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Ref, plain
from tstatic.ir.respell import parameters_of
from tstatic.ir.types import Meta, dtype_of
from tstatic.ops.base.gradients import bilinear_grad
from tstatic.ops.base.low import in_float32
from tstatic.ops.base.sliding import (
    LAYOUTS_BY_RANK,
    first,
    first_shape,
    is_last,
    on_images,
    padding_of,
    spatial,
    torch_back,
    torch_first,
)
from tstatic.ops.conv import _conv_onnx as _onnx
from tstatic.ops.conv._convolution import (
    FILTER_GRAD,
    INPUT_GRAD,
    OUTPUT,
    Window,
    conv_attrs,
    conv_cost,
    conv_split,
    infer_conv,
    infer_transposed,
    window_of,
)
from tstatic.ops.conv.output_sizes import cut_to, holds_variable, most_padding
from tstatic.tuned._common import Array


# ----------------------------------------------------------------------------------------------------------- references
def _references(transposed: bool) -> tuple[Ref, Ref]:
    """Returns the references of a convolution and of its gradients.

    A transposed convolution is the input gradient of a convolution, and the other way round.
    """
    output, source = (INPUT_GRAD, OUTPUT) if transposed else (OUTPUT, INPUT_GRAD)

    def sides(x: Any, w: Any, y: Any) -> tuple[Any, Any, Any]:
        return (y, w, x) if transposed else (x, w, y)

    def shapes(x: Meta, w: Meta, y: Meta, layout: str) -> tuple[Any, Any, Any]:
        return sides(first_shape(x.shape, layout), w.shape, first_shape(y.shape, layout))

    def window(x: Any, w: Any, attrs: Mapping[str, Any]) -> Window:
        return window_of(spatial(x.shape, attrs["data_format"]), w.shape[2:], attrs)

    def scratch_metas(x: Meta, w: Meta, out: Meta, **attrs: Any) -> tuple[Meta, ...]:
        return output.scratch(shapes(x, w, out, attrs["data_format"]), window(x, w, attrs), out)

    @in_float32()
    def ref(x: Array, w: Array, out: Array, scratch: Sequence[Array], **attrs: Any) -> None:
        layout = attrs["data_format"]
        output.compute(sides(first(x, layout), w, first(out, layout)), window(x, w, attrs), scratch)

    def grad_scratch_metas(x: Any, w: Any, dout: Meta, dx: Any, dw: Any, **attrs: Any) -> tuple[Meta, ...]:
        layout = attrs["data_format"]
        needs: tuple[Meta, ...] = ()
        if dx is not None:
            needs += source.scratch(shapes(dx, w, dout, layout), window(dx, w, attrs), dout)
        if dw is not None:
            needs += FILTER_GRAD.scratch(shapes(x, dw, dout, layout), window(x, dw, attrs), dout)
        return needs

    @in_float32(outputs=2)
    def grad_ref(x: Any, w: Any, dout: Array, dx: Any, dw: Any, scratch: Sequence[Array], **attrs: Any) -> None:
        layout = attrs["data_format"]
        gradient = first(dout, layout)
        if dx is not None:
            # Each product takes its buffers from the front and returns the rest.
            scratch = source.compute(sides(first(dx, layout), w, gradient), window(dx, w, attrs), scratch)
        if dw is not None:
            FILTER_GRAD.compute(sides(first(x, layout), dw, gradient), window(x, dw, attrs), scratch)

    return plain(ref, scratch_metas, recorded=True), plain(grad_ref, grad_scratch_metas, recorded=True)


# ---------------------------------------------------------------------------------------------------------------- torch
def _placed(torch: Any, large: Any, window: Window) -> tuple[Any, tuple[int, ...]]:
    """Returns the large side and its padding for torch, which pads both ends alike; others are put on beforehand."""
    if all(before == after for before, after in window.pads):
        return large, tuple(before for before, _ in window.pads)
    padded = torch.nn.functional.pad(large, [p for pair in reversed(window.pads) for p in pair])
    return padded, (0,) * len(window.kernel)


def _is_unsafe(tensor: Any) -> bool:
    """Returns whether torch must not convolve a tensor as it is: on CPUs with AMX its kernels of 16-bit volumes give wrong numbers.

    Seen with torch 2.13: a volume that is shallower than its filter, with padding.
    """
    return bool(tensor.ndim == 5 and tensor.is_cpu and tensor.element_size() == 2)


def _convolve(torch: Any, large: Any, w: Any, window: Window) -> Any:
    if _is_unsafe(large):
        return _convolve(torch, large.float(), w.float(), window).to(large.dtype)
    function = getattr(torch.nn.functional, f"conv{len(window.kernel)}d")
    large, pads = _placed(torch, large, window)
    return function(large, w, None, window.strides, pads, window.dilations, window.groups)


def _backward(torch: Any, small: Any, large: Any, w: Any, window: Window, wanted: Sequence[bool]) -> Any:
    """Returns the gradients by the large side and by the filters; ``None`` for one that is not wanted."""
    if _is_unsafe(large):
        made = _backward(torch, small.float(), large.float(), w.float(), window, wanted)
        return tuple(None if one is None else one.to(large.dtype) for one in made)
    sizes = large.shape[2:]
    large, pads = _placed(torch, large, window)
    zeros = (0,) * len(window.kernel)
    dx, dw, _ = torch.ops.aten.convolution_backward(
        small, large, w, None, window.strides, pads, window.dilations, False, zeros, window.groups, (*wanted, False)
    )
    # The gradient of the padding is dropped.
    for axis, (size, (before, _)) in enumerate(zip(sizes, window.pads, strict=True)):
        if dx is not None and dx.shape[axis + 2] != size:
            dx = dx.narrow(axis + 2, before, size)
    return dx, dw


def _lower(torch: Any, x: Any, w: Any, **attrs: Any) -> Any:
    source = torch_first(x, attrs["data_format"])
    out = _convolve(torch, source, w, Window(source.shape[2:], w.shape[2:], attrs))
    return torch_back(out, attrs["data_format"], x.dtype)


def _grad_lower(torch: Any, x: Any, w: Any, dout: Any, wanted: Sequence[bool] = (True, True), **attrs: Any) -> Any:
    layout = attrs["data_format"]
    source, gradient = (torch_first(t, layout) for t in (x, dout))
    dx, dw = _backward(torch, gradient, source, w, Window(source.shape[2:], w.shape[2:], attrs), wanted)
    return None if dx is None else torch_back(dx, layout, x.dtype), dw


def _transposed_lower(torch: Any, x: Any, w: Any, **attrs: Any) -> Any:
    layout = attrs["data_format"]
    source, filters = torch_first(x, layout), w
    if _is_unsafe(source):
        source, filters = source.float(), w.float()
    window = Window(source.shape[2:], w.shape[2:], attrs)
    rank = len(window.kernel)
    function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    # Without padding: torch has one value for both ends of an axis, Paddle two.
    full = function(source, filters, None, window.strides, 0, 0, window.groups, window.dilations)
    # Output padding and odd paddings: crop the whole result, after widening it with zeros where it is too small.
    given, kernel = (Meta(tuple(t.shape), dtype_of(str(t.dtype))) for t in (x, w))
    sizes = spatial(infer_transposed(rank, given, kernel, attrs).shape, layout)
    for axis, (size, (before, _)) in enumerate(zip(sizes, window.pads, strict=True)):
        missing = before + size - full.shape[axis + 2]
        if missing > 0:
            full = torch.nn.functional.pad(full, [0, 0] * (rank - 1 - axis) + [0, missing])
        full = full.narrow(axis + 2, before, size)
    return torch_back(full, layout, x.dtype)


def _transposed_grad_lower(
    torch: Any, x: Any, w: Any, dout: Any, wanted: Sequence[bool] = (True, True), **attrs: Any
) -> Any:
    layout = attrs["data_format"]
    source, gradient = (torch_first(t, layout) for t in (x, dout))
    window = Window(source.shape[2:], w.shape[2:], attrs)
    # The gradient of a transposed convolution is the plain one, and the filters have the layout that it takes.
    dx = torch_back(_convolve(torch, gradient, w, window), layout, x.dtype) if wanted[0] else None
    return dx, _backward(torch, source, gradient, w, window, (False, True))[1] if wanted[1] else None


# ------------------------------------------------------------------------------------------------------- op definitions
# Padding alike and not, groups, dilation, strides, both layouts, SAME and VALID; 8 and 9 channels, a vector and one more.
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
# One filter per channel and two, each kind of padding, channels last, no image.
_DEPTHWISE_CASES = (
    Case(((2, 3, 5, 6), (3, 1, 3, 3)), {"groups": 3, "paddings": (1, 1)}),
    Case(((2, 2, 5, 5), (4, 1, 2, 3)), {"groups": 2, "strides": (2, 1), "paddings": (0, 1, 2, 0)}),
    Case(((1, 2, 7, 8), (2, 1, 3, 3)), {"groups": 2, "dilations": (2, 2), "paddings": (2, 2)}),
    Case(((2, 6, 5, 3), (6, 1, 3, 3)), {"groups": 3, "data_format": "NHWC", "paddings": (1, 1)}),
    Case(((0, 2, 4, 4), (2, 1, 3, 3)), {"groups": 2}),
    Case(((1, 2, 6, 7), (2, 1, 3, 2)), {"groups": 2, "padding_algorithm": "SAME", "strides": (2, 2)}),
    Case(((1, 1, 4, 4), (2, 1, 3, 3)), {"groups": 1}),
)
# The cases of images along three axes.
_CASES_3D = (
    Case(((2, 2, 3, 4, 4), (3, 2, 2, 3, 3)), {"paddings": (1, 1, 1)}),
    Case(((1, 4, 4, 4, 3), (2, 2, 3, 2, 2)), {"groups": 2, "strides": (2, 1, 1)}),
    Case(((1, 2, 5, 5, 4), (2, 2, 2, 2, 2)), {"dilations": (2, 3, 1), "paddings": (1, 0, 0, 1, 2, 0)}),
    Case(((1, 3, 4, 3, 2), (3, 2, 2, 2, 2)), {"data_format": "NDHWC"}),
    Case(((0, 2, 3, 3, 3), (2, 2, 2, 2, 2)), {}),
    Case(((1, 1, 4, 4, 5), (2, 1, 3, 3, 2)), {"padding_algorithm": "SAME", "strides": (2, 2, 2)}),
    Case(((1, 1, 3, 3, 3), (1, 1, 3, 3, 3)), {"padding_algorithm": "VALID"}),
)
# As above, and both ways to choose the output's size.
_TRANSPOSED_CASES = (
    Case(((2, 3, 4, 5), (3, 4, 3, 3)), {"paddings": (1, 1)}),
    Case(((2, 4, 3, 4), (4, 2, 3, 2)), {"groups": 2, "strides": (2, 1)}),
    Case(((1, 2, 4, 3), (2, 3, 3, 3)), {"dilations": (2, 2), "paddings": (2, 1)}),
    Case(((2, 2, 4, 4), (2, 2, 3, 3)), {"strides": (2, 2), "paddings": (1, 0, 1, 1), "output_padding": (1, 1)}),
    Case(((2, 2, 4, 4), (2, 2, 3, 3)), {"strides": (2, 3), "paddings": (1, 1), "output_size": (8, 11)}),
    Case(((2, 4, 5, 3), (3, 4, 3, 3)), {"data_format": "NHWC", "strides": (2, 2), "paddings": (1, 1)}),
    Case(((0, 3, 5, 5), (3, 4, 3, 3)), {}),
    Case(((1, 2, 4, 3), (2, 2, 3, 2)), {"padding_algorithm": "SAME", "strides": (2, 2), "dilations": (2, 2)}),
    Case(((1, 2, 3, 3), (2, 2, 2, 2)), {"padding_algorithm": "VALID", "paddings": (1, 1), "strides": (2, 2)}),
    Case(((1, 3, 12, 12), (3, 2, 1, 1)), {}),
    Case(((1, 3, 3, 4), (3, 1, 3, 3)), {"groups": 3, "strides": (2, 2)}),
    Case(((2, 8, 4, 3), (8, 9, 3, 2)), {"strides": (2, 1), "paddings": (1, 0)}),
    Case(((1, 4, 3, 8), (8, 9, 3, 3)), {"data_format": "NHWC"}),
)
# The transposed cases along three axes.
_TRANSPOSED_CASES_3D = (
    Case(((2, 2, 2, 3, 3), (2, 3, 2, 3, 2)), {"paddings": (1, 1, 0)}),
    Case(((1, 4, 2, 2, 3), (4, 2, 3, 2, 2)), {"groups": 2, "strides": (2, 1, 1)}),
    Case(((1, 2, 3, 2, 2), (2, 2, 2, 2, 2)), {"dilations": (2, 3, 1), "paddings": (1, 0, 0, 1, 1, 0)}),
    Case(
        ((1, 2, 2, 3, 2), (2, 2, 3, 3, 2)), {"strides": (2, 2, 1), "paddings": (1, 1, 0), "output_padding": (1, 0, 0)}
    ),
    Case(((1, 1, 2, 2, 2), (1, 2, 3, 2, 2)), {"strides": (3, 2, 2), "output_size": (7, 5, 4)}),
    Case(((1, 3, 2, 2, 2), (2, 2, 2, 2, 3)), {"data_format": "NDHWC", "strides": (2, 1, 1)}),
    Case(((0, 2, 3, 3, 3), (2, 2, 2, 2, 2)), {}),
    Case(((1, 1, 2, 3, 2), (1, 2, 3, 3, 2)), {"padding_algorithm": "SAME", "strides": (2, 2, 2)}),
)
# Depthwise: each group is one channel.
_DEPTHWISE_TRANSPOSED_CASES = (
    Case(((2, 3, 4, 5), (3, 1, 3, 3)), {"groups": 3, "paddings": (1, 1)}),
    Case(((2, 2, 4, 4), (2, 1, 2, 3)), {"groups": 2, "strides": (2, 1), "paddings": (0, 1, 2, 0)}),
    Case(((1, 2, 3, 4), (2, 1, 3, 3)), {"groups": 2, "dilations": (2, 2)}),
    Case(((2, 4, 5, 3), (3, 1, 3, 3)), {"groups": 3, "data_format": "NHWC", "strides": (2, 2)}),
    Case(((0, 2, 4, 4), (2, 1, 3, 3)), {"groups": 2}),
    Case(((1, 2, 3, 3), (2, 1, 3, 3)), {"groups": 2, "strides": (2, 2), "output_padding": (1, 0)}),
)


def _register(type: str, rank: int, cases: tuple[Case, ...], transposed: bool = False, amp: str = "") -> None:
    infer_shape = infer_transposed if transposed else infer_conv
    ref, grad_ref = _references(transposed)
    cost, grad_cost = conv_cost(transposed)
    split, grad_split = conv_split(transposed)

    def infer(x: Meta, w: Meta, **attrs: Any) -> Meta:
        return infer_shape(rank, x, w, attrs)

    register(
        OpDef(
            type,
            "Input, Filter -> Output",
            attrs=conv_attrs(rank, transposed),
            infer=infer,
            ref=ref,
            lower=_transposed_lower if transposed else _lower,
            split=split,
            cost=cost,
            grad=GradOp(
                "Input, Filter, Output@GRAD -> Input@GRAD, Filter@GRAD",
                ref=grad_ref,
                lower=_transposed_grad_lower if transposed else _grad_lower,
                split=grad_split,
                cost=grad_cost,
                linear_in=("Input", "Filter") if rank == 2 and not transposed else (),
                grad=bilinear_grad(type, "Input", "Filter", "Output"),
            ),
            amp=amp,
            uses_blas=True,
            # oneDNN's transposed convolution in float32 is off by up to 120 ulp where terms cancel; 4.9 beyond that seen.
            domain=Domain(cases=cases, ulps=64.0) if transposed else Domain(cases=cases),
            onnx=_onnx.conv_transpose if transposed else _onnx.conv,
        )
    )


_register("conv2d", 2, _CASES, amp="white")
_register("depthwise_conv2d", 2, _DEPTHWISE_CASES)
_register("conv3d", 3, _CASES_3D)
_register("conv2d_transpose", 2, _TRANSPOSED_CASES, transposed=True)
_register("conv3d_transpose", 3, _TRANSPOSED_CASES_3D, transposed=True)
_register("depthwise_conv2d_transpose", 2, _DEPTHWISE_TRANSPOSED_CASES, transposed=True)


# ------------------------------------------------------------------------------------------------------------ functions
def _type(rank: int, x: Variable, weight: Variable, groups: int, data_format: str, transposed: bool) -> str:
    """Returns the op type: depthwise where each channel has filters of its own."""
    count = x.shape[-1 if is_last(data_format) else 1] if len(x.shape) == rank + 2 else 0
    if transposed:
        # As Paddle: a transposed convolution is depthwise only with one filter per channel.
        own = len(weight.shape) == rank + 2 and weight.shape[1] == 1
    else:
        own = (weight.shape[0] if weight.shape else 0) % max(count, 1) == 0
    depthwise = "depthwise_" if rank < 3 and groups == count > 1 and own else ""
    return f"{depthwise}conv{max(rank, 2)}d" + "_transpose" * transposed


def _build(
    function: str,
    rank: int,
    x: Variable,
    weight: Variable,
    bias: Variable | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    data_format: str,
    name: str | None,
    **output: Any,
) -> Variable:
    """Emits a convolution and the addition of a bias along the channels; over one axis on images of height 1.

    Args:
        function: The public function's name.
        rank: Number of spatial axes.
        x, weight, bias, stride, padding, dilation, groups, data_format, name: Of the public function.
        output: ``output_padding`` and ``output_size`` of a transposed convolution.
    """
    check_variable(x, "x", function)
    check_variable(weight, "weight", function)
    check_choice(data_format, LAYOUTS_BY_RANK[rank], "data_format", function, error=ShapeError)
    last = is_last(data_format)
    attrs = window_attrs(stride, padding, dilation, groups, data_format, rank, function)
    strides = attrs["strides"]
    # As in Paddle, images alone have sizes that are known when the program runs.
    late = rank == 2 and holds_variable(output.get("output_size"))
    if late:
        output_attrs(output["output_padding"], 1, rank, function)  # refuses both
        attrs |= output_attrs(most_padding(strides), None, rank, function)
    elif output:
        attrs |= output_attrs(**output, rank=rank, function=function)
    type = _type(rank, x, weight, groups, data_format, bool(output))
    if rank > 1:
        helper = LayerNamer(type, name)
        out: Variable = helper.emit(type, {"Input": x, "Filter": weight}, attrs)
        if late:
            out = cut_to(out, output["output_size"], most_padding(strides), 1 if last else 2, function)
        if bias is None:
            return out
        # As an image of one pixel, as Paddle adds it here.
        count, axis = bias.shape[0] if len(bias.shape) == 1 else -1, rank + 1 if last else 1
        shape = (*[1] * axis, count, *[1] * (rank + 1 - axis))
        bias = emit("reshape2", {"X": bias}, {"shape": shape})
        added: Variable = helper.emit("elementwise_add", {"X": out, "Y": bias}, {"axis": -1})
        return added
    sequence, axis = LayerNamer(function, name), 1 if last else 2
    # There is no op over one axis: its images have height 1, so that one set of kernels serves both.
    image = sequence.emit("unsqueeze2", {"X": x}, {"axes": (axis,)})
    filters = sequence.emit("unsqueeze2", {"X": weight}, {"axes": (2,)})
    helper = LayerNamer(type, None)
    attrs = {**on_images(attrs), "data_format": "NHWC" if last else "NCHW"}
    out = helper.emit(type, {"Input": image, "Filter": filters}, attrs)
    if bias is not None:
        out = helper.emit("elementwise_add", {"X": out, "Y": bias}, {"axis": 3 if last else 1})
    result: Variable = sequence.emit("squeeze2", {"X": out}, {"axes": (axis,)})
    return result


def window_attrs(
    stride: Any, padding: Any, dilation: Any, groups: int, data_format: str, rank: int, function: str
) -> dict[str, Any]:
    """Returns the attributes of a convolution, or of a transposed one but for its output's size, from a function's arguments.

    Raises:
        ProgramTypeError, ShapeError: If one of them does not fit.
    """
    paddings, algorithm = padding_of(padding, rank, is_last(data_format), function)
    return {
        "strides": check_ints(stride, rank, "stride", function),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "dilations": check_ints(dilation, rank, "dilation", function),
        "groups": groups,
        "data_format": data_format,
    }


def output_attrs(output_padding: Any, output_size: Any, rank: int, function: str) -> dict[str, tuple[int, ...]]:
    """Returns the attributes of the two ways to choose among the sizes that a convolution maps to the same one.

    Raises:
        ShapeError: If both are given.
    """
    extra = check_ints(output_padding, rank, "output_padding", function)
    if output_size is None:
        return {"output_padding": extra if any(extra) else (), "output_size": ()}
    if any(extra):
        raise ShapeError(
            f"output_padding and output_size of {function} cannot both be given",
            expected="one of the two",
            received=f"output_padding={output_padding}, output_size={output_size}",
            fix="leave output_padding at 0 when output_size is set",
            op=function,
        )
    return {"output_padding": (), "output_size": check_ints(output_size, rank, "output_size", function)}


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
    """Cross-correlates images with filters and adds a bias per output channel.

    Args:
        x: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``), floats.
        weight: ``[filters, c / groups, kh, kw]`` in either layout.
        bias: ``[filters]`` or ``None``.
        stride, dilation: An int, or one per axis.
        padding: An int, ``[h, w]``, ``[top, bottom, left, right]``, pairs per axis, ``"SAME"`` or ``"VALID"``.
        groups: Channels and filters are cut into so many groups that do not see each other.
        data_format: Layout of the axes, which says where the channels are.
        name: The layer's name.

    Returns:
        ``[n, filters, oh, ow]`` in the layout of ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    return _build("conv2d", 2, x, weight, bias, stride, padding, dilation, groups, data_format, name)


@export("nn.functional.conv1d", op="conv2d")
@parameters_of(conv2d, data_format="NCL")
def conv1d(**given: Any) -> Variable:
    """Cross-correlates along one axis: :func:`conv2d` on images of height 1.

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
    return _build("conv1d", 1, **given)


@export("nn.functional.conv3d", op="conv3d")
@parameters_of(conv2d, data_format="NCDHW")
def conv3d(**given: Any) -> Variable:
    """Cross-correlates volumes with filters and adds a bias per output channel.

    Args:
        x: ``[n, c, d, h, w]`` (``NCDHW``) or ``[n, d, h, w, c]`` (``NDHWC``), floats.
        weight: ``[filters, c / groups, kd, kh, kw]`` in either layout.
        bias: ``[filters]`` or ``None``.
        stride, padding, dilation, groups, data_format, name: As in ``conv2d``, for three axes.

    Returns:
        ``[n, filters, od, oh, ow]`` in the layout of ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    return _build("conv3d", 3, **given)


@export("nn.functional.conv2d_transpose", op="conv2d_transpose")
def conv2d_transpose(
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    output_size: Any = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Applies the adjoint of :func:`conv2d`: every value of ``x`` adds its filters to the output.

    Args:
        x: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``), floats.
        weight: ``[c, filters / groups, kh, kw]`` in either layout.
        bias: ``[filters]`` or ``None``.
        stride, dilation: An int, or one per axis.
        padding: What is cut off; as in :func:`conv2d`.
        output_padding: Rows and columns added at the bottom and right, less than the stride.
        groups: Number of groups.
        output_size: The output's sizes, instead of ``output_padding``: an int, a list, or Variables of one or two integers.
        data_format: Layout of the axes, which says where the channels are.
        name: The layer's name.

    Returns:
        ``[n, filters, (h - 1) * stride - paddings + dilation * (kh - 1) + 1 + output_padding, ...]``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    output = {"output_padding": output_padding, "output_size": output_size}
    return _build(
        "conv2d_transpose", 2, x, weight, bias, stride, padding, dilation, groups, data_format, name, **output
    )


@export("nn.functional.conv1d_transpose", op="conv2d_transpose")
def conv1d_transpose(
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    output_size: Any = None,
    data_format: str = "NCL",
    name: str | None = None,
) -> Variable:
    """Applies the adjoint of :func:`conv1d`: :func:`conv2d_transpose` on images of height 1.

    Args:
        x: ``[n, c, length]`` (``NCL``) or ``[n, length, c]`` (``NLC``), floats.
        weight: ``[c, filters / groups, k]`` in either layout.
        bias: ``[filters]`` or ``None``.
        stride, padding, output_padding, groups, dilation, output_size, data_format, name: As in
            :func:`conv2d_transpose`, for one axis.

    Returns:
        ``[n, filters, out length]`` in the layout of ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    output = {"output_padding": output_padding, "output_size": output_size}
    return _build(
        "conv1d_transpose", 1, x, weight, bias, stride, padding, dilation, groups, data_format, name, **output
    )


@export("nn.functional.conv3d_transpose", op="conv3d_transpose")
@parameters_of(conv1d_transpose, data_format="NCDHW")
def conv3d_transpose(**given: Any) -> Variable:
    """Applies the adjoint of :func:`conv3d`: every value of ``x`` adds its filters to the output.

    Args:
        x: ``[n, c, d, h, w]`` (``NCDHW``) or ``[n, d, h, w, c]`` (``NDHWC``), floats.
        weight: ``[c, filters / groups, kd, kh, kw]`` in either layout.
        bias: ``[filters]`` or ``None``.
        stride, padding, output_padding, groups, dilation, output_size, data_format, name: As in
            :func:`conv2d_transpose`, for three axes.

    Returns:
        ``[n, filters, od, oh, ow]`` in the layout of ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    return _build("conv3d_transpose", 3, **given)
