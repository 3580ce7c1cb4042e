"""What a value is: questions about its dtype, and the limits of dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, INTEGERS, check_result_dtype
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import dtype_of


@export("tensor.is_tensor", "Variable.is_tensor")
def is_tensor(x: Any) -> bool:
    """Returns whether ``x`` is a Variable."""
    return isinstance(x, Variable)


@export("tensor.is_floating_point", "Variable.is_floating_point")
def is_floating_point(x: Variable) -> bool:
    """Returns whether a Variable holds floats.

    Raises:
        ProgramTypeError: If it is not a Variable.

    Example:
        >>> x = static.data("x", [2], dtype="float16")
        >>> paddle.is_tensor(x), paddle.is_floating_point(x), paddle.is_integer(x)
        (True, True, False)
    """
    return check_variable(x, "x", "is_floating_point").dtype.is_float


@export("tensor.is_integer", "Variable.is_integer")
def is_integer(x: Variable) -> bool:
    """Returns whether a Variable holds integers.

    Raises:
        ProgramTypeError: If it is not a Variable.
    """
    return check_variable(x, "x", "is_integer").dtype.is_integer


@export("tensor.is_complex", "Variable.is_complex")
def is_complex(x: Variable) -> bool:
    """Returns whether a Variable holds complex numbers.

    Raises:
        ProgramTypeError: If it is not a Variable.
    """
    found: bool = check_variable(x, "x", "is_complex").dtype.is_complex
    return found


@dataclass(frozen=True)
class FloatLimits:
    """The limits of a float type.

    Attributes:
        min, max: The largest numbers of both signs.
        eps: The distance of 1 from the next larger number.
        resolution: A tenth to the power of the digits that are right.
        smallest_normal, tiny: The smallest positive number of full precision.
        bits: How many bits it has.
        dtype: Its name.
    """

    min: float
    max: float
    eps: float
    resolution: float
    smallest_normal: float
    tiny: float
    bits: int
    dtype: str


@dataclass(frozen=True)
class IntegerLimits:
    """The limits of an integer type.

    Attributes:
        min, max: The smallest and the largest number.
        bits: How many bits it has.
        dtype: Its name.
    """

    min: int
    max: int
    bits: int
    dtype: str


@export("tensor.finfo")
def finfo(dtype: Any) -> FloatLimits:
    """Returns the limits of a float type.

    Args:
        dtype: A float type, by any of its names.

    Raises:
        DTypeError: If it is another type.

    Example:
        >>> limits = paddle.finfo("float32")
        >>> limits.bits, limits.eps, paddle.iinfo("int8").max
        (32, 1.1920928955078125e-07, 127)
    """
    kind = dtype_of(dtype)
    check_result_dtype(kind, FLOATS, "finfo")
    # numpy's finfo does not know bfloat16.
    found = ml_dtypes.finfo(kind.np)
    smallest = float(found.smallest_normal)
    return FloatLimits(
        float(found.min), float(found.max), float(found.eps), float(found.resolution), smallest, smallest,
        int(found.bits), kind.name,
    )  # fmt: skip


@export("tensor.iinfo")
def iinfo(dtype: Any) -> IntegerLimits:
    """Returns the limits of an integer type.

    Args:
        dtype: An integer type, by any of its names.

    Raises:
        DTypeError: If it is another type.
    """
    kind = dtype_of(dtype)
    check_result_dtype(kind, INTEGERS, "iinfo")
    found = np.iinfo(kind.np)
    return IntegerLimits(int(found.min), int(found.max), int(found.bits), kind.name)
