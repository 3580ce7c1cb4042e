"""Every stated gradient against central differences in float64, second order where an op definition claims it."""

from __future__ import annotations

import pytest

from tests.ops.gradcheck import check_grad
from tests.ops.sampler import LAYOUTS, op_types, root, samples
from tstatic.ir.opdef import op_def

GRADED = [t for t in op_types(1) if op_def(t).grad is not None]
UNCHECKED = [t for t in GRADED if isinstance(root(op_def(t)).domain.check_grad, str)]  # type: ignore[union-attr]


@pytest.mark.parametrize("type", GRADED)
def test_grad(type: str) -> None:
    definition = op_def(type)
    domain = root(definition).domain
    assert domain is not None
    if isinstance(domain.check_grad, str):
        pytest.skip(domain.check_grad)
    seen: dict[str, int] = {}
    for sample in samples(definition, 9, ("float64",), LAYOUTS[:3], limit=24):
        check_grad(definition, sample, seen)
    assert seen.get("checked", 0) > 0, f"no sample of {type} has an element to check"


def test_few_op_defs_are_exempt() -> None:
    assert len(UNCHECKED) <= 3, UNCHECKED
