"""Numbers that an update itself moves on, such as powers of decay rates: their code, and that bound to arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.ir.expr import Node, variables
from tstatic.ir.expr_numpy import Code, compile_numpy
from tstatic.ir.formula import Numbers, compiled
from tstatic.ir.ref import Calls

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Moved:
    """A number that the update itself moves on: the calls, and constants of its type that depend on what a step reads."""

    constants: list[Array]
    values: Numbers
    calls: Calls


@dataclass(frozen=True, slots=True)
class MoveCode:
    """The expression of a number's new value as code, over the number and constants of its type.

    Attributes:
        constants: How many there are.
        values: ``(values by name) -> the constants``.
        fixed: Whether attributes alone give them.
    """

    code: Code
    constants: int
    values: Numbers
    fixed: bool

    def bind(self, x: Array, out: Array) -> Moved:
        """Returns the code bound to the number before and after an update."""
        arrays = [np.empty((), x.dtype) for _ in range(self.constants)]
        calls = self.code.bind([x, *arrays], [out], [np.empty(out.shape, d) for d in self.code.registers])
        # The constants are filled now, not in each step.
        if self.fixed:
            for array, value in zip(arrays, self.values({}), strict=True):
                array.fill(value)
            arrays = []
        return Moved(arrays, self.values, calls)


def move_code(node: Node, name: str, dtype: np.dtype[Any]) -> MoveCode:
    """Compiles the expression of a number's new value; constants are rounded to its type first."""
    constants: list[Node] = []

    def in_own_type(part: Node) -> Node:
        if name not in variables(part):
            constants.append(part)
            return Node("var", value=f"constant{len(constants)}")
        return part if part.op == "var" else Node(part.op, tuple(in_own_type(a) for a in part.args))

    node = in_own_type(node)
    inputs = {n: (i, dtype) for i, n in enumerate((name, *(f"constant{i + 1}" for i in range(len(constants)))))}
    code = compile_numpy({0: node}, inputs, {0: dtype}, {})
    return MoveCode(code, len(constants), compiled(constants), not any(map(variables, constants)))
