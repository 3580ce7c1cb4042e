"""Padding: pad, pad2d, pad3d and nn.functional.pad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.errors import ProgramError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Call, Calls
from tstatic.ir.split import ELEMENTS, FREE, Split
from tstatic.ir.types import Meta
from tstatic.ops._call_ref import CallRef, copies
from tstatic.ops._gradients import grad_is_forward_op, grad_is_op
from tstatic.ops.shape._padding import Pads, fold_calls, pad_calls, padded, torch_fold, torch_pad
from tstatic.ops.shape._shapes import Array, add_op_context, as_list, check_rank, emit_one
from tstatic.ops.shape._slicing import END
from tstatic.ops.shape.squeeze import squeeze, unsqueeze


# ----------------------------------------------------------------------------------------------------------------- pad
def _pairs(paddings: Sequence[int], rank: int) -> Pads:
    if len(paddings) != 2 * rank:
        raise ShapeError(
            "paddings must have two entries for each dimension",
            expected=f"{2 * rank} numbers",
            received=list(paddings),
            fix="give each dimension the elements added before and after",
        )
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
    ends = [-pads[i][1] if pads[i][1] else END for i in axes]
    return {"axes": axes, "starts": [pads[i][0] for i in axes], "ends": ends, "infer_flags": [1] * len(axes)}


def _grad(ctx: GradContext) -> Any:
    specs = grad_is_op("slice", _cut_out)(ctx)
    return [type(s)(s.type, {"Input": s.inputs["X"]}, s.outputs, s.attrs) for s in specs]


def _padded_axes(out: Meta, paddings: Sequence[int]) -> list[int]:
    return [i for i, pair in enumerate(_pairs(paddings, out.rank)) if any(pair)]


register(
    OpDef(
        "pad",
        "X -> Out",
        attrs={"paddings": Attr(kind="ints"), "pad_value": 0.0},
        infer=_infer,
        ref=copies(_calls),
        lower=_lower,
        split=Split(ELEMENTS, FREE, taken=_padded_axes),
        grad=_grad,
        domain=Domain(
            cases=(
                Case(((3, 4),), {"paddings": (1, 0, 2, 3)}),
                Case(((3, 4),), {"paddings": (0, 0, 0, 0)}),
                Case(((5,),), {"paddings": (2, 1), "pad_value": 1.5}),
                Case(((2, 3, 2),), {"paddings": (0, 1, 0, 0, 2, 0), "pad_value": -1.0}),
                Case(((0, 3),), {"paddings": (1, 2, 0, 0)}),
                Case(((),), {"paddings": ()}),
            ),
            others=("int64", "int32"),
            ulps=0,
        ),
    )
)


@export("fluid.layers.pad", op="pad")
def fluid_pad(x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None) -> Variable:
    """``x`` with ``paddings[2 * i]`` constants before and ``paddings[2 * i + 1]`` behind it along each axis ``i``."""
    attrs = {"paddings": as_list(paddings), "pad_value": pad_value}
    return emit_one("pad", {"X": check_variable(x, "x", "pad")}, attrs, name=name)


# -------------------------------------------------------------------------------------------------------- pad2d, pad3d
def _spatial(paddings: Sequence[int], data_format: str, order: Sequence[int]) -> Pads:
    """Padding of all axes from that of the spatial ones.

    Args:
        paddings: Two numbers for each spatial axis.
        data_format: Says where the channels are.
        order: Which spatial axis each pair is for.
    """
    if len(paddings) != 2 * len(order):
        raise ShapeError(
            "paddings must have two entries for each spatial dimension",
            expected=f"{2 * len(order)} numbers",
            received=list(paddings),
            fix="check the length of paddings",
        )
    spatial = [(0, 0)] * len(order)
    for i, axis in enumerate(order):
        spatial[axis] = (paddings[2 * i], paddings[2 * i + 1])
    return [(0, 0), (0, 0), *spatial] if data_format[1] == "C" else [(0, 0), *spatial, (0, 0)]


def _definition(
    type: str, order: Sequence[int], modes: Mapping[str, str], value: str, formats: Sequence[str], cases: Any
) -> OpDef:
    """The definition of an op that pads spatial axes.

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
        check_rank(x, rank, rank, "X")
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

    def gradient(ctx: GradContext) -> Any:
        specs = grad_is_forward_op(type)(ctx)
        return [_without_value(spec, value) for spec in specs]

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
            grad=gradient,
        ),
        domain=Domain(cases=cases, others=("int64", "int32")),
    )


