"""Sums for the metrics of click-through rates, a composition of other functions."""

from __future__ import annotations

from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import FLOATS, NUMBERS, check_same_shape
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.no_effect import no_effect
from tstatic.ops.elementwise.activation import sigmoid
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.elementwise.unary import abs as magnitude
from tstatic.ops.elementwise.unary import square
from tstatic.ops.loss.metric import counter
from tstatic.ops.reduce.reduction import sum as total
from tstatic.ops.shape.creation import ones_like
from tstatic.ops.shape.reshape import reshape


@no_effect(ins_tag_weight="every sample counts, as in Paddle")
@export("static.ctr_metric_bundle")
def ctr_metric_bundle(
    input: Variable, label: Variable, ins_tag_weight: Variable | None = None
) -> tuple[Variable, Variable, Variable, Variable, Variable, Variable]:
    """Adds up what metrics of click-through rates are made of, over all batches since the startup program ran.

    Divided by the number of samples, the first is the square of RMSE, the second MAE, the third the predicted rate.

    Args:
        input: Predicted probabilities ``[batch, 1]``; floats.
        label: 1 for a click, else 0; of that shape.

    Returns:
        The sums of squared errors, of absolute errors, of predictions, of ``sigmoid(predictions)`` and of clicks, and the
        number of samples: six persistable Variables ``[1]``, float32.

    Raises:
        ShapeError: If the shapes differ.

    Example:
        >>> p, click = paddle.to_tensor([[0.5], [1.0]]), paddle.to_tensor([[0.0], [1.0]])
        >>> sums = static.ctr_metric_bundle(p, click)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [round(v.item(), 4) for v in exe.run(fetch_list=list(sums))]
        [0.25, 0.5, 1.5, 1.3535, 1.0, 2.0]
    """
    function = "ctr_metric_bundle"
    check_variable(input, "input", function, FLOATS)
    check_variable(label, "label", function, NUMBERS)
    check_same_shape((input, label), ("input", "label"), function)
    p, click = (cast(v, "float32") for v in (input, label))
    away = p - click
    sums = []
    for name, value in (
        # The sigmoid of what is a probability already: Paddle's bundle has it.
        ("squared_error", square(away)), ("absolute_error", magnitude(away)), ("probability", p), ("q", sigmoid(p)),
        ("clicks", click), ("samples", ones_like(p)),
    ):  # fmt: skip
        # Persistable, so the sums go on over runs until the startup program runs again.
        held = counter(f"ctr_{name}", (1,), "float32")
        emit("elementwise_add", {"X": held, "Y": reshape(total(value), [1])}, outputs={"Out": held})
        sums.append(held)
    return sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]
