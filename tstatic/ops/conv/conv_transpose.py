"""Transposed convolution over two axes, and over one axis as a composition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import LayerNamer, check_variable
from tstatic.ir.opdef import WHOLE, Attr, Case, Cost, Domain, GradOp, OpDef, Tile, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import plain
from tstatic.ir.types import UNKNOWN, Meta, dtype_of
from tstatic.ops._gradients import bilinear_grad
from tstatic.ops._low import in_float32
from tstatic.ops.conv._convolution import (
    WINDOW,
    Window,
    check_conv,
    conv_attrs,
    flops,
    np_compute,
    split_filters,
    split_images,
    torch_back,
    torch_first,
    wide,
)
from tstatic.ops.conv._sliding import (
    as_metas,
    assemble,
    channels,
    check_lengths,
    first,
    first_shape,
    int_list,
    is_last,
    not_negative,
    padding_of,
    spatial,
)
from tstatic.ops.conv.conv2d import check_format, convolve, flat_attrs, geometry, lifted
from tstatic.tuned._common import Array
from tstatic.tuned.conv import (
    conv2d_filter_grad,
    conv2d_filter_grad_scratch,
    conv2d_forward,
    conv2d_forward_scratch,
    conv2d_input_grad,
    conv2d_input_grad_scratch,
)


def _infer(
    x: Meta,
    w: Meta,
    output_padding: Sequence[int],
    output_size: Sequence[int],
    groups: int,
    data_format: str,
    **attrs: Any,
) -> Meta:
    lists = {n: attrs[n] for n in ("strides", "paddings", "dilations")}
    check_conv(x, w, 2, data_format, **lists)
    check_lengths(2, **{n: v for n, v in (("output_padding", output_padding), ("output_size", output_size)) if v})
    count = channels(x.shape, data_format)
    if UNKNOWN not in (count, w.shape[0]) and (count != w.shape[0] or count % groups):
        raise ShapeError(
            "The number of input's channels of a transposed convolution should be the filter's first size",
            expected=f"{w.shape[0]} channels in {data_format}, a multiple of groups={groups}",
            received=f"Input of shape {list(x.shape)}, Filter of shape {list(w.shape)}",
            fix="filters are [in channels, out channels / groups, kh, kw]",
        )
    sizes = spatial(x.shape, data_format)
    window = Window(sizes, w.shape[2:], *(attrs[n] for n in WINDOW))
    smallest = window.sources(sizes)
    extra = tuple(output_padding) or (0,) * 2
    outs = []
    for axis, (low, stride, dilation) in enumerate(zip(smallest, window.strides, window.dilations, strict=True)):
        limit = max(stride, dilation)
        if low == UNKNOWN:
            outs.append(output_size[axis] if output_size else UNKNOWN)
            continue
        size = output_size[axis] if output_size else low + extra[axis]
        if not low <= size < low + limit or size <= 0:
            raise ShapeError(
                "the output size of a transposed convolution is out of range",
                expected=f"a size from {max(low, 1)} to {low + limit - 1} along spatial axis {axis}",
                received=size,
                fix="change output_size or output_padding, paddings or strides",
            )
        outs.append(size)
    filters = UNKNOWN if w.shape[1] == UNKNOWN else w.shape[1] * groups
    return x.with_shape(assemble(x.shape[0], filters, outs, data_format))


def _scratch(x: Meta, w: Meta, out: Meta, **attrs: Any) -> tuple[Meta, ...]:
    layout = attrs["data_format"]
    small: Any = first_shape(x.shape, layout)
    large: Any = first_shape(out.shape, layout)
    where = geometry(small[2:], w.shape, attrs)
    needs = conv2d_input_grad_scratch(large, w.shape, small, *where, np_compute(x))  # type: ignore[arg-type]
    return as_metas(needs)


@in_float32()
def _ref(x: Array, w: Array, out: Array, scratch: Sequence[Array], **attrs: Any) -> None:
    layout = attrs["data_format"]
    source = first(x, layout)
    where = geometry(source.shape[2:], w.shape, attrs)
    conv2d_input_grad(source, w, first(out, layout), *where, scratch)


def _lower(torch: Any, x: Any, w: Any, **attrs: Any) -> Any:
    layout, groups = attrs["data_format"], attrs["groups"]
    source = wide(torch_first(x, layout))
    window = Window(source.shape[2:], w.shape[2:], *(attrs[n] for n in WINDOW))
    filters = wide(w)
    full = torch.nn.functional.conv_transpose2d(source, filters, None, window.strides, 0, 0, groups, window.dilations)
    # Output padding and odd paddings: crop the whole result, after widening it with zeros where it is too small.
    meta = _infer(_meta(x), _meta(w), **attrs)
    sizes = spatial(meta.shape, layout)
    for axis, (size, (before, _)) in enumerate(zip(sizes, window.pads, strict=True)):
        missing = before + size - full.shape[axis + 2]
        if missing > 0:
            full = torch.nn.functional.pad(full, [0, 0] * (1 - axis) + [0, missing])
        full = full.narrow(axis + 2, before, size)
    return torch_back(full, layout, x.dtype)


def _meta(tensor: Any) -> Meta:
    return Meta(tuple(tensor.shape), dtype_of(str(tensor.dtype)))


def _grad_scratch(
    x: Meta | None, w: Meta | None, dout: Meta, dx: Meta | None, dw: Meta | None, **attrs: Any
) -> tuple[Meta, ...]:
    layout, dtype = attrs["data_format"], np_compute(dout)
    large: Any = first_shape(dout.shape, layout)
    needs: tuple[Meta, ...] = ()
    if dx is not None:
        assert w is not None
        where = geometry(first_shape(dx.shape, layout)[2:], w.shape, attrs)
        needs += as_metas(conv2d_forward_scratch(large, w.shape, *where, dtype))  # type: ignore[arg-type]
    if dw is not None:
        assert x is not None
        where = geometry(first_shape(x.shape, layout)[2:], dw.shape, attrs)
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
    gradient: Any = first(dout, layout)
    if dx is not None:
        assert w is not None
        where = geometry(first_shape(dx.shape, layout)[2:], w.shape, attrs)
        count = len(conv2d_forward_scratch(gradient.shape, w.shape, *where, dout.dtype))
        needs, scratch = scratch[:count], scratch[count:]
        conv2d_forward(gradient, w, first(dx, layout), *where, needs)
    if dw is not None:
        assert x is not None
        source = first(x, layout)
        conv2d_filter_grad(gradient, source, dw, *geometry(source.shape[2:], dw.shape, attrs), scratch)


def _grad_lower(torch: Any, x: Any, w: Any, dout: Any, **attrs: Any) -> Any:
    layout = attrs["data_format"]
    source, gradient, filters = wide(torch_first(x, layout)), wide(torch_first(dout, layout)), wide(w)
    window = Window(source.shape[2:], w.shape[2:], *(attrs[n] for n in WINDOW))
    pads = [p for pair in reversed(window.pads) for p in pair]
    padded = torch.nn.functional.pad(gradient, pads)
    dx = torch.nn.functional.conv2d(padded, filters, None, window.strides, 0, window.dilations, attrs["groups"])
    _, dw, _ = torch.ops.aten.convolution_backward(
        source, padded, filters, None, window.strides, (0, 0), window.dilations, False, (0, 0), attrs["groups"],
        (False, True, False),
    )  # fmt: skip
    return torch_back(dx, layout, x.dtype), dw.to(w.dtype)


def _split(x: Meta, w: Meta, out: Meta, groups: int, data_format: str) -> list[Tile] | None:
    if out.numel <= 0 or x.numel <= 0:
        return None
    return split_images(out, w, x, 1 if groups == 1 else -1, data_format)


def _grad_split(
    x: Meta, w: Meta, dout: Meta, dx: Meta | None, dw: Meta | None, groups: int, data_format: str
) -> list[Tile] | None:
    if dout.numel <= 0 or x.numel <= 0:
        return None
    tiles: list[Tile] = []
    if dx is not None:
        cut = split_images(dx, w, x, 0 if groups == 1 else -1, data_format)
        tiles += [(None, f, d, i, None) for d, f, i in cut or [(WHOLE, WHOLE, WHOLE)]]
    if dw is not None:
        cut = split_filters(w, x, groups, data_format)
        tiles += [(i, None, d, None, f) for i, d, f in cut or [(WHOLE, WHOLE, WHOLE)]]
    return tiles if len(tiles) > 1 else None


def _cost(x: Meta, w: Meta, out: Meta, data_format: str) -> Cost:
    return Cost(flops(x, w, data_format), float(x.nbytes + w.nbytes + out.nbytes))


def _grad_cost(x: Meta, w: Meta, dout: Meta, dx: Meta | None, dw: Meta | None, data_format: str) -> Cost:
    one = _cost(x, w, dout, data_format)
    wanted = (dx is not None) + (dw is not None)
    return Cost(one.flops * wanted, one.bytes * wanted)


_CASES = (
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
_DEPTHWISE_CASES = (
    Case(((2, 3, 4, 5), (3, 1, 3, 3)), {"groups": 3, "paddings": (1, 1)}),
    Case(((2, 2, 4, 4), (2, 1, 2, 3)), {"groups": 2, "strides": (2, 1), "paddings": (0, 1, 2, 0)}),
    Case(((1, 2, 3, 4), (2, 1, 3, 3)), {"groups": 2, "dilations": (2, 2)}),
    Case(((2, 4, 5, 3), (3, 1, 3, 3)), {"groups": 3, "data_format": "NHWC", "strides": (2, 2)}),
    Case(((0, 2, 4, 4), (2, 1, 3, 3)), {"groups": 2}),
    Case(((1, 2, 3, 3), (2, 1, 3, 3)), {"groups": 2, "strides": (2, 2), "output_padding": (1, 0)}),
)


def _definition(type: str, cases: tuple[Case, ...]) -> OpDef:
    return OpDef(
        type,
        "Input, Filter -> Output",
        attrs={**conv_attrs(2), "output_padding": Attr((), "ints", not_negative), "output_size": Attr((), "ints")},
        infer=_infer,
        ref=plain(_ref, _scratch),
        lower=_lower,
        split=_split,
        cost=_cost,
        grad=GradOp(
            "Input, Filter, Output@GRAD -> Input@GRAD, Filter@GRAD",
            ref=plain(_grad_ref, _grad_scratch),
            lower=_grad_lower,
            split=_grad_split,
            cost=_grad_cost,
            grad=bilinear_grad(type, "Input", "Filter", "Output"),
        ),
        amp="white",
        uses_blas=True,
        # oneDNN's transposed convolution in float32 is off by up to 120 ulp where terms cancel.
        domain=Domain(cases=cases, ulps=64.0),
    )


register(_definition("conv2d_transpose", _CASES))
register(_definition("depthwise_conv2d_transpose", _DEPTHWISE_CASES))


# ------------------------------------------------------------------------------------------------------------ functions
def transpose_type(count: int, groups: int, per_group: int) -> str:
    """``depthwise_conv2d_transpose`` where each channel has one filter of its own, else ``conv2d_transpose``."""
    return "depthwise_conv2d_transpose" if groups == count > 1 and per_group == 1 else "conv2d_transpose"


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
    """The adjoint of :func:`conv2d`: every value of ``x`` adds its filters to the output.

    Args:
        x: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``), floats.
        weight: ``[c, filters / groups, kh, kw]`` in either layout.
        bias: ``[filters]`` or ``None``.
        stride, dilation: An int, or one per axis.
        padding: What is cut off; as in :func:`conv2d`.
        output_padding: Rows and columns added at the bottom and right, less than the stride.
        groups: Number of groups.
        output_size: The output's sizes, instead of ``output_padding``.
        data_format: Where channels stand.
        name: The layer's name.

    Returns:
        ``[n, filters, (h - 1) * stride - paddings + dilation * (kh - 1) + 1 + output_padding, ...]``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    check_variable(x, "x", "conv2d_transpose")
    check_variable(weight, "weight", "conv2d_transpose")
    check_format(data_format, ("NCHW", "NHWC"), "conv2d_transpose")
    last = is_last(data_format)
    paddings, algorithm = padding_of(padding, 2, last, "conv2d_transpose")
    attrs = {
        "strides": int_list(stride, 2, "stride", "conv2d_transpose"),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "dilations": int_list(dilation, 2, "dilation", "conv2d_transpose"),
        "groups": groups,
        "data_format": data_format,
        **output_attrs(output_padding, output_size, 2, "conv2d_transpose"),
    }
    count = x.shape[-1 if last else 1] if len(x.shape) == 4 else 0
    type = transpose_type(count, groups, weight.shape[1] if len(weight.shape) == 4 else 0)
    return convolve(x, weight, bias, type, attrs, name)


