"""Group normalisation: each sample's channels in groups; instance normalisation: each channel of each sample by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import UnsupportedError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_divisible, check_dtype, check_rank
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Ref, plain
from tstatic.ir.split import BATCHES, PARTIAL_SUM, WHOLE, Split
from tstatic.ir.types import Meta, numel
from tstatic.no_effect import no_effect
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.norm import OutputView, check_parameters
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.sliding import (
    as_metas,
    channels,
    first,
    first_shape,
    is_last,
    layout_attr,
    torch_back,
    torch_first,
)
from tstatic.ops.norm import _norm_onnx as _onnx
from tstatic.ops.norm.batch_norm import channel_layout
from tstatic.tuned._common import Array, ones
from tstatic.tuned.norm import layer_norm, layer_norm_scratch


class Groups:
    """Shapes of one call; without the attribute ``groups`` each channel is a group.

    Attributes:
        layout: Where channels stand; second in matrices.
        groups: Groups of channels.
        planes: ``[n, c, places]``.
        rows: ``[n * groups, values of a group]``.
    """

    def __init__(self, shape: Sequence[int], attrs: Mapping[str, Any]) -> None:
        self.layout = attrs.get("data_layout", "NCHW") if len(shape) > 2 else "NCHW"
        n, count, *sizes = first_shape(tuple(shape), self.layout)
        # An input without channels is one group, so that no size is divided by 0.
        self.groups = attrs["groups"] if "groups" in attrs else max(1, count)
        places = math.prod(sizes)
        self.planes = n, count, places
        self.rows = n * self.groups, count // self.groups * places


def _invert(variance: Array, epsilon: float, out: Array) -> None:
    """``out = 1 / sqrt(variance + epsilon)``."""
    np.add(variance, epsilon, out)
    np.sqrt(out, out)
    np.reciprocal(out, out)


def _scratch(x: Meta, *rest: Meta | None, **attrs: Any) -> tuple[Meta, ...]:
    """Returns the row kernel's scratch, statistics, and for channels last a copy."""
    # The last: with channels last a group does not lie in one piece, so the result is made channels first.
    shape, dtype = Groups(x.shape, attrs), x.dtype.compute
    copy = (Meta((x.numel,), dtype),) * is_last(shape.layout)
    return (*as_metas(layer_norm_scratch(*shape.rows, dtype.np)), Meta((2, shape.rows[0]), dtype), *copy)


def _grad_scratch(x: Meta, *rest: Meta | None, **attrs: Any) -> tuple[Meta, ...]:
    """Returns metadata of the normalised input, gradient, sums by plane and by row."""
    shape, dtype = Groups(x.shape, attrs), x.dtype.compute
    n, c, _ = shape.planes
    plane = Meta((x.numel,), dtype)
    return plane, plane, Meta((n * c,), dtype), Meta((3, shape.rows[0]), dtype)


def _forward(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    y: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    shape: Groups,
    scratch: Sequence[Array],
) -> None:
    """``y = (x - mean) / sqrt(variance + epsilon) * scale + bias``; statistics by sample and group.

    Args:
        x: ``[n, c, ...]`` or ``[n, ..., c]``; ``y`` alike, written.
        scale, bias: ``[c]`` or ``None``.
        mean, variance: ``[n * groups]``, contiguous, written.
        epsilon: Added to the variance.
        shape: Of the call.
        scratch: From :func:`_scratch`.
    """
    source, target = (first(a, shape.layout) for a in (x, y))
    # Rows must be contiguous: odd strides and channels last go through a copy.
    place = target
    if not target.flags.c_contiguous:
        copied = is_last(shape.layout)
        place = scratch[-1].reshape(target.shape) if copied else np.empty(target.shape, target.dtype)
    if source.flags.c_contiguous:
        rows = source.reshape(shape.rows)
    else:
        np.copyto(place, source)
        rows = place.reshape(shape.rows)
    # Without scale and bias: those are per channel, and a row holds all channels of a group.
    layer_norm(rows, None, None, place.reshape(shape.rows), mean, variance, epsilon, scratch)
    planes = place.reshape(shape.planes)
    if scale is not None:
        np.multiply(planes, scale.reshape(-1, 1), planes)
    if bias is not None:
        np.add(planes, bias.reshape(-1, 1), planes)
    if place is not target:
        np.copyto(target, place)


