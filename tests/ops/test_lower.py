"""Every op definition's ``ref`` against its torch lowering, over dtypes and layouts; sharing of buffers changes nothing."""

from __future__ import annotations

import pytest

from tests.ops.oracles import check_inplace, check_lower
from tests.ops.sampler import op_types, samples
from tstatic.ir.opdef import op_def


@pytest.mark.parametrize("type", op_types())
def test_lower(type: str) -> None:
    definition = op_def(type)
    seen: dict[str, int] = {}
    tried = 0
    count = 20 if definition.of and op_def(definition.of).of else 40
    for sample in samples(definition, count):
        check_lower(definition, sample, seen)
        tried += 1
    assert tried >= count
    assert seen["compared"] > 0


@pytest.mark.parametrize("type", [t for t in op_types() if op_def(t).inplace or op_def(t).state])
def test_inplace(type: str) -> None:
    definition = op_def(type)
    if not sum(check_inplace(definition, sample) for sample in samples(definition, 12, limit=36)):
        pytest.skip("input and output never have the same shape and dtype")
