"""Turns an argument that may be a number or a Variable into a value of one element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.ir.build import as_variable, check_variable
from tstatic.ir.checks import FLOATS, INTEGERS, check_number, check_one_element
from tstatic.ir.program import Variable
from tstatic.ops.base.shapes import emit_one


def number_of(
    value: Any, arg: str, function: str, dtype: str, shape: Sequence[int] = (1,), kinds: Sequence[str] | None = None
) -> Variable:
    """Returns a number, or a Variable of one element, as a Variable of a shape and dtype.

    Args:
        value: The argument.
        arg: Its name, for errors.
        function: The function that it was given to, for errors.
        dtype: The dtype of the result.
        shape: Its shape: ``[1]``, ``[]`` or more ones.
        kinds: The dtypes that a Variable may have: integers if ``dtype`` is one, else any number.

    Raises:
        DTypeError, ShapeError, ProgramTypeError: If it is not a number, or is a Variable of another dtype or of several elements.
    """
    if not isinstance(value, Variable):
        check_number(value, arg, function)
        made: Variable = as_variable(value, dtype=dtype)
    else:
        accepted = kinds or (INTEGERS if dtype in INTEGERS else (*FLOATS, *INTEGERS))
        check_one_element(check_variable(value, arg, function, accepted), arg, function)
        made = value
        if value.dtype.name != dtype:
            made = emit_one("cast", {"X": value}, {"in_dtype": value.dtype, "out_dtype": dtype})
    # [1] and 0-d are both given in practice; callers join or broadcast the result, which needs one shape.
    return emit_one("reshape2", {"X": made}, {"shape": tuple(shape)})
