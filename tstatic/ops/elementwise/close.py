"""Nearness and equality of whole values: isclose, allclose, equal_all."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tstatic.ir import expr, expr_numpy
from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import plain
from tstatic.ir.types import DType, Meta, bool_, broadcast_shapes, dtype_of
from tstatic.ops.elementwise._broadcast import same_dtype

_CLOSE = (
    "(input == other) | (isfinite(input - other) & (abs(input - other) <= atol + rtol * abs(other)))"
    " | where(equal_nan, isnan(input) & isnan(other), False)"
)
_ATTRS = {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}
_CHOICES = ({"rtol": 0.1, "atol": 0.0}, {"rtol": 0.0, "atol": 0.5}, {"equal_nan": True})


def _pair(x: Meta, y: Meta) -> Meta:
    same_dtype(x, y, ("Input", "Other"))
    return Meta(broadcast_shapes(x.shape, y.shape), bool_)


def _one(x: Meta, y: Meta) -> Meta:
    return Meta((), _pair(x, y).dtype)


def _torch_close(torch: Any, x: Any, y: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    x, y = (a.float() if a.itemsize == 2 and a.is_floating_point() else a for a in (x, y))
    return torch.isclose(x, y, rtol, atol, equal_nan)


register(OpDef(
    "isclose", "Input, Other -> Out", attrs=_ATTRS, pointwise={"Out": _CLOSE}, infer=_pair, lower=_torch_close,
    inplace=(), domain=Domain("binary", attrs=_CHOICES, ulps=0),
))  # fmt: skip


@lru_cache(maxsize=256)
def _code(dtype: DType, rtol: float, atol: float, equal_nan: bool) -> expr_numpy.Code:
    values = {"rtol": expr.const(rtol), "atol": expr.const(atol), "equal_nan": expr.const(equal_nan)}
    node = expr.substitute(expr.parse(_CLOSE), values)
    return expr_numpy.compile_numpy(
        {0: node}, {"input": (0, dtype.np), "other": (1, dtype.np)}, {0: np.dtype(bool)}, {}
    )


def _allclose_scratch(x: Meta, y: Meta, out: Meta, rtol: float, atol: float, equal_nan: bool) -> tuple[Meta, ...]:
    shape = broadcast_shapes(x.shape, y.shape)
    return tuple(Meta(shape, dtype_of(d)) for d in (np.bool_, *_code(x.dtype, rtol, atol, equal_nan).registers))


def _allclose(x: Any, y: Any, out: Any, scratch: Any, rtol: float, atol: float, equal_nan: bool) -> None:
    for function, args in _code(dtype_of(x.dtype), rtol, atol, equal_nan).bind([x, y], scratch[:1], scratch[1:]):
        function(*args)
    np.logical_and.reduce(scratch[0], None, None, out)


register(OpDef(
    "allclose", "Input, Other -> Out", attrs=_ATTRS, infer=_one, ref=plain(_allclose, _allclose_scratch),
    lower=lambda torch, x, y, rtol, atol, equal_nan: _torch_close(torch, x, y, rtol, atol, equal_nan).all(),
    # Shapes with few elements, so that both answers come up.
    domain=Domain(
        cases=tuple(
            Case(s, a)
            for s in (((), ()), ((1,), (1,)), ((2,), (2,)), ((0,), (0,)), ((3, 4), (4,)))
            for a in (*_CHOICES, {"atol": 4.0})
        ),
        ulps=0,
    ),
))  # fmt: skip


def _equal_all_scratch(x: Meta, y: Meta, out: Meta) -> tuple[Meta, ...]:
    return (Meta(x.shape, bool_),) if x.shape == y.shape else ()


def _equal_all(x: Any, y: Any, out: Any, scratch: Any) -> None:
    if x.shape != y.shape:
        out[...] = False
        return
    np.equal(x, y, scratch[0])
    np.logical_and.reduce(scratch[0], None, None, out)


def _equal_all_infer(x: Meta, y: Meta) -> Meta:
    same_dtype(x, y)
    return Meta((), bool_)


register(OpDef(
    "equal_all", "X, Y -> Out", infer=_equal_all_infer, ref=plain(_equal_all, _equal_all_scratch),
    lower=lambda torch, x, y: torch.tensor(torch.equal(x, y)),
    domain=Domain(
        cases=tuple(Case(s) for s in (((), ()), ((1,), (1,)), ((2,), (2,)), ((0,), (0,)), ((3,), (4,)), ((3, 1), (3,)))),
        values={"X": ValueRange(0, 1), "Y": ValueRange(0, 1)}, others=("int64", "int32", "bool"), ulps=0,
    ),
))  # fmt: skip


def _close(type: str, x: Any, y: Any, rtol: float, atol: float, equal_nan: bool, name: str | None) -> Variable:
    inputs = {"Input": check_variable(x, "x", type), "Other": check_variable(y, "y", type)}
    attrs = {"rtol": float(rtol), "atol": float(atol), "equal_nan": equal_nan}
    out: Variable = emit(type, inputs, attrs, name=name)
    return out


@export("tensor.isclose", "Variable.isclose", op="isclose")
def isclose(
    x: Variable, y: Variable, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False, name: str | None = None
) -> Variable:
    """Returns whether ``abs(x - y) <= atol + rtol * abs(y)`` for each pair, as bool.

    Args:
        x: Shapes broadcast, dtypes are equal.
        y: The reference.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        equal_nan: Whether two NaN are close.
        name: Name of the layer.
    """
    return _close("isclose", x, y, rtol, atol, equal_nan, name)


@export("tensor.allclose", "Variable.allclose", op="allclose")
def allclose(
    x: Variable, y: Variable, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False, name: str | None = None
) -> Variable:
    """Returns whether all pairs are close, as a bool of shape ``[]``; arguments as in :func:`isclose`."""
    return _close("allclose", x, y, rtol, atol, equal_nan, name)


@export("tensor.equal_all", "Variable.equal_all", op="equal_all")
def equal_all(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether shapes and all elements are equal, as a bool of shape ``[]``; dtypes are equal."""
    out: Variable = emit(
        "equal_all", {"X": check_variable(x, "x", "equal_all"), "Y": check_variable(y, "y", "equal_all")}, name=name
    )
    return out