def _backward(
    x: Array,
    scale: Array | None,
    mean: Array,
    inverse: Array,
    dy: Array,
    dx: Array | None,
    dscale: Array | None,
    dbias: Array | None,
    shape: Groups,
    scratch: Sequence[Array],
) -> None:
    """Computes the gradients of :func:`_forward`, with ``inverse = 1 / sqrt(variance + epsilon)``.

    With ``h = (x - mean) * inverse`` and ``g = dy * scale``: ``dx = inverse * (g - mean(g) - h * mean(g * h))`` by group,
    ``dscale = sum(dy * h)`` and ``dbias = sum(dy)`` by channel over the samples given.

    Args:
        x, dy: ``[n, c, ...]`` or ``[n, ..., c]``; ``dx`` alike, written unless ``None``; it may be ``dy``.
        scale: ``[c]`` or ``None``.
        mean, inverse: ``[n * groups]``.
        dscale, dbias: ``[c]``, written unless ``None``.
        shape: Of the call.
        scratch: From :func:`_grad_scratch`.
    """
    if x.size == 0:
        for total in (dscale, dbias):
            if total is not None:
                total.fill(0)
        return
    source, gradient = (first(a, shape.layout) for a in (x, dy))
    hat, work = (s.reshape(source.shape) for s in scratch[:2])
    rows = hat.reshape(shape.rows)
    np.copyto(hat, source)
    np.subtract(rows, mean[:, None], rows)
    np.multiply(rows, inverse[:, None], rows)
    # Copied, since it is scaled in place below, and `dy` may have other readers.
    np.copyto(work, gradient)
    planes, sums = work.reshape(shape.planes), scratch[2].reshape(shape.planes[:2])
    if dbias is not None:
        # Two steps, by plane and then over the batch: BLAS sums rows at a quarter of `sum`'s time (see `tuned._common.ones`).
        np.matmul(planes, ones(shape.planes[2], work.dtype), out=sums)
        np.add.reduce(sums, axis=0, out=dbias.reshape(-1))
    if dscale is not None:
        np.vecdot(planes, hat.reshape(shape.planes), out=sums)
        np.add.reduce(sums, axis=0, out=dscale.reshape(-1))
    if dx is None:
        return
    if scale is not None:
        np.multiply(planes, scale.reshape(-1, 1), planes)
    given, along, _ = scratch[3]
    slopes, count = work.reshape(shape.rows), np.asarray(shape.rows[1], work.dtype)
    np.matmul(slopes, ones(shape.rows[1], work.dtype), out=given)
    np.vecdot(slopes, rows, out=along)
    np.divide(given, count, given)
    np.divide(along, count, along)
    np.multiply(rows, along[:, None], rows)
    np.add(rows, given[:, None], rows)
    np.subtract(slopes, rows, slopes)
    np.multiply(slopes, inverse[:, None], slopes)
    np.copyto(first(dx, shape.layout), work)


def _references(saves_inverse: bool) -> tuple[Ref, Ref]:
    """Returns the references of a normalisation and of its gradients.

    Args:
        saves_inverse: The second statistic is ``1 / sqrt(variance + epsilon)``, as in batch_norm, else the variance.
    """

    @in_float32(outputs=3)
    def ref(
        x: Array,
        scale: Array | None,
        bias: Array | None,
        y: Array,
        mean: Array | None,
        variance: Array | None,
        epsilon: float,
        scratch: Sequence[Array],
        **attrs: Any,
    ) -> None:
        shape = Groups(x.shape, attrs)
        center, spread = (
            OutputView(own if given is None else given, shape.rows[:1])
            for own, given in zip(scratch[3], (mean, variance), strict=True)
        )
        _forward(x, scale, bias, y, center.view, spread.view, epsilon, shape, scratch)
        # After the normalisation: until then the buffer holds the variance itself.
        if saves_inverse:
            _invert(spread.view, epsilon, spread.view)
        center.store()
        spread.store()

    @in_float32(outputs=3)
    def grad_ref(
        x: Array,
        scale: Array | None,
        bias: Array | None,
        mean: Array,
        saved: Array,
        dy: Array,
        dx: Array | None,
        dscale: Array | None,
        dbias: Array | None,
        epsilon: float,
        scratch: Sequence[Array],
        **attrs: Any,
    ) -> None:
        inverse = saved
        if not saves_inverse:
            inverse = scratch[3][2]
            _invert(saved.reshape(-1), epsilon, inverse)
        shape = Groups(x.shape, attrs)
        _backward(x, scale, mean.reshape(-1), inverse, dy, dx, dscale, dbias, shape, scratch)

    return plain(ref, _scratch, recorded=True), plain(grad_ref, _grad_scratch, recorded=True)


