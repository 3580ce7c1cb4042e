"""Every card's ``infer`` against what its ``ref`` writes and torch returns, with known and with unknown sizes."""

from __future__ import annotations

import pytest

from tests.ops.oracles import check_infer, check_infer_unknown
from tests.ops.sampler import card_types, samples
from tstatic.ir.opdef import card_of


@pytest.mark.parametrize("type", card_types(1))
def test_infer(type: str) -> None:
    card = card_of(type)
    for sample in samples(card, 14, limit=40):
        check_infer(card, sample)
        check_infer_unknown(card, sample)
