"""Normalisation by sums that training collects: the sizes, sums and sums of squares of all batches so far."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.checks import check_divisible, check_dtype, check_has_shape, check_rank, check_same_dtype
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, ValueRange, register
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.norm import _norm_onnx as _onnx

Array = np.ndarray[Any, Any]

NOTHING = 1e-7
"""A slot whose first number is not further from 0 than this holds nothing."""


def _infer(
    x: Meta, scale: Meta | None, bias: Meta | None, size: Meta, total: Meta, squares: Meta, *, slot_dim: int
) -> tuple[Meta, Meta, Meta]:
    check_dtype(x, ("float32", "float64"), "X")
    check_rank(x, 2, "X", layout="[batch, features]")
    features = x.shape[1]
    if slot_dim > 0 and features != UNKNOWN:
        check_divisible(features, slot_dim, "the number of features", "slot_dim", "data_norm")
    for value, name in (
        (size, "BatchSize"), (total, "BatchSum"), (squares, "BatchSquareSum"), (scale, "scale_w"), (bias, "bias"),
    ):  # fmt: skip
        if value is not None:
            check_same_dtype((x, value), ("X", name))
            check_has_shape(value, (features,), name, why="a number per feature")
    return x, size, size


def _filled(x: Any, slot_dim: int) -> Any:
    """Returns where the slots of a row hold something, as truth values ``[batch, features]``."""
    # In Paddle's embeddings the first number of a slot is how often it was shown: 0 where nothing is known.
    return (abs(x[:, ::slot_dim]) > NOTHING).repeat(slot_dim, 1)


def _ref(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    size: Array,
    total: Array,
    squares: Array,
    y: Array | None,
    means: Array | None,
    scales: Array | None,
    *,
    slot_dim: int,
) -> None:
    # BatchSquareSum is collected around the mean, so its share is a variance.
    mean, factor = total / size, np.sqrt(size / squares)
    if means is not None:
        means[...] = mean
    if scales is not None:
        scales[...] = factor
    if y is not None:
        found = (x - mean) * factor
        if scale is not None:
            found = found * scale
        if bias is not None:
            found = found + bias
        y[...] = np.where(_filled(x, slot_dim), found, 0) if slot_dim > 0 else found


def _lower(
    torch: Any, x: Any, scale: Any, bias: Any, size: Any, total: Any, squares: Any, *, slot_dim: int
) -> Any:  # fmt: skip
    mean, factor = total / size, torch.sqrt(size / squares)
    found = (x - mean) * factor
    if scale is not None:
        found = found * scale
    if bias is not None:
        found = found + bias
    if slot_dim > 0:
        found = torch.where((x[:, ::slot_dim].abs() > NOTHING).repeat_interleave(slot_dim, 1), found, 0)
    return found, mean, factor


def _collected(x: Any, mean: Any, slot_dim: int, epsilon: float, filled: Any) -> tuple[Any, Any, Any]:
    """Returns what a batch adds to the three sums; of slots the mean over the rows in which they hold something."""
    if slot_dim <= 0:
        # The sum of no rows is a zero of the right type and device, for numpy and torch alike.
        return x[:0].sum(0) + len(x), x.sum(0), ((x - mean) ** 2).sum(0) + len(x) * epsilon
    count = filled.sum(0)
    # A slot that no row fills adds 0, not 0 / 0.
    some = count.clip(1)
    total, squares = (x * filled).sum(0) / some, ((x - mean) ** 2 * filled).sum(0) / some
    # Totals are means over the filled rows, so together they count as one row.
    return count.clip(0, 1), total, squares + count * epsilon


def _grad_ref(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    means: Array,
    scales: Array,
    dy: Array,
    dx: Array | None,
    dscale: Array | None,
    dbias: Array | None,
    dsize: Array | None,
    dtotal: Array | None,
    dsquares: Array | None,
    *,
    slot_dim: int,
    epsilon: float,
) -> None:
    # The statistics are constants here: no gradient passes through mean and factor.
    if dx is not None:
        np.multiply(dy, scales if scale is None else scales * scale, out=dx)
    if dscale is not None:
        np.sum(dy * (x - means) * scales, axis=0, out=dscale)
    if dbias is not None:
        np.sum(dy, axis=0, out=dbias)
    wanted = (dsize, dtotal, dsquares)
    if any(one is not None for one in wanted):
        filled = _filled(x, slot_dim) if slot_dim > 0 else None
        for out, made in zip(wanted, _collected(x, means, slot_dim, epsilon, filled), strict=True):
            if out is not None:
                out[...] = made


def _grad_lower(
    torch: Any, x: Any, scale: Any, bias: Any, means: Any, scales: Any, dy: Any, *, slot_dim: int, epsilon: float
) -> Any:  # fmt: skip
    filled = (x[:, ::slot_dim].abs() > NOTHING).repeat_interleave(slot_dim, 1) if slot_dim > 0 else None
    found = _collected(x, means, slot_dim, epsilon, filled)
    return (
        dy * (scales if scale is None else scales * scale),
        None if scale is None else (dy * (x - means) * scales).sum(0),
        None if bias is None else dy.sum(0),
        *(f.to(x.dtype) for f in found),
    )


# Clear of 0: the sizes and the sums of squares are divisors, and under a root.
_POSITIVE = ValueRange(5.0, 20.0)

register(OpDef(
    "data_norm", "X, scale_w?, bias?, BatchSize, BatchSum, BatchSquareSum -> Y, Means~, Scales~",
    attrs={
        "epsilon": 1e-5, "slot_dim": -1,
        "enable_scale_and_shift": Attr.idle(False, "the inputs say whether there is a scale"),
        "data_layout": Attr.idle("NCHW", "there are no axes but rows and features"),
        "summary_decay_rate": Attr.idle(0.9999999, "the optimizer alone changes the sums"),
        "sync_stats": Attr.idle(False, "gradients of the sums are averaged over places as those of all parameters"),
    },
    infer=_infer, ref=_ref, lower=_lower,
    grad=GradOp(
        "X, scale_w?, bias?, Means, Scales, Y@GRAD -> X@GRAD, scale_w@GRAD, bias@GRAD, BatchSize@GRAD, BatchSum@GRAD, "
        "BatchSquareSum@GRAD",
        infer=lambda x, scale, bias, means, scales, dy: (x, scale, bias, means, means, means),
        ref=_grad_ref, lower=_grad_lower,
    ),
    domain=Domain(
        cases=(
            Case(((3, 4), None, None, (4,), (4,), (4,))), Case(((5, 2), (2,), (2,), (2,), (2,), (2,)), {"epsilon": 0.1}),
            Case(((3, 6), None, None, (6,), (6,), (6,)), {"slot_dim": 3}),
            Case(((0, 2), None, None, (2,), (2,), (2,))),
        ),
        values={"BatchSize": _POSITIVE, "BatchSquareSum": _POSITIVE, "X": ValueRange(avoid=(0.0,))},
        floats=("float32", "float64"), ulps=32.0,
        check_grad="the gradients of the sums are what a batch adds to them",
    ), onnx=_onnx.data_norm,
))  # fmt: skip