# ---------------------------------------------------------------------------------------------------------------- torch
def _torch_groups(torch: Any, x: Any, scale: Any, bias: Any, epsilon: float, attrs: Mapping[str, Any]) -> Any:
    """``(y, mean, variance)`` with statistics ``[n, groups]``, in the type of computation."""
    shape = Groups(x.shape, attrs)
    groups = shape.groups
    source = torch_wide(torch_first(x, shape.layout))
    rows = source.reshape(source.shape[0], groups, math.prod(source.shape[1:]) // groups)
    center = rows.mean(-1)
    # Two passes: the mean of squares less the squared mean cancels where the mean is large beside the deviation.
    spread = (rows - center[..., None]).square().mean(-1)
    # torch's own gradient of an affine group_norm fails where one of scale and bias is absent.
    y = torch.nn.functional.group_norm(source.contiguous(), groups, eps=epsilon) if x.numel() else source
    if source.device.type == "cpu" and x.numel():
        # On the CPU torch's normalised group is NaN where the variance overflows; it is 0, as in Paddle, unless the mean does, too.
        flat = spread.isinf() & center.isfinite()
        y = (
            y.reshape(rows.shape)
            .where(~flat[..., None], 0)
            .where(center.isfinite()[..., None], torch.nan)
            .reshape(y.shape)
        )
    wide = (-1, *[1] * (source.dim() - 2))
    if scale is not None:
        y = y * torch_wide(scale).to(source.dtype).reshape(wide)
    if bias is not None:
        y = y + torch_wide(bias).to(source.dtype).reshape(wide)
    return torch_back(y, shape.layout, y.dtype), center, spread


def _grad_lower(
    torch: Any, x: Any, scale: Any, bias: Any, mean: Any, saved: Any, dy: Any, epsilon: float, **attrs: Any
) -> Any:
    shape = Groups(x.shape, attrs)
    n, count, places = shape.planes
    source, arrived = (torch_wide(torch_first(t, shape.layout)).contiguous() for t in (x, dy))
    if not x.numel():
        return torch.zeros_like(x), *(None if p is None else torch.zeros_like(p) for p in (scale, bias))
    # Without groups the second statistic is the inverse already.
    inverse = torch.rsqrt(saved + epsilon) if "groups" in attrs else saved
    center, inverse = (s.reshape(n, shape.groups).to(source.dtype).contiguous() for s in (mean, inverse))
    wide = (1, count, *[1] * (source.dim() - 2))
    scaled = arrived if scale is None else arrived * torch_wide(scale).to(source.dtype).reshape(wide)
    if source.device.type == "cpu":
        # As in the forward pass: without its centre, such a group is 0, and no sum of it overflows.
        rows = source.reshape(n, shape.groups, -1)
        source = torch.where(inverse[..., None] == 0, center[..., None], rows).reshape(source.shape)
    dx = torch.ops.aten.native_group_norm_backward(
        scaled, source, center, inverse, None, n, count, places, shape.groups, [True, False, False]
    )[0]
    others = [i for i in range(source.dim()) if i != 1]
    dscale = dbias = None
    if scale is not None:
        # Apart from torch's call, which is given gradients that are scaled already.
        rows = (n, shape.groups, count // shape.groups * places)
        normal = ((source.reshape(rows) - center[..., None]) * inverse[..., None]).reshape(source.shape)
        dscale = (arrived * normal).sum(others).to(scale.dtype)
    if bias is not None:
        dbias = arrived.sum(others).to(bias.dtype)
    return torch_back(dx, shape.layout, x.dtype), dscale, dbias


def _lower(torch: Any, x: Any, scale: Any, bias: Any, epsilon: float, **attrs: Any) -> Any:
    y, mean, variance = _torch_groups(torch, x, scale, bias, epsilon, attrs)
    return y.to(x.dtype), mean, variance


def _instance_lower(torch: Any, x: Any, scale: Any, bias: Any, epsilon: float) -> Any:
    y, mean, variance = _torch_groups(torch, x, scale, bias, epsilon, {})
    return y.to(x.dtype), mean.flatten(), torch.rsqrt(variance + epsilon).flatten()


# ------------------------------------------------------------------------------------------------------- op definitions
def _infer(x: Meta, scale: Meta | None, bias: Meta | None, groups: int, data_layout: str) -> tuple[Meta, Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    check_rank(x, (2, 3, 4, 5), "X", layout=data_layout)
    count = x.shape[1] if x.rank == 2 else channels(x.shape, data_layout)
    check_divisible(count, groups, "the number of channels", "groups")
    check_parameters(x, count, Scale=scale, Bias=bias)
    statistics = Meta((x.shape[0], groups), x.dtype.compute)
    return x, statistics, statistics


def _instance_infer(x: Meta, scale: Meta | None, bias: Meta | None) -> tuple[Meta, Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    check_rank(x, (2, 3, 4, 5), "X", layout="NCHW")
    check_parameters(x, x.shape[1], Scale=scale, Bias=bias)
    statistics = Meta((numel(x.shape[:2]),), x.dtype.compute)
    return x, statistics, statistics


# Each layout with one parameter or both left out, one group, as many groups as channels, no sample.
_CASES = (
    Case(((2, 4, 3, 3), (4,), (4,)), {"groups": 2}),
    Case(((2, 6, 5), (6,), (6,)), {"groups": 3, "epsilon": 1e-3}),
    Case(((2, 3, 2, 4), (4,), (4,)), {"groups": 2, "data_layout": "NHWC"}),
    Case(((3, 4, 2, 2), None, None), {"groups": 4}),
    Case(((2, 4, 2, 3), (4,), None), {"groups": 1}),
    Case(((2, 3, 2, 4), None, (4,)), {"groups": 1, "data_layout": "NHWC"}),
    Case(((0, 4, 3), (4,), (4,)), {"groups": 2}),
    Case(((3, 6), (6,), (6,)), {"groups": 2}),
    Case(((1, 2, 2, 2, 3), (2,), (2,)), {"groups": 1}),
)
# Three ranks, each parameter left out, no sample; the last is longer than a vector register.
_INSTANCE_CASES = (
    Case(((2, 3, 4, 3), (3,), (3,)), {}),
    Case(((2, 4, 5), (4,), (4,)), {"epsilon": 1e-3}),
    Case(((3, 2, 2, 2, 2), (2,), (2,)), {}),
    Case(((3, 4, 2, 2), None, None), {}),
    Case(((2, 4, 2, 3), (4,), None), {}),
    Case(((0, 4, 3), (4,), (4,)), {}),
    Case(((1, 1, 17), (1,), (1,)), {}),
)

# Below 0 the root is NaN wherever the variance is smaller.
_EPSILON = Attr(1e-5, "float", lambda e: None if e >= 0 else "a number of at least 0")


def _register(type: str, statistics: tuple[str, str], cases: tuple[Case, ...], instance: bool, **attrs: Attr) -> None:
    ref, grad_ref = _references(saves_inverse=instance)
    mean, spread = statistics
    register(
        OpDef(
            type,
            f"X, Scale?, Bias? -> Y, {mean}~, {spread}~",
            lod="X",
            attrs={"epsilon": _EPSILON, **attrs},
            infer=_instance_infer if instance else _infer,
            ref=ref,
            lower=_instance_lower if instance else _lower,
            split=Split(BATCHES, 0, WHOLE, WHOLE, 0, 0, 0),
            grad=GradOp(
                f"X, Scale?, Bias?, {mean}, {spread}, Y@GRAD -> X@GRAD, Scale@GRAD, Bias@GRAD",
                ref=grad_ref,
                lower=_grad_lower,
                # Gradients of the parameters are sums over the batch that tiles share: each tile has its part, added in order.
                split=Split(BATCHES, 0, WHOLE, WHOLE, 0, 0, 0, 0, PARTIAL_SUM, PARTIAL_SUM),
                shape_only=("Bias",),
                inplace=(("Y@GRAD", "X@GRAD"),),
            ),
            inplace=(("X", "Y"),),
            amp="gray" if instance else "black",
            float32_inputs=("Scale", "Bias"),
            uses_blas=True,
            domain=Domain(cases=cases, ulps=16.0),
            onnx=_onnx.instance_norm if instance else _onnx.group_norm,
        )
    )


# With 0 groups the channels would be divided by 0.
_GROUPS = Attr(1, "int", lambda g: None if g > 0 else "a number of groups of at least 1")
_register("group_norm", ("Mean", "Variance"), _CASES, False, groups=_GROUPS, data_layout=layout_attr("NCHW"))
_register("instance_norm", ("SavedMean", "SavedVariance"), _INSTANCE_CASES, True)


# ------------------------------------------------------------------------------------------------------------ functions
@export("nn.functional.group_norm", op="group_norm")
def group_norm(
    x: Variable,
    num_groups: int,
    epsilon: float = 1e-05,
    weight: Variable | None = None,
    bias: Variable | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalises groups of channels within each sample, over channels of the group and all places.

    Args:
        x: ``[n, c, ...]`` or, channels last, ``[n, ..., c]``; floats.
        num_groups: Number of groups; it divides the channels.
        epsilon: Added to the variance.
        weight, bias: ``[c]`` or ``None``.
        data_format: ``NCL``, ``NCHW``, ``NCDHW``, ``NLC``, ``NHWC`` or ``NDHWC``.
        name: The layer's name.

    Returns:
        A Variable like ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    check_variable(x, "x", "group_norm")
    attrs = {"epsilon": epsilon, "groups": num_groups, "data_layout": channel_layout(data_format, "group_norm")}
    ins = {"X": x, "Scale": weight, "Bias": bias}
    return emit_one("group_norm", ins, attrs, name=name, order=("Mean", "Variance", "Y"))


OWN = "each channel of each sample is normalised by its own statistics"


@no_effect(
    running_mean=OWN, running_var=OWN, momentum=OWN, data_format="channels stand second in each layout that is taken"
)
@export("nn.functional.instance_norm", op="instance_norm")
def instance_norm(
    x: Variable,
    running_mean: Variable | None = None,
    running_var: Variable | None = None,
    weight: Variable | None = None,
    bias: Variable | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.9,
    eps: float = 1e-05,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalises each channel of each sample over its places.

    Args:
        x: ``[n, c, ...]``, floats.
        weight, bias: ``[c]`` or ``None``.
        use_input_stats: Must be true.
        eps: Added to the variance.
        data_format: ``NC``, ``NCL``, ``NCHW`` or ``NCDHW``.
        name: The layer's name.

    Returns:
        A Variable like ``x``.

    Raises:
        UnsupportedError: For running statistics, or channels last.
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    check_variable(x, "x", "instance_norm")
    last = channel_layout(data_format, "instance_norm") == "NHWC"
    if last or not use_input_stats:
        raise UnsupportedError(
            "instance_norm normalises by the input's own statistics, channels first",
            expected="use_input_stats=True and a data_format with channels second",
            received=f"use_input_stats={use_input_stats}, data_format={data_format!r}",
            fix="transpose x to NCHW first" if last else "use batch_norm with use_global_stats=True",
            op="instance_norm",
        )
    ins = {"X": x, "Scale": weight, "Bias": bias}
    order = ("SavedMean", "SavedVariance", "Y")
    return emit_one("instance_norm", ins, {"epsilon": eps}, name=name, order=order)
