"""Constants, ranges, conversions of types, random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.ir.build import as_variable
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.mixed import cast_to
from tstatic.ops.elementwise.scale import detach
from tstatic.ops.random import distributions
from tstatic.ops.shape import creation, diagonal, sequence
from tstatic.tools.interop.conversion import Call, Size, family

converts = family("filled")


def _filled(c: Call, sizes: Sequence[Any], value: Any) -> Variable:
    if isinstance(value, Variable | Size):
        raise c.refuse("for a value that is computed", "a number", "a tensor or a size")
    return creation.full(c.sizes_given(sizes), value, c.dtype)


@converts("full.default")
def _full(c: Call, sizes: Sequence[Any], value: Any, dtype: Any = None) -> Variable:
    return _filled(c, sizes, value)


@converts("zeros.default")
def _zeros(c: Call, sizes: Sequence[Any], dtype: Any = None) -> Variable:
    return _filled(c, sizes, 0)


@converts("ones.default")
def _ones(c: Call, sizes: Sequence[Any], dtype: Any = None) -> Variable:
    return _filled(c, sizes, 1)


@converts("new_zeros.default")
def _new_zeros(c: Call, x: Variable, sizes: Sequence[Any], dtype: Any = None) -> Variable:
    return _filled(c, sizes, 0)


@converts("new_ones.default")
def _new_ones(c: Call, x: Variable, sizes: Sequence[Any], dtype: Any = None) -> Variable:
    return _filled(c, sizes, 1)


@converts("new_full.default")
def _new_full(c: Call, x: Variable, sizes: Sequence[Any], value: Any, dtype: Any = None) -> Variable:
    return _filled(c, sizes, value)


@converts("full_like.default")
def _full_like(c: Call, x: Variable, value: Any, dtype: Any = None) -> Variable:
    return creation.full_like(x, value, c.dtype)


@converts("zeros_like.default")
def _zeros_like(c: Call, x: Variable, dtype: Any = None) -> Variable:
    return creation.full_like(x, 0, c.dtype)


@converts("ones_like.default")
def _ones_like(c: Call, x: Variable, dtype: Any = None) -> Variable:
    return creation.full_like(x, 1, c.dtype)


@converts("fill.Scalar")
def _fill(c: Call, x: Variable, value: Any) -> Variable:
    return creation.full_like(x, value, c.dtype)


@converts("fill.Tensor")
def _fill_tensor(c: Call, x: Variable, value: Variable) -> Variable:
    return creation.full_like(x, 0, c.dtype) + c.cast(value)


@converts("zero.default")
def _zero(c: Call, x: Variable) -> Variable:
    return creation.full_like(x, 0, c.dtype)


@converts("scalar_tensor.default")
def _scalar_tensor(c: Call, value: Any, dtype: Any = None) -> Variable:
    return cast_to(value.variable(), c.dtype) if isinstance(value, Size) else as_variable(value, dtype=c.dtype)


def _range(c: Call, start: Any, end: Any, step: Any) -> Variable:
    first, last, by = c.sizes_given([start, end, step])
    return sequence.arange(first, last, by, c.dtype)


@converts("arange.default")
def _arange(c: Call, end: Any, dtype: Any = None) -> Variable:
    return _range(c, 0, end, 1)


@converts("arange.start")
def _arange_start(c: Call, start: Any, end: Any, dtype: Any = None) -> Variable:
    return _range(c, start, end, 1)


@converts("arange.start_step")
def _arange_step(c: Call, start: Any, end: Any, step: Any = 1, dtype: Any = None) -> Variable:
    return _range(c, start, end, step)


@converts("linspace.default")
def _linspace(c: Call, start: float, end: float, steps: int, dtype: Any = None) -> Variable:
    return sequence.linspace(start, end, steps, c.dtype)


@converts("eye.default")
def _eye(c: Call, rows: int, dtype: Any = None) -> Variable:
    return diagonal.eye(rows, None, c.dtype)


@converts("eye.m")
def _eye_m(c: Call, rows: int, columns: int, dtype: Any = None) -> Variable:
    return diagonal.eye(rows, columns, c.dtype)


@converts("tril.default")
def _tril(c: Call, x: Variable, offset: int = 0) -> Variable:
    return diagonal.tril(x, offset)


@converts("triu.default")
def _triu(c: Call, x: Variable, offset: int = 0) -> Variable:
    return diagonal.triu(x, offset)


# ----------------------------------------------------------------------------------------------------- types and copies
@converts("to.dtype", "to.dtype_layout", "to.device", "_to_copy.default", "type_as.default")
def _to(c: Call, x: Variable, *rest: Any, **named: Any) -> Variable:
    return c.cast(x)


@converts(
    "clone.default", "contiguous.default", "alias.default", "lift_fresh_copy.default",
    "positive.default",
)  # fmt: skip
def _same(c: Call, x: Variable, **named: Any) -> Variable:
    return x


@converts("copy.default")
def _copy(c: Call, x: Variable, source: Variable, non_blocking: bool = False) -> Variable:
    source = c.cast(source)
    if c.sizes_of(source) == c.sizes:
        return source
    # Broadcast to what it is copied into.
    return creation.full_like(x, 0, c.dtype) + source


@converts("detach.default")
def _detach(c: Call, x: Variable) -> Variable:
    return detach(x)


# -------------------------------------------------------------------------------------------------------- random numbers
@converts("rand.default")
def _rand(c: Call, sizes: Sequence[Any], dtype: Any = None) -> Variable:
    return distributions.rand(c.sizes_given(sizes), c.dtype)


@converts("randn.default")
def _randn(c: Call, sizes: Sequence[Any], dtype: Any = None) -> Variable:
    return distributions.randn(c.sizes_given(sizes), c.dtype)


@converts("rand_like.default", "randn_like.default")
def _random_like(c: Call, x: Variable, dtype: Any = None) -> Variable:
    make = distributions.randn if "randn" in c.name else distributions.rand
    return make(sequence.shape(x) if UNKNOWN in x.shape else list(x.shape), c.dtype)
