"""Checks the arguments of loaders and samplers, so that a wrong one is named where it is passed."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from tstatic.errors import shown
from tstatic.io.errors import DataTypeError, DataUseError


def wrong_type(value: object, arg: str, function: str, expected: str) -> DataTypeError:
    """Returns the error about an argument of the wrong type."""
    return DataTypeError(
        f"{function} cannot use this as {arg}",
        expected=expected,
        received=shown(value),
        fix=f"pass {expected} as {arg}",
        op=function,
    )


def whole(value: Any, arg: str, function: str) -> int:
    """Returns a whole number, Python's or numpy's, as an int.

    Raises:
        DataTypeError: If it is none; a bool is not.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise wrong_type(value, arg, function, "a whole number")
    return int(value)


def truth(value: Any, arg: str, function: str) -> bool:
    """Returns True, False, 1 or 0 as a bool.

    Raises:
        DataTypeError: If it is something else: every text would count as true.
    """
    if not isinstance(value, bool | np.bool_ | int | np.integer) or value not in (0, 1):
        raise wrong_type(value, arg, function, "True or False")
    return bool(value)


def seconds(value: Any, arg: str, function: str) -> float:
    """Returns a time to wait.

    Raises:
        DataTypeError: If it is not a number.
        DataUseError: If it is negative, infinite or NaN.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise wrong_type(value, arg, function, "a number of seconds")
    if not (value >= 0 and math.isfinite(value)):
        raise DataUseError(
            f"{arg} should be a non-negative value",
            expected="a finite number of seconds; 0 waits for ever",
            received=f"{arg}={value}",
            fix=f"pass {arg}=0 to wait for ever, or leave it out",
            op=function,
        )
    return float(value) if isinstance(value, np.generic) else value


def function_or_none(value: Any, arg: str, function: str) -> Any:
    """Returns a function, or ``None``.

    Raises:
        DataTypeError: If it is something else.
    """
    if value is not None and not callable(value):
        raise wrong_type(value, arg, function, "a function, or None")
    return value


def sized(value: Any, arg: str, function: str, expected: str = "something with a length") -> Any:
    """Returns something with a length.

    Raises:
        DataTypeError: If it has none.
    """
    if not hasattr(value, "__len__"):
        raise wrong_type(value, arg, function, expected)
    return value


def iterable(value: Any, arg: str, function: str, expected: str) -> Any:
    """Returns something that can be iterated over.

    Raises:
        DataTypeError: If it cannot, or is a text.
    """
    fits = hasattr(type(value), "__iter__") and not isinstance(value, str | bytes)
    if not fits and not isinstance(value, str | bytes):
        # Something with numbered items; an iterator over it runs no code of its own yet.
        with contextlib.suppress(TypeError):
            fits = iter(value) is not None
    if not fits:
        raise wrong_type(value, arg, function, expected)
    return value


__all__ = ["function_or_none", "iterable", "seconds", "sized", "truth", "whole", "wrong_type"]
