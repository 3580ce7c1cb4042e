"""Draws inputs of one op from its own domain: positions, sorted offsets, distinct elements and all other values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tstatic.ir.opdef import Domain, OpDef, Slot, ValueRange
from tstatic.ir.types import dtype_of
from tstatic.tools.testing.parts import GAP, Array


def _as_it_is(array: Array, whole: bool) -> Array:
    return array


def draw(values: ValueRange, shape: tuple[int, ...], dtype: str, rng: np.random.Generator, high: float) -> Array:
    """Returns an array of a slot's values; ``high`` is the upper bound as a number."""
    kind = dtype_of(dtype)
    if values.ordered and shape:
        return np.sort(draw(replace(values, ordered=False), shape, dtype, rng, high), axis=-1)
    if values.offsets:
        # A third of the sequences is empty, if there are enough.
        inner = np.sort(rng.integers(0, int(high) + 1, max(shape[0] - 2, 0)))
        return np.concatenate([[0], inner, [high] * (shape[0] > 1)]).astype(kind.np)
    if kind.name == "bool":
        return rng.random(shape) < 0.5
    if kind.is_complex:
        parts = [draw(replace(values, dtype="float"), shape, kind.real.name, rng, high) for _ in range(2)]
        return np.asarray(parts[0] + 1j * parts[1]).astype(kind.np)
    low = float(values.low)
    if not kind.is_float:
        first = max(int(np.ceil(low)), 0 if kind.name == "uint8" else int(np.ceil(low)))
        last = int(np.ceil(high)) if isinstance(values.high, str) else int(np.floor(high)) + 1
        if values.distinct and last - first >= math.prod(shape):
            return rng.permutation(np.arange(first, last))[: math.prod(shape)].reshape(shape).astype(kind.np)
        found: Array = np.asarray(rng.integers(first, max(last, first + 1), shape))
        if values.avoid != "int":
            for point in values.avoid:
                found = np.where(found == point, max(last - 1, first), found)
        return np.asarray(found).astype(kind.np)
    if values.rows:
        raw = np.exp(rng.normal(size=shape))
        return (raw / (raw.sum(-1, keepdims=True) if shape else raw)).astype(kind.np)
    found = np.asarray(rng.uniform(low, high, shape))
    if values.regular and len(shape) > 1:
        return np.asarray(found + np.eye(shape[-2], shape[-1]) * (2.0 + np.arange(shape[-1]))).astype(kind.np)
    for _ in range(100):
        rounded = np.asarray(found).astype(kind.np).astype(np.float64)
        bad = near_points(rounded, values.avoid) | (rounded < low) | (rounded > high)
        if not bad.any():
            break
        found = np.where(bad, rng.uniform(low, high, shape), found)
    return np.asarray(found).astype(kind.np)


def near_points(x: Array, avoid: tuple[float, ...] | str) -> Array:
    """Returns which elements lie too close to a kink or pole."""
    if avoid == "int":
        return np.asarray(np.abs(x - np.round(x)) < GAP)
    close = np.zeros(x.shape, bool)
    for point in avoid:
        assert not isinstance(point, str)
        close |= np.abs(x - point) < GAP
    return close


def draw_distinct(
    shapes: Sequence[tuple[int, ...]], values: ValueRange, dtype: str, rng: np.random.Generator
) -> list[Array]:
    """Returns arrays of which no two elements, within one or between two, are closer than the gap."""
    kind = dtype_of(dtype)
    sizes = [int(np.prod(s)) for s in shapes]
    total = sum(sizes)
    low, high = float(values.low), float(values.high)
    for _ in range(30):
        grid = np.linspace(low, high, 2 * total + 1)[1::2].astype(kind.np).astype(np.float64)
        if total < 2 or np.diff(grid).min() >= 1.2 * GAP:
            break
        # A wider range leaves the domain's bounds; only rows of ties need that, and they have none.
        low, high = (low * 1.5, high * 1.5) if low < 0 else (low, low + (high - low) * 1.5)
    grid = rng.permutation(grid)
    tiles = np.split(grid, np.cumsum(sizes)[:-1])
    return [p.reshape(s).astype(kind.np) for p, s in zip(tiles, shapes, strict=True)]


def fill(
    definition: OpDef,
    domain: Domain,
    shapes: Sequence[Any],
    attrs: Mapping[str, Any],
    dtype: str,
    rng: np.random.Generator,
    lay_out: Callable[[Array, bool], Array] = _as_it_is,
) -> tuple[Any, ...]:
    """Returns an entry per input slot for the given shapes: an array, a list of arrays for a ``*`` slot, or ``None``.

    Args:
        definition: The op.
        domain: Where its inputs may lie.
        shapes: One per input slot: a shape, ``None`` for an absent input, a list of shapes for a ``*`` slot.
        attrs: Attributes, of which some bound positions.
        dtype: The float type.
        rng: Draws the values.
        lay_out: Gives an array another memory layout; its second argument says whether all elements must stay.
    """
    done = definition.complete(attrs)

    def one(slot: Slot, shape: tuple[int, ...]) -> Array:
        values = domain.values.get(slot.name, ValueRange())
        name = {"float": dtype, "complex": dtype_of(dtype).complex.name}.get(values.dtype, values.dtype)
        uneven = values.rows or values.distinct or values.offsets or values.regular
        if slot.name in joint:
            return lay_out(joint[slot.name].pop(0), bool(uneven))
        high = values.offsets or values.high
        if isinstance(high, str):
            high = bound(definition, shapes, done, high)
        return lay_out(draw(values, tuple(shape), name, rng, float(high)), bool(uneven))

    ties = [
        (slot, [tuple(s) for s in (shape if slot.many else [shape])])
        for slot, shape in zip(definition.inputs, shapes, strict=True)
        if shape is not None and is_distinct(domain, slot, dtype)
    ]
    joint: dict[str, list[Array]] = {}
    if ties:
        every = [s for _, group in ties for s in group]
        drawn = iter(draw_distinct(every, domain.values[ties[0][0].name], dtype, rng))
        joint = {slot.name: [next(drawn) for _ in group] for slot, group in ties}
    return tuple(
        None if shape is None else [one(slot, s) for s in shape] if slot.many else one(slot, shape)
        for slot, shape in zip(definition.inputs, shapes, strict=True)
    )


def is_distinct(domain: Domain, slot: Slot, dtype: str) -> bool:
    """Returns whether the elements of a slot must keep a distance."""
    values = domain.values.get(slot.name)
    return values is not None and values.distinct and values.dtype == "float" and dtype_of(dtype).is_float


def bound(definition: OpDef, shapes: Sequence[Any], attrs: Mapping[str, Any], text: str) -> float:
    """Returns a bound given as text: ``"W.0"`` is the size of axis 0 of input W; any other text names an attribute."""
    name, dot, axis = text.partition(".")
    if not dot:
        return float(attrs[name])
    for slot, shape in zip(definition.inputs, shapes, strict=True):
        if slot.name == name:
            first = shape[0] if slot.many else shape
            return float(first[int(axis)] if first else 1)
    raise AssertionError(f"{definition.type} has no input {name}")
