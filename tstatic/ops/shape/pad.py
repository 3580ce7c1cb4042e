"""Padding: pad, pad2d, pad3d and nn.functional.pad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_int, check_length, check_rank, check_sizes
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.recording import Call
from tstatic.ir.ref import Calls
from tstatic.ir.split import ELEMENTS, FREE, Split
from tstatic.ir.types import UNKNOWN, Meta, Shape
from tstatic.ops.base.call_ref import CallRef, copies
from tstatic.ops.base.gradients import grad_is_forward_op, grad_is_op
from tstatic.ops.base.shapes import Array, as_list, emit_one
from tstatic.ops.shape import _shape_onnx as _onnx
from tstatic.ops.shape.reshape import squeeze, unsqueeze
from tstatic.ops.shape.slicing import END
from tstatic.ops.shape.when_run import pad_when_run

Pads = Sequence[tuple[int, int]]
"""For each axis the elements added before and after."""


def padded(shape: Shape, pads: Pads, mode: str) -> Shape:
    """Returns the shape after padding.

    Raises:
        ShapeError: For negative padding, or more of it than a mode can take from the value.
    """
    for amount in (n for pair in pads for n in pair):
        check_int(amount, "paddings", least=0, fix="slice the value to make it smaller")
    for axis, (size, pair) in enumerate(zip(shape, pads, strict=True)):
        # A reflection leaves out the edge, so it can show size - 1 elements; a replica needs one element to repeat.
        limit = {"constant": None, "reflect": size - 1, "circular": size}.get(mode, 2**62 if size else 0)
        if size != UNKNOWN and limit is not None and max(pair) > max(limit, 0):
            raise ShapeError(
                f"mode '{mode}' cannot pad axis {axis} of size {size} by {max(pair)}",
                expected=f"paddings of at most {max(limit, 0)}",
                received=list(pair),
                fix="pad less, or use another mode",
            )
    new = tuple(UNKNOWN if s == UNKNOWN else s + low + high for s, (low, high) in zip(shape, pads, strict=True))
    check_sizes(new)
    return new


def center(array: Array, pads: Pads) -> Array:
    """Returns the part of a padded array that is the value itself."""
    if not pads:
        return array
    return array[tuple(slice(low, size - high) for size, (low, high) in zip(array.shape, pads, strict=True))]


def _borders(array: Array, pads: Pads, axis: int, mode: str) -> list[tuple[Array, Array]]:
    """Returns (border, what it shows) of one axis of a padded array: axes before it are whole, those behind it unpadded."""
    low, high = pads[axis]
    end = array.shape[axis] - high
    # Axes before are filled already, borders included; axes behind are not, so only their middle is read.
    lines = [
        slice(None) if i < axis else slice(p, n - q)
        for i, (n, (p, q)) in enumerate(zip(array.shape, pads, strict=True))
    ]

    def line(start: int, stop: int | None, step: int = 1) -> Array:
        return array[(*lines[:axis], slice(start, stop, step), *lines[axis + 1 :])]

    if mode == "reflect":
        # Read backwards from both edges, which are not repeated; a stop of -1 would mean the last element.
        last = end - 2 - high
        before, after = line(2 * low, low, -1), line(end - 2, last if last >= 0 else None, -1)
    elif mode == "circular":
        # Round the ends: before the first element comes the last.
        before, after = line(end - low, end), line(low, low + high)
    else:
        before, after = line(low, low + 1), line(end - 1, end)
    return [pair for pair, size in (((line(0, low), before), low), ((line(end, None), after), high)) if size]


def pad_calls(x: Array, out: Array, pads: Pads, mode: str, value: float) -> Calls:
    """Returns the calls that write the padded value."""
    calls: Calls = [(np.copyto, (center(out, pads), x))]
    if out.size == 0:
        return []
    # Axis after axis: a border shows what is complete along all axes before it, so corners come out right.
    for axis, pair in enumerate(pads):
        if not any(pair):
            continue
        if mode != "constant":
            calls += [(np.copyto, pair) for pair in _borders(out, pads, axis, mode)]
            continue
        fill = np.asarray(value).astype(out.dtype)[()]
        # Only the borders are filled, not the whole array: each element is written once.
        calls += [(np.copyto, (border, fill)) for border, _ in _borders(out, pads, axis, "replicate")]
    return calls


def fold_calls(dout: Array, dx: Array, pads: Pads, mode: str, buffer: Array | None) -> Calls:
    """Returns the calls that add each border's gradient to what the border shows.

    Args:
        dout: The gradient of the padded value.
        dx: Receives the gradient of the value.
        pads, mode: As the forward op has them.
        buffer: A copy of ``dout`` to work in; not needed for constant borders.
    """
    if mode == "constant" or buffer is None:
        return [(np.copyto, (dx, center(dout, pads)))]
    calls: Calls = [(np.copyto, (buffer, dout))]
    # The last axis was filled last, from borders that were complete by then.
    for axis in range(len(pads) - 1, -1, -1):
        for border, shown in _borders(buffer, pads, axis, mode) if any(pads[axis]) else ():
            if border.shape == shown.shape:
                calls.append((np.add, (shown, border, shown)))
                continue
            # Of a replicated edge, all layers show the same one.
            layers = np.moveaxis(border, axis, 0)
            calls += [(np.add, (shown, np.expand_dims(layer, axis), shown)) for layer in layers]
    return [*calls, (np.copyto, (dx, center(buffer, pads)))]


def torch_pad(torch: Any, x: Any, pads: Pads, mode: str, value: float) -> Any:
    """Pads with torch: by index along each axis, so that all axes and modes are alike."""
    if mode == "constant":
        # torch pads from the last axis on.
        flat = [p for pair in reversed(list(pads)) for p in pair]
        value = int(value) % 256 if x.dtype == torch.uint8 else value  # torch takes no negative one
        return torch.nn.functional.pad(x, flat, value=value) if flat else x.clone()
    for axis, (low, high) in enumerate(pads):
        if low or high:
            x = x.index_select(axis, _shown(torch, x.shape[axis], low, high, mode, x.device))
    return x.contiguous()


def _shown(torch: Any, size: int, low: int, high: int, mode: str, device: Any) -> Any:
    """Returns which element each position of a padded axis shows."""
    places = torch.arange(-low, size + high, device=device)
    if mode == "circular":
        return places % size
    if mode == "replicate":
        return places.clamp(0, size - 1)
    # Reflected at the first element, then at the last one.
    return (size - 1) - ((size - 1) - places.abs()).abs()


def torch_fold(torch: Any, shape: Sequence[int], dout: Any, pads: Pads, mode: str) -> Any:
    """Computes the gradient of :func:`torch_pad`."""
    if mode == "constant":
        for axis, (low, _) in enumerate(pads):
            dout = dout.narrow(axis, low, shape[axis])
        return dout.contiguous()
    # An edge adds up all gradients of its border, which in 16 bits would be rounded at each addition.
    wide = dout if dout.is_complex() else dout.double()
    for axis in range(len(pads) - 1, -1, -1):
        low, high = pads[axis]
        if low or high:
            sizes = list(wide.shape)
            sizes[axis] = shape[axis]
            index = _shown(torch, shape[axis], low, high, mode, dout.device)
            wide = torch.zeros(sizes, dtype=wide.dtype, device=dout.device).index_add(axis, index, wide)
    return wide.to(dout.dtype)


# ----------------------------------------------------------------------------------------------------------------- pad
def _pairs(paddings: Sequence[int], rank: int) -> Pads:
    check_length(paddings, 2 * rank, "paddings", why="two for each dimension: before and after it")
    return list(zip(paddings[::2], paddings[1::2], strict=True))


def _infer(x: Meta, *, paddings: Sequence[int]) -> Meta:
    return x.with_shape(padded(x.shape, _pairs(paddings, x.rank), "constant"))


def _calls(x: Array, out: Array, *, paddings: Sequence[int], pad_value: float) -> list[Call]:
    return pad_calls(x, out, _pairs(paddings, x.ndim), "constant", pad_value)


def _lower(torch: Any, x: Any, *, paddings: Sequence[int], pad_value: float) -> Any:
    return torch_pad(torch, x, _pairs(paddings, x.dim()), "constant", pad_value)


def _cut_out(ctx: GradContext) -> Mapping[str, Any]:
    pads = _pairs(ctx.attrs["paddings"], ctx.meta(ctx.inputs["X"][0]).rank)
    axes = [i for i, pair in enumerate(pads) if any(pair)]
    # Counted from the end, for sizes may be unknown; -0 would be the beginning, so the open end is END.
    ends = [-pads[i][1] if pads[i][1] else END for i in axes]
    return {"axes": axes, "starts": [pads[i][0] for i in axes], "ends": ends, "infer_flags": [1] * len(axes)}


def _padded_axes(out: Meta, paddings: Sequence[int]) -> list[int]:
    return [i for i, pair in enumerate(_pairs(paddings, out.rank)) if any(pair)]


register(OpDef(
    "pad", "X -> Out", attrs={"paddings": Attr(kind="ints"), "pad_value": 0.0}, infer=_infer, ref=copies(_calls),
    lower=_lower, split=Split(ELEMENTS, FREE, taken=_padded_axes), grad=grad_is_op("slice", _cut_out, slot="Input"),
    domain=Domain(
        cases=(
            Case(((3, 4),), {"paddings": (1, 0, 2, 3)}), Case(((3, 4),), {"paddings": (0, 0, 0, 0)}),
            Case(((5,),), {"paddings": (2, 1), "pad_value": 1.5}),
            Case(((2, 3, 2),), {"paddings": (0, 1, 0, 0, 2, 0), "pad_value": -1.0}),
            Case(((0, 3),), {"paddings": (1, 2, 0, 0)}), Case(((),), {"paddings": ()}),
        ),
        others=("int64", "int32"), ulps=0,
    ),
    complex="linear", onnx=lambda g, x, *, paddings, pad_value: _onnx.pad(g, x, _pairs(paddings, x.rank), "constant", pad_value),
))  # fmt: skip


@export("fluid.layers.pad", op="pad")
def fluid_pad(x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None) -> Variable:
    """Pads with ``paddings[2 * i]`` constants before and ``paddings[2 * i + 1]`` behind ``x`` along each axis ``i``.

    Args:
        x: ``[...]``.
        paddings: Two numbers for each axis, at least 0.
        pad_value: The constant.
        name: Name of the layer.

    Raises:
        ShapeError: If there are more or fewer numbers, or one is negative.
    """
    attrs = {"paddings": as_list(paddings), "pad_value": pad_value}
    return emit_one("pad", {"X": check_variable(x, "x", "pad")}, attrs, name=name)


# -------------------------------------------------------------------------------------------------------- pad2d, pad3d
def _spatial(paddings: Sequence[int], data_format: str, order: Sequence[int]) -> Pads:
    """Returns the padding of all axes from that of the spatial ones.

    Args:
        paddings: Two numbers for each spatial axis.
        data_format: Says where the channels are.
        order: Which spatial axis each pair is for.
    """
    check_length(paddings, 2 * len(order), "paddings", why="two for each spatial dimension")
    spatial = [(0, 0)] * len(order)
    for i, axis in enumerate(order):
        # pad3d begins with the last spatial axis, as torch does; pad2d with the first.
        spatial[axis] = (paddings[2 * i], paddings[2 * i + 1])
    return [(0, 0), (0, 0), *spatial] if data_format[1] == "C" else [(0, 0), *spatial, (0, 0)]


def _definition(
    type: str, order: Sequence[int], modes: Mapping[str, str], value: str, formats: Sequence[str], cases: Any
) -> OpDef:
    """Defines an op that pads spatial axes.

    Args:
        type: Op type.
        order: Which spatial axis each pair of ``paddings`` is for.
        modes: The op's names of the modes.
        value: Name of the attribute that holds the constant.
        formats: Its data formats.
        cases: Where tests may sample.
    """
    rank = len(order) + 2

    def pads_of(attrs: Mapping[str, Any]) -> tuple[Pads, str]:
        return _spatial(attrs["paddings"], attrs["data_format"], order), modes[attrs["mode"]]

    def infer(x: Meta, **attrs: Any) -> Meta:
        check_rank(x, rank, "X")
        return x.with_shape(padded(x.shape, *pads_of(attrs)))

    names = ("paddings", "mode", value, "data_format")

    def calls(x: Array, out: Array, **attrs: Any) -> list[Call]:
        return pad_calls(x, out, *pads_of(attrs), attrs[value])

    def padded_axes(out: Meta, **attrs: Any) -> list[int]:
        return [i for i, pair in enumerate(pads_of(attrs)[0]) if any(pair)]

    split = Split(ELEMENTS, FREE, taken=padded_axes)

    def back_calls(
        ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, paddings: Any, mode: Any, data_format: Any
    ) -> Calls:
        pads, kind = pads_of({"paddings": paddings, "mode": mode, "data_format": data_format})
        return fold_calls(ins[1], outs[0], pads, kind, scratch[0] if scratch else None)

    def back_scratch_metas(ins: Sequence[Meta], outs: Sequence[Meta], *, mode: str) -> tuple[Meta, ...]:
        return () if modes[mode] == "constant" else (ins[1],)

    back = CallRef(back_calls, back_scratch_metas, unread=(0,))

    return OpDef(
        type,
        "X -> Out",
        attrs={
            "paddings": Attr(kind="ints"),
            "mode": Attr("constant", "str", lambda v: None if v in modes else f"one of {', '.join(modes)}"),
            value: 0.0,
            "data_format": Attr(formats[0], "str", lambda v: None if v in formats else f"one of {', '.join(formats)}"),
        },
        infer=infer,
        ref=copies(calls, attrs=names),
        lower=lambda torch, x, **attrs: torch_pad(torch, x, *pads_of(attrs), attrs[value]),
        split=split,
        grad=GradOp(
            "X, Out@GRAD -> X@GRAD",
            ref=back,
            lower=lambda torch, x, dout, **attrs: torch_fold(torch, x.shape, dout, *pads_of(attrs)),
            split=split,
            shape_only=("X",),
            grad=grad_is_forward_op(type, changed={value: 0.0}),
        ),
        domain=Domain(cases=cases, others=("int64", "int32")),
        complex="linear",
        onnx=lambda g, x, **attrs: _onnx.pad(g, x, *pads_of(attrs), attrs[value]),
    )


register(_definition(
    "pad2d", (0, 1), {"constant": "constant", "reflect": "reflect", "edge": "replicate"}, "pad_value", ("NCHW", "NHWC"),
    (
        Case(((2, 1, 3, 4),), {"paddings": (1, 0, 2, 1), "pad_value": 0.5}),
        Case(((1, 2, 3, 4),), {"paddings": (2, 1, 0, 3), "mode": "reflect"}),
        Case(((1, 2, 3, 2),), {"paddings": (1, 2, 3, 0), "mode": "edge"}),
        Case(((2, 3, 2, 2),), {"paddings": (2, 0, 1, 1), "mode": "reflect", "data_format": "NHWC"}),
        Case(((0, 1, 2, 2),), {"paddings": (1, 1, 1, 1), "mode": "edge"}),
        Case(((1, 1, 2, 2),), {"paddings": (0, 0, 0, 0)}),
    ),
))  # fmt: skip

register(_definition(
    "pad3d", (2, 1, 0), {m: m for m in ("constant", "reflect", "replicate", "circular")}, "value", ("NCDHW", "NDHWC"),
    (
        Case(((1, 2, 2, 3, 3),), {"paddings": (1, 0, 2, 1, 0, 1), "value": 0.5}),
        Case(((1, 1, 2, 3, 4),), {"paddings": (3, 1, 0, 2, 1, 1), "mode": "reflect"}),
        Case(((2, 1, 1, 2, 3),), {"paddings": (2, 1, 1, 0, 0, 2), "mode": "replicate"}),
        Case(((1, 1, 2, 2, 3),), {"paddings": (3, 1, 2, 0, 1, 2), "mode": "circular"}),
        Case(((1, 2, 3, 2, 2),), {"paddings": (1, 1, 0, 2, 1, 0), "mode": "circular", "data_format": "NDHWC"}),
        Case(((0, 1, 2, 2, 2),), {"paddings": (1, 1, 1, 1, 1, 1), "mode": "reflect"}),
        Case(((1, 2, 1, 1, 2),), {"paddings": (0, 0, 0, 0, 0, 0), "mode": "replicate"}),
    ),
))  # fmt: skip


@export("fluid.layers.pad2d", op="pad2d")
def pad2d(
    input: Variable,
    paddings: Sequence[int] = (0, 0, 0, 0),
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Pads the two spatial axes of images.

    Args:
        input: ``[N, C, H, W]`` or ``[N, H, W, C]``.
        paddings: Top, bottom, left, right.
        mode: ``"constant"``, ``"reflect"`` (the edge is not repeated) or ``"edge"``.
        pad_value: The constant.
        data_format: ``"NCHW"`` or ``"NHWC"``.
        name: Name of the layer.

    Raises:
        ShapeError: If a padding is negative or too large for the mode.
        ProgramError: For another mode or format.
    """
    attrs = {"paddings": as_list(paddings), "mode": mode, "pad_value": pad_value, "data_format": data_format}
    return emit_one("pad2d", {"X": check_variable(input, "input", "pad2d")}, attrs, name=name)


