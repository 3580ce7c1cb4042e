"""Every op can be sampled, but for those that own blocks, take tensor arrays or act outside the program: programs test those."""

from __future__ import annotations

import pytest

from tests.ops.sampler import samples
from tstatic.ir.opdef import OPS

FORWARD = sorted(c.type for c in OPS.values() if not c.of)


@pytest.mark.parametrize("type", FORWARD)
def test_domain(type: str) -> None:
    definition = OPS[type]
    owns_blocks = any(attr.kind == "block" for attr in definition.attrs.values())
    if definition.domain is None:
        assert owns_blocks or definition.effects or definition.arrays, (
            f"{type} has no domain, so no generic test reaches it"
        )
    else:
        assert next(samples(definition, 1)) is not None
        assert definition.lower is not None, f"{type} has no torch lowering to be compared with"
