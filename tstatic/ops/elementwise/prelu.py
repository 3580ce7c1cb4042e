"""PReLU: a leaky relu whose slope is learned, one for all, one per channel, or one per element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import DERIVE, Attr, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, Shape, numel
from tstatic.ops.elementwise._broadcast import align_last, same_dtype
from tstatic.ops.elementwise._broadcast_grad import reduced_gradient
from tstatic.ops.elementwise._unary import infer_float


def _align(
    shapes: Sequence[Shape | None], attrs: Mapping[str, Any], like: Sequence[int] = (0, 1)
) -> list[Shape | None]:
    """Slopes per channel stand along the channel axis; any others meet from the last dimension."""
    x = shapes[0]
    assert x is not None
    rank = len(x)
    channel = 1 if attrs["data_format"].startswith("NC") or rank < 2 else rank - 1
    done = []
    for i, shape in enumerate(shapes):
        if shape is not None and i < len(like) and like[i] == 1:
            if attrs["mode"] == "all":
                shape = (1,) * rank
            elif attrs["mode"] == "channel":
                shape = (1,) * channel + (numel(shape),) + (1,) * (rank - channel - 1)
        done.append(shape)
    return align_last(done, attrs)


def _prepare(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Sequence[Any]:
    shapes = _align([tuple(a.shape) for a in inputs], attrs)
    return [a.reshape(s) for a, s in zip(inputs, shapes, strict=True)]


def _infer(x: Meta, alpha: Meta, mode: str, data_format: str) -> Meta:
    infer_float(x)
    same_dtype(x, alpha, ("X", "Alpha"))
    channel = 1 if data_format.startswith("NC") else x.rank - 1
    if mode == "all":
        expected = "1 element"
        fits = alpha.numel in (1, UNKNOWN)
    elif mode == "channel":
        expected = f"{x.shape[channel] if x.rank > channel else 1} elements, one per channel"
        fits = x.rank > channel and (x.shape[channel] == alpha.numel or UNKNOWN in (x.shape[channel], alpha.numel))
    else:
        sizes = x.shape[1:]
        own = alpha.shape[-len(sizes) :] if sizes else ()
        expected = f"shape {[1, *sizes]}"
        fits = numel(alpha.shape[: len(alpha.shape) - len(own)]) in (1, UNKNOWN) and len(own) == len(sizes)
        fits = fits and all(a == b or UNKNOWN in (a, b) for a, b in zip(own, sizes, strict=True))
    if not fits:
        raise ShapeError(
            f"Alpha does not fit X in mode '{mode}'",
            expected=expected,
            received=f"Alpha of shape {list(alpha.shape)} for X of shape {list(x.shape)}",
            fix="give the slopes the expected number of elements, or choose another mode",
        )
    return x


def _mode(value: Any) -> str | None:
    return None if value in ("all", "channel", "element") else "'all', 'channel' or 'element'"


def _lower(torch: Any, x: Any, alpha: Any, mode: str, data_format: str) -> Any:
    slope = alpha.reshape(_align([tuple(x.shape), tuple(alpha.shape)], {"mode": mode, "data_format": data_format})[1])
    return torch.where(x > 0, x, slope * x)


register(OpDef(
    "prelu", "X, Alpha -> Out", attrs={"mode": Attr("all", "str", _mode), "data_format": "NCHW"},
    pointwise={"Out": "where(x > 0, x, alpha * x)"}, infer=_infer, prepare=_prepare, lower=_lower,
    grad=reduced_gradient(
        "X, Alpha, Out@GRAD -> X@GRAD, Alpha@GRAD",
        {"X@GRAD": "where(x > 0, dout, alpha * dout)", "Alpha@GRAD": "where(x > 0, 0, x * dout)"},
        attrs=("mode", "data_format"), inplace=(("Out@GRAD", "X@GRAD"),), grad=DERIVE, aligned=_align,
    ),
    amp="gray", inplace=(("X", "Out"),),
    domain=Domain(cases=(
        Case(((3, 4), (1,))), Case(((2, 3, 4), (3,)), {"mode": "channel"}), Case(((), (1,))), Case(((0, 2), (1,))),
        Case(((2, 3, 2, 2), (1, 3, 1, 1)), {"mode": "channel"}),
        Case(((2, 2, 2, 3), (3,)), {"mode": "channel", "data_format": "NHWC"}),
        Case(((2, 3, 4), (1, 3, 4)), {"mode": "element"}), Case(((2, 5), (5,)), {"mode": "element"}),
    ), values={"X": ValueRange(avoid=(0.0,))}, ulps=1),
))  # fmt: skip


@export("nn.functional.prelu", op="prelu")
def prelu(x: Variable, weight: Variable, data_format: str = "NCHW", name: str | None = None) -> Variable:
    """Returns ``x`` where it is positive, ``weight * x`` elsewhere.

    Args:
        x: ``[N, C, ...]``, or ``[N, ..., C]`` for a ``data_format`` that ends in C.
        weight: ``[1]``, or ``[C]`` for a slope per channel.
        data_format: Where the channels stand.
        name: Name of the layer.

    Raises:
        ShapeError: If ``weight`` has another number of elements.
    """
    check_variable(x, "x", "prelu")
    check_variable(weight, "weight", "prelu")
    mode = "all" if numel(weight.shape) == 1 else "channel"
    out: Variable = emit("prelu", {"X": x, "Alpha": weight}, {"mode": mode, "data_format": data_format}, name=name)
    return out
