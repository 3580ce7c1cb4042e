"""Kinds of ops, told by what the op definitions say of themselves: their expression, domain, slots and attributes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import TstaticError
from tstatic.ir.attrs import NO_ATTRS
from tstatic.ir.domain import Domain
from tstatic.ir.evaluate import evaluate
from tstatic.ir.opdef import OPS, OpDef, op_def
from tstatic.ir.types import dtype_of
from tstatic.testing.parts import Array

MOST_INPUT = 8.0
"""Largest input of an op whose domain names no bounds."""


def _plain(definition: OpDef) -> bool:
    return not (
        definition.of
        or definition.random
        or definition.effects
        or definition.dynamic
        or definition.objects
        or definition.state
        or definition.update
    )


@functools.cache
def family_of(name: str) -> tuple[OpDef, ...]:
    """The op definitions of a kind, told by what the op definitions say: their expression, domain, slots and attributes."""
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
    """Whether the result of float inputs is not a float."""
    outs = attempt(definition, [np.ones((2, 3)) for _ in definition.inputs], NO_ATTRS)
    return outs is None or not all(dtype_of(a.dtype).is_float for a in flat(outs))


@functools.cache
def _bounds(type: str, slot: str) -> tuple[float, float]:
    definition = op_def(type)
    wide = -MOST_INPUT, MOST_INPUT
    stated = definition.domain.values.get(slot) if definition.domain is not None else None
    # A comparison's domain only makes ties likely; -2 to 2 is what a domain says that has no bounds.
    if stated is None or stated.dtype != "float" or (definition.pointwise is not None and _truth(definition)):
        return wide
    low, high = float(stated.low), float(stated.high)
    return wide if (low, high) == (-2.0, 2.0) else (low, high)


def domain_of(definition: OpDef) -> Domain:
    """The domain of an op definition of :func:`family_of`."""
    assert definition.domain is not None
    return definition.domain


def bounds(definition: OpDef, slot: str) -> tuple[float, float]:
    """Where the elements of a slot should lie."""
    return _bounds(definition.type, slot)


def _keeps_shape(definition: OpDef) -> bool:
    outs = attempt(definition, [np.ones((2, 3))], {"axis": -1})
    return outs is not None and len(definition.outputs) == 1 and getattr(outs[0], "shape", None) == (2, 3)


def attempt(definition: OpDef, ins: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any] | None:
    """Runs an op, or answers ``None`` where it refuses its inputs."""
    try:
        with np.errstate(all="ignore"):
            return evaluate(definition, ins, attrs)
    except (TstaticError, ValueError, TypeError, IndexError, ArithmeticError):
        return None


def broadcasts(shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
    """Shapes that broadcast to a shape, each with the ``axis`` that places it (-1: numpy's rule); the shape itself is first."""
    forms: list[tuple[tuple[int, ...], int]] = [(shape, -1), ((), -1), ((1,), -1)]
    if shape:
        forms += [(shape[-1:], -1), ((*shape[:-1], 1), -1)]
    if len(shape) > 1:
        forms += [((1, *shape[1:]), -1), ((shape[0],), 0), (shape[1:], -1)]
    if len(shape) > 2:
        forms += [((shape[1],), 1), ((shape[1], 1, 1)[: len(shape) - 1], -1), (shape[1:-1], 1)]
    return forms


def flat(outs: Sequence[Any]) -> list[Array]:
    """All arrays of all slots."""
    return [a for o in outs if o is not None for a in (o if isinstance(o, list) else [o]) if a is not None]


__all__ = ["MOST_INPUT", "attempt", "bounds", "broadcasts", "domain_of", "family_of", "flat"]
