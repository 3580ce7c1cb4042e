"""All parameters as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tstatic.errors import ProgramError, ShapeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_not_empty
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable


def _some(parameters: Any, function: str) -> list[Variable]:
    found = [check_variable(p, "parameters", function) for p in parameters]
    check_not_empty(found, "parameters", function, of="parameter", error=ProgramError)
    return found


@export("nn.utils.parameters_to_vector")
def parameters_to_vector(parameters: Sequence[Variable], name: str | None = None) -> Any:
    """Returns all elements of the parameters, one parameter after another, as a vector."""
    flat = [emit("reshape2", {"X": p}, {"shape": (-1,)}) for p in _some(parameters, "parameters_to_vector")]
    return emit("concat", {"X": flat}, {"axis": 0}, name=name)


@export("nn.utils.vector_to_parameters")
def vector_to_parameters(vec: Variable, parameters: Sequence[Variable], name: str | None = None) -> None:
    """Writes the elements of a vector to the parameters, as :func:`parameters_to_vector` orders them, at each run.

    Args:
        vec: As many elements as the parameters have together.
        parameters: What to write to.
        name: Name of the layer.

    Raises:
        ShapeError: If the numbers of elements differ.
    """
    found = _some(parameters, "vector_to_parameters")
    counts = [math.prod(p.shape) for p in found]
    check_variable(vec, "vec", "vector_to_parameters")
    if vec.shape != (sum(counts),):
        raise ShapeError(
            "the vector has another number of elements than the parameters",
            expected=[sum(counts)],
            received=list(vec.shape),
            fix="pass what parameters_to_vector returned for the same parameters",
            op="vector_to_parameters",
            var=vec.name,
        )
    pieces = emit("split", {"X": vec}, {"sections": tuple(counts), "axis": 0}, name=name)
    for p, piece in zip(found, pieces, strict=True):
        emit("reshape2", {"X": piece}, {"shape": p.shape}, outputs={"Out": p})
