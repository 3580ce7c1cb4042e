"""Truth values and bits: logical and bitwise operators, tests for NaN and infinity, is_empty."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import DTypeError
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.opdef import Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, bool_, broadcast_shapes
from tstatic.ops._call_ref import CallRef
from tstatic.ops._cut import cut_alike
from tstatic.ops.elementwise._broadcast import same_dtype
from tstatic.ops.elementwise._unary import to_bool

_ANY = ("int64", "int32", "bool")


def _pair_to_bool(x: Meta, y: Meta) -> Meta:
    return Meta(broadcast_shapes(x.shape, y.shape), bool_)


# A few zeros among the samples, so that both truth values come up.
_TRUTH = {"X": ValueRange(-1.0, 1.0, dtype="bool"), "Y": ValueRange(-1.0, 1.0, dtype="bool")}
for _name, _symbol in (("and", "&"), ("or", "|"), ("xor", "^")):
    register(OpDef(
        f"logical_{_name}", "X, Y -> Out", pointwise={"Out": f"x {_symbol} y"}, infer=_pair_to_bool, inplace=(),
        domain=Domain("binary", values={"Y": _TRUTH["Y"], "X": ValueRange(-1.0, 1.0)}, others=_ANY, ulps=0),
    ))  # fmt: skip
register(OpDef(
    "logical_not", "X -> Out", pointwise={"Out": "~x"}, infer=to_bool,
    domain=Domain("unary", values={"X": ValueRange(-1.0, 1.0)}, others=_ANY, ulps=0),
))  # fmt: skip


def _bitwise(ufunc: np.ufunc) -> CallRef:
    return CallRef(lambda ins, outs, scratch: [(ufunc, (*ins, *outs))], widen=False)


def _bits(*metas: Meta) -> Meta:
    if len(metas) == 2:
        same_dtype(*metas)
    if metas[0].dtype.is_float:
        raise DTypeError(
            "bitwise operators take integers or truth values",
            expected="bool, uint8, int8, int16, int32 or int64",
            received=f"X of dtype {metas[0].dtype.name}",
            fix="use paddle.logical_and / logical_or / logical_not, or compare first",
        )
    return metas[0] if len(metas) == 1 else metas[0].with_shape(broadcast_shapes(metas[0].shape, metas[1].shape))


def _split(*metas: Meta) -> Any:
    return cut_alike(*metas) if len({m.shape for m in metas}) == 1 else None


for _name, _ufunc in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor), ("not", np.bitwise_not)):
    register(OpDef(
        f"bitwise_{_name}", "X -> Out" if _name == "not" else "X, Y -> Out", infer=_bits, ref=_bitwise(_ufunc),
        lower=lambda torch, *xs, _function=f"bitwise_{_name}": getattr(torch, _function)(*xs), split=_split,
        inplace=(("X", "Out"),) if _name == "not" else (("X", "Out"), ("Y", "Out")),
        domain=Domain(
            "unary" if _name == "not" else "binary", values={n: ValueRange(-100, 100) for n in "XY"}, floats=(),
            others=("int64", "int32", "bool", "uint8", "int16"), ulps=0,
        ),
    ))  # fmt: skip

for _name in ("isnan", "isinf", "isfinite"):
    register(OpDef(
        f"{_name}_v2", "X -> Out", pointwise={"Out": f"{_name}(x)"}, infer=to_bool, inplace=(),
        domain=Domain("unary", others=("int64", "int32"), ulps=0),
    ))  # fmt: skip


def _is_empty(x: Any, out: Any) -> None:
    out[...] = x.size == 0


register(OpDef(
    "is_empty", "X -> Out", infer=lambda x: Meta((), bool_), ref=_is_empty, shape_only=("X",),
    lower=lambda torch, x: torch.tensor(x.numel() == 0), domain=Domain("unary", others=_ANY, ulps=0),
))  # fmt: skip


def _logical(type: str, x: Any, y: Any, out: Variable | None, name: str | None) -> Variable:
    check_variable(x, "x", type)
    inputs = {"X": x, "Y": y if isinstance(y, Variable) else as_variable(y, like=x)}
    result: Variable = emit(type, inputs, name=name, outputs=None if out is None else {"Out": out})
    return result


def _negate(type: str, x: Any, out: Variable | None, name: str | None) -> Variable:
    check_variable(x, "x", type)
    result: Variable = emit(type, {"X": x}, name=name, outputs=None if out is None else {"Out": out})
    return result


@export("tensor.logical_and", "Variable.logical_and", "fluid.layers.logical_and", op="logical_and")
def logical_and(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether both are true (not 0), as bool; shapes broadcast. ``out`` is an existing Variable to write to.

    Example:
        >>> x = paddle.to_tensor([True, True, False])
        >>> y = paddle.logical_and(x, paddle.to_tensor([True, False, False]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([ True, False, False])
    """
    return _logical("logical_and", x, y, out, name)


