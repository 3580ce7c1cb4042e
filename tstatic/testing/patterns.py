"""A fusion's pattern as a piece of a program: which op each of its ops becomes, and shapes that fit together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.fusion.pattern import Op, Pattern, PatternFunction
from tstatic.ir.domain import Case
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.types import dtype_of
from tstatic.testing.op_kinds import attempt, broadcasts, domain_of

Choose = Callable[[Sequence[Any]], Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """One op of a pattern with its shapes.

    Attributes:
        op: As the pattern names it.
        definition: The type chosen for it.
        shapes: Input slot -> shape (a list of shapes for a ``*`` slot), for all slots that are given.
        attrs: Attributes.
        case: Where the shapes come from, for an op that works on listed shapes only.
    """

    op: Op
    definition: OpDef
    shapes: Mapping[str, Any]
    attrs: Mapping[str, Any]
    case: Case | None = None


def is_forward(pattern: Pattern) -> bool:
    """Whether no op of a pattern is a gradient: only such patterns are built, their gradients follow from them."""
    return not any(op_def(t).of for op in pattern.ops for t in op.types)


def lay_out(pattern: Pattern, choose: Choose, shape: Callable[[], Shape]) -> list[Piece] | None:
    """Settles types, shapes and attributes.

    Args:
        pattern: Of a fusion; forward ops.
        choose: Picks one of a sequence.
        shape: Draws a shape where nothing asks for another.

    Returns:
        The ops in the pattern's order, or ``None`` if the choices do not fit together.
    """
    definitions = {op.name: op_def(choose(op.types)) for op in pattern.ops}
    known: dict[str, Shape] = {}
    found: dict[str, Piece] = {}
    # Ops that work on listed shapes only come first; the others take what these leave.
    for op in sorted(pattern.ops, key=lambda op: domain_of(definitions[op.name]).family != "cases"):
        chosen = _choose_shapes(op, definitions[op.name], known, choose, shape)
        if chosen is None:
            return None
        found[op.name] = chosen
    return [found[op.name] for op in pattern.ops]


def _choose_shapes(
    op: Op, definition: OpDef, known: dict[str, Shape], choose: Choose, shape: Callable[[], Shape]
) -> Piece | None:
    family = domain_of(definition).family
    slots = [s.name for s in definition.inputs]
    has = {slot: known[value.name] for slot, value in op.inputs.items() if value.name in known}
    wanted = next((known[v.name] for v in op.outputs.values() if v.name in known), None)
    case: Case | None = None
    attrs: Mapping[str, Any]
    shapes: dict[str, Any]
    if family == "cases":
        cases = [
            c for c in domain_of(definition).cases if all(_shape_in(c, slots, s) == size for s, size in has.items())
        ]
        if not cases:
            return None
        case = choose(cases)
        assert case is not None
        shapes = {s: size for s, size in zip(slots, case.shapes, strict=False) if size is not None}
        attrs = case.attrs
    elif family == "unary":
        size = has.get(slots[0], wanted)
        shapes = {slots[0]: shape() if size is None else size}
        attrs = choose(domain_of(definition).attrs)
    else:
        attrs = dict(choose(domain_of(definition).attrs))
        shapes = dict(has)
        free = [s for s in slots if s not in shapes]
        if len(free) == 2:
            first = choose(free)
            shapes[first] = shape() if wanted is None else wanted
            free.remove(first)
        if free:
            (other,) = (s for s in slots if s != free[0])
            # Every second one without any broadcast, which is what most patterns ask for.
            full = shapes[other]
            form, axis = choose([*broadcasts(full), *[(full, -1)] * len(broadcasts(full)), ((2, *full), -1)])
            shapes[free[0]] = form
            if axis != -1:
                if "axis" not in definition.attrs:
                    return None
                attrs["axis"] = axis
    if not all(slot in shapes for slot in op.inputs):
        return None
    known.update((value.name, tuple(shapes[slot])) for slot, value in op.inputs.items())
    outs = attempt(definition, [_filled(definition, s.name, shapes.get(s.name)) for s in definition.inputs], attrs)
    if outs is None:
        return None
    for slot, out in zip(definition.outputs, outs, strict=True):
        if slot.name in op.outputs and isinstance(out, np.ndarray):
            known[op.outputs[slot.name].name] = tuple(out.shape)
    return Piece(op, definition, shapes, attrs, case)


def _shape_in(case: Case, slots: Sequence[str], slot: str) -> Any:
    at = slots.index(slot)
    return tuple(case.shapes[at]) if at < len(case.shapes) and case.shapes[at] is not None else None


def _filled(definition: OpDef, slot: str, size: Any) -> Any:
    """An input of ones, to learn the shape of the result."""
    values = domain_of(definition).values.get(slot)
    kind = dtype_of("float64" if values is None or values.dtype == "float" else values.dtype).np
    many = next(s.many for s in definition.inputs if s.name == slot)
    return None if size is None else [np.ones(s, kind) for s in size] if many else np.ones(size, kind)


__all__ = ["PatternFunction", "Piece", "is_forward", "lay_out"]
