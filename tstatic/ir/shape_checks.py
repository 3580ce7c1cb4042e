"""Checks of shapes that concern several values, or their elements; those of one value are in :mod:`tstatic.ir.checks`."""

from __future__ import annotations

from collections.abc import Sequence

from tstatic.errors import ShapeError
from tstatic.ir.checks import Shaped, _var, _wrong_shape, with_shape


def check_fit(
    fits: bool, xs: Sequence[Shaped], args: Sequence[str], what: str, expected: str, fix: str, function: str = ""
) -> None:
    """Refuses values whose shapes do not fit together; the message says the shape of each.

    Args:
        fits: Whether they do.
        xs, args: The values, and the name of each. The last value is the one that the error names as its variable.
        what: What is wrong, as a sentence.
        expected: What would fit.
        fix: What to do.
        function: As in :mod:`tstatic.ir.checks`.

    Raises:
        ShapeError: Unless they fit.
    """
    if not fits:
        shapes = ", ".join(with_shape(x, arg) for x, arg in zip(xs, args, strict=True))
        raise ShapeError(what, expected=expected, received=shapes, fix=fix, op=function or None, var=_var(xs[-1]))


def check_elements(
    x: Shaped, axes: Sequence[int], what: str, arg: str = "X", function: str = "", *, fix: str = ""
) -> None:
    """Refuses a value without elements along one of the axes, over which something is computed that needs some.

    Args:
        x: The value.
        axes: Its axes that need elements.
        what: What is computed: ``"the maximum"``.
        arg, function: As in :mod:`tstatic.ir.checks`.
        fix: What to do, where another axis cannot be chosen.

    Raises:
        ShapeError: Names the axis.
    """
    empty = [axis for axis in axes if x.shape[axis] == 0]
    if empty:
        what = f"{what} of no elements does not exist"
        fix = fix or "choose another axis, or feed at least one element"
        raise _wrong_shape(ShapeError, what, f"at least one element along axis {empty[0]}", x, arg, function, fix)
