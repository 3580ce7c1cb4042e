"""Activations that weight one half of a value by the other."""

from __future__ import annotations

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_axis
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.ops.elementwise.activation import sigmoid
from tstatic.ops.elementwise.arithmetic import multiply
from tstatic.ops.shape.joining import chunk


@export("nn.functional.glu")
def glu(x: Variable, axis: int = -1, name: str | None = None) -> Variable:
    """Returns ``a * sigmoid(b)``, where ``a`` and ``b`` are the two halves of ``x`` along an axis.

    Args:
        x: Floats of any shape.
        axis: An axis of even size.
        name: Name of the last layer.

    Raises:
        ShapeError: If the size is odd, or there is no such axis.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0, 0.0, 100.0]])
        >>> y = paddle.nn.functional.glu(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0.5, 2. ]], dtype=float32)
    """
    check_variable(x, "x", "glu", FLOATS)
    kept, gate = chunk(x, 2, check_axis(axis, x, "axis", "glu"))
    return multiply(kept, sigmoid(gate), name=name)