def _without_value(spec: Any, value: str) -> Any:
    # The border's constant takes no part in the gradient.
    return type(spec)(spec.type, spec.inputs, spec.outputs, {**spec.attrs, value: 0.0})


register(
    _definition(
        "pad2d",
        (0, 1),
        {"constant": "constant", "reflect": "reflect", "edge": "replicate"},
        "pad_value",
        ("NCHW", "NHWC"),
        (
            Case(((2, 1, 3, 4),), {"paddings": (1, 0, 2, 1), "pad_value": 0.5}),
            Case(((1, 2, 3, 4),), {"paddings": (2, 1, 0, 3), "mode": "reflect"}),
            Case(((1, 2, 3, 2),), {"paddings": (1, 2, 3, 0), "mode": "edge"}),
            Case(((2, 3, 2, 2),), {"paddings": (2, 0, 1, 1), "mode": "reflect", "data_format": "NHWC"}),
            Case(((0, 1, 2, 2),), {"paddings": (1, 1, 1, 1), "mode": "edge"}),
            Case(((1, 1, 2, 2),), {"paddings": (0, 0, 0, 0)}),
        ),
    )
)

register(
    _definition(
        "pad3d",
        (2, 1, 0),
        {m: m for m in ("constant", "reflect", "replicate", "circular")},
        "value",
        ("NCDHW", "NDHWC"),
        (
            Case(((1, 2, 2, 3, 3),), {"paddings": (1, 0, 2, 1, 0, 1), "value": 0.5}),
            Case(((1, 1, 2, 3, 4),), {"paddings": (3, 1, 0, 2, 1, 1), "mode": "reflect"}),
            Case(((2, 1, 1, 2, 3),), {"paddings": (2, 1, 1, 0, 0, 2), "mode": "replicate"}),
            Case(((1, 1, 2, 2, 3),), {"paddings": (3, 1, 2, 0, 1, 2), "mode": "circular"}),
            Case(((1, 2, 3, 2, 2),), {"paddings": (1, 1, 0, 2, 1, 0), "mode": "circular", "data_format": "NDHWC"}),
            Case(((0, 1, 2, 2, 2),), {"paddings": (1, 1, 1, 1, 1, 1), "mode": "reflect"}),
            Case(((1, 2, 1, 1, 2),), {"paddings": (0, 0, 0, 0, 0, 0), "mode": "replicate"}),
        ),
    )
)


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
_BY_RANK = {3: ("NCL", "NLC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


@export("nn.functional.pad", op="pad3d")
def pad(
    x: Variable,
    pad: int | Sequence[int],
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
    given = [pad] * (2 * max(rank - 2, 0)) if isinstance(pad, int) else as_list(pad)
    if mode == "constant" and len(given) == 2 * rank:
        return emit_one("pad", {"X": x}, {"paddings": given, "pad_value": value}, name=name)
    layouts = _BY_RANK.get(rank, ())
    layout = layouts[0] if data_format == "NCHW" and layouts else data_format
    if layout not in layouts:
        error = ProgramError(
            f"data_format '{data_format}' does not fit a value of {rank} dimensions",
            expected=f"one of {', '.join(layouts)}"
            if layouts
            else f"{2 * rank} paddings for a value of {rank} dimensions",
            received=f"{data_format!r} and {len(given)} paddings",
            fix="choose the format by the number of dimensions (3: NCL, 4: NCHW, 5: NCDHW)",
        )
        raise add_op_context(error, "pad", x.name)
    if len(given) != 2 * (rank - 2):
        wrong = ShapeError(
            "pad must have two entries for each spatial dimension, or for each dimension",
            expected=f"{2 * (rank - 2)} or {2 * rank} numbers",
            received=given,
            fix="check the length of pad",
        )
        raise add_op_context(wrong, "pad", x.name)
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
    """Pads images with zeros: left, right, top, bottom, or one int for all."""
    given = [padding] * 4 if isinstance(padding, int) else as_list(padding)
    return pad(x, given, "constant", 0.0, data_format, name)
