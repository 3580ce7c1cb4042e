"""Local response normalisation across channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_choice, check_dtype, check_rank
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import plain
from tstatic.ir.split import FILTERS, Split
from tstatic.ir.types import Meta
from tstatic.ops._low import in_float32, torch_wide
from tstatic.ops.conv._sliding import first, layout_attr, torch_back, torch_first
from tstatic.ops.norm import _norm_onnx as _onnx
from tstatic.ops.norm.batch_norm import channel_layout
from tstatic.ops.shape._shapes import emit_one
from tstatic.tuned._common import Array


def _reach(n: int, before: int) -> tuple[int, int]:
    """Returns how many channels a window of ``n`` sees before and after its own."""
    ahead = (n - 1) // 2 if before < 0 else before
    return ahead, n - 1 - ahead


def _add_window(source: Array, target: Array, before: int, after: int) -> None:
    """``target[:, c] += sum(source[:, c - before : c + after + 1])`` along axis 1."""
    count = source.shape[1]
    for shift in range(-before, after + 1):
        low, high = max(0, -shift), min(count, count - shift)
        if low < high:
            place = target[:, low:high]
            np.add(place, source[:, low + shift : high + shift], place)


def _infer(x: Meta, data_format: str) -> tuple[Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    check_rank(x, (3, 4, 5), "X", layout=data_format)
    return x, x


def _scratch(x: Meta, out: Meta, mid: Meta | None) -> tuple[Meta, ...]:
    return (Meta(x.shape, x.dtype.compute),) * 2


@in_float32(outputs=2)
def _ref(
    x: Array,
    out: Array,
    mid: Array | None,
    n: int,
    k: float,
    alpha: float,
    beta: float,
    before: int,
    data_format: str,
    scratch: Sequence[Array],
) -> None:
    square, own = scratch
    total = own if mid is None else mid
    np.multiply(x, x, square)
    np.multiply(square, alpha, square)
    total.fill(k)
    _add_window(first(square, data_format), first(total, data_format), *_reach(n, before))
    np.power(total, -beta, out=square)
    np.multiply(x, square, out)


def _grad_scratch(x: Meta, out: Meta, mid: Meta, dout: Meta, dx: Meta) -> tuple[Meta, ...]:
    return (Meta(x.shape, x.dtype.compute),) * 2


@in_float32()
def _grad_ref(
    x: Array,
    out: Array,
    mid: Array,
    dout: Array,
    dx: Array,
    n: int,
    alpha: float,
    beta: float,
    before: int,
    data_format: str,
    scratch: Sequence[Array],
) -> None:
    # dx = dout * mid^-beta - 2 alpha beta x * sum(dout * out / mid), the sum over the windows that see this channel
    ratio, total = scratch
    np.multiply(dout, out, ratio)
    np.divide(ratio, mid, ratio)
    total.fill(0)
    ahead, after = _reach(n, before)
    _add_window(first(ratio, data_format), first(total, data_format), after, ahead)
    np.multiply(total, x, total)
    np.multiply(total, 2 * alpha * beta, total)
    np.power(mid, -beta, out=ratio)
    np.multiply(ratio, dout, ratio)
    np.subtract(ratio, total, dx)


def _torch_mid(torch: Any, x: Any, n: int, k: float, alpha: float, before: int) -> Any:
    ahead, after = _reach(n, before)
    square = x.square().flatten(2).transpose(1, 2)
    padded = torch.nn.functional.pad(square, (ahead, after))
    return (k + alpha * padded.unfold(2, n, 1).sum(-1)).transpose(1, 2).reshape(x.shape)


def _lower(torch: Any, x: Any, n: int, k: float, alpha: float, beta: float, before: int, data_format: str) -> Any:
    source = torch_wide(torch_first(x, data_format))
    mid = _torch_mid(torch, source, n, k, alpha, before)
    return tuple(torch_back(r, data_format, x.dtype) for r in (source * mid.pow(-beta), mid))


def _grad_lower(torch: Any, x: Any, out: Any, mid: Any, dout: Any, beta: float, data_format: str, **attrs: Any) -> Any:
    source, arrived = (torch_wide(torch_first(v, data_format)) for v in (x, dout))
    # From the input, because 16 bits have rounded what the forward op kept.
    sums = _torch_mid(torch, source, attrs["n"], attrs["k"], attrs["alpha"], attrs["before"])
    powers = sums.pow(-beta)
    ratio = (arrived * source * powers / sums).flatten(2).transpose(1, 2)
    ahead, after = _reach(attrs["n"], attrs["before"])
    total = torch.nn.functional.pad(ratio, (after, ahead)).unfold(2, attrs["n"], 1).sum(-1)
    dx = arrived * powers - 2 * attrs["alpha"] * beta * source * total.transpose(1, 2).reshape(source.shape)
    return torch_back(dx, data_format, x.dtype)


register(OpDef(
    "lrn", "X -> Out, MidOut~",
    attrs={
        "n": Attr(5, "int", lambda n: None if n > 0 else "a window of at least one channel"),
        "k": Attr(2.0, "float", lambda k: None if k > 0 else "a number above 0"),
        "alpha": Attr(0.0001, "float", lambda a: None if a >= 0 else "a number of at least 0"),
        "beta": Attr(0.75, "float", lambda b: None if b >= 0 else "a number of at least 0"),
        "before": Attr(-1, "int"),
        "data_format": layout_attr("NCHW"),
    },
    infer=_infer, ref=plain(_ref, _scratch), lower=_lower, split=Split(FILTERS, 0),
    grad=GradOp(
        "X, Out, MidOut, Out@GRAD -> X@GRAD",
        ref=plain(_grad_ref, _grad_scratch),
        lower=_grad_lower,
        split=Split(FILTERS, 0),
    ),
    amp="gray",
    domain=Domain(
        cases=(
            Case(((2, 7, 3, 3),), {}),
            Case(((2, 4, 2, 3),), {"n": 3, "k": 1.0, "alpha": 0.5, "beta": 0.5}),
            Case(((1, 3, 2, 5),), {"n": 5, "alpha": 0.3, "data_format": "NHWC"}),
            Case(((2, 5, 4),), {"n": 4, "alpha": 0.2, "before": 2}),
            Case(((1, 2, 2, 2, 2),), {"n": 9, "alpha": 0.2}),
            Case(((0, 3, 2, 2),), {"n": 3}),
            Case(((2, 3, 2, 2),), {"n": 1, "alpha": 1.0, "beta": 1.0}),
        ),
        ulps=16.0,
    ), onnx=lambda g, x, *, before, **a: _onnx.lrn(g, x, reach=_reach(a["n"], before), **a),
))  # fmt: skip


@export("fluid.layers.lrn", op="lrn")
def lrn(
    input: Variable,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """``y[c] = x[c] / (k + alpha * sum(x[j]^2 for j within (n - 1) / 2 of c)) ^ beta``.

    Args:
        input: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``), floats.
        n: Channels in a window, an odd number.
        k, alpha, beta: As in the formula.
        name: The layer's name.
        data_format: Where channels stand.

    Returns:
        A Variable like ``input``.

    Raises:
        ShapeError: For an even ``n``, another rank or layout.
    """
    check_variable(input, "input", "lrn")
    check_choice(data_format, ("NCHW", "NHWC"), "data_format", "lrn", error=ShapeError)
    if len(input.shape) != 4 or n % 2 == 0:
        raise ShapeError(
            "lrn takes images, and windows with as many channels on either side",
            expected="an input of rank 4 and an odd n",
            received=f"shape {list(input.shape)}, n={n}",
            fix="use paddle.nn.functional.local_response_norm for other ranks and even sizes",
            op="lrn",
        )
    attrs = {"n": n, "k": k, "alpha": alpha, "beta": beta, "data_format": data_format}
    return emit_one("lrn", {"X": input}, attrs, name=name)


@export("nn.functional.local_response_norm", op="lrn")
def local_response_norm(
    x: Variable,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """``y[c] = x[c] / (k + alpha * mean(x[j]^2 over the window of c)) ^ beta``, with zeros outside the channels.

    Args:
        x: ``[n, c, ...]`` or, channels last, ``[n, ..., c]``, of rank 3 to 5; floats.
        size: Channels in a window: ``size // 2`` before and the rest after.
        alpha, beta, k: As in the formula.
        data_format: ``NCL``, ``NCHW``, ``NCDHW``, ``NLC``, ``NHWC`` or ``NDHWC``.
        name: The layer's name.

    Returns:
        A Variable like ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.

    Example:
        >>> x = paddle.to_tensor([[[1.0], [2.0], [3.0]]])
        >>> y = paddle.nn.functional.local_response_norm(x, size=3, alpha=1.0)
        >>> static.Executor().run(fetch_list=[y])[0].ravel()
        array([0.4792, 0.5445, 0.8548], dtype=float32)
    """
    check_variable(x, "x", "local_response_norm")
    layout = channel_layout(data_format, "local_response_norm")
    attrs = {
        "n": size,
        "k": k,
        "alpha": alpha / size if size else alpha,
        "beta": beta,
        "before": size // 2,
        "data_format": layout,
    }
    return emit_one("lrn", {"X": x}, attrs, name=name)
