"""A kernel that copies: what memory can deliver is the better of it and of the driver's own copy."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy(source, target, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """``target = source``."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(target + offsets, tl.load(source + offsets, mask=mask), mask=mask)
