"""Reading images and volumes at places of a grid (`grid_sample`), and grids of affine maps (`affine_grid`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tstatic.ir.attrs import one_of
from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    check_choice,
    check_dtype,
    check_int,
    check_length,
    check_rank,
    check_same_dtype,
    check_type,
    same_shape,
)
from tstatic.ir.export import respell
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN, DType, Meta
from tstatic.no_effect import LIBRARY
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.conv import _conv_onnx as _onnx
from tstatic.ops.conv._reading import Array, Reading, as_rows, store_rows
from tstatic.ops.shape.fill import has_variable
from tstatic.ops.shape.number_of import number_of
from tstatic.ops.shape.reshape import reshape, unsqueeze
from tstatic.ops.shape.sequence import linspace
from tstatic.ops.shape.when_run import elements_of

_FLOATS = ("float32", "float64")
_FAR = 1e4
"""A place outside of all images, whose pixel is still a 32-bit number."""


@export("nn.functional.affine_grid")
@respell("fluid.layers.affine_grid", takes="theta, out_shape, name=None")
def affine_grid(theta: Variable, out_shape: Any, align_corners: bool = True, name: str | None = None) -> Variable:
    """Returns the places that affine maps send the pixels of an image to, for :func:`grid_sample`.

    A pixel's place is ``(x, y)`` or ``(x, y, z)``, each from -1 to 1.

    Args:
        theta: Maps ``[n, 2, 3]`` of images or ``[n, 3, 4]`` of volumes; the last column is the shift.
        out_shape: Sizes ``[n, c, h, w]`` or ``[n, c, d, h, w]`` of the image that will be read; whole numbers, or
            integer Variables, or one Variable that holds them.
        align_corners: Whether -1 and 1 are the centres of the outermost pixels, or their outer edges.
        name: Name of the last layer.

    Returns:
        ``[n, h, w, 2]`` or ``[n, d, h, w, 3]``.

    Raises:
        ShapeError: If the shapes do not fit.

    Example:
        >>> theta = paddle.to_tensor([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]])
        >>> grid = paddle.nn.functional.affine_grid(theta, [1, 1, 1, 3])
        >>> static.Executor().run(fetch_list=[grid])[0][0, 0]
        array([[-0.5,  0. ],
               [ 0.5,  0. ],
               [ 1.5,  0. ]], dtype=float32)
    """
    check_variable(theta, "theta", "affine_grid", _FLOATS)
    given = elements_of(out_shape, "affine_grid", "out_shape") if has_variable(out_shape) else list(out_shape)
    check_length(given, (4, 5), "out_shape", "affine_grid")
    sizes = [
        number_of(size, "out_shape", "affine_grid", "int64")
        if isinstance(size, Variable)
        else check_int(size, "out_shape", "affine_grid", 1)
        for size in given[2:]
    ]
    count = len(sizes)
    check_fit(
        len(theta.shape) == 3 and tuple(theta.shape[1:]) == (count, count + 1), [theta], ["theta"],
        "the shape of 'theta' does not fit 'out_shape'", f"shape [n, {count}, {count + 1}]",
        "pass [n, 2, 3] with four sizes, or [n, 3, 4] with five", "affine_grid",
    )  # fmt: skip
    maps = unsqueeze(theta, list(range(1, count + 1)))
    places: Any = maps[..., count]
    # The columns of a map are in the order x, y, z, the axes of an image in the order z, y, x.
    for column, size in enumerate(reversed(sizes)):
        if isinstance(size, Variable):
            line = _line_when_run(size, align_corners, theta.dtype)
        else:
            # Without aligned corners -1 and 1 are the borders, half a pixel outside of the first middle and the last.
            end = 0.0 if size == 1 else 1.0 if align_corners else 1.0 - 1.0 / size
            line = linspace(-end, end, size, theta.dtype)
        line = reshape(line, [-1, *[1] * (column + 1)])
        places = places + maps[..., column] * line
    result: Variable = reshape(places, [0] * (count + 2), name)
    return result


def _line_when_run(size: Variable, align_corners: bool, dtype: DType) -> Variable:
    """Returns the places of ``size`` pixels along an axis, for a size that is known when the program runs."""
    count = emit_one("cast", {"X": size}, {"in_dtype": size.dtype, "out_dtype": dtype})
    if align_corners:
        # A single pixel lies in the middle.
        end = emit_one("clip", {"X": count - 1.0}, {"min": 0.0, "max": 1.0})
    else:
        end = emit_one("scale", {"X": emit_one("reciprocal", {"X": count})}, {"scale": -1.0, "bias": 1.0})
    return linspace(emit_one("scale", {"X": end}, {"scale": -1.0}), end, size, dtype)


# ------------------------------------------------------------------------------------------------------------- the op
def _infer(x: Meta, grid: Meta) -> Meta:
    check_dtype(x, _FLOATS, "X")
    check_same_dtype((x, grid), ("X", "Grid"))
    check_rank(x, (4, 5), "X", layout="[n, c, h, w] or [n, c, d, h, w]")
    axes = x.rank - 2
    check_fit(
        grid.rank == x.rank and grid.shape[-1] in (UNKNOWN, axes) and 0 not in x.shape[2:]
        and same_shape(grid.shape[:1], x.shape[:1]), (x, grid), ("X", "Grid"), "the shapes given to grid_sample do not fit",
        "x [n, c, h, w] with pixels, and grid [n, out_h, out_w, 2]; for volumes one axis more", "reshape the grid",
    )  # fmt: skip
    return x.with_shape((max(x.shape[0], grid.shape[0]), x.shape[1], *grid.shape[1:-1]))


def _pixels(x: Array, size: int, padding_mode: str, align_corners: bool) -> tuple[Array, Any]:
    """Returns where places from -1 to 1 lie along an axis, in pixels, and the slope of that: a number or an array."""
    slope: Any = (size - 1) / 2 if align_corners else size / 2
    place: Any = (x + 1) * slope if align_corners else (x + 1) * slope - 0.5
    place = np.asarray(place, x.dtype)
    if padding_mode == "reflection":
        low, length = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        # One pixel, with aligned corners: every place is reflected onto it.
        if length == 0.0:
            return np.zeros_like(place), 0.0
        away = np.abs(place - low)
        # The distance within two lengths, there and back; a reflection turns the slope around.
        rest = away - np.floor(away * (0.5 / length)) * (2.0 * length)
        slope = np.where((place < low) != (rest > length), -slope, slope)
        place = np.minimum(rest, 2.0 * length - rest) + low
    # On the border itself the place is held, so it has no slope.
    if padding_mode != "zeros":
        slope = np.where((place > 0) & (place < size - 1), slope, 0.0)
        place = np.clip(place, 0.0, size - 1.0)
    return place, slope


def _reading(
    x: Array, grid: Array, mode: str, padding_mode: str, align_corners: bool
) -> tuple[Reading, list[Any]]:  # fmt: skip
    """Returns the points of a grid, and the slopes of their places along the axes of the image."""
    sizes = x.shape[2:]
    flat = grid.reshape(-1, len(sizes))
    places, slopes = zip(
        # The grid has x first, the sizes have it last.
        *(_pixels(flat[:, -1 - axis], size, padding_mode, align_corners) for axis, size in enumerate(sizes)),
        strict=True,
    )
    each = math.prod(grid.shape[1:-1])
    first = np.repeat(np.arange(len(x)) * math.prod(sizes), each)
    return Reading(places, sizes, first, mode == "nearest"), list(slopes)


def _ref(x: Array, grid: Array, out: Array, *, mode: str, padding_mode: str, align_corners: bool) -> None:
    if out.size:
        store_rows(_reading(x, grid, mode, padding_mode, align_corners)[0].read(as_rows(x)), out)


def _grad_ref(
    x: Array, grid: Array, dout: Array, dx: Array | None, dgrid: Array | None,
    *, mode: str, padding_mode: str, align_corners: bool,
) -> None:  # fmt: skip
    reading, slopes = _reading(x, grid, mode, padding_mode, align_corners)
    grads = as_rows(dout)
    if dx is not None:
        rows = np.zeros((len(x) * math.prod(x.shape[2:]), x.shape[1]), x.dtype)
        reading.spread(grads, rows)
        store_rows(rows, dx)
    if dgrid is not None:
        # By the chain rule, from pixels to places between -1 and 1.
        along = [found * slope for found, slope in zip(reading.slopes(as_rows(x), grads), slopes, strict=True)]
        np.copyto(dgrid, np.stack(along[::-1], axis=-1).reshape(dgrid.shape))


def _lower(torch: Any, x: Any, grid: Any, *, mode: str, padding_mode: str, align_corners: bool) -> Any:
    shape = (*x.shape[:2], *grid.shape[1:-1])
    if 0 in shape:
        # torch refuses images and grids without elements.
        return x.new_zeros(shape)
    return torch.nn.functional.grid_sample(x, _near(torch, grid), mode, padding_mode, align_corners)


def _near(torch: Any, grid: Any) -> Any:
    """Returns a grid without places so far away, or NaN, that torch on the CPU ends the process in their gradients."""
    return torch.nan_to_num(grid, nan=_FAR).clamp_(-_FAR, _FAR) if grid.device.type == "cpu" else grid


def _grad_lower(
    torch: Any, x: Any, grid: Any, dout: Any, *, mode: str, padding_mode: str, align_corners: bool
) -> Any:  # fmt: skip
    if dout.numel() == 0:
        return torch.zeros_like(x), torch.zeros_like(grid)
    aten = torch.ops.aten
    function = aten.grid_sampler_2d_backward if x.dim() == 4 else aten.grid_sampler_3d_backward
    # torch numbers its modes.
    modes = ("bilinear", "nearest").index(mode), ("zeros", "border", "reflection").index(padding_mode)
    return function(dout, x, _near(torch, grid), *modes, align_corners, [True, True])


register(OpDef(
    "grid_sampler", "X, Grid -> Output",
    attrs={
        "mode": Attr("bilinear", "str", one_of("bilinear", "nearest")),
        "padding_mode": Attr("zeros", "str", one_of("zeros", "border", "reflection")),
        "align_corners": True, "use_cudnn": Attr.idle(True, LIBRARY),
    },
    infer=_infer, ref=_ref, lower=_lower, uses_blas=True, amp="black",
    grad=GradOp("X, Grid, Output@GRAD -> X@GRAD, Grid@GRAD", ref=_grad_ref, lower=_grad_lower),
    # Multiples of a quarter are pixels, or half-way between two, along axes of 2 to 5 pixels.
    domain=Domain(
        cases=(
            Case(((2, 3, 3, 5), (2, 2, 4, 2))), Case(((1, 2, 4, 2), (1, 3, 2, 2)), {"align_corners": False}),
            Case(((2, 2, 3, 3), (2, 2, 2, 2)), {"padding_mode": "border"}),
            Case(((1, 2, 4, 4), (1, 2, 3, 2)), {"padding_mode": "border", "align_corners": False}),
            Case(((1, 2, 5, 3), (1, 2, 3, 2)), {"padding_mode": "reflection"}),
            Case(((1, 2, 2, 4), (1, 2, 3, 2)), {"padding_mode": "reflection", "align_corners": False}),
            Case(((2, 1, 3, 5), (2, 2, 2, 2)), {"mode": "nearest"}),
            Case(((1, 2, 3, 2, 3), (1, 2, 1, 3, 3))),
            Case(((1, 2, 2, 4, 4), (1, 1, 2, 2, 3)), {"padding_mode": "reflection", "align_corners": False}),
            Case(((1, 1, 1, 3), (1, 2, 2, 2)), {"padding_mode": "reflection"}), Case(((0, 2, 3, 3), (0, 2, 2, 2))),
        ),
        values={"Grid": ValueRange(-1.6, 1.6, avoid=tuple(k / 4 for k in range(-6, 7)))}, floats=_FLOATS, ulps=32.0,
    ), onnx=_onnx.grid_sample,
))  # fmt: skip


@export("nn.functional.grid_sample", op="grid_sampler")
def grid_sample(
    x: Variable,
    grid: Variable,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = True,
    name: str | None = None,
) -> Variable:
    """Reads images or volumes at the places of a grid.

    Args:
        x: ``[n, c, h, w]`` or ``[n, c, d, h, w]`` float32 or float64.
        grid: Places ``(x, y)``, ``[n, out_h, out_w, 2]``, or ``(x, y, z)``, ``[n, out_d, out_h, out_w, 3]``; -1 and 1 are the ends.
        mode: ``"bilinear"`` between the nearest pixels, or ``"nearest"``.
        padding_mode: Outside of the image are ``"zeros"``, its ``"border"``, or its mirror image (``"reflection"``).
        align_corners: Whether -1 and 1 are the centres of the outermost pixels, or their outer edges.
        name: Name of the last layer.

    Returns:
        ``[n, c, out_h, out_w]`` or ``[n, c, out_d, out_h, out_w]``.

    Raises:
        ShapeError: If the shapes do not fit.

    Example:
        >>> x = paddle.to_tensor([[[[1.0, 2.0, 3.0]]]])
        >>> grid = paddle.to_tensor([[[[-0.5, 0.0], [1.0, 0.0]]]])
        >>> y = paddle.nn.functional.grid_sample(x, grid)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[1.5, 3. ]]]], dtype=float32)
    """
    check_choice(mode, ("bilinear", "nearest"), "mode", "grid_sample")
    check_choice(padding_mode, ("zeros", "border", "reflection"), "padding_mode", "grid_sample")
    check_variable(x, "x", "grid_sample", _FLOATS)
    check_variable(grid, "grid", "grid_sample", _FLOATS)
    check_same_dtype((x, grid), ("x", "grid"), "grid_sample")
    check_rank(x, (4, 5), "x", "grid_sample")
    attrs = {
        "mode": mode,
        "padding_mode": padding_mode,
        "align_corners": check_type(align_corners, bool, "align_corners", "grid_sample"),
    }
    return emit_one("grid_sampler", {"X": x, "Grid": grid}, attrs, name=name)


@export("fluid.layers.grid_sampler", op="grid_sampler")
def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
    """Reads images at the places of a grid as :func:`grid_sample` does by default.

    Args:
        x: ``[n, c, h, w]``; float32 or float64.
        grid: Places ``(x, y)``, ``[n, out_h, out_w, 2]``; -1 and 1 are the centres of the outermost pixels.
        name: Name of the layer.
    """
    return grid_sample(x, grid, name=name)
