"""Every card's ``ref`` against its torch lowering, over dtypes and layouts; sharing of buffers changes nothing."""

from __future__ import annotations

import pytest

from tests.ops.oracles import check_inplace, check_lower
from tests.ops.sampler import card_types, samples
from tstatic.ir.opdef import card_of


@pytest.mark.parametrize("type", card_types())
def test_lower(type: str) -> None:
    card = card_of(type)
    seen: dict[str, int] = {}
    tried = 0
    count = 20 if card.of and card_of(card.of).of else 40
    for sample in samples(card, count):
        check_lower(card, sample, seen)
        tried += 1
    assert tried >= count
    assert seen["compared"] > 0


@pytest.mark.parametrize("type", [t for t in card_types() if card_of(t).inplace or card_of(t).state])
def test_inplace(type: str) -> None:
    card = card_of(type)
    if not sum(check_inplace(card, sample) for sample in samples(card, 12, limit=36)):
        pytest.skip("input and output never have the same shape and dtype")
