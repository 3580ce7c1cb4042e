"""Kinds of ops, told by what the cards say of themselves: their expression, domain, slots and attributes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import TstaticError
from tstatic.ir.attrs import NO_ATTRS
from tstatic.ir.domain import Domain
from tstatic.ir.evaluate import evaluate
from tstatic.ir.opdef import CARDS, Card, card_of
from tstatic.ir.types import dtype_of
from tstatic.testing.recipe import Array

MOST_INPUT = 8.0
"""Largest input of an op whose domain names no bounds."""


def _plain(card: Card) -> bool:
    return not (card.of or card.random or card.effects or card.dynamic or card.objects or card.state or card.update)


@functools.cache
def family_of(name: str) -> tuple[Card, ...]:
    """The cards of a kind, told by what the cards say: their expression, domain, slots and attributes."""
    cards = [c for c in CARDS.values() if _plain(c) and c.domain is not None]
    slots = [tuple(s.name for s in c.inputs) for c in cards]
    pairs = list(zip(cards, slots, strict=True))
    if name in ("unary", "binary", "compare"):
        kind = "unary" if name == "unary" else "binary"
        found = [c for c in cards if c.pointwise is not None and c.domain is not None and c.domain.family == kind]
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
        return tuple(c for c in cards if {"trans_x", "trans_y"} <= set(c.attrs))
    assert name == "cases", name
    return tuple(c for c, s in pairs if c.domain is not None and c.domain.cases and s and c.pointwise is None)


def _truth(card: Card) -> bool:
    """Whether the result of float inputs is no float."""
    outs = attempt(card, [np.ones((2, 3)) for _ in card.inputs], NO_ATTRS)
    return outs is None or not all(dtype_of(a.dtype).is_float for a in flat(outs))


@functools.cache
def _bounds(type: str, slot: str) -> tuple[float, float]:
    card = card_of(type)
    wide = -MOST_INPUT, MOST_INPUT
    stated = card.domain.values.get(slot) if card.domain is not None else None
    # A comparison's domain only makes ties likely; -2 to 2 is what a domain says that has no bounds.
    if stated is None or stated.dtype != "float" or (card.pointwise is not None and _truth(card)):
        return wide
    low, high = float(stated.low), float(stated.high)
    return wide if (low, high) == (-2.0, 2.0) else (low, high)


def domain_of(card: Card) -> Domain:
    """The domain of a card of :func:`family_of`."""
    assert card.domain is not None
    return card.domain


def bounds(card: Card, slot: str) -> tuple[float, float]:
    """Where the elements of a slot should lie."""
    return _bounds(card.type, slot)


def _keeps_shape(card: Card) -> bool:
    outs = attempt(card, [np.ones((2, 3))], {"axis": -1})
    return outs is not None and len(card.outputs) == 1 and getattr(outs[0], "shape", None) == (2, 3)


def attempt(card: Card, ins: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any] | None:
    """Runs an op, or answers ``None`` where it refuses its inputs."""
    try:
        with np.errstate(all="ignore"):
            return evaluate(card, ins, attrs)
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
