"""Classifies ops by their definitions (expression, domain, slots, attributes), and chooses shapes for patterns of fusions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.errors import TstaticError
from tstatic.fusion.engine.pattern import Op, Pattern, PatternFunction
from tstatic.ir.attrs import NO_ATTRS
from tstatic.ir.evaluate import evaluate
from tstatic.ir.opdef import LOD, OPS, Case, Domain, OpDef, op_def
from tstatic.ir.types import dtype_of
from tstatic.tools.testing.parts import Array

MOST_INPUT = 8.0
"""Largest absolute input of an op whose domain has no bounds."""


def _plain(definition: OpDef) -> bool:
    return not (
        definition.of
        or definition.random
        or definition.effects
        or definition.dynamic
        or definition.objects
        or definition.state
        or definition.update
        # Its gradient is a function that only its builder knows.
        or any(spec.kind == "function" for spec in definition.attrs.values())
        # Numbers that are drawn do not divide rows into sequences.
        or any(slot.name.endswith(LOD) for slot in (*definition.inputs, *definition.outputs))
    )


@functools.cache
def family_of(name: str) -> tuple[OpDef, ...]:
    """Returns the op definitions of a kind, which their expression, domain, slots and attributes determine."""
    definitions = [c for c in OPS.values() if _plain(c) and c.domain is not None]
    slots = [tuple(s.name for s in c.inputs) for c in definitions]
    pairs = list(zip(definitions, slots, strict=True))
    if name in ("unary", "binary", "compare"):
        kind = "unary" if name == "unary" else "binary"
        found = [c for c in definitions if c.pointwise is not None and c.domain is not None and c.domain.family == kind]
        return tuple(c for c in found if kind == "unary" or _truth(c) == (name == "compare"))
    if name == "reduce":
        return tuple(
            c for c, s in pairs if s == ("X",) and {"dim", "keep_dim", "reduce_all"} <= set(c.attrs) and not _truth(c)
        )
    if name == "axis":
        return tuple(
            c for c, s in pairs if s == ("X",) and c.pointwise is None and "axis" in c.attrs and _keeps_shape(c)
        )
    if name == "norm":
        return tuple(c for c, s in pairs if s == ("X", "Scale", "Bias") and "begin_norm_axis" in c.attrs)
    if name == "matmul":
        return tuple(c for c in definitions if {"trans_x", "trans_y"} <= set(c.attrs))
    assert name == "cases", name
    return tuple(c for c, s in pairs if c.domain is not None and c.domain.cases and s and c.pointwise is None)


def _truth(definition: OpDef) -> bool:
    """Returns whether float inputs give a result that is not a float, as comparisons do."""
    outs = attempt(definition, [np.ones((2, 3)) for _ in definition.inputs], NO_ATTRS)
    return outs is None or not all(dtype_of(a.dtype).is_float for a in flat(outs))


@functools.cache
def _bounds(type: str, slot: str) -> tuple[float, float]:
    definition = op_def(type)
    wide = -MOST_INPUT, MOST_INPUT
    stated = definition.domain.values.get(slot) if definition.domain is not None else None
    # The domain of a comparison only makes ties likely; (-2, 2) is the default of a domain without bounds.
    if stated is None or stated.dtype != "float" or (definition.pointwise is not None and _truth(definition)):
        return wide
    low, high = float(stated.low), float(stated.high)
    return wide if (low, high) == (-2.0, 2.0) else (low, high)


def domain_of(definition: OpDef) -> Domain:
    """Returns the domain of an op definition of :func:`family_of`, which always has one."""
    assert definition.domain is not None
    return definition.domain


def bounds(definition: OpDef, slot: str) -> tuple[float, float]:
    """Returns the bounds between which the elements of a slot should lie."""
    return _bounds(definition.type, slot)


def _keeps_shape(definition: OpDef) -> bool:
    outs = attempt(definition, [np.ones((2, 3))], {"axis": -1})
    return outs is not None and len(definition.outputs) == 1 and getattr(outs[0], "shape", None) == (2, 3)


def attempt(definition: OpDef, ins: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any] | None:
    """Runs an op; returns ``None`` if it refuses its inputs."""
    try:
        with np.errstate(all="ignore"):
            return evaluate(definition, ins, attrs)
    except (TstaticError, ValueError, TypeError, IndexError, ArithmeticError):
        return None


def broadcasts(shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
    """Returns shapes that broadcast to ``shape``, itself first, each with its ``axis`` attribute (-1: numpy's rule)."""
    forms: list[tuple[tuple[int, ...], int]] = [(shape, -1), ((), -1), ((1,), -1)]
    if shape:
        forms += [(shape[-1:], -1), ((*shape[:-1], 1), -1)]
    if len(shape) > 1:
        forms += [((1, *shape[1:]), -1), ((shape[0],), 0), (shape[1:], -1)]
    if len(shape) > 2:
        forms += [((shape[1],), 1), ((shape[1], 1, 1)[: len(shape) - 1], -1), (shape[1:-1], 1)]
    return forms


def flat(outs: Sequence[Any]) -> list[Array]:
    """Returns all arrays of all slots."""
    return [a for o in outs if o is not None for a in (o if isinstance(o, list) else [o]) if a is not None]


# -------------------------------------------------------------------------------------------------- patterns of fusions
Choose = Callable[[Sequence[Any]], Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class PatternOp:
    """An op of a pattern with the type, shapes and attributes chosen for it.

    Attributes:
        op: The pattern's own record of it.
        definition: The chosen type.
        shapes: Input slot -> shape (a list of shapes for a ``*`` slot), for all slots that are given.
        attrs: Attributes.
        case: The case of the domain that has these shapes, for an op that only works on listed shapes.
    """

    op: Op
    definition: OpDef
    shapes: Mapping[str, Any]
    attrs: Mapping[str, Any]
    case: Case | None = None


def is_forward(pattern: Pattern) -> bool:
    """Returns whether no op of a pattern is a backward op; only such patterns are built, since autodiff makes the others."""
    return not any(op_def(t).of for op in pattern.ops for t in op.types)


def lay_out(pattern: Pattern, choose: Choose, shape: Callable[[], Shape]) -> list[PatternOp] | None:
    """Chooses types, shapes and attributes for the ops of a pattern.

    Args:
        pattern: A pattern of forward ops.
        choose: Picks one of a sequence.
        shape: Draws a shape for a value that nothing constrains.

    Returns:
        The ops in the pattern's order, or ``None`` if the choices do not fit together.
    """
    definitions = {op.name: op_def(choose(op.types)) for op in pattern.ops}
    known: dict[str, Shape] = {}
    found: dict[str, PatternOp] = {}
    # Ops that only work on listed shapes choose first; the others adapt to them.
    for op in sorted(pattern.ops, key=lambda op: domain_of(definitions[op.name]).family != "cases"):
        chosen = _choose_shapes(op, definitions[op.name], known, choose, shape)
        if chosen is None:
            return None
        found[op.name] = chosen
    return [found[op.name] for op in pattern.ops]


def _choose_shapes(
    op: Op, definition: OpDef, known: dict[str, Shape], choose: Choose, shape: Callable[[], Shape]
) -> PatternOp | None:
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
            # About half of the choices do not broadcast, as most patterns require.
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
    return PatternOp(op, definition, shapes, attrs, case)


def _shape_in(case: Case, slots: Sequence[str], slot: str) -> Any:
    at = slots.index(slot)
    return tuple(case.shapes[at]) if at < len(case.shapes) and case.shapes[at] is not None else None


def _filled(definition: OpDef, slot: str, size: Any) -> Any:
    """Returns an input of ones, with which the shape of the result is found."""
    values = domain_of(definition).values.get(slot)
    kind = dtype_of("float64" if values is None or values.dtype == "float" else values.dtype).np
    many = next(s.many for s in definition.inputs if s.name == slot)
    return None if size is None else [np.ones(s, kind) for s in size] if many else np.ones(size, kind)


__all__ = [
    "MOST_INPUT",
    "PatternFunction",
    "PatternOp",
    "attempt",
    "bounds",
    "broadcasts",
    "domain_of",
    "family_of",
    "flat",
    "is_forward",
    "lay_out",
]
