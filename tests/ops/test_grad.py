"""Every stated gradient against central differences in float64, second order where a card claims it."""

from __future__ import annotations

import pytest

from tests.ops.gradcheck import check_grad
from tests.ops.sampler import LAYOUTS, card_types, root, samples
from tstatic.ir.opdef import card_of

GRADED = [t for t in card_types(1) if card_of(t).grad is not None]
UNCHECKED = [t for t in GRADED if isinstance(root(card_of(t)).domain.check_grad, str)]  # type: ignore[union-attr]


@pytest.mark.parametrize("type", GRADED)
def test_grad(type: str) -> None:
    card = card_of(type)
    domain = root(card).domain
    assert domain is not None
    if isinstance(domain.check_grad, str):
        pytest.skip(domain.check_grad)
    seen: dict[str, int] = {}
    for sample in samples(card, 9, ("float64",), LAYOUTS[:3], limit=24):
        check_grad(card, sample, seen)
    assert seen.get("checked", 0) > 0, f"no sample of {type} has an element to check"


def test_few_cards_are_exempt() -> None:
    assert len(UNCHECKED) <= 2, UNCHECKED
