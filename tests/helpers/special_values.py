"""Special values: one list per dtype, and what must be the same of two results that were computed from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.types import DType, dtype_of

Array = np.ndarray[Any, Any]

MANTISSA = {"float16": (10, -14), "bfloat16": (7, -126), "float32": (23, -126), "float64": (52, -1022)}
"""Bits behind the point, and the exponent of the smallest normal number."""


def largest(dtype: DType) -> float:
    """The largest finite number of a float type."""
    bits, lowest = MANTISSA[dtype.name]
    return (2.0 - 2.0**-bits) * 2.0 ** (1 - lowest)


def special_values(dtype: DType, alone: bool = False) -> Array:
    """Zeros, ones, infinities, the ends of the range, NaN and an ordinary number; of integers the extremes; both truth values.

    Args:
        dtype: Any.
        alone: Also large numbers of all sizes: for an input that is combined with few others.
    """
    if dtype.name == "bool":
        return np.array([False, True])
    if not dtype.is_float:
        ends = np.iinfo(dtype.np)
        found = [ends.min, ends.min + 1, 0, 1, 2, 7, ends.max - 1, ends.max]
        return np.array(found if ends.min == 0 else [*found, -1, -2, -7], dtype.np)
    bits, lowest = MANTISSA[dtype.name]
    top = largest(dtype)
    signed = [0.0, 1.0, 2.0 ** (lowest - bits), top, np.inf]
    if alone:
        # 2^24 + 1 is the first whole number that float32 lacks; from 1e13 on a cube overflows it, from 2e19 on a square.
        signed += [a for a in (2.0**24 + 1, 1e13, 3e19, 1e30, 1e38) if a < top]
    return np.array([*signed, *(-a for a in signed), np.nan, 2.0**lowest, 20.5]).astype(dtype.np)


def ulp(value: Array, dtype: DType) -> Array:
    """Distance to the next number of a dtype, at float64 values."""
    bits, lowest = MANTISSA[dtype.name]
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.where(np.isfinite(value), value, 1.0))
    return np.asarray(np.ldexp(1.0, np.maximum(exponent - 1, lowest) - bits))


def differing(got: Array, wanted: Array, units: float | None = 16.0, zeros: bool = True) -> Array:
    """Where two results differ: NaN, infinities and the signs of zeros must be the same, finite numbers close.

    Args:
        got, wanted: Of one dtype; integers and truth values must be equal.
        units: Units in the last place that finite numbers may differ by; ``None`` does not look at them.
        zeros: Look at the signs of zeros.
    """
    kind = dtype_of(wanted.dtype)
    if not kind.is_float:
        return np.asarray(got != wanted)
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(b)
        number = ~np.isnan(a) & ~np.isnan(b)
        bad = np.isnan(a) != np.isnan(b)
        bad |= number & (np.isinf(a) | np.isinf(b)) & (a != b)
        bad |= zeros & (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
        if units is not None:
            bad |= finite & (np.abs(np.where(finite, a - b, 0.0)) > units * ulp(b, kind))
    return np.asarray(bad)
