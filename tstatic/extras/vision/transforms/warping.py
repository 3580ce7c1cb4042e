"""Functions that move the pixels of one image: rotations, affine maps, perspective; numpy alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError, shown
from tstatic.extras.vision.transforms.functions import Array, as_image
from tstatic.ir.checks import check_choice, check_number
from tstatic.ir.opdef import export

WARPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}
"""Interpolation -> how many pixels along an axis make a value between them."""
Map = tuple[float, ...]
"""``(a, b, c, d, e, f)``: the point of the source for a point of the result, ``(a x + b y + c, d x + e y + f)``; with two more
numbers ``g, h`` both are divided by ``g x + h y + 1``."""


def numbers(value: Any, arg: str, function: str, counts: Sequence[int] = (2,)) -> list[float]:
    """Returns a sequence of so many finite numbers.

    Raises:
        ProgramTypeError: If it is not a sequence.
        ProgramError: If it has another length.
    """
    said = " or ".join(map(str, counts))
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise ProgramTypeError(
            f"Argument {arg} should be a sequence", expected=f"{said} numbers", received=shown(value),
            fix=f"{arg}=({', '.join('0' * counts[0])})", op=function,
        )  # fmt: skip
    if len(value) not in counts:
        raise ProgramError(
            f"{arg} should be sequence of length {said}", expected=f"{said} numbers", received=shown(value),
            fix=f"{arg}=({', '.join('0' * counts[0])})", op=function,
        )  # fmt: skip
    return [check_number(v, arg, function) for v in value]


def _between(values: list[Array], d: Array) -> Array:
    """Returns the value at a distance ``d`` behind the middle of one, two or four pixels."""
    if len(values) == 1:
        return values[0]
    if len(values) == 2:
        first, second = values
        line: Array = first + (second - first) * d
        return line
    # The cubic through the two in the middle.
    u, v, w, z = values
    cubic: Array = v + d * (w - u + d * (2 * (u - v) + w - z + d * (v - u + z - w)))
    return cubic


def _pixels(at: Array, size: int, count: int) -> tuple[list[Array], Array]:
    """Returns the pixels around each point along an axis, and how far it is; pixels have their middles at 0.5, 1.5, ..."""
    low = np.floor(at if count == 1 else at - 0.5)
    first = low.astype(np.int64) - (count == 4)
    return [np.clip(first + i, 0, size - 1) for i in range(count)], at - 0.5 - low


def _warp(found: Array, source: Map, size: tuple[int, int], interpolation: str, fill: Any) -> Array:
    """Returns an image of a size ``(height, width)``, each pixel from where ``source`` says; ``fill`` where that is outside."""
    height, width = found.shape[:2]
    a, b, c, d, e, f = source[:6]
    x, y = np.meshgrid(np.arange(size[1]) + 0.5, np.arange(size[0]) + 0.5)
    under: Any = source[6] * x + source[7] * y + 1 if len(source) == 8 else 1.0
    across, down = (a * x + b * y + c) / under, (d * x + e * y + f) / under
    inside = (across >= 0) & (across < width) & (down >= 0) & (down < height)
    across, down = across[inside], down[inside]
    tail = (1,) * (found.ndim - 2)
    rows, down = _pixels(down, height, WARPS[interpolation])
    columns, across = _pixels(across, width, WARPS[interpolation])
    down, across = down.reshape(-1, *tail), across.reshape(-1, *tail)
    wide = found if interpolation == "nearest" else found.astype(np.float64)
    picked = _between([_between([wide[row, column] for column in columns], across) for row in rows], down)
    if found.dtype.kind in "iu":
        limits = np.iinfo(found.dtype)
        picked = np.clip(picked, limits.min, limits.max)
    out = np.empty((*size, *found.shape[2:]), found.dtype)
    out[...] = fill
    out[inside] = picked
    return out


def _rotation(degrees: float, center: tuple[float, float], shift: tuple[float, float] = (0, 0)) -> Map:
    """Returns the map of a turn around a point, behind which the result is shifted."""
    angle = -math.radians(degrees)
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    x, y = -center[0] - shift[0], -center[1] - shift[1]
    return cos, sin, cos * x + sin * y + center[0], -sin, cos, -sin * x + cos * y + center[1]


@export("vision.transforms.rotate")
def rotate(
    img: Any, angle: float, interpolation: str = "nearest", expand: bool = False, center: Any = None, fill: Any = 0
) -> Array:
    """Returns an image turned counter-clockwise.

    Args:
        img: ``[height, width, channels]`` or ``[height, width]``.
        angle: Degrees.
        interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``.
        expand: Make the result so large that it holds all of the image.
        center: ``(x, y)`` around which it turns, from the upper left corner; the middle if ``None``.
        fill: Value of the pixels from outside of the image, or one per channel.

    Raises:
        ProgramError: For another interpolation, or a center that is not two numbers.

    Example:
        >>> paddle.vision.transforms.rotate(np.array([[1, 2], [3, 4]]), 90)
        array([[2, 4],
               [1, 3]])
    """
    check_choice(interpolation, tuple(WARPS), "interpolation", "rotate")
    found = as_image(img, "rotate")
    degrees = check_number(angle, "angle", "rotate") % 360.0
    height, width = found.shape[:2]
    if (
        center is None
        and degrees in (0.0, 90.0, 180.0, 270.0)
        and (expand or degrees in (0.0, 180.0) or height == width)
    ):
        return np.ascontiguousarray(np.rot90(found, int(degrees) // 90))
    x, y = (width / 2.0, height / 2.0) if center is None else numbers(center, "center", "rotate")
    source = _rotation(degrees, (x, y))
    if expand:
        a, b, c, d, e, f = source
        corners = [
            (a * u + b * v + c, d * u + e * v + f) for u, v in ((0, 0), (width, 0), (width, height), (0, height))
        ]
        sizes = [math.ceil(max(side)) - math.floor(min(side)) for side in zip(*corners, strict=True)]
        u, v = -(sizes[0] - width) / 2.0, -(sizes[1] - height) / 2.0
        source = (a, b, a * u + b * v + c, d, e, d * u + e * v + f)
        width, height = sizes
    return _warp(found, source, (height, width), interpolation, fill)


@export("vision.transforms.affine")
def affine(
    img: Any, angle: float, translate: Any, scale: float, shear: Any, interpolation: str = "nearest", fill: Any = 0,
    center: Any = None,
) -> Array:  # fmt: skip
    """Returns an image that is turned, sheared, scaled and shifted.

    Args:
        img: ``[height, width, channels]`` or ``[height, width]``.
        angle: Degrees, clockwise.
        translate: Pixels to the right and down.
        scale: A factor above 0.
        shear: Degrees along x, or along x and y.
        interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``.
        fill: Value of the pixels from outside of the image, or one per channel.
        center: ``(x, y)`` that stays where it is, from the upper left corner; the middle if ``None``.

    Raises:
        ProgramTypeError, ProgramError: For values out of range, or of another length.

    Example:
        >>> paddle.vision.transforms.affine(np.array([[1, 2, 3]]), 0, (1, 0), 1.0, 0, fill=9)
        array([[9, 1, 2]])
    """
    name = "affine"
    check_choice(interpolation, tuple(WARPS), "interpolation", name)
    found = as_image(img, name)
    height, width = found.shape[:2]
    turned = math.radians(check_number(angle, "angle", name))
    dx, dy = numbers(translate, "translate", name)
    factor = check_number(scale, "scale", name, above=0)
    sheared = [shear, 0.0] if isinstance(shear, int | float) else numbers(shear, "shear", name, (2, 1))
    sx, sy = (math.radians(v) for v in (sheared * 2)[:2])
    x, y = (width * 0.5, height * 0.5) if center is None else numbers(center, "center", name)
    # Rotation and shear; its determinant is 1, so that its inverse has the same numbers in other places.
    a, c = math.cos(turned - sy) / math.cos(sy), math.sin(turned - sy) / math.cos(sy)
    b, d = -a * math.tan(sx) - math.sin(turned), -c * math.tan(sx) + math.cos(turned)
    rows = [(d / factor, -b / factor), (-c / factor, a / factor)]
    source = [n for (u, v), at in zip(rows, (x, y), strict=True) for n in (u, v, u * (-x - dx) + v * (-y - dy) + at)]
    return _warp(found, tuple(source), (height, width), interpolation, fill)


@export("vision.transforms.perspective")
def perspective(img: Any, startpoints: Any, endpoints: Any, interpolation: str = "nearest", fill: Any = 0) -> Array:
    """Returns an image as seen from elsewhere: four points go to four others.

    Args:
        img: ``[height, width, channels]`` or ``[height, width]``.
        startpoints: Four points ``(x, y)`` of the image.
        endpoints: Where they are in the result.
        interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``.
        fill: Value of the pixels from outside of the image, or one per channel.

    Raises:
        ProgramTypeError, ProgramError: If these are not four points each.

    Example:
        >>> start = [(0, 0), (2, 0), (2, 1), (0, 1)]
        >>> end = [(1, 0), (3, 0), (3, 1), (1, 1)]
        >>> paddle.vision.transforms.perspective(np.array([[1, 2, 3]]), start, end)
        array([[0, 1, 2]])
    """
    name = "perspective"
    check_choice(interpolation, tuple(WARPS), "interpolation", name)
    found = as_image(img, name)
    ways = []
    for arg, points in (("startpoints", startpoints), ("endpoints", endpoints)):
        if not isinstance(points, Sequence | np.ndarray) or len(points) != 4:
            raise ProgramError(
                f"{arg} should be four points", expected="[(x, y), (x, y), (x, y), (x, y)]", received=shown(points),
                fix="give the corners from the upper left one clockwise", op=name,
            )  # fmt: skip
        ways.append([numbers(point, arg, name) for point in points])
    rows = []
    for (u, v), (x, y) in zip(*ways, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    return _warp(found, _solved(rows, [n for point in ways[0] for n in point]), found.shape[:2], interpolation, fill)


def _solved(rows: Sequence[Sequence[float]], values: Sequence[float]) -> tuple[float, ...]:
    """Returns the solution of a linear system; of several, the shortest.

    Exactly, then rounded: where a pixel lies between two others, the last bit decides, which BLAS computes differently on
    different processors.
    """
    left = [[Fraction(n) for n in (*row, value)] for row, value in zip(rows, values, strict=True)]
    for k in range(len(left)):
        pivot = next((i for i in range(k, len(left)) if left[i][k]), None)
        if pivot is None:
            found = np.linalg.lstsq(np.array(rows, np.float64), np.array(values, np.float64), rcond=None)[0]
            return tuple(float(n) for n in found)
        left[k], left[pivot] = left[pivot], left[k]
        left[k] = [n / left[k][k] for n in left[k]]
        for i, row in enumerate(left):
            if i != k and row[k]:
                left[i] = [n - row[k] * m for n, m in zip(row, left[k], strict=True)]
    return tuple(float(row[-1]) for row in left)
