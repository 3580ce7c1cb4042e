"""Every op can be sampled, but for those that own blocks or act outside the program; those are tested through programs."""

from __future__ import annotations

from tests.ops.sampler import samples
from tstatic.ir.opdef import OPS

FORWARD = sorted(c.type for c in OPS.values() if not c.of)


def test_domain() -> None:
    for type in FORWARD:
        _check(type)


def _check(type: str) -> None:
    definition = OPS[type]
    owns_blocks = any(attr.kind == "block" for attr in definition.attrs.values())
    if definition.domain is None:
        # Ops on tensor arrays, which are lists: tests/cpu/test_arrays.py and tests/sequences run programs with them.
        on_arrays = definition.dynamic and definition.lower is None
        assert owns_blocks or definition.effects or on_arrays, f"{type} has no domain, so no generic test reaches it"
    else:
        assert next(samples(definition, 1)) is not None, type
        assert definition.lower is not None, f"{type} has no torch lowering to be compared with"
