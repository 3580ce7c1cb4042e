"""Comparisons of two values that broadcast: equal, not_equal, less and greater, with or without equality."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import emit
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.no_effect import PLACE, no_effect
from tstatic.ops.elementwise._broadcast import comparison, prepare
from tstatic.ops.elementwise._mixed import unify
from tstatic.ops.elementwise.arithmetic import binary_op

_SYMBOLS = {
    "equal": "==", "not_equal": "!=", "less_than": "<", "less_equal": "<=", "greater_than": ">", "greater_equal": ">=",
}  # fmt: skip
for _type, _symbol in _SYMBOLS.items():
    register(OpDef(
        _type, "X, Y -> Out", attrs={"axis": -1, "force_cpu": Attr.idle(False, PLACE)}, pointwise={"Out": f"x {_symbol} y"},
        infer=comparison, prepare=prepare, inplace=(),
        # Few different values, so that some are equal.
        domain=Domain(
            "binary", cases=(Case(((2, 3, 4), (3,)), {"axis": 1}), Case(((2,), (2, 3)), {"axis": 0})),
            values={"X": ValueRange(-0.02, 0.02), "Y": ValueRange(-0.02, 0.02)}, others=("int64", "int32", "bool"), ulps=0,
        ),
    ))  # fmt: skip


def _compare(type: str, x: Any, y: Any, name: str | None = None, cond: Variable | None = None) -> Variable:
    if cond is None:
        return binary_op(type, x, y, name)
    if isinstance(x, Variable) and isinstance(y, Variable):
        x, y = unify(x, y, type)
    out: Variable = emit(type, {"X": x, "Y": y}, outputs={"Out": cond})
    return out


@export("tensor.equal", "Variable.equal", op="equal")
def equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x == y`` for each pair, as bool; shapes broadcast, dtypes meet."""
    return _compare("equal", x, y, name)


@export("tensor.not_equal", "Variable.not_equal", op="not_equal")
def not_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x != y`` for each pair, as bool; shapes broadcast, dtypes meet."""
    return _compare("not_equal", x, y, name)


@export("tensor.less_than", "Variable.less_than", op="less_than")
def less_than(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x < y`` for each pair, as bool; shapes broadcast, dtypes meet.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0, 3.0])
        >>> y = paddle.less_than(x, paddle.to_tensor([2.0, 2.0, 4.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([ True, False,  True])
    """
    return _compare("less_than", x, y, name)


@export("tensor.less_equal", "Variable.less_equal", op="less_equal")
def less_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x <= y`` for each pair, as bool; shapes broadcast, dtypes meet."""
    return _compare("less_equal", x, y, name)


@export("tensor.greater_than", "Variable.greater_than", op="greater_than")
def greater_than(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x > y`` for each pair, as bool; shapes broadcast, dtypes meet."""
    return _compare("greater_than", x, y, name)


@export("tensor.greater_equal", "Variable.greater_equal", op="greater_equal")
def greater_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns whether ``x >= y`` for each pair, as bool; shapes broadcast, dtypes meet."""
    return _compare("greater_equal", x, y, name)


@export("fluid.layers.equal", op="equal")
def fluid_equal(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether ``x == y``; ``cond`` is an existing bool Variable to write to."""
    return _compare("equal", x, y, name, cond)


@export("fluid.layers.not_equal", op="not_equal")
def fluid_not_equal(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether ``x != y``; ``cond`` is an existing bool Variable to write to."""
    return _compare("not_equal", x, y, name, cond)


@no_effect(force_cpu=PLACE)
@export("fluid.layers.less_than", op="less_than")
def fluid_less_than(
    x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None, name: str | None = None
) -> Variable:
    """Returns whether ``x < y``; ``cond`` is an existing bool Variable to write to.

    Example:
        >>> i = fluid.layers.fill_constant([1], "int64", 3)
        >>> n = fluid.layers.fill_constant([1], "int64", 5)
        >>> static.Executor().run(fetch_list=[fluid.layers.less_than(i, n)])[0]
        array([ True])
    """
    return _compare("less_than", x, y, name, cond)


@export("fluid.layers.less_equal", op="less_equal")
def fluid_less_equal(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether ``x <= y``; ``cond`` is an existing bool Variable to write to."""
    return _compare("less_equal", x, y, name, cond)


@export("fluid.layers.greater_than", op="greater_than")
def fluid_greater_than(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether ``x > y``; ``cond`` is an existing bool Variable to write to."""
    return _compare("greater_than", x, y, name, cond)


@export("fluid.layers.greater_equal", op="greater_equal")
def fluid_greater_equal(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Variable:
    """Returns whether ``x >= y``; ``cond`` is an existing bool Variable to write to."""
    return _compare("greater_equal", x, y, name, cond)
