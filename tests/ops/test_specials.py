"""Pointwise ops on NaN, infinities, signed zeros, the largest and the subnormal numbers, against torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.ops.oracles import SPECIALS, check_specials, differences, special_values
from tests.ops.sampler import Sample, card_types
from tstatic.ir.opdef import NO_ATTRS, Card, Values, card_of
from tstatic.ir.types import dtype_of


def pointwise(type: str) -> bool:
    card = card_of(type)
    return card.pointwise is not None and card.domain is not None and card.domain.family in ("unary", "binary")


POINTWISE = [t for t in card_types(0) if pointwise(t)]


def tables(card: Card) -> Iterator[Sample]:
    """All special values of each float type; all pairs of them for ops of two inputs."""
    domain = card.domain
    assert domain is not None
    for dtype, attrs in itertools.product(domain.floats, domain.attrs or (NO_ATTRS,)):
        values = special_values(dtype_of(dtype))
        arrays: list[Any] = [values]
        if domain.family == "binary":
            pairs = np.meshgrid(np.arange(values.size), np.arange(values.size))
            arrays = [values[p.ravel()] for p in pairs]
        ins: list[Any] = []
        for slot in card.inputs:
            kind = domain.values.get(slot.name, Values()).dtype
            if kind != "float":
                return
            ins.append(arrays[len(ins)] if len(ins) < len(arrays) else None)
        yield Sample(tuple(ins), attrs, dtype)


@pytest.mark.parametrize("type", POINTWISE)
def test_specials(type: str) -> None:
    card = card_of(type)
    met: set[str] = set()
    for sample in tables(card):
        check_specials(card, sample, differences(), met)
    always = {case for (op, case), why in differences().items() if op == type and "on some machines" not in why}
    stale = always - met
    assert not stale, f"docs/differences.md lists {stale} for {type}, but nothing differs there any more"


def test_table_names_what_exists() -> None:
    assert {op for op, _ in differences()} <= set(POINTWISE)
    assert {case for _, case in differences()} <= set(SPECIALS)
