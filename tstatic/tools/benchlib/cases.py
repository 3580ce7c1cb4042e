"""Builds the program of a row, its values and what peers need: one direction of it, its work, and its results in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.evaluate import evaluate
from tstatic.ir.expr import Node, parse
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.program import Operator, Program
from tstatic.ir.rng import RngKey
from tstatic.ir.types import DType, dtype_of
from tstatic.locks import cached_property
from tstatic.tools.benchlib.rows import BACKWARD, Row
from tstatic.tools.testing.magnitudes import widen
from tstatic.tools.testing.parts import Array
from tstatic.tools.testing.runner import start_values
from tstatic.tools.testing.tolerance import FACTOR, MOST_ULPS, check, float64_program, ulp, ulps_of

_BACKWARD_ROLE = 1


@dataclass(frozen=True)
class Work:
    """What a row has to do at least.

    Attributes:
        nbytes: Bytes of its inputs that are read and of its results.
        flops: Floating-point operations, by the costs and expressions of the op definitions; ``None`` where one states neither.
    """

    nbytes: int
    flops: float | None


@dataclass
class Case:
    """A row, ready for peers.

    Attributes:
        row: The row.
        program: All inputs are persistable, so that a run copies none of them.
        state: The persistable variables and their values.
        fetches: Names of its results.
        inputs: The values of the recipe's inputs, whatever the direction leaves of them.
        feed: What each run is fed; only a user's own program is fed anything.
        written: Persistable variables that a run writes, and whose values after the first run are compared as its results are.
    """

    row: Row
    program: Program
    state: dict[str, Array]
    fetches: list[str]
    inputs: dict[str, Array]
    feed: dict[str, Array] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)

    @property
    def compared(self) -> list[str]:
        """The names of what a peer's results are, in order."""
        return [*self.fetches, *self.written]

    @cached_property
    def trains(self) -> bool:
        return bool(self.row.recipe.optimizer)

    @cached_property
    def random(self) -> bool:
        """Whether an op draws numbers."""
        return any(op_def(step.type).random for step in self.row.recipe.steps)

    @cached_property
    def expected(self) -> list[Array]:
        """The results of the references, in the row's own types."""
        values = run_references(self.program, self.state)
        return [values[name] for name in self.compared]

    @cached_property
    def exact(self) -> list[Array]:
        """The results of the references in float64."""
        values = run_references(float64_program(self.program), {n: widen(a) for n, a in self.state.items()})
        return [values[name] for name in self.compared]

    @cached_property
    def _units(self) -> dict[str, float]:
        return ulps_of(self.program, self.compared)

    @cached_property
    def work(self) -> Work:
        """What the row has to do at least."""
        ops = self.program.global_block().ops
        read = {n for op in ops for n in op.input_arg_names}
        nbytes = sum(a.nbytes for n, a in self.state.items() if n in read)
        nbytes += sum(np.asarray(a).nbytes for a in self.expected)
        flops = [_flops(op) for op in ops]
        return Work(nbytes, None if None in flops or self.trains else sum(f for f in flops if f is not None))

    def difference(self, results: Sequence[Array], foreign: bool = False) -> str:
        """Says how results break the tolerance rule; empty if they keep it.

        The rule is that of ``tstatic.testing``: at most 1.5 times the reference's own error, or what one unit in the last
        place of each input and temporary changes, and a number of units that depends on the ops. At the sizes of a benchmark a
        sum has thousands of terms, which every library adds in another order: where an op is not elementwise, the units may be
        those of the array's largest element.

        Args:
            results: One array per name of :attr:`compared`.
            foreign: Whether they come from another library, which rounds at other places within an op: the largest element's
                units then count for elementwise ops, too, three times, and are at least those of the op definitions, which
                the tests of their torch forms use.
        """
        if len(results) != len(self.compared):
            return f"{len(results)} results in the place of {len(self.compared)}"
        pairs = [(i, np.asarray(got)) for i, got in enumerate(results)]
        pairs = [(i, got) for i, got in pairs if not _same(got, self.expected[i])]
        return next(filter(None, (self._wrong(i, got, foreign) for i, got in pairs)), "")

    def _wrong(self, number: int, got: Array, foreign: bool) -> str:
        name, expected = self.compared[number], self.expected[number]
        if self._complex:
            return self._off(number, got)
        units = max(self._units[name], self._stated_units) if foreign else self._units[name]
        exact = self.exact[number]
        found = check(exact, expected, got, units)
        if found is not None and found.reason == "value":
            elementwise = all(op.definition.pointwise is not None for op in self.program.global_block().ops)
            if elementwise and not foreign:
                found = check(exact, expected, got, units, self._spread[number])
            else:
                largest = ulp(np.abs(exact[np.isfinite(exact)]).max(initial=0.0), got.dtype)
                # As a spread, which the rule multiplies.
                found = check(exact, expected, got, units, (3 if foreign else 1) * units * largest / FACTOR)
        return f"{name} {found}" if found is not None else ""

    @cached_property
    def _complex(self) -> bool:
        return any(a.dtype.kind == "c" for a in (*self.state.values(), *self.expected))

    @cached_property
    def _stated_units(self) -> float:
        """The units that the op definitions of the program allow between their reference and their torch form."""
        domains = [op_def(step.type).domain for step in self.row.recipe.steps]
        return min(float(MOST_ULPS), sum(one.ulps for one in domains if one is not None))

    @cached_property
    def _spread(self) -> list[Array]:
        """How far each result moves in float64 when one input or temporary after the other moves by a unit in the last place."""
        wide, state = float64_program(self.program), {n: widen(a) for n, a in self.state.items()}
        spread = [np.zeros(a.shape) for a in self.exact]
        kinds = {n: dtype_of(a.dtype) for n, a in self.state.items()}
        block = self.program.global_block()
        kinds |= {n: block.var(n).dtype for op in block.ops for n in op.output_arg_names}
        for name, kind in kinds.items():
            if not kind.is_float:
                continue
            moved = run_references(wide, state, partial(_moved, name, kind))
            with np.errstate(all="ignore"):
                for total, fetch, exact in zip(spread, self.fetches, self.exact, strict=True):
                    if exact.dtype == np.float64:
                        total += np.nan_to_num(np.abs(moved[fetch] - exact), nan=0.0, posinf=0.0)
        return spread

    def _off(self, number: int, got: Array) -> str:
        """Says how far complex results, or what is computed from them, are off; empty if they are near enough."""
        name, expected = self.compared[number], self.expected[number]
        if got.dtype != expected.dtype or got.shape != expected.shape:
            return f"{name}: {got.dtype}{list(got.shape)} in the place of {expected.dtype}{list(expected.shape)}"
        if expected.dtype.kind not in "fc":
            return "" if np.array_equal(got, expected) else f"{name}: other whole numbers"
        unit = float(np.finfo(expected.dtype).eps)
        size, error = (float(np.abs(a).max(initial=0.0)) for a in (expected, got - expected))
        return "" if error <= MOST_ULPS * unit * size else f"{name} is off by {error:.3g} of {size:.3g}"