@export("tensor.logical_or", "Variable.logical_or", "fluid.layers.logical_or", op="logical_or")
def logical_or(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether one is true (not 0), as bool; shapes broadcast. ``out`` is an existing Variable to write to."""
    return _logical("logical_or", x, y, out, name)


@export("tensor.logical_xor", "Variable.logical_xor", "fluid.layers.logical_xor", op="logical_xor")
def logical_xor(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether exactly one is true (not 0), as bool; shapes broadcast. ``out`` is a Variable to write to."""
    return _logical("logical_xor", x, y, out, name)


@export("tensor.logical_not", "Variable.logical_not", "fluid.layers.logical_not", op="logical_not")
def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether each element is false (0), as bool; any shape. ``out`` is an existing Variable to write to."""
    return _negate("logical_not", x, out, name)


@export("tensor.bitwise_and", "Variable.bitwise_and", op="bitwise_and")
def bitwise_and(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns the bits set in both, of integers or bools; shapes broadcast. ``out`` is a Variable to write to."""
    return _logical("bitwise_and", x, y, out, name)


@export("tensor.bitwise_or", "Variable.bitwise_or", op="bitwise_or")
def bitwise_or(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns the bits set in one or both, of integers or bools; shapes broadcast. ``out`` is a Variable to write to."""
    return _logical("bitwise_or", x, y, out, name)


@export("tensor.bitwise_xor", "Variable.bitwise_xor", op="bitwise_xor")
def bitwise_xor(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns the bits set in exactly one, of integers or bools; shapes broadcast. ``out`` is a Variable to write to."""
    return _logical("bitwise_xor", x, y, out, name)


@export("tensor.bitwise_not", "Variable.bitwise_not", op="bitwise_not")
def bitwise_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns all bits flipped, of integers or bools; any shape. ``out`` is an existing Variable to write to."""
    return _negate("bitwise_not", x, out, name)


@export("tensor.isnan", "Variable.isnan", op="isnan_v2")
def isnan(x: Variable, name: str | None = None) -> Variable:
    """Returns whether each element is NaN, as bool; any shape."""
    out: Variable = emit("isnan_v2", {"X": check_variable(x, "x", "isnan")}, name=name)
    return out


@export("tensor.isinf", "Variable.isinf", op="isinf_v2")
def isinf(x: Variable, name: str | None = None) -> Variable:
    """Returns whether each element is infinite, as bool; any shape."""
    out: Variable = emit("isinf_v2", {"X": check_variable(x, "x", "isinf")}, name=name)
    return out


@export("tensor.isfinite", "Variable.isfinite", op="isfinite_v2")
def isfinite(x: Variable, name: str | None = None) -> Variable:
    """Returns whether each element is neither NaN nor infinite, as bool; any shape."""
    out: Variable = emit("isfinite_v2", {"X": check_variable(x, "x", "isfinite")}, name=name)
    return out


@export("tensor.is_empty", "Variable.is_empty", op="is_empty")
def is_empty(x: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x`` has no element, as a bool of shape ``[]``."""
    out: Variable = emit("is_empty", {"X": check_variable(x, "x", "is_empty")}, name=name)
    return out


@export("fluid.layers.is_empty", op="is_empty")
def fluid_is_empty(x: Variable, cond: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether ``x`` has no element; ``cond`` is an existing bool Variable to write to."""
    return _negate("is_empty", x, cond, name)


def _any(test: str, x: Any, negate: bool = False) -> Variable:
    """One truth value of shape ``[1]``: whether any element passes (or fails) a test."""
    found = emit(test, {"X": check_variable(x, "x", test)})
    every = emit("reduce_all" if negate else "reduce_any", {"X": found}, {"reduce_all": True})
    out: Variable = emit("reshape2", {"X": every}, {"shape": (1,)})
    return out


@export("fluid.layers.has_nan")
def has_nan(x: Variable) -> Variable:
    """Returns whether any element is NaN, as a bool of shape ``[1]``."""
    return _any("isnan_v2", x)


@export("fluid.layers.has_inf")
def has_inf(x: Variable) -> Variable:
    """Returns whether any element is infinite, as a bool of shape ``[1]``."""
    return _any("isinf_v2", x)


@export("fluid.layers.isfinite")
def all_finite(x: Variable) -> Variable:
    """Returns whether no element is NaN or infinite, as a bool of shape ``[1]``."""
    return _any("isfinite_v2", x, negate=True)
