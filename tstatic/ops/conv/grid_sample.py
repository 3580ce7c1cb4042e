"""Reading images and volumes at places of a grid (`grid_sample`), and grids of affine maps (`affine_grid`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_choice, check_int, check_length, check_rank, check_same_dtype
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ops.elementwise.arithmetic import minimum
from tstatic.ops.elementwise.logic import logical_and, where
from tstatic.ops.elementwise.scale import cast, clip
from tstatic.ops.elementwise.unary import abs as magnitude
from tstatic.ops.elementwise.unary import floor
from tstatic.ops.elementwise.unary import round as rounded
from tstatic.ops.indexing.along_axis import take_along_axis
from tstatic.ops.shape.reshape import flatten, reshape, unsqueeze
from tstatic.ops.shape.sequence import linspace

_FLOATS = ("float32", "float64")


@export("nn.functional.affine_grid")
def affine_grid(
    theta: Variable, out_shape: Sequence[int], align_corners: bool = True, name: str | None = None
) -> Variable:
    """Returns the places that affine maps send the pixels of an image to, for :func:`grid_sample`.

    A pixel's place is ``(x, y)`` or ``(x, y, z)``, each from -1 to 1.

    Args:
        theta: Maps ``[n, 2, 3]`` of images or ``[n, 3, 4]`` of volumes; the last column is the shift.
        out_shape: Sizes ``[n, c, h, w]`` or ``[n, c, d, h, w]`` of the image that will be read; whole numbers.
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
    check_length(list(out_shape), (4, 5), "out_shape", "affine_grid")
    sizes = [check_int(size, "out_shape", "affine_grid", 1) for size in list(out_shape)[2:]]
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
        end = 0.0 if size == 1 else 1.0 if align_corners else 1.0 - 1.0 / size
        line = reshape(linspace(-end, end, size, theta.dtype), [size, *[1] * (column + 1)])
        places = places + maps[..., column] * line
    result: Variable = reshape(places, [0] * (count + 2), name)
    return result


def _place(x: Any, size: int, align_corners: bool) -> Any:
    """Returns what -1 to 1 means along an axis, in pixels."""
    return (x + 1.0) * ((size - 1) / 2) if align_corners else (x + 1.0) * (size / 2) - 0.5


def _mirrored(x: Any, size: int, align_corners: bool) -> Any:
    """Returns places that are mirrored at the outermost pixels or their edges, as often as it takes to be inside."""
    low, length = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if length == 0.0:
        return x * 0.0
    away = magnitude(x - low)
    rest = away - floor(away * (0.5 / length)) * (2.0 * length)
    return minimum(rest, 2.0 * length - rest) + low


@export("nn.functional.grid_sample")
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
        x: ``[n, c, h, w]`` or ``[n, c, d, h, w]`` with known sizes behind the channels; float32 or float64.
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
    sizes = tuple(x.shape[2:])
    check_fit(
        len(grid.shape) == len(x.shape) and grid.shape[-1] == len(sizes) and min(sizes) >= 1, (x, grid), ("x", "grid"),
        "the shapes given to grid_sample do not fit",
        "x [n, c, h, w] with known h and w, and grid [n, out_h, out_w, 2]; for volumes one axis more",
        "reshape the grid; give the image known sizes", "grid_sample",
    )  # fmt: skip
    # Along each axis: the pixels that are read, and the weight of each.
    reads: list[list[tuple[Any, Any]]] = []
    for column, size in enumerate(reversed(sizes)):
        place = _place(grid[..., column], size, align_corners)
        if padding_mode == "reflection":
            place = _mirrored(place, size, align_corners)
        if padding_mode != "zeros":
            place = clip(place, 0.0, size - 1.0)
        if mode == "nearest":
            near = rounded(place)
            pixels = [(near, None)]
        else:
            below = floor(place)
            part = place - below
            pixels = [(below, 1.0 - part), (below + 1.0, part)]
        reads.append([])
        for pixel, weight in pixels:
            inside = logical_and(pixel >= 0.0, pixel <= size - 1.0)
            # Outside there is nothing to read: any pixel will do, with weight 0.
            index = cast(where(inside, pixel, 0.0), "int64")
            seen = cast(inside, x.dtype)
            reads[-1].append((index, seen if weight is None else weight * seen))
    flat = flatten(x, 2)
    total: Any = None
    for corner in product(*reads):
        (index, weight), stride = corner[0], sizes[-1]
        for (along, share), size in zip(corner[1:], sizes[-2::-1], strict=True):
            index, weight, stride = index + along * stride, weight * share, stride * size
        picked = take_along_axis(flat, unsqueeze(flatten(index, 1), 1), 2)
        term = picked * unsqueeze(flatten(weight, 1), 1)
        total = term if total is None else total + term
    shape = [0, 0, *grid.shape[1:-1]]
    result: Variable = reshape(total, shape, name)
    return result
