"""Op types of Paddle 1.x that later ones replaced: what raw ``append_op`` builds for them, from ordinary ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.ir.composed import composed
from tstatic.ir.program import Variable
from tstatic.no_effect import PLACE, no_effect
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.arithmetic import divide, multiply, subtract
from tstatic.ops.elementwise.logic import isfinite, where
from tstatic.ops.elementwise.scale import cast, scale
from tstatic.ops.elementwise.unary import abs, sqrt, square
from tstatic.ops.functions.interpolate_functions import resize_bilinear, resize_nearest
from tstatic.ops.functions.linear import cos_sim
from tstatic.ops.functions.placing import multiplex
from tstatic.ops.indexing.unique import fluid_unique_with_counts
from tstatic.ops.matmul.matmul import fluid_matmul
from tstatic.ops.reduce.extrema import all
from tstatic.ops.reduce.ordering import topk
from tstatic.ops.reduce.reduction import sum
from tstatic.ops.shape.creation import full
from tstatic.ops.shape.reshape import fluid_flatten, reshape, squeeze, unsqueeze
from tstatic.ops.shape.slicing import crop
from tstatic.ops.shape.transpose import reverse, transpose

Results = Mapping[str, Variable]
NO_DEPTH = "the input has no depth"
BY_TYPE = "the operator's type says it"


@composed("matmul")
def _matmul(
    X: Variable, Y: Variable, *, transpose_X: bool = False, transpose_Y: bool = False, alpha: float = 1.0
) -> Results:
    """A vector X is a row, transposed a column; a vector Y is a column, transposed a row; one number has shape [1]."""
    # Unlike the layer, both transposed vectors make a matrix, and a transposed one alone meets a matrix.
    return {"Out": fluid_matmul(X, Y, transpose_X, transpose_Y, alpha)}


@composed("squeeze")
def _squeeze(X: Variable, *, axes: Sequence[int] = ()) -> Results:
    return {"Out": squeeze(X, list(axes) or None)}


@composed("unsqueeze")
def _unsqueeze(X: Variable, *, axes: Sequence[int]) -> Results:
    return {"Out": unsqueeze(X, list(axes))}


@composed("reshape")
def _reshape(X: Variable, *, shape: Sequence[int]) -> Results:
    return {"Out": reshape(X, list(shape))}


@composed("transpose")
def _transpose(X: Variable, *, axis: Sequence[int]) -> Results:
    return {"Out": transpose(X, list(axis))}


@composed("flatten")
def _flatten(X: Variable, *, axis: int = 1) -> Results:
    return {"Out": fluid_flatten(X, axis)}


@composed("reverse")
def _reverse(X: Variable, *, axis: Sequence[int]) -> Results:
    return {"Out": reverse(X, axis)}


@composed("crop")
def _crop(X: Variable, Y: Variable | None = None, *, offsets: Sequence[int] = (), shape: Sequence[int] = ()) -> Results:
    return {"Out": crop(X, list(shape) if Y is None else list(Y.shape), list(offsets) or None)}


@composed("top_k")
def _top_k(X: Variable, *, k: int = 1) -> Results:
    return dict(zip(("Out", "Indices"), topk(X, k), strict=True))


@composed("fill")
@no_effect(force_cpu=PLACE)
def _fill(*, shape: Sequence[int], value: Sequence[float], dtype: Any = "float32", force_cpu: bool = False) -> Results:
    if len(value) == 1:
        return {"Out": full(list(shape), value[0], dtype)}
    made = emit_one("assign_value", {}, {"shape": list(shape), "dtype": dtype, "values": list(value)})
    return {"Out": made}


@composed("isfinite")
def _isfinite(X: Variable) -> Results:
    """Whether all elements are finite."""
    # Paddle 1.x has no shape []: single numbers have the shape [1].
    return {"Out": reshape(all(isfinite(X)), [1])}


@composed("minus")
def _minus(X: Variable, Y: Variable) -> Results:
    return {"Out": subtract(X, Y)}


@composed("l1_norm")
def _l1_norm(X: Variable) -> Results:
    return {"Out": reshape(sum(abs(X)), [1])}


@composed("squared_l2_distance")
def _squared_l2_distance(X: Variable, Y: Variable) -> Results:
    difference = subtract(X, Y)
    # One row per sample, whatever the rank is.
    rows = reshape(square(difference), [X.shape[0], -1])
    return {"sub_result": difference, "Out": sum(rows, 1, keepdim=True)}


@composed("cos_sim")
def _cos_sim(X: Variable, Y: Variable) -> Results:
    lengths = {f"{name}Norm": sqrt(sum(square(v), -1, keepdim=True)) for name, v in (("X", X), ("Y", Y))}
    return {"Out": cos_sim(X, Y), **lengths}


@composed("norm")
def _norm(X: Variable, *, axis: int = -1, epsilon: float = 1e-10) -> Results:
    """X over its length along an axis; Norm is the length."""
    # epsilon is within the root, so a row of zeros is divided by sqrt(epsilon).
    length = sqrt(scale(sum(square(X), axis, keepdim=True), bias=epsilon))
    return {"Out": divide(X, length), "Norm": length}


@composed("smooth_l1_loss")
def _smooth_l1_loss(
    X: Variable,
    Y: Variable,
    InsideWeight: Variable | None = None,
    OutsideWeight: Variable | None = None,
    *,
    sigma: float = 1.0,
) -> Results:
    """Diff is the weighted difference d; Out sums 0.5 (sigma d)^2 up to 1 / sigma^2, abs(d) - 0.5 / sigma^2 beyond."""
    bound = 1.0 / (sigma * sigma)
    difference = subtract(X, Y) if InsideWeight is None else multiply(subtract(X, Y), InsideWeight)
    size = abs(difference)
    loss = where(size < bound, scale(square(difference), 0.5 * sigma * sigma), scale(size, bias=-0.5 * bound))
    loss = loss if OutsideWeight is None else multiply(loss, OutsideWeight)
    return {"Diff": difference, "Out": sum(reshape(loss, [X.shape[0], -1]), 1, keepdim=True)}


@composed("modified_huber_loss")
def _modified_huber_loss(X: Variable, Y: Variable) -> Results:
    """With z = X (2 Y - 1): -4 z below -1, (1 - z)^2 up to 1, then 0."""
    z = multiply(X, scale(cast(Y, X.dtype), 2.0, -1.0))
    # z is clipped, so that the square is 0 from 1 on.
    middle = square(scale(emit_one("brelu", {"X": z}, {"t_min": -1.0, "t_max": 1.0}), -1.0, 1.0))
    return {"IntermediateVal": z, "Out": where(z < -1.0, scale(z, -4.0), middle)}


@composed("multiplex")
def _multiplex(X: Sequence[Variable], Ids: Variable) -> Results:
    return {"Out": multiplex(X, Ids)}


@composed("unique_with_counts")
def _unique_with_counts(X: Variable, *, dtype: Any = "int32") -> Results:
    return dict(zip(("Out", "Index", "Count"), fluid_unique_with_counts(X, dtype), strict=True))


def _interpolated(
    resize: Any, X: Variable, out_h: int, out_w: int, scale: float, layout: str, **options: Any
) -> Results:
    # A scale of 0 means that the sizes count.
    shape = [out_h, out_w] if scale <= 0 else None
    return {"Out": resize(X, shape, scale if scale > 0 else None, data_format=layout, **options)}


@composed("nearest_interp")
@no_effect(out_d=NO_DEPTH, interp_method=BY_TYPE, align_mode="it chooses between two ways to interpolate linearly")
def _nearest_interp(
    X: Variable,
    *,
    out_h: int = 0,
    out_w: int = 0,
    out_d: int = 0,
    scale: float = 0.0,
    interp_method: str = "nearest",
    align_corners: bool = True,
    align_mode: int = 1,
    data_layout: str = "NCHW",
) -> Results:
    return _interpolated(resize_nearest, X, out_h, out_w, scale, data_layout, align_corners=align_corners)


@composed("bilinear_interp")
@no_effect(out_d=NO_DEPTH, interp_method=BY_TYPE)
def _bilinear_interp(
    X: Variable,
    *,
    out_h: int = 0,
    out_w: int = 0,
    out_d: int = 0,
    scale: float = 0.0,
    interp_method: str = "bilinear",
    align_corners: bool = True,
    align_mode: int = 1,
    data_layout: str = "NCHW",
) -> Results:
    options = {"align_corners": align_corners, "align_mode": align_mode}
    return _interpolated(resize_bilinear, X, out_h, out_w, scale, data_layout, **options)
