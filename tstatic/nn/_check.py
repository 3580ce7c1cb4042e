"""Checks of arguments that layers share; each raises before anything is added to the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError, ShapeError, TstaticError
from tstatic.ir.opdef import op_def
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, normalize_axis

FLOATS = ("float32", "float64", "float16", "bfloat16")


def check_int(value: Any, arg: str, function: str, least: int = 1) -> int:
    """Returns ``value`` as an int of at least ``least``.

    Raises:
        ProgramTypeError: If it is not a whole number.
        ShapeError: If it is too small.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ProgramTypeError(
            f"'{arg}' of {function} must be a whole number",
            expected=f"an int of at least {least}",
            received=f"{value!r} of type {type(value).__name__}",
            fix=f"pass an int for '{arg}'",
            op=function,
            var=arg,
        )
    if value < least:
        raise ShapeError(
            f"'{arg}' of {function} is too small",
            expected=f"an int of at least {least}",
            received=int(value),
            fix=f"pass a larger '{arg}'",
            op=function,
            var=arg,
        )
    return int(value)


def check_static_dim(size: int, x: Variable, what: str, function: str) -> int:
    """Returns a size that a parameter's shape needs.

    Raises:
        ShapeError: If it is not known while the program is built.
    """
    if size == UNKNOWN:
        raise ShapeError(
            f"{function} makes parameters, so {what} of its input has to be known while the program is built",
            expected=f"a shape whose {what} is a number",
            received=f"'{x.name}' of shape {list(x.shape)}",
            fix="state that size where the input is declared, or reshape the input to a known one",
            op=function,
            var=x.name,
        )
    if size == 0:
        raise ShapeError(
            f"{function} makes parameters, and {what} of its input is 0",
            expected="sizes of at least 1",
            received=f"'{x.name}' of shape {list(x.shape)}",
            fix="check the shape of the input",
            op=function,
            var=x.name,
        )
    return size


def rank_of(x: Variable, ranks: Sequence[int], layout: str, function: str) -> None:
    """Refuses an input of another rank.

    Raises:
        ShapeError: Says which it takes.
    """
    if len(x.shape) not in ranks:
        raise ShapeError(
            f"the input of {function} has the wrong number of dimensions",
            expected=f"{' or '.join(map(str, ranks))} dimensions ({layout})",
            received=f"'{x.name}' of shape {list(x.shape)}",
            fix="reshape the input, for example with paddle.unsqueeze for a missing axis",
            op=function,
            var=x.name,
        )


def axis_in(axis: Any, rank: int, arg: str, function: str) -> int:
    """Returns an axis of a value of that rank, counted from the front.

    Raises:
        ProgramTypeError: If it is not an int.
        ShapeError: If there is no such axis.
    """
    axis = check_int(axis, arg, function, -rank)
    try:
        return normalize_axis(axis, rank, arg)
    except TstaticError as error:
        raise error.add_context(op=function, var=arg) from None


def axis_of(axis: Any, x: Variable, arg: str, function: str) -> int:
    """Returns an axis of ``x``, counted from the front.

    Raises:
        ProgramTypeError: If it is not an int.
        ShapeError: If ``x`` has no such axis.
    """
    try:
        return axis_in(axis, len(x.shape), arg, function)
    except TstaticError as error:
        error.var = x.name
        raise


def check_choice(value: Any, choices: Sequence[Any], arg: str, function: str) -> Any:
    """Returns ``value`` if it is among ``choices``.

    Raises:
        ProgramError: Names them.
    """
    if value not in choices:
        raise ProgramError(
            f"'{arg}' of {function} is not one of its choices",
            expected=" or ".join(map(repr, choices)),
            received=repr(value),
            fix=f"pass {arg}={choices[0]!r}",
            op=function,
            var=arg,
        )
    return value


def activation(act: Any, function: str) -> None:
    """Refuses an activation that :func:`tstatic.nn.param.activate` could not append.

    Raises:
        ProgramTypeError: If it is not given by name.
        NotFoundError: For a name that no op has.
    """
    if act is None:
        return
    kind = act.get("type") if isinstance(act, dict) else act
    if not isinstance(kind, str):
        raise ProgramTypeError(
            f"the activation of {function} is given by name",
            expected="a str such as 'relu', or None",
            received=f"{act!r} of type {type(act).__name__}",
            fix="pass the name of an op, such as 'relu'",
            op=function,
            var="act",
        )
    try:
        op_def(kind)
    except TstaticError as error:
        raise error.add_context(op=function, var="act") from None


def check_enabled(attr: Any, arg: str, function: str) -> None:
    """Refuses ``False`` for a parameter that the layer cannot do without.

    Raises:
        ProgramError: Says so.
    """
    if attr is False:
        raise ProgramError(
            f"{arg} should not be False in {function}: it has no meaning without that parameter",
            expected="a ParamAttr, a name, an initializer or None",
            received="False",
            fix=f"leave '{arg}' out, or fix the parameter with ParamAttr(trainable=False)",
            op=function,
            var=arg,
        )
