"""Formulas of updates: named expressions over an op's slots; what has one element is computed in float64 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.ir import expr
from tstatic.ir.expr import FUNCTIONS, INFIX, Node, const, make, parse, substitute, variables
from tstatic.locks import cached_property


def _references_only(*args: Any) -> Any:
    raise AssertionError("sums of squares are computed by references of updates only")


expr.define("squares", None, _references_only)
"""The sum of squares over all elements, in float64; a term of its own."""


@dataclass(frozen=True)
class UpdateFormula:
    """What an update computes, in the expression language over the slots' lower-case names, attributes and earlier terms.

    A term of an output slot is that slot's new value; any other names a value that later terms share. An output has the
    type of its input ``X`` for ``XOut``. Within a term, the largest parts that have one element are computed in float64 and
    rounded once to that type. A slot for one number that is empty counts as 1.

    Attributes:
        inputs, outputs: Slots of the op.
        texts: Output slot or name -> expression, in order.
        numbers: Input slots that hold one number.
        replaces: Of these: slot -> the attribute whose place it takes.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    texts: Mapping[str, str]
    numbers: tuple[str, ...]
    replaces: Mapping[str, str]

    @cached_property
    def single_pass(self) -> bool:
        """Whether one pass over the elements computes all."""
        return not any(parse(text).op == "squares" for text in self.texts.values())

    def bind_attributes(self, attrs: Mapping[str, Any], given: Collection[str]) -> BoundFormula:
        """Returns the terms for known attributes.

        Args:
            attrs: Complete attributes.
            given: Slots that are not empty; terms of other outputs are left out.
        """
        known = {n: const(v) for n, v in attrs.items() if isinstance(v, bool | int | float | str)}
        known |= {n.lower(): const(1.0) for n in self.numbers if n not in given}
        # A tensor takes the attribute's place: its name then stays a variable, read in each step.
        for slot, attr in self.replaces.items():
            if slot in given:
                del known[attr]
        wanted = {n: t for n, t in self.texts.items() if n not in self.outputs or n in given}
        terms = {n: substitute(parse(t), known) for n, t in wanted.items()}
        numbers = {self.replaces.get(n, n.lower()) for n in self.numbers if n in given}
        return BoundFormula(terms, numbers, self.outputs)


@dataclass(frozen=True)
class Pass:
    """What one pass over the elements computes.

    Attributes:
        outputs: Output slot -> expression over element variables and the numbers' names.
        squares: Name -> expression whose squares are summed.
        numbers: Names of numbers -> their expressions in float64.
    """

    outputs: Mapping[str, Node]
    squares: Mapping[str, Node]
    numbers: Mapping[str, Node]


