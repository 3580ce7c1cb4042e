"""Dropout of whole slices: elements along the other axes share one draw."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ShapeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, Shape, dtype_of, normalize_axis
from tstatic.ops.random._dropout import ATTRS, UPSCALE, check_float, gradient, scale_of, scaled, torch_keep, wide
from tstatic.tuned import draw
from tstatic.tuned.philox import philox_key

Array = np.ndarray[Any, Any]


def _mask_shape(x: Shape, axis: tuple[int, ...]) -> Shape:
    kept = {normalize_axis(a, len(x)) for a in axis}
    return tuple(s if i in kept else 1 for i, s in enumerate(x))


def _infer_nd(x: Meta, seed_input: Meta | None, axis: tuple[int, ...]) -> tuple[Meta, Meta]:
    check_float(x)
    return x, Meta(_mask_shape(x.shape, axis), dtype_of("uint8"))


def _ref_nd(
    x: Array,
    seed_input: Array | None,
    out: Array | None,
    mask: Array | None,
    *,
    dropout_prob: float,
    is_test: bool,
    dropout_implementation: str,
    seed: int,
    axis: tuple[int, ...],
    rng: Any,
) -> None:
    keep = np.empty(_mask_shape(x.shape, axis), np.uint8) if mask is None else mask
    if is_test:
        keep.fill(1)
    else:
        key = philox_key(rng, seed if seed_input is None else int(seed_input.flat[0]))
        draw.fill_keep(keep, dropout_prob, key, rng.start)
    if out is not None:
        scaled(x, None if is_test else keep, out, scale_of(dropout_prob, is_test, dropout_implementation))


def _lower_nd(
    torch: Any, x: Any, seed_input: Any, *, dropout_prob: float, is_test: bool, dropout_implementation: str, seed: int,
    axis: tuple[int, ...], rng: Any,
) -> Any:  # fmt: skip
    scale = scale_of(dropout_prob, is_test, dropout_implementation)
    shape = _mask_shape(tuple(x.shape), axis)
    if is_test:
        mask = torch.ones(shape, dtype=torch.uint8, device=x.device)
    else:
        key = philox_key(rng, seed if seed_input is None else int(seed_input.reshape(-1)[0]))
        mask = torch_keep(torch, shape, dropout_prob, key, rng.start, x.device)
    return (x.to(wide(torch, x)) * mask * scale).to(x.dtype), mask


register(
    OpDef(
        "dropout_nd",
        "X, Seed? -> Out, Mask~",
        attrs={**ATTRS, "axis": Attr((0,), "ints")},
        infer=_infer_nd,
        ref=_ref_nd,
        lower=_lower_nd,
        inplace=(("X", "Out"),),
        grad=gradient("dropout_nd_grad"),
        random=True,
        amp="gray",
        domain=Domain(
            cases=(
                Case(((40, 3),), {"axis": (0,), "dropout_implementation": UPSCALE}),
                Case(((4, 30),), {"axis": (1,)}),
                Case(((4, 6, 3, 2),), {"axis": (0, 1), "dropout_implementation": UPSCALE}),
                Case(((4, 6, 3, 2),), {"axis": (0, -1), "is_test": True}),
                Case(((0, 6),), {"axis": (1,)}),
            ),
            ulps=1,
        ),
    )
)


# ---------------------------------------------------------------------------------------------------- public functions
def _per_channel(x: Variable, p: float, training: bool, data_format: str, formats: tuple[str, str], name: str | None,
                 function: str) -> Variable:  # fmt: skip
    check_variable(x, "x", function)
    if data_format not in formats:
        raise ProgramError(
            f"'data_format' of {function} is not one of its two",
            expected=f"'{formats[0]}' or '{formats[1]}'",
            received=repr(data_format),
            fix=f"pass data_format='{formats[0]}'",
            op=function,
        )
    if x.ndim != len(formats[0]):
        raise ShapeError(
            f"{function} takes a value with a batch and a channel axis",
            expected=f"rank {len(formats[0])}",
            received=list(x.shape),
            fix="reshape the input",
            op=function,
            var=x.name,
        )
    if p == 0:
        return x
    attrs = {"dropout_prob": p, "is_test": not training, "dropout_implementation": UPSCALE,
             "axis": (0, data_format.index("C"))}  # fmt: skip
    return emit("dropout_nd", {"X": x}, attrs, name=name, prefix="dropout")  # type: ignore[no-any-return]


@export("nn.functional.dropout2d", op="dropout_nd")
def dropout2d(
    x: Variable, p: float = 0.5, training: bool = True, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Zeroes whole channels of ``x`` ([N, C, H, W], or [N, H, W, C]) with chance ``p``.

    Example:
        >>> x = paddle.ones([50, 2, 3, 3])
        >>> y = paddle.nn.functional.dropout2d(x, p=0.75)
        >>> value = static.Executor().run(fetch_list=[y])[0]
        >>> np.unique(value), bool((value == value[:, :, :1, :1]).all())
        (array([0., 4.], dtype=float32), True)
    """
    return _per_channel(x, p, training, data_format, ("NCHW", "NHWC"), name, "dropout2d")


@export("nn.functional.dropout3d", op="dropout_nd")
def dropout3d(
    x: Variable, p: float = 0.5, training: bool = True, data_format: str = "NCDHW", name: str | None = None
) -> Variable:
    """Zeroes whole channels of ``x`` ([N, C, D, H, W], or [N, D, H, W, C]) with chance ``p``.

    Example:
        >>> x = paddle.ones([50, 2, 3, 3, 3])
        >>> y = paddle.nn.functional.dropout3d(x, p=0.75)
        >>> value = static.Executor().run(fetch_list=[y])[0]
        >>> np.unique(value), bool((value == value[:, :, :1, :1, :1]).all())
        (array([0., 4.], dtype=float32), True)
    """
    return _per_channel(x, p, training, data_format, ("NCDHW", "NDHWC"), name, "dropout3d")
