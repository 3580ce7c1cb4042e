"""Makes an example of a fusion from its own patterns: a small program of forward ops that a pattern describes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.fusion.engine import Fusion
from tstatic.fusion.engine.pattern import Pattern
from tstatic.ir.evaluate import infer_outputs
from tstatic.ir.opdef import Case
from tstatic.ir.types import Meta, dtype_of
from tstatic.tools.benchlib.rows import FLAT, FORWARD, Row, Values
from tstatic.tools.testing.op_kinds import PatternOp, domain_of, is_forward, lay_out
from tstatic.tools.testing.op_samples import fill
from tstatic.tools.testing.parts import Input, Step
from tstatic.tools.testing.recipe import Recipe


def example_rows(fusion: Fusion, dtypes: Sequence[str], directions: Sequence[str], prefer: str = "") -> Iterator[Row]:
    """Yields rows of the first pattern of forward ops; none for a fusion without one, which needs a program in a file of sizes.

    Where a pattern takes an op of several types, ``prefer`` is the one to have.
    """

    def choose(items: Sequence[Any]) -> Any:
        return prefer if prefer in items else items[0]

    for function in fusion.finder.patterns:
        pattern = Pattern(function)
        ops = lay_out(pattern, choose, lambda: FLAT) if is_forward(pattern) else None
        if ops is not None:
            for dtype in dtypes:
                yield from _rows(fusion, ops, dtype, directions)
            return


def _rows(fusion: Fusion, ops: Sequence[PatternOp], dtype: str, directions: Sequence[str]) -> Iterator[Row]:
    inputs: dict[str, Input] = {}
    metas: dict[str, Meta] = {}
    steps: list[Step] = []
    names: dict[str, str] = {}
    drawn: list[tuple[PatternOp, list[tuple[str, str]]]] = []
    for op in ops:
        read: dict[str, tuple[str, ...]] = {}
        own: list[tuple[str, str]] = []
        for slot, shape in op.shapes.items():
            value = op.op.inputs.get(slot)
            if value is not None and value.name in names:
                read[slot] = (names[value.name],)
                continue
            name = f"{op.op.name}.{slot}"
            values = domain_of(op.definition).values.get(slot)
            kind = dtype if values is None or values.dtype == "float" else values.dtype
            inputs[name] = Input(name, tuple(shape), kind)
            metas[name] = Meta(tuple(shape), dtype_of(kind))
            read[slot] = (name,)
            own.append((slot, name))
            if value is not None:
                names[value.name] = name
        drawn.append((op, own))
        given = [metas[read[s.name][0]] if s.name in read else None for s in op.definition.inputs]
        made = infer_outputs(op.definition, given, op.definition.complete(op.attrs))
        written = {}
        for output, meta in zip(op.definition.outputs, made, strict=True):
            if meta is not None:
                name = f"{op.op.name}.{output.name}"
                written[output.name], metas[name] = name, meta
        names.update((value.name, written[s]) for s, value in op.op.outputs.items() if s in written)
        steps.append(Step.of(op.definition.type, read, written, op.attrs))
    last = ops[-1].definition
    results = tuple(n for s, row in steps[-1].outputs for n in row if not last.output_slots[s].intermediate)
    recipe = Recipe(tuple(inputs.values()), tuple(steps), results)
    floats = tuple(n for n, one in inputs.items() if dtype_of(one.dtype).is_float)
    label = ", ".join(f"{n} {list(one.shape)}" for n, one in inputs.items())
    for direction in directions:
        gradients = () if direction == FORWARD else floats
        yield Row(
            fusion.name, label, dtype, direction, Recipe(recipe.inputs, recipe.steps, results, gradients),
            _Drawn(drawn, dtype), fusion.name, fusion.switch,
        )  # fmt: skip


@dataclass(frozen=True)
class _Drawn:
    """Draws the inputs of the ops of a pattern, each from the domain of its op."""

    ops: Sequence[tuple[PatternOp, list[tuple[str, str]]]]
    dtype: str

    def __call__(self, seed: int) -> Values:
        found: dict[str, Any] = {}
        for number, (op, own) in enumerate(self.ops):
            case = op.case or Case((), op.attrs)
            shapes = [op.shapes.get(s.name) for s in op.definition.inputs]
            ins = fill(
                op.definition,
                domain_of(op.definition),
                shapes,
                case.attrs,
                self.dtype,
                np.random.default_rng([seed, number]),
            )
            by_slot = {s.name: a for s, a in zip(op.definition.inputs, ins, strict=True)}
            found.update((name, by_slot[slot]) for slot, name in own)
        return found
