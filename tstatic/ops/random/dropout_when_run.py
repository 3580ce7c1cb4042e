"""Dropout whose chance is a Variable."""

from __future__ import annotations

from collections.abc import Sequence

from tstatic.ir.program import Variable
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.logic import where
from tstatic.ops.random.distributions import rand
from tstatic.ops.shape.number_of import number_of

_LEAST = 2.0**-24
"""The smallest difference of a float32 chance below 1 from 1: what stays is divided by no less."""


def dropout_when_run(
    x: Variable, p: Variable, axes: Sequence[int] | None, training: bool, mode: str, function: str, name: str | None
) -> Variable:
    """Zeroes elements with a chance that is known when the program runs, as the operator does with a number.

    Args:
        x: Floats.
        p: The chance, a Variable of one element; from 0 to 1.
        axes: The axes along which elements are drawn apart; ``None`` for all.
        training: ``False`` for inference.
        mode: The operator's ``dropout_implementation``.
        function: The function that was called, for errors.
        name: Name of the last layer.

    Raises:
        DTypeError, ShapeError: If ``p`` is not one number.
    """
    rank = len(x.shape)
    ones = (1,) * rank
    chance = number_of(p, "p", function, x.dtype.name, ones)
    apart = range(rank) if axes is None else [axis % rank for axis in axes]
    sizes = emit_one("shape", {"Input": x})
    bounds = [{"axes": (0,), "starts": (i,), "ends": (i + 1,)} for i in range(rank)]
    shape = [emit_one("slice", {"Input": sizes}, bounds[i]) if i in apart else 1 for i in range(rank)]
    drawn = emit_one("cast", {"X": rand(shape, "float32")}, {"out_dtype": x.dtype})
    kept = emit_one("cast", {"X": drawn >= chance}, {"out_dtype": x.dtype})
    # A step function of the chance: it has no gradient to pass on.
    kept.stop_gradient = True
    stays = emit_one("scale", {"X": chance}, {"scale": -1.0, "bias": 1.0})
    if mode == "upscale_in_train":
        least = emit_one("clip", {"X": stays}, {"min": _LEAST, "max": 1.0})
        trained, inferred = emit_one("elementwise_div", {"X": x * kept, "Y": least}), x
    else:
        trained, inferred = x * kept, x * stays
    # Zero in training and one in inference, which is said to operators, also later: by `program.clone(for_test=True)`.
    one = emit_one("fill_constant", {}, {"shape": ones, "dtype": "float32", "value": 1.0})
    attrs = {"dropout_prob": 1.0, "is_test": not training, "dropout_implementation": "upscale_in_train"}
    found: Variable = where(emit_one("dropout", {"X": one}, attrs) > 0.5, inferred, trained, name=name)
    return found
