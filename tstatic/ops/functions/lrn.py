"""Local response normalisation across channels."""

from __future__ import annotations

from typing import Any

from tstatic.errors import ProgramError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_choice, check_dtype, check_int, check_number, check_rank
from tstatic.ir.composed import composed
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.sliding import is_last
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.elementwise.unary import square
from tstatic.ops.norm.batch_norm import channel_layout
from tstatic.ops.shape.reshape import flatten, reshape, squeeze, unsqueeze


def _sums(x: Variable, n: int, before: int, last: bool) -> Variable:
    """Returns the mean over windows of ``n`` channels of which ``before`` lie before a channel's own, zeros outside."""
    rank = len(x.shape)
    pads = before, n - 1 - before
    window: dict[str, Any] = {"pooling_type": "avg", "exclusive": False}

    def pooled(image: Variable, spatial: int, axis: int) -> Variable:
        sizes = [1] * spatial
        paddings = [0] * (2 * spatial)
        sizes[axis], paddings[2 * axis : 2 * axis + 2] = n, pads
        attrs = {"ksize": sizes, "strides": [1] * spatial, "paddings": paddings, **window}
        return emit_one(f"pool{spatial}d", {"X": image}, attrs)

    if last and rank > 3:
        # The first spatial axis takes the place of channels.
        return pooled(x, rank - 2, rank - 3)
    image = unsqueeze(x, 1)
    if last or rank == 3:
        return squeeze(pooled(image, 2, int(last)), 1)
    # One axis of places: windows over channels of a matrix are faster than of a volume.
    made = pooled(flatten(image, 3), 2, 0)
    # At most one unknown size fits the -1 of reshape; with more the shape is read when it runs.
    open_sizes = x.shape[2:].count(UNKNOWN)
    return reshape(made, [0, *x.shape[1:]] if open_sizes < 2 else emit_one("shape", {"Input": x}))


def _normalised(
    x: Variable, n: int, k: float, alpha: float, beta: float, before: int, data_format: str, name: str | None = None
) -> tuple[Variable, Variable]:
    """Emits ``x / mid ^ beta`` and ``mid``, which is ``k + alpha * sum(x^2)`` over a window of channels."""
    function = "lrn"
    check_dtype(x, FLOATS, "X", function)
    check_rank(x, (3, 4, 5), "X", function, layout=data_format)
    check_int(n, "n", function, 1, fix="give a window of at least one channel", error=ProgramError)
    check_number(k, "k", function, above=0)
    check_number(alpha, "alpha", function, least=0)
    check_number(beta, "beta", function, least=0)
    low = x.dtype.is_low
    # 16-bit floats are rounded once, at the end.
    wide = cast(x, "float32") if low else x
    mean = _sums(square(wide), n, (n - 1) // 2 if before < 0 else before, is_last(data_format))
    # The pool has divided by n, and the formula takes the sum.
    mid = emit_one("scale", {"X": mean}, {"scale": float(alpha * n), "bias": float(k)})
    factor = emit_one("pow", {"X": mid}, {"factor": -float(beta)})
    out = emit_one("elementwise_mul", {"X": wide, "Y": factor}, name=None if low else name)
    if low:
        out, mid = (
            emit_one("cast", {"X": v}, {"in_dtype": v.dtype, "out_dtype": x.dtype}, name=name) for v in (out, mid)
        )
    return out, mid


@composed("lrn")
def _lrn(
    X: Variable,
    *,
    n: int = 5,
    k: float = 2.0,
    alpha: float = 0.0001,
    beta: float = 0.75,
    before: int = -1,
    data_format: str = "NCHW",
) -> dict[str, Variable]:
    return dict(zip(("Out", "MidOut"), _normalised(X, n, k, alpha, beta, before, data_format), strict=True))


@export("fluid.layers.lrn")
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
    return _normalised(input, n, k, alpha, beta, -1, data_format, name)[0]


@export("nn.functional.local_response_norm")
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
    # Divided by the size, since the factor n of `_normalised` would turn this mean into a sum.
    return _normalised(x, size, k, alpha / size if size else alpha, beta, size // 2, layout, name)[0]
