"""Sizes of a transposed convolution's output that Variables give when the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import INDICES, check_int
from tstatic.ir.program import Variable
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.indexing.gather import gather
from tstatic.ops.shape.joining import concat
from tstatic.ops.shape.reshape import reshape
from tstatic.ops.shape.sequence import arange, shape
from tstatic.ops.shape.slicing import slice_


def holds_variable(output_size: Any) -> bool:
    """Returns whether sizes are known only when the program runs."""
    return isinstance(output_size, Variable) or (
        isinstance(output_size, list | tuple) and any(isinstance(one, Variable) for one in output_size)
    )


def most_padding(strides: Sequence[int]) -> tuple[int, ...]:
    """Returns the ``output_padding`` of the largest output, of which every possible one is the upper left part."""
    return tuple(stride - 1 for stride in strides)


def cut_to(out: Variable, output_size: Any, padding: Sequence[int], first_axis: int, function: str) -> Variable:
    """Cuts the largest output of a transposed convolution to sizes that Variables give.

    Args:
        out: The output for the ``output_padding`` of :func:`most_padding`.
        output_size: A Variable with a size for each spatial axis, or with one for all of them; or a list of ints and Variables.
        padding: That ``output_padding``.
        first_axis: The first spatial axis.
        function: The public function's name.

    Raises:
        ShapeError: If there are as many sizes as there are neither spatial axes nor one.
        IndexRangeError: In a run, for a size that no output can have.
    """
    wanted = _sizes(output_size, len(padding), function)
    largest = shape(out)
    ends = []
    for i, extra in enumerate(padding):
        at = first_axis + i
        size, least = slice_(wanted, [0], [i], [i + 1]), slice_(largest, [0], [at], [at + 1]) - extra
        # Read from a table, since positions are checked on every device before an operator works with them.
        ends.append(least + gather(arange(extra + 1, dtype="int32"), size - least))
    axes = [first_axis + i for i in range(len(padding))]
    return slice_(out, axes, [0] * len(padding), ends)


def _sizes(output_size: Any, count: int, function: str) -> Variable:
    """Returns the sizes as one Variable, int32 ``[count]``."""
    given = [output_size] if isinstance(output_size, Variable) else list(output_size)
    parts: list[Variable] = []
    for one in given:
        if isinstance(one, Variable):
            parts.append(cast(reshape(check_variable(one, "output_size", function, INDICES), [-1]), "int32"))
        else:
            size = check_int(one, "output_size", function, 1)
            parts.append(arange(size, size + 1, dtype="int32"))
    numbers = [part.shape[0] for part in parts]
    if isinstance(output_size, Variable) and numbers == [1]:
        parts = parts * count
    elif -1 not in numbers and sum(numbers) != count:
        raise ShapeError(
            f"output_size of {function} has {sum(numbers)} numbers",
            expected=f"one for each of the {count} spatial axes, or a Variable of one number for all",
            received=f"{sum(numbers)} numbers",
            fix=f"pass {count} sizes",
            op=function,
        )
    return concat(parts, axis=0)


__all__ = ["cut_to", "holds_variable", "most_padding"]