class BoundFormula:
    """A formula whose attributes are numbers.

    Attributes:
        terms: Output slot or name -> expression over slots and earlier terms.
        elements: Of these, those with an element for each element of the parameter; numbers have names.
        squares: Those that are sums of squares: name -> what is squared.
        moved: Output slots for one number -> expression over the slot and constants.
        numbers: Name -> expression in float64 over slots for one number, and sums of squares.
    """

    def __init__(self, terms: Mapping[str, Node], numbers: Collection[str], outputs: Collection[str]) -> None:
        self.terms = terms
        self.elements: dict[str, Node] = {}
        self.squares: dict[str, Node] = {}
        self.moved: dict[str, Node] = {}
        self.numbers: dict[str, Node] = {}
        self._outputs = frozenset(outputs)
        self._single = set(numbers)
        self._inlined: dict[str, Node] = {}
        for name, node in terms.items():
            # A number that the update itself moves on, such as a power of a decay rate.
            if name.removesuffix("Out").lower() in numbers:
                self.moved[name] = node
            elif node.op == "squares":
                self.squares[name] = self._with_numbers(node.args[0])
                self._single.add(name)
            elif name not in outputs and variables(node) <= self._single:
                self._single.add(name)
                self._inlined[name] = substitute(node, self._inlined)
            else:
                self.elements[name] = self._with_numbers(node)

    def _with_numbers(self, node: Node) -> Node:
        """Returns an expression with a name for each of the largest parts that have one element."""
        if node.op == "const":
            return node
        if variables(node) <= self._single:
            whole = substitute(node, self._inlined)
            if not variables(whole):
                return const(evaluate([whole], {})[0])
            # Equal numbers share a name: each is computed and loaded once per tensor.
            name = next((n for n, known in self.numbers.items() if known == whole), f"number{len(self.numbers)}")
            self.numbers[name] = whole
            return Node("var", value=name)
        return node if node.op == "var" else make(node.op, *(self._with_numbers(a) for a in node.args))

    def passes(self) -> list[Pass]:
        """Returns one pass; or two, where numbers of the second are sums that the first makes.

        The second pass reads the new values that the first stored.
        """
        # Late are numbers made of sums of squares, and then every term that reads a late one, in order.
        late = {n for n, node in self.numbers.items() if not variables(node).isdisjoint(self.squares)}
        for name, node in self.elements.items():
            if not variables(node).isdisjoint(late):
                late.add(name.lower())
        found: list[Pass] = []
        # A sum of squares is complete after a pass over all blocks, so what needs it waits for a second pass.
        for turn in (False, True)[: 1 + bool(late)]:
            inlined: dict[str, Node] = {}
            for name, node in self.elements.items():
                if not turn or name not in self._outputs or name.lower() in late:
                    inlined[name.lower()] = substitute(node, inlined)
            outputs = {
                n: inlined[n.lower()] for n in self.elements if n in self._outputs and (n.lower() in late) is turn
            }
            squares = {} if turn or not late else {n: substitute(node, inlined) for n, node in self.squares.items()}
            used = set[str]().union(*map(variables, (*outputs.values(), *squares.values())))
            found.append(Pass(outputs, squares, {n: node for n, node in self.numbers.items() if n in used}))
        return found


# -------------------------------------------------------------------------------------------------------------- numbers
_MATH: Mapping[str, Callable[..., Any]] = {
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "abs": abs, "maximum": max, "minimum": min,
}  # fmt: skip
_SPECIAL = {"inf": math.inf, "nan": math.nan}


def to_python(node: Node, names: Callable[[str], str], arrays: bool = False) -> str:
    """Writes an expression as Python.

    Args:
        node: The expression.
        names: Variable -> its text.
        arrays: For arrays, with ``np``; otherwise for numbers, with functions by their own names.
    """
    if node.op == "const":
        return repr(node.value)
    if node.op == "var":
        return names(node.value)
    args = [to_python(a, names, arrays) for a in node.args]
    if node.op in INFIX:
        return f"({args[0]} {INFIX[node.op]} {args[1]})"
    if node.op == "neg":
        return f"(-{args[0]})"
    if arrays:
        name = "where" if node.op == "where" else getattr(FUNCTIONS[node.op].numpy, "__name__", node.op)
        return f"np.{name}({', '.join(args)})"
    # Of a choice only one side is computed: the other may divide by 0.
    if node.op == "where":
        return f"({args[1]} if {args[0]} else {args[2]})"
    if node.op in ("both", "either"):
        return f"({args[0]} {'and' if node.op == 'both' else 'or'} {args[1]})"
    return f"{node.op}({', '.join(args)})"


Numbers = Callable[[Mapping[str, Any]], tuple[float, ...]]


def compiled(nodes: Sequence[Node], functions: Mapping[str, Callable[..., Any]] = _MATH) -> Numbers:
    """Returns a function of the variables' values, by name, that computes expressions in float64."""
    text = "".join(f"{to_python(node, lambda name: f'n[{name!r}]')}, " for node in nodes)
    # Compiled Python: a step evaluates these numbers for every
    # tensor, and floats are faster than arrays of no dimension.
    made: Numbers = eval(f"lambda n: ({text})", {"__builtins__": {}, **_SPECIAL, **functions})
    return made


def evaluate(nodes: Sequence[Node], values: Mapping[str, float]) -> tuple[float, ...]:
    """Computes expressions in float64 by IEEE 754: a division by 0 is infinite, the root of a negative number NaN."""
    functions: dict[str, Any] = {n: f.numpy for n, f in FUNCTIONS.items() if f.numpy is not None}
    with np.errstate(all="ignore"):
        # numpy's scalars and functions: Python's own raise for a division by 0 and the root of a negative number.
        found = compiled(nodes, functions)({n: np.float64(v) for n, v in values.items()})
        return tuple(float(v) for v in found)