# For each layout: the axes that make it five-dimensional, and how many numbers go before and behind the paddings.
_LIFT = {
    "NCL": ((3, 4), 4, 0),
    "NLC": ((2, 3), 4, 0),
    "NCHW": ((2,), 0, 2),
    "NHWC": ((1,), 0, 2),
    "NCDHW": ((), 0, 0),
    "NDHWC": ((), 0, 0),
}
# The first of each is channels first, which the default "NCHW" means for every rank.
_BY_RANK = {3: ("NCL", "NLC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


@export("nn.functional.pad", op="pad3d")
def pad(
    x: Variable,
    pad: Any,
    mode: str = "constant",
    value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Pads a value.

    Args:
        x: ``[...]``.
        pad: With twice as many numbers as ``x`` has dimensions (mode ``"constant"`` only): before and after each axis, from
            the first on. Otherwise for the spatial axes of 3 to 5 dimensions, from the last one backwards (left, right,
            top, bottom, front, back); one int pads all of them.
        mode: ``"constant"``, ``"reflect"`` (the edge is not repeated), ``"replicate"`` or ``"circular"``.
        value: The constant.
        data_format: ``"NCL"``, ``"NLC"``, ``"NCHW"``, ``"NHWC"``, ``"NCDHW"`` or ``"NDHWC"``; the default means channels
            behind the batch for any rank.
        name: Name of the layer.

    Raises:
        ShapeError: If the numbers do not fit the rank, or are too large for the mode.
        ProgramError: For another mode, or a format that does not fit the rank.
    """
    x = check_variable(x, "x", "pad")
    rank = len(x.shape)
    if isinstance(pad, Variable):
        return pad_when_run(x, pad, mode, value, data_format, name)
    given = [pad] * (2 * max(rank - 2, 0)) if isinstance(pad, int) else as_list(pad)
    if mode == "constant" and len(given) == 2 * rank:
        return emit_one("pad", {"X": x}, {"paddings": given, "pad_value": value}, name=name)
    layouts = _BY_RANK.get(rank, ())
    # "NCHW" is the default of all ranks in Paddle: it means channels first.
    layout = layouts[0] if data_format == "NCHW" and layouts else data_format
    if layout not in layouts:
        raise ProgramError(
            f"data_format '{data_format}' does not fit a value of {rank} dimensions",
            expected=f"one of {', '.join(layouts)}"
            if layouts
            else f"{2 * rank} paddings for a value of {rank} dimensions",
            received=f"{data_format!r} and {len(given)} paddings",
            fix="choose the format by the number of dimensions (3: NCL, 4: NCHW, 5: NCDHW)",
            op="pad",
            var=x.name,
        )
    why = "two for each spatial dimension"
    if mode == "constant":
        why += f", or {2 * rank}: two for each dimension"
    check_length(given, 2 * (rank - 2), "pad", "pad", why=why)
    axes, before, behind = _LIFT[layout]
    attrs = {
        "paddings": [0] * before + given + [0] * behind,
        "mode": mode,
        "value": value,
        "data_format": "NCDHW" if layout[1] == "C" else "NDHWC",
    }
    if not axes:
        return emit_one("pad3d", {"X": x}, attrs, name=name)
    out = emit_one("pad3d", {"X": unsqueeze(x, list(axes))}, attrs)
    return squeeze(out, list(axes), name)


@export("nn.functional.zeropad2d", op="pad3d")
def zeropad2d(
    x: Variable, padding: int | Sequence[int], data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Pads images with zeros: left, right, top, bottom, or one int for all.

    Args:
        x: ``[N, C, H, W]`` or ``[N, H, W, C]``.
        padding: Left, right, top, bottom, in pixels; one int for all.
        data_format: ``"NCHW"`` or ``"NHWC"``.
        name: Name of the layer.
    """
    given = [padding] * 4 if isinstance(padding, int) else as_list(padding)
    return pad(x, given, "constant", 0.0, data_format, name)