def _moved(name: str, kind: DType, at: str, array: Array) -> Array:
    """Returns a value, moved by a unit in the last place if it is the one that is to move."""
    return np.asarray(array + ulp(array, kind)) if at == name else array


def _same(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# ----------------------------------------------------------------------------------------------------------------- build
def build(row: Row, seed: int = 0) -> Case:
    """Builds the program of a row.

    Raises:
        TstaticError: What an op refuses.
    """
    built = row.recipe.build()
    program = built.main
    drawn = row.draw(seed)
    block = program.global_block()
    # First, as the startup program is not run for what is fed.
    state = start_values(program, built.startup) if row.recipe.optimizer else {}
    read = {n for op in block.ops for n in op.input_arg_names}
    for name, value in built.feeds.items():
        block.var(name).is_data, block.var(name).persistable = False, True
        # The gradient of a result that no gradient goes through is not read.
        if name in read:
            state[name] = np.asarray(drawn.get(name, value))
    program._touch()
    case = Case(row, program, state, list(built.fetches), dict(state))
    return _backward_alone(case) if row.direction == BACKWARD else case


def _backward_alone(case: Case) -> Case:
    """Returns the backward ops alone: what they read of the forward ones is there from the start."""
    block = case.program.global_block()
    gradients = case.fetches[len(case.row.recipe.fetches) :]
    if not gradients:
        raise ProgramError(
            f"'{case.row.subject}' has no gradient for its inputs", fix="measure it with --direction fwd"
        )
    forward = [op for op in block.ops if not op.role & _BACKWARD_ROLE]
    made = {n for op in forward for n in op.output_arg_names}
    values = run_references(case.program, case.state)
    read = {n for op in block.ops if op.role & _BACKWARD_ROLE for n in op.input_arg_names}
    state = {n: a for n, a in case.state.items() if n in read}
    program = case.program.clone()
    target = program.global_block()
    for name in sorted(read & made):
        state[name] = values[name]
        target.var(name).persistable = True
    for _ in forward:
        target._remove_op(next(op.idx for op in target.ops if not op.role & _BACKWARD_ROLE))
    program._touch()
    return Case(case.row, program, state, gradients, case.inputs)


# ------------------------------------------------------------------------------------------------------------ references
def slots_of(op: Operator, values: Mapping[str, Any]) -> list[Any]:
    """Returns one entry per input slot of an op: a value, a list of them, or ``None``."""
    found: list[Any] = []
    for slot in op.definition.inputs:
        names = op.inputs.get(slot.name, ())
        found.append([values[n] for n in names] if slot.many and names else values[names[0]] if names else None)
    return found


def run_references(
    program: Program, state: Mapping[str, Array], change: Callable[[str, Array], Array] = lambda name, array: array
) -> dict[str, Array]:
    """Runs a program without branches by the references of its ops, one after the other; returns all values.

    Random ops draw what the first run of an Executor draws.

    Args:
        program: The program.
        state: Its persistable variables.
        change: Is given the name and array of each value, and returns what readers get.
    """
    values: dict[str, Array] = {n: change(n, a) for n, a in state.items()}
    for op in program.global_block().ops:
        definition = op.definition
        reserved = {"rng": RngKey(program.random_seed, 0, op.position, 0)} if definition.random else {}
        wanted = [bool(op.outputs.get(slot.name)) for slot in definition.outputs]
        outs = evaluate(definition, slots_of(op, values), own_attributes(definition, op.attrs), wanted, **reserved)
        for slot, out in zip(definition.outputs, outs, strict=True):
            names = op.outputs.get(slot.name, ())
            for name, one in zip(names, [] if out is None else out if isinstance(out, list) else [out], strict=False):
                values[name] = change(name, one)
    return values


def own_attributes(definition: OpDef, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the attributes that an op's definition has, without those that every op may have."""
    return {n: v for n, v in attrs.items() if n in definition.attrs}


# ------------------------------------------------------------------------------------------------------------------ work
def _flops(op: Operator) -> float | None:
    """Returns the floating-point operations of an op: its cost, or the functions of its expressions for each element."""
    definition = op.definition
    block = op.block

    def metas(slots: Sequence[Any], names: Mapping[str, Sequence[str]]) -> list[Any]:
        rows = [(slot, [block._var_recursive(n).meta for n in names.get(slot.name, ())]) for slot in slots]
        return [(row if slot.many else row[0]) if row else None for slot, row in rows]

    ins, outs = metas(definition.inputs, op.inputs), metas(definition.outputs, op.outputs)
    if definition.cost is not None:
        cost = definition.cost(*ins, *outs, **definition.pick(definition.cost, op.attrs))
        return float(cost.flops)
    if definition.pointwise is not None:
        flat = [m for one in (*ins, *outs) if one is not None for m in (one if isinstance(one, list) else [one])]
        full = max((int(np.prod(m.shape)) for m in flat), default=0)
        return float(full * sum(_functions(parse(text)) for text in definition.pointwise.values()))
    if definition.view is not None:
        return 0.0
    return None


def _functions(node: Node) -> int:
    return int(node.op not in ("var", "const")) + sum(_functions(one) for one in node.args)


__all__ = ["Case", "Work", "build", "own_attributes", "run_references", "slots_of"]
