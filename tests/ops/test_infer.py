"""Every op definition's ``infer`` against what its ``ref`` writes and torch returns, with known and with unknown sizes."""

from __future__ import annotations

import pytest

from tests.ops.oracles import check_infer, check_infer_unknown
from tests.ops.sampler import op_types, samples
from tstatic.ir.opdef import op_def


@pytest.mark.parametrize("type", op_types(1))
def test_infer(type: str) -> None:
    definition = op_def(type)
    for sample in samples(definition, 14, limit=40):
        check_infer(definition, sample)
        check_infer_unknown(definition, sample)
