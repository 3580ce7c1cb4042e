"""The ``fluid.layers`` spellings of arithmetic: with Paddle's ``axis`` and an activation by name."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import LayerNamer, check_variable
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ops.elementwise._mixed import unify


def with_activation(
    type: str, inputs: dict[str, Any], attrs: dict[str, Any], act: str | None, name: str | None
) -> Variable:
    """Appends an op and, if ``act`` names one, an activation op after it; both results have the layer's name.

    Raises:
        NotFoundError: If no op is called ``act``.
    """
    for slot, value in inputs.items():
        check_variable(value, slot.lower(), type)
    helper = LayerNamer(type, name)
    out: Variable = helper.emit(type, inputs, attrs)
    return out if act is None else helper.emit(act, {"X": out})


def _binary(op: str, x: Any, y: Any, axis: int, act: str | None, name: str | None) -> Variable:
    if isinstance(x, Variable) and isinstance(y, Variable):
        x, y = unify(x, y, op)
    return with_activation(op, {"X": x, "Y": y}, {"axis": axis}, act, name)


@export("fluid.layers.elementwise_add", op="elementwise_add")
def elementwise_add(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(x + y)``.

    Args:
        x: Any shape.
        y: Its sizes equal those of ``x`` from dimension ``axis`` on, or are 1.
        axis: Where ``y`` begins in ``x``; -1 lets the last dimensions meet.
        act: Op type of an activation, or ``None``.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = fluid.layers.elementwise_add(x, paddle.to_tensor([10.0, 20.0]), axis=0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[11., 12.],
               [23., 24.]], dtype=float32)
    """
    return _binary("elementwise_add", x, y, axis, act, name)


@export("fluid.layers.elementwise_sub", op="elementwise_sub")
def elementwise_sub(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(x - y)``; arguments as in :func:`elementwise_add`.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = fluid.layers.elementwise_sub(x, paddle.to_tensor([1.0, 2.0]), axis=0, act="relu")
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0., 1.],
               [1., 2.]], dtype=float32)
    """
    return _binary("elementwise_sub", x, y, axis, act, name)


@export("fluid.layers.elementwise_mul", op="elementwise_mul")
def elementwise_mul(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(x * y)``; arguments as in :func:`elementwise_add`.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = fluid.layers.elementwise_mul(x, paddle.to_tensor([10.0, 100.0]), axis=0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[ 10.,  20.],
               [300., 400.]], dtype=float32)
    """
    return _binary("elementwise_mul", x, y, axis, act, name)


@export("fluid.layers.elementwise_div", op="elementwise_div")
def elementwise_div(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(x / y)``; arguments as in :func:`elementwise_add`."""
    return _binary("elementwise_div", x, y, axis, act, name)


@export("fluid.layers.elementwise_max", op="elementwise_max")
def elementwise_max(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(max(x, y))``; arguments as in :func:`elementwise_add`."""
    return _binary("elementwise_max", x, y, axis, act, name)


@export("fluid.layers.elementwise_min", op="elementwise_min")
def elementwise_min(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(min(x, y))``; arguments as in :func:`elementwise_add`."""
    return _binary("elementwise_min", x, y, axis, act, name)


@export("fluid.layers.elementwise_pow", op="elementwise_pow")
def elementwise_pow(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(x to the power of y)``; arguments as in :func:`elementwise_add`.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = fluid.layers.elementwise_pow(x, paddle.to_tensor([1.0, 2.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[ 1.,  4.],
               [ 3., 16.]], dtype=float32)
    """
    return _binary("elementwise_pow", x, y, axis, act, name)


@export("fluid.layers.elementwise_mod", op="elementwise_mod")
def elementwise_mod(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act(x mod y)`` with the sign of ``y``; arguments as in :func:`elementwise_add`."""
    return _binary("elementwise_mod", x, y, axis, act, name)


@export("fluid.layers.elementwise_floordiv", op="elementwise_floordiv")
def elementwise_floordiv(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Returns ``act`` of the quotient rounded down; arguments as in :func:`elementwise_add`."""
    return _binary("elementwise_floordiv", x, y, axis, act, name)