def output_attrs(output_padding: Any, output_size: Any, rank: int, function: str) -> dict[str, tuple[int, ...]]:
    """The two ways to choose among the sizes that a convolution maps to the same one.

    Raises:
        ShapeError: If both are given.
    """
    extra = int_list(output_padding, rank, "output_padding", function)
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
    return {"output_padding": (), "output_size": int_list(output_size, rank, "output_size", function)}


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
    """The adjoint of :func:`conv1d`: :func:`conv2d_transpose` on images of height 1.

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
    check_variable(x, "x", "conv1d_transpose")
    check_variable(weight, "weight", "conv1d_transpose")
    check_format(data_format, ("NCL", "NLC"), "conv1d_transpose")
    last = is_last(data_format)
    attrs = flat_attrs(stride, padding, dilation, groups, last, "conv1d_transpose")
    sizes = output_attrs(output_padding, output_size, 1, "conv1d_transpose")
    attrs["output_padding"] = (0, *sizes["output_padding"]) if sizes["output_padding"] else ()
    attrs["output_size"] = (1, *sizes["output_size"]) if sizes["output_size"] else ()
    count = x.shape[-1 if last else 1] if len(x.shape) == 3 else 0
    helper = LayerNamer("conv1d_transpose", name)
    image = lifted(helper, x, 1 if last else 2)
    filters = lifted(helper, weight, 2)
    type = transpose_type(count, groups, weight.shape[1] if len(weight.shape) == 3 else 0)
    out = convolve(image, filters, bias, type, attrs, as_image=False)
    result: Variable = helper.emit("squeeze2", {"X": out}, {"axes": (1 if last else 2,)})
    return result
