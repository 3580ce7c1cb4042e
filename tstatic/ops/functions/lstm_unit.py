"""The gates of one step of the 1.x LSTM."""

from __future__ import annotations

from tstatic.ir.build import LayerNamer
from tstatic.ir.checks import FLOATS, check_dtype, check_has_shape, check_rank, check_same_dtype
from tstatic.ir.composed import composed
from tstatic.ir.program import Variable
from tstatic.ops.elementwise.activation import sigmoid, tanh
from tstatic.ops.elementwise.arithmetic import multiply
from tstatic.ops.elementwise.scale import cast, scale
from tstatic.ops.shape.joining import split


@composed("lstm_unit")
def _lstm_unit(X: Variable, C_prev: Variable, *, forget_bias: float = 0.0) -> dict[str, Variable]:
    return dict(zip(("C", "H"), lstm_gates(LayerNamer("lstm_unit"), X, C_prev, forget_bias), strict=True))


def lstm_gates(helper: LayerNamer, x: Variable, c: Variable, forget_bias: float) -> tuple[Variable, Variable]:
    """Emits ``c' = sigmoid(f + forget_bias) c + sigmoid(i) tanh(g)`` and ``h = sigmoid(o) tanh(c')``.

    Args:
        helper: Names the two results.
        x: The sums of i, f, o and g, ``[batch, 4 * width]``; floats, of which 16-bit ones are rounded at the end.
        c: The cell before the step, ``[batch, width]``.
        forget_bias: Added to f.
    """
    function = "lstm_unit"
    check_dtype(x, FLOATS, "X", function)
    check_same_dtype([x, c], ["X", "C_prev"], function)
    check_rank(c, 2, "C_prev", function, layout="[batch, width]")
    columns = 4 * c.shape[1] if c.shape[1] > 0 else -1
    check_has_shape(x, (c.shape[0], columns), "X", function, why="[batch, 4 * width]")
    low = x.dtype.is_low
    wide, before = (cast(v, "float32") if low else v for v in (x, c))
    i, f, o, g = split(wide, 4, 1)
    kept = multiply(sigmoid(scale(f, 1.0, forget_bias) if forget_bias else f), before)
    terms = {"X": kept, "Y": multiply(sigmoid(i), tanh(g))}
    new: Variable = helper.emit("elementwise_add", terms)
    made: Variable = helper.emit("elementwise_mul", {"X": sigmoid(o), "Y": tanh(new)})
    return (cast(new, x.dtype), cast(made, x.dtype)) if low else (new, made)
