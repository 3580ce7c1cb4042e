"""Resizing to sizes that are known when the program runs: one axis after the other, by ordinary ops."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import as_variable
from tstatic.ir.checks import check_each, check_rank, check_size
from tstatic.ir.program import Variable
from tstatic.ops.base.sliding import is_last
from tstatic.ops.elementwise.arithmetic import divide, maximum, minimum, multiply, subtract
from tstatic.ops.elementwise.logic import where
from tstatic.ops.elementwise.scale import cast, scale
from tstatic.ops.elementwise.unary import abs, floor
from tstatic.ops.indexing.gather import index_select
from tstatic.ops.shape.reshape import reshape
from tstatic.ops.shape.sequence import arange, shape


def has_variable(value: Any) -> bool:
    """Returns whether a size or a scale is a Variable, or holds one."""
    return any(isinstance(v, Variable) for v in (value if isinstance(value, list | tuple) else [value]))


def known_when_run(value: Any, rank: int, arg: str, function: str) -> list[Variable]:
    """Returns one Variable of rank 0 for each spatial axis.

    Raises:
        ShapeError: If there are not as many.
    """
    if isinstance(value, Variable) and value.shape not in ((), (1,)):
        check_rank(value, 1, arg, function)
        check_size(value, 0, rank, arg, function, why="one per spatial axis")
        return [reshape(value[i], []) for i in range(rank)]
    return [reshape(as_variable(v), []) for v in check_each(value, rank, arg, function, "spatial axis")]


def resize_when_run(
    x: Variable,
    given: list[Variable],
    scaled: bool,
    mode: str,
    layout: str,
    name: str | None,
    align_corners: bool = True,
    align_mode: int = 1,
) -> Variable:
    """Resizes along each spatial axis.

    Args:
        x: ``[n, c, ...]`` or ``[n, ..., c]``.
        given: The size of each axis or, with ``scaled``, its factor.
        scaled: As above.
        mode, layout, align_corners, align_mode: As of the ops that resize to known sizes.
        name: Name of the layer.
    """
    at = 1 if is_last(layout) else 2
    method = {"nearest": "nearest", "bicubic": "cubic"}.get(mode, "linear")
    for axis, one in enumerate(given, at):
        # In float64: float32 counts exactly up to 2**24 only.
        size = cast(shape(x)[axis], "float64")
        factor = cast(one, "float64")
        out = floor(multiply(size, factor)) if scaled else factor
        ratio = divide(_one(out), factor) if scaled else divide(size, out)
        x = _resize_axis(x, axis, size, out, ratio, method, align_corners, align_mode)
    return scale(x, name=name) if name else x


def _one(like: Variable) -> Variable:
    return scale(like, 0.0, 1.0)


def _resize_axis(
    x: Variable,
    axis: int,
    size: Variable,
    out: Variable,
    ratio: Variable,
    method: str,
    align_corners: bool,
    align_mode: int,
) -> Variable:
    """Reads each output place's source: the rule of ``axis_taps`` in ``interpolate.py``, as ops."""
    # As in `axis_taps`: Paddle finds the nearest place in float32.
    kind = "float32" if method == "nearest" else "float64"
    last = scale(size, bias=-1.0)
    if align_corners:
        # At most one place: the ratio is 0, without a division by 0.
        ratio = where(out > 1.0, divide(last, maximum(scale(out, bias=-1.0), _one(out))), scale(out, 0.0))
    place, ratio = cast(arange(cast(out, "int64"), dtype="int64"), kind), cast(ratio, kind)
    if method == "nearest":
        source = multiply(place, ratio)
        source = scale(source, bias=0.5) if align_corners else source
        return _rows(x, axis, cast(floor(source), "float64"), last)
    plain = align_corners or (align_mode == 1 and method == "linear")
    source = multiply(place, ratio) if plain else scale(multiply(scale(place, bias=0.5), ratio), bias=-0.5)
    if method == "linear":
        source = maximum(source, scale(source, 0.0))
        low = minimum(floor(source), last)
        part = subtract(source, low)
        taps = [(low, scale(part, -1.0, 1.0)), (scale(low, bias=1.0), part)]
    else:
        low = floor(source)
        steps = [scale(low, bias=float(k)) for k in range(-1, 3)]
        taps = [(step, _cubic(subtract(source, step))) for step in steps]
    total: Variable | None = None
    for index, weight in taps:
        tall = [-1 if i == axis else 1 for i in range(len(x.shape))]
        term = multiply(_rows(x, axis, index, last), reshape(cast(weight, x.dtype), tall))
        total = term if total is None else total + term
    assert total is not None
    return total


def _rows(x: Variable, axis: int, index: Variable, last: Variable) -> Variable:
    """Reads positions along an axis; those beyond an end read the end."""
    # Indices beyond an end would be refused when it runs.
    held = minimum(maximum(index, scale(index, 0.0)), last)
    return index_select(x, cast(held, "int64"), axis)


def _cubic(distance: Variable) -> Variable:
    """Returns Keys' cubic kernel with a = -0.75."""
    a, d = -0.75, abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    weight: Variable = where(d <= 1.0, near, far)
    return weight
