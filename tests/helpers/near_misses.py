"""One condition of a fusion broken: edits of a program in which it was made, each with the code that must be given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tstatic as paddle
from tstatic import static, testing
from tstatic.fusion.engine import Applied, Fusion
from tstatic.fusion.engine.pattern import Pattern
from tstatic.ir.declare import NO_FUSE
from tstatic.ir.opdef import op_def
from tstatic.ir.types import dtype_of
from tstatic.testing import Input, Step
from tstatic.testing.op_kinds import domain_of, family_of
from tstatic.testing.recipe import Built


@dataclass
class Miss:
    """A program that no longer fits.

    Attributes:
        built: The program.
        value: The inner value that must stay in memory now.
        code: Why a fusion with patterns does not apply.
    """

    built: Built
    value: str
    code: str


Break = Callable[[Fusion, testing.Recipe, Applied, int], Miss | None]
"""``(fusion, recipe, a fusion made in it, any number to choose by)``; ``None`` where there is nothing to break."""


def _inner(recipe: testing.Recipe, record: Applied, pick: int) -> tuple[Built, str] | None:
    """The program again, and a value that one member makes, another reads and nobody stores."""
    built = recipe.build()
    block = built.main.global_block()
    members = {m.outputs for m in record.members}
    read = {n for op in block.ops if _writes(op) in members for n in op.input_arg_names}
    found = [v for v in record.gone if v in read and block.has_var(v) and not block.var(v).persistable]
    return (built, found[pick % len(found)]) if found else None


def _writes(op: Any) -> tuple[str, ...]:
    return tuple(n for row in op.outputs.values() for n in row)


def fetched(fusion: Fusion, recipe: testing.Recipe, record: Applied, pick: int) -> Miss | None:
    found = _inner(recipe, record, pick)
    if found is None:
        return None
    built, value = found
    return Miss(replace(built, fetches=[*built.fetches, value]), value, "FETCHED")


def persistable(fusion: Fusion, recipe: testing.Recipe, record: Applied, pick: int) -> Miss | None:
    found = _inner(recipe, record, pick)
    if found is None:
        return None
    built, value = found
    built.main.global_block().var(value).persistable = True
    built.main._touch()
    return Miss(built, value, "PERSISTABLE")


def extra_reader(fusion: Fusion, recipe: testing.Recipe, record: Applied, pick: int) -> Miss | None:
    found = _inner(recipe, record, pick)
    if found is None or 0 in found[0].main.global_block().var(found[1]).shape:
        return None
    built, value = found
    with static.program_guard(built.main, built.startup):
        # Nothing that generated kernels can take in. A running sum of truth values begins with a cast, which they can.
        var = built.main.global_block().var(value)
        out = paddle.roll(var, 1) if dtype_of(var.dtype).name == "bool" else paddle.cumsum(var)
    return Miss(replace(built, fetches=[*built.fetches, out.name]), value, "EXTRA_READER")


def read_by_control_flow(fusion: Fusion, recipe: testing.Recipe, record: Applied, pick: int) -> Miss | None:
    found = _inner(recipe, record, pick)
    if found is None:
        return None
    built, value = found
    with static.program_guard(built.main, built.startup):
        var = built.main.global_block().var(value)
        # What is fed is known only at run time, so no pass can take the branch beforehand.
        turn = static.data("turn", [1], "bool")
        # Truth values cannot be scaled.
        other = paddle.logical_not if dtype_of(var.dtype).name == "bool" else partial(paddle.scale, scale=2.0)
        out = static.nn.cond(turn, lambda: other(var), lambda: paddle.assign(var))
    return Miss(
        replace(built, fetches=[*built.fetches, out.name], feeds={**built.feeds, "turn": [True]}), value, "EXTRA_READER"
    )


def forbidden(fusion: Fusion, recipe: testing.Recipe, record: Applied, pick: int) -> Miss | None:
    found = _inner(recipe, record, pick)
    if found is None:
        return None
    built, value = found
    ops = built.main.global_block().ops
    position = next(op.position for op in ops if value in op.output_arg_names)
    for op in ops:
        # A gradient stands at the position of its forward op, which carries the mark for both.
        if op.position == position:
            op.namescope = f"{NO_FUSE}/"
    built.main._touch()
    return Miss(built, value, "FORBIDDEN")


def dynamic(fusion: Fusion, recipe: testing.Recipe, record: Applied, pick: int) -> Miss | None:
    """A size that is known only when the program runs: an input's rows are selected by a mask (all of them)."""
    found = _inner(recipe, record, pick)
    made = {n for m in record.members for n in m.outputs}
    # Fed gradients would need the sizes.
    recipe = replace(recipe, gradients=())
    if found is None or recipe.optimizer or not made <= {n for s in recipe.steps for n in s.writes}:
        return None
    read = {n for s in recipe.steps if made.intersection(s.writes) for n in s.reads}
    rows = [i for i in recipe.inputs if i.name in read and i.shape and 0 not in i.shape and dtype_of(i.dtype).is_float]
    if not rows:
        return None
    one = rows[pick % len(rows)]
    steps = [
        Step.of("where_index", {"Condition": "all_rows"}, {"Out": "which"}),
        Step.of("gather", {"X": one.name, "Index": "which"}, {"Out": "selected"}, {"axis": 0}),
    ]
    for s in recipe.steps:
        inputs = tuple((slot, tuple("selected" if n == one.name else n for n in row)) for slot, row in s.inputs)
        steps.append(replace(s, inputs=inputs))
    mask = Input("all_rows", (one.shape[0],), "bool", given=(True,) * one.shape[0])
    try:
        built = replace(recipe, inputs=(*recipe.inputs, mask), steps=tuple(steps)).build()
    except paddle.errors.TstaticError:
        return None
    block = built.main.global_block()
    members = [op for op in block.ops if made.intersection(op.output_arg_names)]
    if not any(-1 in block.var(n).shape for op in members for n in op.output_arg_names):
        return None
    # Of the values that go, one whose size is not known.
    values = [v for v in record.gone if block.has_var(v) and -1 in block.var(v).shape]
    return Miss(built, values[pick % len(values)], "DYNAMIC") if values else None


