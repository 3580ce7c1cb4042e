"""Numbers that an update itself moves on, such as powers of a decay rate: their code, and its calls on arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.ir.expr import Node, variables
from tstatic.ir.expr_numpy import Code, compile_numpy
from tstatic.ir.formula import Numbers, compiled
from tstatic.ir.ref import Calls

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class MovedCode:
    """The code of a number that the update itself moves on; it depends on its type alone, not on the arrays.

    Attributes:
        slot: The output slot of the number.
        code: Reads the number, then the constants.
        constants: How many constants there are, rounded to the number's type.
        values: ``(values by name) -> the constants``.
        fixed: Whether the constants depend on attributes alone.
    """

    slot: str
    code: Code
    constants: int
    values: Numbers
    fixed: bool


@dataclass(slots=True)
class Moved:
    """A number that the update itself moves on: the calls, and constants of its type that depend on what a step reads."""

    constants: list[Array]
    values: Numbers
    calls: Calls


def moved_code(node: Node, slot: str, dtype: np.dtype[Any]) -> MovedCode:
    """Compiles the expression of a number's new value; constants are rounded to its type first."""
    name = slot.removesuffix("Out").lower()
    constants: list[Node] = []

    def in_own_type(part: Node) -> Node:
        # Parts without the number itself are float64 in Python, rounded once to the number's type.
        if name not in variables(part):
            constants.append(part)
            return Node("var", value=f"constant{len(constants)}")
        return part if part.op == "var" else Node(part.op, tuple(in_own_type(a) for a in part.args))

    node = in_own_type(node)
    inputs = {n: (i, dtype) for i, n in enumerate((name, *(f"constant{i + 1}" for i in range(len(constants)))))}
    code = compile_numpy({0: node}, inputs, {0: dtype}, {})
    return MovedCode(slot, code, len(constants), compiled(constants), not any(map(variables, constants)))


def bind_moved(one: MovedCode, x: Array, out: Array) -> Moved:
    """Binds the code of a number's new value."""
    arrays = [np.empty((), x.dtype) for _ in range(one.constants)]
    calls = one.code.bind_operands([x, *arrays], [out], [np.empty(out.shape, d) for d in one.code.registers])
    # Attributes alone: the constants are filled now, not in each step.
    if one.fixed:
        for array, value in zip(arrays, one.values({}), strict=True):
            array.fill(value)
        arrays = []
    return Moved(arrays, one.values, calls)


__all__ = ["Moved", "MovedCode", "bind_moved", "moved_code"]
