"""Convolution over three axes: sums of convolutions over two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
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
from tstatic.ops.conv.conv2d import check_format, convolve
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


class Slices:
    """A convolution as pairs of slices: output place i along the depth sees input place ``i * s + a * d - front``."""

    def __init__(self, sizes: Sequence[int], w: Sequence[int], attrs: Mapping[str, Any]) -> None:
        window = Window(sizes, w[2:], *(attrs[n] for n in WINDOW))
        self.window = window
        self.depth = sizes[0]
        self.out = window.outputs(sizes)
        self.groups = attrs["groups"]

    @property
    def flat(self) -> tuple[Pair, Pads, Pair, int]:
        """What the kernels over two axes take after the arrays."""
        w = self.window
        return w.strides[1:], w.flat_pads[2:], w.dilations[1:], self.groups  # type: ignore[return-value]

    def taps(self, place: int) -> Iterator[tuple[int, int]]:
        """(place along the kernel's depth, place along the input's) of one output place."""
        w = self.window
        for a in range(w.kernel[0]):
            source = place * w.strides[0] + a * w.dilations[0] - w.pads[0][0]
            if 0 <= source < self.depth:
                yield a, source


def _infer(x: Meta, w: Meta, **attrs: Any) -> Meta:
    return infer_conv(x, w, 3, **attrs)


def _drop(shape: Sequence[int]) -> Any:
    """A shape without its depth."""
    return (*shape[:2], *shape[3:])


def _scratch(x: Meta, w: Meta, out: Meta, **attrs: Any) -> tuple[Meta, ...]:
    layout = attrs["data_format"]
    large, small = first_shape(x.shape, layout), first_shape(out.shape, layout)
    flat = Slices(large[2:], w.shape, attrs).flat
    needs = conv2d_forward_scratch(_drop(large), _drop(w.shape), *flat, np_compute(x))
    return (Meta(_drop(small), x.dtype.compute),) * 2 + as_metas(needs)


@in_float32()
def _ref(x: Array, w: Array, out: Array, scratch: Sequence[Array], **attrs: Any) -> None:
    source, target = first(x, attrs["data_format"]), first(out, attrs["data_format"])
    slices = Slices(source.shape[2:], w.shape, attrs)
    total, part, *needs = scratch
    for i in range(target.shape[2]):
        total.fill(0)
        for k, (a, p) in enumerate(slices.taps(i)):
            conv2d_forward(source[:, :, p], w[:, :, a], part if k else total, *slices.flat, needs)
            if k:
                np.add(total, part, total)
        np.copyto(target[:, :, i], total)


def _grad_scratch(
    x: Meta | None, w: Meta | None, dout: Meta, dx: Meta | None, dw: Meta | None, **attrs: Any
) -> tuple[Meta, ...]:
    layout, dtype = attrs["data_format"], np_compute(dout)
    small = first_shape(dout.shape, layout)
    large = first_shape((dx or x).shape, layout)  # type: ignore[union-attr]
    filters = (dw or w).shape  # type: ignore[union-attr]
    flat = Slices(large[2:], filters, attrs).flat
    needs: tuple[Meta, ...] = ()
    if dx is not None:
        found = conv2d_input_grad_scratch(_drop(large), _drop(filters), _drop(small), *flat, dtype)
        needs += (Meta(_drop(large), dout.dtype.compute), *as_metas(found))
    if dw is not None:
        found = conv2d_filter_grad_scratch(_drop(large), _drop(filters), *flat, dtype)
        needs += (Meta(_drop(filters), dout.dtype.compute), *as_metas(found))
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
        target = first(dx, layout)
        slices = Slices(target.shape[2:], w.shape, attrs)
        count = len(
            conv2d_input_grad_scratch(
                _drop(target.shape), _drop(w.shape), _drop(gradient.shape), *slices.flat, dout.dtype
            )
        )
        part, needs, scratch = scratch[0], scratch[1 : 1 + count], scratch[1 + count :]
        target.fill(0)
        for i in range(gradient.shape[2]):
            for a, p in slices.taps(i):
                conv2d_input_grad(gradient[:, :, i], w[:, :, a], part, *slices.flat, needs)
                np.add(target[:, :, p], part, target[:, :, p])
    if dw is not None:
        assert x is not None
        source = first(x, layout)
        slices = Slices(source.shape[2:], dw.shape, attrs)
        part, *needs = scratch
        dw.fill(0)
        for i in range(gradient.shape[2]):
            for a, p in slices.taps(i):
                conv2d_filter_grad(source[:, :, p], gradient[:, :, i], part, *slices.flat, needs)
                np.add(dw[:, :, a], part, dw[:, :, a])


def _lower(torch: Any, x: Any, w: Any, **attrs: Any) -> Any:
    source = wide(torch_first(x, attrs["data_format"]))
    window = Window(source.shape[2:], w.shape[2:], *(attrs[n] for n in WINDOW))
    f = torch.nn.functional
    padded = f.pad(source, torch_pads(window))
    out = f.conv3d(padded, wide(w), None, window.strides, 0, window.dilations, attrs["groups"])
    return torch_back(out, attrs["data_format"], x.dtype)


def _grad_lower(torch: Any, x: Any, w: Any, dout: Any, **attrs: Any) -> Any:
    source = wide(torch_first(x, attrs["data_format"]))
    window = Window(source.shape[2:], w.shape[2:], *(attrs[n] for n in WINDOW))
    padded = torch.nn.functional.pad(source, torch_pads(window))
    gradient = wide(torch_first(dout, attrs["data_format"]))
    dx, dw, _ = torch.ops.aten.convolution_backward(
        gradient, padded, wide(w), None, window.strides, (0, 0, 0), window.dilations, False, (0, 0, 0), attrs["groups"],
        (True, True, False),
    )  # fmt: skip
    for axis, (before, _) in enumerate(window.pads):
        dx = dx.narrow(axis + 2, before, source.shape[axis + 2])
    return torch_back(dx, attrs["data_format"], x.dtype), dw.to(w.dtype)


_CASES = (
    Case(((2, 2, 3, 4, 4), (3, 2, 2, 3, 3)), {"paddings": (1, 1, 1)}),
    Case(((1, 4, 4, 4, 3), (2, 2, 3, 2, 2)), {"groups": 2, "strides": (2, 1, 1)}),
    Case(((1, 2, 5, 5, 4), (2, 2, 2, 2, 2)), {"dilations": (2, 3, 1), "paddings": (1, 0, 0, 1, 2, 0)}),
    Case(((1, 3, 4, 3, 2), (3, 2, 2, 2, 2)), {"data_format": "NDHWC"}),
    Case(((0, 2, 3, 3, 3), (2, 2, 2, 2, 2)), {}),
    Case(((1, 1, 4, 4, 5), (2, 1, 3, 3, 2)), {"padding_algorithm": "SAME", "strides": (2, 2, 2)}),
    Case(((1, 1, 3, 3, 3), (1, 1, 3, 3, 3)), {"padding_algorithm": "VALID"}),
)

register(
    OpDef(
        "conv3d",
        "Input, Filter -> Output",
        attrs=conv_attrs(3),
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
            grad=bilinear_grad("conv3d", "Input", "Filter", "Output"),
        ),
        amp="white",
        uses_blas=True,
        domain=Domain(cases=_CASES),
    )
)


@export("nn.functional.conv3d", op="conv3d")
def conv3d(
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Variable:
    """Cross-correlation of volumes with filters, plus a bias per output channel.

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
    check_variable(x, "x", "conv3d")
    check_variable(weight, "weight", "conv3d")
    check_format(data_format, ("NCDHW", "NDHWC"), "conv3d")
    paddings, algorithm = padding_of(padding, 3, is_last(data_format), "conv3d")
    attrs = {
        "strides": int_list(stride, 3, "stride", "conv3d"),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "dilations": int_list(dilation, 3, "dilation", "conv3d"),
        "groups": groups,
        "data_format": data_format,
    }
    return convolve(x, weight, bias, "conv3d", attrs, name)
