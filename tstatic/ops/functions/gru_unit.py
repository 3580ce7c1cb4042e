"""One step of the 1.x GRU."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import LayerNamer
from tstatic.ir.checks import (
    FLOATS,
    check_choice,
    check_dtype,
    check_has_shape,
    check_rank,
    check_same_dtype,
    check_static_dim,
)
from tstatic.ir.composed import composed
from tstatic.ir.program import Variable
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.arithmetic import add, multiply
from tstatic.ops.elementwise.scale import cast, scale
from tstatic.ops.matmul.matmul import matmul
from tstatic.ops.shape.joining import split
from tstatic.ops.shape.reshape import reshape

ACTIVATIONS = ("sigmoid", "tanh", "relu", "identity")


@composed("gru_unit")
def _gru_unit(
    Input: Variable,
    HiddenPrev: Variable,
    Weight: Variable,
    Bias: Variable | None = None,
    *,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> dict[str, Variable]:
    helper = LayerNamer("gru_unit")
    made = gru_gates(helper, Input, HiddenPrev, Weight, Bias, activation, gate_activation, origin_mode)
    return dict(zip(("Gate", "ResetHiddenPrev", "Hidden"), made, strict=True))


def gru_gates(
    helper: LayerNamer,
    x: Variable,
    hidden: Variable,
    weight: Variable,
    bias: Variable | None,
    activation: str,
    gate_activation: str,
    origin_mode: bool,
) -> tuple[Variable, Variable, Variable]:
    """Emits the gates u, r and n, ``r h`` and the new state ``(1 - u) h + u n``, or ``u h + (1 - u) n`` in ``origin_mode``.

    Args:
        helper: Names the three results.
        x: The input's part of the gates, ``[batch, 3 * width]``; floats, of which 16-bit ones are rounded at the end.
        hidden: The state before the step, ``[batch, width]``.
        weight: ``[width, 3 * width]``. As in Paddle, it holds two matrices one after the other in memory: ``[width, 2 * width]``
            of u and r, and ``[width, width]`` of n.
        bias: ``[1, 3 * width]``, or ``None``.
        activation, gate_activation: Of n, and of u and r.
        origin_mode: Which of the two formulas.
    """
    function = "gru_unit"
    for name, value in (("activation", activation), ("gate_activation", gate_activation)):
        check_choice(value, ACTIVATIONS, name, function)
    given = {"Input": x, "HiddenPrev": hidden, "Weight": weight, **({} if bias is None else {"Bias": bias})}
    check_dtype(x, FLOATS, "Input", function)
    check_same_dtype(list(given.values()), list(given), function)
    check_rank(weight, 2, "Weight", function, layout="[width, 3 * width]")
    width = check_static_dim(weight.shape[0], weight, "axis 0 (the width)", function)
    check_has_shape(weight, (width, 3 * width), "Weight", function, why="[width, 3 * width]")
    # Each of the two values may be the one whose batch is known, so each is held against the other.
    rows = hidden.shape[0] if hidden.shape else -1
    check_has_shape(x, (rows, 3 * width), "Input", function, why="[batch, 3 * width]")
    check_has_shape(hidden, (x.shape[0], width), "HiddenPrev", function, why="[batch, width]")
    if bias is not None:
        check_has_shape(bias, (1, 3 * width), "Bias", function, why="[1, 3 * width]")

    results = [helper.variable(x.dtype) for _ in range(3)]
    low = x.dtype.is_low

    # Returns the wide value for what follows; only the named result is rounded to 16 bits.
    def result(at: int, type: str, inputs: dict[str, Any], **attrs: Any) -> Variable:
        if not low:
            return emit_one(type, inputs, attrs, outputs={"Out": results[at]})
        made = emit_one(type, inputs, attrs)
        emit_one("cast", {"X": made}, {"in_dtype": made.dtype, "out_dtype": x.dtype}, outputs={"Out": results[at]})
        return made

    def activated(word: str, v: Variable) -> Variable:
        return v if word == "identity" else emit_one(word, {"X": v})

    total, before, packed = (cast(v, "float32") if low else v for v in (x, hidden, weight))
    if bias is not None:
        total = add(total, cast(bias, "float32") if low else bias)
    # In memory are two matrices one behind the other; columns of the declared [width, 3 * width] would mix their rows.
    first, last = split(reshape(packed, [-1]), [2 * width * width, width * width])
    two, one = split(total, [2 * width, width], 1)
    both = activated(gate_activation, add(two, matmul(before, reshape(first, [width, 2 * width]))))
    u, r = split(both, 2, 1)
    reset = result(1, "elementwise_mul", {"X": r, "Y": before})
    n = activated(activation, add(one, matmul(reset, reshape(last, [width, width]))))
    result(0, "concat", {"X": [both, n]}, axis=1)
    # The two formulas differ only in which of the two the update gate keeps.
    kept, taken = (before, n) if origin_mode else (n, before)
    terms = {"X": multiply(u, kept), "Y": multiply(scale(u, -1.0, 1.0), taken)}
    result(2, "elementwise_add", terms)
    return results[0], results[1], results[2]
