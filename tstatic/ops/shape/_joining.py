"""The shape rules of joining and splitting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.errors import ProgramTypeError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, Shape
from tstatic.ops.shape._shapes import add_op_context


def variables(items: Any, arg: str, function: str) -> list[Variable]:
    """A list of Variables from a list, or from a single Variable.

    Raises:
        ProgramTypeError: If it is neither, or an entry is not a Variable.
    """
    if isinstance(items, Variable):
        return [items]
    if not isinstance(items, list | tuple):
        error = ProgramTypeError(
            f"The type of '{arg}' in {function} must be a list or tuple of Variables",
            expected="a list of Variables",
            received=f"{items!r} of type {type(items).__name__}",
            fix=f"pass {arg}=[x, y]",
        )
        raise add_op_context(error, function, arg)
    return [check_variable(v, f"{arg}[{i}]", function) for i, v in enumerate(items)]


def common_shape(shapes: Sequence[Shape], free: int | None) -> Shape:
    """The shape that values agree on, an unknown size taking what another one knows; axis ``free`` may differ.

    Raises:
        ShapeError: If ranks or sizes differ.
    """
    first = list(shapes[0])
    for i, shape in enumerate(shapes[1:], 1):
        for axis, (a, b) in enumerate(zip(first, shape, strict=False)):
            if axis == free or b == UNKNOWN:
                continue
            if a == UNKNOWN:
                first[axis] = b
            elif a != b:
                raise _differ(shapes, i, free)
        if len(shape) != len(first):
            raise _differ(shapes, i, free)
    if free is not None:
        first[free] = UNKNOWN
    return tuple(first)


def _differ(shapes: Sequence[Shape], i: int, free: int | None) -> ShapeError:
    return ShapeError(
        f"value {i} does not fit the others",
        expected="the same shape" if free is None else f"the same sizes except along axis {free}",
        received=" and ".join(str(list(s)) for s in (shapes[0], shapes[i])),
        fix="reshape or slice the values so that they agree",
    )


def section_sizes(size: int, num: int, sections: Sequence[int], axis: int) -> list[int]:
    """Sizes of the tiles that ``split`` makes from an axis.

    Args:
        size: The axis's size, or -1.
        num: Number of equal tiles; 0 when ``sections`` say the sizes.
        sections: Sizes, one of which may be -1.
        axis: For messages.

    Raises:
        ShapeError: If they do not add up.
    """
    if num > 0:
        if size >= 0 and size % num:
            raise ShapeError(
                f"axis {axis} of size {size} cannot be split into {num} equal tiles",
                expected=f"a size that {num} divides",
                received=size,
                fix="pass a list of sizes instead of a number",
            )
        return [size // num if size >= 0 else UNKNOWN] * num
    rest = [s for s in sections if s != UNKNOWN]
    total = sum(rest)
    wild = len(sections) - len(rest)
    good = len(sections) > 0 and wild <= 1 and all(s >= 0 for s in rest)
    if good and size >= 0:
        good = total == size if wild == 0 else total <= size
    if not good:
        raise ShapeError(
            f"these sizes do not make up axis {axis}",
            expected="sizes of at least 0, at most one -1" + (f", that add up to {size}" if size >= 0 else ""),
            received=list(sections),
            fix="check num_or_sections",
        )
    left = size - total if size >= 0 else UNKNOWN
    return [left if s == UNKNOWN else s for s in sections]


def without(meta: Meta, axis: int) -> Meta:
    """The metadata with one axis removed."""
    return meta.with_shape(meta.shape[:axis] + meta.shape[axis + 1 :])