def another_operator(fusion: Fusion, recipe: testing.Recipe, record: Applied, pick: int) -> Miss | None:
    """An op of the pattern becomes one that the pattern does not name, with a result of the same type and shape."""
    types = {t for f in fusion.finder.patterns for op in Pattern(f).ops for t in op.types}
    others = [c for c in family_of("unary") if c.type not in types and not domain_of(c).values and c.type != "assign"]
    found = _inner(recipe, record, pick)
    if not types or found is None:
        return None
    before = found[0].main.global_block()
    for k, step in enumerate(recipe.steps):
        if op_def(step.type) not in family_of("unary") or not any(
            set(step.writes) == set(m.outputs) for m in record.members
        ):
            continue
        first = pick % len(others)
        for definition in (*others[first:], *others[:first]):
            slots = {definition.inputs[0].name: step.reads}, {definition.outputs[0].name: step.writes}
            steps = (*recipe.steps[:k], Step.of(definition.type, *slots), *recipe.steps[k + 1 :])
            try:
                built = replace(recipe, steps=steps).build()
            except paddle.errors.TstaticError:
                continue
            after = built.main.global_block()
            if all(_meta(after, n) == _meta(before, n) for n in step.writes):
                return Miss(built, found[1], "")
    return None


def _meta(block: Any, name: str) -> tuple[Any, ...]:
    var = block.var(name)
    return var.dtype, tuple(var.shape)


BREAKS: tuple[Break, ...] = (
    fetched, persistable, extra_reader, read_by_control_flow, forbidden, dynamic, another_operator,
)  # fmt: skip
